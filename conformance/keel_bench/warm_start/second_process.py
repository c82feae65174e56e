"""Each model of the zoo in a first process and in a second one, which has what the first one kept.

Keel is compared with ``aot_eager``, which captures and compiles nothing, and for some models with Inductor in a second
process. All processes are fresh, and run one by one.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from keel_conformance.models import ModelCase
from keel_conformance.report import Criterion, join_names
from keel_conformance.workers.pool import Outcome, run_all
from keel_conformance.workers.spawn import fresh

from ..compilers import INDUCTOR
from ..jobs import Job, Selection, beside_inductor, failed, within
from ..models import model_zoo, published
from .first_step import COMPILED, LOADED, FirstStep, keel_compile, torch_compile, work

BESIDE_INDUCTOR = (
    "bert",
    "gpt2",
    "vit",
    "resnet18",
    "mobilenetv3",
    "AlbertForMaskedLM",
    "DistilBertForMaskedLM",
    "mnasnet_100",
)
"""Models that Inductor compiles, too. Its first process takes a minute or more."""
AOT_EAGER, COLD, WARM = "aot_eager", "cold", "warm"
AOT_TIMES, INDUCTOR_TIMES = 1.1, 0.5
BERT = "bert-base"
BERT_COLD, BERT_WARM = 1.5, 0.1  # seconds of Keel's own
TIME_LIMIT = 900.0
"""Seconds after which a process has failed."""
LAST_LINES = 8  # of what a process printed before it failed


def jobs(chosen: Selection) -> list[Job]:
    """Keel in each model and mode, and Inductor in some."""
    return [
        chosen.job("warm-zoo", model, mode, compiler=compiler, scale="tiny", rounds=1)
        for model in chosen.models
        for mode in chosen.modes
        for compiler in ((INDUCTOR, chosen.backend) if model in BESIDE_INDUCTOR else (chosen.backend,))
        if model in model_zoo.NAMES
    ]


def bert_jobs(chosen: Selection) -> list[Job]:
    """BERT with 12 layers, one row of tokens."""
    return [chosen.job("warm-bert", BERT, mode, rounds=1) for mode in chosen.modes if BERT in chosen.models]


def measure(job: Job) -> dict[str, Any]:
    """The figures of each process of the job: of the ``cold`` and the ``warm`` one, and of ``aot_eager`` next to Keel;
    and what is ``different`` in the warm one. Raises RuntimeError if a process fails.
    """
    return figures(steps(job, model_of(job)))


def model_of(job: Job) -> Callable[[], ModelCase]:
    if job.part == "warm-bert":
        return partial(published.build, job.model, 1, "cpu", job.scale)
    return partial(model_zoo.build, job.model)


def steps(job: Job, model: Callable[[], ModelCase]) -> list[FirstStep]:
    """The processes of a job in their order."""
    if job.compiler == INDUCTOR:
        ways = {COLD: partial(torch_compile, INDUCTOR), WARM: partial(torch_compile, INDUCTOR)}
    else:
        own = partial(keel_compile, job.compiler)
        ways = {AOT_EAGER: partial(torch_compile, "aot_eager"), COLD: own, WARM: own}
    return [FirstStep(name, model, job.mode, arguments, job.threads) for name, arguments in ways.items()]


def figures(todo: Sequence[FirstStep]) -> dict[str, Any]:
    rows = run_each(todo)
    return {
        **{name: {key: value for key, value in row.items() if key != "left"} for name, row in rows.items()},
        "different": different(rows[COLD]["left"], rows[WARM]["left"]),
    }


def run_each(todo: Sequence[FirstStep]) -> dict[str, dict[str, Any]]:
    """The rows of processes that share caches, by name; they run one after another. Raises RuntimeError if one
    fails.
    """
    rows = {}
    with TemporaryDirectory(prefix="keel-bench-") as caches:
        start = fresh(work, partial(environment, Path(caches)))
        for step, outcome in run_all(todo, start, time_limit=TIME_LIMIT, last_lines=LAST_LINES):
            if outcome.row is None:
                raise RuntimeError(f"The process {step.name} failed. {outcome.failure}")
            rows[step.name] = outcome.row
    return rows


def environment(caches: Path, step: FirstStep, folder: Path) -> dict[str, str]:
    """The environment of a process. Inductor compiles in the process, so that its CPU seconds are counted. Modules have
    their bytecode, as installed packages do.
    """
    own = {name: value for name, value in os.environ.items() if name not in ("KEEL_DUMP", "PYTHONDONTWRITEBYTECODE")}
    return {
        **own,
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "KEEL_CACHE_DIR": str(caches / "keel"),
        "KEEL_GRAPH_CACHE": "1",
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "OMP_NUM_THREADS": str(step.threads),
        "HF_HUB_OFFLINE": "1",
    }


def different(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """The tensors that two steps did not leave with the same bits."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


# -- bars --------------------------------------------------------------------------------------------------------------


def own_seconds(process: Mapping[str, Any]) -> float:
    """Seconds in Keel after capture, over all graphs of a process."""
    return float(sum(s for graph in process["graphs"] for stage, s in graph["seconds"].items() if stage != "capture"))


def bars(results: Mapping[Job, Outcome]) -> Iterator[Criterion]:
    """A row for each model, the faults, and the totals, which have the bars."""
    done = {job: o.row for job, o in results.items() if o.row is not None and job.compiler != INDUCTOR}
    for job, outcome in results.items():
        if outcome.row is None:
            yield failed(job, outcome, "it runs")
    for job, row in done.items():
        yield Criterion(f"{job.title}: CPU s / aot_eager's", ratio(row[WARM], row[AOT_EAGER]), "shown", None, note(row))
    pairs = {job: (row[WARM], row[AOT_EAGER]) for job, row in done.items()}
    yield from totals("warm-zoo", "aot_eager's", AOT_TIMES, pairs)
    inductors = {job: (row[WARM], o.row[WARM]) for job, row in done.items() if (o := beside_inductor(job, results)).row}
    yield from totals("warm-zoo", "Inductor's warm start", INDUCTOR_TIMES, inductors)
    if done:
        own = {name: sum(own_seconds(row[name]) for row in done.values()) for name in (WARM, COLD)}
        title = "warm-zoo: total of Keel's own elapsed s after capture"
        yield Criterion(title, own[WARM], "shown", None, f"cold {own[COLD]:.1f} s")
    yield from faults("warm-zoo", done)


def bert_bars(results: Mapping[Job, Outcome]) -> Iterator[Criterion]:
    """Keel's own seconds in both processes. In training nothing is promised of them."""
    for job, outcome in results.items():
        if (row := outcome.row) is None:
            yield failed(job, outcome, "it runs")
            continue
        for name, most in ((COLD, BERT_COLD), (WARM, BERT_WARM)):
            title, seconds = f"{job.title}: {name}, Keel's own s", own_seconds(row[name])
            promised = job.mode == "inference"
            yield within(title, seconds, most, note(row)) if promised else Criterion(title, seconds, "shown", None)
    yield from faults("warm-bert", {job: outcome.row for job, outcome in results.items() if outcome.row is not None})


def note(row: Mapping[str, Any]) -> str:
    """``warm 1.2 s (0.03 s Keel's own), cold 3.4 s (0.9 s Keel's own), aot_eager 1.1 s``."""
    own = (f"{name} {row[name]['cpu']:.2f} s ({own_seconds(row[name]):.3f} s Keel's own)" for name in (WARM, COLD))
    return ", ".join([*own, f"aot_eager {row[AOT_EAGER]['cpu']:.2f} s"])


def ratio(own: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Of CPU seconds."""
    return float(own["cpu"] / other["cpu"])


def totals(what: str, whose: str, most: float, pairs: Mapping[Job, tuple[Any, Any]]) -> Iterator[Criterion]:
    """The ratio of the total CPU seconds, which has a bar, the same of elapsed seconds, and the median ratio."""
    if not pairs:
        return
    for key, unit in (("cpu", "CPU s"), ("seconds", "elapsed s")):
        own, other = (sum(pair[k][key] for pair in pairs.values()) for k in (0, 1))
        text = f"{own:.1f} s and {other:.1f} s in {len(pairs)} runs"
        name = f"{what}: total {unit} / {whose}"
        yield (
            within(name, own / other, most, text) if key == "cpu" else Criterion(name, own / other, "shown", None, text)
        )
    median = statistics.median(ratio(*pair) for pair in pairs.values())
    yield Criterion(f"{what}: median of CPU s / {whose}", median, "shown", None)


def faults(part: str, done: Mapping[Job, Mapping[str, Any]]) -> Iterator[Criterion]:
    """What warm processes did otherwise than the cold ones, or compiled."""
    if not done:
        return
    wrong = [
        f"{job.model} {job.mode}: {join_names(row['different'], 3)}" for job, row in done.items() if row["different"]
    ]
    compiled = [f"{job.model} {job.mode}: {why}" for job, row in done.items() for why in compiled_again(row[WARM])]
    loaded = sum(graph["result"] == LOADED for row in done.values() for graph in row[WARM]["graphs"])
    yield Criterion(f"{part}: models whose results differ in a bit", len(wrong), "0", not wrong, join_names(wrong, 12))
    note = join_names(compiled, 12) or f"{loaded} graphs were loaded"
    yield Criterion(f"{part}: graphs compiled again", len(compiled), "0", not compiled, note)


def compiled_again(process: Mapping[str, Any]) -> list[str]:
    """The graphs that a process compiled, each with the reason if there is one."""
    again, why = [], ""
    for graph in process["graphs"]:
        if graph["result"] == COMPILED:
            again.append(f"{graph['graph']} graph{': ' if why else ''}{why}")
        why = graph["why"] if graph["result"] not in (COMPILED, LOADED) else ""
    return again
