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
    run, owner, trouble = _compiled(gm, plan, made, strict, meta)
    if owner is not made.part.owner:
        promised = promise(_fresh(gm, plan, made).gm, owner.name, made.part.name)
    first = None if always() else first_call(run, promised)
    return Linkable(made.part.name, run if first else every_call(run, promised), made.inputs, made.outputs, first,
                    owner.name, trouble)


def _compiled(gm: fx.GraphModule, plan: Plan, made: PartGraph, strict: bool, meta: Mapping[str, Any],
              ) -> tuple[Callable[..., Sequence[Any]], Backend, tuple[KeelError, ...]]:
    """What runs the part, who compiled it, and the errors of those who could not."""
    trouble: list[KeelError] = []
    part, able = made, [made.part.owner]
    while True:
        backend = able.pop(0)
        part.gm.meta |= meta
        try:
            return _run(backend, part.gm), backend, tuple(trouble)
        except Exception as raised:
            # A backend that failed may have left its graph in any state, so the next one gets another.
            part = _fresh(gm, plan, made)
            error = _failed(part, backend, raised)
            able = able if trouble else _substitutes(part.gm, plan, made.part.owner)
            if strict or not able:
                raise error from raised
            error.do = f"{able[0].name} compiles it instead. strict=True makes this an error."
            warnings.warn(str(error), KeelWarning, stacklevel=2)
            trouble.append(error)


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
