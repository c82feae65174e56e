"""The grammar of compiled graphs as data, for those that come from outside: checked before anything is made of them.

``records`` checks each value when it makes it. This module checks what is around the values, the graphs of parts, and
how large expressions of sizes may become. The cache does not need it: only Keel's own processes write its entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keel.artifact.records import ASSUMPTIONS
from keel.documents import Item, Malformed
from keel.serialize import size_limits
from keel.serialize.codec import NotSerializable
from keel.serialize.grammar import check_graph, is_value_name

MOST = 1 << 20
"""The most parts, inputs and outputs of a part, and the like."""
_BITS = 63
"""The bits of the value of a symbol."""
_NEEDED = ("name", "inputs", "outputs", "label", "promised", "owner", "nodes", "sizes", "fusions", "device")
_OPTIONAL = ("overwrites", "donated", "computed", "views", "casts", "loops", "graph")


def check_compiled(data: Any, place: str) -> None:
    """Raises Malformed, with the place, unless the data is that of ``graph_to_data``, as far as this module checks."""
    fields = Item(data, place).record(("link", "guards", "parts", "symbols"))
    bits = _symbols(fields["symbols"])
    for part in fields["parts"].items(MOST):
        _part(part)
    for name in ("link", "guards", "parts"):
        _sizes(fields[name].value, bits, fields[name].place)


def checked_for_saving(data: Any, place: str) -> Any:
    """The data of a compiled graph. Raises NotSerializable if it could not be loaded."""
    try:
        check_compiled(data, place)
    except Malformed as wrong:
        raise NotSerializable(f"{wrong.place}: {wrong.why}") from wrong
    return data


def check_boundary(data: Any, values: tuple[str, ...], place: str) -> None:
    """The same for what is around a call: the fields ``values``, the graph at its end, and the symbols of both."""
    fields = Item(data, place).record((*values, "end", "symbols"))
    bits = _symbols(fields["symbols"])
    for name in values:
        _sizes(fields[name].value, bits, fields[name].place)
    _graph(fields["end"])


def check_part_graph(data: Any, place: str) -> None:
    """The same for the graph of a part, of which its backend can compile it again."""
    fields = Item(data, place).record(("inputs", "outputs", "graph"), ("saved",))
    _names(fields["inputs"])
    _names(fields["outputs"])
    if "saved" in fields:
        fields["saved"].text(1 << 31)
    _graph(fields["graph"])


def _symbols(item: Item) -> dict[str, int]:
    for name, assumed in item.table(1 << 14).items():
        if not is_value_name(name):
            assumed.refuse("It does not have a valid name.")
        for flag in assumed.record((), sorted(ASSUMPTIONS)).values():
            flag.flag()
    return dict.fromkeys(item.value, _BITS)


def _part(item: Item) -> None:
    fields = item.record(_NEEDED, _OPTIONAL)
    for name in ("name", "label", "owner"):
        fields[name].text()
    for name in ("inputs", "outputs", "nodes", *(("donated",) if "donated" in fields else ())):
        _names(fields[name])
    if fields["device"].value is not None:
        fields["device"].text(64)
    for each in fields["overwrites"].table(MOST).values() if "overwrites" in fields else ():
        each.text()
    if "casts" in fields:
        fields["casts"].flag()
    if "views" in fields:
        views = fields["views"].record(("inputs", "graph"))
        for position in views["inputs"].items(MOST):
            position.integer(0, MOST)
        _graph(views["graph"])
    if ("loops" in fields) == ("graph" in fields):
        item.refuse("It must have either `loops` or `graph`.")
    if "loops" in fields:
        _loops(fields["loops"])
    else:
        check_part_graph(fields["graph"].value, fields["graph"].place)


def _loops(item: Item) -> None:
    fields = item.record(("program", "kernels"), ("constants",))
    for kernel in fields["kernels"].items(MOST):
        for text in kernel.items(count=2):
            text.text(1 << 24)
    for position in fields["constants"].items(MOST) if "constants" in fields else ():
        position.integer(0, MOST)


def _graph(item: Item) -> None:
    fields = item.record(("symbols", "graph"))
    check_graph(fields["symbols"], fields["graph"])


def _names(item: Item) -> None:
    for name in item.items(MOST):
        name.text()


def _sizes(data: Any, bits: Mapping[str, int], place: str) -> None:
    """Checks each expression among values. Places are written only of what is wrong, since there are many values."""
    match data:
        case {"size": expression} if len(data) == 1:
            size_limits.check(Item(expression, place), bits, size_limits.COMPILED)
        case dict():
            for value in data.values():
                if isinstance(value, list | dict):
                    _sizes(value, bits, place)
        case list():
            for value in data:
                if isinstance(value, list | dict):
                    _sizes(value, bits, place)
