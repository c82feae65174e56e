"""Loads a graph from a file: updates it to this Keel's opset, builds it for this PyTorch, and adds a check of
arguments.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx

from keel.documents import Item, Malformed, bad_file, parsed, shown
from keel.errors import KeelError
from keel.serialize.archive import members
from keel.serialize.codec import Data, NotSerializable, decode, decode_type, encode
from keel.serialize.constants import unpacked
from keel.serialize.grammar import check, is_value_name
from keel.serialize.input_guard import entry
from keel.serialize.pickled import unpickled
from keel.serialize.save import FORMAT, NUMBERS, SIZES, same
from keel.serialize.tree_specs import nested
from keel.spec import MEMBERS
from keel.spec.lock import overloads
from keel.spec.versions import CURRENT, convert
from keel.torch_adapter import (
    Fakes,
    SymbolFacts,
    Tree,
    is_call_tree,
    is_overload,
    nest,
    operator_named,
    parameters,
    tree_of,
)

aten = torch.ops.aten


_OF_PYTORCH = ("aten", "prims", "prim", "python")
"""The namespaces of operators that PyTorch registers itself, and of arithmetic on numbers."""
_BARRED: Mapping[str, str] = {name: op.barred for op in MEMBERS.values() if op.barred for name in op.overloads}
"""Operators that no file may call, and why."""


def load_graph(path: str | os.PathLike[str], *, containers: Collection[type] = ()) -> fx.GraphModule:
    """Loads a graph that ``keel.serialize.save_graph`` wrote: a functional graph of ATen operators with a value on
    every node, and its constants as parameters and buffers.

    An exported program is called as it was exported, and ends in copies to the inputs and buffers that it writes. Any
    other graph takes its flat inputs and returns its flat results. Arguments of types that the graph was not traced for
    raise KeelError[bad-input].

    The file may come from anybody. It is checked as data, by a closed grammar and within limits, before anything is
    built from it: loading imports nothing, unpickles nothing and runs no code of the file's choice. The file may name
    container classes of two kinds: named tuples and data classes that this process registered with PyTorch, and classes
    listed in ``containers``. A listed class's own code reads the data that its registration wrote into the file.

    Raises KeelError[bad-file], with the place and the problem, unless the file is a saved graph. Raises
    KeelError[opset-version] if it needs another opset, or something that this PyTorch lacks.
    """
    try:
        data, constants = _opened(Path(path))
        return _loaded(data, constants, containers, path)
    except Malformed as e:
        raise bad_file(path, e, what=_WHAT) from e


_WHAT = "It is not a graph that keel.serialize.save_graph wrote."


def _opened(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Reads the file and checks its content."""
    try:
        if not path.is_file():
            raise KeelError("bad-option", f"There is no file {path}.")
        with path.open("rb") as file:
            parts = members(file, path.stat().st_size, 4, ("graph.json",))
    except OSError as e:
        raise Malformed("", e.strerror or str(e)) from e
    if "graph.json" not in parts:
        raise Malformed("", "It has no graph.json.")
    data = parsed(parts["graph.json"], "graph.json")
    head = data if isinstance(data, dict) else {}
    if isinstance(number := head.get("format"), int) and number > FORMAT and head.get("keel") == "graph":
        raise KeelError(
            "opset-version",
            f"{path} is of format {shown(number)}; this Keel reads format {FORMAT}.",
            do="Load it with a newer Keel.",
        )
    check(data)
    if parts.keys() != {"graph.json", "constants.pt"}:
        raise Malformed("", "It has members other than graph.json and constants.pt.")
    table, content = unpickled(parts["constants.pt"])
    return data, unpacked(Item(table, "constants"), content)


def _loaded(
    data: dict[str, Any],
    constants: Mapping[str, torch.Tensor],
    containers: Collection[type],
    path: str | os.PathLike[str],
) -> fx.GraphModule:
    data = convert(data, CURRENT, lambda v: overloads(v) | frozenset((*NUMBERS, *SIZES)))
    used = {*_calls(data["graph"]), *_operators(data["graph"])}
    if unknown := sorted(used - overloads(CURRENT) - {*NUMBERS, *SIZES}):
        raise KeelError(
            "opset-version",
            f"{path} calls an operator that opset {CURRENT} does not have.",
            dict.fromkeys(unknown, "It is not a member."),
            do="Load it with the Keel that wrote it.",
        )
    if barred := sorted(used & _BARRED.keys()):
        raise Malformed("graph", f"It calls {barred[0]}. {_BARRED[barred[0]]}")
    try:
        return _Loading(data, constants, containers).run()
    except (KeelError, Malformed):
        raise
    except Exception as e:  # PyTorch may raise anything for values that no graph has
        raise Malformed("graph", f"{type(e).__name__}: {e}".partition("\n")[0][:300]) from e


def _operators(data: Any) -> set[str]:
    """Yields the operators among arguments."""
    match data:
        case {"operator": str(name)}:
            return {name}
        case dict():
            return set().union(*map(_operators, data.values()))
        case list():
            return set().union(*map(_operators, data))
    return set()


def _calls(graph: Data) -> set[str]:
    return {n["op"] for n in graph["nodes"]}.union(*(_calls(g) for g in graph["graphs"].values()))


def graph_module(data: Data, *, typed: bool = True) -> fx.GraphModule:
    """The graph module of ``data``: the symbols and the graph of a file that was checked, or that is trusted. A graph
    that only runs does not have to be ``typed``: fake values take long to make, and import much of PyTorch.
    """
    return _Loading(data, {}, (), typed).module(data["graph"])


class _Loading:
    """Builds the graph module of one file."""

    def __init__(
        self,
        data: dict[str, Any],
        constants: Mapping[str, torch.Tensor],
        containers: Collection[type],
        typed: bool = True,
    ) -> None:
        self.data, self.constants, self.containers = data, constants, containers
        facts = {name: SymbolFacts(**facts) for name, facts in data["symbols"].items()}
        self.fakes = Fakes(facts) if typed else None

    def run(self) -> fx.GraphModule:
        data = self.data
        trees = self.trees()
        module = self.module(data["graph"])
        graph, results = module.graph, module.graph.output_node().args[0]
        if trees:
            nest(graph, *trees)
        elif data.get("single"):
            graph.output_node().args = (results[0],)  # type: ignore[index]
        module.recompile()
        check = entry(data["graph"], data["symbols"], trees[0] if trees else None)
        module.register_forward_pre_hook(check, with_kwargs=True)
        return module

    def trees(self) -> list[Tree]:
        """Returns the trees of arguments and results, if they are nested."""
        if "trees" not in self.data:
            return []
        texts, made = Item(self.data["trees"], "trees").items(count=2), []
        for item in texts:
            tree = nested(item)
            try:
                made.append(tree_of(tree, self.containers))
            except (ValueError, TypeError) as e:
                raise Malformed(item.place, str(e)) from e
        graph = self.data["graph"]
        results = graph["results"] if isinstance(graph["results"], list) else graph["results"]["tuple"]
        for item, tree, values in zip(texts, made, (graph["inputs"], results), strict=True):
            if tree.num_leaves != len(values):
                item.refuse(f"It has {tree.num_leaves} leaves for {len(values)} values.")
        if not is_call_tree(made[0]) or not all(is_value_name(name) for name in made[0].child(1).context):
            texts[0].refuse("Arguments must be a tuple and a dict whose keys are names.")
        return made

    def module(self, graph: Data) -> fx.GraphModule:
        root, made = torch.nn.Module(), fx.Graph()
        nodes: dict[str, fx.Node] = {}
        for input in graph["inputs"]:
            node = nodes[input["name"]] = made.placeholder(input["name"])
            if "fixed" in input:
                node.meta["val"] = decode(input["fixed"], _none, _none)
            else:
                self.give_type(node, input["out"])
        for constant in graph["constants"]:
            nodes[constant["name"]] = self.constant(root, made, constant)
        for name, inner in graph["graphs"].items():
            root.add_module(name, self.module(inner))

        def inner_graph(name: str) -> fx.Node:
            return made.get_attr(name)

        written = {name: nodes[name] for name, _ in graph["writes"]}
        for name, place in written.items():  # autograd may save a value that is read here and written later
            nodes[name] = made.call_function(aten.clone.default, (place,))
            nodes[name].meta["val"] = place.meta["val"]
        for node in graph["nodes"]:
            nodes[node["name"]] = self.call(made, node, nodes, inner_graph)
        for name, value in graph["writes"]:
            write = made.call_function(aten.copy_.default, (written[name], decode(value, nodes.__getitem__, _none)))
            write.meta["val"] = written[name].meta["val"]
        made.output(decode(graph["results"], nodes.__getitem__, inner_graph))
        return fx.GraphModule(root, made)

    def constant(self, root: torch.nn.Module, made: fx.Graph, constant: Data) -> fx.Node:
        name = constant["name"]
        if name not in self.constants:
            raise Malformed("constants", f"There is no tensor for {name}.")
        assert self.fakes is not None, "only a typed graph has constants"
        value, type_ = self.constants[name], decode_type(constant["out"], self.fakes)
        if (value.dtype, tuple(value.shape), value.device.type) != (type_.dtype, tuple(type_.shape), type_.device.type):
            raise Malformed("constants", f"{name} does not have the type that the graph declares.")
        if isinstance(value, torch.nn.Parameter):
            root.register_parameter(name, value)
        else:
            root.register_buffer(name, value)
        node = made.get_attr(name)
        node.meta["val"] = type_
        return node

    def call(self, made: fx.Graph, node: Data, nodes: Mapping[str, fx.Node], inner: Any) -> fx.Node:
        def value(data: Data) -> Any:
            return decode(data, nodes.__getitem__, inner)

        target: Any = NUMBERS.get(node["op"]) or operator_named(node["op"])
        if target is None and node["op"].partition(".")[0] not in _OF_PYTORCH:
            do = "Import the package that registers the operator, and load the file again."
            raise _lacking(node, f"No package that was imported registers {node['op']}.", do)
        if target is None:
            raise _lacking(node, f"This PyTorch has no {node['op']}.")
        if is_overload(target):
            if "args" not in node:
                raise NotSerializable(f"%{node['name']} does not give the arguments of {node['op']} by keyword.")
            args, kwargs = _arguments(node, target)
        elif "args" in node:
            raise NotSerializable(f"%{node['name']} gives the arguments of {node['op']} by keyword.")
        else:
            args, kwargs = node["given"], node["named"]
        result = made.create_node(
            "call_function",
            target,
            tuple(map(value, args)),
            {k: value(v) for k, v in kwargs.items()},
            name=node["name"],
        )
        self.give_type(result, node["out"])
        return result

    def give_type(self, node: fx.Node, data: Data) -> None:
        """Gives a node its fake value, in a typed graph."""
        if self.fakes is not None:
            node.meta["val"] = decode_type(data, self.fakes)


def _none(name: str) -> fx.Node:
    raise NotSerializable(f"{name} is not an earlier value.")


def _arguments(node: Data, target: Any) -> tuple[list[Data], dict[str, Data]]:
    """Returns the arguments as this PyTorch's overload takes them, without those that equal its defaults."""
    arguments, known = node["args"], {p.name: p for p in parameters(target)}
    for name, value in arguments.items():
        if name not in known and name not in node["default"]:
            raise _lacking(
                node,
                f"The graph sets {name!r} of {node['op']} to {value}, but this PyTorch's overload lacks it.",
            )
    if lost := [p.name for p in known.values() if p.required and p.name not in arguments]:
        raise _lacking(node, f"This PyTorch's {node['op']} needs {', '.join(lost)}, which the graph does not give.")
    needed = [
        p
        for p in known.values()
        if p.name in arguments and (p.required or not same(arguments[p.name], encode(p.default)))
    ]
    positional = [p for p in known.values() if not p.keyword_only]
    last = max((i for i, p in enumerate(positional) if p in needed), default=-1)
    return (
        [arguments[p.name] if p.name in arguments else encode(p.default) for p in positional[: last + 1]],
        {p.name: arguments[p.name] for p in needed if p.keyword_only},
    )


def _lacking(
    node: Data, why: str, do: str = "Load the graph with the PyTorch that it was saved with, or a newer one."
) -> KeelError:
    what = f"PyTorch {torch.__version__} cannot run %{node['name']}."
    return KeelError("opset-version", what, {node["op"]: why}, do=do)
