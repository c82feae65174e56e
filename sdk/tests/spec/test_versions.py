"""Versions in order, and saved graphs taken up and down between two that differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from keel import KeelError
from keel.spec.versions import CURRENT, STEPS, Data, Step, Version, convert, overloads_of, version

V1, V2, V3 = Version(1, 0), Version(1, 1), Version(2, 0)
MEMBERS = {
    V1: {"aten.addcmul.default", "aten.old.default"},
    V2: {"aten.addcmul.default", "aten.old.default", "aten.young.default"},
    V3: {"aten.mul.Tensor", "aten.add.Tensor", "aten.young.default"},
}


def members(v: Version) -> frozenset[str]:
    return frozenset(MEMBERS[v])


def in_two(node: Data, fresh: Callable[[str], str]) -> list[Data]:
    """addcmul is a product and a sum from 2.0 on."""
    args, name = node["args"], fresh("product")
    product = {
        "name": name,
        "op": "aten.mul.Tensor",
        "args": {"self": args["tensor1"], "other": args["tensor2"]},
        "default": [],
        "out": node["out"],
    }
    return [product, {**node, "op": "aten.add.Tensor", "args": {"self": args["self"], "other": {"node": name}}}]


def renamed(op: str) -> Callable[[Data, Any], list[Data]]:
    return lambda node, fresh: [{**node, "op": op}]


def refused(node: Data, fresh: Callable[[str], str]) -> list[Data]:
    raise ValueError("1.1 has no sum apart from a product.")


SAMPLE = (
    Step(V1, V2),
    Step(
        V2,
        V3,
        up={"aten.addcmul.default": in_two, "aten.old.default": renamed("aten.young.default")},
        down={"aten.add.Tensor": refused},
    ),
)


def program(opset: Version, *ops: str, inner: Data | None = None) -> Data:
    nodes = [
        {
            "name": f"n{i}",
            "op": op,
            "default": [],
            "out": None,
            "args": {k: {"node": k} for k in ("self", "tensor1", "tensor2")},
        }
        for i, op in enumerate(ops)
    ]
    graph = {
        "inputs": [{"name": n} for n in ("self", "tensor1", "tensor2")],
        "constants": [],
        "nodes": nodes,
        "results": [],
        "writes": [],
        "graphs": {} if inner is None else {"body": inner["graph"]},
    }
    return {"opset": str(opset), "graph": graph}


def ops(data: Data) -> list[str]:
    return [n["op"] for n in data["graph"]["nodes"]]


def test_texts_and_order() -> None:
    assert str(version("1.0")) == "1.0" and str(version("2.3.4")) == "2.3.4" and str(version("2.3.0")) == "2.3"
    assert version("1.9") < version("1.10") < version("1.10.1") < version("2.0")
    assert [str(V1.after(c)) for c in ("major", "minor", "patch")] == ["2.0", "1.1", "1.0.1"]  # type: ignore[arg-type]
    for wrong in ("1", "1.x", "", "1.0.0.0", "-1.0"):
        with pytest.raises(KeelError, match="not a version of the opset"):
            version(wrong)


def test_up_over_two_steps() -> None:
    found = convert(program(V1, "aten.addcmul.default", "aten.old.default"), V3, members, SAMPLE)
    assert ops(found) == ["aten.mul.Tensor", "aten.add.Tensor", "aten.young.default"] and found["opset"] == "2.0"
    product, total, _ = found["graph"]["nodes"]
    assert total["name"] == "n0" and total["args"]["other"] == {"node": product["name"]}


def test_up_in_inner_graphs() -> None:
    found = convert(program(V2, "aten.old.default", inner=program(V2, "aten.old.default")), V3, members, SAMPLE)
    assert overloads_of(found["graph"]) == {"aten.young.default"}


def test_fresh_names_are_fresh() -> None:
    start = program(V2, "aten.addcmul.default", "aten.addcmul.default")
    start["graph"]["inputs"].append({"name": "product_0"})
    found = convert(start, V3, members, SAMPLE)
    names = [n["name"] for part in ("inputs", "nodes") for n in found["graph"][part]]
    assert len(set(names)) == len(names)


def test_down_where_that_is_possible() -> None:
    assert ops(convert(program(V2, "aten.old.default"), V1, members, SAMPLE)) == ["aten.old.default"]
    assert convert(program(V2), version("1.0.3"), members, SAMPLE)["opset"] == "1.0.3"


def test_down_refused_because_there_is_no_such_member() -> None:
    with pytest.raises(
        KeelError, match=r"no form in opset 1.0.\n  aten.young.default: It is not a member of opset 1.0."
    ):
        convert(program(V2, "aten.young.default"), V1, members, SAMPLE)


def test_down_refused_with_a_sentence() -> None:
    with pytest.raises(KeelError, match=r"%n0 = aten.add.Tensor: 1.1 has no sum apart from a product."):
        convert(program(V3, "aten.add.Tensor"), V1, members, SAMPLE)


@pytest.mark.parametrize(("source", "target"), [("1.0", "3.0"), ("2.1", "1.0"), ("0.9", "1.0"), ("1.0", "1.2")])
def test_versions_that_nothing_joins(source: str, target: str) -> None:
    with pytest.raises(KeelError, match=rf"\[opset-version\].*opset {source} to {target}.*\n.*1.0, 1.1, 2.0"):
        convert(program(version(source)), version(target), members, SAMPLE)


def test_the_steps_lead_from_the_first_version_to_this_one() -> None:
    assert [s.newer for s in STEPS[:-1]] == [s.older for s in STEPS[1:]]
    assert (STEPS[0].older, STEPS[-1].newer) == (Version(1, 0), CURRENT) if STEPS else Version(1, 0) == CURRENT
