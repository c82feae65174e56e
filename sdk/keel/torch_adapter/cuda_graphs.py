"""CUDA graphs for mode ``reduce-overhead``, with PyTorch's CUDA graph trees.

As PyTorch documents it, results of a call are overwritten by the next one. Graphs with symbolic sizes, with tensors on
other devices than the one GPU, or with operators that cannot be recorded run without a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from keel.torch_adapter.capture import Boxed, Captured
from keel.torch_adapter.streams import works_on_streams
from keel.torch_adapter.sympy_expressions import Symbolic


@dataclass
class GraphPair:
    """The CUDA graphs of one captured function: of its inference graph, or of its forward and its backward graph."""

    device: int | None = None

    def recorded(self, run: Boxed, captured: Captured, ready: Callable[[], bool] = lambda: True) -> Boxed:
        """Wraps ``run`` so that it is replayed from a CUDA graph from its third call on, if possible. The first call
        runs normally, because its permanent allocations must not be in the graphs' memory pool. So do the following
        calls until ``run`` is ``ready``.
        """
        backward = captured.kind == "backward"
        if not on_gpu(captured) or captured.shares or (backward and self.device is None):
            return run
        if any(map(works_on_streams, captured.gm.graph.nodes)):
            return run
        from torch._dynamo.backends.cudagraphs import check_for_skip, get_device_index

        if has_symbols(captured) or check_for_skip(captured.gm, 0) is not None:
            return self._after(run) if backward else run
        if not backward:
            self.device = get_device_index(captured.gm)
        return later(self._after(run) if backward else run, ready, lambda: self._recorder(run, captured))

    def _recorder(self, run: Boxed, captured: Captured) -> Boxed:
        from torch._dynamo.backends.cudagraphs import get_stack_traces
        from torch._inductor.cudagraph_trees import cudagraphify_impl
        from torch._inductor.cudagraph_utils import get_placeholder_info

        inputs = [n.name for n in captured.gm.graph.find_nodes(op="placeholder") if n.name not in captured.constants]
        model: Any = run
        return cudagraphify_impl(
            model,
            [None] * len(inputs),
            captured.static,
            device_index=self.device,
            is_backward=captured.kind == "backward",
            is_inference=captured.kind == "inference",
            stack_traces=get_stack_traces(captured.gm),
            placeholders=get_placeholder_info(captured.gm.graph),
            mutated_input_idxs=(),
        )

    def _after(self, run: Boxed) -> Boxed:
        """Wraps ``run`` as the backward of a forward graph that may have been replayed."""

        def backward(args: list[Any]) -> Any:
            from torch._inductor.cudagraph_trees import get_manager

            manager = get_manager(self.device or 0, create_if_none_exists=False)
            if manager is not None:
                manager.set_to_running_backward()
            return run(args)

        return backward


def later(first: Boxed, ready: Callable[[], bool], make: Callable[[], Boxed]) -> Boxed:
    """Calls ``first`` for the first call and for all others until it is ``ready``, and then the function that ``make``
    returns.
    """
    called, made = False, list[Boxed]()

    def run(args: list[Any]) -> Any:
        nonlocal called
        if not made:
            if not called or not ready():
                called = True
                return first(args)
            made.append(make())
        return made[0](args)

    return run


def on_gpu(captured: Captured) -> bool:
    """True if a graph has tensors on a CUDA device."""
    values = (n.meta.get("val") for n in captured.gm.graph.nodes)
    return any(isinstance(v, torch.Tensor) and v.device.type == "cuda" for v in values)


def has_symbols(captured: Captured) -> bool:
    """True if a graph takes symbolic sizes."""
    return any(isinstance(n.meta.get("val"), Symbolic) for n in captured.gm.graph.find_nodes(op="placeholder"))
