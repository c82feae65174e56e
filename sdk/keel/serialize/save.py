"""Saves a functional graph as a file, with its operators decomposed to members of the opset."""

from __future__ import annotations

import io
import json
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, floor, trunc
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from keel.documents import MOST_MARKS, Item, Malformed, marks
from keel.errors import KeelError
from keel.graph.calls import is_call, source_line
from keel.graph.legalize import legalize
from keel.graph.verify import violations
from keel.plugin import Backend
from keel.serialize.archive import MOST_TEXT, write
from keel.serialize.codec import Data, NotSerializable, encode, encode_type
from keel.serialize.constants import plain
from keel.serialize.grammar import check, is_value_name
from keel.serialize.tree_specs import nested
from keel.spec import OPSET
from keel.spec.lock import overloads
from keel.spec.versions import CURRENT, convert, version
from keel.torch_adapter import Captured, Symbolic, facts_of, functional, is_overload, parameters, tidied, tree_text
from keel.types import Call

FORMAT = 1
"""The version of the file format.  The opset has a version of its own."""

NUMBERS: Mapping[str, Callable[..., Any]] = {
    **{
        f"python.{f.__name__}": f
        for f in (
            operator.getitem,
            operator.add,
            operator.sub,
            operator.mul,
            operator.floordiv,
            operator.truediv,
            operator.mod,
            operator.pow,
            operator.neg,
            operator.pos,
            operator.eq,
            operator.ne,
            operator.lt,
            operator.le,
            operator.gt,
            operator.ge,
            operator.and_,
            operator.or_,
            operator.not_,
            operator.lshift,
            operator.rshift,
            ceil,
            floor,
            trunc,
            int,
            float,
            bool,
            abs,
            min,
            max,
            round,
        )
    },
    **{
        f"torch.{name}": getattr(torch, name)
        for name in ("sym_max", "sym_min", "sym_float", "sym_int", "sym_not", "sym_ite", "sym_sum")
    },
}
"""Functions for arithmetic on numbers and for ``getitem``, by their names in files."""

SIZES = ("aten.sym_size.int", "aten.sym_stride.int", "aten.sym_numel.default", "aten.sym_storage_offset.default")
"""Operators that read sizes.  They belong to every opset."""

_NAMES = {f: name for name, f in NUMBERS.items()}
_DO = "Trace it with torch.export, or with make_fx and tracing_mode='symbolic' or 'fake'."
_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def save_graph(
    graph: fx.GraphModule | ExportedProgram, path: str | os.PathLike[str], *, opset: str | None = None
) -> None:
    """Writes a graph with its constants, its types and the version of the opset to ``path``.

    ``graph`` is an exported program, or a functional graph of ATen operators whose nodes have values (``meta["val"]``),
    as ``make_fx`` and AOTAutograd trace them. Operators that are not members of the opset are decomposed to members.
    ``opset`` is an older version to write for.

    Raises KeelError[bad-graph] if the graph is not functional, has an operator outside the opset, or exceeds the limits
    of ``load_graph`` (about 60,000 calls and 16,384 constants). Raises KeelError[opset-version] if the graph cannot be
    expressed in the version ``opset``.
    """
    target = CURRENT if opset is None else version(opset)
    data, constants = _exported(graph) if isinstance(graph, ExportedProgram) else _plain(graph)
    data = convert(data, target, lambda v: overloads(v) | frozenset((*NUMBERS, *SIZES)))
    held = io.BytesIO()
    torch.save(plain(constants), held)
    try:
        check(data)
        for tree in Item(data.get("trees", []), "trees").items():
            nested(tree)
    except Malformed as e:
        raise KeelError("bad-graph", "The graph cannot be saved.", {e.place: e.why}) from e
    text = json.dumps(data, indent=1)  # in ASCII
    if len(text) > MOST_TEXT or marks(text) > MOST_MARKS:
        raise KeelError(
            "bad-graph", "The graph cannot be saved.", {"graph.json": "It exceeds the limits of load_graph."}
        )
    write(Path(path), {"graph.json": text.encode(), "constants.pt": held.getvalue()})


# -- the two kinds of graph -------------------------------------------------------------------------------------------


def _plain(gm: fx.GraphModule) -> tuple[Data, dict[str, torch.Tensor]]:
    _check(gm)
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    results = gm.graph.output_node().args[0]
    if not isinstance(results, list | tuple):
        graph.output_node().args = ((graph.output_node().args[0],),)
    captured = tidied(fx.GraphModule(gm, graph), "inference")
    in_members = _in_members(captured)
    data = _program(in_members, captured.constants, {}, encode(in_members.graph.output_node().args[0]), [])
    return {**data, "single": not isinstance(results, list | tuple)}, dict(captured.constants)


def _check(gm: fx.GraphModule) -> None:
    """Raises KeelError[bad-graph] unless the graph is a functional graph of operators."""
    held = {n.name for n in gm.graph.find_nodes(op="get_attr")}
    ends = {n.name for n in gm.graph.find_nodes(op="output")}  # a single result counts as a tuple of one
    problems = {name: why for name, why in violations(gm) if name not in held | ends}
    if problems:
        first = next(n for n in gm.graph.nodes if n.name in problems)
        raise KeelError("bad-graph", "The graph cannot be saved.", problems, source_line(first), _DO)


def _exported(program: ExportedProgram) -> tuple[Data, dict[str, torch.Tensor]]:
    program = functional(program)
    signature, trees = program.graph_signature, program.call_spec
    fixed = {}
    constants: dict[str, torch.Tensor] = {}
    placeholders = {n.name: n for n in program.graph.find_nodes(op="placeholder")}
    for spec in signature.input_specs:
        if spec.kind in _STORED:
            held = program.state_dict if str(spec.target) in program.state_dict else program.constants
            constants[spec.arg.name] = held[str(spec.target)]
        elif spec.kind is not InputKind.USER_INPUT:
            raise unfit_program(spec.arg.name, spec.kind.name)
        elif not isinstance(value := placeholders[spec.arg.name].meta["val"], torch.Tensor | Symbolic):
            fixed[spec.arg.name] = value
    captured = tidied(program.graph_module, "inference")
    constants |= captured.constants
    in_members = _in_members(captured)
    named = {str(s.target): s.arg.name for s in signature.input_specs if s.target is not None}
    results, writes, outputs = [], [], in_members.graph.output_node().args[0]
    assert isinstance(outputs, list | tuple)
    for out, value in zip(signature.output_specs, outputs, strict=True):
        if out.kind in _WRITES:
            writes.append([named.get(str(out.target), str(out.target)), encode(value)])
        elif out.kind is OutputKind.USER_OUTPUT:
            results.append(encode(value))
        else:
            raise unfit_program(out.arg.name, out.kind.name)
    data = _program(in_members, constants, fixed, results, writes)
    for name, span in ((str(s), span) for s, span in program.range_constraints.items()):
        if name in data["symbols"]:
            data["symbols"][name] |= {side: _bound(getattr(span, side)) for side in ("lower", "upper")}
    assert trees is not None
    if odd := [name for name in trees.in_spec.child(1).context if not is_value_name(name)]:
        raise KeelError(
            "bad-graph",
            "The program cannot be saved.",
            {str(odd[0]): "The name of a keyword argument must consist of ASCII letters, digits and underscores."},
        )
    try:
        return {**data, "trees": [tree_text(trees.in_spec), tree_text(trees.out_spec)]}, constants
    except ValueError as e:
        raise KeelError("bad-graph", "The program cannot be saved.", {"arguments or results": str(e)}) from e


def _bound(value: Any) -> int | None:
    return int(value) if getattr(value, "is_Integer", isinstance(value, int)) and abs(int(value)) < 2**62 else None


def unfit_program(name: str, kind: str) -> KeelError:
    """The error for an exported program with an input or a result of that ``kind``."""
    return KeelError(
        "bad-graph",
        "The exported program does more than compute tensors from tensors.",
        {name: f"It is of kind {kind}."},
        do="Export it for inference, without effects and objects.",
    )


# -- to members -------------------------------------------------------------------------------------------------------


def _refusal(call: Call) -> str | None:
    if call.op in OPSET:
        return None
    return f"It is not a member of opset {CURRENT}, so no version of the opset defines it."


_OPSET = Backend(name="opset", device="*", supports=_refusal, compile=lambda gm: gm.forward)


def _in_members(captured: Captured) -> fx.GraphModule:
    """Decomposes all operators that are not members, in inner graphs too."""
    try:
        gm = legalize(captured, [_OPSET]).gm
    except KeelError as e:
        if e.code != "no-owner":
            raise
        what = e.what.replace("no backend takes", "no opset has")
        raise KeelError(
            "bad-graph",
            f"The graph cannot be saved: {what}",
            e.reasons,
            e.where,
            "A file cannot hold custom operators, or operators that PyTorch cannot decompose.",
        ) from e
    for node in gm.graph.find_nodes(op="get_attr"):
        inner = getattr(gm, str(node.target))
        if not isinstance(inner, fx.GraphModule):
            raise KeelError("bad-graph", f"{node.target} is neither a tensor nor a graph.", do=_DO)
        _check(inner)
        setattr(gm, str(node.target), _in_members(Captured(inner, "inference", {})))
    return gm


# -- to data ----------------------------------------------------------------------------------------------------------


def _program(
    gm: fx.GraphModule, constants: Mapping[str, Any], fixed: Mapping[str, Any], results: Any, writes: Sequence[Any]
) -> dict[str, Any]:
    graph = {**graph_data(gm, constants, fixed), "results": results, "writes": list(writes)}
    return {
        "keel": "graph",
        "format": FORMAT,
        "opset": str(CURRENT),
        "torch": str(torch.__version__),
        "symbols": {name: vars(facts) for name, facts in facts_of(numbers_of(gm)).items()},
        "graph": graph,
    }


def numbers_of(gm: fx.GraphModule) -> Iterator[Any]:
    """Yields the sizes and numbers of all values of a graph and of the graphs inside it."""
    for graph in (gm, *_inner(gm).values()):
        for node in graph.graph.nodes:
            yield from _numbers(node.meta.get("val"))


def _numbers(value: Any) -> Iterator[Any]:
    """Yields the sizes of a value."""
    match value:
        case torch.Tensor():
            yield from (*value.shape, *value.stride(), value.storage_offset())
        case list() | tuple():
            for v in value:
                yield from _numbers(v)
        case _:
            yield value


def _inner(gm: fx.GraphModule) -> dict[str, fx.GraphModule]:
    return {str(n.target): getattr(gm, str(n.target)) for n in gm.graph.find_nodes(op="get_attr")}


def graph_data(gm: fx.GraphModule, constants: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs, constants and calls of a graph as data. Inputs in ``fixed`` have a value instead of a type."""
    inputs, nodes = [], []
    problems: dict[str, str] = {}
    for node in gm.graph.nodes:
        try:
            if node.op == "placeholder" and node.name in fixed:
                inputs.append({"name": node.name, "fixed": encode(fixed[node.name])})
            elif node.op == "placeholder":
                inputs.append({"name": node.name, "out": _type(node)})
            elif node.op == "call_function":
                nodes.append({"name": node.name, **_call(node), "out": _type(node)})
        except NotSerializable as e:
            problems[f"%{node.name} = {node.target}"] = str(e)
    if problems:
        raise KeelError("bad-graph", "The graph cannot be saved.", problems)
    return {
        "inputs": [i for i in inputs if i["name"] not in constants],
        "constants": [i for i in inputs if i["name"] in constants],
        "nodes": nodes,
        "graphs": {
            name: {**graph_data(g, {}, {}), "results": encode(g.graph.output_node().args[0]), "writes": []}
            for name, g in _inner(gm).items()
        },
    }


def _type(node: fx.Node) -> Data:
    """The type of a node as data. An assertion in an inner graph may have none."""
    if "val" not in node.meta and not (is_overload(node.target) and not node.target._schema.returns):  # type: ignore[union-attr]
        raise NotSerializable("Its type is not known.")
    return encode_type(node.meta.get("val"))


def _call(node: fx.Node) -> dict[str, Any]:
    """Returns an overload's arguments by parameter name; ``default`` names those with their default value. The
    arguments of any other function are returned unchanged.
    """
    if not is_overload(node.target):
        name = Call(node.target, (), {}, ()).name if is_call(node) else _NAMES.get(node.target)  # type: ignore[arg-type]
        if name is None:
            raise NotSerializable("It is neither an operator nor a known function for arithmetic on numbers.")
        return {
            "op": name,
            "given": [encode(a) for a in node.args],
            "named": {k: encode(v) for k, v in node.kwargs.items()},
        }
    args, default = {}, []
    assert callable(node.target)
    for i, p in enumerate(parameters(node.target)):
        is_given = p.name in node.kwargs or (i < len(node.args) and not p.keyword_only)
        value = node.kwargs[p.name] if p.name in node.kwargs else node.args[i] if is_given else p.default
        args[p.name] = encode(value)
        if not p.required and same(args[p.name], encode(p.default)):
            default.append(p.name)
    return {"op": str(node.target), "args": args, "default": default}


def same(a: Data, b: Data) -> bool:
    """True if two encoded values are equal; 1, 1.0 and True differ."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
