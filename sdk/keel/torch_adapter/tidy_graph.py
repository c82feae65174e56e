"""Prepares a traced graph for backends: its constants become inputs, and calls that change no values are removed."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from keel.torch_adapter.dynamo_fma import replace_fma
from keel.torch_adapter.meta_bugs.apply import apply_fixes
from keel.torch_adapter.misread_sizes import restore_sizes
from keel.torch_adapter.recorder import fake_mode_of
from keel.torch_adapter.runtime_asserts import assert_promises
from keel.torch_adapter.squeezed import assert_kept

aten = torch.ops.aten


def tidy(gm: fx.GraphModule) -> dict[str, torch.Tensor]:
    """Prepares a graph that PyTorch has traced. Calls on numbers are run. Returns the constants by placeholder."""
    restore_sizes(gm)
    replace_fma(gm)
    apply_fixes(gm)
    constants = lift_constants(gm)
    for op in (aten.detach.default, aten.alias.default):  # these only matter to autograd
        for node in gm.graph.find_nodes(op="call_function", target=op):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    for node in gm.graph.find_nodes(op="call_function", target=aten._assert_tensor_metadata.default):
        if _has_metadata(node):  # torch.export asserts what the types of the graph say
            gm.graph.erase_node(node)
    for node in gm.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, OpOverload) and not node.target._schema.returns:
            node.meta.setdefault("val", None)
    for graph in (m.graph for m in gm.modules() if isinstance(m, fx.GraphModule)):
        for node in graph.find_nodes(op="call_function", target=aten.item.default):  # left by tracing before dispatch
            node.target = aten._local_scalar_dense.default
        _made_of_numbers(graph)
    assert_kept(gm)
    assert_promises(gm)
    return constants


def lift_constants(gm: fx.GraphModule) -> dict[str, torch.Tensor]:
    """Makes the tensors among a graph's attributes its last placeholders, and returns them by the names of these."""
    attributes: dict[str, list[fx.Node]] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        if isinstance(attribute(gm, str(node.target)), torch.Tensor):
            attributes.setdefault(str(node.target), []).append(node)
    mode = fake_mode_of(gm)
    constants: dict[str, torch.Tensor] = {}
    last = next((n for n in reversed(gm.graph.find_nodes(op="placeholder"))), None)
    for target, nodes in attributes.items():
        tensor = attribute(gm, target)
        with gm.graph.inserting_after(last) if last else gm.graph.inserting_before(next(iter(gm.graph.nodes))):
            last = gm.graph.placeholder(target.replace(".", "_").lstrip("_"))
        known = nodes[0].meta.get("val")
        if known is None:
            known = mode.from_tensor(tensor, static_shapes=True) if mode is not None else tensor
        last.meta = {"val": known}
        constants[last.name] = tensor
        for node in nodes:
            node.replace_all_uses_with(last)
            gm.graph.erase_node(node)
    return constants


def _has_metadata(node: fx.Node) -> bool:
    """True if an assertion about the dtype, the device and the layout of a tensor holds for its type, and the assertion
    says nothing of sizes.
    """
    arguments = dict(zip(("a", "size", "stride", "dtype"), node.args, strict=False)) | node.kwargs
    tensor = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], fx.Node) else None
    if not isinstance(tensor, torch.Tensor) or arguments.get("size") is not None or arguments.get("stride") is not None:
        return False
    facts = {"dtype": tensor.dtype, "device": tensor.device, "layout": tensor.layout}
    return all(arguments.get(name) in (None, fact) for name, fact in facts.items())


def _made_of_numbers(graph: fx.Graph) -> None:
    """Turns numbers in the place of tensors into tensors, because vmap converts them and gradients conjugate them."""
    for node in graph.find_nodes(op="call_function", target=aten._to_copy.default):
        if isinstance(node.args[0], fx.Node) and not isinstance(node.args[0].meta.get("val"), torch.Tensor):
            _make(node, node.args[0], node.meta["val"].dtype)
    for node in graph.nodes:
        if isinstance(node.target, OpOverload) and not node.all_input_nodes and _stand_for_tensors(node):
            with unset_fake_temporarily(), _disable_current_modes():
                value = node.target(*node.args, **node.kwargs)
                number = value.item()
            _make(node, number, value.dtype)


def _stand_for_tensors(node: fx.Node) -> bool:
    """True if all arguments of a call are numbers, although its operator takes tensors."""
    if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
        return False
    parameters = node.target._schema.arguments  # type: ignore[union-attr]
    tensors = [a for p, a in zip(parameters, node.args, strict=False) if str(p.type) == "Tensor"]
    return bool(tensors) and all(isinstance(a, int | float | complex) for a in tensors)


def _make(node: fx.Node, number: Any, dtype: torch.dtype) -> None:
    node.target, node.args = aten.scalar_tensor.default, (number,)
    node.kwargs = {"dtype": dtype, **{k: v for k, v in node.kwargs.items() if k == "device"}}


def attribute(gm: fx.GraphModule, target: str) -> Any:
    """The attribute of a path such as ``layer.weight``; None if a part of the path does not exist."""
    value: Any = gm
    for name in target.split("."):
        value = getattr(value, name, None)
    return value
