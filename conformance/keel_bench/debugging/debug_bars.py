"""The jobs of the suite `debug`, and the bars that their figures are held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keel_conformance.report import Criterion, percent
from keel_conformance.workers.pool import Outcome

from ..jobs import Job, Selection, within
from .planting import model_of
from .zoo_factories import TRAINING

PART = "debug"
CASES = 120
NODES, LINES, SECONDS = 10, 40, 300.0
MODELS = (
    "AlbertForMaskedLM",
    "DistilBertForMaskedLM",
    "GPTNeoForCausalLM",
    "OPTForCausalLM",
    "bert",
    "gpt2",
    "lcnet_050",
    "llama",
    "mixer_b16_224",
    "vit",
)
"""The models of the zoo that have defects: one that runs a trial in a second at most."""


def jobs(chosen: Selection) -> list[Job]:
    """The cases, each by its number."""
    models = [m for m in MODELS if m in chosen.models]
    return [_job(chosen, number, models) for number in range(chosen.few(CASES))] if models else []


def _job(chosen: Selection, number: int, models: Sequence[str]) -> Job:
    model = model_of(chosen.seed, number, models, chosen.modes)
    mode = "training" if model.endswith(TRAINING) else "inference"
    return chosen.job(PART, model.removesuffix(TRAINING), mode, along=f"{chosen.seed}:{number}", rounds=1)


def is_small(row: Mapping[str, Any]) -> bool:
    """True if a reduction has few calls and a short script."""
    return bool(row["reduced"]) and row["nodes"] <= NODES and row["lines"] <= LINES


def is_blamed(row: Mapping[str, Any]) -> bool:
    """True if the stage is named rightly."""
    return bool(row.get("blamed") == row["stage"])


def is_script_right(row: Mapping[str, Any]) -> bool:
    """True if the script exits with 1 on the defect and with 0 without it."""
    return bool(row["reduced"]) and (row["with_defect"], row["without_defect"]) == (1, 0)


def bars(outcomes: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    """The bars of the cases that were measured."""
    if not outcomes:
        return
    rows = [o.row for o in outcomes.values() if o.row and o.row["planted"]]
    none = sum(bool(o.row) and not o.row["planted"] for o in outcomes.values())
    failed = sum(not o.row for o in outcomes.values())
    yield Criterion("defects planted", len(rows), str(CASES), len(rows) >= CASES, f"{none} drawn in vain")
    yield within("cases that failed", failed, 0)
    if not rows:
        return
    yield _share("reduced to 10 calls and 40 lines", [is_small(r) for r in rows], 0.95)
    yield _share("reduced in 5 minutes", [r["seconds"] <= SECONDS for r in rows], 0.95)
    yield _share("stage named rightly", [is_blamed(r) for r in rows], 0.9)
    yield _share("scripts with 1 on the defect, 0 without it", [is_script_right(r) for r in rows], 1.0)
    located = [r for r in rows if r["kind"] == "wrong" and r["operator"]]
    if located:
        yield _share("keel compare names the operator", [r.get("named") == r["operator"] for r in located], 0.95)


def _share(name: str, hold: Sequence[bool], least: float) -> Criterion:
    share = sum(hold) / len(hold)
    note = f"{sum(hold)} of {len(hold)}: {percent(sum(hold), len(hold))}"
    return Criterion(name, share, f">= {least:g}", share >= least, note)
