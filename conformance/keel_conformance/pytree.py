"""Values in nested lists, tuples and dicts, as arguments and results of operators are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def tree_leaves(tree: Any) -> Iterator[Any]:
    """What stands in nested lists, tuples and dicts."""
    match tree:
        case list() | tuple():
            for branch in tree:
                yield from tree_leaves(branch)
        case dict():
            for branch in tree.values():
                yield from tree_leaves(branch)
        case _:
            yield tree


def tensor_leaves(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def tree_map(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with every leaf changed; torch.Size and named tuples become plain ones."""
    match tree:
        case list():
            return [tree_map(branch, change) for branch in tree]
        case tuple():
            return tuple(tree_map(branch, change) for branch in tree)
        case dict():
            return {key: tree_map(branch, change) for key, branch in tree.items()}
        case _:
            return change(tree)
