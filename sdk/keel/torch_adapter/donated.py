"""Tensors saved for backward that only the backward graph can see, so that it may write results over them."""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from threading import Thread
from typing import Any

import torch
from torch import Tensor, fx

from keel.torch_adapter.mutations import copy_of

_DONATED = "keel_donated"


def mark_donated(forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int) -> None:
    """Marks the placeholders of ``backward`` whose tensors ``forward`` makes and only saves: no input and no result of
    the program has the same memory, and no other saved tensor.
    """
    results: list[Any] = list(forward.graph.output_node().args[0])  # type: ignore[arg-type]
    inputs = forward.graph.find_nodes(op="placeholder")
    storages = Counter(map(_storage, [*inputs, *results]))
    placeholders = {n.name: n for n in backward.graph.find_nodes(op="placeholder")}
    for node in results[num_fwd_outputs:]:
        storage = _storage(node)
        if storage is not None and storages[storage] == 1 and node.name in placeholders:
            placeholders[node.name].meta[_DONATED] = True


def donated_names(gm: fx.GraphModule) -> frozenset[str]:
    """The names of the placeholders that ``mark_donated`` marked."""
    return frozenset(n.name for n in gm.graph.find_nodes(op="placeholder") if n.meta.get(_DONATED))


def _storage(node: Any) -> int | None:
    """What identifies the memory of a node's value while a graph is traced; None without memory."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return None
    return int(value.untyped_storage()._cdata)


def owned(tensor: Tensor) -> Tensor:
    """``tensor``, a saved tensor that a backward graph is about to overwrite, or a copy of it if somebody else may read
    it later: autograd, if it retains the graph, or code with another reference to it, such as a hook for saved tensors.
    The caller has the tensor in one variable.

    If it is not copied, autograd refuses to run a backward again that raised an error after this.
    """
    holders = _references(tensor) - _references_of_a_variable(), *_uses(tensor)
    if torch._C._autograd._get_current_graph_task_keep_graph() or holders not in _holders_if_alone():
        return copy_of(tensor)
    torch.autograd.graph.increment_version(tensor)
    return tensor


def _references(value: object) -> int:
    return sys.getrefcount(value)


def _references_of_a_variable() -> int:
    """What ``_references`` counts in a function for an argument that its caller has in one variable. That changes while
    Dynamo evaluates frames, because Python calls functions in another way then.
    """
    value = object()
    return _in_function(value)


def _in_function(value: object) -> int:
    return _references(value)


def _uses(tensor: Tensor) -> tuple[int, int]:
    """How many references C++ and Python have to the C++ object of a tensor, and to its memory."""
    uses: int = tensor._use_count()  # type: ignore[attr-defined]
    return uses, torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


@cache
def _holders_if_alone() -> frozenset[tuple[int, int, int]]:
    """The references to a tensor, besides a caller's variable and its C++ object's own, if nobody else has it: nobody
    at all, or autograd, which may keep saved tensors until the end of backward. They depend on the version of PyTorch,
    so they are counted: in a thread, which has none of the modes of this one.
    """
    counted: set[tuple[int, int, int]] = set()

    def count(tensor: Tensor) -> None:  # in the place of ``owned``
        counted.add((_references(tensor) - _references_of_a_variable(), *_uses(tensor)))

    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x + 1)
            return x + 2

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            (saved,) = ctx.saved_tensors
            count(saved)
            return gradients[0]

    def run() -> None:
        alone = torch.zeros(())
        count(alone)
        result: Tensor = Saves.apply(torch.zeros((), requires_grad=True))  # type: ignore[no-untyped-call]
        result.backward()

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return frozenset(counted)
