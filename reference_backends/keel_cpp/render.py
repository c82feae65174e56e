"""Renders a kernel as C++: chooses the axes that become lanes, threads and plain loops.

A nest without inner loops is vectorized along the axis with contiguous accesses. A nest with inner loops is rendered
either as rows, whose inner loops are vectorized, or as columns: blocks of neighboring columns that run through the
inner loops together (module ``column_blocks``). Loops at the top run on all threads if that pays. The results do not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from keel import Dim
from keel.loops import Axis, Kernel, Loop, Reduce, Stmt
from keel_cpp.accumulators import Fold
from keel_cpp.analysis import (
    across,
    for_lanes,
    has_loops,
    in_order,
    is_small,
    iterations,
    levels,
    survey,
    tiled,
    turned,
    unrolls,
    vectorizes,
    work,
)
from keel_cpp.column_blocks import Columns, columns
from keel_cpp.emitter import Text
from keel_cpp.index_text import constant_text, size_text
from keel_cpp.joined import joined
from keel_cpp.op_table import STORED

GRAIN = 1 << 17
"""With fewer scalar operations, threads do not pay. parallel() in prelude.h has the same number."""
RUN = 8192
"""The number of elements of the innermost axis in one task."""
TILE = 64
"""The side of a tile, in elements."""
BRIEF = 1024
"""The sum of a row with at most this many elements is not flushed: it has 32 steps in each lane, or 64 if vectors are
short.
"""
CHUNKS = 64
"""The most chunks of a reduction at the top: a fixed number, so that results do not depend on the threads."""


def render(kernel: Kernel) -> str:
    """The function that runs ``kernel``: its parameters are the buffers' addresses, then the symbols."""
    changed = joined(kernel)
    text = Text(kernel, survey(changed))
    with text.block(text.signature()):
        for stmt in changed.body:
            _at_top(text, stmt)
    return "\n".join([*text.lines, ""])


def _at_top(text: Text, stmt: Stmt) -> None:
    match stmt:
        case Loop(kind="parallel"):
            _parallel(text, stmt, threads=True)
        case Loop(kind="reduce") if not in_order(stmt) and _worth(stmt):
            _row_chunks(text, stmt) if has_loops(stmt.body) else _chunks(text, stmt)
        case _:
            _inside(text, stmt)


def _inside(text: Text, stmt: Stmt) -> None:
    """Emits a statement that one thread runs, for one element at a time or for the lanes of its own loop."""
    match stmt:
        case Loop(kind="parallel"):
            _parallel(text, stmt, threads=False)
        case Loop(kind="reduce") if not has_loops(stmt.body) and not in_order(stmt) and not is_small(stmt):
            _lane_fold(text, stmt)
        case Loop():
            _serial(text, stmt)
        case _:
            text.statement(stmt)


def _worth(loop: Loop) -> bool:
    """True if threads may pay: the work is large, or unknown before run time."""
    amount = iterations(loop.axes) * work(loop.body)
    return not isinstance(amount, int) or amount >= GRAIN


# -- parallel loops -------------------------------------------------------------------------------------------------


def _parallel(text: Text, loop: Loop, threads: bool) -> None:
    ordered = in_order(loop)
    if ordered:
        inner = Loop("scan", ordered, loop.body)  # a scan loop without a Scan runs in order
        free = tuple(a for a in loop.axes if a not in ordered)
        if not free:
            return _serial(text, inner)
        loop = Loop("parallel", free, (inner,))
    threads = threads and _worth(loop)
    if not has_loops(loop.body):
        _points(text, loop, threads)
    elif (lane := across(loop, text.facts)) is not None:
        _columns(text, loop, lane, threads)
    else:
        with _over(text, [Step(a) for a in loop.axes], work(loop.body), threads):
            for stmt in text.row(loop.body):
                _inside(text, stmt)


def _points(text: Text, loop: Loop, threads: bool) -> None:
    """Emits a loop without inner loops: lanes along one axis, and invariant statements outside."""
    lane = for_lanes(loop.axes, loop.body, text.facts)
    if lane is None:
        with text.block(""):
            text.statements(loop.body)
        return
    cost = work(loop.body)
    if threads and (side := tiled(loop.axes, lane, loop.body, text.facts)) is not None:
        return _tiles(text, loop, lane, side)
    outer = [a for a in loop.axes if a != lane]
    nest = levels(loop.body, [*outer, lane], text.facts)
    text.statements(nest[0])
    if not outer and threads:
        with text.team(size_text(lane.size, text.name), size_text(cost, text.name)):
            _lanes(text, lane, ("from", "to"), nest[-1])
        return
    steps, each, ends = [Step(a) for a in outer], cost * lane.size, ("0", size_text(lane.size, text.name))
    if threads and not (isinstance(lane.size, int) and lane.size <= RUN):
        steps, each, ends = [*steps, Step(lane, RUN)], cost * RUN, text.ends(lane)
    with _over(text, steps, each, threads, lambda k: text.statements(nest[k])):
        _lanes(text, lane, ends, nest[-1])


def _lanes(text: Text, lane: Axis, ends: tuple[str, str], body: Sequence[Stmt]) -> None:
    name, (low, high) = text.name(lane.name), ends
    simd = vectorizes(body, lane, text.facts)
    head = f"for (i64 {name} = {low}; {name} < {high}; ++{name})"
    with text.watched(body, simd), text.lanes(head, simd=simd):
        text.statements(body)


def _tiles(text: Text, loop: Loop, lane: Axis, side: Axis) -> None:
    """Emits points in tiles of two axes, because some accesses are contiguous along ``lane`` and others along
    ``side``.
    """
    outer = [a for a in loop.axes if a not in (lane, side)]
    nest = levels(loop.body, [*outer, side, lane], text.facts)
    text.statements(nest[0])
    steps = [*map(Step, outer), Step(side, TILE), Step(lane, TILE)]
    with (
        _over(text, steps, work(loop.body) * TILE * TILE, True, lambda k: text.statements(nest[k])),
        _turned(text, loop.body, lane, side),
        text.loop(text.name(side.name), *text.ends(side)),
    ):
        text.statements(nest[-2])
        _lanes(text, lane, text.ends(lane), nest[-1])


@contextmanager
def _turned(text: Text, body: Sequence[Stmt], lane: Axis, side: Axis) -> Iterator[None]:
    """Copies a tile of each load that is contiguous along ``side`` to an array that is contiguous along ``lane``, and
    reads from there.
    """
    (low, high), (left, right) = text.ends(side), text.ends(lane)
    for s in turned(body, lane, side, text.facts):
        tile, ctype = f"tile{s.result}", STORED[s.dtype]
        start = f"{text.name(s.buffer)} + {text.index(s.index, {side.name: low, lane.name: left})}"
        step = size_text(s.index.coefficient(lane), text.name)
        text.line(f"{ctype} {tile}[{TILE} * {TILE}];")
        text.line(f"turn({tile}, {TILE}, {start}, {step}, {right} - {left}, {high} - {low});")
        at = f"({text.name(side.name)} - {low}) * {TILE} + {text.name(lane.name)} - {left}"
        text.elements[s.result] = f"{tile}[{at}]"
    yield


def _columns(text: Text, loop: Loop, lane: Axis, threads: bool) -> None:
    shape = Columns.of(lane, text.name)
    steps = [*(Step(a) for a in loop.axes if a != lane), Step(lane, shape.width)]
    with _over(text, steps, work(loop.body) * shape.width, threads):
        if not shape.exact:
            low, high = text.ends(lane)
            text.line(f"const int {shape.count} = {high} - {low};")
        columns(text, loop.body, shape)


@dataclass(frozen=True)
class Step:
    """One digit of a task: an axis, or its blocks of ``width``."""

    axis: Axis
    width: int = 1

    def variable(self, text: Text) -> tuple[str, str]:
        """The name of the variable and the number of its values."""
        name, size = text.name(self.axis.name), size_text(self.axis.size, text.name)
        if self.width == 1:
            return name, size
        exact = isinstance(self.axis.size, int)
        return f"{name}_block", str(-(-self.axis.size // self.width)) if exact else f"blocks({size}, {self.width})"

    def range(self, text: Text) -> list[str]:
        """The line that defines the bounds of the current block."""
        if self.width == 1:
            return []
        (low, high), size = text.ends(self.axis), size_text(self.axis.size, text.name)
        start = f"{self.variable(text)[0]} * {self.width}"
        return [f"const i64 {low} = {start}, {high} = least({low} + {self.width}, {size});"]


@contextmanager
def _over(
    text: Text, steps: Sequence[Step], cost: Dim, threads: bool, level: Callable[[int], None] = lambda k: None
) -> Iterator[None]:
    """Emits the loops over ``steps``, plain axes before blocks, on all threads or nested. ``cost`` is the cost of one
    task. ``level(k)`` emits the statements inside the first k axes.
    """
    variables = [s.variable(text) for s in steps]
    plain = sum(s.width == 1 for s in steps)
    with ExitStack() as stack:
        if threads and variables:
            total = " * ".join(n for _, n in variables)
            stack.enter_context(text.team(total, size_text(cost, text.name)))
            stack.enter_context(text.count_through(variables, "from", "to"))
            for k in range(1, plain + 1):
                level(k)
        else:
            for k, (name, size) in enumerate(variables):
                stack.enter_context(text.loop(name, "0", size))
                if k < plain:
                    level(k + 1)
        text.each(*(s.range(text) for s in steps))
        yield


# -- folds ----------------------------------------------------------------------------------------------------------


def _serial(text: Text, loop: Loop) -> None:
    """Emits a loop that runs one iteration after the other, with scalar accumulators."""
    small = is_small(loop)
    folds = text.folds(loop, short=small)
    for fold in folds:
        text.each(fold.function(), fold.declare())
    with ExitStack() as stack:
        for a in loop.axes:
            if unrolls(loop):
                text.line("UNROLL")
            high = constant_text(a.size) if unrolls(loop) else size_text(a.size, text.name)
            stack.enter_context(text.loop(text.name(a.name), "0", high))
        for stmt in loop.body:
            _inside(text, stmt)
    text.results(f for f in folds if isinstance(f.stmt, Reduce))


def _lane_fold(text: Text, loop: Loop) -> None:
    """Emits a reduce loop in L lanes, which are combined at the end."""
    lane, outer, nest, folds = _open_fold(text, loop, chunked=False)
    for fold in folds:
        text.each(fold.function(), fold.declare("L"))
    with ExitStack() as stack:
        for k, a in enumerate(outer):
            stack.enter_context(text.loop(text.name(a.name), "0", size_text(a.size, text.name)))
            text.statements(nest[k + 1])
        _fold_span(text, lane, "0", size_text(lane.size, text.name), folds, nest[-1])
    text.gathered(folds)


def _open_fold(text: Text, loop: Loop, chunked: bool) -> tuple[Axis, list[Axis], list[list[Stmt]], list[Fold]]:
    lane = for_lanes(loop.axes, loop.body, text.facts)
    assert lane is not None  # a loop without axes is small
    outer = [a for a in loop.axes if a != lane]
    nest = levels(loop.body, [*outer, lane], text.facts)
    text.statements(nest[0])
    brief = not chunked and not outer and isinstance(lane.size, int) and lane.size <= BRIEF
    return lane, outer, nest, text.folds(loop, brief=brief)


def _fold_span(text: Text, lane: Axis, low: str, high: str, folds: Sequence[Fold], body: Sequence[Stmt]) -> None:
    """Folds low <= lane < high into the lanes. Sums of floats are flushed after spans of 32 steps."""
    parted = [f for f in folds if f.parted and not f.brief]
    if not parted:
        return _fold_steps(text, lane, low, high, folds, body)
    name = text.name(lane.name)
    with ExitStack() as stack:
        if not (isinstance(lane.size, int) and lane.size <= BRIEF):
            span, end = f"{name}_span", f"{name}_end"
            stack.enter_context(text.block(f"for (i64 {span} = {low}; {span} < {high}; {span} += 32 * L)"))
            text.line(f"const i64 {end} = least({span} + 32 * L, {high});")
            low, high = span, end
        text.each(f.declare_part("L") for f in parted)
        _fold_steps(text, lane, low, high, folds, body)
        text.each(f.flush() for f in parted)


def _fold_steps(text: Text, lane: Axis, low: str, high: str, folds: Sequence[Fold], body: Sequence[Stmt]) -> None:
    name = text.name(lane.name)
    at = f"{name}_at"
    if isinstance(lane.size, int) and lane.size % 32 == 0:
        blocks = text.block(f"for (i64 {at} = {low}; {at} < {high}; {at} += L)")
        simd = vectorizes(body, lane, text.facts)
        with text.watched(body, simd, "L"), blocks, text.lanes("for (int l = 0; l < L; ++l)", simd=simd):
            text.line(f"const i64 {name} = {at} + l;")
            text.statements(body, at="[l]", part=True)
        return
    step, simd = f"{name}_step", vectorizes(body, lane, text.facts, guarded=True)
    head = "SIMD for (int l = 0; l < L; ++l)" if simd else "for (int l = 0; l < L; ++l)"
    with text.block(""), text.watched(body, simd, "L"):
        with text.lanes(f"const auto {step} = [&](i64 {name}, int l, bool on) BODY", "};", simd=simd):
            text.statements(body, at="[l]", part=True, on="on")
        text.line(f"i64 {at} = {low};")
        text.line(f"for (; {at} + L <= {high}; {at} += L)")
        text.line(f"  {head} {step}({at} + l, l, true);")
        text.line(f"if ({at} < {high})")
        text.line(f"  {head} {step}({at} + l, l, l < int({high} - {at}));")


def _chunks(text: Text, loop: Loop) -> None:
    """Emits a reduce loop at the top, whose innermost axis has lanes, in chunks."""
    lane, outer, nest, folds = _open_fold(text, loop, chunked=True)
    steps, ends = [Step(a) for a in outer], ("0", size_text(lane.size, text.name))
    if not (outer and isinstance(lane.size, int) and lane.size <= 2 * RUN):
        steps, ends = [*steps, Step(lane, 2 * RUN)], text.ends(lane)
    with _in_chunks(text, loop, steps, folds, lanes="L"):
        for k in range(1, len(outer) + 1):
            text.statements(nest[k])
        text.each(*(s.range(text) for s in steps))
        _fold_span(text, lane, *ends, folds, nest[-1])


def _row_chunks(text: Text, loop: Loop) -> None:
    """Emits a reduce loop at the top with loops inside, as over the rows of a loss, in chunks."""
    with _in_chunks(text, loop, [Step(a) for a in loop.axes], text.folds(loop), lanes=""):
        for stmt in loop.body:
            _inside(text, stmt)


@contextmanager
def _in_chunks(text: Text, loop: Loop, steps: Sequence[Step], folds: Sequence[Fold], lanes: str) -> Iterator[None]:
    """Emits the loops over ``steps`` in a fixed number of chunks on all threads. Each chunk has accumulators of its
    own, with that number of ``lanes`` ("" for scalars), which are combined in order.
    """
    variables = [s.variable(text) for s in steps]
    first = f"{folds[0].number}"
    tasks, chunks = f"tasks{first}", f"chunks{first}"
    text.line(f"const i64 {tasks} = {' * '.join(n for _, n in variables)}, {chunks} = least({tasks}, {CHUNKS});")
    for fold in folds:
        text.each(fold.function())
        for v, (ctype, _) in zip(fold.stmt.results, fold.totals(lanes), strict=True):
            text.line(f"{ctype} chunk{v}[{CHUNKS}];")
            text.line(f"{ctype}* const to{v} = chunk{v};")
    cost = f"{size_text(iterations(loop.axes) * work(loop.body), text.name)} / most({chunks}, 1)"
    with text.team(chunks, cost), text.loop("chunk", "from", "to"):
        for fold in folds:
            text.each(fold.declare(lanes))
        low, high = f"{tasks} * chunk / {chunks}", f"{tasks} * (chunk + 1) / {chunks}"
        with text.count_through(variables, low, high):
            yield
        for fold in folds:
            text.each(fold.gather() if lanes else ())
            totals = zip(fold.stmt.results, fold.totals(lanes), strict=True)
            text.each(f"to{v}[chunk] = {total};" for v, (_, total) in totals)
    for fold in folds:
        text.each(fold.declare())
    with text.loop("chunk", "0", chunks):
        text.each([fold.update([f"chunk{v}[chunk]" for v in fold.stmt.results]) for fold in folds])
    text.results(folds)
