"""Recording a decomposition on fake tensors, compared with running it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from keel.torch_adapter import NotRecorded, decomposition_of, record

aten = torch.ops.aten
R = torch.randn


def recorded(fn: Callable[..., Any], *args: Any, dynamic: bool = False, **kwargs: Any) -> fx.GraphModule:
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=not dynamic)
    fake = fx.node.map_aggregate(
        args, lambda a: mode.from_tensor(a, static_shapes=not dynamic) if isinstance(a, Tensor) else a
    )
    return fx.GraphModule({}, record(fn, fake, kwargs, mode))


def operators(gm: fx.GraphModule) -> list[str]:
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


CALLS = [
    (aten._softmax.default, (R(3, 4), -1, False)),
    (aten.gelu.default, (R(3, 4),)),
    (aten.lcm.default, (torch.tensor([4, 6], dtype=torch.int8), torch.tensor([6, 9], dtype=torch.int8))),
    (aten.renorm.default, (R(3, 4).bfloat16(), 2, 0, 1.0)),
    (aten.native_layer_norm.default, (R(3, 4), [4], R(4), R(4), 1e-5)),
    (aten.native_layer_norm_backward.default, (R(3, 4), R(3, 4), [4], R(3, 1), R(3, 1), R(4), R(4), [True] * 3)),
    (aten._native_batch_norm_legit_no_training.default, (R(2, 3, 4), R(3), R(3), R(3), R(3).abs(), 0.1, 1e-5)),
    (aten._native_batch_norm_legit_functional.default, (R(2, 3, 4), R(3), R(3), R(3), R(3).abs(), True, 0.1, 1e-5)),
    (aten.silu_backward.default, (R(3, 4), R(3, 4))),
    (aten.nll_loss_forward.default, (R(3, 4), torch.tensor([1, 0, 3]), None, 1, -100)),
    (aten.embedding_dense_backward.default, (R(3, 4), torch.tensor([1, 0, 1]), 5, -1, False)),
    (aten.linear.default, (R(3, 4), R(5, 4), R(5))),
    (aten.split.Tensor, (R(5, 2), 2)),
]
STATIC = [(aten.slice_backward.default, (R(2, 3), [4, 3], 0, 1, 3, 1))]  # its sizes are plain numbers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "args", "dynamic"),
    [(*c, d) for d in (False, True) for c in CALLS + STATIC * (not d)],
    ids=lambda v: str(v) if isinstance(v, torch._ops.OpOverload) else "",
)
def test_what_is_recorded_computes_what_the_operator_does(op: Any, args: tuple[Any, ...], dynamic: bool) -> None:
    decomposition = decomposition_of(op)
    assert decomposition is not None
    gm = recorded(decomposition, *args, dynamic=dynamic)
    assert str(op) not in operators(gm)
    assert not [n for n in operators(gm) if n.startswith("prims.")]
    assert all("val" in n.meta for n in gm.graph.nodes if n.op != "output")
    want = op(*args)
    got = gm(*(a for a in args if isinstance(a, Tensor)))
    torch.testing.assert_close(got, tuple(want) if isinstance(want, tuple | list) else (want,), rtol=1e-4, atol=1e-5)


def test_sizes_are_written_down_from_their_expressions() -> None:
    def fn(x: Tensor) -> Any:
        n = x.shape[0]
        return (
            x.new_zeros(n * 3, (n + 5) // 2),
            x.reshape(-1, 2) * (n / 2) if n % 2 == 0 else x,
            x.new_zeros(math.ceil(n / 4), math.floor(n / 4)),
        )

    gm = recorded(fn, R(6, 6), dynamic=True)
    for n in (8, 10):
        got = gm(R(n, 6))
        assert got[0].shape == (n * 3, (n + 5) // 2) and got[1].shape == (n * 3, 2)
        assert got[2].shape == (-(-n // 4), n // 4)


def test_writes_become_pure() -> None:
    def fn(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[0] = x[1]
        return y.add_(1)

    x = R(3, 4)
    gm = recorded(fn, x)
    assert not [n for n in gm.graph.nodes if n.op == "call_function" and n.target._schema.is_mutable]
    torch.testing.assert_close(gm(x)[0], fn(x))


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: NotImplemented, "It is not implemented for these arguments."),
        (lambda x: x + torch.tensor([1.0, 2.0]), "neither an argument nor made by an operator"),
        (lambda x: 1 / 0, "It raised ZeroDivisionError: division by zero"),
    ],
    ids=["not implemented", "constant", "raises"],
)
def test_what_cannot_be_recorded_says_why(fn: Callable[..., Any], why: str) -> None:
    with pytest.raises(NotRecorded, match=why):
        recorded(fn, R(2))


def test_what_surrounds_has_no_effect() -> None:
    with torch.autocast("cpu"), torch.enable_grad():
        gm = recorded(lambda x, y: x @ y, R(2, 3), R(3, 4))
    assert operators(gm) == ["aten.mm.default"]


@pytest.mark.parametrize(
    ("before", "size"),
    [
        (lambda y: None, 4),
        (lambda y: aten._fused_rms_norm(y, [4], None, 1e-5), 5),
        (lambda y: aten.silu_backward(y, y), 6),
    ],
    ids=["alone", "after what writes", "after what writes if taken apart"],
)
def test_results_of_one_call_are_apart(before: Callable[[Tensor], Any], size: int) -> None:
    """PyTorch's fake kernel gives one tensor for the saved and the new running mean on CUDA, at the first call of a
    size.
    """

    def fn(x: Tensor, mean: Tensor, y: Tensor) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            before(y)
            return aten._native_batch_norm_legit_functional(x, None, None, mean, mean, False, 0.1, 1e-5)

    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode:
        x, mean, y = torch.empty(3, size, device="cuda"), torch.empty(size, device="cuda"), torch.empty(3, 4)
    graph = record(fn, (x, mean, y), {}, mode)
    assert len(set(graph.output_node().args[0])) == 5
    fx.GraphModule({}, graph).graph.lint()


def test_what_writes_where_it_is_taken_apart_leaves_nothing_behind() -> None:
    with torch._C._AutoDispatchBelowAutograd():
        graph = recorded(lambda x: aten._fused_rms_norm(x + 1, [4], None, 1e-5), R(3, 4)).graph
    assert operators(fx.GraphModule({}, graph)) == [
        f"aten.{name}"
        for name in ("add.Tensor", "pow.Tensor_Scalar", "mean.dim", "add.Scalar", "rsqrt.default", "mul.Tensor")
    ]


def test_numbers_and_lists_are_taken_as_they_are() -> None:
    gm = recorded(lambda xs, n, dim: torch.cat(xs, dim) * n, [R(2), R(3)], 2.5, dim=0)
    assert len(gm.graph.find_nodes(op="placeholder")) == 2
