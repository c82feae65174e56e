"""Expands scalar ops that a target lacks into ops that it has.

The expansions are data, in ``expansions``; this module parses them, chooses one and substitutes it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch

from keel.errors import KeelError
from keel.loops.expansion import MACROS, Expansion, Kind
from keel.loops.expansions import EXPANSIONS
from keel.loops.ir import Apply, Const, Kernel, Loop, Reduce, Scan, Stmt, results_of, walk
from keel.loops.monoids import MONOIDS
from keel.loops.scalar_ops import SCALARS, ByKind, Domain, kind_of
from keel.types import DTYPE_NAMES, DTYPES_BY_NAME

Step = Const | Apply
Dtypes = tuple[torch.dtype, ...]
Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class Program:
    """Straight-line code: values 0..arity-1 are the operands, each step assigns the next; ``outputs`` are results."""

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]


def expand(
    kernel: Kernel, scalars: Collection[str], reductions: Collection[str], dtypes: Collection[torch.dtype] | None = None
) -> Kernel:
    """Expands every scalar op outside ``scalars`` into ops inside; returns the same kernel if there is nothing to
    expand. ``dtypes`` are the target's dtypes (by default all). Monoids outside ``reductions`` stay: they are rendered
    from ``combination``. Raises KeelError[no-lowering], which names an op that cannot be expanded and the ops that it
    would need.
    """
    have, held = _forms(scalars), _held(dtypes)
    for stmt in walk(kernel.body):
        if isinstance(stmt, Reduce | Scan) and stmt.monoid not in reductions:
            combination(stmt.monoid, stmt.dtypes, scalars, dtypes)
    if all(s.op in have for s in walk(kernel.body) if isinstance(s, Apply)):
        return kernel
    first = 1 + max((r for s in walk(kernel.body) for r in results_of(s)), default=-1)
    body = _Writer(have, held, first).block(kernel.body, {})
    return kernel if body == kernel.body else replace(kernel, body=body)


def why_unsupported(
    op: str, scalars: Collection[str], dtype: torch.dtype | None = None, dtypes: Collection[torch.dtype] | None = None
) -> str | None:
    """Why a target with ``scalars`` cannot compute ``op`` on operands of ``dtype``: a sentence, or None if it can.
    Without ``dtype``, the op must work on all dtypes that it accepts.
    """
    have, held = _forms(scalars), _held(dtypes)
    for operand_dtype in (dtype,) if dtype else _EXAMPLES[SCALARS[op].domain]:
        program = _written(op, _operands(op, operand_dtype), have, held)
        if not isinstance(program, Program):
            return _sentence(op, operand_dtype, program)
    return None


def combination(
    monoid: str, dtypes: Dtypes, scalars: Collection[str], held: Collection[torch.dtype] | None = None
) -> Program:
    """The program that combines two states of ``dtypes`` with a monoid, in ops of ``scalars``. Operands 0..n-1 are the
    left state, n..2n-1 the right one.

    Raises KeelError[no-lowering] if an op of the monoid's steps cannot be made.
    """
    form = MONOIDS[monoid]
    writer = _Writer(_forms(scalars), _held(held), 2 * form.arity)
    types = [*dtypes, *dtypes]
    numbers = list(range(2 * form.arity))
    body: list[Stmt] = []
    for op, args in form.steps:
        result = torch.bool if SCALARS[op].result == "bool" else types[args[-1]]
        stmt = Apply(writer.next, op, tuple(numbers[a] for a in args), result)
        writer.next += 1
        writer.apply(stmt, tuple(types[a] for a in args), body)
        numbers.append(stmt.result)
        types.append(result)
    return _numbered(body, 2 * form.arity, tuple(numbers[o] for o in form.outputs))


def why_unsupported_monoid(
    monoid: str, dtypes: Dtypes, scalars: Collection[str], held: Collection[torch.dtype] | None = None
) -> str | None:
    """Why a target with ``scalars`` cannot combine states of ``monoid``: a sentence, or None if it can."""
    try:
        combination(monoid, dtypes, scalars, held)
    except KeelError as error:
        return error.what
    return None


# -- choosing ------------------------------------------------------------------------------------------

_EXAMPLES: Mapping[Domain, Dtypes] = {
    "float": (torch.float32, torch.float64),
    "int": (torch.int64,),
    "number": (torch.float32, torch.int64),
    "bool": (torch.bool,),
    "integral": (torch.int64, torch.bool),
    "any": (torch.float32, torch.int64, torch.bool),
}


def _forms(scalars: Collection[str]) -> Names:
    """The ops that the target has: ``op``, or ``op:kind`` for each kind of dtype that a ``ByKind`` text covers."""
    texts: Mapping[str, object] = scalars if isinstance(scalars, Mapping) else dict.fromkeys(scalars)
    return frozenset(
        name
        for op, text in texts.items()
        for name in ((f"{op}:{kind}" for kind in text.kinds) if isinstance(text, ByKind) else (op,))
    )


def _has(op: str, dtype: torch.dtype, have: Names) -> bool:
    return op in have or f"{op}:{kind_of(dtype)}" in have


def _held(dtypes: Collection[torch.dtype] | None) -> frozenset[torch.dtype]:
    return frozenset(DTYPE_NAMES if dtypes is None else dtypes)


def _operands(op: str, dtype: torch.dtype) -> Dtypes:
    return (torch.bool, dtype, dtype) if op == "where" else (dtype,) * SCALARS[op].arity


def _kinds(dtype: torch.dtype) -> frozenset[Kind]:
    if dtype.is_floating_point:
        width: tuple[Kind, ...] = ("f32",) if dtype == torch.float32 else ("f64",) if dtype == torch.float64 else ()
        return frozenset((*width, "float", "number", "any"))
    if dtype == torch.bool:
        return frozenset(("bool", "any"))
    return frozenset(("signed" if dtype.is_signed else "unsigned", "int", "number", "any"))


def _sentence(op: str, dtype: torch.dtype, lacks: Names) -> str:
    name = f"{op} on {DTYPE_NAMES[dtype]}"
    if lacks <= {op}:
        return f"It has no {name}, and Keel does not know how to make it of others."
    return f"It has no {name}; making it of others takes {', '.join(sorted(lacks - {op}))}."


@lru_cache(maxsize=1 << 14)
def _written(
    op: str, dtypes: Dtypes, have: Names, held: frozenset[torch.dtype], busy: Names = frozenset()
) -> Program | Names:
    """A program for ``op`` on operands of these dtypes, in ops of ``have``; or the ops and dtypes that are missing for
    one. ``busy`` has the ops under expansion, which must not be used for their own expansion.
    """
    if _has(op, dtypes[-1], have):
        result = torch.bool if SCALARS[op].result == "bool" else dtypes[-1]
        return Program((Apply(len(dtypes), op, tuple(range(len(dtypes))), result),), (len(dtypes),))
    ways = [row for row in EXPANSIONS if row.op == op and row.kind in _kinds(dtypes[-1])] if op not in busy else []
    lacks: list[Names] = []
    for row in ways:
        program = _filled(compiled(row, dtypes), dtypes, have, held, busy | {op})
        if isinstance(program, Program):
            return program
        lacks.append(program)
    # An error names one failed expansion: one that is not circular and lacks the fewest operations.
    return min(lacks, key=lambda names: (not names.isdisjoint(busy | {op}), len(names)), default=frozenset((op,)))


def _filled(
    program: Program, dtypes: Dtypes, have: Names, held: frozenset[torch.dtype], busy: Names
) -> Program | Names:
    """``program`` with its own missing ops expanded."""
    lacks: set[str] = {DTYPE_NAMES[s.dtype] for s in program.steps if s.dtype not in held and s.dtype != torch.bool}
    writer = _Writer(have, held, len(dtypes) + len(program.steps), busy)
    types = dict(enumerate(dtypes))
    body: list[Stmt] = []
    for step in program.steps:
        types[step.result] = step.dtype
        if isinstance(step, Const):
            body.append(step)
        elif isinstance(replacement := writer.way(step, tuple(types[a] for a in step.args)), Program):
            writer.place(step, replacement, body)
        else:
            lacks |= replacement
    return frozenset(lacks) if lacks else _numbered(body, len(dtypes), program.outputs)


def _numbered(body: Sequence[Stmt], arity: int, outputs: tuple[int, ...]) -> Program:
    """The statements renumbered from ``arity`` on, in order."""
    new = {n: n for n in range(arity)}
    steps: list[Step] = []
    for stmt in body:
        assert isinstance(stmt, Const | Apply)
        new[stmt.result] = arity + len(steps)
        steps.append(_moved(stmt, new))
    return Program(tuple(steps), tuple(new[o] for o in outputs))


def _moved(step: Step, new: Mapping[int, int]) -> Step:
    if isinstance(step, Const):
        return replace(step, result=new[step.result])
    return replace(step, result=new[step.result], args=tuple(new[a] for a in step.args))


# -- writing -------------------------------------------------------------------------------------------

Scope = dict[tuple[object, ...], int]
"""The values that a block has computed already: (op, operands, dtype) or a literal's text -> value number."""


@dataclass
class _Writer:
    """Replaces missing ops by programs. ``next`` is the next free value number."""

    have: Names
    held: frozenset[torch.dtype]
    next: int
    busy: Names = frozenset()
    dtypes: dict[int, torch.dtype] = field(default_factory=dict)
    known: Scope = field(default_factory=dict)

    def block(self, body: tuple[Stmt, ...], outer: Scope) -> tuple[Stmt, ...]:
        self.known = dict(outer)
        out: list[Stmt] = []
        for stmt in body:
            match stmt:
                case Loop():
                    here = self.known
                    out.append(replace(stmt, body=self.block(stmt.body, here)))
                    self.known = here
                case Apply():
                    self.apply(stmt, tuple(self.dtypes[a] for a in stmt.args), out)
                case _:
                    out.append(stmt)
            match stmt:
                case Reduce() | Scan():
                    self.dtypes |= zip(stmt.results, stmt.dtypes, strict=True)
                case _:
                    for result in results_of(stmt):  # a statement without results has no dtype
                        self.dtypes[result] = stmt.dtype  # type: ignore[union-attr]
        return tuple(out)

    def apply(self, stmt: Apply, dtypes: Dtypes, out: list[Stmt]) -> None:
        program = self.way(stmt, dtypes)
        if not isinstance(program, Program):
            why = _sentence(stmt.op, dtypes[-1], program)
            raise KeelError(
                "no-lowering",
                f"The target cannot compute {stmt.op}. {why}",
                do=f"Add {', '.join(sorted(program))} to the target's scalars.",
            )
        self.place(stmt, program, out)

    def way(self, stmt: Apply, dtypes: Dtypes) -> Program | Names:
        if _has(stmt.op, dtypes[-1], self.have):
            return Program((), ())
        return _written(stmt.op, dtypes, self.have, self.held, self.busy)

    def place(self, stmt: Apply, program: Program, out: list[Stmt]) -> None:
        """Appends ``stmt`` itself if the program is empty, else the program, its result numbered as ``stmt`` is."""
        if not program.steps:
            out.append(stmt)
            return
        new = dict(enumerate(stmt.args))
        arity, last = len(stmt.args), program.outputs[0]
        for number, step in enumerate(program.steps, arity):
            key = (
                (repr(step.value), step.dtype)
                if isinstance(step, Const)
                else (step.op, tuple(new[a] for a in step.args), step.dtype)
            )
            if number != last and key in self.known:
                new[number] = self.known[key]
                continue
            new[number] = stmt.result if number == last else self.next
            self.next += number != last
            self.known.setdefault(key, new[number])
            out.append(_moved(step, new))


# -- reading programs ----------------------------------------------------------------------------------

_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.USub: "neg",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.Invert: "not",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_NUMBERS: Mapping[str, float | bool] = {"inf": math.inf, "nan": math.nan, "true": True, "false": False}


@dataclass(frozen=True)
class _Literal:
    """A number whose dtype is not known yet. ``ones`` has every bit set."""

    value: bool | int | float | None


@lru_cache(maxsize=4096)
def compiled(row: Expansion, dtypes: Dtypes) -> Program:
    """Parses the row's program for operands of these dtypes. Its own ops are not expanded yet."""
    reader = _Compiler(dtypes[-1], list(dtypes))
    names: dict[str, int | _Literal] = dict(zip(("x", "y", "z"), range(len(dtypes)), strict=False))
    result = reader.run(row.program, names)
    assert isinstance(result, int) and result >= len(dtypes), row.op
    return Program(tuple(reader.steps), (result,))


@dataclass
class _Compiler:
    default: torch.dtype
    types: list[torch.dtype]
    steps: list[Step] = field(default_factory=list)

    def run(self, program: str, names: dict[str, int | _Literal]) -> int | _Literal:
        names = dict(names)
        *lets, last = ast.parse(program.strip()).body
        for let in lets:
            assert isinstance(let, ast.Assign) and isinstance(let.targets[0], ast.Name)
            names[let.targets[0].id] = self.value(let.value, names)
        assert isinstance(last, ast.Expr)
        return self.value(last.value, names)

    def value(self, node: ast.expr, names: dict[str, int | _Literal]) -> int | _Literal:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return _Literal(number)
            case ast.Name(id=name):
                return names[name] if name in names else _Literal(None if name == "ones" else _NUMBERS[name])
            case ast.UnaryOp(op=op, operand=operand):
                inner = self.value(operand, names)
                if isinstance(inner, _Literal):
                    assert inner.value is not None
                    return _Literal(-inner.value)
                return self.step(_OPERATORS[type(op)], inner)
            case ast.BinOp(op=binary, left=left, right=right):
                return self.step(_OPERATORS[type(binary)], self.value(left, names), self.value(right, names))
            case ast.Compare(ops=[comparison], left=left, comparators=[right]):
                return self.step(_OPERATORS[type(comparison)], self.value(left, names), self.value(right, names))
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, args, names)
        raise AssertionError(ast.dump(node))

    def call(self, name: str, args: list[ast.expr], names: dict[str, int | _Literal]) -> int | _Literal:
        if name in ("cast", "bitcast"):
            assert isinstance(args[1], ast.Name)
            return self.step(name, self.value(args[0], names), dtype=DTYPES_BY_NAME[args[1].id])
        values = [self.value(a, names) for a in args]
        if name in DTYPES_BY_NAME:
            return self.number(values[0], DTYPES_BY_NAME[name])
        if name == "poly":
            x, *coefficients = values
            total = coefficients.pop()
            while coefficients:
                total = self.step("add", self.step("mul", total, x), coefficients.pop())
            return total
        if name in MACROS:
            formals, program = MACROS[name]
            return self.run(program, dict(zip(formals, values, strict=True)))
        return self.step(name, *values)

    def step(self, op: str, *values: int | _Literal, dtype: torch.dtype | None = None) -> int:
        choices = values[1:] if op == "where" else values
        like = next((self.types[v] for v in choices if isinstance(v, int)), self.default)
        args = tuple(self.number(v, like) for v in values)
        result = dtype or (torch.bool if SCALARS[op].result == "bool" else self.types[args[-1]])
        return self.add(Apply(len(self.types), op, args, result))

    def number(self, value: int | _Literal, dtype: torch.dtype) -> int:
        if isinstance(value, int):
            return value
        literal = value.value
        if literal is None:
            literal = -1 if dtype.is_signed else torch.iinfo(dtype).max
        elif dtype.is_floating_point:
            literal = math.nan if literal != literal else float(literal)
        return self.add(Const(len(self.types), literal, torch.bool if isinstance(literal, bool) else dtype))

    def add(self, step: Step) -> int:
        self.steps.append(step)
        self.types.append(step.dtype)
        return step.result
