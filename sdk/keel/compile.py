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
    freeze: bool = False,
    buckets: Sequence[int] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles ``fn``, a function or a module, with ``torch.compile``. Each operator runs on a backend that takes it.

    ``backends`` are names of installed backends or Backend values, in order of preference. The default is the reference
    backends that can run on this machine, and for tensors on other devices the installed plugins for these.
    ``dynamic``, ``fullgraph`` and ``mode`` are those of ``torch.compile``. The mode ``reduce-overhead`` captures the
    work of a graph on its device and replays it from the third call on, if all tensors are on one device that can do
    that. On CUDA that needs known sizes, and a call overwrites the results of the previous call. ``max-autotune`` does
    so too, measures placements where backends have data sheets, and packs weights although that gains little for its
    memory; ``max-autotune-no-cudagraphs`` does all but capture. ``strict`` turns fallbacks into errors. ``fuel`` limits
    the number of fusions, to find a wrong one by bisection.

    ``placement`` says how a backend is chosen. ``order``: the first one that takes the operator. ``cost``: those with
    which the whole graph is fastest by their data sheets; last resorts compete without one. ``measured``: by cost, and
    then the first calls of each graph time this plan and each single backend that takes the whole graph. ``auto``: by
    cost if at least two backends work on the graph's devices and all have data sheets, else by order; last resorts get
    only what no other backend takes. A single backend without one counts as a tenth faster than eager PyTorch, unless
    ``strict``. ``costs`` replaces data sheets, by name, or is the path of a file that ``keel bench --calibrate`` wrote;
    by default KEEL_COSTS names that file. ``pins`` assigns operators to a backend: ``{"softmax": "cpp"}``.

    ``freeze`` promises that parameters and buffers do not change any more: in inference they become constants, and what
    is computed from constants alone is computed once. ``buckets`` are the sizes, ascending, to which backends that need
    known sizes round up, where padding with zeros changes no result; the default is powers of two. ``options`` are
    options of backends, ``{"acme.level": 3}``; ``keel backends`` lists them. Raises KeelError.
    """
    import torch

    from keel.compiler import DynamoBackend
    from keel.settings import read_settings

    settings = read_settings(
        mode,
        {
            "backends": backends,
            "strict": strict,
            "fuel": fuel,
            "placement": placement,
            "costs": costs,
            "pins": pins,
            "freeze": freeze,
            "buckets": buckets,
            **(options or {}),
        },
    )
    return torch.compile(fn, backend=DynamoBackend(settings), dynamic=dynamic, fullgraph=fullgraph)


def dynamo_backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """``torch.compile(..., backend="keel", options={"backends": [...], "mode": ..., "strict": ..., ...})``.

    ``mode`` may be an argument of ``torch.compile`` instead, if there are no options.
    """
    from keel.compiler import DynamoBackend
    from keel.settings import read_settings
    from keel.torch_adapter import unwrapped

    with unwrapped():
        settings = read_settings(mode, options)
    return DynamoBackend(settings)(gm, example_inputs)
