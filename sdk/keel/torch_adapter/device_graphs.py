"""Capture and replay for mode ``reduce-overhead``: which graphs are captured on a device, and when.

CUDA has PyTorch's CUDA graph trees, and every other device that can capture its work the mechanism of ``replays``.
Graphs with tensors on several devices, or with calls that cannot be captured, run without.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx

from keel.errors import KeelWarning
from keel.torch_adapter.capture import Boxed, Captured
from keel.torch_adapter.cuda_graphs import after_forward, device_index, graph_tree, why_not_captured
from keel.torch_adapter.operators import has_effect, is_random
from keel.torch_adapter.replays import GraphMemory, Replayable, Replayed, graph_type
from keel.torch_adapter.streams import works_on_streams
from keel.torch_adapter.sympy_expressions import Symbolic, expression, late

_log = logging.getLogger("keel.compiler")
Reason = Callable[[], str | None]
"""Returns why a graph cannot be captured, a sentence, or None if it can; asked when the graph is captured."""


@dataclass
class GraphPair:
    """The device graphs of one captured function: of its inference graph, or of its forward and its backward graph."""

    gpu: int | None = None
    memory: GraphMemory | None = None

    def replayed(
        self, run: Boxed, captured: Captured, ready: Callable[[], bool] = lambda: True, refuses: Reason = lambda: None
    ) -> Boxed:
        """Wraps ``run`` so that it is captured and replayed, if possible. The first call runs normally, because its
        permanent allocations must not be in the graphs' memory pool. So do the following calls until ``run`` is
        ``ready``. If it ``refuses`` then, it always runs normally.
        """
        places = devices(captured.gm)
        if any(device.type == "cuda" for device in places):
            return self._on_cuda(run, captured, ready, refuses)
        here = torch.accelerator.current_accelerator()
        if here is None or all(device.type != here.type for device in places):
            return run
        if reason := why_not(captured, places):
            _log.info("%s graph: its work is not captured. %s", captured.kind, reason)
            return run
        [device] = places
        if self.memory is None and (make := graph_type(device)) is not None:
            self.memory = GraphMemory(device, make)
        if self.memory is None:
            if captured.kind != "backward":
                warnings.warn(_cannot_capture(device), KeelWarning, stacklevel=2)
            return run
        return Replayed(_replayable(run, captured, ready, refuses), self.memory)

    def _on_cuda(self, run: Boxed, captured: Captured, ready: Callable[[], bool], refuses: Reason) -> Boxed:
        backward = captured.kind == "backward"
        if captured.shares or (backward and self.gpu is None):
            return run
        if any(map(works_on_streams, captured.gm.graph.nodes)):
            return run
        if has_symbols(captured) or why_not_captured(captured.gm) is not None:
            return after_forward(run, self.gpu) if backward else run
        if not backward:
            self.gpu = device_index(captured.gm)
        first = after_forward(run, self.gpu) if backward else run
        return later(
            first, ready, lambda: first if _refused(captured, refuses()) else graph_tree(run, captured, self.gpu)
        )


def _refused(captured: Captured, reason: str | None) -> bool:
    if reason is not None:
        warnings.warn(f"The {captured.kind} graph runs without capture and replay. {reason}", KeelWarning, stacklevel=2)
    return reason is not None


def _cannot_capture(device: torch.device) -> str:
    return (
        f"Mode reduce-overhead has no effect on {device.type}: PyTorch knows no way to capture the work of the device "
        f"(torch.accelerator.Graph), and torch.{device.type} has no class Graph."
    )


def _replayable(run: Boxed, captured: Captured, ready: Callable[[], bool], refuses: Reason) -> Replayable:
    inputs = [n for n in captured.gm.graph.find_nodes(op="placeholder") if n.name not in captured.constants]
    is_tensor = [isinstance(n.meta.get("val"), torch.Tensor) for n in inputs]
    static = tuple(i for i in captured.static if is_tensor[i])
    numbers = tuple(i for i, tensor in enumerate(is_tensor) if not tensor)
    return Replayable(run, captured.kind, static, numbers, captured.results, ready, refuses)


def why_not(captured: Captured, places: frozenset[torch.device]) -> str | None:
    """Why a graph on an accelerator cannot be captured by ``replays``, a sentence; None if it can be."""
    if len(places) != 1:
        return f"It has tensors on {' and '.join(sorted(map(str, places)))}."
    if captured.shares:
        return "An input takes over the memory of a result."
    for node in captured.gm.graph.nodes:
        if works_on_streams(node) or (
            node.op == "call_function" and has_effect(node.target) and not is_random(node.target)
        ):
            return f"%{node.name} = {node.target} may have an effect on the host."
        value = node.meta.get("val")
        if node.op == "placeholder" and not isinstance(value, torch.Tensor | Symbolic | int | float | None):
            return f"The input %{node.name} is neither a tensor nor a number."
        if any(_is_late(x) for x in (value if isinstance(value, tuple | list) else (value,))):
            return f"The type of %{node.name} depends on values."
    return None


def _is_late(value: object) -> bool:
    """True if a value, or the size of a tensor, is known only when the graph runs."""
    if isinstance(value, torch.Tensor):
        return any(_is_late(n) for n in (*value.shape, *value.stride()))
    return isinstance(value, Symbolic) and bool(late(expression(value)))


def later(first: Boxed, ready: Callable[[], bool], make: Callable[[], Boxed]) -> Boxed:
    """Calls ``first`` for the first call and for all others until it is ``ready``, and then the function that ``make``
    returns.
    """
    called, made = False, list[Boxed]()

    def run(args: list[object]) -> object:
        nonlocal called
        if not made:
            if not called or not ready():
                called = True
                return first(args)
            made.append(make())
        return made[0](args)

    return run  # type: ignore[return-value]


def devices(gm: fx.GraphModule) -> frozenset[torch.device]:
    """The devices on which a graph has tensors."""
    values = (n.meta.get("val") for n in gm.graph.nodes)
    flat = (x for v in values for x in (v if isinstance(v, tuple | list) else (v,)))
    return frozenset(x.device for x in flat if isinstance(x, torch.Tensor))


def has_symbols(captured: Captured) -> bool:
    """True if a graph takes symbolic sizes."""
    return any(isinstance(n.meta.get("val"), Symbolic) for n in captured.gm.graph.find_nodes(op="placeholder"))
