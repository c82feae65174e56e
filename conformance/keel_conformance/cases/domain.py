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

from .case import Inputs
from .values import SeededValues

Levels = Mapping[str, str]
"""The chosen level of each factor; the factor ``dtype`` has names as ``f32``."""
DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass(frozen=True)
class Rule:
    """Which levels of a few factors go together: ``holds`` is called with theirs, in order."""

    factors: tuple[str, ...]
    holds: Callable[..., bool]


@dataclass(frozen=True)
class InvalidCall:
    """Arguments that break one precondition and nothing else. ``violates`` is the precondition's sentence, or the
    clause that makes it an error.
    """

    name: str
    violates: str
    make: Callable[[SeededValues], Inputs]
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

    ``covers`` names the clauses (``C1``) that a choice witnesses; ``untested`` those that none does, with the reason.
    ``required`` are choices that a covering array may not leave out. Those of ``priority`` come first where few are
    tried, and those of ``added`` on top of these. ``extra`` are a few choices with levels that no factor has, since no
    other choice should have them. ``overload`` is the full name of what a choice calls, the member's first where it is
    empty. ``why_few`` says why an operator has fewer than 60 cases. ``facets`` maps the levels that name a call to what
    distinguishes it from other calls.
    """

    op: Op
    factors: Mapping[str, tuple[str, ...]]
    make: Callable[[Levels, torch.dtype, SeededValues], Inputs | None]
    rules: tuple[Rule, ...] = ()
    required: tuple[Levels, ...] = ()
    priority: tuple[Levels, ...] = ()
    added: tuple[Levels, ...] = ()
    extra: tuple[Levels, ...] = ()
    overload: Callable[[Levels], str] = _first
    covers: Callable[[Levels], Iterable[str]] = _nothing
    untested: Mapping[str, str] = field(default_factory=dict)
    invalid_calls: tuple[InvalidCall, ...] = ()
    why_few: str = ""
    facets: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def allows(self, levels: Levels) -> bool:
        """Whether the rules hold for levels, of some factors or of all."""
        if any(levels.items() <= choice.items() for choice in self.extra):
            return True
        return all(r.holds(*(levels[f] for f in r.factors)) for r in self.rules if all(f in levels for f in r.factors))


def dtype_names(dtypes: Iterable[torch.dtype]) -> tuple[str, ...]:
    return tuple(DTYPE_NAMES[d] for d in dtypes)
