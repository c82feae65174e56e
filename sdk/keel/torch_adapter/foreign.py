"""Access to Dynamo: the tensors that a graph is compiled for, and the backends registered with ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, cast

import torch
from torch import fx
from torch._guards import CompileContext, TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

from keel.entry_points import carried
from keel.errors import KeelError
from keel.torch_adapter.recorder import fake_mode_of


def given_to(gm: fx.GraphModule) -> list[tuple[fx.Node, torch.Tensor]]:
    """The inputs of a graph that Dynamo is compiling, with their real tensors, because fake tensors do not show every
    layout. Inputs of graphs that do not come from Dynamo, and tensor subclasses that are unwrapped before capture, are
    left out.
    """
    known = ((n, getattr(n.meta.get("grapharg"), "example", None)) for n in gm.graph.find_nodes(op="placeholder"))
    return [(n, t) for n, t in known if isinstance(t, torch.Tensor) and not is_traceable_wrapper_subclass(t)]


Foreign = Callable[[fx.GraphModule], Callable[..., Sequence[Any]]]


def torch_compile_backend(name: str) -> Foreign:
    """The compile function of a registered backend of ``torch.compile``, to be called with a graph of typed ATen calls.

    What it returns takes the graph's inputs positionally and returns its outputs.  Raises KeelError[unknown-backend],
    also for names that stand for Keel itself.
    """
    from torch._dynamo import list_backends, lookup_backend  # takes a second, so it is imported only here

    keels = {point.name for point in carried("torch_dynamo_backends")[0] if point.value.startswith("keel.")}
    names = [n for n in list_backends(exclude_tags=()) if n not in keels]
    if name not in names:
        near = get_close_matches(name, names, n=1)
        raise KeelError(
            "unknown-backend",
            f"torch.compile has no backend named {name!r}.",
            {"registered": ", ".join(sorted(names))},
            do=f"Did you mean {near[0]!r}?" if near else "Install the package that registers it.",
        )
    return lambda gm: _compiled(cast(Callable[..., Any], lookup_backend(name)), gm)


def asks_again(raised: BaseException) -> bool:
    """True if an exception is a request to Dynamo to trace again, not a failure: a float becomes a constant, for
    instance.
    """
    from torch._dynamo.exc import RestartAnalysis  # takes a second, unless Dynamo is loaded already

    return CompileContext.try_get() is not None and isinstance(raised, RestartAnalysis)


def _known(sizes: Sequence[Any]) -> bool:
    """True if no size is symbolic."""
    return all(isinstance(n, int) for n in sizes)


def _compiled(backend: Callable[..., Any], gm: fx.GraphModule) -> Callable[..., Sequence[Any]]:
    inputs = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    # The foreign compiler must not see the surrounding compilation. It gets a tracing context of its own, which shares
    # the sizes and the facts about them. If all sizes are known, nothing is shared, so that new symbols of the foreign
    # compiler do not become guards of the surrounding compilation.
    mode = fake_mode_of(gm)
    if all(isinstance(v, torch.Tensor) and _known((*v.shape, *v.stride())) for v in inputs):
        mode = FakeTensorMode(shape_env=ShapeEnv())
        with mode:
            inputs = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) for v in inputs]
    with tracing(TracingContext(mode)), _disable_current_modes(), torch.no_grad():
        return cast(Callable[..., Sequence[Any]], backend(gm, inputs))
