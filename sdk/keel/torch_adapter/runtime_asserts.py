"""Places assertions on data-dependent sizes and numbers so that no use of such a number can run before its assertion.

After ``torch._check(x.nonzero().size(0) == 4)``, PyTorch puts the size 4 into the types of all traced values, and folds
the condition to True. The graph then has no assertion, and its types are wrong in a run that breaks the condition. Here
the call that makes the size gets its own symbol back, an assertion compares the symbol with 4, and every use of the
size takes the *result* of that assertion. The order then follows from data dependences, so later stages keep it.

A number that is only known to be within bounds keeps its symbol. Its assertion is moved directly behind the numbers
that it tests, and calls behind an assertion wait for it (see ``keel.graph.assertion_calls``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from keel.torch_adapter.node_origin import origin_of
from keel.torch_adapter.numbers import NotRecorded, number
from keel.torch_adapter.operators import is_operator, may_alias
from keel.torch_adapter.recorder import fake_mode_of
from keel.torch_adapter.sympy_expressions import Symbolic, constant_of, expression, late, symbols_of

aten = torch.ops.aten
ASSERT = aten._assert_scalar.default
_ASSERTED = aten._functional_assert_scalar.default
_SIZES = (aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default, aten.sym_storage_offset.default)
_MANY = 2**63 - 1
_GENERATED = "Runtime assertion failed for expression"
"""The beginning of messages that PyTorch writes, in contrast to the user's."""


def assert_promises(gm: fx.GraphModule) -> None:
    """Changes ``gm`` and the graphs that its higher-order operators take. Afterwards the result of a call with
    data-dependent sizes or numbers (``nonzero``, ``item`` ...) has symbols of its own for them. If PyTorch promises
    another value, an assertion follows; its result has the promised type and replaces the call's result. Assertions
    that were folded to True are erased. The other assertions stand directly behind the last number that they test.
    Promises about inputs are left alone: Dynamo guards them, and the forward graph has asserted those about inputs of a
    backward graph.
    """
    if any(map(late, symbols_of(fake_mode_of(gm)))):
        _assert_promises(gm, _Made(gm.graph))


def _assert_promises(gm: fx.GraphModule, made: _Made) -> None:
    made.assert_all()
    for node in gm.graph.find_nodes(op="get_attr"):
        body = getattr(gm, str(node.target), None)
        if isinstance(body, fx.GraphModule):  # promises about its operands have been asserted outside
            _assert_promises(body, _Made(body.graph, {*made.known}, {*made.drawn}))
            body.recompile()
    if made.complete:
        _drop_folded(gm.graph)
    _without_results(gm.graph)
    _behind_their_numbers(gm.graph)


@dataclass(frozen=True)
class _Promise:
    """PyTorch's promise that a number which a call makes equals ``promised``. ``raw`` is the symbol that the number had
    when it was made, ``own`` the symbol that it gets now.
    """

    raw: sympy.Symbol
    own: sympy.Symbol
    promised: sympy.Expr
    message: str


@dataclass
class _Made:
    """The data-dependent numbers that a graph makes. ``known`` are the symbols in the values of the nodes so far,
    ``drawn`` the symbols that numbers had when they were made, and ``places`` the nodes from which numbers can be read.
    ``waiting`` are promises, each with the node of its number, that depend on later nodes. ``complete`` is True if each
    promise has an assertion.
    """

    graph: fx.Graph
    known: set[sympy.Symbol] = field(default_factory=set)
    drawn: set[sympy.Symbol] = field(default_factory=set)
    places: list[fx.Node] = field(default_factory=list)
    waiting: list[tuple[_Promise, fx.Node]] = field(default_factory=list)
    complete: bool = True

    def assert_all(self) -> None:
        """Inserts an assertion for each promise."""
        makers = set[fx.Node]()
        for node in [*self.graph.nodes]:
            if drawn := self._drawn(node):
                makers.add(node)
                if node.op != "placeholder" and not may_alias(node.target):  # a view has its operand's numbers
                    self._maker(node, drawn)
            if node.op == "placeholder" or _call_of(node) in makers:
                self._record(node)
        self.complete &= not self.waiting

    def _drawn(self, node: fx.Node) -> list[sympy.Symbol]:
        """The symbols of data-dependent numbers that this call or input introduced."""
        if node.op != "placeholder" and not (is_operator(node.target) and node.target not in _SIZES):
            return []
        numbers = _numbers(node.meta.get("val"))
        symbols = {s for n in numbers for s in late(_raw(n))} - self.drawn
        self.drawn |= symbols
        return sorted(symbols, key=str)

    def _record(self, node: fx.Node) -> None:
        """Records the symbols in the value of a node, and inserts the assertions that waited for them."""
        value = node.meta.get("val")
        symbols = {s for n in _numbers(value) for s in expression(n).free_symbols}
        self.known |= symbols
        if not symbols or isinstance(value, tuple | list):
            return
        self.places.append(node)
        waiting, self.waiting = self.waiting, []
        for promise, made in waiting:
            if promise.promised.free_symbols <= self.known:
                after = _After(self.graph, node)
                self._assert(after, self._tests([(promise, made)], after), {}, {})
            else:
                self.waiting.append((promise, made))

    def _maker(self, node: fx.Node, drawn: Sequence[sympy.Symbol]) -> None:
        """Inserts assertions for the numbers that a call makes."""
        promised = _promised(node, drawn, self.known)
        if not promised:
            return
        results = _results(node, self.graph)
        values = {k: each.meta["val"] for k, each in results.items()}
        after = _After(self.graph, [*results.values()][-1])
        _substitute(node, results, values, promised)
        numbers = [(p, n) for p in promised if (n := after.number(p.own, results.values())) is not None]
        self.complete &= len(numbers) == len(promised)
        now = [(p, n) for p, n in numbers if p.promised.free_symbols <= self.known]
        self.waiting += [(p, n) for p, n in numbers if not p.promised.free_symbols <= self.known]
        tests = self._tests(now, after)
        _substitute(node, results, values, [p for p, _, _ in tests])
        self._assert(after, tests, results, values)

    def _tests(self, numbers: Sequence[tuple[_Promise, fx.Node]], after: _After) -> list[_Test]:
        """Nodes that compare numbers with their promised values, for each promise that can be computed."""
        expected = [(p, n, after.expected(p.promised, self.places)) for p, n in numbers]
        self.complete &= all(value is not None for _, _, value in expected)
        return [(p, after.call(operator.eq, n, value), p.message) for p, n, value in expected if value is not None]

    def _assert(
        self, after: _After, tests: Sequence[_Test], results: Mapping[int, fx.Node], values: Mapping[int, Any]
    ) -> None:
        """Inserts assertions; their results replace those results that no longer have the promised ``values``."""
        changed = [k for k, each in results.items() if each.meta["val"] is not values[k]]
        tensors = [k for k in changed if isinstance(values[k], torch.Tensor)]
        for _, test, message in tests[:-1] if tensors else tests:
            after.call(ASSERT, test, message)
        for k in tensors:
            _, test, message = tests[-1]
            after.take_over(results[k], after.call(_ASSERTED, test, message, results[k], value=values[k]))
        for k in changed:
            if k not in tensors:
                after.take_over(results[k], after.expected(expression(values[k]), self.places))


_Test = tuple[_Promise, fx.Node, str]


@dataclass
class _After:
    """Inserts nodes behind ``last``, in order."""

    graph: fx.Graph
    last: fx.Node
    made: set[fx.Node] = field(default_factory=set)

    def call(self, target: Callable[..., Any], *args: Any, value: Any = None) -> fx.Node:
        """Inserts a node. The value of arithmetic is computed from the arguments' values."""
        with self.graph.inserting_after(self.last):
            node = self.graph.call_function(target, args)
        node.meta = origin_of(self.last)
        values = (a.meta["val"] if isinstance(a, fx.Node) else a for a in args)
        node.meta["val"] = target(*values) if target in (operator.eq, torch.sym_ite) else value
        self._add(node)
        return node

    def expected(self, promised: sympy.Expr, places: Iterable[fx.Node]) -> fx.Node | int | float | None:
        """A promised number: a Python number if it is known, else a node; None if it cannot be computed from the
        numbers of ``places``.
        """
        if promised in (sympy.true, sympy.false):
            return bool(promised)
        if promised.is_Integer:
            return int(promised)
        if promised.is_Number:
            return float(promised) if isfinite(float(promised)) else None
        return self.number(promised, places)

    def number(self, target: sympy.Expr, places: Iterable[fx.Node]) -> fx.Node | None:
        """A node that computes ``target`` from the numbers of ``places``; None if that is impossible."""
        known: dict[sympy.Expr, fx.Node] = {}
        for place in places:
            for size, node in self._read(place, target):
                known.setdefault(size, node)
        if target in known or not known:
            return known.get(target)
        env = _env(*known.values())
        before, node_of_target = {*self.graph.nodes}, None
        with suppress(NotRecorded):
            node_of_target = number(
                (env.create_symintnode if target.is_integer else env.create_symfloatnode)(target, hint=None),
                known,
                self.graph,
            )
        for node in [n for n in self.graph.nodes if n not in before]:
            self.last.append(node)
            self._add(node)
        return node_of_target

    def _read(self, place: fx.Node, target: sympy.Expr) -> Iterator[tuple[sympy.Expr, fx.Node]]:
        """The numbers of ``place`` that contain symbols of ``target``, each with a node that reads it."""
        value = place.meta["val"]
        for k, size in enumerate(_numbers(value)):
            symbols = expression(size).free_symbols & target.free_symbols
            if not symbols:
                continue
            if isinstance(size, torch.SymBool):  # it is true if its symbol, 0 or 1, is 1
                yield symbols.pop(), self.call(torch.sym_ite, place, 1, 0)
            elif not isinstance(value, torch.Tensor):
                yield expression(size), place
            elif k < value.dim():
                yield expression(size), self.call(aten.sym_size.int, place, k, value=size)

    def take_over(self, node: fx.Node, instead: Any) -> None:
        """Replaces ``node`` by ``instead``, if that is not None, in all nodes that were not inserted here."""
        for user in [*node.users] if instead is not None else ():
            if user not in self.made:
                user.args, user.kwargs = fx.map_arg((user.args, user.kwargs), lambda a: instead if a is node else a)

    def _add(self, node: fx.Node) -> None:
        self.made.add(node)
        self.last = node


# -- what a call makes, and promises of it ----------------------------------------------------------------------------


def _call_of(node: fx.Node) -> fx.Node:
    """The call of which a node is a result (a ``getitem``), or the node itself."""
    picks = node.target is operator.getitem and isinstance(node.args[0], fx.Node)
    return node.args[0] if picks else node  # type: ignore[return-value]


def _numbers(value: Any) -> list[Any]:
    """The symbolic numbers of a value: the sizes and then the strides of a tensor, or the numbers in a list."""
    if isinstance(value, tuple | list):
        return [n for v in value for n in _numbers(v) if isinstance(n, Symbolic)]
    if isinstance(value, torch.Tensor):
        return [*value.shape, *(value.stride() if value.layout is torch.strided else ())]
    return [value] if isinstance(value, Symbolic) else []


def _env(*nodes: fx.Node) -> Any:
    """The shape environment of the given values."""
    for node in nodes:
        value = node.meta["val"]
        for v in value if isinstance(value, tuple | list) else (value,):
            if isinstance(v, FakeTensor):
                return v.fake_mode.shape_env
            if isinstance(v, Symbolic):
                return v.node.shape_env
    raise AssertionError("a call that makes sizes has a value")


def _promised(node: fx.Node, drawn: Sequence[sympy.Symbol], known: Collection[sympy.Symbol]) -> list[_Promise]:
    """The promises about the numbers that a call makes: a number is promised if its expression is more than its own
    symbol.
    """
    env, promises = _env(node), []
    for raw in drawn:
        promised = env.replace(raw)
        if promised.is_Symbol and late(promised) and promised not in known:
            continue
        with env.ignore_fresh_unbacked_symbols():
            own = expression(env.create_unbacked_symint() if raw.is_integer else env.create_unbacked_symfloat())
        if isinstance(node.meta["val"], torch.Tensor | tuple | list):
            env.constrain_symbol_range(own, compiler_min=0, compiler_max=_MANY)
        message = f"{_GENERATED} Eq({raw}, {promised}) on node '{node.name}'"
        promises.append(_Promise(raw, own, promised, _message(node) or message))
    return promises


def _message(node: fx.Node) -> str | None:
    """The user's message for the case that a number is not what is promised."""
    visited, todo = {node}, [node]
    while todo:
        for user in todo.pop(0).users:
            message = user.args[1] if user.target is ASSERT and _holds(user.args[0]) else None
            if isinstance(message, str) and not message.startswith(_GENERATED):
                return message
            if user not in visited and (_is_arithmetic(user) or user.target is operator.getitem):
                visited.add(user)
                todo.append(user)
    return None


def _results(node: fx.Node, graph: fx.Graph) -> dict[int, fx.Node]:
    """The nodes of a call's results that are tensors or numbers, by the result's number. They are placed directly
    behind the call.
    """
    values = node.meta["val"]
    if not isinstance(values, tuple | list):
        return {0: node}
    nodes: dict[int, fx.Node] = {}
    last = node
    for k, value in enumerate(values):
        picks = [u for u in node.users if u.target is operator.getitem and u.args[1] == k]
        if not picks and isinstance(value, torch.Tensor | Symbolic):
            with graph.inserting_after(last):
                picks = [graph.call_function(operator.getitem, (node, k))]
            picks[0].meta = {**origin_of(node), "val": value}
        for more in picks[1:]:
            more.replace_all_uses_with(picks[0])
            graph.erase_node(more)
        for pick in picks[:1]:
            last.append(pick)
            last = nodes[k] = pick
    return nodes


def _substitute(
    node: fx.Node, results: Mapping[int, fx.Node], values: Mapping[int, Any], promised: Sequence[_Promise]
) -> None:
    """Gives the results of a call their own symbols for the promised numbers. Their other numbers stay."""
    own, env = {p.raw: p.own for p in promised}, _env(node)
    for k, each in results.items():
        changed = any(_raw(n).free_symbols & own.keys() for n in _numbers(values[k]))
        each.meta["val"] = _with(values[k], own, env) if changed else values[k]
    value = node.meta["val"]
    if isinstance(value, tuple | list):
        node.meta["val"] = type(value)(results[k].meta["val"] if k in results else v for k, v in enumerate(value))


def _with(value: Any, own: Mapping[sympy.Symbol, sympy.Symbol], env: Any) -> Any:
    """A copy of a value in which ``own`` replaces symbols that its numbers had when they were made."""

    def number(n: Any) -> Any:
        if not isinstance(n, Symbolic):
            return n
        expr, kind = _raw(n).xreplace(own), type(n)
        if kind is torch.SymBool:
            return env.create_symboolnode(expr)
        return (env.create_symintnode if kind is torch.SymInt else env.create_symfloatnode)(expr, hint=None)

    if not isinstance(value, FakeTensor):
        return number(value)
    with value.fake_mode:
        return torch.empty_strided(
            [*map(number, value.shape)], [*map(number, value.stride())], dtype=value.dtype, device=value.device
        )


def _raw(value: Any) -> sympy.Expr:
    """The expression that a number had when it was made, before its symbols were replaced."""
    return value.node._expr if isinstance(value, Symbolic) else sympy.sympify(value)


# -- assertions that are there already --------------------------------------------------------------------------------


def _holds(condition: Any) -> bool:
    """True if a condition follows from what is known about sizes."""
    value = condition.meta.get("val") if isinstance(condition, fx.Node) else condition
    return constant_of(value) is True


def _is_arithmetic(node: fx.Node) -> bool:
    """True if a node computes numbers from numbers, or reads a number from a tensor."""
    return (
        node.op == "call_function"
        and node.target is not operator.getitem
        and (node.target in _SIZES or not is_operator(node.target))
    )


def _drop_folded(graph: fx.Graph) -> None:
    """Erases assertions that follow from what is known about sizes, because other assertions test that."""
    for node in graph.find_nodes(op="call_function", target=ASSERT):
        if _holds(node.args[0]):
            unused = {*node.all_input_nodes}
            graph.erase_node(node)
            while unused:
                one = unused.pop()
                if _is_arithmetic(one) and not one.users:
                    unused |= {*one.all_input_nodes}
                    graph.erase_node(one)


def _without_results(graph: fx.Graph) -> None:
    """Replaces assertions with unused results by assertions without results, which survive another trace of the
    graph.
    """
    for node in graph.find_nodes(op="call_function", target=_ASSERTED):
        if not node.users:
            node.target, node.args, node.meta["val"] = ASSERT, node.args[:2], None


def _behind_their_numbers(graph: fx.Graph) -> None:
    """Moves each assertion on numbers, with its arithmetic, behind the last number that it tests."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    inputs = graph.find_nodes(op="placeholder")
    behind: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.find_nodes(op="call_function", target=ASSERT):
        sources, needed = read_by(node)
        if sources:
            last = max(sources, key=number.__getitem__)
            moved = [*sorted(needed, key=number.__getitem__), node]
            behind.setdefault(inputs[-1] if last.op == "placeholder" else last, []).extend(moved)
    placed: dict[fx.Node, None] = {}
    for node in number:
        placed.setdefault(node)
        placed |= dict.fromkeys(n for n in behind.get(node, ()) if n not in placed)
    for before, node in pairwise(placed) if [*placed] != [*number] else ():
        before.append(node)


def read_by(assertion: fx.Node) -> tuple[set[fx.Node], set[fx.Node]]:
    """The nodes whose numbers an assertion tests, and the arithmetic nodes between them and the assertion."""
    sources, cone = set[fx.Node](), set[fx.Node]()
    todo = assertion.all_input_nodes
    while todo:
        node = todo.pop()
        if not _is_arithmetic(node):
            sources.add(node)
        elif node not in cone:
            cone.add(node)
            todo += node.all_input_nodes
    return sources, cone
