"""Draws that a checkpoint repeats, on a device whose random state PyTorch's own operators cannot save.

``run_and_save_rng_state`` and ``run_with_rng_state`` know some devices by name and refuse the others, a vendor's among
them.  There the state is that of the device's module, ``torch.get_device_module(device)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from keel import KeelError

KNOWN = frozenset({"cpu", "cuda", "hpu", "xpu"})


def runnable(gm: fx.GraphModule) -> Callable[..., Any]:
    """The graph as PyTorch runs it.  Raises KeelError[compile-raised]."""
    if not any(map(_device, gm.graph.nodes)):
        return gm.forward
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if (device := _device(node)) is not None:
            _module(device)
            node.args = (device, *node.args)
            node.target = _INSTEAD[node.target]
    return fx.GraphModule(gm, graph).forward


def _device(node: fx.Node) -> torch.device | None:
    """The device that a call draws on; None where PyTorch's operator can do it, and of all other calls."""
    if node.target not in _INSTEAD:
        return None
    drawn = node.meta["val"]
    while isinstance(drawn, tuple | list):  # behind the state, and the last of several
        drawn = drawn[-1]
    return None if drawn.device.type in KNOWN else drawn.device


def _module(device: torch.device) -> Any:
    module = torch.get_device_module(device)
    missing = [name for name in ("get_rng_state", "set_rng_state") if not hasattr(module, name)]
    if missing:
        raise KeelError(
            "compile-raised",
            f"What a checkpoint draws on {device.type} cannot be drawn again in its backward.",
            {f"torch.{device.type}": f"It has no {' and no '.join(missing)}."},
            do="Give the device's module both, or leave what draws (dropout) out of the checkpoint.",
        )
    return module


def saving(device: torch.device, op: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    """The state before a draw, and what is drawn."""
    return _state(device), op(*args, **kwargs)


def restoring(device: torch.device, state: torch.Tensor, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What is drawn from a state; the device is left in its own."""
    own = _state(device)
    _restore(state, device)
    try:
        return op(*args, **kwargs)
    finally:
        _restore(own, device)


def _state(device: torch.device) -> torch.Tensor:
    return torch.cat([_module(device).get_rng_state(device), torch.get_rng_state()])


def _restore(state: torch.Tensor, device: torch.device) -> None:
    device_state, host_state = state.tensor_split([-torch.get_rng_state().numel()])
    _module(device).set_rng_state(device_state.clone(), device)
    torch.set_rng_state(host_state.clone())


higher = torch.ops.higher_order
_INSTEAD: Mapping[Any, Callable[..., Any]] = {
    higher.run_and_save_rng_state: saving,
    higher.run_with_rng_state: restoring,
}
