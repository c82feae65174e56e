"""What ``compile`` gets in addition to a graph, and the forms of what it may return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import fx

from keel.fuel import Fuel
from keel.plugin.api import BEGINS
from keel.plugin.graph_claims import Fusion
from keel.registration import checked_call, has_parameter

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, eq=False)
class Constant:
    """A tensor that an inference graph gets in every call: a parameter, a buffer or another tensor of the model.

    ``name`` is its name in the model (``layer.0.weight``), empty if Keel does not know it. ``value`` is the tensor if
    it never changes: a constant of the program, or any of these if the user compiled with ``freeze=True``. Otherwise it
    is None, since the user may write to it or replace it between calls: see ``PreparedConstants``.
    """

    kind: Literal["parameter", "buffer", "constant"]
    name: str = ""
    value: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class SizeRange:
    """What is known of a symbolic size: its bounds, both inclusive, and a typical value. ``high`` is None if the size
    has no upper bound, and ``typical`` is None if the size depends on data.
    """

    low: int
    high: int | None
    typical: int | None


@dataclass(frozen=True, kw_only=True)
class CompileContext:
    """Information for compiling a part in addition to its graph. A ``compile`` or ``begin`` with a parameter named
    ``ctx`` gets one.
    """

    dump: Path | None = None
    """The folder of the whole graph under ``KEEL_DUMP``, for stages of the part; None if nothing is dumped."""
    fuel: Fuel = field(default_factory=Fuel)
    """The limit of optimizations in the whole graph: ``fuel.take()`` is True if one more is allowed."""
    lasting: frozenset[str] = frozenset()
    """The placeholders of an inference graph that are the same tensors in every call: parameters and buffers. What is
    computed from them may be kept until one of them changes."""
    overwrites: Mapping[str, str] = field(default_factory=dict)
    """Results that become the contents of an input after the call, by the names of both nodes. A part may write such a
    result to its input's memory, after it has read the input for the last time, and return the input itself: that saves
    a copy. Other results are copied."""
    donated: frozenset[str] = frozenset()
    """Tensors saved for a backward graph that no other part reads and the program does not see, by placeholder. A part
    may write to the memory of what ``owned`` returns for one, after it has read it for the last time. Since API 2."""
    spends_memory: bool = False
    """True in the modes ``max-autotune``: what gains little speed for the memory that it holds is wanted, too."""
    constants: Mapping[str, Constant] = field(default_factory=dict)
    """What is known of the placeholders in ``lasting``, by name. Since API 2."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The value of each option that the backend declares, by name, the defaults included. Since API 2."""
    device: torch.device | None = None
    """The device of the part's tensors; None if they are on several devices, or if it has none. Since API 2."""
    sizes: Mapping[str, SizeRange] = field(default_factory=dict)
    """What is known of each symbol in the part's sizes. Since API 2."""
    fusions: tuple[Fusion, ...] = ()
    """The fusions that the backend claimed in the part, with the names of nodes of its graph. Since API 2."""


def with_context(function: Callable[..., Result], ctx: CompileContext) -> Callable[..., Result]:
    """Wraps ``function`` as a function of its other arguments: the graph, or the kernels of a loop target. ``ctx`` is
    passed to it if it has a parameter of that name.
    """
    return partial(function, ctx=ctx) if has_parameter(function, "ctx") else function


@dataclass(frozen=True)
class Staged:
    """A ``compile`` in two stages, so that the parts of a graph are compiled in parallel.

    ``begin`` runs for one part after the other, on the thread that compiles the graph, and does the work that needs
    PyTorch. It returns a function without arguments that returns the compiled part. That function may run on any
    thread, in parallel with others; typically it waits for a compiler process.
    """

    begin: Callable[..., Callable[[], Callable[..., Any]]]

    def __post_init__(self) -> None:
        checked_call("A Staged", "begin", self.begin, BEGINS, takes=1, by_name="ctx")

    def __call__(self, gm: fx.GraphModule, ctx: CompileContext | None = None) -> Callable[..., Any]:
        return with_context(self.begin, ctx or CompileContext())(gm)()


@dataclass(frozen=True)
class PreparedConstants:
    """A compiled part that takes its constants in a form of its own: packed, folded, or uploaded to a device.

    ``compile`` may return one. ``prepare`` gets the tensors of ``CompileContext.constants`` by placeholder, and returns
    any value. Keel calls it in the first call, and again if the user has written to one of the tensors or replaced it,
    but never twice for the same version of all of them. It must not write to the tensors. ``run`` gets that value, and
    then the part's other inputs in the order of their placeholders. It returns what a compiled part returns. Since
    API 2.
    """

    prepare: Callable[[Mapping[str, torch.Tensor]], Any]
    run: Callable[..., Any]

    def __post_init__(self) -> None:
        checked_call("A PreparedConstants", "prepare", self.prepare, "it takes tensors by placeholder", takes=1)
        checked_call("A PreparedConstants", "run", self.run, "it takes what `prepare` returned, and the other inputs")
