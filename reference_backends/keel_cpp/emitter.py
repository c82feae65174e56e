"""The emitter of C++: names, indentation, statements, and the loops that all loop shapes share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.resources import files

import torch

from keel.loops import (
    Apply,
    Axis,
    Buffer,
    Check,
    Const,
    Index,
    Kernel,
    Load,
    Loaded,
    Loop,
    Position,
    Reduce,
    Scan,
    Stmt,
    Store,
)
from keel_cpp.accumulators import Fold
from keel_cpp.analysis import Facts, checks_in, folds_of
from keel_cpp.index_text import NARROW, constant_text, index_text, size_text
from keel_cpp.op_table import DTYPES, STORED, applied, literal, loaded
from keel_cpp.row_cache import Place, kept_rows
from keel_cpp.statements import Address, Picked

KEYWORDS = frozenset(
    (
        "alignas",
        "alignof",
        "and",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "compl",
        "concept",
        "const",
        "constexpr",
        "continue",
        "co_await",
        "co_return",
        "co_yield",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "nullptr",
        "operator",
        "or",
        "private",
        "protected",
        "public",
        "register",
        "requires",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "while",
        "xor",
    )
)
OURS = re.compile(
    r"(v|worst|row|tile|sum|err|part|acc|wide|chunk|chunks|to|tasks|number)\d*|l|m|on|from|task|last|"
    r".*_(block|low|high|at|end|span|step|point|n)"
)


@lru_cache(maxsize=1)
def prelude() -> str:
    """The text at the beginning of every translation unit."""
    return "".join((files("keel_cpp") / name).read_text() for name in ("prelude.h", "math.h"))


@lru_cache(maxsize=1)
def _reserved_names() -> frozenset[str]:
    return KEYWORDS | frozenset(re.findall(r"[A-Za-z_]\w*", prelude()))


def safe(name: str) -> str:
    """Returns a name of the loop IR, with a suffix if C++, the prelude or the renderer uses that name."""
    return f"{name}_" if name in _reserved_names() or OURS.fullmatch(name) or name.endswith("_") else name


class Text:
    """Lines of C++ and the names in them. ``values`` has the text of values that have no variable v<n>."""

    def __init__(self, kernel: Kernel, facts: Facts):
        self.kernel, self.facts = kernel, facts
        self.buffers: dict[str, Buffer] = {b.name: b for b in kernel.buffers}
        self.values = {n: literal(c.value, c.dtype) for n, c in facts.constants.items()}
        self.known: dict[int, Fold] = {}
        self.elements: dict[int, str] = {}  # text of loads that do not read from their buffer
        self.arrays: set[int] = set()  # values kept in an array of the row,
        self.places: dict[int, Place] = {}  # where in it, and which values are read back instead
        self.read: dict[int, int] = {}  # of computed
        self.worst: dict[int, str] = {}  # the variable for the worst index of each check in lanes
        self.lines: list[str] = []
        self.depth = 0
        self.in_lanes = False

    # -- names ------------------------------------------------------------------------------------------------------

    def name(self, name: str) -> str:
        return safe(name)

    def ends(self, axis: Axis) -> tuple[str, str]:
        """The variables for the start and the end of a block of the axis."""
        return f"{self.name(axis.name)}_low", f"{self.name(axis.name)}_high"

    def value(self, number: int) -> str:
        return self.values.get(number, f"v{number}")

    def index(self, i: Index, instead: Mapping[str, str] | None = None) -> str:
        """The text of an index. ``instead`` replaces the variables of some axes."""
        return index_text(i, lambda n: (instead or {}).get(n, self.name(n)), self._loaded)

    def _loaded(self, atom: Loaded) -> str:
        """A value as an index. In lanes it is narrowed if it fits, because gather instructions need narrow indices."""
        text = self.value(atom.value)
        if self.in_lanes and isinstance(atom.bound, int) and atom.bound <= NARROW:
            return f"i64(i32({text}))"
        return text if self.facts.dtypes[atom.value] == torch.int64 else f"i64({text})"

    def signature(self) -> str:
        buffers = [f"{_pointer(b)} {self.name(b.name)}" for b in self.kernel.buffers]
        symbols = [f"i64 {self.name(s)}" for s in self.kernel.symbols]
        return f'extern "C" void {self.kernel.name}({", ".join(buffers + symbols)})'

    # -- lines ------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def each(self, *groups: Iterable[str]) -> None:
        for group in groups:
            for text in group:
                self.line(text)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line(tail)

    @contextmanager
    def loop(self, name: str, low: str, high: str) -> Iterator[None]:
        with self.block(f"for (i64 {name} = {low}; {name} < {high}; ++{name})"):
            yield

    @contextmanager
    def lanes(self, head: str, tail: str = "}", *, simd: bool = True) -> Iterator[None]:
        """A block whose statements are vectorized, unless ``simd`` is false."""
        worst = [w for w in self.worst.values() if w.isidentifier()]
        pragma = f'_Pragma("omp simd reduction(max: {", ".join(worst)})")' if worst else "SIMD"
        with self.block(f"{pragma} {head}" if simd and tail == "}" else head, tail):
            if not simd:
                self.line("ALONE;")
            self.in_lanes = True
            yield
            self.in_lanes = False

    @contextmanager
    def watched(self, body: Sequence[Stmt], simd: bool, lanes: str = "") -> Iterator[None]:
        """A context around lanes in which the checks of ``body`` track the worst index, or one for each of ``lanes`` if
        given.
        """
        checks = checks_in(body) if simd else []
        if not checks:
            yield
            return
        with self.block(""):
            for c in checks:
                self.line(f"u64 worst{c.result}{f'[{lanes}]' if lanes else ''} = {'{}' if lanes else '0'};")
            self.worst = {c.result: f"worst{c.result}{'[l]' if lanes else ''}" for c in checks}
            yield
            self.worst = {}
            for c in checks:
                size, wraps = size_text(c.bound, self.name), str(c.wrap).lower()
                self.line(f"settle(worst{c.result}, {size}, {wraps}, {self.name(c.buffer)} + {c.site});")

    @contextmanager
    def team(self, tasks: str, cost: str) -> Iterator[None]:
        """Runs the tasks from ``from`` to ``to`` on all threads. ``cost`` is the cost of one task."""
        with self.block(f"parallel({tasks}, {cost}, [=](i64 from, i64 to) BODY", "});"):
            yield

    @contextmanager
    def count_through(self, sizes: Sequence[tuple[str, str]], low: str, high: str) -> Iterator[None]:
        """A loop over low <= task < high that defines the digits of the task, the last fastest, as variables."""
        if len(sizes) == 1:
            with self.loop(sizes[0][0], low, high):
                yield
            return
        self.line(f"i64 task = {low};")
        rest = "task"
        digits = []
        for name, size in reversed(sizes):
            digits.append(f"{name} = {rest}" if name == sizes[0][0] else f"{name} = {rest} % {size}")
            rest = f"{rest} / {size}"
        self.line(f"i64 {', '.join(digits)};")
        end = high if high.isidentifier() else "last"
        if end == "last":
            self.line(f"const i64 last = {high};")
        with self.block(f"for (; task < {end}; ++task)"):
            yield
            carry = f"++{sizes[0][0]}"
            for name, size in sizes[1:]:
                carry = (
                    f"if (++{name} == {size}) {name} = 0, {carry}"
                    if carry.startswith("++")
                    else f"if (++{name} == {size}) {{ {name} = 0; {carry} }}"
                )
                carry = carry if carry.endswith(("}", ";")) else carry + ";"
            self.line(carry)

    # -- statements -------------------------------------------------------------------------------------------------

    def statements(self, body: Iterable[Stmt], *, at: str = "", part: bool = False, on: str = "") -> None:
        for stmt in body:
            self.statement(stmt, at=at, part=part, on=on)

    def statement(self, stmt: Stmt, *, at: str = "", part: bool = False, on: str = "") -> None:
        """Emits one straight-line statement. Folds go to the accumulator ``at``; if it has a partial sum and ``part``
        is set, to that. If ``on`` is a flag and false, nothing is loaded or stored, and the identity is folded.
        """
        match stmt:
            case Const():
                pass
            case Address():
                self.define(stmt.result, f"i64({self.name(stmt.buffer)} + ({self.index(stmt.index)}))")
            case Position():
                self.define(stmt.result, self.index(stmt.index))
            case Load():
                self.define(stmt.result, self._load(stmt, on))
            case Check():
                self._check(stmt, on)
            case Apply():
                source = self.facts.dtypes[stmt.args[-1]]
                args = tuple(self.value(a) for a in stmt.args)
                self.define(stmt.result, applied(stmt.op, args, source, stmt.dtype))
            case Store():
                self.line(self._store(stmt, on))
            case Reduce() | Scan():
                fold = self.known[stmt.results[0]]
                values = map(self._guarded, map(self.value, stmt.args), stmt.dtypes, fold.starts, [on] * len(stmt.args))
                self.line(fold.update(list(values), at, part and fold.parted))
                if isinstance(stmt, Scan):
                    self._results(fold, at)
            case Loop():
                raise TypeError("A loop is not a straight-line statement.")

    def define(self, number: int, text: str) -> None:
        dtype = self.facts.dtypes[number]
        at = f"[{self.places[number].index(self.name)}]" if number in self.places else ""
        if number in self.read:
            text = loaded(f"row{self.read[number]}{at}", dtype)
        self.line(f"const {DTYPES[dtype]} v{number} = {text};")
        if number in self.arrays:
            self.line(f"row{number}{at} = v{number};")

    def row(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """The body of one row without the values that are cached in arrays between loops. Declares these arrays."""
        cached = kept_rows(body, self.facts)
        for n, size in cached.arrays.items():
            extent = 1 << (size - 1).bit_length()  # one of few, as those of columns
            self.line(f"{STORED[self.facts.dtypes[n]]} row{n}[{constant_text(extent)}];")
        self.arrays |= cached.arrays.keys()
        self.places |= cached.places
        self.read |= cached.read
        return cached.body

    def _load(self, stmt: Load, on: str) -> str:
        text = self.elements.get(stmt.result) or self._element(stmt)
        flags = [*([on] if on else []), *([self.value(stmt.mask)] if stmt.mask is not None else [])]
        if flags:
            text = f"{' & '.join(flags)} ? {text} : {STORED[stmt.dtype]}(0)"
            text = f"({text})" if stmt.dtype == torch.bool else text
        return loaded(text, stmt.dtype)

    def _element(self, stmt: Load) -> str:
        if isinstance(stmt, Picked):
            steps = "".join(f" + {self.value(v)} * {self.name(axis.name)}" for v, axis in stmt.steps)
            return f"((const {STORED[stmt.dtype]}*)v{stmt.address})[{self.index(stmt.within)}{steps}]"
        return f"{self.name(stmt.buffer)}[{self.index(stmt.index)}]"

    def _check(self, stmt: Check, on: str) -> None:
        value, size = self.value(stmt.value), size_text(stmt.bound, self.name)
        at = f"wrapped({value}, {size})" if stmt.wrap else value
        flags = " & ".join([*([on] if on else []), *([self.value(stmt.mask)] if stmt.mask is not None else [])])
        if stmt.result not in self.worst:
            trouble = f"{self.name(stmt.buffer)} + {stmt.site}"
            return self.define(stmt.result, f"place({value}, {at}, {size}, {flags or 'true'}, {trouble})")
        self.line(f"const i64 v{stmt.result}_at = {at};")
        index, worst = f"u64(v{stmt.result}_at)", self.worst[stmt.result]
        self.line(f"{worst} = worse({worst}, {f'{flags} ? {index} : u64(0)' if flags else index});")
        self.define(stmt.result, f"inside(v{stmt.result}_at, {size})")

    def _guarded(self, value: str, dtype: torch.dtype, start: str, on: str) -> str:
        """The folded value: ``value``, or ``start`` if ``on`` is a flag and false."""
        if dtype == torch.bool:  # bitwise logic, because a conditional on bools is not vectorized
            form = "u8({value})" if not on else "u8({value} & {on})" if start == "u8(0)" else "u8({value} | !{on})"
            return form.format(value=value, on=on)
        return f"({on} ? {value} : {start})" if on else value

    def _store(self, stmt: Store, on: str) -> str:
        place, value = f"{self.name(stmt.buffer)}[{self.index(stmt.index)}]", self.value(stmt.value)
        if stmt.mode != "write":
            value = self._combined(stmt, place, value)
        flags = [*([on] if on else []), *([self.value(stmt.mask)] if stmt.mask is not None else [])]
        return f"if ({' & '.join(flags)}) {place} = {value};" if flags else f"{place} = {value};"

    def _combined(self, stmt: Store, place: str, value: str) -> str:
        dtype = self.buffers[stmt.buffer].dtype
        half = dtype in (torch.float16, torch.bfloat16)
        operands = tuple(f"widen({v})" if half else v for v in (place, value))
        op = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}[stmt.mode]
        wide = torch.float32 if half else dtype
        text = applied(op, operands, wide, wide)
        return f"cast<{DTYPES[dtype]}>({text})" if half else text

    # -- folds ------------------------------------------------------------------------------------------------------

    def folds(self, loop: Loop, *, short: bool = False, brief: bool = False) -> list[Fold]:
        """Declares the accumulators of a loop."""
        accumulators = [Fold(s, short, brief) for s in folds_of(loop)]
        self.known |= {f.number: f for f in accumulators}
        return accumulators

    def results(self, folds: Iterable[Fold]) -> None:
        """Defines the results of scalar accumulators as variables."""
        for fold in folds:
            self._results(fold, "")

    def _results(self, fold: Fold, at: str) -> None:
        for number, text in zip(fold.stmt.results, fold.results(at), strict=True):
            self.define(number, text)

    def gathered(self, folds: Iterable[Fold]) -> None:
        """Defines the results of accumulators of L lanes as variables."""
        for fold in folds:
            self.each(fold.gather())
            for number, dtype, (ctype, total) in zip(fold.stmt.results, fold.dtypes, fold.totals(), strict=True):
                exact = ctype in (STORED[dtype], DTYPES[dtype])
                self.define(number, loaded(total, dtype) if exact else f"{DTYPES[dtype]}({total})")


def _pointer(b: Buffer) -> str:
    """The type of a buffer's parameter."""
    return f"{'const ' if b.role == 'in' else ''}{STORED[b.dtype]}*"
