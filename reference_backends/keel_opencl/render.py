"""Renders a kernel as OpenCL C."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch

from keel.loops import (
    MONOIDS,
    Apply,
    Axis,
    Const,
    Div,
    Index,
    Kernel,
    Load,
    Loaded,
    Loop,
    Mod,
    Position,
    Reduce,
    Scan,
    Stmt,
    Store,
    bounds,
    combination,
    dtypes_of,
    non_negative,
    scalar_text,
    size_text,
    walk,
)
from keel_opencl.kernel_functions import GROUP, Function, functions
from keel_opencl.op_table import DTYPES, STORED, TABLES, literal

FORMS = {
    "floordiv": "floordiv({0}, {1})",
    "mod": "floormod({0}, {1})",
    "max": "most({0}, {1})",
    "min": "least({0}, {1})",
}
NARROW = 2**31


def render(kernel: Kernel) -> str:
    """The functions of a kernel, one after the other."""
    return "\n".join(_Printer(kernel, f).text() for f in functions(kernel))


def named(name: str) -> str:
    """The name of a buffer, axis or symbol. The suffix avoids clashes with words of OpenCL and of this module."""
    return f"{name}_"


class _Printer:
    def __init__(self, kernel: Kernel, function: Function) -> None:
        self.kernel, self.function = kernel, function
        self.stored = {b.name: STORED[b.dtype] for b in kernel.buffers}
        self.dtypes = dtypes_of((*kernel.body, *function.body))
        self.index_type = "int" if _is_narrow(function) else "long"
        self.lines: list[str] = []
        self.depth = 0
        self.touched: set[tuple[str, bool]] = set()  # buffers that items read, or wrote, since the last barrier

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def text(self) -> str:
        parameters = [
            f"__global {self.stored[b.name]} *restrict {b.name}_at, long {b.name}_from" for b in self.kernel.buffers
        ]
        parameters += [f"long {named(s)}" for s in self.kernel.symbols]
        head = f"__kernel __attribute__((reqd_work_group_size({GROUP}, 1, 1)))\nvoid {self.function.name}"
        with self.block(f"{head}({', '.join(parameters)})"):
            for b in self.kernel.buffers:
                self.line(f"__global {self.stored[b.name]} *{named(b.name)} = {b.name}_at + {b.name}_from;")
            if self.function.grouped:
                self.grouped()
            else:
                self.flat()
        return "\n".join(self.lines)

    def flat(self) -> None:
        self.line("long point = get_global_id(0);")
        with self.block(f"if (point < {size_text(self.function.points, named, FORMS)})"):
            self.digits(self.function.axes, "point")
            self.statements(self.function.body)

    def grouped(self) -> None:
        self.line("const int item = get_local_id(0);")
        for loop in self.function.body:
            for fold in _folds(loop) if isinstance(loop, Loop) and loop.kind == "reduce" else ():
                for r, dtype in zip(fold.results, fold.dtypes, strict=True):
                    self.line(f"__local {STORED[dtype]} l{r}[{GROUP}];")
        self.line("long point = get_group_id(0);")
        self.digits(self.function.axes, "point")
        for s in self.function.body:
            self.wait_for(s)
            match s:
                case Loop(kind="scan"):
                    with self.block("if (item == 0)"):
                        self.serial(s)
                case Loop():
                    self.shared(s)
                case Store():
                    with self.block("if (item == 0)"):
                        self.statement(s)
                case _:
                    self.statement(s)

    def wait_for(self, s: Stmt) -> None:
        """A barrier if ``s`` uses memory that other items may still be using."""
        uses = {(t.buffer, isinstance(t, Store)) for t in walk((s,)) if isinstance(t, Load | Store)}
        if any(
            (buffer, True) in self.touched or (stores and (buffer, False) in self.touched) for buffer, stores in uses
        ):
            self.line("barrier(CLK_GLOBAL_MEM_FENCE);")
            self.touched = set()
        self.touched |= uses

    # -- loops ------------------------------------------------------------------------------------------------------

    def digits(self, axes: Sequence[Axis], number: str) -> None:
        """The position on each axis, of a number that counts all points, the last axis fastest."""
        for k, a in reversed([*enumerate(axes)]):
            size = size_text(a.size, named, FORMS)
            digit = f"{number} % {size}" if k else number
            self.line(f"const {self.index_type} {named(a.name)} = {digit};")
            if k:
                self.line(f"{number} /= {size};")

    def shared(self, loop: Loop) -> None:
        """A loop whose points the items of a group share, and whose folds they combine."""
        self.start(loop)
        total = " * ".join(size_text(a.size, named, FORMS) for a in loop.axes) or "1"
        with self.block(f"for (long next = item; next < {total}; next += {GROUP})"):
            self.line("long digit = next;")
            self.digits(loop.axes, "digit")
            self.statements(loop.body)
        folds = _folds(loop)
        if not folds:
            return
        for s in folds:
            for r in s.results:
                self.line(f"l{r}[item] = v{r};")
        self.line("barrier(CLK_LOCAL_MEM_FENCE);")
        with self.block(f"for (int step = {GROUP // 2}; step > 0; step /= 2)"):
            with self.block("if (item < step)"):
                for s in folds:
                    self.fold(s, [f"l{r}[item]" for r in s.results], [f"l{r}[item + step]" for r in s.results])
            self.line("barrier(CLK_LOCAL_MEM_FENCE);")
        for s in folds:
            for r in s.results:
                self.line(f"v{r} = l{r}[0];")

    def serial(self, loop: Loop) -> None:
        """A loop that one item runs."""
        self.start(loop)
        for a in loop.axes:
            i = named(a.name)
            self.line(f"for ({self.index_type} {i} = 0; {i} < {size_text(a.size, named, FORMS)}; ++{i})")
        with self.block():
            self.statements(loop.body)

    def start(self, loop: Loop) -> None:
        """The identities of a loop's folds. A scan has a state ``s`` and, in each point, a result ``v``."""
        for s in _folds(loop):
            values = MONOIDS[s.monoid].identity(s.dtypes)
            for r, dtype, value in zip(s.results, s.dtypes, values, strict=True):
                self.line(f"{DTYPES[dtype]} {'v' if isinstance(s, Reduce) else 's'}{r} = {literal(value, dtype)};")

    def fold(self, s: Reduce | Scan, state: Sequence[str], more: Sequence[str]) -> None:
        """Combines the variables ``state`` with the values ``more``."""
        program = combination(s.monoid, s.dtypes, TABLES.scalars, TABLES.dtypes)
        values, dtypes = [*state, *more], [*s.dtypes, *s.dtypes]
        with self.block():
            for step in program.steps:
                self.line(f"const {DTYPES[step.dtype]} t{step.result} = {_value(step, values, dtypes)};")
                values.append(f"t{step.result}")
                dtypes.append(step.dtype)
            for name, out in zip(state, program.outputs, strict=True):
                self.line(f"{name} = {values[out]};")

    # -- statements -------------------------------------------------------------------------------------------------

    def statements(self, body: Iterable[Stmt]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        match s:
            case Const() | Apply():
                names = {a: f"v{a}" for a in s.args} if isinstance(s, Apply) else {}
                self.define(s.result, s.dtype, _value(s, names, self.dtypes))
            case Position():
                self.define(s.result, s.dtype, self.index(s.index))
            case Load():
                text = f"{named(s.buffer)}[{self.index(s.index)}]"
                text = f"{text} != 0" if s.dtype == torch.bool else text
                self.define(s.result, s.dtype, text if s.mask is None else f"v{s.mask} ? {text} : 0")
            case Store():
                place, stored = f"{named(s.buffer)}[{self.index(s.index)}]", self.stored[s.buffer]
                text = f"{place} = v{s.value};"
                text = text if s.mode == "write" else f"store_{s.mode}_{stored}(&{place}, v{s.value});"
                self.line(text if s.mask is None else f"if (v{s.mask}) {text}")
            case Reduce():
                self.fold(s, [f"v{r}" for r in s.results], [f"v{a}" for a in s.args])
            case Scan():
                self.fold(s, [f"s{r}" for r in s.results], [f"v{a}" for a in s.args])
                for r, dtype in zip(s.results, s.dtypes, strict=True):
                    self.define(r, dtype, f"s{r}")
            case Loop():
                self.serial(s)

    def define(self, number: int, dtype: torch.dtype, text: str) -> None:
        self.line(f"const {DTYPES[dtype]} v{number} = {text};")

    def index(self, i: Index) -> str:
        terms = [f"{size_text(c, named, FORMS)} * {self.atom(a)}" if c != 1 else self.atom(a) for a, c in i.terms]
        if i.const != 0 or not terms:
            terms.append(size_text(i.const, named, FORMS))
        return " + ".join(terms)

    def atom(self, a: Axis | Loaded | Div | Mod) -> str:
        match a:
            case Axis():
                return named(a.name)
            case Loaded():
                return f"({self.index_type})v{a.value}"
        of, by, limits = self.index(a.of), size_text(a.by, named, FORMS), bounds(a.of)
        if limits is not None and non_negative(limits[0]):
            return f"(({of}) {'/' if isinstance(a, Div) else '%'} {by})"
        return f"({self.index_type}){'floordiv' if isinstance(a, Div) else 'floormod'}({of}, {by})"


def _folds(loop: Loop) -> list[Reduce | Scan]:
    return [s for s in loop.body if isinstance(s, Reduce | Scan)]


def _value(
    s: Const | Apply, names: Sequence[str] | dict[int, str], dtypes: Sequence[torch.dtype] | dict[int, torch.dtype]
) -> str:
    if isinstance(s, Const):
        return literal(s.value, s.dtype)
    return scalar_text(TABLES.scalars[s.op], [names[a] for a in s.args], dtypes[s.args[-1]], s.dtype, DTYPES)


def _is_narrow(function: Function) -> bool:
    """True if 32 bits are enough for all indices."""
    indices = [s.index for s in walk(function.body) if isinstance(s, Position | Load | Store)]
    sizes = [a.size for a in function.axes]
    sizes += [a.size for s in walk(function.body) if isinstance(s, Loop) for a in s.axes]
    return all(isinstance(n, int) and n < NARROW for n in sizes) and all(map(_fits, indices))


def _fits(i: Index) -> bool:
    limits = bounds(i)
    if limits is None or not all(isinstance(n, int) and -NARROW < n < NARROW for n in limits):
        return False
    return all(_fits(a.of) for a, _ in i.terms if isinstance(a, Div | Mod))
