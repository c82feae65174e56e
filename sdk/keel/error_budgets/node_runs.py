"""Runs a functional graph node by node, in several ways at once: in eager PyTorch, in float64, and in float64 with
noise of the size of legal rounding errors.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from keel.error_budgets.decisions import REACH, SMALL, is_decision, shifted, with_jumps
from keel.error_budgets.double_precision import eps, has_float64, is_rounded, mapped, wide
from keel.error_budgets.rounding_noise import NO_NOISE, noise_of, with_noise
from keel.error_budgets.spread import spread
from keel.errors import KeelError
from keel.graph.calls import is_call
from keel.graph.purity import draws_nothing
from keel.graph.size_hints import typical_sizes
from keel.plugin.numeric_facts import IEEE, Arithmetic
from keel.spec import OPSET, decomposition_of
from keel.spec.numerics import Results
from keel.torch_adapter import has_effect, is_assertion, is_overload, is_random, makes_sizes, without_autocast
from keel.types import leaves

EAGER, EXACT, NOISY = 0, 1, (2, 3)
WAYS = 4
GARBAGE = 1e6
"""The size of values in memory that nothing was written to."""


@dataclass(frozen=True)
class Expected:
    """A value of a graph: as eager PyTorch computes it, in float64, and with noise. ``is_drawn`` says that it depends
    on random numbers that the graph draws, and ``is_open`` on memory that nothing was written to.
    """

    eager: Any
    exact: Any
    noisy: tuple[Any, ...]
    is_drawn: bool = False
    is_resized: bool = False


Values = tuple[Any, Any, Any, Any]


class NodeRuns:
    """Runs a graph on inputs, node by node.

    ``names`` are those of the nodes whose values are yielded. ``restarts`` has values by the name of a node, from
    which the run continues, so that the nodes behind it are judged by themselves. Raises KeelError[bad-graph] for a
    graph with effects, such as collectives, that may run only once.
    """

    def __init__(self, gm: fx.GraphModule, arithmetic: Arithmetic = IEEE):
        self.gm, self.arithmetic = gm, arithmetic
        for node in gm.graph.nodes:
            if why := why_not_repeated(node):
                raise KeelError("bad-graph", "The graph cannot be run again.", {"keel": why})
        self.decisions = decision_nodes(gm)
        self.last = _last_uses(gm.graph)

    @torch.no_grad()
    def run(
        self, inputs: Sequence[Any], names: Collection[str], restarts: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[fx.Node, Expected]]:
        """Yields the nodes with these names that have a value, each with what is expected of it."""
        devices = {x.device for x in leaves(list(inputs)) if isinstance(x, Tensor)}
        self.is_moved = not all(map(has_float64, devices))
        self.env: dict[fx.Node, Values] = {}
        self.drawn: set[fx.Node] = set()
        self.resized: set[fx.Node] = set()
        arguments = iter(inputs)
        for number, node in enumerate(self.gm.graph.nodes):
            if node.op == "output":
                break
            if node.op == "placeholder":
                self.env[node] = _started(self._moved(next(arguments)))
            elif node.op == "get_attr":
                value = self.gm
                for name in str(node.target).split("."):
                    value = getattr(value, name)
                self.env[node] = _started(value)
            else:
                with torch.no_grad(), without_autocast():
                    self.env[node] = self._call(node, number)
            self._taint(node)
            if node.name in names:
                eager, exact, *noisy = self.env[node]
                yield node, Expected(eager, exact, tuple(noisy), node in self.drawn, node in self.resized)
            if restarts is not None and node.name in restarts and node.op == "call_function":
                self.env[node] = _restarted(self._moved(restarts[node.name]), number)
                self.drawn.discard(node)
                self.resized.discard(node)
            for dead in self.last.get(node, ()):
                self.env.pop(dead, None)

    def _moved(self, value: Any) -> Any:
        """The value on the host, if the device has no float64."""
        if not self.is_moved:
            return value
        return mapped(value, lambda x: x.cpu() if isinstance(x, Tensor) else x)

    def _taint(self, node: fx.Node) -> None:
        if any(a in self.drawn for a in node.all_input_nodes) or _draws(node):
            self.drawn.add(node)
        sizes = is_call(node) and callable(node.target) and makes_sizes(node.target)
        is_unsure = sizes and not all(map(self._is_same, node.all_input_nodes))
        if is_unsure or any(a in self.resized for a in node.all_input_nodes):
            self.resized.add(node)

    def _arguments(self, node: fx.Node, way: int) -> tuple[Any, Any]:
        def value(x: Any) -> Any:
            if isinstance(x, fx.Node):
                return self.env[x][way]
            return torch.device("cpu") if self.is_moved and isinstance(x, torch.device) else x

        return mapped(node.args, value), mapped(dict(node.kwargs), value)

    def _call(self, node: fx.Node, number: int) -> Values:
        run = node.target
        assert callable(run)
        if node.target is operator.getitem or not is_call(node):
            values = [run(*args, **kwargs) for args, kwargs in (self._arguments(node, way) for way in range(WAYS))]
            return tuple(values)
        if is_assertion(node.target):
            return _started(None)
        args, kwargs = self._arguments(node, EAGER)
        eager = run(*args, **kwargs)
        if _is_uninitialized(node):
            return eager.zero_(), *(_garbage(eager, k) for k in (0, 1, -1))
        if _draws(node) or not is_overload(node.target):
            return _started(eager)
        if all(self._is_same(a) for a in node.all_input_nodes) and not any(map(is_rounded, leaves(eager))):
            return _started(eager)
        exact = self._widely(node, EXACT, eager)
        return (eager, exact, *(self._with_noise(node, way, eager, exact, number) for way in NOISY))

    def _is_same(self, node: fx.Node) -> bool:
        """True if no rounding is behind a value."""
        values = self.env[node]
        return all(values[way] is values[EXACT] for way in NOISY)

    def _widely(self, node: fx.Node, way: int, eager: Any) -> Any:
        return run_widely(node, *self._arguments(node, way), eager)

    def _with_noise(self, node: fx.Node, way: int, eager: Any, exact: Any, number: int) -> Any:
        """The result of a call on the operands of a run with noise, with the noise of the call itself."""
        start = 2 * number + way - NOISY[0]
        args, kwargs = self._arguments(node, way)
        operands = [x for x in leaves([*args, *kwargs.values()]) if isinstance(x, Tensor)]
        results = [*leaves(eager)]
        noise = noise_of(node.target, operands, results[0] if results else None, self.arithmetic)
        if noise is NO_NOISE and all(self.env[a][way] is self.env[a][EXACT] for a in node.all_input_nodes):
            return exact
        if noise.operands:
            args, kwargs = (
                mapped(x, lambda v: with_noise(wide(v), noise.operands, start) if is_rounded(v) else v)
                for x in (args, kwargs)
            )
        result = run_widely(node, args, kwargs, eager)
        if node in self.decisions:
            result = self._decided(node, result, eager, exact, way, start)
        if not noise.result:
            return result
        return mapped(result, lambda v: with_noise(v, noise.result, start + 1) if is_rounded(v) else v)

    def _decided(self, node: fx.Node, result: Any, eager: Any, exact: Any, way: int, start: int) -> Any:
        """The result with the other decision where the operands are too inexact to tell."""
        spreads = dict[int, Tensor]()
        for a in node.all_input_nodes:
            values = self.env[a]
            if is_rounded(values[EXACT]) and not self._is_same(a):
                dtype = values[EAGER].dtype
                spreads[id(values[EXACT])] = spread(values[EXACT], [values[EAGER], *(values[w] for w in NOISY)], dtype)
        if not spreads:
            return result
        operands = self._arguments(node, EXACT)
        reach = REACH if way == NOISY[0] else -REACH
        far, near = (shifted(operands, spreads, amount, start - way) for amount in (reach, reach / SMALL))

        def run(operands: tuple[Any, Any]) -> Any:
            return run_widely(node, *operands, eager)

        return with_jumps(run, result, exact, far, near)


def decision_nodes(gm: fx.GraphModule) -> frozenset[fx.Node]:
    """The calls of a graph whose results jump."""
    sizes = typical_sizes(gm.graph)
    return frozenset(n for n in gm.graph.nodes if is_call(n) and is_overload(n.target) and is_decision(n, sizes))


def why_not_repeated(node: fx.Node) -> str | None:
    """A sentence about a call that must not run again; None if it may. Random draws and assertions may."""
    if not is_call(node) or not has_effect(node.target) or is_assertion(node.target) or is_random(node.target):
        return None
    if not is_overload(node.target) and not _has_effects_inside(node):
        return None
    return f"%{node.name} = {node.target} may have an effect."


def _has_effects_inside(node: fx.Node) -> bool:
    """True unless every graph that a higher-order operator runs may run again."""
    names = [str(a.target) for a in node.all_input_nodes if a.op == "get_attr"]
    bodies = [getattr(node.graph.owning_module, name, None) for name in names]
    graphs = [b.graph for b in bodies if isinstance(b, fx.GraphModule)]
    return not graphs or any(is_call(n) and has_effect(n.target) for g in graphs for n in g.nodes)


def run_widely(node: fx.Node, args: Any, kwargs: Any, eager: Any) -> Any:
    """A call in double precision. An operator without a float64 kernel is decomposed; if that fails too, it runs on
    operands in the graph's dtypes.
    """
    assert callable(node.target)
    arguments = mapped(args, wide), mapped(kwargs, wide)
    decomposition = decomposition_of(node.target)
    for run in (node.target, decomposition):
        if run is None:
            continue
        try:
            result = run(*arguments[0], **arguments[1])
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
            continue
        if (fitting := _fitting(result, eager)) is not None:
            return fitting
    try:
        result = node.target(*_narrow(node.args, args), **_narrow(dict(node.kwargs), kwargs))
        narrow = mapped(result, wide)
        return eager_in_double(eager) if _fitting(narrow, eager) is None else narrow
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return eager_in_double(eager)


def eager_in_double(eager: Any) -> Any:
    return mapped(eager, wide)


def _narrow(nodes: Any, values: Any) -> Any:
    """The values in the dtypes of the graph."""
    if isinstance(nodes, fx.Node):
        promised = nodes.meta.get("val")
        return values.to(promised.dtype) if is_rounded(values) and isinstance(promised, Tensor) else values
    if isinstance(nodes, list | tuple):
        return [_narrow(n, v) for n, v in zip(nodes, values, strict=True)]
    if isinstance(nodes, dict):
        return {k: _narrow(n, values[k]) for k, n in nodes.items()}
    return values


def _fitting(result: Any, eager: Any) -> Any | None:
    """The result, if its tensors have the sizes of eager's, and double precision where eager's round."""
    results, promised = [*leaves(result)], [*leaves(eager)]
    if len(results) != len(promised):
        return None
    for got, want in zip(results, promised, strict=True):
        if isinstance(got, Tensor) != isinstance(want, Tensor):
            return None
        if isinstance(got, Tensor) and (got.shape != want.shape or got.dtype != wide(want.dtype)):
            return None
    return result


def _restarted(value: Any, number: int) -> Values:
    """A value from which the runs continue. A kernel may have it in a wider dtype, before it is rounded."""
    exact = mapped(value, wide)

    def noisy(x: Any, start: int) -> Any:
        return with_noise(wide(x), eps(x.dtype), start) if is_rounded(x) else x

    return value, exact, *(mapped(value, partial(noisy, start=3 * number + k)) for k in range(len(NOISY)))


def _started(value: Any) -> Values:
    """An exact value, from which the runs start."""
    exact = mapped(value, wide)
    return value, exact, exact, exact


def _is_uninitialized(node: fx.Node) -> bool:
    """True if a call makes memory that nothing is written to."""
    member = OPSET.get(node.target) if callable(node.target) else None
    return member is not None and member.numerics.results is Results.UNINITIALIZED


def _garbage(eager: Tensor, sign: int) -> Tensor:
    """Memory with values that show in each result that depends on it."""
    return torch.full_like(wide(eager), sign * GARBAGE) if is_rounded(eager) else eager


def _draws(node: fx.Node) -> bool:
    return is_call(node) and is_random(node.target) and not draws_nothing(node)


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """The values that are used for the last time by each node."""
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        last[node] = node
        for a in node.all_input_nodes:
            last[a] = node
    dead: dict[fx.Node, list[fx.Node]] = {}
    for value, user in last.items():
        dead.setdefault(user, []).append(value)
    return dead
