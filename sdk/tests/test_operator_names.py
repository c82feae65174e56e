"""Facts about an operator stand in its declaration: how often other code speaks of operators by name, as a ceiling that
only falls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from keel.spec import MEMBERS

from .source_files import ROOT, walk

TABLES, COMPARISONS = 9, 2
"""How many there are. A change that takes some away lowers the ceiling with them."""

DECLARATIONS = "sdk/keel/spec/ops"
OTHER_WORDS = {
    "sdk/keel/loops": "scalar ops and monoids of the loop IR, which are not operators",
    "sdk/keel/schedule": "the same",
    "reference_backends/keel_cpp": "the same",
    "reference_backends/keel_interp": "the same",
    "reference_backends/keel_triton": "the same",
    "reference_backends/keel_opencl": "the same",
    "reference_backends/keel_onnxruntime": "the support table of a plugin, which says how it translates each operator",
    "reference_backends/keel_pjrt": "the same",
    "conformance/keel_conformance/kernels": "the loop IR, as above",
    "conformance/keel_selftest": "a mutant is a fault of the operators that it names",
}
"""Rooms that are not counted, and why: their names are not of operators, or are what the room is about."""
FEWEST = 3
"""Names that make a table: a pair is a choice between two."""


@cache
def operator_names() -> frozenset[str]:
    """What members and overloads are called: ``sum``, ``sum.dim_IntList``, ``aten.sum.dim_IntList``."""
    full = {overload for op in MEMBERS.values() for overload in op.overloads}
    short = {name.partition(".")[2] for name in full}
    return frozenset({*MEMBERS, *full, *short, *(name.partition(".")[0] for name in short)})


def names_operator(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in operator_names()


def is_table(node: ast.AST) -> bool:
    """True of a literal most of whose keys or elements are names of operators; one that is compared with counts as a
    comparison.
    """
    match node:
        case ast.Dict(keys=entries):
            pass
        case ast.Set(elts=entries) | ast.List(elts=entries) | ast.Tuple(elts=entries):
            pass
        case _:
            return False
    named = sum(map(names_operator, entries))
    return named >= FEWEST and 2 * named > len(entries)


def speaks_of_operator(node: ast.AST) -> bool:
    """True of an expression whose value is a name, by what it is called: ``name``, ``call.member.name``,
    ``str(node.target)``.
    """
    match node:
        case ast.Name(id="name" | "member") | ast.Attribute(attr="name" | "op"):
            return True
        case ast.Call(func=ast.Name(id="str")):
            return True
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr="split"))):
            return True
    return False


def compared(node: ast.AST) -> Iterator[ast.AST]:
    """The literals that ``node`` compares the name of an operator with."""
    match node:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
            if speaks_of_operator(left) or speaks_of_operator(right):
                yield from (left, right)
        case ast.Compare(
            left=left, ops=[ast.In() | ast.NotIn()], comparators=[(ast.Tuple() | ast.Set() | ast.List()) as literal]
        ):
            if speaks_of_operator(left):
                yield from literal.elts
        case ast.Match(subject=subject, cases=cases) if speaks_of_operator(subject):
            yield from (p.value for c in cases for p in ast.walk(c.pattern) if isinstance(p, ast.MatchValue))


def count(tree: ast.AST) -> tuple[list[int], list[int]]:
    """The lines of the tables and of the comparisons in a file. A ``match`` counts once for each name."""
    tables, comparisons = list[int](), list[int]()
    literals = set[int]()
    for node in walk(tree):
        if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["__all__"]:
            literals.add(id(node.value))  # what a module exports
        lines = [literal.lineno for literal in compared(node) if names_operator(literal)]  # type: ignore[attr-defined]
        if isinstance(node, ast.Compare):
            lines = lines[:1]
            literals.update(map(id, node.comparators))
        comparisons += lines
        if id(node) not in literals and is_table(node):
            tables.append(node.lineno)  # type: ignore[attr-defined]
    return sorted(tables), sorted(comparisons)


def counted() -> Iterator[Path]:
    """Every source outside the declarations, tests, scaffolds and the rooms of OTHER_WORDS."""
    excluded = [ROOT / folder for folder in (DECLARATIONS, *OTHER_WORDS)]
    for root in ("sdk/keel", "reference_backends", "conformance", "templates"):
        for path in sorted((ROOT / root).rglob("*.py")):
            if not {"tests", "scaffold"} & set(path.parts) and not any(folder in path.parents for folder in excluded):
                yield path


def test_operators_are_named_in_their_declarations(capsys: pytest.CaptureFixture[str]) -> None:
    tables, comparisons = list[str](), list[str]()
    for path in counted():
        for places, lines in zip((tables, comparisons), count(ast.parse(path.read_text())), strict=True):
            places += [f"{path.relative_to(ROOT)}:{line}" for line in lines]
    report = "\n".join([f"{len(tables)} tables:", *tables, f"{len(comparisons)} comparisons:", *comparisons])
    print(report)
    for what, now, ceiling in (("tables", len(tables), TABLES), ("comparisons", len(comparisons), COMPARISONS)):
        assert now <= ceiling, f"{now} {what} of operators' names, of {ceiling}: state the fact in Op.\n{report}"
        assert now == ceiling, f"Lower {what.upper()} to {now}, so that it stays there."


def test_what_is_left_out_is_there() -> None:
    missing = [folder for folder in (DECLARATIONS, *OTHER_WORDS) if not (ROOT / folder).is_dir()]
    assert not missing


@pytest.mark.parametrize(
    ("source", "tables", "comparisons"),
    [
        ("T = {'sin': 1, 'cos': 2, 'tan': 3}", [1], []),
        ("T = frozenset({'sin', 'cos', 'tan', *MORE})", [1], []),
        ("T = ('aten.sum.dim_IntList', 'aten.mm.default', 'aten.bmm.default')", [1], []),
        ("T = {'sin', 'cos'}", [], []),
        ("__all__ = ['sin', 'cos', 'tan']", [], []),
        ("T = {'sin', 'cos', 'tan', 'red', 'green', 'blue'}", [], []),
        ("if op.name == 'sin':\n    pass", [], [1]),
        ("x = name in ('sin', 'cos', 'tan')", [], [1]),
        ("x = str(node.target) != 'aten.sum.dim_IntList'", [], [1]),
        ("match member.name:\n    case 'sin' | 'cos':\n        pass\n    case 'tan':\n        pass", [], [2, 2, 4]),
        ("x = mode == 'sum'", [], []),
    ],
)
def test_what_counts(source: str, tables: list[int], comparisons: list[int]) -> None:
    assert count(ast.parse(source)) == (tables, comparisons)
