"""Mutants of loop level: the interpreter's target, given kernels with one kind of statement wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import torch

from keel import loop_backend
from keel.loops import (
    Apply,
    Axis,
    Const,
    Kernel,
    Load,
    Loop,
    Position,
    Reduce,
    Scan,
    Stmt,
    Store,
    results_of,
    show,
    walk,
)
from keel.testing import find

from ..mutant import Mutant, reference, sentence, slug

DRAWN = ("kernel-*",)


@dataclass(frozen=True)
class Values:
    """The dtypes of a kernel's values, and numbers that it has not used."""

    dtypes: dict[int, torch.dtype]
    free: Iterator[int]

    def new(self) -> int:
        return next(self.free)


Change = Callable[[Stmt, Values], tuple[Stmt, ...]]
"""What stands in the place of a statement; of a loop, with its body changed already."""


def rewritten(kernel: Kernel, change: Change) -> Kernel:
    dtypes = dict[int, torch.dtype]()
    for stmt in walk(kernel.body):
        match stmt:
            case Reduce() | Scan():
                dtypes |= dict(zip(stmt.results, stmt.dtypes, strict=True))
            case Const() | Load() | Apply() | Position():
                dtypes[stmt.result] = stmt.dtype
    values = Values(dtypes, count(1 + max((r for s in walk(kernel.body) for r in results_of(s)), default=0)))

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(
            new for s in body for new in change(replace(s, body=block(s.body)) if isinstance(s, Loop) else s, values)
        )

    return replace(kernel, body=block(kernel.body))


def loops(*calls: str, breaks: tuple[str, ...]) -> Callable[[Change], Mutant]:
    """Makes a mutant from a change of statements. Each of the operators ``calls`` is rendered with such statements. If
    the interpreter's target has library calls for all of them, only kernel cases show the mutant.
    """

    def made(change: Change) -> Mutant:
        name = slug(change)
        interpreted = find("interp").target
        assert interpreted is not None
        target = replace(interpreted, name=f"mutant-{name}", render=lambda kernel: show(rewritten(kernel, change)))
        return Mutant(
            name,
            "loop",
            (*breaks, "contract.kernels"),
            sentence(change),
            reference(change),
            loop_backend(target),
            calls,
            DRAWN,
        )

    return made


# -- folds and scans ---------------------------------------------------------------------------------------------------


@loops("aten.amax", "aten.max", breaks=("amax", "max_with_index", "max_all"))
def max_from_zero(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """The identity of max is 0."""
    if not isinstance(stmt, Reduce | Scan) or stmt.monoid != "max" or stmt.dtypes[0] == torch.bool:
        return (stmt,)
    zero, least = values.new(), values.new()
    return (
        Const(zero, 0.0 if stmt.dtypes[0].is_floating_point else 0, stmt.dtypes[0]),
        Apply(least, "maximum", (stmt.args[0], zero), stmt.dtypes[0]),
        replace(stmt, args=(least,)),
    )


@loops("aten.amin", "aten.min", breaks=("amin", "min_with_index", "min_all"))
def min_passes_over_nan(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """The fold of min passes over NaN."""
    if not isinstance(stmt, Reduce) or stmt.monoid != "min" or not stmt.dtypes[0].is_floating_point:
        return (stmt,)
    test, most, chosen = values.new(), values.new(), values.new()
    return (
        Apply(test, "isnan", stmt.args, torch.bool),
        Const(most, float("inf"), stmt.dtypes[0]),
        Apply(chosen, "where", (test, most, stmt.args[0]), stmt.dtypes[0]),
        replace(stmt, args=(chosen,)),
    )


@loops("aten.sum", "aten.amax", "aten.any", breaks=("sum", "amax", "any"))
def folds_lose_their_tail(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """A fold leaves out what comes after the last whole vector of 4."""
    return (replace(stmt, axes=shorter(stmt)),) if isinstance(stmt, Loop) and stmt.kind == "reduce" else (stmt,)


@loops("aten.mul", "aten.exp", "aten.where", breaks=("mul", "exp", "where"))
def loops_lose_their_tail(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """A loop leaves out what comes after the last whole vector of 4."""
    return (replace(stmt, axes=shorter(stmt)),) if isinstance(stmt, Loop) and stmt.kind == "parallel" else (stmt,)


def shorter(loop: Loop) -> tuple[Axis, ...]:
    last = loop.axes[-1]
    if not isinstance(last.size, int) or last.size <= 4:
        return loop.axes
    return (*loop.axes[:-1], replace(last, size=last.size // 4 * 4))


@loops("aten.any", "aten.all", breaks=("any", "all"))
def any_is_all(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """The combination of any is and."""
    return (replace(stmt, monoid="all"),) if isinstance(stmt, Reduce) and stmt.monoid == "any" else (stmt,)


@loops("aten.argmax", "aten.max", breaks=("argmax", "max_with_index"))
def argmax_is_the_last(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """Of equal elements argmax gives the last."""
    if not isinstance(stmt, Loop) or stmt.kind != "reduce":
        return (stmt,)
    body, after = list[Stmt](), list[Stmt]()
    for inner in stmt.body:
        if isinstance(inner, Reduce) and inner.monoid in ("argmax", "argmin"):
            turned, extreme = values.new(), values.new()
            dtype = inner.dtypes[1]
            body.append(Apply(turned, "neg", (inner.args[1],), dtype))
            after.append(Apply(inner.results[1], "neg", (extreme,), dtype))
            inner = replace(inner, results=(inner.results[0], extreme), args=(inner.args[0], turned))
        body.append(inner)
    return (replace(stmt, body=tuple(body)), *after)


@loops("aten.cumsum", breaks=("cumsum",))
def scan_without_its_own(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """A running sum leaves the element itself out."""
    if not isinstance(stmt, Scan) or stmt.monoid != "sum":
        return (stmt,)
    inclusive = values.new()
    return (
        replace(stmt, results=(inclusive,)),
        Apply(stmt.results[0], "sub", (inclusive, stmt.args[0]), stmt.dtypes[0]),
    )


# -- memory ------------------------------------------------------------------------------------------------------------


@loops(breaks=())
def atomic_add_is_lost(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """An atomic addition is a write."""
    return (replace(stmt, mode="write"),) if isinstance(stmt, Store) and stmt.mode == "add" else (stmt,)


@loops(breaks=())
def masked_loads_give_one(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """What is loaded where the mask is false is 1."""
    if not isinstance(stmt, Load) or stmt.mask is None or stmt.dtype.is_complex or stmt.dtype.itemsize < 4:
        return (stmt,)
    read, one = values.new(), values.new()
    return (
        replace(stmt, result=read),
        Const(one, 1.0 if stmt.dtype.is_floating_point else 1, stmt.dtype),
        Apply(stmt.result, "where", (stmt.mask, read, one), stmt.dtype),
    )


@loops(breaks=())
def masked_stores_store(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """A store writes whether its mask is true or not."""
    return (replace(stmt, mask=None),) if isinstance(stmt, Store) else (stmt,)


@loops("aten.arange", "aten.tril", "aten.triu", breaks=("iota", "arange", "tril", "triu"))
def positions_from_one(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """Positions count from 1."""
    return moved_position(stmt, values, "add", 1)


def moved_position(stmt: Stmt, values: Values, op: str, number: int) -> tuple[Stmt, ...]:
    """A position after an operation with a number."""
    if not isinstance(stmt, Position):
        return (stmt,)
    place, by = values.new(), values.new()
    return (
        replace(stmt, result=place),
        Const(by, number, torch.int64),
        Apply(stmt.result, op, (place, by), torch.int64),
    )


# -- scalar operations -------------------------------------------------------------------------------------------------


def swapped(stmt: Stmt, was: str, now: str) -> tuple[Stmt, ...]:
    return (replace(stmt, op=now),) if isinstance(stmt, Apply) and stmt.op == was else (stmt,)


@loops("aten.div", "aten.floor_divide", breaks=("div", "floor_divide"))
def floordiv_truncates(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """floordiv rounds toward zero."""
    return swapped(stmt, "floordiv", "truncdiv")


@loops("aten.remainder", breaks=("remainder",))
def mod_of_the_dividend(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """mod has the sign of the dividend."""
    return swapped(stmt, "mod", "fmod")


@loops("aten.lt", breaks=("lt",))
def lt_is_le(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """lt holds for what is equal."""
    return swapped(stmt, "lt", "le")


@loops("aten.bitwise_or", "aten.bitwise_xor", breaks=("bitwise_xor",))
def xor_is_or(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """xor is or."""
    return swapped(stmt, "xor", "or")


@loops("aten.maximum", breaks=("maximum",))
def maximum_by_comparison(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """maximum is ``x > y ? x : y``, which gives y where x is NaN."""
    if not isinstance(stmt, Apply) or stmt.op != "maximum":
        return (stmt,)
    test = values.new()
    return (Apply(test, "gt", stmt.args, torch.bool), Apply(stmt.result, "where", (test, *stmt.args), stmt.dtype))


@loops("aten._to_copy", "prims.convert_element_type", breaks=("convert",))
def casts_round(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """A cast of floats to integers rounds."""
    if not isinstance(stmt, Apply) or stmt.op != "cast" or values.dtypes[stmt.args[0]].itemsize < 4:
        return (stmt,)
    source = values.dtypes[stmt.args[0]]
    if not source.is_floating_point or stmt.dtype.is_floating_point or stmt.dtype == torch.bool:
        return (stmt,)
    rounded = values.new()
    return (Apply(rounded, "round", stmt.args, source), replace(stmt, args=(rounded,)))


@loops("aten._to_copy", "prims.convert_element_type", breaks=("convert",))
def casts_to_bf16_truncate(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """A cast of float32 to bfloat16 cuts bits off."""
    if not isinstance(stmt, Apply) or stmt.op != "cast" or stmt.dtype != torch.bfloat16:
        return (stmt,)
    if values.dtypes[stmt.args[0]] != torch.float32:
        return (stmt,)
    bits, mask, cut, retained = (values.new() for _ in range(4))
    return (
        Apply(bits, "bitcast", stmt.args, torch.int32),
        Const(mask, -65536, torch.int32),
        Apply(cut, "and", (bits, mask), torch.int32),
        Apply(retained, "bitcast", (cut,), torch.float32),
        replace(stmt, args=(retained,)),
    )


# -- rewrites of whole statements --------------------------------------------------------------------------------------


@loops("aten.amin", "aten.min", breaks=("amin", "min_with_index", "min_all"))
def min_from_zero(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """The identity of min is 0."""
    if not isinstance(stmt, Reduce | Scan) or stmt.monoid != "min" or stmt.dtypes[0] == torch.bool:
        return (stmt,)
    zero, most = values.new(), values.new()
    return (
        Const(zero, 0.0 if stmt.dtypes[0].is_floating_point else 0, stmt.dtypes[0]),
        Apply(most, "minimum", (stmt.args[0], zero), stmt.dtypes[0]),
        replace(stmt, args=(most,)),
    )


@loops("aten.where", breaks=("where",))
def branches_swapped(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """The branches of where change places."""
    if not isinstance(stmt, Apply) or stmt.op != "where":
        return (stmt,)
    return (replace(stmt, args=(stmt.args[0], stmt.args[2], stmt.args[1])),)


@loops("aten.bitwise_right_shift", "aten.__rshift__", breaks=("shift_right",))
def shifts_go_left(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """shr is shl."""
    return swapped(stmt, "shr", "shl")


@loops("aten.sum", "aten.prod", breaks=("sum", "prod", "prod_all"))
def folds_of_their_first_axis(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """A fold over two axes goes over all but the last place of the first."""
    if not isinstance(stmt, Loop) or stmt.kind != "reduce" or len(stmt.axes) < 2:
        return (stmt,)
    first = stmt.axes[0]
    if not isinstance(first.size, int) or first.size < 2:
        return (stmt,)
    return (replace(stmt, axes=(replace(first, size=first.size - 1), *stmt.axes[1:])),)


@loops(breaks=())
def whole_numbers_of_bools(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """A cast of floats to bool goes by integers."""
    if not isinstance(stmt, Apply) or stmt.op != "cast" or stmt.dtype != torch.bool:
        return (stmt,)
    source = values.dtypes[stmt.args[0]]
    if not source.is_floating_point or source.itemsize < 4:
        return (stmt,)
    truncated = values.new()
    return (Apply(truncated, "trunc", stmt.args, source), replace(stmt, args=(truncated,)))


# -- digits and signs --------------------------------------------------------------------------------------------------


def through(stmt: Reduce | Scan, dtype: torch.dtype, values: Values) -> tuple[Stmt, ...]:
    """The fold of what is left of its first argument in ``dtype``."""
    narrow, back = values.new(), values.new()
    return (
        Apply(narrow, "cast", stmt.args[:1], dtype),
        Apply(back, "cast", (narrow,), stmt.dtypes[0]),
        replace(stmt, args=(back, *stmt.args[1:])),
    )


@loops(breaks=())
def sums_of_integers_by_floats(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """Integers are added as float32."""
    matches = isinstance(stmt, Reduce) and stmt.monoid == "sum" and stmt.dtypes[0] in (torch.int32, torch.int64)
    return through(stmt, torch.float32, values) if isinstance(stmt, Reduce) and matches else (stmt,)


@loops(breaks=())
def sums_of_doubles_by_floats(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """float64 numbers are added as float32."""
    matches = isinstance(stmt, Reduce | Scan) and stmt.monoid == "sum" and stmt.dtypes[0] == torch.float64
    return through(stmt, torch.float32, values) if isinstance(stmt, Reduce | Scan) and matches else (stmt,)


@loops(breaks=())
def products_are_extremes(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """The combination of products is max."""
    matches = isinstance(stmt, Reduce | Scan) and stmt.monoid == "prod"
    return (replace(stmt, monoid="max"),) if isinstance(stmt, Reduce | Scan) and matches else (stmt,)


@loops(breaks=())
def places_pass_over_nan(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """argmax and argmin pass over NaN."""
    if not isinstance(stmt, Reduce) or not stmt.monoid.startswith("arg") or not stmt.dtypes[0].is_floating_point:
        return (stmt,)
    test, worst, chosen = values.new(), values.new(), values.new()
    return (
        Apply(test, "isnan", stmt.args[:1], torch.bool),
        Const(worst, float("-inf" if stmt.monoid == "argmax" else "inf"), stmt.dtypes[0]),
        Apply(chosen, "where", (test, worst, stmt.args[0]), stmt.dtypes[0]),
        replace(stmt, args=(chosen, stmt.args[1])),
    )


@loops(breaks=())
def positions_of_16_bits(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """Positions wrap at 32,768."""
    if not isinstance(stmt, Position):
        return (stmt,)
    position, narrow = values.new(), values.new()
    return (
        replace(stmt, result=position),
        Apply(narrow, "cast", (position,), torch.int16),
        Apply(stmt.result, "cast", (narrow,), torch.int64),
    )


@loops(breaks=())
def literals_of_32_bits(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """Literals of 64 bits are cut to 32."""
    if not isinstance(stmt, Const) or stmt.dtype not in (torch.int64, torch.float64):
        return (stmt,)
    narrow = torch.int32 if stmt.dtype == torch.int64 else torch.float32
    return (replace(stmt, value=torch.tensor(stmt.value, dtype=stmt.dtype).to(narrow).item()),)


@loops(breaks=())
def negatives_from_zero(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """neg is 0 - x."""
    if not isinstance(stmt, Apply) or stmt.op != "neg" or not stmt.dtype.is_floating_point:
        return (stmt,)
    zero = values.new()
    return (Const(zero, 0.0, stmt.dtype), Apply(stmt.result, "sub", (zero, *stmt.args), stmt.dtype))


@loops(breaks=())
def positions_saturate(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """Positions stop at 65,535."""
    return moved_position(stmt, values, "minimum", 65535)


@loops(breaks=())
def products_of_doubles_by_floats(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """float64 numbers are multiplied as float32."""
    matches = isinstance(stmt, Reduce | Scan) and stmt.monoid == "prod" and stmt.dtypes[0] == torch.float64
    return through(stmt, torch.float32, values) if isinstance(stmt, Reduce | Scan) and matches else (stmt,)


# -- dtypes of operands ------------------------------------------------------------------------------------------------


@loops("aten._to_copy", "prims.convert_element_type", breaks=("convert",))
def bools_of_low_bytes(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """A cast of integers to bool looks at the lowest byte."""
    if not isinstance(stmt, Apply) or stmt.op != "cast" or stmt.dtype != torch.bool:
        return (stmt,)
    source = values.dtypes[stmt.args[0]]
    if source not in (torch.int16, torch.int32, torch.int64):
        return (stmt,)
    mask, low = values.new(), values.new()
    return (Const(mask, 255, source), Apply(low, "and", (*stmt.args, mask), source), replace(stmt, args=(low,)))


@loops("aten.lt", "aten.gt", breaks=("lt", "gt"))
def bytes_compared_as_signed(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """Comparisons of uint8 compare int8."""
    if not isinstance(stmt, Apply) or stmt.op not in ("lt", "le", "gt", "ge"):
        return (stmt,)
    if values.dtypes[stmt.args[0]] != torch.uint8:
        return (stmt,)
    left, right = values.new(), values.new()
    return (
        Apply(left, "bitcast", stmt.args[:1], torch.int8),
        Apply(right, "bitcast", stmt.args[1:], torch.int8),
        replace(stmt, args=(left, right)),
    )


@loops("aten.floor_divide", "aten.div", breaks=("floor_divide", "div"))
def quotients_of_int64_by_double(stmt: Stmt, values: Values) -> tuple[Stmt, ...]:
    """int64 numbers are divided as float64."""
    if not isinstance(stmt, Apply) or stmt.op not in ("floordiv", "truncdiv") or stmt.dtype != torch.int64:
        return (stmt,)
    left, right, quotient, rounded = (values.new() for _ in range(4))
    return (
        Apply(left, "cast", stmt.args[:1], torch.float64),
        Apply(right, "cast", stmt.args[1:], torch.float64),
        Apply(quotient, "div", (left, right), torch.float64),
        Apply(rounded, "floor" if stmt.op == "floordiv" else "trunc", (quotient,), torch.float64),
        Apply(stmt.result, "cast", (rounded,), torch.int64),
    )
