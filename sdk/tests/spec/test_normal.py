"""The normal form: one call for all that mean the same, and the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from keel import Backend
from keel.graph.calls import call_of
from keel.graph.legalize import legalize
from keel.spec import MEMBERS, OPSET, Op, is_normal
from keel.spec.samples import drawn
from keel.torch_adapter import Captured, capture
from keel.types import Call

aten = torch.ops.aten


def normal_only(call: Call) -> str | None:
    op = OPSET.get(call.op)
    if op is None or op.kind != "primitive":
        return "It is not a primitive."
    return None if is_normal(call) else "It is not in normal form."


NORMAL = Backend(name="normal", device="cpu", supports=normal_only, compile=lambda gm: gm.forward)


def legalized(fn: Callable[..., Any], *args: Any, dynamic: bool = False) -> tuple[list[Call], Any]:
    """The calls of the function's graph in normal form, and what it computes."""
    calls: list[Call] = []

    def compiler(captured: Captured) -> Any:
        gm = legalize(captured, [NORMAL]).gm
        calls.extend(c for n in gm.graph.nodes if (c := call_of(n)) is not None)
        return lambda inputs: gm(*inputs)

    torch.compiler.reset()
    result = torch.compile(fn, backend=lambda gm, inputs: capture(gm, inputs, compiler), dynamic=dynamic)(*args)
    return calls, result


def test_integers_are_converted_first() -> None:
    x = torch.arange(5)
    calls, got = legalized(torch.exp, x)
    assert [c.name for c in calls] == ["aten._to_copy.default", "aten.exp.default"]
    torch.testing.assert_close(got, x.exp())


def test_batches_of_matrices_are_broadcast() -> None:
    a = torch.eye(3).expand(2, 1, 3, 3) + torch.ones(3, 3)
    factors, pivots, _ = torch.linalg.ldl_factor_ex(a)
    b = torch.randn(4, 3, 2)
    calls, got = legalized(lambda *given: aten.linalg_ldl_solve(*given), factors, pivots, b)
    assert [c.name for c in calls] == ["aten.expand.default"] * 3 + ["aten.linalg_ldl_solve.default"]
    assert [t.shape for t in calls[-1].tensors] == [(2, 4, 3, 3), (2, 4, 3), (2, 4, 3, 2)]
    torch.testing.assert_close(a @ got, b.expand(2, 4, 3, 2))


def test_what_is_normal_stays() -> None:
    calls, _ = legalized(lambda x: x.exp().neg(), torch.randn(3))
    assert [c.name for c in calls] == ["aten.exp.default", "aten.neg.default"]


CASES = (
    "two sizes",
    "two dtypes",
    "two floats",
    "a tensor without dimensions",
    "numbers",
    "where",
    "quotients of integers",
    "dimensions from the end",
    "cat",
    "unsqueeze",
    "any",
    "all dimensions",
    "sort and scatter",
    "a size that happens to be 1",
)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda x, y: x + y, (drawn(torch.float32, 3, 1), drawn(torch.float32, 4))),
        (lambda x, y: x * y, (torch.arange(3), drawn(torch.float32, 2, 3))),
        (lambda x, y: x - y, (drawn(torch.bfloat16, 3), drawn(torch.float32, 2, 3))),
        (lambda x, y: x + y, (drawn(torch.float32, 3), torch.tensor(2, dtype=torch.int64))),
        (lambda x, y: (x + 2) * y - 1.5, (torch.arange(4), drawn(torch.float32, 4))),
        (lambda x, y: torch.where(x > 0, x, y), (drawn(torch.float32, 3, 1), torch.arange(4))),
        (lambda x, y: x / y, (torch.arange(1, 5), torch.arange(2, 6))),
        (lambda x, y: x.sum(-1) + y.amax([-1, -2]), (drawn(torch.float32, 2, 3), drawn(torch.float32, 2, 3, 4))),
        (lambda x, y: torch.cat([x, y], -1), (drawn(torch.float32, 2, 3), drawn(torch.float32, 2, 4))),
        (lambda x, y: x.unsqueeze(-1) + y, (drawn(torch.float32, 2, 3), drawn(torch.float32, 2, 3, 4))),
        (lambda x, y: (x > 9).any(-1) | (y < 0).any(), (drawn(torch.float32, 2, 3), drawn(torch.float32, 2, 4))),
        (lambda x, y: x.sum() + y.squeeze(-1), (drawn(torch.float32, 2, 3), drawn(torch.float32, 2, 1))),
        (
            lambda x, y: x.sort(-1)[0] + y.scatter(-1, torch.zeros(2, 3, dtype=torch.int64), 1.0),
            (drawn(torch.float32, 2, 3), drawn(torch.float32, 2, 3)),
        ),
        (
            lambda x, y: (x[:, : x.shape[1] // 2] - y[:, :1]) * (y[:, :1] + x[:, : x.shape[1] // 2]),
            (drawn(torch.float32, 2, 3), drawn(torch.float32, 2, 3)),
        ),
    ],
    ids=CASES,
)
def test_values_are_the_same(fn: Callable[..., Any], args: tuple[torch.Tensor, ...], dynamic: bool) -> None:
    calls, got = legalized(fn, *args, dynamic=dynamic)
    assert all(is_normal(c) for c in calls)
    torch.testing.assert_close(got, fn(*args))


@pytest.mark.parametrize("op", [op for op in MEMBERS.values() if op.new_dims], ids=lambda op: op.name)
def test_dimensions_that_are_new_are_in_every_result(op: Op) -> None:
    assert op.samples is not None
    for sample in op.samples(torch.float32):
        assert op.targets[0](*sample.args, **sample.kwargs).dim() == sample.args[0].dim() + op.new_dims
