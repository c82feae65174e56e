"""What PyTorch's kernels lack is refused in a sentence, or corrected."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel import Refusal, aten_externs
from keel.extern_limits import in_float32, without_padding, without_strided_pixels
from keel.opset import MEMBERS
from keel.spec.pytorch_kernels import AS_SPECIFIED
from keel.types import Call, TensorType

aten = torch.ops.aten
CUDA = aten_externs("cuda")


def product(dtype: torch.dtype, rows: int = 17, shared: int = 8, columns: int = 16, op: str = "mm") -> Refusal | None:
    def of(*shape: int) -> TensorType:
        return TensorType.dense(dtype, shape, "cuda")

    name = f"aten.{op}.default"
    refuse = CUDA[name].refuse
    assert refuse is not None
    found = refuse(Call(getattr(aten, op).default, (of(rows, shared), of(shared, columns)), {}, (of(rows, columns),)))
    assert found is None or isinstance(found, Refusal)
    return found


def test_every_difference_is_of_an_extern() -> None:
    """A difference of a kernel that is never called could be wrong and nobody would see it."""
    assert all(CUDA.keys() & set(op.overloads) for op in MEMBERS.values() if op.cuda != AS_SPECIFIED)
    assert all(aten_externs("cpu")[name].refuse is None for name in ("aten.mm.default", "aten.mode.default"))


@pytest.mark.parametrize(("dtype", "refused"), [(torch.float32, False), (torch.complex64, False), (torch.int32, True)])
def test_products_of_integers_are_refused(dtype: torch.dtype, refused: bool) -> None:
    found = product(dtype)
    assert (found is not None) == refused
    assert found is None or str(found) == "PyTorch's CUDA kernel has no torch.int32."


@pytest.mark.parametrize(
    ("sizes", "refused"),
    [((17, 8, 16), False), ((16, 8, 16), True), ((17, 7, 16), True), ((17, 8, 12), True), ((17, 0, 16), True)],
)
def test_bytes_are_multiplied_at_some_sizes(sizes: tuple[int, int, int], refused: bool) -> None:
    assert (product(torch.int8, *sizes, op="_int_mm") is not None) == refused


@pytest.mark.parametrize(("shape", "k", "refused"), [((), 0, True), ((), 1, False), ((3,), 0, False)])
def test_no_element_of_a_scalar_is_refused(shape: tuple[int, ...], k: int, refused: bool) -> None:
    refuse, x = CUDA["aten.topk.default"].refuse, TensorType.dense(torch.float32, shape, "cuda")
    assert refuse is not None
    out = tuple(TensorType.dense(d, shape and (k,), "cuda") for d in (torch.float32, torch.int64))
    assert (refuse(Call(aten.topk.default, (x, k), {}, out)) is not None) == refused


@pytest.mark.parametrize("op", [aten.scatter_reduce.two, aten.index_reduce.default, aten.scatter.reduce])
def test_reductions_of_complex_numbers_by_indices_are_refused(op: object) -> None:
    refuse = CUDA[str(op)].refuse
    assert refuse is not None
    for dtype, refused in ((torch.complex64, True), (torch.float32, False)):
        x = TensorType.dense(dtype, (4,), "cuda")
        at = TensorType.dense(torch.int64, (4,), "cuda")
        assert (refuse(Call(op, (x, 0, at, x, "prod"), {}, (x,))) is not None) == refused


def scaled(a: torch.dtype, b: torch.dtype, bias: bool, out: torch.dtype) -> Refusal | None:
    def of(dtype: torch.dtype, *shape: int) -> TensorType:
        return TensorType.dense(dtype, shape, "cuda")

    one = of(torch.float32)
    refuse = CUDA["aten._scaled_mm.default"].refuse
    args = (of(a, 16, 32), of(b, 32, 16), one, one, of(out, 16) if bias else None, None, out)
    assert refuse is not None
    found = refuse(Call(aten._scaled_mm.default, args, {}, (of(out, 16, 16),)))
    assert found is None or isinstance(found, Refusal)
    return found


E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.mark.parametrize(
    ("a", "b", "bias", "out", "refused"),
    [
        (E4, E4, False, torch.float32, False),
        (E4, E5, False, torch.float32, False),
        (E5, E5, False, torch.bfloat16, True),
        (E4, E4, True, torch.bfloat16, False),
        (E4, E4, True, torch.float32, True),
    ],
)
def test_products_of_float8(a: torch.dtype, b: torch.dtype, bias: bool, out: torch.dtype, refused: bool) -> None:
    assert (scaled(a, b, bias, out) is not None) == refused


def test_rows_that_bags_leave_out_have_no_weight() -> None:
    rows, places, bags = torch.ones(3, 2), torch.tensor([0, 2, 1, 2]), torch.tensor([0, 2])
    weights = torch.tensor([2.0, torch.nan, 3.0, torch.inf])
    given: list[torch.Tensor] = []

    def run(*args: object) -> object:
        given.append(args[6])  # type: ignore[arg-type]
        return aten._embedding_bag.default(*args)

    settled = without_padding(run)
    out = settled(rows, places, bags, False, 0, False, weights, False, 2)[0]
    assert torch.equal(out, torch.tensor([[2.0, 2.0], [3.0, 3.0]])) and bool(given[0].isfinite().all())
    settled(rows, places, bags, False, 0, False, weights)
    settled(rows, places, bags, padding_idx=2)
    assert given[1] is weights and given[2] is None


def test_halves_are_summed_in_float32_and_rounded_once() -> None:
    x = torch.rand(5000, generator=torch.Generator().manual_seed(0)).bfloat16()
    naive, rounded = torch.zeros((), dtype=torch.bfloat16), in_float32(aten.cumsum.default)
    for v in x:
        naive += v
    want = x.double().sum()
    assert abs(naive - want) > 100
    assert rounded(x, 0).dtype == torch.bfloat16 and abs(rounded(x, 0)[-1] - want) < 8


@pytest.mark.parametrize(
    ("dtype", "asked"),
    [(torch.float32, None), (torch.bfloat16, torch.float64), (torch.int32, torch.float16), (torch.int32, None)],
)
def test_dtypes_are_those_of_the_kernel(dtype: torch.dtype, asked: torch.dtype | None) -> None:
    x = torch.arange(6).to(dtype)
    keywords = {} if asked is None else {"dtype": asked}
    want, found = aten.cumsum.default(x, 0, **keywords), in_float32(aten.cumsum.default)(x, 0, **keywords)
    assert found.dtype == want.dtype and torch.equal(found, want)


def test_indices_stay_integers() -> None:
    x = torch.randn(1, 2, 4, 4).bfloat16()
    out, at = aten.adaptive_max_pool2d.default(x, [2, 2])
    run = in_float32(aten.adaptive_max_pool2d_backward.default)
    assert torch.equal(run(out, x, at), aten.adaptive_max_pool2d_backward.default(out, x, at))


@pytest.mark.parametrize("mask", [[True, True, True], [False, True, False], [True, False, True], [False, True, True]])
@pytest.mark.parametrize("stride", [[2, 2], [1, 3], [2], [1, 1]])
@pytest.mark.parametrize(("channels", "groups"), [(3, 1), (6, 2), (32, 1)])
def test_weights_of_one_pixel_and_few_channels_meet_no_stride(
    channels: int, groups: int, stride: list[int], mask: list[bool]
) -> None:
    strided = []

    def run(*args: Any) -> Any:
        if any(args[-1][1:]) and args[2].shape[1] < 16:
            strided.append(any(n > 1 for n in args[4]))
        return aten.convolution_backward.default(*args)

    x = torch.randn(2, channels, 7, 8).to(memory_format=torch.channels_last)
    weight = torch.randn(4, channels // groups, 1, 1)
    rest = ([0, 0], [1, 1], False, [0, 0], groups)
    grad = torch.randn_like(aten.convolution.default(x, weight, None, stride, *rest))
    got = without_strided_pixels(run, 16)(grad, x, weight, [4], stride, *rest, mask)
    want = aten.convolution_backward.default(
        grad.contiguous(), x.contiguous(), weight, [4], stride, *rest, [True, True, True]
    )
    assert not any(strided) and len(strided) == (channels < 32)
    for a, b, wanted in zip(got, want, mask, strict=True):
        if wanted:
            torch.testing.assert_close(a, b)


def test_gradients_of_convolutions_are_corrected_on_a_cpu() -> None:
    assert aten_externs("cpu")["aten.convolution_backward.default"].run is not aten.convolution_backward.default
    assert CUDA["aten.convolution_backward.default"].run is aten.convolution_backward.default
