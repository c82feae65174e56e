"""What depends on data: composites over nonzero and sort give eager's values; rules say that a size is unknown."""

from __future__ import annotations

import pytest
import torch

from keel.spec import MEMBERS, Op, decomposition_of
from keel.spec.rules_shape import unknown
from keel.types import SymType, TensorType

from .decomposed import holds, traces

aten = torch.ops.aten
X = torch.tensor([[3.0, 1.0, 3.0], [0.0, 1.0, 7.0]])
ROWS = torch.tensor([[1, 2], [0, 3], [1, 2], [1, 2], [0, 1]])


def test_masked_select() -> None:
    holds(aten.masked_select.default, X, X > 1)
    holds(aten.masked_select.default, X, torch.tensor([True, False, True]))
    holds(aten.masked_select.default, X, X > 99)
    holds(aten.masked_select.default, torch.tensor(3.0), torch.tensor(True))


@pytest.mark.slow
@pytest.mark.parametrize(("inverse", "counts"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    "x",
    [X, X.long(), torch.tensor([float("nan"), 1.0, float("nan")]), torch.zeros(0, 3), torch.tensor(2.0), torch.ones(4)],
    ids=str,
)
def test_unique(x: torch.Tensor, inverse: bool, counts: bool) -> None:
    holds(aten._unique2.default, x, True, inverse, counts)
    holds(aten.unique_consecutive.default, x, inverse, counts)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_unique_slices(dim: int) -> None:
    for op in (aten.unique_dim.default, aten.unique_dim_consecutive.default):
        want, got = op(ROWS, dim), decomposition_of(op)(ROWS, dim)
        for w, g in zip(want, got, strict=True):
            assert torch.equal(w, g)
    holds(aten.unique_consecutive.default, ROWS, True, True, dim)


def test_repeat_interleave_and_bincount() -> None:
    holds(aten.repeat_interleave.Tensor, torch.tensor([2, 0, 3]))
    holds(aten.repeat_interleave.Tensor, torch.tensor([2, 0, 3], dtype=torch.int32), output_size=5)
    holds(aten.repeat_interleave.Tensor, torch.tensor([0, 0]))
    for weights in (None, torch.rand(5), torch.rand(5).double(), torch.arange(5)):
        holds(aten.bincount.default, torch.tensor([1, 4, 1, 0, 1]), weights, 7)
        holds(aten.bincount.default, torch.tensor([1, 4, 1, 0, 1], dtype=torch.uint8), weights)
    holds(aten.bincount.default, torch.zeros(0, dtype=torch.int64), None, 3)


def test_rules_say_that_a_size_is_unknown() -> None:
    given = {"self": TensorType.dense(torch.float32, (3, 4))}
    (found,) = MEMBERS["nonzero"].types(given)
    assert isinstance(found, TensorType)
    assert found.shape == (unknown(), 2) and found.strides == (1, unknown())
    assert MEMBERS["nonzero"].types({"self": TensorType.dense(torch.float32, (0, 4))})[0].shape == (0, 2)  # type: ignore[union-attr]
    assert MEMBERS["item"].types({"self": TensorType.dense(torch.float32, ())}) == (SymType(unknown(), "float"),)


def test_symbolic_sizes_stay_symbolic() -> None:
    traces(aten.masked_select.default, torch.arange(24.0).reshape(4, 6), torch.arange(6) > 2)


@pytest.mark.parametrize("op", [op for op in MEMBERS.values() if op.sized_by], ids=lambda op: op.name)
def test_what_is_sized_by_data_has_pytorch_s_tag_for_it(op: Op) -> None:
    assert torch.Tag.dynamic_output_shape in op.targets[0].tags  # type: ignore[attr-defined]
