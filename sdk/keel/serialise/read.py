"""A graph from a file: brought to this Keel's opset, written for this PyTorch, checked when it is called."""
from __future__ import annotations

import io
import json
import keyword
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx

from keel.errors import KeelError
from keel.serialise.entry import entry
from keel.serialise.values import Data, NoForm, decode, decode_type, encode
from keel.serialise.write import FORMAT, NUMBERS, SIZES, same
from keel.spec.lock import overloads
from keel.spec.versions import CURRENT, convert
from keel.torch_adapter import Fakes, SymbolFacts, is_overload, nest, operator_named, parameters, tree_of

aten = torch.ops.aten


def load_graph(path: str | os.PathLike[str]) -> fx.GraphModule:
    """The graph that ``keel.save_graph`` wrote: a functional graph of ATen operators with a value on every node, its
    constants as parameters and buffers.

    An exported program is called as it was exported, and ends in copies to the inputs and buffers that it writes; any
    other graph takes and gives its flat inputs and results.  Arguments of types that the graph was not traced for raise
    KeelError[bad-input].  The file runs no code of its own.

    Raises KeelError[bad-text] for a file that is no saved graph, and KeelError[opset-version] for one that needs
    another opset, or what this PyTorch lacks.
    """
    data, constants = _opened(Path(path))
    try:
        data = convert(data, CURRENT, lambda v: overloads(v) | frozenset((*NUMBERS, *SIZES)))
        if unknown := sorted(_calls(data["graph"]) - overloads(CURRENT) - {*NUMBERS, *SIZES}):
            raise KeelError("opset-version", f"{path} calls what opset {CURRENT} does not have.",
                            {name: "It is no member." for name in unknown}, do="Load it with the Keel that wrote it.")
        return _Loading(data, constants).run()
    except (KeyError, TypeError, AttributeError) as e:
        raise _damaged(Path(path), f"{type(e).__name__}: {e}") from e
    except ValueError as e:
        raise _damaged(Path(path), str(e)) from e


def _opened(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    if not path.is_file():
        raise KeelError("bad-option", f"There is no file {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("graph.json"))
            constants = torch.load(io.BytesIO(archive.read("constants.pt")), weights_only=True)
        if data["keel"] != "graph" or not isinstance(data["format"], int):
            raise ValueError("It is something else.")
    except Exception as e:                                    # whatever a damaged archive makes its readers raise
        raise _damaged(path, f"{type(e).__name__}: {e}".partition("\n")[0]) from e
    if data["format"] != FORMAT:
        raise KeelError("opset-version", f"{path} is of format {data['format']}; this Keel reads format {FORMAT}.",
                        do="Load it with a newer Keel.")
    return data, constants


def _damaged(path: Path, why: str) -> KeelError:
    return KeelError("bad-text", f"{path} is not a graph that keel.save_graph wrote.", {path.name: why})


def _calls(graph: Data) -> set[str]:
    return {n["op"] for n in graph["nodes"]}.union(*(_calls(g) for g in graph["graphs"].values()))


class _Loading:
    """Builds the graph module of one file."""

    def __init__(self, data: dict[str, Any], constants: Mapping[str, torch.Tensor]) -> None:
        self.data, self.constants = data, constants
        self.fakes = Fakes({name: SymbolFacts(**facts) for name, facts in data["symbols"].items()})

    def run(self) -> fx.GraphModule:
        data = self.data
        module = self.module(data["graph"])
        graph, trees = module.graph, [tree_of(t) for t in data.get("trees", ())]
        results = graph.output_node().args[0]
        if trees:
            nest(graph, *trees)
        elif data.get("single"):
            graph.output_node().args = (results[0],)  # type: ignore[index]
        module.recompile()
        check = entry(data["graph"], data["symbols"], trees[0] if trees else None)
        module.register_forward_pre_hook(check, with_kwargs=True)
        return module

    def module(self, graph: Data) -> fx.GraphModule:
        root, made = torch.nn.Module(), fx.Graph()
        nodes: dict[str, fx.Node] = {}
        for given in graph["inputs"]:
            nodes[_name(given)] = made.placeholder(_name(given))
            nodes[_name(given)].meta["val"] = decode(given["fixed"], _none, _none) if "fixed" in given \
                else decode_type(given["out"], self.fakes)
        for constant in graph["constants"]:
            nodes[_name(constant)] = self.constant(root, made, constant)
        for name, inner in graph["graphs"].items():
            root.add_module(_name({"name": name}), self.module(inner))

        def inner_graph(name: str) -> fx.Node:
            _name({"name": name})
            return made.get_attr(name)
        written = {name: nodes[name] for name, _ in graph["writes"]}
        for name, place in written.items():                   # autograd may keep what is read, and then it is written
            nodes[name] = made.call_function(aten.clone.default, (place,))
            nodes[name].meta["val"] = place.meta["val"]
        for node in graph["nodes"]:
            nodes[_name(node)] = self.call(made, node, nodes, inner_graph)
        for name, value in graph["writes"]:
            write = made.call_function(aten.copy_.default, (written[name], decode(value, nodes.__getitem__, _none)))
            write.meta["val"] = written[name].meta["val"]
        made.output(decode(graph["results"], nodes.__getitem__, inner_graph))
        return fx.GraphModule(root, made)

    def constant(self, root: torch.nn.Module, made: fx.Graph, constant: Data) -> fx.Node:
        name, value = _name(constant), self.constants[constant["name"]]
        if isinstance(value, torch.nn.Parameter):
            root.register_parameter(name, value)
        else:
            root.register_buffer(name, value)
        node = made.get_attr(name)
        node.meta["val"] = decode_type(constant["out"], self.fakes)
        return node

    def call(self, made: fx.Graph, node: Data, nodes: Mapping[str, fx.Node], inner: Any) -> fx.Node:
        def value(data: Data) -> Any:
            return decode(data, nodes.__getitem__, inner)
        target: Any = NUMBERS.get(node["op"]) or operator_named(node["op"])
        if target is None:
            raise _lacking(node, f"This PyTorch has no {node['op']}.")
        if is_overload(target):
            args, kwargs = _arguments(node, target)
        else:
            args, kwargs = node["given"], node["named"]
        result = made.create_node("call_function", target, tuple(map(value, args)),
                                  {k: value(v) for k, v in kwargs.items()}, name=node["name"])
        result.meta["val"] = decode_type(node["out"], self.fakes)
        return result


def _name(entry: Data) -> str:
    """The name of a value, which becomes part of the source that PyTorch writes for a graph."""
    name = entry["name"]
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise NoForm(f"{name!r} is no name.")
    return name


def _none(name: str) -> fx.Node:
    raise NoForm(f"{name} is no value here.")


def _arguments(node: Data, target: Any) -> tuple[list[Data], dict[str, Data]]:
    """The arguments as this PyTorch's overload takes them, without those that have its default."""
    given, known = node["args"], {p.name: p for p in parameters(target)}
    for name, value in given.items():
        if name not in known and name not in node["default"]:
            raise _lacking(node, f"{node['op']} has no argument {name!r} here, and the graph sets it to {value}.")
    if lost := [p.name for p in known.values() if p.required and p.name not in given]:
        raise _lacking(node, f"{node['op']} needs {', '.join(lost)} here, which the graph does not give.")
    needed = [p for p in known.values()
              if p.name in given and (p.required or not same(given[p.name], encode(p.default)))]
    positional = [p for p in known.values() if not p.keyword_only]
    last = max((i for i, p in enumerate(positional) if p in needed), default=-1)
    return ([given[p.name] if p.name in given else encode(p.default) for p in positional[:last + 1]],
            {p.name: given[p.name] for p in needed if p.keyword_only})


def _lacking(node: Data, why: str) -> KeelError:
    return KeelError("opset-version", f"PyTorch {torch.__version__} cannot run %{node['name']}.", {node["op"]: why},
                     do="Load the graph with the PyTorch that it was saved with, or a newer one.")
