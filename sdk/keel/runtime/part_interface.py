"""What a compiled part is to the graph around it: its values, its contract, and how its results are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from keel.placement.part_graphs import PartGraph
from keel.plugin import CompileContext
from keel.runtime.contract_checks import (
    PartContract,
    Run,
    check_every_call,
    check_first_call,
    is_checking_every_call,
)
from keel.runtime.launch import LoopPart
from keel.runtime.link import CompiledPart
from keel.runtime.result_casts import CastResults, lay_out
from keel.runtime.result_views import ResultViews


@dataclass(frozen=True)
class PartInterface:
    """The interface of a part. ``inputs`` and ``outputs`` are names of nodes of the graph, and profilers show the
    ``label``.

    ``promised`` is the contract that the part keeps. If there is a ``computed`` one, its backend's results may have
    other strides, and are laid out by it. If there are ``views``, these make the results of the tensors that the
    backend computes. If it ``casts``, results of another type than promised are cast.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    label: str
    promised: PartContract
    computed: PartContract | None = None
    views: ResultViews | None = None
    casts: bool = False

    def linked(self, compiled: Run) -> CompiledPart:
        """The part with its checks. ``compiled`` is what its backend made."""
        run = compiled if self.computed is None else lay_out(compiled, self.computed)
        run = run if self.views is None else self.views.of(run)
        run = CastResults(run, self.promised) if self.casts else run
        looked = run.first if isinstance(run, CastResults) else run
        first = None if is_checking_every_call() else check_first_call(looked, self.promised)
        return CompiledPart(
            self.name,
            run if first else check_every_call(looked, self.promised),
            self.inputs,
            self.outputs,
            first,
            self.promised.owner,
            label=self.label,
            lines=self.promised.lines,
        )


@dataclass(frozen=True)
class BuiltPart:
    """A part that its backend ``compiled``, of this ``graph`` and with this context."""

    interface: PartInterface
    graph: PartGraph
    ctx: CompileContext
    compiled: Run

    def linked(self) -> CompiledPart:
        """The part with its checks."""
        return self.interface.linked(self.compiled)

    @property
    def loop_part(self) -> LoopPart | None:
        """The launch program and the sources of a part of a loop target, until they are forgotten."""
        part: LoopPart | None = getattr(self.compiled, "loop_part", None)
        return part

    def forget_program(self) -> None:
        """Frees what only saving a part of a loop target needs."""
        getattr(self.compiled, "__dict__", {}).pop("loop_part", None)


Watch = Callable[[str, Sequence[PartGraph], Sequence[BuiltPart], Sequence[CompiledPart]], list[CompiledPart]]
"""Replaces the parts of a graph of a kind (inference, forward, backward) by parts whose calls are watched. It gets the
graphs of the parts as they were before backends got them, because a backend may change its graph.
"""
