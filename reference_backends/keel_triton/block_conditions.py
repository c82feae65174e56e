"""The choice of block sizes as data: under which conditions on sizes ``block_sizes.choose`` returns given blocks.

Expressions are those of ``keel.plugin.expression_data``. A condition is a comparison, or an ``Or`` or ``And`` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from keel import Dim
from keel.plugin import expression_data
from keel_triton.block_sizes import FEW, PROGRAMS, Blocks, columns_of, most_lanes, most_rows, most_steps
from keel_triton.launch_plan import Part, blocks, length, steps

Expression = Any
"""An int, the name of a symbol, or a list of a function's name and its arguments."""
Condition = Any
"""True, False, or an expression that is true or false."""


def programs(part: Part, b: Blocks) -> Expression:
    """The number of programs of ``part`` in these blocks."""
    rows, outer = product(part.rows), product(a.size for a in part.outer)
    return times(outer, blocks_of(rows, b.x)) if part.rank else 1


def conditions(part: Part, b: Blocks) -> tuple[Condition, ...]:
    """All of these hold exactly where ``choose`` returns ``b``, apart from the number of programs. One that always
    holds is left out; (False,) if the blocks are never chosen.
    """
    if part.rank == 0:
        return ()
    if part.rank == 1:
        return together(_lanes(part, b.x))
    return together([*_steps(part, b.r), *(_rows(part, b) if part.axes else ())])


def _lanes(part: Part, x: int) -> list[Condition]:
    rows, most = product(part.rows), most_lanes(part)
    at_least = x == 128 or less(x * PROGRAMS - 1, rows)
    return [at_least, x == most or less(rows, 2 * x * PROGRAMS)]


def _steps(part: Part, r: int) -> list[Condition]:
    """The width of steps is the longest loop's length, rounded up to a power of two, between 32 and a limit."""
    lengths = [size_data(length(s)) for s in steps(part)]
    if not lengths:
        return []
    below = any_of([r == 32, *(less(r // 2, n) for n in lengths)])
    return [below, *(r == most_steps(part) or less(n, r + 1) for n in lengths)]


def _rows(part: Part, b: Blocks) -> list[Condition]:
    """The rows of a program are halved, from the most there may be, until there are enough programs."""
    rows, outer, x = product(part.rows), product(a.size for a in part.outer), b.x
    columns = columns_of(part)
    most, least = most_rows(part, max(b.r, max(blocks(part), default=0), 1)), 16 if columns else 1
    few = FEW if columns else PROGRAMS

    def too_few(size: int) -> Condition:
        return less(times(outer, blocks_of(rows, size)), few)

    starts = x == most or less(rows, x + 1)
    halved = 2 * x > least and too_few(2 * x)
    return [x <= most, x == 1 or less(x // 2, rows), any_of([starts, halved]), not_(x > least and too_few(x))]


# -- expressions -------------------------------------------------------------------------------------------------------


def size_data(size: Dim) -> Expression:
    return size if isinstance(size, int) else expression_data(size)


def product(sizes: Any) -> Expression:
    return size_data(prod(sizes))


def times(a: Expression, b: Expression) -> Expression:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return b if a == 1 else a if b == 1 else ["Mul", a, b]


def plus(*terms: Expression) -> Expression:
    if all(isinstance(t, int) for t in terms):
        return sum(terms)
    return terms[0] if len(terms) == 1 else ["Add", *terms]


def blocks_of(size: Expression, by: int) -> Expression:
    """The number of blocks of ``by`` that contain ``size`` elements."""
    if isinstance(size, int):
        return -(-size // by)
    return size if by == 1 else ["FloorDiv", ["Add", size, by - 1], by]


def largest(sizes: Sequence[Expression]) -> Expression:
    """The largest of sizes, which are all numbers or all expressions; 0 without a size."""
    distinct = _distinct(sizes)
    if all(isinstance(s, int) for s in distinct):
        return max(distinct, default=0)
    return distinct[0] if len(distinct) == 1 else ["Max", *distinct]


def less(a: Expression, b: Expression) -> Condition:
    return a < b if isinstance(a, int) and isinstance(b, int) else ["StrictLessThan", a, b]


def not_(condition: Condition) -> Condition:
    if isinstance(condition, bool):
        return not condition
    _, a, b = condition  # of ``less``
    return ["LessThan", b, a]


def any_of(conditions: Sequence[Condition]) -> Condition:
    undecided = _distinct([c for c in conditions if not isinstance(c, bool)])
    if any(c is True for c in conditions) or not undecided:
        return any(c is True for c in conditions)
    return undecided[0] if len(undecided) == 1 else ["Or", *undecided]


def together(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """The conditions that do not always hold, each once; (False,) if one of them never holds."""
    if any(c is False for c in conditions):
        return (False,)
    return _distinct([c for c in conditions if c is not True])


def _distinct(expressions: Sequence[Expression]) -> tuple[Expression, ...]:
    return tuple({repr(e): e for e in expressions}.values())
