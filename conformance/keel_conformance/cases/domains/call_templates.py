"""Calls written down as data: of each argument what it is drawn from; a domain of the calls of a member.

A family says which factors its calls have beside dtype, layout and values, and what call a choice of their levels is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations, product
from math import isqrt, prod
from typing import Any

import torch

from keel.opset import About, Op

from .. import layout_classes
from ..case import Inputs
from ..domain import DTYPES, Domain, InvalidCall, Levels, Rule, dtype_names
from ..saved_call import OWN, Path, rebuilt, walk
from ..values import KINDS, SeededValues, fill, kinds_of

__all__ = [
    "FLOATS",
    "OWN",
    "WELL_BEHAVED",
    "CallTemplate",
    "DerivedArg",
    "TensorArg",
    "always",
    "domain",
    "invalid_call",
    "usual",
    "when",
]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WELL_BEHAVED = ("random", "duplicates", "cancel", "exact")
"""Classes of values that leave nothing to the ends of the range."""
NAN = "nan"
"""A class of nothing but NaN: what is not to be read."""
WHICH = ("all", "first", "rest")
"""The operands that lie in the layout of the case: all, the first, all but it."""
NONFINITE = "nonfinite"
"""A class of values that are random but for some zeros of both signs, infinities and NaN: sums do not overflow."""
ACCUMULATED = 24
"""Bits of what 16-bit floats are summed in at the least."""

LARGE = ("f32", "bf16", "f16", "i64")
"""Dtypes in which calls with more than 65,536 elements are tried."""


def usual(table: Mapping[str, Any], many: str) -> tuple[str, ...]:
    """The levels of a table of sizes but the one with more than 65,536 elements."""
    return tuple(name for name in table if name != many)


Drawn = Callable[[SeededValues, torch.dtype, tuple[int, ...], str], torch.Tensor]
Condition = Callable[[Levels], bool]


@dataclass(frozen=True)
class TensorArg:
    """A tensor argument. ``dtype`` of None is that of the case. Values are of the class of the case, or of ``kind``,
    from ``low`` to ``high``; of the class exact any ``products`` products of two, and as many sums, are whole numbers
    that float32 holds. ``draw`` draws it otherwise. ``lies`` says in which layouts: any, dense (nothing twice), none.
    """

    shape: tuple[int, ...]
    low: float = -4.0
    high: float = 4.0
    dtype: torch.dtype | None = None
    kind: str = ""
    products: int = 1
    draw: Drawn | None = None
    lies: str = "any"


@dataclass(frozen=True)
class DerivedArg:
    """An argument that follows from the tensors before it, given as they are drawn, and the dtype of the case."""

    make: Callable[[Sequence[torch.Tensor], torch.dtype], Any]
    lies: str = "none"


TENSORS = (TensorArg, DerivedArg)


@dataclass(frozen=True)
class CallTemplate:
    """A call of an overload; its arguments have an Arg or a From for each tensor, OWN for the dtype of the case.
    ``exact`` says that values of that class have exact results.
    """

    overload: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False
    notes: frozenset[str] = frozenset()

    @cached_property
    def tensors(self) -> list[TensorArg | DerivedArg]:
        return [leaf for _, leaf in walk((self.args, self.kwargs)) if isinstance(leaf, TENSORS)]


def domain(
    op: Op,
    factors: Mapping[str, tuple[str, ...]],
    template: Callable[[Levels], CallTemplate | None],
    *,
    dtypes: Iterable[torch.dtype] = (),
    kinds: Sequence[str] = WELL_BEHAVED,
    lay: Sequence[str] = layout_classes.LAYOUTS,
    rules: tuple[Rule, ...] = (),
    priority: Sequence[Levels] = (),
    added: Sequence[Levels] = (),
    covers: Mapping[str, Condition] | None = None,
    untested: Mapping[str, str] | None = None,
    invalid_calls: tuple[InvalidCall, ...] = (),
    why_few: str = "",
    facets: Mapping[str, frozenset[str]] | None = None,
    many: Levels | None = None,
) -> Domain:
    """The domain of calls that ``ask`` gives for the levels of ``factors``, None for a choice that gives no call.

    ``priority`` and ``added`` are wishes, completed by the first levels that go with them. ``covers`` has when a clause
    is witnessed; of others the words of the clause decide (``16-bit``: in such dtypes; ``NaN``: with special values).
    ``many`` are levels, which no factor need have, of calls with more than 65,536 elements: a few extra cases have
    them.
    """
    dtypes = tuple(dtypes) or op.dtypes or FLOATS
    calls = _Calls(factors, template, tuple(lay), dtypes)
    kinds = tuple(k for k in (*KINDS, NONFINITE, "own") if k in kinds) or ("own",)
    names = dtype_names(dtypes)
    which = WHICH if calls.several else WHICH[:1]
    every = {"dtype": names, **factors, "layout": calls.lay, "which": which, "values": kinds}
    conditions = _conditions(op, covers or {}, untested or {})
    made = Domain(
        op,
        every,
        calls.make,
        (
            Rule(("dtype", "values"), _has),
            Rule(("layout", "which"), lambda layout, which: layout != "contiguous" or which == "all"),
            *calls.rules(),
            *rules,
        ),
        overload=calls.overload,
        untested=untested or {},
        invalid_calls=invalid_calls,
        why_few=why_few,
        facets=facets or {},
        covers=lambda levels: [c for c, holds in conditions.items() if holds(levels)],
    )
    return replace(
        made,
        priority=_all_completed(made, priority),
        added=_all_completed(made, added),
        extra=tuple(_of_many(made, many)) if many else (),
    )


def _of_many(made: Domain, many: Levels) -> Iterator[Levels]:
    """A choice of each dtype whose indices matter, or of the one that is named."""
    for dtype in (many["dtype"],) if "dtype" in many else LARGE:
        if dtype in made.factors["dtype"]:
            plain = {"dtype": dtype, "layout": "contiguous", "which": "all", "values": made.factors["values"][0]}
            base = _completed(made, {**plain, **many})
            if base is not None:
                yield {**base, **many, **plain}


def _has(dtype: str, values: str) -> bool:
    """Whether a dtype has a class of values."""
    if values == NONFINITE:
        return DTYPES[dtype].is_floating_point or DTYPES[dtype].is_complex
    return values == "own" or values in kinds_of(DTYPES[dtype])


def always(op: Op) -> dict[str, Condition]:
    """That every case witnesses every clause."""
    return {f"C{i}": lambda levels: True for i in range(1, len(op.clauses) + 1)}


def when(**levels: str | tuple[str, ...]) -> Condition:
    """That each factor has one of the levels."""
    allowed = {f: (v,) if isinstance(v, str) else v for f, v in levels.items()}
    return lambda chosen: all(chosen[f] in v for f, v in allowed.items())


def invalid_call(name: str, breaks: str, ask: CallTemplate, dtype: torch.dtype = torch.float32) -> InvalidCall:
    """A call that breaks a precondition."""

    def make(draw: SeededValues) -> Inputs:
        return arranged(ask, {"layout": "contiguous", "which": "all", "values": "random"}, dtype, draw)

    return InvalidCall(name, breaks, make, ask.overload, dtype_names([dtype])[0])


# -- arguments --------------------------------------------------------------------------------------------------------


class _Calls:
    """The calls of a member by levels, each asked for once."""

    def __init__(
        self,
        factors: Mapping[str, tuple[str, ...]],
        ask: Callable[[Levels], CallTemplate | None],
        lay: tuple[str, ...],
        dtypes: tuple[torch.dtype, ...],
    ):
        self.names = tuple(factors)
        self.at = cache(lambda levels: ask(dict(zip(self.names, levels, strict=True))))
        self.every = list(product(*factors.values()))
        forms = {levels: _form(a) for levels in self.every if (a := self.at(levels)) is not None}
        if not forms:
            raise ValueError("No choice of levels is a call.")
        fitting = {form: frozenset(x for x in lay if _fits(form, x)) for form in dict.fromkeys(forms.values())}
        self.fitting = {levels: fitting[form] for levels, form in forms.items()}
        self.several = any(sum(lies != "none" for lies, _ in form) > 1 for form in fitting)
        self.lay = tuple(x for x in lay if any(x in layouts for layouts in fitting.values()))

    def rules(self) -> list[Rule]:
        """Which levels are a call, and in which layouts: each over those factors alone that decide it."""
        names, valid = self._deciding({levels: bool(self.fitting.get(levels)) for levels in self.every})
        around, fits = self._deciding({levels: layouts for levels, layouts in self.fitting.items() if layouts})
        laid = {(*levels, layout): layout in lies for levels, lies in fits.items() for layout in self.lay}
        return [*_pairwise(names, valid), *_pairwise((*around, "layout"), laid)]

    def _deciding(self, table: Mapping[tuple[str, ...], Any]) -> tuple[tuple[str, ...], Mapping[tuple[str, ...], Any]]:
        """The factors that a table depends on, and the table over them."""
        names, rows = self.names, dict(table)
        for name in self.names:
            at = names.index(name)
            less = dict[tuple[str, ...], Any]()
            if all(
                less.setdefault((*levels[:at], *levels[at + 1 :]), value) == value for levels, value in rows.items()
            ):
                names, rows = (*names[:at], *names[at + 1 :]), less
        return names, rows

    def of(self, levels: Levels) -> CallTemplate:
        result = self.at(tuple(levels[n] for n in self.names))
        assert result is not None  # the rules have it
        return result

    def overload(self, levels: Levels) -> str:
        return self.of(levels).overload

    def make(self, levels: Levels, dtype: torch.dtype, draw: SeededValues) -> Inputs | None:
        return arranged(self.of(levels), levels, dtype, draw)


def _pairwise(names: tuple[str, ...], table: Mapping[tuple[str, ...], bool]) -> list[Rule]:
    """A table as rules: of two factors each where they say the same, which a search knows earlier; else also whole."""
    if len(names) < 3:
        return [Rule(names, lambda *levels: table.get(levels, False))] if names else []
    good = [levels for levels, holds in table.items() if holds]
    pairs = {(i, j): {(levels[i], levels[j]) for levels in good} for i, j in combinations(range(len(names)), 2)}
    results = [
        Rule((names[i], names[j]), lambda *levels, allowed=allowed: levels in allowed)
        for (i, j), allowed in pairs.items()
    ]
    if any(
        holds != all((levels[i], levels[j]) in allowed for (i, j), allowed in pairs.items())
        for levels, holds in table.items()
    ):
        results.append(Rule(names, lambda *levels: table.get(levels, False)))
    return results


Form = tuple[tuple[str, tuple[int, ...] | None], ...]
"""For each tensor of a call, its layout factor and its sizes. The sizes of a derived tensor are known only when it is
made, so they are None here.
"""


def _form(ask: CallTemplate) -> Form:
    return tuple((t.lies, t.shape if isinstance(t, TensorArg) else None) for t in ask.tensors)


def _fits(form: Form, layout: str) -> bool:
    """Whether the first operand that may lie so can."""
    if layout == "contiguous":
        return True
    shapes = [shape for lies, shape in form if _may(lies, layout)]
    return bool(shapes) and (shapes[0] is None or layout_classes.fits(layout, shapes[0]))


def _may(lies: str, layout: str) -> bool:
    return lies == "any" or (lies == "dense" and not layout.startswith("expanded"))


def arranged(ask: CallTemplate, levels: Levels, dtype: torch.dtype, draw: SeededValues) -> Inputs:
    """The arguments of a call, drawn and laid out."""
    drawn = list[torch.Tensor]()
    made = dict[Path, Any]()
    for path, leaf in walk((ask.args, ask.kwargs)):
        if isinstance(leaf, TensorArg):
            drawn.append(_drawn(leaf, dtype, draw, levels["values"]))
            made[path] = drawn[-1]
    for path, leaf in walk((ask.args, ask.kwargs)):
        if isinstance(leaf, DerivedArg):
            made[path] = leaf.make(drawn, dtype)
    first = next(
        (path for path, leaf in walk((ask.args, ask.kwargs)) if isinstance(leaf, TensorArg | DerivedArg)), None
    )

    def put(path: Path, leaf: Any) -> Any:
        if isinstance(leaf, str) and leaf == OWN:
            return dtype
        if not isinstance(leaf, TensorArg | DerivedArg):
            return leaf
        x, which = made[path], levels["which"]
        placed = which == "all" or (which == "first") == (path == first)
        if not isinstance(x, torch.Tensor) or not placed or not _may(leaf.lies, levels["layout"]):
            return x
        return layout_classes.with_layout(x, levels["layout"]) if layout_classes.fits(levels["layout"], x.shape) else x

    args, kwargs = rebuilt((ask.args, ask.kwargs), put)
    exact = ask.exact and levels["values"] == "exact"
    return Inputs(args, kwargs, ask.notes | ({"exact"} if exact else set()))


def _drawn(arg: TensorArg, dtype: torch.dtype, draw: SeededValues, values: str) -> torch.Tensor:
    dtype = arg.dtype or dtype
    if arg.draw is not None:
        return arg.draw(draw, dtype, arg.shape, values).reshape(arg.shape)
    kind = arg.kind or values
    if kind == NAN:
        return torch.full(arg.shape, float("nan")).to(dtype)
    if kind == "exact" and dtype.is_floating_point and dtype.itemsize > 1:
        return small_integers(draw, dtype, prod(arg.shape), arg.products).reshape(arg.shape)
    if kind == NONFINITE and (dtype.is_floating_point or dtype.is_complex):
        return _nonfinite(arg, dtype, draw).reshape(arg.shape)
    kind = kind if kind in kinds_of(dtype) else "random"
    return fill(draw, kind, dtype, prod(arg.shape), low=arg.low, high=arg.high, terms=max(2 * arg.products, 1)).reshape(
        arg.shape
    )


def _nonfinite(arg: TensorArg, dtype: torch.dtype, draw: SeededValues) -> torch.Tensor:
    n = prod(arg.shape)
    x = fill(draw, "random", dtype, n, low=arg.low, high=arg.high)
    few = torch.tensor(
        [0.0, -0.0, float("inf"), float("-inf"), float("nan")] if draw.call % 2 == 0 else [0.0, -0.0, 0.0, float("inf")]
    ).to(dtype)
    few = few[(few.real if dtype.is_complex else few).float().nan_to_num(arg.high, arg.high, arg.low) >= arg.low]
    chosen = few[draw.integers(n, 0, len(few))] if len(few) else x
    return torch.where(draw.integers(n, 0, 12 if draw.call % 2 == 0 else 4) == 0, chosen, x)


def small_integers(draw: SeededValues, dtype: torch.dtype, n: int, products: int) -> torch.Tensor:
    """Integers so small that sums of ``products`` products of two are integers that float32 holds, and the result too
    unless it is rounded once.
    """
    bits = 15 if dtype == torch.float16 else ACCUMULATED
    most = max(1, min(8, isqrt(2**bits // max(products, 1))))
    return (draw.integers(n, 1, most + 1) * (draw.integers(n, 0, 2) * 2 - 1)).to(dtype)


# -- which are chosen, and what they witness ---------------------------------------------------------------------------


def _all_completed(made: Domain, wishes: Iterable[Levels]) -> tuple[Levels, ...]:
    """The wishes that can be completed, each once."""
    completed = [levels for levels in (_completed(made, wish) for wish in wishes) if levels is not None]
    return tuple({tuple(levels.items()): levels for levels in completed}.values())


def _completed(made: Domain, wish: Levels) -> Levels | None:
    """The wish with the first other levels that go with it; wishes for what there is not are given up one by one."""
    wish = {f: v for f, v in wish.items() if v in made.factors.get(f, ())}
    rest = [*wish, *(f for f in made.factors if f not in wish)]
    result = _extended(made, wish, rest, {}, [2000])
    while result is None and wish:
        wish = dict(list(wish.items())[:-1])
        rest = [*wish, *(f for f in made.factors if f not in wish)]
        result = _extended(made, wish, rest, {}, [2000])
    return {f: result[f] for f in made.factors} if result is not None else None


def _extended(made: Domain, wish: Levels, rest: list[str], chosen: dict[str, str], left: list[int]) -> Levels | None:
    if not rest:
        return chosen
    factor = rest[0]
    for level in (wish[factor],) if factor in wish else made.factors[factor]:
        left[0] -= 1
        if left[0] < 0:
            return None
        extended = {**chosen, factor: level}
        if made.allows(extended) and (result := _extended(made, wish, rest[1:], extended, left)) is not None:
            return result
    return None


_WITNESS: Mapping[About, Condition] = {
    About.HALF: when(dtype=("f16", "bf16")),
    About.COMPLEX: when(dtype=("c64", "c128")),
    About.INTEGER | About.INTEGRAL: lambda levels: levels["dtype"][0] in "iu" or levels["dtype"] == "b8",
    About.UINT8: when(dtype="u8"),
    About.BOOL: when(dtype="b8"),
    About.NONFINITE: when(values=("specials", NONFINITE)),
}
"""When a clause that is about this is witnessed: the first that fits."""


def _conditions(op: Op, cites: Mapping[str, Condition], untested: Mapping[str, str]) -> dict[str, Condition]:
    """When each clause is witnessed."""
    results = dict[str, Condition]()
    for number, clause in enumerate(op.clauses, 1):
        name = f"C{number}"
        if name in untested:
            continue
        witnesses = [condition for about, condition in _WITNESS.items() if about & clause.about]
        results[name] = cites.get(name) or (witnesses[0] if witnesses else lambda levels: True)
    return results
