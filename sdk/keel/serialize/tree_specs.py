"""Reads how arguments and results are nested.  A file has PyTorch's own text for it, read as data by a closed grammar.

PyTorch's own reader imports the modules that a file names, and calls functions that their containers registered.
"""

from __future__ import annotations

from typing import Any

from keel.documents import Item, Malformed, parsed

_ROWS = {
    "builtins.tuple": "tuple",
    "builtins.list": "list",
    "torch.Size": "Size",
    "torch.fx.immutable_collections.immutable_list": "immutable_list",
}
_TABLES = {
    "builtins.dict": "dict",
    "collections.OrderedDict": "OrderedDict",
    "torch.fx.immutable_collections.immutable_dict": "immutable_dict",
}


def nested(item: Item) -> Any:
    """Returns the tree that a text describes, as data for ``keel.torch_adapter.tree_of``.  Raises Malformed.

    None is a leaf, and each container is an object whose key names it. ``tuple``, ``list``, ``deque`` and ``Size`` have
    a list of their elements; ``dict``, ``OrderedDict`` and ``defaultdict`` have a list of pairs; ``class`` names any
    other container by the name that it was registered with.
    """
    protocol, tree = Item(parsed(item.text(1 << 22), item.place), item.place).items(count=2)
    if protocol.value != 1:
        protocol.refuse("Its protocol version is unknown.")
    return _tree(tree)


def _tree(item: Item) -> Any:
    record = item.record(("type", "context", "children_spec"))
    if record["type"].value is None:
        return None
    kind, context = record["type"].text(1 << 10), record["context"]
    held = [_tree(child) for child in record["children_spec"].items()]
    if kind in _ROWS:
        if context.value != "null":
            context.refuse(f"A {_ROWS[kind]} has no context.")
        return {_ROWS[kind]: held}
    if kind in _TABLES:
        return {_TABLES[kind]: _pairs(_text(context), held)}
    if kind == "collections.deque":
        return {"deque": held, "maxlen": _text(context).value}
    if kind == "collections.defaultdict":
        made = context.record(("default_factory_module", "default_factory_name", "dict_context"))
        made["default_factory_module"].one_of(("builtins",), "builtins, which has the types that Python brings")
        return {"defaultdict": _pairs(made["dict_context"], held), "factory": made["default_factory_name"].text(64)}
    if kind == "collections.namedtuple":
        return {"class": context.text(1 << 10), "holds": held}
    if isinstance(context.value, str) and context.value[:2] == "[[":
        match _text(context).value:
            case [list(fields), list(none)] if all(isinstance(n, str) for n in (*fields, *none)):
                return {"class": kind, "fields": fields, "none": none, "holds": held}
    return {"class": kind, "context": context.value, "holds": held}


def _text(item: Item) -> Item:
    """Parses a text of JSON within JSON."""
    return Item(parsed(item.text(1 << 20), item.place), item.place)


def _pairs(keys: Item, held: list[Any]) -> list[list[Any]]:
    for key in keys.items():
        if not isinstance(key.value, str | int | float | bool):
            key.refuse("The keys of a dict must be texts or numbers.")
    if len(keys.value) != len(held):
        raise Malformed(keys.place, f"It has {len(held)} values and {len(keys.value)} keys.")
    return [[key, value] for key, value in zip(keys.value, held, strict=True)]
