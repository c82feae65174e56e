"""What programs end in: each traced, and written out until only the operator set is left, or what is outside of it.

A backend that takes exactly the operator set, in normal form, is what legalization is tested with; what comes out runs
in eager PyTorch.
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
    """What one traced graph ends in.

    ``calls`` are all that is left, in order; ``outside`` those that are neither of the operator set nor written out,
    each with the reason.  ``seconds`` are those of the processor that legalization took.  ``gm`` runs eagerly.
    """

    kind: Kind
    captured: Captured
    gm: fx.GraphModule
    calls: tuple[Call, ...]
    outside: tuple[tuple[Call, str], ...]
    seconds: float

    @property
    def foreign(self) -> tuple[str, ...]:
        """The operators of other packages than PyTorch that are left, which no operator set can hold."""
        return tuple(sorted({c.name for c in self.calls if not is_pytorchs(c.name)}))


def opset_backend() -> Backend:
    """A backend that takes the primitives in normal form, the opaque operators, and what other packages than PyTorch
    register, whose meaning is theirs; nothing else.
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
    """What a captured graph ends in.  Raises KeelError[bad-graph] for one that is not well-formed."""
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
    """What PyTorch's fake kernel is known to say wrongly of such a call in this version, so that its type is eager's
    instead; None if nothing is known.
    """
    bug, release = bug_of(call.op), ".".join(__version__.split(".")[:2])
    return bug.sentence if bug is not None and release in bug.torch_versions else None


Watcher = Callable[[Captured], Ending | None]
"""Makes of a captured graph what it ends in, or nothing if it cannot."""


def watching(watch: Watcher = ending) -> Callable[[Captured], Boxed]:
    """A compiler of captured graphs: each runs eagerly as what it ends in; as it is where ``watch`` gives nothing."""

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
