"""Reads an FX graph: the call of a node, the types of values, aliases, and the user's source lines."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import fx
from torch.fx.immutable_collections import immutable_dict

from keel.errors import KeelError
from keel.spec.bind import bound
from keel.spec.excluded import exclusion_of_value, left_out
from keel.torch_adapter import dim_of, expression, is_operator, may_alias, tensor_type
from keel.types import Call, SymType, Type, leaves

_SIZES = frozenset(
    {"aten.sym_size.int", "aten.sym_stride.int", "aten.sym_numel.default", "aten.sym_storage_offset.default"}
)
_CACHE = "keel.call"


def type_of(value: object) -> Type:
    """The type of a fake tensor or of a number, symbolic or not.

    Raises KeelError[out-of-opset] for a tensor of a layout or dtype that is left out (sparse ...), and
    KeelError[bad-graph] for any other value.
    """
    match value:
        case torch.Tensor():
            if (exclusion := exclusion_of_value(value)) is not None:
                raise left_out(*exclusion, "A tensor")
            return tensor_type(value)
        case torch.SymInt():
            return SymType(dim_of(value))
        case torch.SymFloat():
            return SymType(expression(value), "float")
        case torch.SymBool():
            return SymType(expression(value), "bool")
        case bool():
            return SymType(value, "bool")
        case int():
            return SymType(value)
        case float():
            return SymType(value, "float")
    raise KeelError("bad-graph", f"{type(value).__name__} is not a value that a graph computes.")


def types_of(value: object) -> tuple[Type | None, ...]:
    """The types of a node's results, with None for a result that is not produced. Empty for a node without results."""
    if value is None:
        return ()
    if isinstance(value, tuple | list):
        return tuple(None if v is None else type_of(v) for v in leaves(value))
    return (type_of(value),)


def is_call(node: fx.Node) -> bool:
    """True if a node is an operator call; reading a size is not a call."""
    return node.op == "call_function" and is_operator(node.target) and str(node.target) not in _SIZES


def call_of(node: fx.Node) -> Call | None:
    """The operator call that a node makes.

    None for nodes without work: inputs, constants, the output, ``getitem`` on several results, and arithmetic on
    symbolic numbers, which includes reading a size.
    """
    if (cached := node.meta.get(_CACHE)) is not None and cached[0] is node.args and cached[1] is node.meta["val"]:
        call: Call = cached[2]
        return call
    if not is_call(node):
        return None
    assert callable(node.target)
    kwargs = immutable_dict({k: to_type(v) for k, v in node.kwargs.items()})  # all backends get this object
    call = Call(node.target, tuple(map(to_type, node.args)), kwargs, types_of(node.meta["val"]))
    node.meta[_CACHE] = (node.args, node.meta["val"], call)
    return call


def to_type(value: Any) -> Any:
    """Converts an argument for a call: nodes and tensors become types, also in lists. Anything else stays."""
    if isinstance(value, fx.Node):
        # A node without a value is a graph, the argument of a higher-order operator.
        return type_of(value.meta["val"]) if value.meta.get("val") is not None else f"%{value.target}"
    if isinstance(value, torch.Tensor):
        return type_of(value)
    if isinstance(value, list | tuple):
        return type(value)(map(to_type, value)) if type(value) in (list, tuple) else tuple(map(to_type, value))
    return value


def argument_node(node: fx.Node, name: str | None) -> fx.Node | None:
    """The node that is the argument ``name`` of a call; None if the node is another argument too."""
    if name is None or not callable(node.target):
        return None
    argument = bound(node.target, node.args, node.kwargs).get(name)
    occurrences = sum(v is argument for v in leaves([list(node.args), list(node.kwargs.values())]))
    return argument if isinstance(argument, fx.Node) and occurrences == 1 else None


def alias_bases(graph: fx.Graph) -> Mapping[fx.Node, frozenset[fx.Node]]:
    """Maps each node to the nodes whose memory its value may be in: the node itself, unless it is a view or a result of
    one.
    """
    bases: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in graph.nodes:
        bases[node] = _bases(node, bases)
    return bases


def _bases(node: fx.Node, bases: Mapping[fx.Node, frozenset[fx.Node]]) -> frozenset[fx.Node]:
    if node.op != "call_function":
        return frozenset({node})
    if node.target is operator.getitem:
        source, i = node.args
        assert isinstance(source, fx.Node) and isinstance(i, int)
        aliased = may_alias(source.target) if callable(source.target) else {}
        owner, result = source, (i if i in aliased else 0 if len(aliased) == 1 and 0 in aliased else None)
        several = isinstance(source.meta.get("val"), list)
        if result is None or (i not in aliased and not several):
            return frozenset({node})
    else:
        owner, result = node, 0
    aliased = may_alias(owner.target) if callable(owner.target) else {}
    aliased_arguments = [owner.args[k] for k in aliased.get(result, ()) if k < len(owner.args)]
    from_args = [bases[a] for a in leaves(aliased_arguments) if isinstance(a, fx.Node)]
    return frozenset().union(*from_args) if from_args else frozenset({node})


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*\n?(?P<code>[^\n]*)')


def source_line(node: fx.Node) -> str | None:
    """``path:line code`` of the user's innermost line that made the node; None if it is unknown. A path below the
    current directory is relative to it.
    """
    if (frame := _last_frame(node.meta.get("stack_trace") or "")) is None:
        return None
    file, line, code = frame
    if file.startswith(os.getcwd() + os.sep):
        file = os.path.relpath(file)
    return f"{file}:{line}   {code}".rstrip()


@lru_cache(maxsize=4096)  # the nodes that a line made have equal traces
def _last_frame(trace: str) -> tuple[str, str, str] | None:
    """The file, line and code of the last frame of a stack trace; None for a text without frames."""
    frames = list(_FRAME.finditer(trace))
    return (frames[-1]["file"], frames[-1]["line"], frames[-1]["code"].strip()) if frames else None
