"""What composites come to when they are written out to the end."""

from __future__ import annotations

import pytest
import sympy
import torch

from keel.cost import Cost, price
from keel.graph.leaf_calls import leaf_calls
from keel.types import Call, TensorType

aten = torch.ops.aten


def t(*shape: int | sympy.Expr, dtype: torch.dtype = torch.float32) -> TensorType:
    return TensorType.dense(dtype, shape)


def gelu(n: int | sympy.Expr) -> Call:
    return Call(aten.gelu.default, (t(n, 8),), {}, (t(n, 8),))


def names(call: Call, **sizes: int) -> list[str]:
    return [c.name.split(".")[1] for c in leaf_calls(call, sizes)]


def test_a_composite_is_written_out_to_its_ends() -> None:
    assert names(gelu(4)) == ["mul", "mul", "erf", "add", "mul"]
    norm = Call(aten.native_layer_norm.default, (t(4, 8), [8], t(8), t(8), 1e-5), {}, (t(4, 8), t(4, 1), t(4, 1)))
    assert {"sum", "rsqrt", "mul", "add"} <= set(names(norm)) and "var_mean" not in names(norm)


@pytest.mark.parametrize(
    "call",
    [
        Call(aten.addmm.default, (t(4), t(4, 4), t(4, 4)), {}, (t(4, 4),)),
        Call(aten.t.default, (t(4, 4),), {}, (t(4, 4),)),
        Call(torch.ops.higher_order.cond, (), {}, ()),
    ],
)
def test_what_is_no_composite_or_is_free_has_none(call: Call) -> None:
    assert leaf_calls(call, {}) == ()


def test_symbols_count_as_what_is_typical_of_them() -> None:
    n = sympy.Symbol("s0", integer=True, positive=True)
    assert leaf_calls(gelu(n), {"s0": 4})[0].out == (t(4, 8),)
    assert leaf_calls(gelu(n), {"s0": 16})[0].out == (t(16, 8),)


def test_the_arithmetic_of_a_composite_is_its_pieces_unless_it_is_known_by_name() -> None:
    sheet = Cost(flops={}, scalars=1e6, bandwidth=1e12, weights={"aten.erf": 5.0})
    assert price(gelu(4), sheet, {}, leaf_calls(gelu(4), {})).alone == pytest.approx(9 * 32 / 1e6)
    assert price(gelu(4), sheet).alone == pytest.approx(32 / 1e6)
    known = Cost(flops={}, scalars=1e6, bandwidth=1e12, weights={"aten.gelu": 2.0})
    assert price(gelu(4), known, {}, leaf_calls(gelu(4), {})).alone == pytest.approx(2 * 32 / 1e6)


def test_sizes_that_only_a_run_tells_count_as_some() -> None:
    n = sympy.Symbol("u0", integer=True, nonnegative=True)
    out = (t(n), t(5, dtype=torch.int64), t(n, dtype=torch.int64))
    call = Call(aten.unique_consecutive.default, (t(5), True, True, 0), {}, out)
    assert "cumsum" in names(call)
