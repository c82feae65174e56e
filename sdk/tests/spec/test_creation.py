"""Creation: eager keeps the budgets, and the decompositions what eager gives."""
from __future__ import annotations

import pytest

from keel.spec import MEMBERS
from keel.spec.ops.creation import family

from .pointwise import closed, faithful, within_budget

COMPOSITES = [name for name, op in family.members.items() if op.kind == "composite"]
PRIMITIVES = [name for name, op in family.members.items() if op.kind == "primitive" and name != "empty"]


@pytest.mark.parametrize("name", PRIMITIVES)
def test_eager_is_within_the_budget(name: str) -> None:
    within_budget(MEMBERS[name])


@pytest.mark.parametrize("name", COMPOSITES)
def test_decompositions(name: str) -> None:
    faithful(MEMBERS[name])


@pytest.mark.parametrize("name", COMPOSITES)
def test_decompositions_end_in_primitives(name: str) -> None:
    closed(MEMBERS[name])
