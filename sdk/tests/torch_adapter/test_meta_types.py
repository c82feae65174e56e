"""Captured graphs promise the statistics that ATen's kernels give, on both sides of the partition."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.checkpoint import checkpoint

from keel.spec import decomposition_of
from keel.torch_adapter import Captured, capture, captured_calls, dim_of
from keel.torch_adapter.meta_bugs.apply import apply_fixes
from keel.torch_adapter.trace import trace

F32, BF16 = torch.float32, torch.bfloat16
aten = torch.ops.aten


class Truthful(fx.Interpreter):
    """Runs a graph in eager and asserts that every operator gives the dtypes that its node promises."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op in ("call_function", "placeholder"):
            for given, promised in zip(flat(result), flat(n.meta["val"]), strict=True):
                if isinstance(given, torch.Tensor):
                    assert given.dtype == promised.dtype, f"{n.target} gives {given.dtype}, not {promised.dtype}"
        return result


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def captured(model: Callable[..., Any], seen: list[Captured]) -> Callable[..., Any]:
    def compiler(graph: Captured) -> Callable[[list[Any]], Any]:
        seen.append(graph)
        return lambda inputs: Truthful(graph.gm).run(*inputs, *graph.constants.values())

    return torch.compile(model, backend=lambda gm, inputs: capture(gm, inputs, compiler))


def test_what_a_checkpoint_draws_again_takes_a_state() -> None:
    """On a GPU too, where AOTAutograd would have operators take a generator, which no graph holds."""
    from torch._functorch import config

    def compiler(graph: Captured) -> Callable[[list[Any]], Any]:
        seen.append(config.graphsafe_rng_functionalization)
        return lambda inputs: Truthful(graph.gm).run(*inputs, *graph.constants.values())

    seen, before = list[bool](), config.graphsafe_rng_functionalization
    x = torch.ones(20, requires_grad=True)
    torch.compile(
        lambda x: checkpoint(lambda x: nn.functional.dropout(x * 2), x, use_reentrant=False),
        backend=lambda gm, inputs: capture(gm, inputs, compiler),
    )(x).sum().backward()
    assert seen[0] is False and config.graphsafe_rng_functionalization is before


NORMS = {"layer": lambda: nn.LayerNorm(8), "batch": lambda: nn.BatchNorm1d(6), "group": lambda: nn.GroupNorm(2, 6)}


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("parameters", [F32, BF16], ids=str)
def test_statistics(norm: str, parameters: torch.dtype) -> None:
    torch.compiler.reset()
    model, seen = nn.Sequential(nn.Tanh(), NORMS[norm](), nn.Tanh()).to(parameters), list[Captured]()
    x = torch.randn(3, 6, 8).to(BF16).requires_grad_()
    captured(model, seen)(x).sum().backward()
    assert [g.kind for g in seen] == ["forward", "backward"]
    model.eval()
    with torch.no_grad():
        captured(model, seen)(x)
    assert seen[-1].kind == "inference"


def test_statistics_are_float32_where_parameters_are() -> None:
    torch.compiler.reset()
    seen: list[Captured] = []
    captured(nn.LayerNorm(8), seen)(torch.randn(4, 8, dtype=BF16, requires_grad=True)).sum().backward()
    node = next(n for n in seen[0].gm.graph.nodes if "native_layer_norm" in str(n.target))
    assert [v.dtype for v in node.meta["val"]] == [BF16, F32, F32]
    backward = next(n for n in seen[1].gm.graph.nodes if "native_layer_norm_backward" in str(n.target))
    assert [backward.args[i].meta["val"].dtype for i in (3, 4)] == [F32, F32]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("_scaled_dot_product_efficient_attention", (None, True)),
        ("_efficient_attention_forward", (None, None, None, None, None, 0.0, 1)),
    ],
)
def test_the_random_state_of_attention_lies_on_the_host(name: str, more: tuple[Any, ...]) -> None:
    mode, graph = FakeTensorMode(), fx.Graph()
    attention = getattr(torch.ops.aten, name).default
    with mode:
        q = torch.empty(2, 3, 8, 16, device="cuda")
        results = attention(q, q, q, *more)
    x = graph.placeholder("x")
    x.meta["val"] = q
    whole = graph.call_function(attention, (x, x, x, *more))
    whole.meta["val"] = results
    parts = [graph.call_function(operator.getitem, (whole, i)) for i in range(4)]
    for part, value in zip(parts, results[:4], strict=True):
        part.meta["val"] = value
    graph.output(tuple(parts))
    apply_fixes(fx.GraphModule(torch.nn.Module(), graph))
    assert [p.meta["val"].device.type for p in parts] == ["cuda", "cuda", "cpu", "cpu"]
    assert len(whole.meta["val"]) == len(results)


@pytest.mark.parametrize("dim", [None, 0, 1, -1, -2])
def test_places_and_counts_of_distinct_elements_are_integers_and_dimensions_stay(dim: int | None) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        runs = torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=dim)
        return *runs, *torch.unique(x, return_inverse=True, return_counts=True, dim=dim)

    seen: list[Captured] = []

    def compiler(graph: Captured) -> Callable[[list[Any]], Any]:
        seen.append(graph)
        return lambda inputs: Truthful(graph.gm).run(*inputs)

    x = torch.tensor([[1.0, 1, 2], [1, 1, 2]])
    with torch.no_grad():
        given = trace(fn, [x], compiler)(x)
    promised = [r.meta["val"] for r in seen[0].gm.graph.output_node().args[0]]  # type: ignore[union-attr]
    assert [(p.dtype, p.dim()) for p in promised] == [(g.dtype, g.dim()) for g in given]
    for values, places, counts in (promised[:3], promised[3:]):
        assert places.shape == (x.shape if dim is None else (x.shape[dim],))
        assert dim_of(counts.shape[0]) == dim_of(values.shape[dim or 0])


def test_how_many_distinct_elements_there_are_is_no_number() -> None:
    """PyTorch 2.11 promises as many as zeros would give."""
    seen: list[Captured] = []

    def compiler(graph: Captured) -> Callable[[list[Any]], Any]:
        seen.append(graph)
        return lambda inputs: Truthful(graph.gm).run(*inputs)

    x = torch.tensor([1, 0, 1])
    with torch.no_grad():
        values, places = trace(lambda x: torch.ops.aten._unique.default(x, True, True), [x], compiler)(x)
    promised = [r.meta["val"] for r in seen[0].gm.graph.output_node().args[0]]  # type: ignore[union-attr]
    assert values.shape == (2,) and not isinstance(promised[0].shape[0], int)
    assert promised[1].shape == places.shape


@pytest.mark.parametrize("op", [aten.reshape.default, aten.view.default])
def test_what_is_reshaped_to_no_dimensions_has_none(op: Callable[..., Any]) -> None:
    """And its consequence: a product with it is not a vector."""
    graph, env = fx.Graph(), ShapeEnv()
    with FakeTensorMode(shape_env=env):
        with env.ignore_fresh_unbacked_symbols():
            x = torch.empty(env.create_unbacked_symint())
        steps = [graph.placeholder("x"), graph.placeholder("y")]
        steps[0].meta["val"], steps[1].meta["val"] = x, torch.empty(())
        for target, args in ((op, (steps[0], [])), (aten.mul.Tensor, (steps[1],))):
            node = graph.call_function(target, (*args, steps[-1]) if target is aten.mul.Tensor else args)
            node.meta["val"] = target(*fx.node.map_arg(node.args, lambda n: n.meta["val"]))
            steps.append(node)
    graph.output(tuple(steps[2:]))
    apply_fixes(fx.GraphModule(torch.nn.Module(), graph))
    assert [n.meta["val"].shape for n in steps[2:]] == [(), ()]


def test_sums_of_weights_are_floats() -> None:
    seen: list[Captured] = []

    def compiler(graph: Captured) -> Callable[[list[Any]], Any]:
        seen.append(graph)
        return lambda inputs: Truthful(graph.gm).run(*inputs)

    x = torch.tensor([1, 0, 1])
    with torch.no_grad():
        trace(
            lambda x, *w: tuple(torch.bincount(x, y) for y in (None, *w)),
            [x, torch.rand(3), torch.rand(3).double(), x],
            compiler,
        )(x, torch.rand(3), torch.rand(3).double(), x)
    assert [r.meta["val"].dtype for r in seen[0].gm.graph.output_node().args[0]] == [  # type: ignore[union-attr]
        torch.int64,
        torch.float32,
        torch.float64,
        torch.float64,
    ]


def test_the_mask_of_no_elements_is_no_bool() -> None:
    """On a CPU, whether the operator stays whole or is written out."""
    x = torch.ones(2, 0, dtype=BF16)
    given = torch.ops.aten.native_dropout.default(x, 0.5, True)
    whole = captured_calls([(torch.ops.aten.native_dropout.default, (x, 0.5, True), {})])[0].gm
    promised = [r.meta["val"] for r in whole.graph.output_node().args[0]]  # type: ignore[union-attr]
    written = decomposition_of(torch.ops.aten.native_dropout.default)(x, 0.5, True)
    assert [t.dtype for t in given] == [t.dtype for t in promised] == [t.dtype for t in written] == [BF16, BF16]


@pytest.mark.parametrize(
    ("dtype", "exponents"),
    [
        *((dtype, exponents) for dtype in (torch.int32, torch.bool, F32) for exponents in (torch.float16, BF16, F32)),
        *(
            (torch.complex64, exponents)
            for exponents in (BF16, torch.float64, torch.int32)
            if not (exponents == BF16 and hasattr(torch, "bcomplex32"))
        ),
    ],  # a complex bfloat16, of which there is no power
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (2,)], ids=str)
def test_products_with_powers(dtype: torch.dtype, exponents: torch.dtype, shape: tuple[int, ...]) -> None:
    args = torch.ones(2).to(dtype), torch.ones(shape).to(exponents)
    (node,) = captured_calls([(aten.ldexp.Tensor, args, {})])[0].gm.graph.output_node().args[0]
    written = decomposition_of(aten.ldexp.Tensor)(*args)
    assert node.meta["val"].dtype == written.dtype == aten.ldexp.Tensor(*args).dtype


def promised(fn: Callable[..., Any], *shapes: tuple[Any, ...]) -> list[Any]:
    """What a graph of the call promises on CUDA, where no kernel runs here."""
    with FakeTensorMode() as mode:
        args = [torch.empty(*shape, dtype=dtype, device="cuda") for *shape, dtype in shapes]
        graph = fx.Graph()
        nodes = [graph.placeholder(f"x{k}") for k in range(len(args))]
        for node, arg in zip(nodes, args, strict=True):
            node.meta["val"] = arg
        call = fn(lambda op, *rest: graph.call_function(op, rest), *nodes)
        call.meta["val"] = call.target(*(a.meta["val"] if isinstance(a, fx.Node) else a for a in call.args))
        graph.output(call)
    assert call.meta["val"][0].fake_mode is mode
    apply_fixes(fx.GraphModule(nn.Module(), graph))
    return [(list(v.shape), v.dtype) for v in call.meta["val"]]


def test_bags_are_promised_on_cuda_as_its_fake_kernel_has_them() -> None:
    def call(do: Any, rows: fx.Node, indices: fx.Node, offsets: fx.Node) -> fx.Node:
        found: fx.Node = do(
            aten._embedding_bag_forward_only.default, rows, indices, offsets, False, 1, False, None, True
        )
        return found

    i64 = torch.int64
    assert promised(call, (33, 16, F32), (40, i64), (18, i64)) == [
        ([17, 16], F32),
        ([40], i64),
        ([18], i64),
        ([0], i64),
    ]


def test_running_statistics_keep_their_dtype_on_cuda_and_those_of_the_batch_are_float32() -> None:
    def call(do: Any, x: fx.Node, weight: fx.Node, mean: fx.Node, var: fx.Node) -> fx.Node:
        found: fx.Node = do(
            aten._native_batch_norm_legit_functional.default, x, weight, weight, mean, var, True, 0.1, 1e-5
        )
        return found

    found = promised(call, (2, 6, 4, BF16), (6, BF16), (6, BF16), (6, BF16))
    assert [dtype for _, dtype in found] == [BF16, F32, F32, BF16, BF16]
