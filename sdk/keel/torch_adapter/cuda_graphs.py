"""CUDA graphs, by PyTorch's CUDA graph trees. As PyTorch documents it, results of a call are overwritten by the next
one.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from keel.torch_adapter.capture import Boxed, Captured


def why_not_captured(gm: fx.GraphModule) -> str | None:
    """PyTorch's reason why a graph cannot be a CUDA graph; None if it can be one."""
    from torch._dynamo.backends.cudagraphs import check_for_skip

    return check_for_skip(gm, 0)


def device_index(gm: fx.GraphModule) -> int:
    """The number of the GPU on which the tensors of a graph are."""
    from torch._dynamo.backends.cudagraphs import get_device_index

    return get_device_index(gm)


def graph_tree(run: Boxed, captured: Captured, device: int | None) -> Boxed:
    """Wraps ``run`` so that it is recorded in a CUDA graph on a GPU and replayed."""
    from torch._dynamo.backends.cudagraphs import get_stack_traces
    from torch._inductor.cudagraph_trees import cudagraphify_impl
    from torch._inductor.cudagraph_utils import get_placeholder_info

    inputs = [n.name for n in captured.gm.graph.find_nodes(op="placeholder") if n.name not in captured.constants]
    model: Any = run
    return cudagraphify_impl(
        model,
        [None] * len(inputs),
        captured.static,
        device_index=device,
        is_backward=captured.kind == "backward",
        is_inference=captured.kind == "inference",
        stack_traces=get_stack_traces(captured.gm),
        placeholders=get_placeholder_info(captured.gm.graph),
        mutated_input_idxs=(),
    )


def after_forward(run: Boxed, device: int | None) -> Boxed:
    """Wraps ``run`` as the backward of a forward graph on a GPU that may have been replayed."""

    def backward(args: list[Any]) -> Any:
        from torch._inductor.cudagraph_trees import get_manager

        manager = get_manager(device or 0, create_if_none_exists=False)
        if manager is not None:
            manager.set_to_running_backward()
        return run(args)

    return backward
