"""Families of operators computed element by element: eager keeps the budgets, and decompositions what eager gives."""

from __future__ import annotations

import pytest

from keel.spec import MEMBERS
from keel.spec.op import Kind
from keel.spec.ops import complex_numbers, creation, elementwise_composites, elementwise_ternary

from .pointwise import closed, faithful, within_budget

pytestmark = pytest.mark.slow

FAMILIES = (complex_numbers.family, creation.family, elementwise_composites.family, elementwise_ternary.family)


def named(kind: Kind) -> list[str]:
    return [name for family in FAMILIES for name, op in family.members.items() if op.kind == kind]


@pytest.mark.parametrize("name", [n for n in named("primitive") if n != "empty"])  # whose values are not specified
def test_eager_is_within_the_budget(name: str) -> None:
    within_budget(MEMBERS[name])


@pytest.mark.parametrize("name", named("composite"))
def test_decompositions(name: str) -> None:
    faithful(MEMBERS[name])


@pytest.mark.parametrize("name", named("composite"))
def test_decompositions_end_in_primitives(name: str) -> None:
    closed(MEMBERS[name])
