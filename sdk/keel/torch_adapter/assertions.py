"""Assertions on sizes and numbers that only a run tells, put where what relies on them cannot come before them.

``torch._check(x.nonzero().size(0) == 4)`` has PyTorch say at once that the size is 4, in the types of all that is
traced, and fold the condition to True. A graph that says so has no assertion left, and its types hold in no run that
breaks it. Here the call that makes the size gets a symbol of its own for it back, an assertion compares the two, and
all that relies on the size takes the *result* of that assertion. So the order is one of values, which no later stage
can lose.

A number that is only known to lie within bounds keeps its symbol. Its assertion is moved directly behind the numbers
that it is about, and what stands behind an assertion waits for it (see ``keel.graph.assertion_calls``).
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

from keel.torch_adapter.numbers import NotRecorded, number
from keel.torch_adapter.operators import is_operator, may_alias
from keel.torch_adapter.recorder import fake_mode_of
from keel.torch_adapter.symbols import Symbolic, constant_of, expression, late, symbols_of

aten = torch.ops.aten
ASSERT = aten._assert_scalar.default
_ASSERTED = aten._functional_assert_scalar.default
_SIZES = (aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default, aten.sym_storage_offset.default)
_MANY = 2**63 - 1
_GENERATED = "Runtime assertion failed for expression"
"""How messages begin that are PyTorch's and not the user's."""


def assert_promises(gm: fx.GraphModule) -> None:
    """Changes ``gm``, and the graphs that its operators of higher order take.

    Afterwards the result of a call that makes sizes or numbers (``nonzero``, ``item`` ...) has symbols of its own for
    them. Where PyTorch promises something else, an assertion follows, whose result has the promised type and takes the
    place of the call's. Assertions that were folded to True are gone. Those that are left stand directly behind the
    last number that they are about. What is promised of inputs is left alone: Dynamo guards it, and what a backward
    graph is given has been asserted in the forward graph.
    """
    if any(map(late, symbols_of(fake_mode_of(gm)))):
        _assert_promises(gm, _Made(gm.graph))


def _assert_promises(gm: fx.GraphModule, made: _Made) -> None:
    made.assert_all()
    for node in gm.graph.find_nodes(op="get_attr"):
        body = getattr(gm, str(node.target), None)
        if isinstance(body, fx.GraphModule):  # of what it is given, its operands have been asserted
            _assert_promises(body, _Made(body.graph, {*made.seen}, {*made.drawn}))
            body.recompile()
    if made.complete:
        _drop_folded(gm.graph)
    _without_results(gm.graph)
    _behind_their_numbers(gm.graph)


@dataclass(frozen=True)
class _Promise:
    """That the number which a call makes is ``said``; ``raw`` is the symbol that it had, ``own`` the one it gets."""

    raw: sympy.Symbol
    own: sympy.Symbol
    said: sympy.Expr
    message: str


@dataclass
class _Made:
    """The numbers that a graph makes. ``seen`` are the symbols that some node so far tells, ``drawn`` those that its
    numbers had when they were made, ``places`` the nodes that tell them. ``waiting`` are promises, each with the node
    of its number, that depend on what comes later. ``complete`` says whether each promise has an assertion."""

    graph: fx.Graph
    seen: set[sympy.Symbol] = field(default_factory=set)
    drawn: set[sympy.Symbol] = field(default_factory=set)
    places: list[fx.Node] = field(default_factory=list)
    waiting: list[tuple[_Promise, fx.Node]] = field(default_factory=list)
    complete: bool = True

    def assert_all(self) -> None:
        """Has an assertion for each promise."""
        makers = set[fx.Node]()
        for node in [*self.graph.nodes]:
            if drawn := self._drawn(node):
                makers.add(node)
                if node.op != "placeholder" and not may_alias(node.target):  # numbers of a view are those it is given
                    self._maker(node, drawn)
            if node.op == "placeholder" or _call_of(node) in makers:
                self._see(node)
        self.complete &= not self.waiting

    def _drawn(self, node: fx.Node) -> list[sympy.Symbol]:
        """The symbols that a call or an input is the first to have had for numbers that only a run tells."""
        if node.op != "placeholder" and not (is_operator(node.target) and node.target not in _SIZES):
            return []
        numbers = _numbers(node.meta.get("val"))
        found = {s for n in numbers for s in late(_raw(n))} - self.drawn
        self.drawn |= found
        return sorted(found, key=str)

    def _see(self, node: fx.Node) -> None:
        """Notes what the value of a node tells, and asserts what waits for that."""
        value = node.meta.get("val")
        told = {s for n in _numbers(value) for s in expression(n).free_symbols}
        self.seen |= told
        if not told or isinstance(value, tuple | list):
            return
        self.places.append(node)
        waiting, self.waiting = self.waiting, []
        for promise, made in waiting:
            if promise.said.free_symbols <= self.seen:
                after = _After(self.graph, node)
                self._assert(after, self._tests([(promise, made)], after), {}, {})
            else:
                self.waiting.append((promise, made))

    def _maker(self, node: fx.Node, drawn: Sequence[sympy.Symbol]) -> None:
        """Has assertions for the numbers that a call makes."""
        promised = _promised(node, drawn, self.seen)
        if not promised:
            return
        results = _results(node, self.graph)
        values = {k: each.meta["val"] for k, each in results.items()}
        after = _After(self.graph, [*results.values()][-1])
        _substitute(node, results, values, promised)
        numbers = [(p, n) for p in promised if (n := after.number(p.own, results.values())) is not None]
        self.complete &= len(numbers) == len(promised)
        now = [(p, n) for p, n in numbers if p.said.free_symbols <= self.seen]
        self.waiting += [(p, n) for p, n in numbers if not p.said.free_symbols <= self.seen]
        tests = self._tests(now, after)
        _substitute(node, results, values, [p for p, _, _ in tests])
        self._assert(after, tests, results, values)

    def _tests(self, numbers: Sequence[tuple[_Promise, fx.Node]], after: _After) -> list[_Test]:
        """Nodes that say whether numbers are what is promised, of those whose promise can be computed."""
        expected = [(p, n, after.expected(p.said, self.places)) for p, n in numbers]
        self.complete &= all(said is not None for _, _, said in expected)
        return [(p, after.call(operator.eq, n, said), p.message) for p, n, said in expected if said is not None]

    def _assert(
        self, after: _After, tests: Sequence[_Test], results: Mapping[int, fx.Node], values: Mapping[int, Any]
    ) -> None:
        """Has assertions, and what they give take the place of results that no longer have the promised ``values``."""
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
    """Makes nodes behind ``last``, in order."""

    graph: fx.Graph
    last: fx.Node
    made: set[fx.Node] = field(default_factory=set)

    def call(self, target: Callable[..., Any], *args: Any, value: Any = None) -> fx.Node:
        """A new node; of arithmetic, with the value that follows from the arguments'."""
        with self.graph.inserting_after(self.last):
            node = self.graph.call_function(target, args)
        node.meta = {k: v for k, v in self.last.meta.items() if k in WHERE}
        given = (a.meta["val"] if isinstance(a, fx.Node) else a for a in args)
        node.meta["val"] = target(*given) if target in (operator.eq, torch.sym_ite) else value
        self._add(node)
        return node

    def expected(self, said: sympy.Expr, places: Iterable[fx.Node]) -> fx.Node | int | float | None:
        """A promised number, plain if it is known; None where it does not follow from what the places tell."""
        if said in (sympy.true, sympy.false):
            return bool(said)
        if said.is_Integer:
            return int(said)
        if said.is_Number:
            return float(said) if isfinite(float(said)) else None
        return self.number(said, places)

    def number(self, wanted: sympy.Expr, places: Iterable[fx.Node]) -> fx.Node | None:
        """A node that computes ``wanted`` from what the places tell; None where it does not follow from that."""
        known: dict[sympy.Expr, fx.Node] = {}
        for place in places:
            for size, node in self._read(place, wanted):
                known.setdefault(size, node)
        if wanted in known or not known:
            return known.get(wanted)
        env = _env(*known.values())
        before, found = {*self.graph.nodes}, None
        with suppress(NotRecorded):
            found = number(
                (env.create_symintnode if wanted.is_integer else env.create_symfloatnode)(wanted, hint=None),
                known,
                self.graph,
            )
        for node in [n for n in self.graph.nodes if n not in before]:
            self.last.append(node)
            self._add(node)
        return found

    def _read(self, place: fx.Node, wanted: sympy.Expr) -> Iterator[tuple[sympy.Expr, fx.Node]]:
        """What a value tells of the symbols of ``wanted``, and nodes that read it."""
        value = place.meta["val"]
        for k, size in enumerate(_numbers(value)):
            symbols = expression(size).free_symbols & wanted.free_symbols
            if not symbols:
                continue
            if isinstance(size, torch.SymBool):  # whether the symbol, 0 or 1, is 1
                yield symbols.pop(), self.call(torch.sym_ite, place, 1, 0)
            elif not isinstance(value, torch.Tensor):
                yield expression(size), place
            elif k < value.dim():
                yield expression(size), self.call(aten.sym_size.int, place, k, value=size)

    def take_over(self, node: fx.Node, instead: Any) -> None:
        """Has all but what was made here use ``instead``, if it is not None, in place of ``node``."""
        for user in [*node.users] if instead is not None else ():
            if user not in self.made:
                user.args, user.kwargs = fx.map_arg((user.args, user.kwargs), lambda a: instead if a is node else a)

    def _add(self, node: fx.Node) -> None:
        self.made.add(node)
        self.last = node


WHERE = ("stack_trace", "nn_module_stack", "source_fn_stack", "seq_nr", "partitioner_tag", "custom")
"""What a node that is made beside another one takes over of its ``meta``."""


# -- what a call makes, and promises of it ----------------------------------------------------------------------------


def _call_of(node: fx.Node) -> fx.Node:
    """The call that a node picks a result of, or the node."""
    picks = node.target is operator.getitem and isinstance(node.args[0], fx.Node)
    return node.args[0] if picks else node  # type: ignore[return-value]


def _numbers(value: Any) -> list[Any]:
    """The symbolic numbers among the sizes of a tensor, then its strides, or among values."""
    if isinstance(value, tuple | list):
        return [n for v in value for n in _numbers(v) if isinstance(n, Symbolic)]
    if isinstance(value, torch.Tensor):
        return [*value.shape, *(value.stride() if value.layout is torch.strided else ())]
    return [value] if isinstance(value, Symbolic) else []


def _env(*nodes: fx.Node) -> Any:
    """The shape environment of values."""
    for node in nodes:
        value = node.meta["val"]
        for v in value if isinstance(value, tuple | list) else (value,):
            if isinstance(v, FakeTensor):
                return v.fake_mode.shape_env
            if isinstance(v, Symbolic):
                return v.node.shape_env
    raise AssertionError("a call that makes sizes has a value")


def _promised(node: fx.Node, drawn: Sequence[sympy.Symbol], seen: Collection[sympy.Symbol]) -> list[_Promise]:
    """What is promised of the numbers that a call makes: of those whose symbol is not just their name."""
    env, found = _env(node), []
    for raw in drawn:
        said = env.replace(raw)
        if said.is_Symbol and late(said) and said not in seen:
            continue
        with env.ignore_fresh_unbacked_symbols():
            own = expression(env.create_unbacked_symint() if raw.is_integer else env.create_unbacked_symfloat())
        if isinstance(node.meta["val"], torch.Tensor | tuple | list):
            env.constrain_symbol_range(own, compiler_min=0, compiler_max=_MANY)
        message = f"{_GENERATED} Eq({raw}, {said}) on node '{node.name}'"
        found.append(_Promise(raw, own, said, _message(node) or message))
    return found


def _message(node: fx.Node) -> str | None:
    """What the user has to say where a number that a call makes is not what is promised."""
    seen, todo = {node}, [node]
    while todo:
        for user in todo.pop(0).users:
            said = user.args[1] if user.target is ASSERT and _holds(user.args[0]) else None
            if isinstance(said, str) and not said.startswith(_GENERATED):
                return said
            if user not in seen and (_is_arithmetic(user) or user.target is operator.getitem):
                seen.add(user)
                todo.append(user)
    return None


def _results(node: fx.Node, graph: fx.Graph) -> dict[int, fx.Node]:
    """The nodes of a call's results that are tensors or numbers, by number, directly behind it."""
    values = node.meta["val"]
    if not isinstance(values, tuple | list):
        return {0: node}
    found: dict[int, fx.Node] = {}
    last = node
    for k, value in enumerate(values):
        picks = [u for u in node.users if u.target is operator.getitem and u.args[1] == k]
        if not picks and isinstance(value, torch.Tensor | Symbolic):
            with graph.inserting_after(last):
                picks = [graph.call_function(operator.getitem, (node, k))]
            picks[0].meta = {**{key: v for key, v in node.meta.items() if key in WHERE}, "val": value}
        for more in picks[1:]:
            more.replace_all_uses_with(picks[0])
            graph.erase_node(more)
        for pick in picks[:1]:
            last.append(pick)
            last = found[k] = pick
    return found


def _substitute(
    node: fx.Node, results: Mapping[int, fx.Node], values: Mapping[int, Any], promised: Sequence[_Promise]
) -> None:
    """Has the results of a call have their own symbols for what is promised, and else what they had."""
    own, env = {p.raw: p.own for p in promised}, _env(node)
    for k, each in results.items():
        changed = any(_raw(n).free_symbols & own.keys() for n in _numbers(values[k]))
        each.meta["val"] = _with(values[k], own, env) if changed else values[k]
    whole = node.meta["val"]
    if isinstance(whole, tuple | list):
        node.meta["val"] = type(whole)(results[k].meta["val"] if k in results else v for k, v in enumerate(whole))


def _with(value: Any, own: Mapping[sympy.Symbol, sympy.Symbol], env: Any) -> Any:
    """A value with other symbols in place of some of those that its numbers had when they were made."""

    def number(n: Any) -> Any:
        if not isinstance(n, Symbolic):
            return n
        found, kind = _raw(n).xreplace(own), type(n)
        if kind is torch.SymBool:
            return env.create_symboolnode(found)
        return (env.create_symintnode if kind is torch.SymInt else env.create_symfloatnode)(found, hint=None)

    if not isinstance(value, FakeTensor):
        return number(value)
    with value.fake_mode:
        return torch.empty_strided(
            [*map(number, value.shape)], [*map(number, value.stride())], dtype=value.dtype, device=value.device
        )


def _raw(value: Any) -> sympy.Expr:
    """The expression of a number as it was when it was made, before more was known of its symbols."""
    return value.node._expr if isinstance(value, Symbolic) else sympy.sympify(value)


# -- assertions that are there already --------------------------------------------------------------------------------


def _holds(condition: Any) -> bool:
    """Whether a condition is True by what is known of sizes."""
    value = condition.meta.get("val") if isinstance(condition, fx.Node) else condition
    return constant_of(value) is True


def _is_arithmetic(node: fx.Node) -> bool:
    """Whether a node computes numbers from numbers, or reads one off a tensor."""
    return (
        node.op == "call_function"
        and node.target is not operator.getitem
        and (node.target in _SIZES or not is_operator(node.target))
    )


def _drop_folded(graph: fx.Graph) -> None:
    """Erases assertions that hold by what is known of sizes: others make sure of that."""
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
    graph."""
    for node in graph.find_nodes(op="call_function", target=_ASSERTED):
        if not node.users:
            node.target, node.args, node.meta["val"] = ASSERT, node.args[:2], None


def _behind_their_numbers(graph: fx.Graph) -> None:
    """Moves each assertion on numbers, with the arithmetic that it needs, behind the last number that it is about."""
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
    """The nodes whose numbers an assertion is about, and the arithmetic on them that it needs."""
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
