"""A part compiled by its owner or, should that raise, by the next backend that takes all its calls."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from keel.errors import KeelError, KeelWarning
from keel.graph.calls import call_of, is_call, where
from keel.partition.plan import Plan
from keel.partition.split import PartGraph, split
from keel.plugin import Backend, refusal
from keel.runtime.checked import always, every_call, first_call, promise
from keel.runtime.link import Linkable


def compile_part(gm: fx.GraphModule, plan: Plan, made: PartGraph, *, strict: bool,
                 meta: Mapping[str, Any]) -> Linkable:
    """The part ``made`` of ``gm``, compiled.  Its graph is given ``meta``.

    A backend that cannot compile what it claimed is passed over with a KeelWarning; under ``strict``, or if nobody else
    takes all calls of the part, that is KeelError[compile-raised].
    """
    promised = promise(made.gm, made.part.owner.name, made.part.name)
    run, owner = _compiled(gm, plan, made, strict, meta)
    if owner is not made.part.owner:
        promised = promise(_fresh(gm, plan, made).gm, owner.name, made.part.name)
    if always():
        return Linkable(made.part.name, every_call(run, promised), made.inputs, made.outputs)
    return Linkable(made.part.name, run, made.inputs, made.outputs, first_call(run, promised))


def _compiled(gm: fx.GraphModule, plan: Plan, made: PartGraph, strict: bool,
              meta: Mapping[str, Any]) -> tuple[Callable[..., Sequence[Any]], Backend]:
    able = [made.part.owner, *_substitutes(made.gm, plan, made.part.owner)]
    for i, backend in enumerate(able):
        # A backend that failed may have left its graph in any state, so the next one gets another.
        part = made if i == 0 else _fresh(gm, plan, made)
        part.gm.meta |= meta
        try:
            return _run(backend, part.gm), backend
        except Exception as raised:
            error = _failed(part, backend, raised)
            if strict or i + 1 == len(able):
                raise error from raised
            error.do = f"{able[i + 1].name} compiles it instead. strict=True makes this an error."
            warnings.warn(str(error), KeelWarning, stacklevel=2)
    raise AssertionError("the last backend returns or raises")


def _run(backend: Backend, gm: fx.GraphModule) -> Callable[..., Sequence[Any]]:
    run = backend.compile(gm)
    if not callable(run):
        raise TypeError(f"`compile` returned {type(run).__name__}, not a callable.")
    return run


def _substitutes(gm: fx.GraphModule, plan: Plan, owner: Backend) -> list[Backend]:
    calls = [call for n in gm.graph.nodes if is_call(n) and (call := call_of(n)) is not None]
    return [b for b in plan.backends if b is not owner and all(refusal(b, c) is None for c in calls)]


def _fresh(gm: fx.GraphModule, plan: Plan, made: PartGraph) -> PartGraph:
    return next(p for p in split(gm, plan) if p.part is made.part)


def _failed(made: PartGraph, backend: Backend, raised: Exception) -> KeelError:
    nodes = [n for n in made.gm.graph.nodes if is_call(n)]
    lines = str(raised).strip().splitlines()
    count = f"{len(nodes)} call{'s' if len(nodes) != 1 else ''}"
    return KeelError(
        "compile-raised", f"{backend.name} could not compile part {made.part.name} of {count}, which it took.",
        {backend.name: f"{type(raised).__name__}: {lines[0]}" if lines else f"{type(raised).__name__}."},
        next((at for n in nodes if (at := where(n))), None),
        "This is a defect of the backend, for it claimed these calls. Leave it out, or add one that takes them.")
