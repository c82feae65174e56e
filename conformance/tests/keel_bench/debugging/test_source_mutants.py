"""Mutants of source change one thing on the lines that are asked for, and leave the rest."""

from __future__ import annotations

import ast

import pytest

from keel_bench.debugging.source_mutants import mutated, source_mutants

TEXT = """def f(a, b):
    if a < b and b:
        return g(a, b) + 1
    return (a - 2) * (b)
"""


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        (2, {"if a <= b and b:", "if a < b or b:", "if False:"}),
        (3, {"return g(b, a) + 1", "return g(a, b) - 1", "return g(a, b) + 2"}),
        (4, {"return (a + 2) * (b)", "return (a - 3) * (b)", "return (a - 2) + (b)"}),
        (1, set()),
    ],
)
def test_each_line_has_its_mutants(line: int, changed: set[str]) -> None:
    texts = [mutated(TEXT, m) for m in source_mutants(TEXT, {line})]
    assert {text.splitlines()[line - 1].strip() for text in texts} == changed
    for text in texts:
        ast.parse(text)


def test_they_are_in_the_order_of_the_file() -> None:
    lines = [m.line for m in source_mutants(TEXT, {2, 3, 4})]
    assert lines == sorted(lines) and len(lines) == 9
