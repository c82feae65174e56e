"""Jagged rows and padded ones are each other's, and compile as jagged nested tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.closure import Ending, dynamo_backend, ending
from keel.spec import decomposition_of

from .decomposed import traces

aten = torch.ops.aten
PAD, CUT = aten._jagged_to_padded_dense_forward.default, aten._padded_dense_to_jagged_forward.default
LENGTHS = ([2, 0, 3], [1, 1], [0, 0], [4])


def offsets(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("most", [2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_padding_is_eagers(lengths: list[int], most: int, dtype: torch.dtype) -> None:
    values = torch.arange(3 * sum(lengths)).view(-1, 3).to(dtype)
    want, got = (op(values, [offsets(lengths)], [most], 7.0) for op in (PAD, decomposition_of(PAD)))
    assert torch.equal(want, got)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64, torch.bool, torch.float16], ids=str)
@pytest.mark.parametrize("padding", [-1.0, 1.7, 300.0])
def test_padding_that_the_dtype_has_not_is_converted(dtype: torch.dtype, padding: float) -> None:
    values = torch.arange(5).view(5, 1).to(dtype)
    want, got = (op(values, [offsets([2, 0, 3])], [4], padding) for op in (PAD, decomposition_of(PAD)))
    assert torch.equal(want, got)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_cutting_is_eagers(lengths: list[int]) -> None:
    dense = torch.randn(len(lengths), 5, 3)
    for total in ([sum(lengths)], []):
        want, got = (op(dense, [offsets(lengths)], *total) for op in (CUT, decomposition_of(CUT)))
        assert torch.equal(want, got)


def test_both_are_traced_with_symbolic_sizes() -> None:
    traces(PAD, torch.randn(5, 3), [offsets([2, 0, 3])], [4], 0.5)
    traces(CUT, torch.randn(3, 4, 2), [offsets([2, 0, 3])], 5)


def test_two_levels_of_offsets_are_not_written_out() -> None:
    assert decomposition_of(PAD)(torch.randn(5, 3), [offsets([2, 3])] * 2, [3, 3]) is NotImplemented


def test_a_jagged_nested_tensor_compiles() -> None:
    ends: list[Ending] = []

    def watch(captured: Any) -> Ending:
        ends.append(ending(captured))
        return ends[-1]

    def program(n: torch.Tensor) -> torch.Tensor:
        return torch.nested.to_padded_tensor((n * 2).sin(), 0.0)

    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    torch.compiler.reset()
    got = torch.compile(program, backend=dynamo_backend(watch))(nested)
    torch.testing.assert_close(got, program(nested))
    assert ends and not any(end.outside for end in ends)
