"""The closed grammar of a saved graph: checks the content of ``graph.json`` as data before a graph is built from it.

Names become part of the source that PyTorch writes for a graph, so each must be an identifier and not a keyword.
Operators are members of the opset, values are of the kinds in ``codec``, and ``size_limits`` bounds sizes. Content that
passes is data: building a graph from it imports nothing and runs no code from the file.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx

from keel.documents import Item, shown
from keel.serialize import size_limits
from keel.serialize.codec import DTYPES, LAYOUTS, MEMORY_FORMATS

MOST_NODES, MOST_NESTED, MOST_GRAPHS = 1 << 18, 32, 8
_LARGEST_SIZE = (1 << 63) - 1
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}")
_OPERATOR = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){1,2}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_DEVICE = re.compile(r"[a-z][a-z0-9]{0,31}(:[0-9]{1,3})?")
_RESERVED = frozenset(
    {*dir(fx.GraphModule), *vars(fx.GraphModule(torch.nn.Module(), fx.Graph())), "_in_spec", "_out_spec"}
)
"""Attributes of every graph module; no constant may have one of these names."""


def is_name(text: object) -> bool:
    """True if a text may be the name of an argument: an ASCII identifier that is not a Python keyword."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None and not keyword.iskeyword(text)


def is_value_name(text: object) -> bool:
    """True if a text may be the name of a value or a symbol: a valid name of an argument that does not start with two
    underscores and is not ``self``.
    """
    return is_name(text) and not str(text).startswith("__") and text != "self"


def check(data: Any, file: str = "") -> None:
    """Raises Malformed, with the place, unless the data is that of a saved graph."""
    program = Item(data, file)
    parts = program.record(("keel", "format", "opset", "torch", "symbols", "graph"), ("single", "trees"))
    parts["keel"].one_of(("graph",), "'graph'")
    parts["format"].integer(1, 1)
    parts["opset"].like(_VERSION, "a version of the opset, such as 1.0")
    parts["torch"].text(64)
    if ("trees" in parts) == ("single" in parts):
        program.refuse("It must have either `trees` (an exported program) or `single` (any other graph).")
    if "single" in parts:
        parts["single"].flag()
    check_graph(parts["symbols"], parts["graph"])


def check_graph(symbols: Item, graph: Item) -> None:
    """Raises Malformed, with the place, unless the data is that of a graph over these symbols."""
    bits = {}
    for name, facts in symbols.table(1 << 14).items():
        if not is_value_name(name):
            facts.refuse(f"{shown(name)} is not a valid name.")
        bits[name] = _symbol(facts)
    _Graph(bits).check(graph, 0, top_level=True)


def _symbol(facts: Item) -> int:
    """Returns the number of bits of the symbol's value while tracing, or the most that a size may have if it is
    unbacked.
    """
    record = facts.record(("hint", "lower", "upper", "positive", "kind"))
    kind = record["kind"].one_of(("int", "float"), "'int' or 'float'")
    record["positive"].flag()
    ends = [
        record[end].integer(-_LARGEST_SIZE, _LARGEST_SIZE)
        for end in ("lower", "upper")
        if record[end].value is not None
    ]
    if len(ends) == 2 and ends[0] > ends[1]:
        facts.refuse(f"The range from {ends[0]} to {ends[1]} is empty.")
    if record["hint"].value is None:
        return 63
    if kind == "float":
        record["hint"].number()
        return 64
    return record["hint"].integer(-_LARGEST_SIZE, _LARGEST_SIZE).bit_length()


class _Graph:
    """Checks a graph and the graphs inside it, which share its symbols."""

    def __init__(self, bits: dict[str, int]) -> None:
        self.bits = bits

    def check(self, graph: Item, depth: int, *, top_level: bool) -> None:
        if depth > MOST_GRAPHS:
            graph.refuse(f"Graphs are nested more than {MOST_GRAPHS} times.")
        parts = graph.record(("inputs", "constants", "nodes", "graphs", "results", "writes"))
        known: set[str] = set()
        for input in parts["inputs"].items(MOST_NODES):
            fields = input.record(("name",), ("fixed", "out"))
            if ("fixed" in fields) == ("out" in fields):
                input.refuse("It must have either a fixed value or a type.")
            _new_name(fields["name"], known)
            if "fixed" in fields:
                self.value(fields["fixed"], (), None)
            else:
                self.type(fields["out"])
        if parts["constants"].value and not top_level:
            parts["constants"].refuse("A graph inside another one cannot have constants.")
        for constant in parts["constants"].items(MOST_NODES):
            fields = constant.record(("name", "out"))
            _free_name(fields["name"].place, fields["name"], known)
            self.type(fields["out"], tensor=True)
        inner = parts["graphs"].table(1 << 12)
        for name, item in inner.items():
            _free_name(item.place, Item(name, item.place), known)
            self.check(item, depth + 1, top_level=False)
        places = frozenset(known) - inner.keys()
        known = set(places)
        for node in parts["nodes"].items(MOST_NODES):
            self.node(node, known, inner)
        for write in parts["writes"].items(MOST_NODES):
            place, value = write.items(count=2)
            if place.text() not in places:
                place.refuse(f"{shown(place.value)} is neither an argument nor a constant.")
            self.value(value, known, None)
        if not isinstance(parts["results"].value, list) and not (
            isinstance(parts["results"].value, dict) and [*parts["results"].value] == ["tuple"]
        ):
            parts["results"].refuse("The results are not a list of values.")
        self.value(parts["results"], known, None)

    def node(self, node: Item, known: set[str], inner: Collection[str]) -> None:
        by_name = isinstance(node.value, dict) and "args" in node.value
        fields = node.record(("name", "op", "out", *(("args", "default") if by_name else ("given", "named"))))
        fields["op"].like(_OPERATOR, "the full name of an operator")
        for key in ("args", "named"):
            for name, value in (fields[key].table(1 << 12) if key in fields else {}).items():
                if not is_name(name):
                    value.refuse(f"{shown(name)} is not a valid name.")
                self.value(value, known, inner)
        if by_name:
            for default in fields["default"].items(1 << 12):
                default.text(255)
        else:
            for value in fields["given"].items():
                self.value(value, known, inner)
        self.type(fields["out"])
        _new_name(fields["name"], known)

    def type(self, item: Item, depth: int = 0, *, tensor: bool = False) -> None:
        """Checks the type of a value."""
        if depth > MOST_NESTED:
            item.refuse(f"Lists are nested more than {MOST_NESTED} times.")
        match item.value:
            case None if not tensor:
                return
            case list() if not tensor:
                for part in item.items(MOST_NODES):
                    self.type(part, depth + 1)
                return
            case {"dtype": _}:
                fields = item.record(("dtype", "shape", "strides", "offset", "device"))
                fields["dtype"].one_of([*DTYPES], "a dtype")
                shape, strides = (fields[k].items(64) for k in ("shape", "strides"))
                if len(shape) != len(strides):
                    item.refuse(f"It has {len(shape)} sizes and {len(strides)} strides.")
                for size in (*shape, *strides, fields["offset"]):
                    if isinstance(size.value, int):
                        size.integer(0, _LARGEST_SIZE)
                    size_limits.check(size, self.bits)
                fields["device"].like(_DEVICE, "a device, such as cpu or cuda:0")
                return
            case {"bool": _} | {"int": _} | {"float": _} if not tensor and len(item.value) == 1:
                ((kind, value),) = item.record((), ("bool", "int", "float")).items()
                if kind == "float" and isinstance(value.value, dict):
                    self.value(value, (), None)
                else:
                    size_limits.check(value, self.bits)
                return
        item.refuse("It is not the type of a tensor." if tensor else "It is not a type.")

    def value(self, item: Item, known: Collection[str], inner: Collection[str] | None, depth: int = 0) -> None:
        """Checks an argument, or a result. Arguments of calls may be operators, and graphs of those named ``inner``;
        for other values it is None.
        """
        if depth > MOST_NESTED:
            item.refuse(f"Values are nested more than {MOST_NESTED} times.")

        def each(parts: list[Item]) -> None:
            for part in parts:
                self.value(part, known, inner, depth + 1)

        match item.value:
            case None | bool():
                return
            case int():
                item.integer()
            case float():
                item.number()
            case str():
                item.text()
            case list():
                each(item.items())
            case dict() if len(item.value) == 1:
                ((kind, held),) = item.table().items()
                self._tagged(item, kind, held, known, inner, each)
            case _:
                item.refuse("It is not an argument.")

    def _tagged(
        self,
        item: Item,
        kind: str,
        held: Item,
        known: Collection[str],
        inner: Collection[str] | None,
        each: Callable[[list[Item]], None],
    ) -> None:
        """Checks a value whose key names its kind: ``{kind: held}``."""
        match kind:
            case "complex":
                for part in held.items(count=2):
                    if not isinstance(part.value, dict):
                        part.number()
                    elif [*part.value] != ["float"]:
                        part.refuse("It is not a number.")
                each(held.items())
            case "node":
                if held.text() not in known:
                    held.refuse(f"{shown(held.value)} does not name an earlier value.")
            case "graph":
                if held.text() not in (inner or ()):
                    held.refuse(f"{shown(held.value)} does not name an inner graph of this one.")
            case "operator" if inner is None:
                held.refuse("Only calls take operators.")
            case "tuple":
                each(held.items())
            case "dict":
                for pair in held.items():
                    key, value = pair.items(count=2)
                    if not isinstance(key.value, str | int | float | bool):
                        key.refuse("It is not a key: a text or a number.")
                    each([key, value])
            case "slice":
                each(held.items(count=3))
            case _:
                if not _is_constant(kind, held):
                    item.refuse(f"{shown(kind)} is not a kind of argument.")


def _is_constant(kind: str, held: Item) -> bool:
    """Checks a number or a PyTorch name that JSON cannot express.  Returns False for any other kind."""
    match kind:
        case "float":
            held.one_of(("inf", "-inf", "nan"), "'inf', '-inf' or 'nan'")
        case "device":
            held.like(_DEVICE, "a device, such as cpu or cuda:0")
        case "operator":
            held.like(_OPERATOR, "the full name of an operator")
        case "dtype":
            held.one_of([*DTYPES], "a dtype")
        case "layout":
            held.one_of([*LAYOUTS], "a layout")
        case "memory_format":
            held.one_of([*MEMORY_FORMATS], "a memory format")
        case _:
            return False
    return True


def _new_name(item: Item, known: set[str]) -> None:
    """Adds a name, which must be unique in the graph."""
    if not is_value_name(item.value):
        item.refuse(f"{shown(item.value)} is not a valid name.")
    if item.value in known:
        item.refuse(f"Two values are named {item.value}.")
    known.add(item.value)


def _free_name(place: str, item: Item, known: set[str]) -> None:
    """Adds the name of an attribute of a graph module."""
    if isinstance(item.value, str) and item.value in _RESERVED:
        item.refuse(f"A graph module already has an attribute {item.value[:80]}.")
    _new_name(item, known)
