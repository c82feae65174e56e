"""Nested arguments and results of exported programs, as flat lists and back."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.utils import _pytree as pytree

Tree = Any
"""The shape of a nest of containers, as PyTorch describes it."""


def flatten_call(tree: Tree, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The leaves of a call's arguments.  Raises ValueError, a sentence, where they are not nested as ``tree`` says."""
    wanted = list(tree.child(1).context)
    if missing := [n for n in wanted if n not in kwargs]:
        raise ValueError(f"It lacks {', '.join(missing)}.")
    if extra := [n for n in kwargs if n not in wanted]:
        raise ValueError(f"It does not take {', '.join(extra)}.")
    found, given = pytree.tree_flatten((tuple(args), {n: kwargs[n] for n in wanted}))
    if given != tree:
        raise ValueError(f"It takes arguments nested as {_words(tree)}, not as {_words(given)}.")
    return found


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The nest that ``tree`` describes, with these leaves."""
    return pytree.tree_unflatten(list(leaves), tree)


def tree_text(tree: Tree) -> str:
    """A tree as JSON.  Raises ValueError for one with containers that have no name outside this process."""
    try:
        return pytree.treespec_dumps(tree)
    except NotImplementedError as e:
        raise ValueError(str(e)) from e


def tree_of(text: str) -> Tree:
    """The tree that ``tree_text`` wrote.  Raises ValueError."""
    try:
        return pytree.treespec_loads(text)
    except NotImplementedError as e:
        raise ValueError(f"It nests values in a container whose package must be imported first. {e}") from e
    except (AttributeError, KeyError, TypeError) as e:
        raise ValueError(f"{type(e).__name__}: {e}") from e


def flat(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The leaves of arguments, in order."""
    return pytree.tree_flatten((tuple(args), dict(kwargs)))[0]


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The same nest of containers with ``fn`` of each leaf."""
    return pytree.tree_map(fn, tree)


def nest(graph: fx.Graph, inputs: Tree, results: Tree) -> None:
    """Gives a graph of flat inputs and results the calling convention that the trees of a call describe."""
    positional, named = inputs.child(0).num_children, list(inputs.child(1).context)
    names = [*(f"arg{i}" for i in range(positional)), *named]
    graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, inputs, results)))


def _words(tree: Tree) -> str:
    return repr(pytree.tree_unflatten([_Leaf()] * tree.num_leaves, tree))


class _Leaf:
    def __repr__(self) -> str:
        return "*"
