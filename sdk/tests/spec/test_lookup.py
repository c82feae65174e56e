"""Members found by what people type."""

from __future__ import annotations

import pytest

from keel import KeelError
from keel.spec import MEMBERS
from keel.spec.lookup import families, find


@pytest.mark.parametrize("name", ["exp", "aten.exp", "aten.exp.default", "aten::exp", "torch.ops.aten.exp.default"])
def test_one_member_by_many_names(name: str) -> None:
    assert [op.name for op in find(name)] == ["exp"]


@pytest.mark.slow
def test_an_operator_may_belong_to_several_members() -> None:
    packets = {o.rpartition(".")[0] for op in MEMBERS.values() for o in op.overloads}
    assert all(find(p) for p in packets)


@pytest.mark.parametrize(
    ("name", "near"),
    [("layer_nrom", "layer_norm"), ("aten.expp", "aten.exp"), ("aten.exp.defautl", "aten.exp.default")],
)
def test_near_misses(name: str, near: str) -> None:
    with pytest.raises(KeelError, match=rf"no operator '{name}'.\nDid you mean .*{near}"):
        find(name)


def test_far_misses() -> None:
    with pytest.raises(KeelError, match="keel ops lists the families"):
        find("qqqqqqqq")


def test_families_are_counted() -> None:
    counted = families()
    assert sum(c.primitive + c.composite + c.opaque for c in counted) == len(MEMBERS)
    assert [c.family for c in counted] == sorted({op.family for op in MEMBERS.values()})
    assert sum(c.clauses for c in counted) == sum(len(op.clauses) for op in MEMBERS.values())
