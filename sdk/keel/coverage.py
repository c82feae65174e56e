"""Measures how much of the operator set a backend takes: each primitive on each of its dtypes, in which way, or why
not.

The backend is asked about the samples of the declarations, as calls with the types that eager PyTorch returns. If it
refuses a call that is not in normal form, it is asked about the pieces of the normal form.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from keel.compiler import compile_captured
from keel.discovery import resolve
from keel.errors import KeelWarning
from keel.events import Event, GraphCompiled
from keel.graph import calls as graph
from keel.graph.legalize import legalize
from keel.graph.opset_check import reject_excluded
from keel.placement.place import place
from keel.placement.placement import Plan
from keel.plugin import Backend
from keel.refusals import CannotSay, answer
from keel.settings import Settings
from keel.spec import MEMBERS, OPSET, Op, Sample, normal_form
from keel.spec.normal import overload_of
from keel.torch_adapter import Boxed, Captured, observed
from keel.types import DTYPE_NAMES, Call

__all__ = ["BEYOND", "Cell", "Done", "Way", "cells", "compiling", "dtype_name", "is_beyond", "way"]

Way = Literal["loops", "extern", "taken", "beside", "refused"]
"""``taken``: a backend that is not a loop target takes the call. ``beside``: a backend takes the view, but eager
PyTorch runs it together with the call that makes its base or reads it, because a view is free on every backend.
"""

BEYOND = frozenset({"control", "collective", "host", "effect"})
"""Tags of primitives that do not compute a tensor from tensors on one device: the runtime handles them, not a
kernel.
"""


@dataclass
class Cell:
    """The result for a primitive's samples of one dtype: the number of samples for each way, and the reason of the
    first refusal. ``raised`` counts samples for which eager PyTorch itself raises.
    """

    op: str
    family: str
    dtype: torch.dtype | None
    ways: Counter[str] = field(default_factory=Counter)
    why: str = ""
    raised: int = 0

    @property
    def verdict(self) -> str:
        """One of the ways; ``mixed`` if some samples use loops and some a library; ``none`` if there are no samples."""
        if self.ways["refused"]:
            return "refused"
        ways = [w for w in ("loops", "extern", "taken") if self.ways[w]]
        return "none" if not ways else ways[0] if len(ways) == 1 else "mixed"

    def as_json(self) -> dict[str, Any]:
        return {
            "op": self.op,
            "family": self.family,
            "dtype": dtype_name(self.dtype),
            "verdict": self.verdict,
            "ways": dict(self.ways),
            "raised": self.raised,
            "why": self.why,
        }


def dtype_name(dtype: torch.dtype | None) -> str:
    return "any" if dtype is None else DTYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))


def way(backend: Backend, call: Call) -> tuple[Way, str]:
    """How a backend runs a call, or the sentence with which it refuses it."""
    try:
        why = answer(backend, call)
    except CannotSay as raised:  # the cell reports it, so no warning is needed
        why = raised.refusal
    if why is not None:
        return "refused", str(why)
    if backend.target is None:
        return "taken", ""
    extern = backend.target.externs.get(call.name)
    return ("extern" if extern is not None and (extern.refuse is None or extern.refuse(call) is None) else "loops"), ""


def cells(backend: Backend, ops: Iterable[Op] | None = None) -> Iterator[Cell]:
    """Returns a cell for each primitive and each of its dtypes, without primitives that belong to the runtime."""
    for op in MEMBERS.values() if ops is None else ops:
        if op.kind != "primitive" or op.tags & BEYOND or not op.targets:
            continue
        for dtype in op.dtypes or (None,):
            cell = Cell(op.name, op.family, dtype)
            for sample in op.samples(dtype or torch.float32) if op.samples else ():
                _ask(backend, op, sample, cell)
            yield cell


def _ask(backend: Backend, op: Op, sample: Sample, cell: Cell) -> None:
    try:
        target = overload_of(op, sample.args, sample.kwargs)
        with torch.random.fork_rng(devices=()), torch.no_grad():
            made = call_of(target, sample.args, sample.kwargs, target(*sample.args, **sample.kwargs))
    except Exception:  # the sample is of a dtype that eager PyTorch lacks
        cell.raised += 1
        return
    outcome, why = way(backend, made)
    if outcome == "refused":
        outcome, why = _in_pieces(backend, made, sample, why)
    cell.ways[outcome] += 1
    if outcome == "refused" and not cell.why:
        cell.why = f"{why} ({made})"


def _in_pieces(backend: Backend, made: Call, sample: Sample, why: str) -> tuple[Way, str]:
    """How the normal form of a refused call runs: refused if one of its pieces is refused, by a library if one of them
    is.
    """
    try:
        normal = normal_form(made)
        pieces = [] if normal is None else observed(normal, *sample.args, **sample.kwargs)
    except Exception as e:
        return "refused", f"{why} Its normal form raises {type(e).__name__}: {e}."
    ways = [way(backend, call_of(*logged)) for logged in pieces]
    for outcome in ("refused", "extern"):
        if (match := next((w for w in ways if w[0] == outcome), None)) is not None:
            return match
    return ways[0] if ways else ("refused", why)


def call_of(op: Any, args: Sequence[Any], kwargs: Any, result: Any) -> Call:
    """The call of an overload on real tensors, given its real result."""
    keywords = {k: graph.to_type(v) for k, v in kwargs.items()}
    return Call(op, tuple(map(graph.to_type, args)), keywords, graph.types_of(result))


# -- programs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """The result for one graph of a program: each call with its way (``refused``: left to eager PyTorch) and the
    reason, and sentences about parts that could not be compiled.
    """

    calls: tuple[tuple[Call, Way, str], ...]
    trouble: tuple[str, ...] = ()


def compiling(backend: Backend, hear: Callable[[Done], None], *, build: bool = True) -> Callable[[Captured], Boxed]:
    """A compiler of captured graphs with ``backend``, and eager PyTorch for calls that it refuses. Without ``build``,
    the graph is only placed, and runs in eager PyTorch.
    """
    settings = Settings(resolve([backend]))

    def built(captured: Captured) -> Boxed:
        def listen(event: Event) -> None:
            if isinstance(event, GraphCompiled):
                trouble = tuple(str(e) for part in event.parts for e in part.trouble)
                hear(Done(_ways(backend, event.gm, event.plan), trouble))

        reject_excluded(captured.gm)  # such values would run in eager PyTorch unnoticed
        run = compile_captured(captured, settings, listen)

        def strict_run(inputs: list[Any]) -> Sequence[Any]:
            with warnings.catch_warnings():  # a cast of results would hide wrong types
                warnings.simplefilter("error", KeelWarning)
                return run(inputs)

        return strict_run

    def placed(captured: Captured) -> Boxed:
        legalized = legalize(captured, settings.backends)
        gm = legalized.gm
        hear(Done(_ways(backend, gm, place(gm, settings.backends, legalized.refusals))))

        def run(inputs: list[Any]) -> Sequence[Any]:
            args = [*inputs, *captured.constants.values()]
            inputs.clear()
            return gm(*args)  # type: ignore[no-any-return]

        return run

    return built if build else placed


def _ways(backend: Backend, gm: Any, plan: Plan) -> tuple[tuple[Call, Way, str], ...]:
    ways: list[tuple[Call, Way, str]] = []
    for node in gm.graph.nodes:
        owner = plan.owner_of.get(node.name)
        call = graph.call_of(node) if owner is not None else None
        if call is not None:
            how, why = way(backend, call)
            elsewhere = owner is not None and owner.name != backend.name
            ways.append((call, "beside" if elsewhere and how != "refused" else how, why))
    return tuple(ways)


def is_beyond(call: Call) -> bool:
    """True if a call does not compute a tensor from tensors on one device."""
    op = OPSET.get(call.op)
    return op is not None and bool(op.tags & BEYOND)
