"""Installed backends as backends of ``torch.compile``: ``keel.dynamo:acme`` is an entry point of the backend ``acme``.

A plugin's package has it in the group ``torch_dynamo_backends``, so that PyTorch finds the backend by its name:

    [project.entry-points.torch_dynamo_backends]
    acme = "keel.dynamo:acme"

Neither this module nor the entry point imports the plugin, which is found, and first imported elsewhere, like any other
when a graph is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keel.compile import dynamo_backend

if TYPE_CHECKING:
    from torch import fx

__all__: list[str] = []


def __getattr__(name: str) -> Callable[..., Any]:
    """What ``torch.compile(model, backend=name)`` calls: Keel with the installed backend of that name, and eager
    PyTorch for what this backend refuses. ``options`` and ``mode`` are those of ``torch.compile(backend="keel")``, and
    ``options={"backends": [...]}`` names others in its place. Without options and a mode, placement is by order: a
    user with one backend wants it to run all that it takes.
    """
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def compile(
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        if options is None and mode is None:
            options = {"placement": "order"}
        return dynamo_backend(gm, example_inputs, mode=mode, options={"backends": [name], **(options or {})})

    globals()[name] = compile
    return compile
