"""A case's arguments: equal bits in every process, other values in other memory at every call."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

from ..pytree import tensor_leaves
from . import trivial
from .case import Case, Inputs
from .domain import DTYPES, Domain, Levels
from .domains import domain_of
from .values import SeededValues

VIOLATES = "breaks"
"""The factor of a negative case that names what it breaks."""
REDRAWN = "redrawn"
"""What a trial notes that has values of another class than its case says."""
AGAIN = ("random", "specials", "nonfinite", "ties", "exact", "duplicates", "shifted", "wide", "true", "false")
"""Classes of values that a call may be drawn from again, in turn."""
RARE = ("specials", "nonfinite", "duplicates")
TURNS, FEW_TURNS, SMALL = 20, 3, 64
"""How often special values are drawn again besides; the fewer, if arguments have more than ``SMALL`` elements."""


def draw_inputs(case: Case, call: int) -> Inputs:
    """Returns the inputs of call number ``call`` (0, 1, 2 ...) of a case of kind ``op`` or ``negative``. All calls have
    the same types and attributes. Raises ValueError for a case that its domain does not have.

    If a backend that computes nothing could pass call 0, later calls are drawn so that it fails them.
    """
    domain = domain_of(case.op)
    made: Inputs | None = None
    match case.kind:
        case "op" if domain is not None and domain.allows(case.levels):
            made = _drawn(case, domain, call, _turn(case, call))
        case "negative" if domain is not None:
            draw = SeededValues(case.digest, call)
            made = next((n.make(draw) for n in domain.invalid_calls if n.name == case.levels[VIOLATES]), None)
    if made is None:
        raise ValueError(f"No domain has the case {case.id}.")
    return made


def trivial_outcomes_of(domain: Domain, levels: Levels, call: int, turn: int = 0) -> frozenset[str]:
    """What nothing computed may pass for the results of a call of a choice (see ``blank``)."""
    result = _draw_trivial_outcomes(domain, levels, SeededValues(repr(levels), call, turn=turn))
    return frozenset() if result is None else result[0]


def _drawn(case: Case, domain: Domain, call: int, turn: int) -> Inputs | None:
    made = domain.make(_levels(case, domain, turn), DTYPES[case.dtype], SeededValues(case.digest, call, turn=turn))
    return made if made is None or not turn else replace(made, notes=made.notes | {REDRAWN})


def _levels(case: Case, domain: Domain, turn: int) -> Levels:
    """With ``turn`` another class of values than the case's, each in turn; then special values, where it has them."""
    levels: Levels = {**case.levels, "dtype": case.dtype}
    here = domain.factors.get("values", ()) if turn else ()
    classes = [v for v in AGAIN if v in here and domain.allows({**levels, "values": v})]
    if not classes:
        return levels
    rare = next((v for v in RARE if v in classes), classes[0])
    return {**levels, "values": classes[turn - 1] if turn <= len(classes) else rare}


@lru_cache(1024)
def _turn(case: Case, call: int) -> int:
    """How often the call is drawn again."""
    domain = domain_of(case.op)
    if not call or domain is None or not trivial.is_deterministic(domain.op):
        return 0

    def outcomes_of(call: int, turn: int) -> trivial.TrivialOutcomes | None:
        return _draw_trivial_outcomes(
            domain, _levels(case, domain, turn), SeededValues(case.digest, call, turn=turn), case.overload
        )

    first = outcomes_of(0, 0)
    own = outcomes_of(call, 0) if first is not None and first[0] else None
    if first is None or own is None or trivial.EMPTY in first[0]:
        return 0
    best, turn = _alike(first[0], own[0]), 0
    small = sum(x.numel() for x in _tensors(case, domain)) <= SMALL
    for k in range(1, 1 + len(domain.factors.get("values", ())) + (TURNS if small else FEW_TURNS)):
        if not best:
            break
        outcomes = outcomes_of(call, k)
        if outcomes is not None and outcomes[1] == own[1] and _alike(first[0], outcomes[0]) < best:
            best, turn = _alike(first[0], outcomes[0]), k
    return turn


def _alike(first: frozenset[str], later: frozenset[str]) -> int:
    """What may pass for both: of results at the ends of the range anything may, where nothing of them is decided. That
    one truth value is that of the argument counts least.
    """
    return sum(1 if sign == "identity" else 2 for sign in (later if trivial.EXTREME in first else first & later))


def _draw_trivial_outcomes(
    domain: Domain, levels: Levels, draw: SeededValues, overload: str = ""
) -> trivial.TrivialOutcomes | None:
    made = domain.make(levels, DTYPES[levels["dtype"]], draw)
    if made is None:
        return None
    overload = overload or domain.overload(levels)
    target = next((t for t in domain.op.targets if str(t) == overload), domain.op.targets[0])
    return trivial.trivial_outcomes(target, made.args, made.kwargs)


def _tensors(case: Case, domain: Domain) -> list[torch.Tensor]:
    made = _drawn(case, domain, 0, 0)
    return [] if made is None else tensor_leaves((made.args, dict(made.kwargs)))
