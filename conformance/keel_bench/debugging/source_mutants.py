"""Mutants of source text: one number, operator, comparison or condition of a function is another one."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*"}
COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
}


@dataclass(frozen=True)
class SourceMutant:
    """A change of a file: what stands from one place to another is replaced. Lines count from 1, columns from 0."""

    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def sentence(self) -> str:
        """What is changed, in words."""
        return f"Line {self.line} has {self.new!r} in place of {self.old!r}."


def mutated(text: str, mutant: SourceMutant) -> str:
    """The text of a file with a change."""
    lines = text.splitlines(keepends=True)
    line = lines[mutant.line - 1]
    assert line[mutant.start : mutant.end] == mutant.old
    lines[mutant.line - 1] = line[: mutant.start] + mutant.new + line[mutant.end :]
    return "".join(lines)


def source_mutants(text: str, lines: Collection[int]) -> list[SourceMutant]:
    """The changes of a file that are on some of its lines, in the order of the file."""
    mutants = (m for node in ast.walk(ast.parse(text)) for m in _of_node(text.splitlines(), node))
    return sorted((m for m in mutants if m.line in lines), key=lambda m: (m.line, m.start, m.new))


def _of_node(lines: list[str], node: ast.AST) -> Iterator[SourceMutant]:
    match node:
        case ast.Constant(value=bool() as value):
            yield from _replaced(lines, node, node, str(not value))
        case ast.Constant(value=int() | float() as value):
            yield from _replaced(lines, node, node, repr(value + 1))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            yield from _between(lines, left, right, ARITHMETIC[type(op)])
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            yield from _between(lines, left, right, COMPARISONS[type(op)])
        case ast.BoolOp(op=op, values=[left, right, *_]):
            yield from _between(lines, left, right, "or" if isinstance(op, ast.And) else "and")
        case ast.If(test=test) | ast.IfExp(test=test):
            yield from _replaced(lines, test, test, "False")
        case ast.Call(args=[ast.Name() as first, ast.Name() as second, *_]) if first.id != second.id:
            yield from _replaced(lines, first, second, f"{second.id}, {first.id}")


def _replaced(lines: list[str], first: ast.expr, last: ast.expr, new: str) -> Iterator[SourceMutant]:
    if first.lineno == last.end_lineno and last.end_col_offset is not None and lines[first.lineno - 1].isascii():
        old = lines[first.lineno - 1][first.col_offset : last.end_col_offset]
        if old != new:
            yield SourceMutant(first.lineno, first.col_offset, last.end_col_offset, old, new)


def _between(lines: list[str], left: ast.expr, right: ast.expr, new: str) -> Iterator[SourceMutant]:
    """A change of the operator between two expressions of one line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None or not lines[right.lineno - 1].isascii():
        return
    start, end = left.end_col_offset, right.col_offset
    between = lines[right.lineno - 1][start:end]
    operator = between.strip(" ()")
    if operator:
        start += between.index(operator)
        yield SourceMutant(right.lineno, start, start + len(operator), operator, new)
