"""Parses the text of a kernel, as ``ir.show`` prints it, into an equal kernel.

A value's dtype follows a colon where the operands do not determine it: at constants and casts. A symbol is a positive
integer unless ``where`` says ``>= 0`` or ``any`` after its name. ``#`` starts a comment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn, cast, get_args

import sympy
import torch

from keel.errors import KeelError
from keel.loops.index import Axis, Index, Loaded, floordiv, index, mod
from keel.loops.ir import (
    Apply,
    Buffer,
    Check,
    Const,
    Dtypes,
    Kernel,
    Load,
    Loop,
    LoopKind,
    Position,
    Reduce,
    Role,
    Scan,
    Stmt,
    Store,
    StoreMode,
    implied_dtype,
    record_dtypes,
)
from keel.loops.monoids import MONOIDS
from keel.loops.scalar_ops import SCALARS
from keel.loops.symbolic_sizes import canonicalize, symbol
from keel.types import DTYPES_BY_NAME, Dim

# -- reading -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    number: int
    depth: int
    text: str

    def wants(self, what: str) -> NoReturn:
        shown = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}..."
        raise KeelError("bad-text", f"Line {self.number}: expected {what}, found {shown!r}.")


def parse(text: str) -> Kernel:
    """Parses a kernel. Raises KeelError[bad-text], which names the line and what was expected there.

    The text is not trusted. Its length, depth and numbers are limited, and so is the number of terms of an expanded
    size. No kernel that Keel makes comes near these limits.
    """
    if len(text) > _MOST_CHARACTERS:
        raise KeelError("bad-text", f"Line 1: expected a kernel of at most {_MOST_CHARACTERS} characters.")
    lines = [line for n, raw in enumerate(text.split("\n"), 1) if (line := _line(n, raw))]
    if not lines:
        raise KeelError("bad-text", "Line 1: expected a kernel, found nothing.")
    reader = _Reader(lines)
    try:
        kernel = reader.kernel()
    except (ArithmeticError, ValueError, TypeError, AttributeError) as e:  # sympy raises them for a malformed size
        lines[max(reader.at - 1, 0)].wants(f"sizes that can be worked with ({type(e).__name__}: {str(e)[:80]})")
    if reader.at < len(lines):
        lines[reader.at].wants("a statement of the kernel, indented")
    if unused := sorted(set(reader.names) - set(kernel.symbols)):
        lines[0].wants(f"only sizes that the kernel uses after where, not {unused[0]}")
    return kernel


def _line(number: int, raw: str) -> _Line | None:
    text = raw.split("#")[0].rstrip()
    if not text:
        return None
    spaces = len(text) - len(text.lstrip(" "))
    line = _Line(number, spaces // 2, text[spaces:])
    if len(text) > _LONGEST_LINE or line.depth > _DEEPEST:
        line.wants(f"at most {_LONGEST_LINE} characters, {_DEEPEST} levels in")
    if not text.isascii() or _LONG_NUMBER.search(text):
        line.wants("plain letters, and numbers of at most 20 digits")
    return line.wants("two spaces per level") if spaces % 2 or text[spaces] == "\t" else line


_MOST_CHARACTERS, _LONGEST_LINE, _DEEPEST, _MOST_TOKENS, _DEEPEST_TERM = 1 << 21, 1 << 16, 64, 512, 32
_MOST_NAMES, _SHOWN = 1024, 400
_MOST_TERMS, _MOST_TERMS_OF_ALL, _MOST_BITS, _MOST_POWER, _MOST_EXTREMES = 1024, 1 << 18, 128, 64, 8
_LONG_NUMBER = re.compile(r"\d{21}")
_HEADER = re.compile(r"kernel ([A-Za-z_]\w*)\(")
_RESULTS = re.compile(r"(.*)\)(?: where ([^()]*))?:")
_BUFFER = re.compile(r"([A-Za-z_]\w*): (?:(in|out|inout) )?(\w+)\[(.+)\]")
_SYMBOL = re.compile(r"([A-Za-z_]\w*)(?: (>= 0|any))?")
_LOOP = re.compile(rf"({'|'.join(get_args(LoopKind))})(?: (.*))?:")
_AXIS = re.compile(r"([A-Za-z_]\w*) < (.+)")
_STORE = re.compile(rf"store (?:({'|'.join(get_args(StoreMode))}) )?(\w+)\[(.+)\] %(\d+)(?: if %(\d+))?")
_ASSIGN = re.compile(r"%(\d+(?:, %\d+)*) = (\w+)(.*)")
_CONST = re.compile(r" (\S+) : (\w+)")
_LOAD = re.compile(r" (\w+)\[(.+)\](?: if %(\d+))?(?: : (\w+))?")
_CHECK = re.compile(r" (\w+)\[(\d+)\]: %(\d+) < (.+?)( wrap)?(?: if %(\d+))?")
_FOLD = re.compile(r" (\w+)((?: %\d+)+)(?: : (\w+(?:, \w+)*))?")
_APPLY = re.compile(r"((?: %\d+)+)(?: : (\w+))?")
_TOKEN = re.compile(r"\s*(%\d+|\d+|[A-Za-z_]\w*|//|\*\*|[-+*/%()<,])")


@dataclass
class _Reader:
    """Reads lines in order and records the names and dtypes declared so far."""

    lines: list[_Line]
    at: int = 0
    names: dict[str, sympy.Symbol | Axis] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    dtypes: Dtypes = field(default_factory=dict)
    terms: int = 0

    def kernel(self) -> Kernel:
        line = self.lines[0]
        head, _, tail = line.text.partition(") -> (")
        name, results = _HEADER.match(head), _RESULTS.fullmatch(tail)
        if name is None or results is None or line.depth:
            line.wants("kernel name(buffers) -> (buffers):")
        for part in _parts(results[2] or ""):
            if (known := _SYMBOL.fullmatch(part)) is None:
                line.wants(f"a size's name after where, not {part!r}")
            self.names[known[1]] = symbol(known[1], known[2] or ">= 1")
        self.limit(line)
        lists = ((head[name.end() :], "in"), (results[1], "out"))
        buffers = [self.buffer(line, b, role) for text, role in lists for b in _parts(text)]
        self.buffers = {b.name: b for b in buffers}
        self.at = 1
        return Kernel(name[1], tuple(buffers), self.block(1))

    def buffer(self, line: _Line, text: str, role: str) -> Buffer:
        declaration = _BUFFER.fullmatch(text)
        if declaration is None:
            line.wants(f"a buffer as name: dtype[size], not {text!r}")
        return Buffer(
            declaration[1],
            _dtype(line, declaration[3]),
            self.size(line, declaration[4]),
            cast(Role, declaration[2] or role),
        )

    def block(self, depth: int) -> tuple[Stmt, ...]:
        body: list[Stmt] = []
        while self.at < len(self.lines) and (line := self.lines[self.at]).depth >= depth:
            if line.depth > depth:
                line.wants(f"a statement {2 * depth} spaces in")
            self.at += 1
            stmt = self.loop(line, depth) if _LOOP.fullmatch(line.text) else self.statement(line)
            record_dtypes(stmt, self.dtypes)
            body.append(stmt)
        return tuple(body)

    def loop(self, line: _Line, depth: int) -> Loop:
        header = _LOOP.fullmatch(line.text)
        assert header is not None
        axes = []
        for part in _parts(header[2] or ""):
            axis = _AXIS.fullmatch(part)
            if axis is None:
                line.wants(f"an axis as name < size, not {part!r}")
            axes.append(Axis(axis[1], self.size(line, axis[2])))
        outer = dict(self.names)
        self.names |= {a.name: a for a in axes}
        self.limit(line)
        body = self.block(depth + 1)
        self.names = outer
        return Loop(cast(LoopKind, header[1]), tuple(axes), body)

    def limit(self, line: _Line) -> None:
        """Limits the names in scope, because each loop and statement takes time proportional to them."""
        if len(self.names) > _MOST_NAMES:
            line.wants(f"at most {_MOST_NAMES} sizes and axes in scope")

    def statement(self, line: _Line) -> Stmt:
        if store := _STORE.fullmatch(line.text):
            mode = cast(StoreMode, store[1] or "write")
            return Store(store[2], self.index(line, store[3]), int(store[4]), mode, _number(store[5]))
        assignment = _ASSIGN.fullmatch(line.text)
        if assignment is None:
            line.wants("a loop (parallel, reduce, scan), a store, or %n = op ...")
        results = tuple(int(r.lstrip("%")) for r in assignment[1].split(", "))
        word, rest = assignment[2], assignment[3]
        if word in ("reduce", "scan"):
            return self.fold(line, Reduce if word == "reduce" else Scan, results, rest)
        if len(results) > 1:
            line.wants(f"one result of {word}")
        return self.value(line, results[0], word, rest)

    def value(self, line: _Line, result: int, word: str, rest: str) -> Stmt:
        if word == "const":
            const = _CONST.fullmatch(rest) or line.wants("%n = const literal : dtype")
            return Const(result, _constant(line, const[1]), _dtype(line, const[2]))
        if word == "position":
            return Position(result, self.index(line, rest))
        if word == "load":
            load = _LOAD.fullmatch(rest) or line.wants("%n = load buffer[index]")
            held = self.buffers.get(load[1]) or line.wants(f"a buffer of the kernel, not {load[1]!r}")
            dtype = _dtype(line, load[4]) if load[4] else held.dtype
            return Load(result, load[1], self.index(line, load[2]), dtype, _number(load[3]))
        if word == "check":
            match = _CHECK.fullmatch(rest) or line.wants("%n = check buffer[site]: %value < bound")
            return Check(
                result,
                int(match[3]),
                self.size(line, match[4]),
                match[1],
                int(match[2]),
                bool(match[5]),
                _number(match[6]),
            )
        if word not in SCALARS:
            line.wants(f"const, position, load, check, reduce, scan or a scalar op, not {word!r}")
        apply = _APPLY.fullmatch(rest) or line.wants(f"%n = {word} %a ...")
        args = _numbers(apply[1])
        known = _dtype(line, apply[2]) if apply[2] else implied_dtype(word, args, self.dtypes)
        return Apply(result, word, args, known or line.wants("the result's dtype after a colon"))

    def fold(self, line: _Line, form: type[Reduce] | type[Scan], results: tuple[int, ...], rest: str) -> Reduce | Scan:
        parsed = _FOLD.fullmatch(rest) or line.wants("the name of a monoid, then its values")
        if parsed[1] not in MONOIDS:
            line.wants(f"a monoid ({', '.join(MONOIDS)}), not {parsed[1]!r}")
        args = _numbers(parsed[2])
        dtypes = (
            [_dtype(line, d) for d in parsed[3].split(", ")]
            if parsed[3]
            else [self.dtypes.get(a) or line.wants(f"a value that stands above, not %{a}") for a in args]
        )
        return form(results, parsed[1], args, tuple(dtypes))

    def size(self, line: _Line, text: str) -> Dim:
        value = self.expression(line, text)
        return (
            line.wants(f"a size without loop axes, not {text!r}") if isinstance(value, Index) else canonicalize(value)
        )

    def index(self, line: _Line, text: str) -> Index:
        value = self.expression(line, text)
        return value if isinstance(value, Index) else index(value)

    def expression(self, line: _Line, text: str) -> Index | Dim:
        tokens = _TOKEN.findall(text)
        if "".join(tokens) != re.sub(r"\s", "", text):
            line.wants(f"an index, not {text!r}")
        if len(tokens) > _MOST_TOKENS:
            line.wants(f"an index of at most {_MOST_TOKENS} words")
        terms = _Expression(line, self.names, [*tokens, ""])
        value = terms.sum()
        self.terms += terms.terms
        if self.terms > _MOST_TERMS_OF_ALL:
            line.wants("fewer and shorter sizes in one kernel")
        return value if terms.tokens[terms.at] == "" else terms.wants("the end of the index")


@dataclass
class _Expression:
    """Recursive descent over + - * // / % ** and parentheses. A subexpression without axes is a size, not an index."""

    line: _Line
    names: Mapping[str, sympy.Symbol | Axis]
    tokens: list[str]
    at: int = 0
    depth: int = 0
    terms: int = 0

    def wants(self, what: str) -> NoReturn:
        self.line.wants(f"{what} before {self.tokens[self.at] or 'the end'!r}")

    def take(self, *expected: str) -> str:
        token = self.tokens[self.at]
        if token not in expected:
            return ""
        self.at += 1
        return token

    def bounded(self, value: Index | Dim, *inner: Index | Dim) -> Index | Dim:
        """Returns ``value``; fails if it, or a part of it, has too many terms when expanded."""
        for part in (value, *inner):
            self.terms = max(self.terms, _terms_of(part))
        if self.terms > _MOST_TERMS:
            self.wants(f"at most {_MOST_TERMS} terms once it is multiplied out")
        return value

    def sum(self) -> Index | Dim:
        self.depth += 1
        if self.depth > _DEEPEST_TERM:
            self.wants(f"at most {_DEEPEST_TERM} parentheses in each other")
        value = self.summed()
        self.depth -= 1
        return value

    def summed(self) -> Index | Dim:
        value = self.product()
        while sign := self.take("+", "-"):
            other = self.product()
            value = value + other if sign == "+" else value - other
        return value

    def product(self) -> Index | Dim:
        value = self.factor()
        while op := self.take("*", "//", "%", "/"):
            other = self.factor()
            if _terms_of(value) * _terms_of(other) > _MOST_TERMS:
                self.wants(f"at most {_MOST_TERMS} terms once it is multiplied out")
            value = self.bounded(self.joined(op, value, other))
        return value

    def joined(self, op: str, left: Index | Dim, right: Index | Dim) -> Index | Dim:
        if op == "*" and not (isinstance(left, Index) and isinstance(right, Index)):
            return left * right
        if isinstance(right, Index) or (isinstance(right, int) and right <= 0):
            self.wants("a size to multiply with" if op == "*" else "a positive size to divide by")
        if isinstance(left, Index):
            if op == "/":
                self.wants("// between an index and a size")
            return floordiv(left, right) if op == "//" else mod(left, right)
        if isinstance(left, int) and isinstance(right, int) and op != "/":
            return left // right if op == "//" else left % right
        ratio = sympy.sympify(left) / right
        return ratio if op == "/" else sympy.floor(sympy.expand(ratio)) if op == "//" else sympy.Mod(left, right)

    def factor(self) -> Index | Dim:
        sign = 1
        while self.take("-"):
            sign = -sign
        value = self.power()
        return value if sign > 0 else value * -1

    def power(self) -> Index | Dim:
        value = self.atom()
        if self.take("**"):
            power = self.atom()
            if isinstance(value, Index) or not isinstance(power, int):
                self.wants("a size to the power of a number")
            bits = value.bit_length() if isinstance(value, int) else 0
            if power > _MOST_POWER or bits * power > _MOST_BITS or _terms_of(value) ** power > _MOST_TERMS**2:
                self.wants(f"a power of at most {_MOST_POWER}, and numbers of at most {_MOST_BITS} bits")
            return self.bounded(value**power)
        return value

    def atom(self) -> Index | Dim:
        token = self.tokens[self.at]
        self.at += 1
        if token.isdigit():
            return int(token)
        if token in ("max", "min"):
            return self.extreme(token)
        if token in self.names:
            name = self.names[token]
            return index(name) if isinstance(name, Axis) else name
        if token == "(":
            value = self.loaded() if self.tokens[self.at].startswith("%") else self.sum()
            return value if self.take(")") else self.wants("')'")
        self.at -= 1
        return self.wants("a number, a size or an axis that is in scope")

    def loaded(self) -> Index:
        value = self.tokens[self.at]
        self.at += 1
        if not value[1:] or not self.take("<"):
            self.wants("(%n < bound)")
        bound = self.sum()
        return (
            self.wants("a size as bound")
            if isinstance(bound, Index)
            else index(Loaded(int(value[1:]), canonicalize(bound)))
        )

    def extreme(self, word: str) -> Dim:
        values = [self.sum()] if self.take("(") else self.wants("'('")
        while self.take(","):
            values.append(self.sum())
        if not self.take(")") or any(isinstance(v, Index) for v in values) or len(values) > _MOST_EXTREMES:
            self.wants(f"{word} of at most {_MOST_EXTREMES} sizes")
        return (sympy.Max if word == "max" else sympy.Min)(*values)


def _terms_of(value: Index | Dim) -> int:
    """An upper bound of the number of terms of a size that is expanded with each symbol s as 1 + t, as proofs of its
    sign do. For an index, the sum over its sizes.
    """
    if isinstance(value, int | sympy.Integer):
        return 1 if int(value).bit_length() <= _MOST_BITS else _MOST_TERMS + 1
    if isinstance(value, Index):
        return _terms_of(value.const) + sum(_terms_of(c) for _, c in value.terms)
    if isinstance(value, sympy.Symbol):
        return 2
    inner = [_terms_of(a) for a in value.args]
    if isinstance(value, sympy.Add):
        return sum(inner)
    if isinstance(value, sympy.Mul):
        return math.prod(inner)
    if isinstance(value, sympy.Pow) and value.exp.is_Integer:
        power = min(abs(int(value.exp)), _MOST_TERMS)
        return power + 1 if value.base.is_Symbol else min(inner[0] ** power, _MOST_TERMS + 1)
    return 1  # a function is one term; its arguments are counted separately


def _parts(text: str) -> list[str]:
    """Splits at the commas outside parentheses and brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts] if text.strip() else []


def _dtype(line: _Line, name: str) -> torch.dtype:
    return DTYPES_BY_NAME.get(name) or line.wants(f"a dtype ({', '.join(DTYPES_BY_NAME)}), not {name!r}")


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(v[1:]) for v in text.split())


def _constant(line: _Line, text: str) -> bool | int | float:
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return line.wants(f"a number, true or false, not {text!r}")
    return math.nan if math.isnan(value) else value
