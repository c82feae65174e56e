"""The parts of synchronized batch normalization together are batch normalization."""

from __future__ import annotations

import pytest
import torch

from keel.spec import decomposition_of

aten = torch.ops.aten


def part(op: torch._ops.OpOverload, *args: object) -> object:
    found = decomposition_of(op)
    assert found is not None
    return found(*args)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5)])
def test_the_parts_make_up_the_whole(shape: tuple[int, ...], weighted: bool) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(shape, dtype=torch.float64) + 2, torch.randn(shape, dtype=torch.float64)
    weight, bias = (torch.rand(3, dtype=torch.float64) + 0.5 if weighted else None for _ in range(2))
    out, mean, invstd = aten.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)
    got_mean, got_invstd = part(aten.batch_norm_stats.default, x, 1e-5)
    torch.testing.assert_close((got_mean, got_invstd), (mean, invstd))
    torch.testing.assert_close(part(aten.batch_norm_elemt.default, x, weight, bias, mean, invstd, 1e-5), out)
    want = aten.native_batch_norm_backward(grad, x, weight, None, None, mean, invstd, True, 1e-5, [True] * 3)
    dy, dy_xmu, dweight, dbias = part(
        aten.batch_norm_backward_reduce.default, grad, x, mean, invstd, weight, True, True, True
    )
    torch.testing.assert_close((dweight, dbias), want[1:])
    count = torch.tensor([x.numel() // 3 - 2, 2], dtype=torch.int32)
    dx = part(aten.batch_norm_backward_elemt.default, grad, x, mean, invstd, weight, dy, dy_xmu, count)
    torch.testing.assert_close(dx, want[0])


def test_statistics_of_16_bit_floats_are_float32() -> None:
    x = torch.randn(4, 3).to(torch.bfloat16)
    mean, invstd = part(aten.batch_norm_stats.default, x, 1e-5)
    assert mean.dtype == invstd.dtype == torch.float32
    assert part(aten.batch_norm_elemt.default, x, None, None, mean, invstd, 1e-5).dtype == torch.bfloat16


def test_what_is_not_asked_for_is_none() -> None:
    x = torch.randn(4, 3)
    assert part(aten.batch_norm_backward_reduce.default, x, x, x[0], x[0], None, False, False, False) == (None,) * 4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device; PyTorch has these kernels on CUDA alone")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5)])
def test_the_parts_are_as_near_as_the_kernels(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """With a weight: without one, PyTorch's batch_norm_backward_reduce raises."""
    torch.manual_seed(0)
    x, grad = ((torch.randn(shape) + 2).to("cuda", dtype) for _ in range(2))
    wide = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    weight, bias = ((torch.rand(3) + 0.5).to("cuda", wide) for _ in range(2))
    mean, invstd = aten.batch_norm_stats.default(x, 1e-5)
    sums = aten.batch_norm_backward_reduce.default(grad, x, mean, invstd, weight, True, True, True)[:2]
    count = torch.tensor([x.numel() // 3 - 2, 2], dtype=torch.int32, device="cuda")
    for op, *args in (
        (aten.batch_norm_stats.default, x, 1e-5),
        (aten.batch_norm_elemt.default, x, weight, bias, mean, invstd, 1e-5),
        (aten.batch_norm_backward_reduce.default, grad, x, mean, invstd, weight, True, True, True),
        (aten.batch_norm_backward_elemt.default, grad, x, mean, invstd, weight, *sums, count),
    ):
        exact = part(op, *(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args))
        for got, want, true in zip(*map(listed, (part(op, *args), op(*args), exact)), strict=True):
            assert (got is None) == (want is None), op
            if want is not None:
                assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride()), op
                room = 2 * distance(want, true) + 4 * torch.finfo(want.dtype).eps * true.abs().max()
                assert distance(got, true) <= room, op


def listed(results: object) -> list[torch.Tensor | None]:
    return list(results) if isinstance(results, tuple | list) else [results]


def distance(got: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    return (got.double() - true.double()).abs().max()
