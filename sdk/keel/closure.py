"""Decomposes programs completely, to find out which operators they end in: members of the operator set, and others.

Legalization runs with a backend that takes exactly the operator set, in normal form. The result runs in eager PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

from torch import __version__, fx

from keel.errors import KeelError
from keel.graph.calls import call_of
from keel.graph.legalize import legalize, unclaimed_calls
from keel.graph.verify import verify
from keel.plugin import Backend
from keel.spec import OPSET, is_normal
from keel.spec.accounted import is_pytorchs
from keel.torch_adapter import Boxed, Captured, Kind, bug_of, capture
from keel.types import Call

__all__ = ["Ending", "Watcher", "dynamo_backend", "ending", "fault", "opset_backend", "watching"]


@dataclass(frozen=True)
class Ending:
    """The result for one traced graph. ``calls`` are its leaf calls, in order. ``outside`` are those that are neither
    in the operator set nor decomposed, each with the reason. ``seconds`` is the CPU time of legalization. ``gm`` runs
    in eager PyTorch.
    """

    kind: Kind
    captured: Captured
    gm: fx.GraphModule
    calls: tuple[Call, ...]
    outside: tuple[tuple[Call, str], ...]
    seconds: float

    @property
    def foreign(self) -> tuple[str, ...]:
        """The operators of packages other than PyTorch among ``calls``, which no operator set can contain."""
        return tuple(sorted({c.name for c in self.calls if not is_pytorchs(c.name)}))


def opset_backend() -> Backend:
    """A backend that takes the primitives in normal form, the opaque operators, and operators that other packages
    register. It refuses everything else.
    """
    return Backend(name="opset", device="*", supports=_refuse, compile=lambda gm: gm.forward)


def _refuse(call: Call) -> str | None:
    op = OPSET.get(call.op)
    if op is None:
        return f"{call.name} is not in the operator set." if is_pytorchs(call.name) else None
    if op.kind == "composite":
        return f"{op.name} is composite."
    if op.kind == "opaque":
        return None
    first = next((t.dtype for t in call.tensors), None)
    if op.dtypes and first is not None and first not in op.dtypes:
        return f"{op.name} is not declared for {str(first).removeprefix('torch.')}."
    return None if is_normal(call) else f"The call of {op.name} is not in normal form."


_OPSET = opset_backend()
_REST = Backend(name="rest", device="*", supports=lambda call: None, compile=lambda gm: gm.forward, last_resort=True)


def ending(captured: Captured) -> Ending:
    """Decomposes a captured graph. Raises KeelError[bad-graph] for a graph that is not well-formed."""
    verify(captured.gm, "capture")
    begin, lacking = process_time(), list[tuple[Call, str]]()
    try:
        gm = legalize(captured, [_OPSET]).gm
    except KeelError as e:
        if e.code != "no-owner":
            raise
        lacking = unclaimed_calls(captured, [_OPSET])
        gm = legalize(captured, [_OPSET, _REST]).gm
    seconds = process_time() - begin
    verify(gm, "legalization")
    calls = (call_of(n) for n in gm.graph.nodes)
    return Ending(captured.kind, captured, gm, tuple(c for c in calls if c is not None), tuple(lacking), seconds)


def fault(call: Call) -> str | None:
    """The known defect of PyTorch's fake kernel for such a call in this version, because of which eager's type is used;
    None if there is no known defect.
    """
    bug, release = bug_of(call.op), ".".join(__version__.split(".")[:2])
    return bug.sentence if bug is not None and release in bug.torch_versions else None


Watcher = Callable[[Captured], Ending | None]
"""Decomposes a captured graph, or returns None if that fails."""


def watching(watch: Watcher = ending) -> Callable[[Captured], Boxed]:
    """A compiler of captured graphs: each graph runs eagerly in the form that ``watch`` returns, or unchanged if it
    returns None.
    """

    def compile_graph(captured: Captured) -> Boxed:
        end = watch(captured)
        return _eagerly(captured, captured.gm if end is None else end.gm)

    return compile_graph


def _eagerly(captured: Captured, gm: fx.GraphModule) -> Boxed:
    def run(inputs: list[Any]) -> Sequence[Any]:
        args = [*inputs, *captured.constants.values()]
        inputs.clear()
        return gm(*args)  # type: ignore[no-any-return]

    return run


def dynamo_backend(watch: Watcher = ending) -> Callable[..., Any]:
    """The same for ``torch.compile(..., backend=...)``."""
    return lambda gm, inputs: capture(gm, inputs, watching(watch))
