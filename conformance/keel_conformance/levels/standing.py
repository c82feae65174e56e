"""How far the verdicts of a run reach: what of a level the backend takes and gets right, and what it lacks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..cases.case import Case
from ..results.verdict import BAD, PARTS, REFUSED, Verdict
from .level import Level, Profile, levels

State = Literal["conforms", "lacks", "not judged"]
EXCUSES = ("raises", "eager alone")
"""Oracles that say of a case that was not run that PyTorch itself does not come through it."""
SHOWN = 5


@dataclass(frozen=True)
class Gap:
    """An operator in a dtype, or a program (without dtype), that a level requires and the backend lacks: ``cases`` of
    ``of`` required cases, ``how`` in a word, and the reason that most of them have.
    """

    op: str
    dtype: str
    how: str
    cases: int
    of: int
    reason: str

    def __str__(self) -> str:
        where = f"{self.op} on {self.dtype}" if self.dtype else f"the program {self.op}"
        reason = f": {self.reason.rstrip('.')}" if self.reason else ""
        return f"{where}, {self.cases} of {self.of} cases {self.how}{reason}"


@dataclass(frozen=True)
class Standing:
    """How a run stands to a level. ``held`` of the ``required`` operators in their dtypes, and programs, are taken and
    right. ``untried`` are those of which this run judged no case.
    """

    level: str
    required: int
    held: int
    gaps: tuple[Gap, ...]
    untried: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """A level that a run covers in part can be lacked, but not reached."""
        return "lacks" if self.gaps else "not judged" if self.untried or not self.required else "conforms"

    @property
    def figures(self) -> str:
        return f"{self.held} of {self.required} required operators and dtypes"

    def as_json(self) -> dict[str, Any]:
        gaps = [asdict(gap) for gap in self.gaps]
        return {**asdict(self), "state": self.state, "gaps": gaps, "untried": list(self.untried)}

    def sentence(self, subject: str) -> str:
        """The standing in a sentence or two, for the end of a run."""
        if self.state == "conforms":
            return f"{subject} conforms to {self.level}: it takes all {self.required} operators and dtypes of it."
        if self.state == "not judged":
            return f"This run does not judge {self.level}: it has no verdict on {len(self.untried)} of {self.required}."
        shown = "; ".join(map(str, self.gaps[:SHOWN]))
        more = f"; and {len(self.gaps) - SHOWN} more" if len(self.gaps) > SHOWN else ""
        return f"{subject} does not conform to {self.level}: it has {self.figures}. Missing: {shown}{more}."


def standing_of(level: Level, planned: Iterable[Case], verdicts: Iterable[Verdict]) -> Standing:
    """How the verdicts stand to the level. A required operator is held if a case of it was judged, the backend took
    all of each case, each is right, and none is waived. Calls that PyTorch itself does not do are not required.
    """
    by_id = {c.id: c for c in planned if level.requires(c)}
    judged, excused = defaultdict[_Key, list[Verdict]](list), set[_Key]()
    for v in verdicts:
        if (case := by_id.get(v.case)) is None:
            continue
        key = (case.op, case.dtype)
        if v.status != "not run":
            judged[key].append(v)
        elif v.oracle in EXCUSES:
            excused.add(key)
    required = {*level.needs.pairs, *((c.op, c.dtype) for c in by_id.values())} - (excused - judged.keys())
    gaps = [gap for key in sorted(judged) if (gap := _gap(*key, judged[key])) is not None]
    untried = sorted(" on ".join(filter(None, key)) for key in required - judged.keys())
    return Standing(level.name, len(required), len(judged) - len(gaps), tuple(gaps), tuple(untried))


_Key = tuple[str, str]


def _gap(op: str, dtype: str, verdicts: Sequence[Verdict]) -> Gap | None:
    """What is lacking of an operator, the gravest first; None if nothing is."""
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for v in verdicts:
        if how := _lacking(v):
            reasons[how][str(v.figures.get(REFUSED, "")) or v.sentence] += 1
    for how in ("wrong", "refused", "refused in part", "left to eager PyTorch", "waived"):
        if how in reasons:
            ((reason, _),) = reasons[how].most_common(1)
            return Gap(op, dtype, how, reasons[how].total(), len(verdicts), reason[:300])
    return None


def _lacking(v: Verdict) -> str:
    """What a required case lacks, in a word; empty if nothing."""
    if v.status in BAD:
        return "wrong"
    if v.status in ("waived", "xfail"):
        return "waived"
    if v.status == "not claimed":
        return "refused"
    if v.figures.get(REFUSED):
        return "refused in part"
    return "left to eager PyTorch" if v.figures.get(PARTS) == 0 else ""


# -- what a run says ---------------------------------------------------------------------------------------------------


def standings(profile: Profile, planned: Sequence[Case], verdicts: Sequence[Verdict]) -> list[Standing]:
    """To the level that the run was for, or to all levels, if it was for none."""
    judged = [profile.level] if profile.level is not None else [*levels().values()]
    return [standing_of(level, planned, verdicts) for level in judged]


def unmet(profile: Profile, all_standings: Sequence[Standing], subject: str, *, complete: bool) -> list[str]:
    """Says that the level which the run was for is not reached; nothing if it is, or if the run was for none. Only a
    run that is ``complete`` has to judge all of the level.
    """
    if profile.level is None:
        return []
    return [
        one.sentence(subject)
        for one in all_standings
        if one.state == "lacks" or (complete and one.state == "not judged")
    ]


def highest(reached: Iterable[str]) -> list[str]:
    """The highest level of each kind among those that are reached, the lowest of each kind first."""
    known = levels()
    return [*{name.rpartition("-")[0] if name in known else name: name for name in reached}.values()]


def headline(subject: str, profile: Profile, right: bool, all_standings: Sequence[Standing]) -> str:
    """The verdict on a run in one line: the highest level of each kind that is reached, or what the first one lacks.
    ``right`` says that nothing of the run is bad.
    """
    lacking = next((one for one in all_standings if one.state == "lacks"), None)
    if profile.level is not None and lacking is not None:
        return f"{subject} does not conform to {lacking.level}: it has {lacking.figures}."
    if not right:
        return f"{subject} does not conform."
    if reached := highest(one.level for one in all_standings if one.state == "conforms"):
        return f"{subject} conforms to {' and '.join(reached)}."
    claims = f"{subject} is right in all that it claims of profile {profile.name}"
    if lacking is None:
        return f"{claims}. The run judges no level in full."
    return f"{claims}, and conforms to no level: of {lacking.level} it has {lacking.figures}."
