"""Reductions by indices in any order, products in complex numbers, and what eager PyTorch has on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_helpers import verdict
from torch import Tensor

from keel_conformance.cases.case import Case, Inputs
from keel_conformance.oracles.judge import judge

aten = torch.ops.aten
INF = float("inf")


def folded(x: Tensor, index: Tensor, src: Tensor, how: str, own: bool) -> Tensor:
    """scatter_reduce along one dimension by one element after another, as atomic operations would."""
    found, seen = x.clone(), [own] * len(x)
    for i, value in zip(index.tolist(), src, strict=True):
        found[i] = value if not seen[i] else found[i] * value if how == "prod" else found[i] + value
        seen[i] = True
    if how == "mean":
        found /= torch.ones_like(x).scatter_reduce(0, index, torch.ones_like(src), "sum", include_self=own)
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["sum", "mean", "prod"]),
    st.booleans(),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    st.sampled_from([1e-30, 1.0, 1e30]),
)
def test_every_order_of_a_reduction_by_indices_is_within_the_bound(
    seed: int, how: str, own: bool, dtype: torch.dtype, scale: float
) -> None:
    draw = torch.Generator().manual_seed(seed)
    index, order = torch.randint(0, 4, (30,), generator=draw), torch.randperm(30, generator=draw)
    x, src = ((torch.randn(n, generator=draw) * scale).to(dtype) for n in (4, 30))
    got = folded(x, index[order], src[order], how, own)
    found = verdict("scatter_reduce", "aten.scatter_reduce.two", (x, 0, index, src, how), [got], include_self=own)
    assert found.status in ("pass", "vacuous"), found.sentence
    if how != "prod" and found.status == "pass":
        off = verdict(
            "scatter_reduce", "aten.scatter_reduce.two", (x, 0, index, src, how), [got + 40 * scale], include_self=own
        )
        assert off.status == "fail"


def test_means_by_indices_may_be_flushed_and_sums_may_overflow() -> None:
    x, index = torch.zeros(2), torch.tensor([0, 0, 0, 1])
    name, given = ("index_reduce", "aten.index_reduce.default"), (x, 0, index)
    tiny, huge = torch.tensor([1e-38, 2e-39, 0.0, 1.0]), torch.tensor([3e38, 3e38, -3e38, 1.0])
    assert verdict(*name, (*given, tiny, "mean"), [torch.tensor([0.0, 0.5])]).status == "pass"
    assert verdict(*name, (*given, tiny, "mean"), [torch.tensor([1e-30, 0.5])]).status == "fail"
    for value in (INF, 7.5e37):
        assert verdict(*name, (*given, huge, "mean"), [torch.tensor([value, 0.5])]).status == "pass"


def test_products_that_are_told_to_be_complex_are_judged() -> None:
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    name, given = ("cumprod", "aten.cumprod.default"), (x, 1)
    right = aten.cumprod.default(x, 1, dtype=torch.complex64)
    assert verdict(*name, given, [right], dtype=torch.complex64).oracle == "dot"
    assert verdict(*name, given, [right * 1.001], dtype=torch.complex64).status == "fail"


def test_integers_beside_the_middle_of_two_numbers_may_be_rounded_at_once() -> None:
    """Eager PyTorch rounds to float32 first, which is the middle, and then to even."""
    x, y = torch.tensor([6899514623931450545, 12]), torch.tensor(4.6e27, dtype=torch.bfloat16)
    nearest = torch.tensor([191 * 2.0**55, 12], dtype=torch.bfloat16)
    assert x.to(torch.bfloat16)[0] != nearest[0]
    name = ("atan2", "aten.atan2.default")
    assert verdict(*name, (x, y), [torch.atan2(nearest, y)]).status == "pass"
    assert verdict(*name, (x, y), [torch.atan2(nearest * 0.98, y)]).status == "fail"


def test_what_eager_has_as_wrong_on_the_device_is_a_warning() -> None:
    """A convolution by Fourier transform, for example, has errors of the size of the neighbors of an element."""
    x, w = torch.zeros(1, 1, 8), torch.ones(1, 1, 3)
    x[..., 4:] = 1.0
    inputs = Inputs((x, w, None, [1], [0], [1], False, [0], 1))
    right = aten.convolution.default(*inputs.args)
    case, by_transforms = Case("convolution", "", "op", "core", "aten.convolution.default"), right + 1e-6

    def status(got: Tensor, there: Sequence[Any]) -> str:
        return str(judge(case, inputs, [got], device="cuda", there=there).status)

    assert status(by_transforms, ()) == "fail"
    assert status(by_transforms, (by_transforms,)) == "quality warning"
    assert status(right + 1e-3, (by_transforms,)) == status(by_transforms, (by_transforms.double(),)) == "fail"
