"""Conversion: eager keeps the clauses, and decompositions of quantization what eager gives."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # which registers quantized_decomposed
from torch.fx.experimental.proxy_tensor import make_fx

from keel.spec import MEMBERS, OPSET, decomposition_of
from keel.spec.ops.conversion import quantized

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
ops = torch.ops.quantized_decomposed


def test_quantization_by_tensor() -> None:
    op = MEMBERS["quantize_per_tensor"]
    for sample in op.samples(torch.float32):
        x, scale, zero, *rest = sample.args
        want = ops.quantize_per_tensor(*sample.args)
        tensors = (torch.tensor(scale, dtype=torch.float64), torch.tensor(zero))
        for got in (
            op.decompose(*sample.args),
            op.decompose(x, *tensors, *rest),
            op.decompose(x, *tensors, torch.tensor(rest[0]), torch.tensor(rest[1]), rest[2]),
        ):
            assert got.dtype == want.dtype and torch.equal(got, want)
    op = MEMBERS["dequantize_per_tensor"]
    for dtype in op.dtypes:
        for sample in op.samples(dtype):
            assert torch.equal(op.decompose(*sample.args), ops.dequantize_per_tensor(*sample.args))


def test_fake_quantization() -> None:
    op = MEMBERS["fake_quantize_per_tensor"]
    for sample in op.samples(torch.float32):
        for got, want in zip(op.decompose(*sample.args), op.targets[0](*sample.args), strict=True):
            torch.testing.assert_close(got, want, rtol=2e-7, atol=0)


@pytest.mark.parametrize("name", quantized.members)
def test_quantization_is_made_of_primitives(name: str) -> None:
    op, x = MEMBERS[name], torch.randn(3, 4)
    one, zero = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    given = {
        "scale": 0.1,
        "scales": torch.ones(4),
        "zero_point": 3,
        "zero_points": torch.zeros(4, dtype=torch.int32),
        "axis": 1,
        "quant_min": -128,
        "quant_max": 127,
        "dtype": torch.int8,
        "fake_quant_enabled": one,
    }
    if "by_tensors" in name:
        given |= {"scale": one, "zero_point": zero}
    elif name == "fake_quantize_per_channel":
        given |= {"scale": given["scales"], "zero_point": given["zero_points"]}
    args = [given[p] for p in list(inspect.signature(op.decompose).parameters)[1:] if p in given]
    x = x.to(torch.int8) if name.startswith("dequantize") else x
    names = {str(n.target) for n in make_fx(lambda x: op.decompose(x, *args))(x).graph.nodes if n.op == "call_function"}
    assert {OPSET[t].kind for t in OPSET if str(t) in names} <= {"primitive", "composite"}
    assert names <= {str(t) for t in OPSET} | {"<built-in function getitem>"}


def test_rounding_to_smaller_floats() -> None:
    x = torch.tensor([1 + 2**-9, 1 + 2**-8, 1 + 3 * 2**-8, -0.0, 3.4e38, INF, 65519.0, 65520.0])
    assert x.bfloat16().tolist()[:3] == [1.0, 1.0, 1 + 2**-6]
    assert x.bfloat16()[3].signbit() and x.half().tolist()[4:] == [INF, INF, 65504.0, INF]


def test_float8_at_the_ends() -> None:
    x = torch.tensor([448.0, 1e9, INF, NAN, 17.0, 19.0])
    e4m3 = x.to(torch.float8_e4m3fn).float()
    assert e4m3[0] == 448 and e4m3[3].isnan() and e4m3[4:].tolist() == [16.0, 20.0]
    assert all(v == 448 or v.isnan() for v in e4m3[1:3])
    assert torch.tensor([57344.0, 61439.0, 61440.0]).to(torch.float8_e5m2).float().tolist() == [57344.0, 57344.0, INF]
    for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
        odd = torch.tensor([-0.0, 1e9, INF, NAN]).to(dtype).float()
        assert odd[0] == 0 and not odd[0].signbit() and odd[1:].isnan().all()


def test_integers_and_truth() -> None:
    assert torch.tensor([-1.9, 1.9]).to(torch.int8).tolist() == [-1, 1]
    assert torch.tensor([300, -129]).to(torch.int8).tolist() == [44, 127]
    assert torch.tensor([2**24 + 1, 2**24 + 3]).float().tolist() == [2.0**24, 2.0**24 + 4]
    assert torch.tensor([0.0, -0.0, NAN, 1e-45]).bool().tolist() == [False, False, True, True]
    assert torch.tensor([2 - 3j]).to(torch.complex128).to(torch.complex64).real.tolist() == [2.0]


@pytest.mark.parametrize("axis", [0, 1])
def test_quantization_by_channel(axis: int) -> None:
    x = torch.linspace(-20, 20, 60).view(3, 4, 5)
    scales, zeros = torch.rand(x.shape[axis]) + 0.1, torch.arange(x.shape[axis])
    args = (scales, zeros, axis, -128, 127, torch.int8)
    want = ops.quantize_per_channel(x, *args)
    got = MEMBERS["quantize_per_channel"].decompose(x, *args)
    assert torch.equal(got, want)
    back = MEMBERS["dequantize_per_channel"].decompose(got, *args)
    torch.testing.assert_close(back, ops.dequantize_per_channel(got, *args), rtol=1e-6, atol=1e-6)
    fake = aten.fake_quantize_per_channel_affine_cachemask.default
    for g, w in zip(
        decomposition_of(fake)(x, scales, zeros.int(), axis, -128, 127),
        fake(x, scales, zeros.int(), axis, -128, 127),
        strict=True,
    ):
        torch.testing.assert_close(g, w, rtol=1e-6, atol=1e-6)


def test_fake_quantization_with_a_switch() -> None:
    op = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default
    x = torch.linspace(-20, 20, 60)
    for on in (0, 1):
        args = (x, torch.tensor([0.1]), torch.tensor([3], dtype=torch.int32), torch.tensor([on]), -128, 127)
        for got, want in zip(decomposition_of(op)(*args), op(*args), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
