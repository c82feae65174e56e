"""The two ways into the compiler.  Both load it, and PyTorch, when they are called and not before.

``keel`` imports this module when it is imported itself, so that ``keel.compile`` is always the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import fx

    from keel.plugin import Backend
    from keel.settings import Costs

__all__ = ["compile", "dynamo_backend"]


def compile(
    fn: Callable[..., Any],
    *,
    backends: Sequence[str | Backend] | None = None,
    mode: str = "default",
    dynamic: bool | None = None,
    fullgraph: bool = False,
    strict: bool = False,
    fuel: int | None = None,
    placement: str = "auto",
    costs: Costs | None = None,
    pins: Mapping[str, str] | None = None,
) -> Callable[..., Any]:
    """``torch.compile`` through Keel: ``fn``, a function or a module, each operator by a backend that takes it.

    ``backends`` are names of installed backends or Backend values, in order of preference; by default the reference
    backends that can run here.  ``dynamic`` and ``fullgraph`` are PyTorch's, and so is ``mode``: ``reduce-overhead``
    replays CUDA graphs where all tensors are on one GPU and all sizes are known (a call then overwrites the results of
    the one before), and changes nothing else.  ``strict`` turns fallbacks into errors.  ``fuel`` lets the scheduler
    fuse that many times, to find by bisection the fusion that breaks something.

    ``placement`` says by which: ``order``, the first that takes it; ``cost``, the one with which the whole graph is
    fastest by the data sheets of all (backends of last resort compete like others, and need none); ``measured``, by
    cost, and then the first calls of each graph try that in turns with each backend alone that has all of it, until the
    fastest is known; ``auto``, by cost where at least two backends work on the graph's devices and all have data
    sheets, but by a last resort only what no other takes; else by order.  ``costs`` are data sheets to be used instead
    of the backends' own, by name, or the path of a file that ``keel bench --calibrate`` wrote; without it KEEL_COSTS
    may name one.  ``pins`` give operators to one of the backends, whatever is faster or preferred:
    ``{"softmax": "cpp"}``.  Raises KeelError.
    """
    import torch

    from keel.compiler import DynamoBackend
    from keel.settings import read_settings

    settings = read_settings(
        mode,
        {"backends": backends, "strict": strict, "fuel": fuel, "placement": placement, "costs": costs, "pins": pins},
    )
    return torch.compile(fn, backend=DynamoBackend(settings), dynamic=dynamic, fullgraph=fullgraph)


def dynamo_backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """``torch.compile(..., backend="keel", mode=..., options={"backends": [...], "strict": ..., ...})``."""
    from keel.compiler import DynamoBackend
    from keel.settings import read_settings
    from keel.torch_adapter import unwrapped

    with unwrapped():
        settings = read_settings(mode, options)
    return DynamoBackend(settings)(gm, example_inputs)
