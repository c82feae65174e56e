"""The levels that a vendor climbs, derived from what the models of the zoo need (``needs.json``).

Each level contains the one below it. The table is measured by ``python -m keel_bench.model_needs``; the rules by which
levels follow from it are ``_levels``, and docs/conformance/levels.md says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from keel import KeelError, documents
from keel.loops import DTYPE_NAMES
from keel.opset import MEMBERS

from ..cases.case import Case
from ..cases.layout_classes import LAYOUTS
from ..cases.plan import PROFILES
from .needs import Needs, read_needs, union

FILE = Path(__file__).with_name("needs.json")
HALVES = ("bf16", "f16")
"""The dtypes in which the highest levels need whatever the zoo calls on float32."""
FOR = "for "
"""The names of profiles that are made of a model's needs begin with this."""


@dataclass(frozen=True)
class Level:
    """What a backend must take, and get right. ``includes`` are the profiles of the cases of its run; ``programs`` are
    the profiles of programs of which a backend must take a part. A level that is ``exact`` is that of a model: its run
    has the cases of its needs alone.
    """

    name: str
    includes: frozenset[str]
    needs: Needs
    sentence: str
    programs: frozenset[str] = frozenset()
    exact: bool = False

    def requires(self, case: Case) -> bool:
        """True if the backend must take this case."""
        if case.kind == "op":
            return case.levels.get("layout", "contiguous") in self.needs.calls.get(case.op, {}).get(case.dtype, ())
        return case.kind == "program" and case.profile in self.programs


@cache
def levels() -> Mapping[str, Level]:
    """All levels by name, the lowest of each kind first."""
    return {level.name: level for mode in ("inference", "training") for level in _levels(mode)}


def _levels(mode: str) -> tuple[Level, Level, Level]:
    modes = ("inference", "training") if mode == "training" else ("inference",)
    families, includes = measured(), PROFILES[mode]
    first = union(families[f"line {m}"] for m in modes)
    second = union(needs for name, needs in families.items() if name.rpartition(" ")[2] in modes)
    third = Needs(_in_halves_and_all_layouts(second), dynamic=True)
    programs = frozenset({"dynamic", *modes} - {"inference"})
    what = "training steps" if mode == "training" else "inference"
    return (
        Level(f"{mode}-1", includes, first, f"{what} of nine models that everybody runs, in float32"),
        Level(f"{mode}-2", includes, second, f"{what} of all models of the zoo, in float32"),
        Level(
            f"{mode}-3",
            includes | programs,
            third,
            f"{what} of all models of the zoo, in float32, bfloat16 and float16, in every layout, with changing sizes",
            programs,
        ),
    )


def _in_halves_and_all_layouts(needs: Needs) -> dict[str, dict[str, frozenset[str]]]:
    """The calls in every layout, and those on float32 also in the 16-bit dtypes that the operator is declared for."""
    result = {}
    for op, dtypes in needs.calls.items():
        declared = {DTYPE_NAMES.get(d) for d in MEMBERS[op].dtypes or ()}
        more = [half for half in HALVES if "f32" in dtypes and half in declared]
        result[op] = dict.fromkeys([*dtypes, *more], frozenset(LAYOUTS))
    return result


@cache
def measured() -> Mapping[str, Needs]:
    """The needs of each family of models in each mode, as ``line inference``."""
    document = documents.Item(documents.parsed(documents.text_of(FILE))).table(16)
    results = {}
    for name, family in document["families"].table(16).items():
        fields = family.table(16)
        results[name] = read_needs(documents.Item({k: v.value for k, v in fields.items() if k != "models"}, name))
    return results


# -- profiles of a run -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Profile:
    """What a run is judged by: the profiles of cases that it includes, and the level that it has to reach, if any."""

    name: str
    includes: frozenset[str]
    level: Level | None = None


def profile_names() -> tuple[str, ...]:
    return (*PROFILES, *levels())


def profile_of(name: str, needs: Needs | None = None) -> Profile:
    """The profile with this name; ``needs`` are those of a model, if it is a model's. Raises KeelError[bad-option]."""
    if name in PROFILES:
        return Profile(name, PROFILES[name])
    if (level := levels().get(name)) is not None:
        return Profile(name, level.includes, level)
    if not name.startswith(FOR):
        raise KeelError(
            "bad-option", f"There is no profile {name!r}.", do=f"Profiles are {', '.join(profile_names())}."
        )
    if needs is None or not name.endswith(f" {needs.digest[:12]}"):
        raise KeelError(
            "bad-option",
            f"The profile {name!r} is of a model, and what that model needs is not at hand.",
            do="The folder of the run has it, in the file needs.json as the run wrote it.",
        )
    programs = frozenset({"dynamic"} if needs.dynamic else ())
    level = Level(name, PROFILES["training"] | programs, needs, "the calls of one model", programs, exact=True)
    return Profile(name, level.includes, level)


def model_profile(what: str, needs: Needs) -> str:
    """The name of a model's profile. It has a hash of the needs, so a log says exactly what its run was judged by."""
    return f"{FOR}{what} {needs.digest[:12]}"
