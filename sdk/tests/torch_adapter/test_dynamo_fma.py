"""What Dynamo makes of ``addcmul_`` and ``addcdiv_`` with a value is back in operators of the operator set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import keel
import keel_interp
from keel.torch_adapter import Captured, capture

X, Y, Z = (torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(3))


def graph_of(fn: Callable[..., Any], *args: Tensor, dynamic: bool = False) -> fx.Graph:
    graphs: list[fx.Graph] = []

    def compiler(captured: Captured) -> Any:
        graphs.append(captured.gm.graph)
        return lambda values: captured.gm(*values)

    torch.compiler.reset()
    compiled = torch.compile(fn, backend=lambda gm, inputs: capture(gm, inputs, compiler), dynamic=dynamic)
    compiled(*(a.clone() for a in args))
    return graphs[0]


def product(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x.addcmul_(y, z, value=0.5)


def quotient(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x.addcdiv_(y, z, value=-2.0)


def sum_with_tensor(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x.add_(y, alpha=z[0, 0])


def of_the_size(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x.addcmul_(y, z, value=1 / x.shape[0])


def broadcast(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x.addcmul_(y[0], z, value=3.0)


PROGRAMS = [product, quotient, sum_with_tensor, of_the_size, broadcast]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_no_operator_of_inductor_is_left(fn: Callable[..., Any], dynamic: bool) -> None:
    names = {str(n.target) for n in graph_of(fn, X, Y, Z, dynamic=dynamic).nodes if n.op == "call_function"}
    assert not [name for name in names if name.startswith("prims")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("fn", PROGRAMS)
def test_results_are_eagers(fn: Callable[..., Any], dtype: torch.dtype) -> None:
    torch.compiler.reset()
    args = [t.to(dtype) for t in (X, Y, Z)]
    own, expected = [a.clone() for a in args], [a.clone() for a in args]
    keel.compile(fn, backends=[keel_interp.backend], strict=True)(*own)
    fn(*expected)
    # In 16 bits each step may be rounded: three times, by at most half of the distance of numbers between 2 and 4.
    tolerance = {"rtol": 0, "atol": 3 * 2**-7} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(own, expected, **tolerance)
