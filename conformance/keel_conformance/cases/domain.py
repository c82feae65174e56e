"""What arguments an operator can be called with, as factors with levels, rules between them, and what makes a call.

One object says which calls are valid, draws them, says which clauses of the operator each is a witness of, and has the
calls that break a precondition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from keel.loops import DTYPE_NAMES
from keel.opset import Op

from .case import Trial
from .values import Draw

Levels = Mapping[str, str]
"""The chosen level of each factor; the factor ``dtype`` has names as ``f32``."""
DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass(frozen=True)
class Rule:
    """Which levels of a few factors go together: ``holds`` is called with theirs, in order."""

    factors: tuple[str, ...]
    holds: Callable[..., bool]


@dataclass(frozen=True)
class Negative:
    """Arguments that break one precondition and nothing else. ``breaks`` is the sentence, or the clause that says that
    it is an error.
    """

    name: str
    breaks: str
    make: Callable[[Draw], Trial]
    overload: str = ""
    dtype: str = ""


def _nothing(levels: Levels) -> Iterable[str]:
    return ()


def _first(levels: Levels) -> str:
    return ""


@dataclass(frozen=True)
class Domain:
    """``factors`` has the levels of each factor, ``dtype`` first. ``make`` gives the arguments for a choice that the
    rules allow; types and attributes depend on levels alone, values on the draw too.

    ``cites`` names the clauses (``C1``) that a choice witnesses; ``untested`` those that none does, with the reason.
    ``must`` are choices that a covering array may not leave out; those of ``telling`` come first where few are tried,
    and those of ``added`` on top of these; ``beyond`` are a few of levels that no factor has, since no other choice
    should have them. ``overload`` is the full name of what a choice calls, the member's first where it is empty.
    ``few`` says why an operator has fewer than 60 cases. ``facets`` says of levels that name a call what tells it from
    others.
    """

    op: Op
    factors: Mapping[str, tuple[str, ...]]
    make: Callable[[Levels, torch.dtype, Draw], Trial | None]
    rules: tuple[Rule, ...] = ()
    must: tuple[Levels, ...] = ()
    telling: tuple[Levels, ...] = ()
    added: tuple[Levels, ...] = ()
    beyond: tuple[Levels, ...] = ()
    overload: Callable[[Levels], str] = _first
    cites: Callable[[Levels], Iterable[str]] = _nothing
    untested: Mapping[str, str] = field(default_factory=dict)
    negatives: tuple[Negative, ...] = ()
    few: str = ""
    facets: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def allows(self, levels: Levels) -> bool:
        """Whether the rules hold for levels, of some factors or of all."""
        if any(levels.items() <= choice.items() for choice in self.beyond):
            return True
        return all(r.holds(*(levels[f] for f in r.factors)) for r in self.rules if all(f in levels for f in r.factors))


def dtype_names(dtypes: Iterable[torch.dtype]) -> tuple[str, ...]:
    return tuple(DTYPE_NAMES[d] for d in dtypes)
