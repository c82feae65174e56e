"""A functional graph with the values that it is called with, as plain data: what a reduction makes smaller.

A program has lists and numbers, names and tensors, so that it goes from process to process and becomes text.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from keel.errors import KeelError
from keel.torch_adapter import copy_of, is_overload, map_leaves

GETITEM = "getitem"
LOW = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Value:
    """The value that the program calls by this name."""

    name: str


@dataclass(frozen=True)
class Call:
    """A call of the operator ``op`` (``aten.add.Tensor``, or ``getitem`` of a result that is a list)."""

    name: str
    op: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()

    @property
    def uses(self) -> tuple[str, ...]:
        """The names of the values that it reads, each once."""
        names: dict[str, None] = {}
        map_values(lambda v: names.setdefault(v.name), (self.args, self.kwargs))
        return tuple(names)

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional arguments, and the others by name."""
        return self.args, dict(self.kwargs)

    def mapped(self, change: Callable[[Any], Any]) -> Call:
        """The call with each leaf of its arguments changed."""
        args, kwargs = map_leaves(change, (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)


@dataclass(frozen=True)
class Program:
    """Calls in order, from ``params`` to ``outputs``. ``inputs`` has, for each time that it is run, a value for each
    parameter. ``kind`` is that of the graph: inference, forward or backward.
    """

    params: tuple[str, ...]
    calls: tuple[Call, ...]
    outputs: tuple[str, ...]
    inputs: tuple[tuple[Any, ...], ...]
    kind: str = "inference"

    @property
    def size(self) -> int:
        """The number of its calls of operators."""
        return sum(call.op != GETITEM for call in self.calls)


def map_values(change: Callable[[Value], Any], value: Any) -> Any:
    """Nested lists and tuples with each value of a program changed."""
    return map_leaves(lambda v: change(v) if isinstance(v, Value) else v, value)


# -- from graphs -------------------------------------------------------------------------------------------------------


def program_of(gm: fx.GraphModule, inputs: Sequence[Any], kind: str = "inference") -> Program:
    """The program of a graph that is called with these inputs. Numbers that it computes become constants, because the
    sizes of its inputs are known. Raises KeelError[bad-graph] for a graph that contains other graphs.
    """
    values = node_values(gm, inputs)
    params, calls, outputs, known = list[str](), list[Call](), list[str](), dict[str, Any]()
    for node in gm.graph.nodes:
        name = _name(node)
        if node.op == "placeholder":
            if isinstance(values[node], Tensor):
                params.append(name)
            else:
                known[name] = values[node]
        elif node.op == "call_function" and isinstance(values[node], int | float | bool | None):
            known[name] = values[node]
        elif node.op == "call_function" and (node.target is operator.getitem or is_overload(node.target)):
            op = GETITEM if node.target is operator.getitem else str(node.target)
            words: Any = fx.map_arg((node.args, dict(node.kwargs)), lambda n: Value(_name(n)))  # type: ignore
            call = Call(name, op, _plain(words[0]), tuple((k, _plain(v)) for k, v in words[1].items()))
            calls.append(call.mapped(lambda v: known[v.name] if isinstance(v, Value) and v.name in known else v))
        elif node.op == "output":
            outputs = [_name(n) for n in _results(node) if isinstance(values.get(n), Tensor)]
        else:
            raise KeelError(
                "bad-graph",
                f"The {kind} graph cannot be reduced.",
                {str(node.target): "It contains another graph, or calls something that is not an operator."},
            )
    tensors = tuple(_copied(v) for n in gm.graph.find_nodes(op="placeholder") if isinstance(v := values[n], Tensor))
    return pruned(Program(tuple(params), tuple(calls), tuple(dict.fromkeys(outputs)), (tensors,), kind))


def _name(node: fx.Node) -> str:
    return f"v_{node.name}" if not node.name.isidentifier() or node.name in ("torch", "sys", "math") else node.name


def _plain(value: Any) -> Any:
    """Lists and tuples without the classes of FX."""
    if isinstance(value, list | tuple):
        plain = [_plain(v) for v in value]
        return tuple(plain) if isinstance(value, tuple) else plain
    return value


def _results(node: fx.Node) -> list[Any]:
    results = node.args[0]
    return list(results) if isinstance(results, list | tuple) else [results]


def _copied(value: Any) -> Any:
    """A tensor with the same strides in memory of its own; other values are returned unchanged."""
    return fresh(value.detach().resolve_conj().resolve_neg()) if isinstance(value, Tensor) else value


def fresh(value: Any) -> Any:
    """A copy of a tensor with its strides, but dense if elements share memory; other values are returned unchanged."""
    if not isinstance(value, Tensor):
        return value
    return value.clone() if 0 in value.stride() else copy_of(value)


def node_values(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Any]:
    """The value of each node of a graph in eager PyTorch."""
    values: dict[fx.Node, Any] = {}

    class Keeper(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            values[n] = super().run_node(n)
            return values[n]

    with torch.no_grad():
        Keeper(gm).run(*inputs)
    return values


# -- running -----------------------------------------------------------------------------------------------------------


def function_of(op: str) -> Callable[..., Any]:
    """The operator of that name. Raises KeelError[bad-graph] if PyTorch has none."""
    if op == GETITEM:
        return operator.getitem
    value: Any = torch.ops
    for part in op.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as e:
            raise KeelError("bad-graph", f"PyTorch has no operator {op}.") from e
    if not is_overload(value):
        raise KeelError("bad-graph", f"{op} is not an overload of an operator.")
    return value  # type: ignore[no-any-return]


def run_calls(program: Program, inputs: Sequence[Any], change: Callable[[Any], Any] = lambda v: v) -> dict[str, Any]:
    """The value of each name, with each constant of the calls changed."""
    values: dict[str, Any] = dict(zip(program.params, inputs, strict=True))
    for call in program.calls:
        args, kwargs = map_leaves(
            lambda v: values[v.name] if isinstance(v, Value) else change(v), (call.args, call.kwargs)
        )
        values[call.name] = function_of(call.op)(*args, **dict(kwargs))
    return values


def evaluate(program: Program, *inputs: Any) -> tuple[Any, ...]:
    """The outputs in eager PyTorch."""
    values = run_calls(program, inputs)
    return tuple(values[name] for name in program.outputs)


# -- smaller programs --------------------------------------------------------------------------------------------------


def pruned(program: Program) -> Program:
    """The program without calls and parameters that no output needs."""
    names = {*program.outputs}
    for call in reversed(program.calls):
        if call.name in names:
            names |= {*call.uses}
    places = [k for k, p in enumerate(program.params) if p in names]
    return replace(
        program,
        params=tuple(program.params[k] for k in places),
        calls=tuple(call for call in program.calls if call.name in names),
        inputs=tuple(tuple(each[k] for k in places) for each in program.inputs),
    )


def with_calls(program: Program, names: Collection[str], values: Sequence[Mapping[str, Any]]) -> Program | None:
    """The program of these calls alone. What they read of other calls becomes a parameter with the value that it has
    in ``values``, for each of the inputs; a call that reads a list of another is left out with it. None if nothing
    is left.
    """
    calls, made = list[Call](), set[str]()
    for call in program.calls:
        outside = [u for u in call.uses if u not in made]
        if call.name in names and all(isinstance(v[u], Tensor) for u in outside for v in values):
            calls.append(call)
            made.add(call.name)
    read = {u for call in calls for u in call.uses}
    fresh = tuple(dict.fromkeys(u for call in calls for u in call.uses if u not in made))
    ends = tuple(
        c.name
        for c in calls
        if (c.name not in read or c.name in program.outputs) and all(isinstance(v[c.name], Tensor) for v in values)
    )
    if not ends:
        return None
    inputs = tuple(tuple(_copied(v[p]) for p in fresh) for v in values)
    return pruned(Program(fresh, tuple(calls), ends, inputs, program.kind))


def aliases(program: Program, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The outputs that share memory with a parameter: views of it, and the parameter itself."""
    held = {memory for p in program.params if (memory := _memory(values[p]))}
    return tuple(name for name in program.outputs if _memory(values[name]) in held)


def _memory(value: Any) -> int:
    """The address of a tensor's memory; 0 if it has none."""
    return value.untyped_storage().data_ptr() if isinstance(value, Tensor) and value.numel() else 0


def without_aliases(program: Program, values: Mapping[str, Any]) -> Program:
    """The program with copies of the outputs that share memory with a parameter. ``torch.compile`` computes such
    outputs itself, so that a backend does not get their calls.
    """
    names = {name: f"{name}_copy" for name in aliases(program, values)}
    copies = tuple(Call(copy, "aten.clone.default", (Value(name),)) for name, copy in names.items())
    outputs = tuple(names.get(name, name) for name in program.outputs)
    return replace(program, calls=(*program.calls, *copies), outputs=outputs) if names else program


def substitutes(program: Program, values: Mapping[str, Any]) -> Iterator[Program]:
    """Each call left out, with one of its arguments of the same type in its place."""
    for call in reversed(program.calls):
        result = values[call.name]
        for use in call.uses:
            if isinstance(result, Tensor) and _type(values[use]) == _type(result):
                yield renamed(program, call.name, use)


def _type(value: Any) -> Any:
    return (value.dtype, value.shape) if isinstance(value, Tensor) else None


def renamed(program: Program, name: str, by: str) -> Program:
    """The program that reads the value ``by`` in place of ``name``."""

    def other(v: Any) -> Any:
        return Value(by) if v == Value(name) else v

    calls = tuple(call.mapped(other) for call in program.calls if call.name != name)
    outputs = tuple(dict.fromkeys(by if o == name else o for o in program.outputs))
    made = {call.name for call in calls}
    return pruned(replace(program, calls=calls, outputs=tuple(o for o in outputs if o in made) or outputs))


def called_again(program: Program) -> Program:
    """The program called twice with the same values, with others in between."""
    (first,) = program.inputs[:1]
    other = tuple(_copied(x.flip(tuple(range(x.dim())))) for x in first)
    return replace(program, inputs=(first, other, first))
