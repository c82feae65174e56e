"""Backends with a defect are made again by name, and the same without it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel import Backend
from keel_bench.debugging import planted
from keel_bench.debugging.wrong_calls import CHANGES, KINDS, first_tensor, scaled

X = torch.tensor([[1.0, -2.0], [3.0, 4.0]])


def backend(path: str) -> Backend:
    value: Any = planted
    for name in path.split("."):
        value = getattr(value, name)
    assert isinstance(value, Backend)
    return value


def result_of(made: Backend, call: Any) -> torch.Tensor:
    run = torch.compile(call, backend="keel", options={"backends": [made, "eager"], "strict": True}, dynamic=False)
    torch.compiler.reset()
    result = run(X)
    assert isinstance(result, torch.Tensor)
    return result


@pytest.mark.parametrize(("where", "factor"), [("any", 1.03), ("rank2", 1.03), ("rank3", 1.0)])
def test_a_plugin_is_wrong_in_its_place_alone(where: str, factor: float) -> None:
    made = backend(f"plugin.scaled.{where}.aten.mul.Tensor")
    torch.testing.assert_close(result_of(made, lambda x: x * 2 + 1), factor * 2 * X + 1)


def test_a_library_call_is_wrong_with_and_without_a_result_to_fill() -> None:
    target = backend("extern.scaled.any.aten.mm.default").target
    assert target is not None
    extern, out = target.externs["aten.mm.default"], torch.empty(2, 2)
    torch.testing.assert_close(extern.run(X, X), 1.03 * X @ X)
    assert extern.out is not None
    torch.testing.assert_close(extern.out(X, X, out=out), 1.03 * X @ X)


@pytest.mark.parametrize("stage", ["rendering", "compiler"])
def test_kernels_are_wrong(stage: str) -> None:
    wrong, right = (backend(f"{prefix}{stage}.moved.exp").target for prefix in ("", planted.RIGHT))
    assert wrong is not None and right is not None and wrong.render is not right.render


def test_without_the_defect_all_is_right() -> None:
    made = backend(f"{planted.RIGHT}plugin.aborting.any.aten.mul.Tensor")
    torch.testing.assert_close(result_of(made, lambda x: x * 2), 2 * X)
    with pytest.raises(AttributeError):
        planted.nothing  # noqa: B018


def test_each_change_has_a_kind() -> None:
    assert KINDS.keys() == CHANGES.keys()


def test_changes_of_several_results_change_the_first() -> None:
    change = first_tensor(scaled)
    first, second = change((X, X))
    torch.testing.assert_close(first, 1.03 * X)
    assert second is X and change(torch.ones(2, dtype=torch.int64)).tolist() == [1, 1]


def test_not_a_number_is_one_element() -> None:
    assert CHANGES["not_a_number"](X).isnan().sum() == 1
    assert CHANGES["cut_short"](X).tolist() == [[1.0, 0.0], [3.0, 0.0]]
