"""A backend may look at the whole graph after ``supports``: ``Backend.claim``."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

import keel
from keel import Backend, Call, Cost, KeelError, KeelWarning
from keel.plugin import CallPattern, CompileContext, Fusion, Veto, Wildcard

X = torch.randn(4, 4)
A, B = Wildcard("a"), Wildcard("b")
SILU = CallPattern("aten.mul", A, CallPattern("aten.sigmoid", A), commutes=True)
Nodes = frozenset[fx.Node]


@pytest.fixture(autouse=True)
def afresh() -> None:
    torch.compiler.reset()


def acme(claim: Callable[[fx.GraphModule, Nodes], Any] | None, **more: Any) -> Backend:
    return Backend(
        **{"name": "acme", "device": "cpu", "supports": lambda call: None, "compile": lambda gm: gm.forward} | more,
        claim=claim,
    )


def named(gm: fx.GraphModule, *names: str) -> tuple[fx.Node, ...]:
    return tuple(node for node in gm.graph.nodes if node.name in names)


def explained(fn: Callable[..., Any], *backends: Any, x: Tensor = X, **options: Any) -> Any:
    (graph,) = keel.explain(fn, x, backends=backends, **options).graphs
    return graph


def told(fn: Callable[..., Any], backend: Backend) -> list[str]:
    """The warnings of a compilation whose result is right."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        got = keel.compile(fn, backends=[backend, "eager"], placement="order")(X)
    torch.testing.assert_close(got, fn(X))
    return [str(w.message) for w in warned if issubclass(w.category, KeelWarning)]


def chain(x: Tensor) -> Tensor:
    return x.sin().cos().exp()


# -- vetoes -----------------------------------------------------------------------------------------------------------


def test_a_veto_gives_a_call_to_the_next_backend_and_its_sentence_is_shown() -> None:
    backend = acme(lambda gm, offered: [Veto(named(gm, "cos"), "acme has no room for a second cos.")])
    for placement in ("order", "auto"):
        graph = explained(chain, backend, "eager", placement=placement)
        assert [(r.operator, r.reason) for r in graph.refused if r.operator == "aten.cos.default"] == [
            ("aten.cos.default", "acme has no room for a second cos.")
        ]
    graph = explained(chain, backend, "eager", placement="order")
    assert [(p.owner, p.calls) for p in graph.parts] == [("acme", 1), ("eager", 1), ("acme", 1)]


def test_a_veto_of_what_no_other_backend_takes_is_an_error_with_its_sentence() -> None:
    backend = acme(lambda gm, offered: [Veto(named(gm, "cos"), "acme has no room.")])
    with pytest.raises(KeelError, match=r"acme has no room\.") as caught:
        keel.compile(chain, backends=[backend], strict=True)(X)
    assert caught.value.code == "no-owner"


# -- fusions ----------------------------------------------------------------------------------------------------------


def everything_but_logarithms(call: Call) -> str | None:
    return "acme has no logarithm." if "log" in call.name else None


def late(x: Tensor) -> tuple[Tensor, Tensor]:
    """``exp`` needs ``tanh`` in the first part of acme, where both can run; ``mul`` has to run in the second."""
    y = x.tanh()
    return x.sin().log() * y, y.exp()


@pytest.mark.parametrize("placement", ["order", "cost"])
def test_the_calls_of_a_fusion_are_in_one_part(placement: str) -> None:
    def claim(gm: fx.GraphModule, offered: Nodes) -> list[Fusion]:
        return [Fusion("tanh_mul", named(gm, "tanh", "mul"), saves=1.0)]

    cost = Cost(flops={torch.float32: 1e9}, scalars=1e9, bandwidth=1e9, call=2.0)
    backend = acme(claim, supports=everything_but_logarithms, cost=cost)
    rest = acme(None, name="rest", last_resort=True, cost=Cost(flops={}, scalars=1.0, bandwidth=1e9, call=5.0))
    graph = explained(late, backend, rest, placement=placement)
    assert [p.owner for p in graph.parts] == ["acme", "rest", "acme"]
    assert "aten.tanh.default" in graph.parts[2].operators and graph.parts[2].fusions == {"tanh_mul": 1}
    assert graph.parts[2].work == pytest.approx(3 * 2.0 - 1.0, abs=1e-3)


def test_a_fusion_counts_as_one_call() -> None:
    cost = Cost(flops={torch.float32: 1e9}, scalars=1e12, bandwidth=1e9, call=1e-3)
    alone = explained(chain, acme(None, cost=cost), "eager", placement="cost")
    fused = explained(
        chain,
        acme(lambda gm, offered: [Fusion("all", named(gm, "sin", "cos", "exp"))], cost=cost),
        "eager",
        placement="order",
    )
    tensor = 4 * X.numel() / 1e9
    assert fused.parts[0].work == pytest.approx(1e-3 + 2 * tensor)
    assert [p.owner for p in alone.parts] == ["eager"]  # three calls of a millisecond are more than eager takes


def test_compile_gets_the_fusions_of_its_part_by_the_names_in_its_graph() -> None:
    found: list[Any] = []

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Any:
        names = {node.name for node in gm.graph.nodes}
        found.append([f.name for f in ctx.fusions if names.issuperset(f.calls)])
        return gm.forward

    def claim(gm: fx.GraphModule, offered: Nodes) -> list[Fusion]:
        return [Fusion("silu", match.calls) for match in SILU.matches(gm.graph, offered)]

    def program(x: Tensor) -> Tensor:
        return x.exp() * (x.exp()).sigmoid() + x.sigmoid() * x

    keel.compile(program, backends=[acme(claim, compile=compile)], strict=True)(X)
    assert found == [["silu", "silu"]]


def seen_by_compile(**more: Any) -> tuple[Backend, list[tuple[list[str], set[str]]]]:
    """A backend that fuses ``sin`` with ``cos`` and ``exp`` with ``t``, and the names of fusions and nodes that its
    ``compile`` gets.
    """
    compiled: list[tuple[list[str], set[str]]] = []

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Any:
        compiled.append(([f.name for f in ctx.fusions], {node.name for node in gm.graph.nodes}))
        return gm.forward

    def claim(gm: fx.GraphModule, offered: Nodes) -> list[Fusion]:
        return [Fusion("sincos", named(gm, "sin", "cos")), Fusion("exp_t", named(gm, "exp", "transpose"))]

    return acme(claim, compile=compile, **more), compiled


def turned(x: Tensor) -> Tensor:
    return x.sin().cos().exp().transpose(0, 1)


def test_fusions_of_views_that_keel_makes_are_left_out() -> None:
    backend, compiled = seen_by_compile(any_layout=True)
    torch.testing.assert_close(keel.compile(turned, backends=[backend], strict=True)(X), turned(X))
    [(fusions, names)] = compiled
    assert fusions == ["sincos"] and {"sin", "cos", "exp"} <= names and "transpose" not in names


def test_a_part_for_known_sizes_has_the_fusions() -> None:
    backend, compiled = seen_by_compile(static=True)
    run = keel.compile(turned, backends=[backend], strict=True, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(run(x), turned(x))
    assert len(compiled) >= 1 and all(fusions == ["sincos", "exp_t"] for fusions, _ in compiled)


def test_the_explanation_shows_fusions() -> None:
    text = str(
        keel.explain(
            chain, X, backends=[acme(lambda gm, offered: [Fusion("sincos", named(gm, "sin", "cos"))]), "eager"]
        )
    )
    assert "as one kernel each: sincos (1)" in " ".join(text.split())


def test_a_backend_is_offered_the_calls_that_it_takes_and_not_those_that_are_pinned_elsewhere() -> None:
    asked: list[set[str]] = []

    def claim(gm: fx.GraphModule, offered: Nodes) -> list[Fusion]:
        asked.append({node.name for node in offered})
        return []

    backend = acme(claim, supports=lambda call: "No exp." if "exp" in call.name else None)
    keel.compile(chain, backends=[backend, "eager"], pins={"cos": "eager"}, placement="order")(X)
    assert {frozenset(names) for names in asked} == {frozenset({"sin"})}


def test_a_call_that_cannot_be_compiled_is_not_offered_again() -> None:
    def claim(gm: fx.GraphModule, offered: Nodes) -> list[Fusion]:
        nodes = [node for node in named(gm, "sin", "cos") if node in offered]
        return [Fusion("sincos", tuple(nodes))] if len(nodes) == 2 else []

    def compile(gm: fx.GraphModule) -> Any:
        raise RuntimeError("out of registers")

    (warned,) = told(chain, acme(claim, compile=compile))
    assert "out of registers" in warned


def test_a_plugin_may_change_the_graph_that_it_gets() -> None:
    def claim(gm: fx.GraphModule, offered: Nodes) -> list[Fusion]:
        fusion = Fusion("sincos", named(gm, "sin", "cos"))
        for node in gm.graph.nodes:
            node.args = ()
        return [fusion]

    assert told(chain, acme(claim)) == []


# -- invalid claims ---------------------------------------------------------------------------------------------------

answers = itertools.cycle([[], [Veto(("sin",), "Not now.")]])


def raises(gm: fx.GraphModule, offered: Nodes) -> list[Fusion]:
    raise KeyError("sin")


def loop(x: Tensor) -> Tensor:
    """A fusion of ``sin`` and ``add`` would wait for itself."""
    y = x.sin()
    return y.cos() + y


INVALID: dict[str, tuple[Callable[[fx.GraphModule, Nodes], Any], str]] = {
    "raises": (raises, "acme: KeyError: 'sin'"),
    "is not a list": (lambda gm, offered: 7, "TypeError: 'int' object is not iterable"),
    "is of texts": (lambda gm, offered: ["sin"], "It returned a str, which is not a Fusion and not a Veto."),
    "has one call": (lambda gm, offered: [Fusion("one", named(gm, "sin"))], "has fewer than two calls"),
    "is of what it refuses": (
        lambda gm, offered: [Fusion("both", named(gm, "sin", "add"))],
        "It claims %add, which is not a call that acme takes.",
    ),
    "is of an input": (
        lambda gm, offered: [Veto(tuple(gm.graph.find_nodes(op="placeholder")), "No.")],
        "which is not a call that acme takes.",
    ),
    "is of what is not there": (lambda gm, offered: [Veto(("tan",), "No.")], "It claims %tan, which is not a call"),
    "claims twice": (
        lambda gm, offered: [Veto(named(gm, "sin"), "No."), Fusion("both", named(gm, "sin", "cos"))],
        "It claims %sin twice.",
    ),
    "differs": (
        lambda gm, offered: next(answers),
        "It did not claim Veto(calls=('sin',), why='Not now.'), and does when it is asked again",
    ),
}


@pytest.mark.parametrize(("claim", "sentence"), INVALID.values(), ids=INVALID)
def test_an_invalid_claim_costs_the_plugin_and_not_the_program(claim: Any, sentence: str) -> None:
    backend = acme(claim, supports=lambda call: "acme has no add." if "add" in call.name else None)
    (warned,) = told(loop, backend)
    assert "acme made an invalid claim of a graph." in warned and sentence in warned
    assert "The graph is compiled without acme. strict=True makes this an error." in warned


def test_under_strict_it_is_an_error() -> None:
    with pytest.raises(KeelError, match="acme made an invalid claim") as caught:
        keel.compile(chain, backends=[acme(raises)], strict=True)(X)
    assert caught.value.code == "refuse-raised"


def test_calls_that_wait_for_each_other_are_not_one_kernel() -> None:
    (warned,) = told(loop, acme(lambda gm, offered: [Fusion("both", named(gm, "sin", "add"))]))
    assert "Its fusion 'both' (%sin, %add) cannot be one kernel" in warned


# -- patterns ---------------------------------------------------------------------------------------------------------


def shared(op: str) -> CallPattern:
    """A call whose result is used twice."""
    inner = CallPattern("aten.sin", A)
    return CallPattern("aten.add", CallPattern("aten.exp", inner), CallPattern(op, inner))


NORM = CallPattern(
    "aten.add", CallPattern("aten.mul", CallPattern("aten.native_layer_norm", A), Wildcard()), B, commutes=True
)
RESIDUAL = CallPattern("aten.relu", CallPattern("aten.add", A, B, used_outside=True))
PATTERNS: dict[str, tuple[CallPattern, Callable[[Tensor], Any], list[list[str]]]] = {
    "in either order": (
        SILU,
        lambda x: x * x.sigmoid() + x.sigmoid() * x,
        [["sigmoid", "mul"], ["sigmoid_1", "mul_1"]],
    ),
    "another argument": (SILU, lambda x: x * x.exp().sigmoid(), []),
    "in this order only": (
        CallPattern("aten.mul", A, CallPattern("aten.sigmoid", A)),
        lambda x: x.sigmoid() * x,
        [],
    ),
    "two users": (shared("aten.cos"), lambda x: (lambda y: y.exp() + y.cos())(x.sin()), [["sin", "exp", "cos", "add"]]),
    "two calls for one": (shared("aten.cos"), lambda x: x.sin().exp() + x.sin().cos(), []),
    "used elsewhere": (shared("aten.cos"), lambda x: (lambda y: (y.exp() + y.cos(), y))(x.sin()), []),
    "may be used elsewhere": (RESIDUAL, lambda x: (lambda y: (y.relu(), y))(x + 1), [["add", "relu"]]),
    "several results": (
        NORM,
        lambda x: x + torch.native_layer_norm(x, [4], None, None, 1e-5)[0] * 2,
        [["native_layer_norm", "mul", "add"]],
    ),
    "values": (
        CallPattern("aten.gelu", A, "tanh"),
        lambda x: (torch.nn.functional.gelu(x, approximate="tanh"), torch.nn.functional.gelu(x)),
        [["gelu"]],
    ),
    "a number of another type": (CallPattern("aten.mul", A, 2), lambda x: x * 2.0, []),
    "a tag": (
        CallPattern("pointwise", CallPattern("contraction", A, B)),
        lambda x: (x @ x).relu(),
        [["mm", "relu"]],
    ),
    "no overlap": (
        CallPattern("aten.sin", CallPattern("aten.sin", A)),
        lambda x: x.sin().sin().sin().sin().sin(),
        [["sin", "sin_1"], ["sin_2", "sin_3"]],
    ),
}


@pytest.mark.parametrize(("pattern", "fn", "found"), PATTERNS.values(), ids=PATTERNS)
def test_patterns_match_graphs_of_calls(
    pattern: CallPattern, fn: Callable[[Tensor], Any], found: Sequence[Sequence[str]]
) -> None:
    graph = make_fx(fn, tracing_mode="fake")(X).graph
    offered = frozenset(node for node in graph.nodes if node.op == "call_function")
    assert [[node.name for node in match.calls] for match in pattern.matches(graph, offered)] == found
    assert list(pattern.matches(graph, frozenset())) == []


def test_wildcards_are_bound() -> None:
    graph = make_fx(lambda x: (x + 3).relu(), tracing_mode="fake")(X).graph
    [match] = RESIDUAL.matches(graph, frozenset(graph.nodes))
    assert [str(match.bindings[name]) for name in "ab"] == ["x_1", "3"]


def test_an_operator_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeelError, match=r"Did you mean 'aten\.sigmoid'"):
        CallPattern("aten.sigmiod", A)
