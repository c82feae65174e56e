"""The graph level: each call runs as the device's own eager kernel."""

from __future__ import annotations

from torch import fx

from keel import Backend, Call
from keel.plugin import has_kernel
from keel_privateuse1.device import NAME


def refuse(call: Call) -> str | None:
    """A call is refused if its operator would fall back to the host."""
    return None if has_kernel(call.op, NAME) else f"The device {NAME} has no kernel of {call.name}."


def compile(gm: fx.GraphModule) -> fx.GraphModule:
    return gm


# The device's own kernels lay results out in other ways than PyTorch's for a CPU, which graphs promise.
backend = Backend(name=f"{NAME}_graph", device=NAME, supports=refuse, compile=compile, any_layout=True)
