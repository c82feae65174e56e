"""PyTorch's structured trace, which ``TORCH_TRACE=dir`` writes and ``tlparse`` shows."""

from __future__ import annotations

from collections.abc import Callable

from torch._logging._internal import trace_structured


def trace_artifact(name: str, text: Callable[[], str]) -> None:
    """Adds a text to the compilation that runs on this thread. ``text`` is called only if there is a trace."""
    trace_structured("artifact", metadata_fn=lambda: {"name": name, "encoding": "string"}, payload_fn=text)
