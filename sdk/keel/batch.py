"""Compiles calls of operators as one graph, each with its result and its owner.  This tests operators one by one.

A user's program goes through Dynamo and autograd first, which take a hundred times as long as an operator's kernel.
Here a call becomes a node of a functional graph directly; the rest of the pipeline is the same as for every program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import fx

from keel.compiler import compile_captured
from keel.errors import KeelError
from keel.events import EventLog, GraphCompiled
from keel.graph.calls import type_of
from keel.graph.tensor_devices import device_types
from keel.plugin import Backend
from keel.runtime.link import resolve_lazy_bits
from keel.settings import read_settings, with_plugins
from keel.torch_adapter import Asked, NotRecorded, captured_calls, flat, without_autocast
from keel.types import Type

__all__ = ["Asked", "Batch", "compile_calls"]


@dataclass(frozen=True)
class Batch:
    """Compiled calls. ``owners`` has, for each call, the names of the backends that do its pieces, empty if nothing is
    left to do (a call that returns its argument); ``refusals``, the reasons of other backends; ``results``, the traced
    type of each result, or None if it is neither a tensor nor a number.
    """

    owners: tuple[frozenset[str], ...]
    refusals: tuple[tuple[str, ...], ...]
    results: tuple[tuple[Type | None, ...], ...]
    counts: tuple[int, ...]
    inputs: tuple[Type, ...]
    call: Callable[[list[Any]], Sequence[Any]]

    def run(self, arguments: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[tuple[Any, ...]]:
        """Returns the results of each call, flat, on these arguments. Raises KeelError[bad-input] if their types differ
        from those that the batch was compiled for.
        """
        tensors = list(map(resolve_lazy_bits, _tensors(arguments)))
        if (types := tuple(map(type_of, tensors))) != self.inputs:
            raise KeelError(
                "bad-input",
                "The types of the arguments differ from those of the compiled calls.",
                {"compiled": ", ".join(map(str, self.inputs)), "given": ", ".join(map(str, types))},
            )
        with torch.no_grad(), without_autocast():
            return _by_call(self.call(tensors), self.counts)


def compile_calls(
    calls: Sequence[Asked], *, backends: Sequence[str | Backend] | None = None, strict: bool = False
) -> Batch:
    """Compiles ``calls``, functional overloads with their arguments, as one graph with known sizes.

    Each call, or each of its pieces, goes to the first backend that takes it. Raises KeelError as ``keel.compile``
    does, and KeelError[bad-graph] for a call that PyTorch cannot trace.
    """
    settings = read_settings(None, {"backends": backends, "strict": strict, "placement": "order"})
    try:
        captured, counts = captured_calls(calls)
    except NotRecorded as e:
        names = ", ".join(dict.fromkeys(str(op) for op, *_ in calls))
        raise KeelError("bad-graph", f"{names} cannot be traced.", {"PyTorch": str(e)}) from e
    log = EventLog()
    run = compile_captured(captured, with_plugins(settings, device_types(captured.gm.graph)), log)
    graph = log.graphs[0]
    ends = _by_call(graph.gm.graph.output_node().args[0], counts)  # type: ignore[arg-type]
    owners, refusals = _placed(graph, ends)
    results = tuple(tuple(type_of(n.meta["val"]) if isinstance(n, fx.Node) else None for n in nodes) for nodes in ends)
    inputs = tuple(map(type_of, _tensors([(args, kwargs) for _, args, kwargs in calls])))
    return Batch(owners, refusals, results, counts, inputs, run)


def _tensors(arguments: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[torch.Tensor]:
    return [v for args, kwargs in arguments for v in flat(args, kwargs) if isinstance(v, torch.Tensor)]


def _by_call(results: Iterable[Any], counts: Sequence[int]) -> list[tuple[Any, ...]]:
    left = iter(results)
    return [tuple(islice(left, count)) for count in counts]


def _placed(
    made: GraphCompiled, ends: Sequence[Sequence[Any]]
) -> tuple[tuple[frozenset[str], ...], tuple[tuple[str, ...], ...]]:
    """Returns, for each call, the backends that compute its results (``ends``), and the reasons why others refused."""
    who = {part.name: part.owner for part in made.parts}
    doing = {node: who[part.name] for part in made.plan.parts for node in part.nodes if part.name in who}
    owners, refusals, visited = list[frozenset[str]](), list[tuple[str, ...]](), set[fx.Node]()
    for results in ends:
        behind = _behind([n for n in results if isinstance(n, fx.Node)])
        visited |= behind
        owners.append(frozenset(doing[n.name] for n in behind if n.name in doing))
        refusals.append(
            tuple(
                dict.fromkeys(
                    f"{name}: {why}" for n in behind for name, why in made.plan.refusals.get(n.name, {}).items()
                )
            )
        )
    return tuple(owners), tuple(refusals)


def _behind(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    reached: set[fx.Node] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in reached:
            reached.add(node)
            todo += node.all_input_nodes
    return reached
