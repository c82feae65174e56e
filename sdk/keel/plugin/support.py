"""Which calls a backend takes, as data; and why it does not take one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from keel.plugin.api import ANSWER
from keel.registration import (
    FAMILIES,
    bad,
    checked_call,
    checked_flag,
    checked_operators,
    checked_type,
    dtypes,
    texts,
)
from keel.types import Call


@dataclass(frozen=True)
class Refusal:
    """Why a backend does not take a call: a full sentence that ends in a full stop and names the thing refused.

    ``nearest`` says which similar call it would take (``cast to f32``, ``a contiguous copy`` …), if known.
    """

    sentence: str
    nearest: str | None = None

    def __post_init__(self) -> None:
        for field_name, text in (("sentence", self.sentence), ("nearest", self.nearest or "")):
            checked_type("A Refusal", field_name, text, str, "a text")
        if not self.sentence.strip():
            bad("A Refusal has an empty sentence.", "Write why the call is not taken, or return None to take it.")

    def __str__(self) -> str:
        return f"{self.sentence} It would take {self.nearest}." if self.nearest else self.sentence


Refuses = Callable[[Call], Refusal | str | None]
"""Returns None to take the call, or a sentence or a Refusal that says why not."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One row of a support table: which calls of ``ops`` are taken.  A field left at its default does not restrict.

    ``ops`` are overload names (``aten.mm.default``), packet names (``aten.mm``), families (``pointwise`` or another of
    PyTorch's operator tags; ``view`` for operators whose result shares its operand's memory) or ``*``.  Other fields
    restrict tensor arguments; ``dtypes`` restricts the results where the call has no tensor argument.  With
    ``one_dtype`` nothing is promoted: tensor arguments have one dtype, and floats are among the arguments only if that
    is a floating-point dtype. With ``nonempty`` each tensor argument has elements, or each result of a call without
    tensor arguments. ``optional`` names parameters with a default, as PyTorch's schema does, which a call may set;
    others must have their default. ``when`` is the escape hatch.
    """

    ops: tuple[str, ...]
    dtypes: frozenset[torch.dtype] | None = None
    results: frozenset[torch.dtype] | None = None  # dtypes of the results
    ranks: tuple[int, int] | None = None  # lowest and highest rank, inclusive
    contiguous: bool = False  # every tensor argument must be row-major without gaps
    static: bool = False  # every size must be known, of results and numbers too
    one_dtype: bool = False  # no operand may have to be promoted, since API 2
    nonempty: bool = False  # every tensor argument must have elements, since API 2
    optional: tuple[str, ...] | None = None  # parameters that may differ from their default, since API 2
    when: Refuses | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", texts("A Rule", "ops", self.ops, "aten.mm.default"))
        what = f"The Rule of {self.ops[0]}"
        checked_operators(what, "ops", self.ops, families=FAMILIES | {"*"})
        for name in ("dtypes", "results"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, dtypes(what, name, value))
        if self.ranks is not None:
            object.__setattr__(self, "ranks", _span(what, self.ranks))
        for name in ("contiguous", "static", "one_dtype", "nonempty"):
            checked_flag(what, name, getattr(self, name))
        if self.optional is not None:
            named = texts(what, "optional", self.optional, "alpha") if self.optional != () else ()
            object.__setattr__(self, "optional", named)
        checked_call(what, "when", self.when, ANSWER, optional=True, takes=1)


def _span(what: str, ranks: object) -> tuple[int, int]:
    match ranks:
        case (int(low), int(high)) if not isinstance(low, bool) and not isinstance(high, bool) and 0 <= low <= high:
            return low, high
        case int(one) if not isinstance(one, bool):
            bad(f"{what} has ranks={one}.", f"Write the lowest and the highest rank: ranks=({one}, {one}).")
    bad(f"{what} has ranks={ranks!r}.", "Write the lowest and the highest rank, in that order: ranks=(2, 4).")


@dataclass(frozen=True)
class Support:
    """The calls that a graph-level backend takes, as data: a call is taken if one row takes it."""

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        if isinstance(self.rules, Rule):
            bad("A Support has one Rule in place of a tuple.", "Write a tuple, with the comma: Support((rule,)).")
        checked_type("A Support", "rules", self.rules, (tuple, list), "a tuple of Rule values: Support((Rule(...),))")
        for rule in self.rules:
            checked_type("A Support", "rules", rule, Rule, "rows that are Rule values")
        if not self.rules:
            bad("A Support has no rules, and takes nothing.", 'Write at least one: Support((Rule(ops=("aten.mm",)),)).')
        object.__setattr__(self, "rules", tuple(self.rules))
