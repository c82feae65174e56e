"""A graph as an exported program: functional, with a signature that says what it writes to."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import torch
from torch import fx
from torch._guards import TracingContext, detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from keel.torch_adapter.sympy_expressions import Symbolic, expression
from keel.torch_adapter.traced_assertions import factorizations_checked, keep_silent_assertions
from keel.torch_adapter.trees import Tree

SizesFrom = Literal["from_graph", "from_tracing_context", "from_example_inputs"]
"""Where the sizes of a graph come from, in the words of ``torch._inductor.standalone_compile``."""


class CallSpec(Protocol):
    """How arguments and results are nested."""

    @property
    def in_spec(self) -> Tree: ...
    @property
    def out_spec(self) -> Tree: ...


class FunctionalProgram(Protocol):
    """What an exported program is to a compiler. ``ExportedProgram`` is one."""

    @property
    def graph_module(self) -> fx.GraphModule: ...
    @property
    def graph_signature(self) -> ExportGraphSignature: ...
    @property
    def state_dict(self) -> Mapping[str, Any]: ...
    @property
    def constants(self) -> Mapping[str, Any]: ...
    @property
    def range_constraints(self) -> Mapping[Any, Any]: ...
    @property
    def call_spec(self) -> CallSpec: ...


@dataclass(frozen=True)
class _CallSpec:
    in_spec: Tree
    out_spec: Tree


@dataclass(frozen=True)
class _Traced:
    graph_module: fx.GraphModule
    graph_signature: ExportGraphSignature
    state_dict: Mapping[str, Any]
    range_constraints: Mapping[Any, Any]
    call_spec: _CallSpec
    constants: Mapping[str, Any]


def traced_program(gm: fx.GraphModule, example_inputs: Sequence[Any], sizes: SizesFrom) -> FunctionalProgram:
    """A graph with flat inputs, of Dynamo or of ATen operators, as a functional program without gradients.

    ``from_graph``: the sizes are those of the values that its placeholders have (``val`` or ``example_value``).
    ``from_tracing_context``: they are those that PyTorch is tracing now. ``from_example_inputs``: they are those of
    ``example_inputs``, and only those of fake tensors with symbolic sizes are not fixed. Raises ValueError with a
    sentence if the graph lacks these values.
    """
    from torch._functorch.aot_autograd import aot_export_module  # its import takes long

    inputs = _inputs(gm, example_inputs, sizes)
    single = not isinstance(gm.graph.output_node().args[0], tuple | list)
    if single:  # AOTAutograd takes graphs that return a tuple
        gm = fx.GraphModule(gm, copy.copy(gm.graph))
        output = gm.graph.output_node()
        output.args = ((output.args[0],),)
        gm.recompile()
    with torch.no_grad(), keep_silent_assertions(gm), factorizations_checked():
        try:
            made, facts = aot_export_module(gm, inputs, trace_joint=False)
        except RuntimeError as e:  # it writes to what autograd needs, or to a part of an input
            raise ValueError(str(e).partition("\n")[0]) from e
    traced = cast(fx.GraphModule, made)
    if facts.input_tokens or facts.output_tokens:
        raise ValueError("It has effects with an order.")
    state = {**dict(gm.named_parameters(remove_duplicate=False)), **dict(gm.named_buffers(remove_duplicate=False))}
    mode = detect_fake_mode([n.meta.get("val") for n in traced.graph.find_nodes(op="placeholder")])
    known = {} if mode is None or mode.shape_env is None else mode.shape_env.var_to_range
    used = {s for n in traced.graph.find_nodes(op="placeholder") for s in _symbols(n.meta.get("val"))}
    ranges = {symbol: span for symbol, span in known.items() if symbol in used}
    arguments = pytree.tree_structure(((0,) * len(inputs), {}))
    spec = _CallSpec(arguments, facts.out_spec.child(0) if single else facts.out_spec)
    return _Traced(traced, _signature(traced, facts), state, ranges, spec, {})


def _inputs(gm: fx.GraphModule, example_inputs: Sequence[Any], sizes: SizesFrom) -> list[Any]:
    if sizes == "from_tracing_context":
        if TracingContext.try_get() is None:
            raise ValueError("PyTorch is not tracing.")
        return list(example_inputs)
    if sizes == "from_example_inputs":
        mode = detect_fake_mode(example_inputs) or FakeTensorMode(shape_env=ShapeEnv())
        return [_fake(mode, value) for value in example_inputs]
    values = []
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val", node.meta.get("example_value"))
        if value is None:
            raise ValueError(f"The placeholder {node.name} has no value.")
        values.append(value)
    context = TracingContext.try_get()
    if context is not None and context.fake_mode is not None and context.fake_mode is detect_fake_mode(values):
        return list(example_inputs)  # Dynamo made the graph just now. Its context knows more, as of numbers in tensors.
    return values


def _fake(mode: FakeTensorMode, value: Any) -> Any:
    return mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value


def _symbols(value: Any) -> set[Any]:
    sizes = (*value.shape, *value.stride(), value.storage_offset()) if isinstance(value, torch.Tensor) else (value,)
    return {symbol for size in sizes if isinstance(size, Symbolic) for symbol in expression(size).free_symbols}


def _signature(traced: fx.GraphModule, facts: Any) -> ExportGraphSignature:
    """The signature that AOTAutograd returned, in the classes of ``torch.export``."""
    inputs = []
    for node in traced.graph.find_nodes(op="placeholder"):
        if (target := facts.inputs_to_parameters.get(node.name)) is not None:
            inputs.append(InputSpec(InputKind.PARAMETER, TensorArgument(node.name), target))
        elif (target := facts.inputs_to_buffers.get(node.name)) is not None:
            inputs.append(InputSpec(InputKind.BUFFER, TensorArgument(node.name), target, persistent=True))
        else:
            inputs.append(InputSpec(InputKind.USER_INPUT, _argument(node), None))
    results: Sequence[Any] = traced.graph.output_node().args[0]  # type: ignore[assignment]
    written = {**facts.buffers_to_mutate, **facts.parameters_to_mutate, **facts.user_inputs_to_mutate}
    outputs = []
    for position, node in enumerate(results):
        # Writes come first; a result of the user may be the same node.
        name = node.name if isinstance(node, fx.Node) else ""
        if position < len(written) and name in facts.user_inputs_to_mutate:
            target = facts.user_inputs_to_mutate[name]
            outputs.append(OutputSpec(OutputKind.USER_INPUT_MUTATION, _argument(node), target))
        elif position < len(written):
            outputs.append(OutputSpec(OutputKind.BUFFER_MUTATION, _argument(node), written[name]))
        else:
            outputs.append(OutputSpec(OutputKind.USER_OUTPUT, _argument(node), None))
    return ExportGraphSignature(inputs, outputs)


def _argument(node: Any) -> Any:
    if not isinstance(node, fx.Node):
        return ConstantArgument("", node)
    value = node.meta.get("val")
    return TensorArgument(node.name) if isinstance(value, torch.Tensor) else SymIntArgument(node.name)
