"""Draws a defect: the model, the stage, what goes wrong and where, each by a seed and a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from .model_run import FILES
from .planted import SCALAR_CHANGES, SCALAR_KINDS
from .wrong_calls import ENDS, KINDS, WRONG
from .zoo_factories import TRAINING

PLANTED = "keel_bench.debugging.planted"
STAGES = ("plugin", "extern", "rendering", "decomposition", "fusion", "runtime", "compiler", "lowering")
"""The stages that have defects, in turn."""
OWN = tuple(FILES)
"""The stages that are Keel's own: the defect is in Keel's source."""
ENDING = 3
"""One in this many defects of plugins and library calls gives no number at all."""
DEADLY = ("crash", "hang", "memory")
"""The kinds of failure after which a process gives no answer."""
MODES = ("inference", "training")


@dataclass(frozen=True)
class Defect:
    """A defect to plant in the model ``target`` of the zoo. ``place`` is the operator or the scalar operation, or the
    file and what is changed in it. ``kind`` is the kind of failure that is expected.
    """

    target: str
    stage: str
    backend: str
    change: str
    place: str
    kind: str

    def as_json(self) -> dict[str, Any]:
        """The defect as plain data."""
        return asdict(self)

    @property
    def operator(self) -> str:
        """The operator that gives wrong numbers; empty if it is not known."""
        return self.place.split()[0] if self.stage in ("plugin", "extern") else ""

    @property
    def probe(self) -> str:
        """A backend that fails if the model gets to the defect. A defect that would end or hold its process raises."""
        return self.backend.replace(f".{self.change}.", ".failing.") if self.kind in DEADLY else self.backend


def chance(seed: int, number: int, what: str) -> Random:
    """The random numbers of a case, for one purpose."""
    return Random(f"{seed} {number} {what}")


def stage_of(number: int) -> str:
    """The stage of a case."""
    return STAGES[number % len(STAGES)]


def model_of(seed: int, number: int, models: Sequence[str], modes: Sequence[str] = MODES) -> str:
    """The model of a case, and whether it trains."""
    mode = modes[number // len(STAGES) % len(modes)]
    return chance(seed, number, "model").choice(sorted(models)) + (TRAINING if mode == "training" else "")


def drawn(seed: int, number: int, model: str, places: Mapping[str, Sequence[str]], attempt: int = 0) -> Defect:
    """A defect in a backend, at one of the places that the model has. Each attempt draws another one."""
    random, stage = chance(seed, number, f"place {attempt}" if attempt else "place"), stage_of(number)
    if stage in ("rendering", "compiler"):
        scalar, change = random.choice(places["scalars"]), random.choice(sorted(SCALAR_CHANGES))
        return Defect(model, stage, f"{PLANTED}:{stage}.{change}.{scalar}", change, scalar, SCALAR_KINDS[change])
    operator, _, rank = random.choice(places["calls" if stage == "plugin" else "externs"]).partition(" ")
    where = random.choice(("any", f"rank{rank}"))
    ends = (*ENDS, "not_a_number", *(("doubled",) if stage == "plugin" else ()))
    change = random.choice(sorted(ends if random.randrange(ENDING) == 0 else WRONG))
    backend = f"{PLANTED}:{stage}.{change}.{where}.{operator}"
    return Defect(model, stage, backend, change, f"{operator} {where}", KINDS[change])
