"""Packed convolutions compute what the operators compute, with NaN and infinities at the same elements."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel import aten_externs
from keel.torch_adapter import pack_convolution, packed_convolution, packs_dtype

FORM = aten_externs("cpu")["aten.convolution.default"].packed
assert FORM is not None
DTYPES = [d for d in (torch.float32, torch.bfloat16) if packs_dtype(d)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize(("then", "adds"), [(None, False), (None, True), *((name, False) for name in FORM.facts.then)])
def test_results_are_the_operators_own(dtype: torch.dtype, groups: int, then: str | None, adds: bool) -> None:
    draw = torch.Generator().manual_seed(groups)
    x = torch.randn(2, 8, 9, 7, generator=draw)
    x[0, :, 2, 2], x[0, :, 4, 4], x[1, :, 2, 2] = torch.nan, torch.inf, -torch.inf
    x = x.to(dtype).to(memory_format=torch.channels_last)
    weight, bias = (torch.rand(*s, generator=draw).to(dtype) for s in ((8, 8 // groups, 3, 3), (8,)))
    rest: tuple[Any, ...] = ([2, 1], [1, 1], [1, 1], False, [0, 0], groups)
    expected = torch.ops.aten.convolution.default(x, weight, bias, *rest)
    other = torch.randn(*expected.shape, generator=draw).to(dtype) if adds else None
    expected = expected.double() if other is None else expected.double() + other.double()
    name = None
    if then is not None:
        name = FORM.facts.then[then]
        expected = getattr(torch.ops.aten, then.split(".")[1]).default(expected)
    packed = pack_convolution(weight, x.shape, rest)
    result = packed_convolution(x, packed, bias, rest, other, name)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    smaller = packed_convolution(x[:1], packed, bias, rest, None if other is None else other[:1], name)
    torch.testing.assert_close(smaller.double(), expected[:1], rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_onednn_can_be_switched_off() -> None:
    assert not packs_dtype(torch.float64)
    with torch.backends.mkldnn.flags(enabled=False):
        assert not packs_dtype(torch.float32)
