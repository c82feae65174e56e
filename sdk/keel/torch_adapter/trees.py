"""Flattens nested arguments and results of exported programs, and restores them."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.utils import _pytree as pytree

Tree = Any
"""PyTorch's description of nested containers (a TreeSpec)."""


def flatten_call(tree: Tree, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The leaves of a call's arguments. Raises ValueError with a sentence if they are not nested as ``tree`` says."""
    keywords = list(tree.child(1).context)
    if missing := [n for n in keywords if n not in kwargs]:
        raise ValueError(f"It lacks {', '.join(missing)}.")
    if extra := [n for n in kwargs if n not in keywords]:
        raise ValueError(f"It does not take {', '.join(extra)}.")
    leaves, given_tree = pytree.tree_flatten((tuple(args), {n: kwargs[n] for n in keywords}))
    if given_tree != tree:
        raise ValueError(f"It takes arguments nested as {_words(tree)}, not as {_words(given_tree)}.")
    return leaves


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The nested value that ``tree`` describes, with these leaves."""
    return pytree.tree_unflatten(list(leaves), tree)


def tree_text(tree: Tree) -> str:
    """A tree as JSON. Raises ValueError for containers that have no name outside this process."""
    try:
        return pytree.treespec_dumps(tree)
    except (NotImplementedError, TypeError) as e:
        raise ValueError(str(e)) from e


def tree_of(data: Any, containers: Collection[type] = ()) -> Tree:
    """The tree that data describes, which ``keel.serialize.tree_specs`` read from a file. The only classes allowed are
    named tuples and data classes that this process registered with PyTorch's pytree, and those in ``containers``.
    Nothing is imported. Raises ValueError with a sentence for anything else.
    """

    def inner(held: Any) -> list[Tree]:
        return [tree_of(d, containers) for d in held]

    match data:
        case None:
            return pytree.tree_structure(object())
        case {"deque": list(held), "maxlen": None | int() as most}:
            return pytree.TreeSpec(deque, most, inner(held))
        case {"defaultdict": list(pairs), "factory": str(factory)} if factory in _FACTORIES:
            return pytree.TreeSpec(defaultdict, [_FACTORIES[factory], _keys(pairs)], inner(d for _, d in pairs))
        case {"class": str(name), "holds": list(held)}:
            rest = {k: v for k, v in data.items() if k not in ("class", "holds")}
            return _of_class(name, inner(held), rest, containers)
    if isinstance(data, dict) and len(data) == 1:
        ((name, held),) = data.items()
        if name in _ROWS and isinstance(held, list):
            return pytree.TreeSpec(_ROWS[name], None, inner(held))
        if name in _TABLES and isinstance(held, list):
            return pytree.TreeSpec(_TABLES[name], _keys(held), inner(d for _, d in held))
    raise ValueError("It names a container that files do not have.")


def registered_containers() -> frozenset[type]:
    """The containers that this process registered with PyTorch's pytree under a name."""
    return frozenset(kind for kind in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.values() if isinstance(kind, type))


def is_call_tree(tree: Tree) -> bool:
    """True if a tree is that of a call: a tuple of positional arguments and a dict of keyword arguments."""
    return tree.type is tuple and [child.type for child in tree.children()] == [tuple, dict]


_ROWS: Mapping[str, type] = {"tuple": tuple, "list": list, "Size": torch.Size, "immutable_list": immutable_list}
_TABLES: Mapping[str, type] = {"dict": dict, "OrderedDict": OrderedDict, "immutable_dict": immutable_dict}
_FACTORIES: Mapping[str, Any] = {
    "None": None,
    "list": list,
    "dict": dict,
    "int": int,
    "float": float,
    "str": str,
    "tuple": tuple,
    "set": set,
    "bool": bool,
}


_KEYS = (str, int, float, bool)


def _keys(pairs: Sequence[Any]) -> list[Any]:
    keys = [k for k, _ in pairs]
    if any(type(k) not in _KEYS for k in keys) or len(set(keys)) != len(keys):
        raise ValueError("The keys of a dict are texts and numbers, each once.")
    return keys


def _of_class(name: str, held: list[Tree], rest: Mapping[str, Any], containers: Collection[type]) -> Tree:
    kind: Any = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    if kind is None or kind in (*_ROWS.values(), *_TABLES.values(), deque, defaultdict, namedtuple):
        raise ValueError(
            f"It nests values in {name!r}, a container that this process has not registered: import its package first."
        )
    match rest:
        case {} if not rest and issubclass(kind, tuple) and hasattr(kind, "_fields"):
            if len(held) != len(kind._fields):
                raise ValueError(f"{name} holds {len(kind._fields)} values, not {len(held)}.")
            return pytree.TreeSpec(namedtuple, kind, held)
        case {"fields": list(fields), "none": list(none)} if len(rest) == 2 and is_dataclass(kind):
            if (
                len(fields) != len(held)
                or not {*fields, *none} <= {f.name for f in dataclass_fields(kind) if f.init}
                or len({*fields, *none}) != len(fields) + len(none)
            ):
                raise ValueError(f"{name} has other fields.")
            return pytree.TreeSpec(kind, [fields, none], held)
        case {"context": context} if len(rest) == 1:
            if kind not in containers:
                raise ValueError(
                    f"It nests values in {name}, whose own code would read a part of the file. Where that "
                    f"is wanted, say load_graph(..., containers=[{kind.__name__}])."
                )
            load = pytree.SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable_context or json.loads
            return pytree.TreeSpec(kind, load(context), held)
    raise ValueError(f"{name} has no such form.")


def flat(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The leaves of arguments, in order."""
    return pytree.tree_flatten((tuple(args), dict(kwargs)))[0]


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Applies ``fn`` to each leaf of nested containers."""
    return pytree.tree_map(fn, tree)


def nest(graph: fx.Graph, inputs: Tree, results: Tree) -> None:
    """Gives a graph with flat inputs and results the calling convention that the two trees describe."""
    count, named = inputs.child(0).num_children, list(inputs.child(1).context)
    stem = "arg"
    while any(name.startswith(stem) for name in named):  # positional arguments have no names
        stem = f"_{stem}"
    names = [*(f"{stem}{i}" for i in range(count)), *named]
    graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, inputs, results)))


def _words(tree: Tree) -> str:
    return repr(pytree.tree_unflatten([_Leaf()] * tree.num_leaves, tree))


class _Leaf:
    def __repr__(self) -> str:
        return "*"
