"""The compiler, top to bottom: capture, legalize, place, compile each part, link."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import fx

from keel import dump
from keel.cost import Cost, read_sheets
from keel.discovery import resolve
from keel.errors import KeelError, KeelWarning
from keel.extras import missing, require
from keel.fuel import Fuel
from keel.graph.deterministic import fill_fresh_memory, is_filled
from keel.graph.eager_segments import in_order, segments
from keel.graph.opset_check import reject_excluded_inputs, untyped_calls, warn_of_eager_calls
from keel.graph.purity import why_not_rerunnable
from keel.graph.verify import verify
from keel.interpreter import in_one_chunk, no_collection
from keel.pins import pinned
from keel.placement.audit.itemized_cost import PartCost, itemize
from keel.placement.audit.verify import Refused, verify_placement
from keel.placement.placement import Plan, Refusals
from keel.placement.select import Selection, replan, select_placement
from keel.placement.solve.build_problem import Pricing, sheets_of
from keel.placement.support_cache import Fault, SupportCache
from keel.plugin import Backend, CompileContext
from keel.runtime.autotune import Candidate, PlanTiming, autotuned, devices_of, reason
from keel.runtime.compile_parts import compile_parts
from keel.runtime.link import CompiledPart, link
from keel.torch_adapter import Boxed, Captured, GraphPair, Kind, capture, compiled_graphs, unwrapped

__all__ = [
    "Compiled",
    "Costs",
    "DynamoBackend",
    "Listener",
    "Settings",
    "compile_graph",
    "compiled_graphs",
    "read_settings",
]

Costs = Mapping[str, Cost] | str | os.PathLike[str]
MODES = ("default", "reduce-overhead")
PLACEMENTS = ("auto", "order", "cost", "measured")
BY_COST = ("cost", "measured")
WITHIN = 1.5
"""How many times as long as the placement by cost one backend alone may be predicted to take, to be tried against it:
sheets are seldom further off, and who is tried is compiled."""
COSTS = "KEEL_COSTS"
"""The environment variable that names a file of data sheets."""


@dataclass(frozen=True)
class Settings:
    """What the user asked for.  Equal settings compile equally, so Dynamo keeps what it has compiled."""

    backends: tuple[Backend, ...]
    mode: str = "default"
    strict: bool = False
    fuel: int | None = None
    placement: str = "auto"


@dataclass(frozen=True)
class DynamoBackend:
    """Keel with its settings, as Dynamo calls it."""

    __name__ = "keel"

    settings: Settings
    listen: Listener | None = None

    @in_one_chunk
    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs = GraphPair() if self.settings.mode == "reduce-overhead" else None

        def compiler(captured: Captured) -> Boxed:
            run = compile_graph(captured, self.settings, self.listen)
            return run if graphs is None else graphs.recorded(run, captured, getattr(run, "decided", lambda: True))

        with unwrapped(), no_collection():
            reject_excluded_inputs(gm)
            return capture(gm, example_inputs, compiler)


@dataclass(frozen=True)
class Compiled:
    """One compiled graph, as a listener hears of it: the ``captured`` and the legalized graph, its plan, its parts,
    and the names of inputs that never change.  Where plans are tried, it is heard of with the first of them while that
    is ``open``, and once more when it is decided, with the one that is kept and all that were ``tried``; ``untried``
    says why none are though they should be."""

    kind: Kind
    captured: fx.GraphModule
    gm: fx.GraphModule
    plan: Plan
    parts: tuple[CompiledPart, ...]
    constants: frozenset[str] = frozenset()
    open: bool = False
    tried: tuple[PlanTiming, ...] = ()
    untried: str = ""

    @cached_property
    def bills(self) -> tuple[PartCost, ...] | None:
        """What each part costs by the data sheets; None where some backend has none. Counted when first asked for:
        composites are written out for it.  None, too, where a data sheet fails at these."""
        try:
            return itemize(self.gm, self.plan, self.constants)
        except Fault:
            return None


Listener = Callable[[Compiled], None]


@in_one_chunk
@no_collection()
def compile_graph(captured: Captured, settings: Settings, listen: Listener | None = None) -> Boxed:
    """One captured graph as a callable; ``listen`` hears of it, or of each graph between calls of streams and events.

    Where a backend contradicts itself, or its data sheet fails, the graph is placed again without the backend or the
    sheet, with a KeelWarning; under ``strict`` that is KeelError[refuse-raised] or KeelError[cost-raised].
    """
    eager = untyped_calls(captured.gm)
    if eager and settings.strict:
        raise next(iter(eager.values()))
    if steps := segments(captured, eager):
        if eager:
            warn_of_eager_calls(eager)
        return in_order(captured, steps, partial(compile_graph, settings=settings, listen=listen))
    folder = dump.folder(captured.kind)
    dump.write(folder, "captured", lambda: dump.graph_text(captured.gm))
    verify(captured.gm, "capture")
    if is_filled():
        fill_fresh_memory(captured.gm, captured.fake_mode)
    faults: list[Fault] = []
    while True:
        try:
            run = _placed(captured, settings, folder, listen)
        except Fault as fault:
            if settings.strict:
                raise fault.error from fault.__cause__
            faults.append(fault)
            settings = replace(settings, backends=fault.without(settings.backends))
        except KeelError as raised:
            if raised.code == "no-owner" and faults:  # nobody else takes what a backend was left out of
                raise faults[-1].error from raised
            raise
        else:
            for each in faults:
                each.error.do = f"{each.instead} strict=True makes this an error."
                warnings.warn(str(each.error), KeelWarning, stacklevel=2)
            return run


def _placed(captured: Captured, settings: Settings, folder: Path | None, listen: Listener | None) -> Boxed:
    """The graph legalized, placed, compiled and linked.  Raises ``Fault``."""
    constants, strict = frozenset(captured.constants), settings.strict
    price, answers = pricing(settings, constants), SupportCache(settings.backends, strict=strict)
    choice = select_placement(captured, answers.backends, strict=strict, price=price)
    gm, plan = choice.gm, answers.of_the_user(choice.plan)
    dump.write(folder, "legalized", lambda: dump.graph_text(gm))
    verify(gm, "legalization")
    _certify(gm, plan, constants, answers)
    answers.tell()

    def anew(refusals: Refusals) -> Plan:
        found = answers.of_the_user(
            replan(gm, answers.backends, refusals, strict=strict, price=price if plan.claim is not None else None)
        )
        _certify(gm, found, constants, answers)
        return found

    dump.write(folder, "placed", lambda: dump.json_text(plan.as_json()))
    plan, parts = compile_parts(
        gm, plan, anew, strict=strict, ctx=CompileContext(dump=folder, fuel=Fuel(settings.fuel))
    )
    compiled = Compiled(captured.kind, captured.gm, gm, plan, tuple(parts), constants)
    run = link(gm, parts, captured.constants)
    if settings.placement == "measured":
        return _tried(captured, settings, replace(choice, plan=plan), compiled, run, folder, listen, answers)
    if listen is not None:
        listen(compiled)
    return run


def _certify(gm: fx.GraphModule, plan: Plan, constants: Collection[str], answers: SupportCache) -> None:
    """Raises KeelError[bad-plan], or ``Fault`` where an owner took a call before that it refuses now."""
    try:
        verify_placement(gm, plan, constants)
    except Refused as refused:
        raise answers.contradiction(refused) or refused from None


def _tried(
    captured: Captured,
    settings: Settings,
    choice: Selection,
    compiled: Compiled,
    run: Boxed,
    folder: Path | None,
    listen: Listener | None,
    answers: SupportCache,
) -> Boxed:
    """``run``, or what its first calls find to be faster: one backend alone."""
    rivals, once = choice.rivals(WITHIN), why_not_rerunnable(captured.gm.graph)
    if not rivals or once is not None:
        if listen is not None:
            listen(
                replace(
                    compiled,
                    untried=f"The graph may run only once: {once}"
                    if once
                    else "No other backend alone has all of it and is predicted to be nearly as fast.",
                )
            )
        return run
    if listen is not None:
        listen(replace(compiled, open=True))
    found, failed = [_candidate(compiled, run, folder, listen)], list[PlanTiming]()
    for gm, plan in rivals:
        verify(gm, "legalization")
        plan = answers.of_the_user(plan)
        _certify(gm, plan, compiled.constants, answers)
        inside = dump.inside(folder, f"alone-{plan.parts[0].owner.name}")
        dump.write(inside, "legalized", partial(dump.graph_text, gm))
        ctx = CompileContext(dump=inside, fuel=Fuel(settings.fuel))
        try:  # strict: what fails is out, and goes to nobody else
            plan, parts = compile_parts(gm, plan, _nobody_else, strict=True, ctx=ctx)
        except KeelError as raised:
            failed.append(replace(_expected(plan), why=reason(raised)))
            continue
        rival = replace(compiled, gm=gm, plan=plan, parts=tuple(parts))
        found.append(_candidate(rival, link(gm, parts, captured.constants), folder, listen))
    return autotuned(found, failed, devices_of(captured.gm))


def _nobody_else(refusals: Refusals) -> Plan:
    raise AssertionError("no other plan is asked for")


def _candidate(compiled: Compiled, run: Boxed, folder: Path | None, listen: Listener | None) -> Candidate:
    def hear(tried: tuple[PlanTiming, ...]) -> None:
        dump.write(
            folder,
            "autotuned",
            lambda: dump.json_text({"tried": [asdict(each) for each in tried], "kept": compiled.plan.as_json()}),
        )
        if listen is not None:
            listen(replace(compiled, tried=tried))

    return Candidate(_expected(compiled.plan), run, hear)


def _expected(plan: Plan) -> PlanTiming:
    return PlanTiming(
        tuple(sorted({part.owner.name for part in plan.parts})), math.inf if plan.claim is None else plan.claim.seconds
    )


def pricing(settings: Settings, constants: Collection[str] = ()) -> Pricing | None:
    """Prices, where graphs are placed by what they cost (see ``compile``)."""
    several = sum(not b.last_resort for b in settings.backends) > 1
    if settings.placement in BY_COST:
        require("placement", "Placement by cost")
        return Pricing(constants, compete=True)
    if settings.placement != "auto" or not several or sheets_of(settings.backends) is None:
        return None
    if not missing("placement"):
        return Pricing(constants, compete=False)
    warnings.warn(
        'Graphs are placed by the order of backends, not by cost: that needs the extra "placement" '
        '(pip install "torch-keel[placement]"). Pass placement="order" to choose that.',
        KeelWarning,
        stacklevel=2,
    )
    return None


_TYPES: Mapping[str, tuple[type, ...]] = {
    "backends": (list, tuple),
    "strict": (bool,),
    "fuel": (int,),
    "placement": (str,),
    "costs": (Mapping, str, os.PathLike),
    "pins": (Mapping,),
}


def read_settings(mode: str | None, options: Mapping[str, Any] | None) -> Settings:
    """The settings, checked.  Raises KeelError[bad-option] and what ``resolve`` raises."""
    given = {name: value for name, value in (options or {}).items() if value is not None}
    for name, value in given.items():
        if name not in _TYPES:
            near = get_close_matches(str(name), _TYPES, n=1)
            raise KeelError(
                "bad-option",
                f"There is no option {name!r}.",
                {"options": ", ".join(_TYPES)},
                do=f"Did you mean {near[0]!r}?" if near else None,
            )
        if not isinstance(value, _TYPES[name]) or (
            isinstance(value, int) and (value < 0 or isinstance(value, bool) != (bool in _TYPES[name]))
        ):
            raise KeelError("bad-option", f"The option {name!r} is {value!r}.", do=f"Give {_MEANING[name]}.")
    if mode is not None and mode not in MODES:
        raise KeelError(
            "bad-option",
            f"There is no mode {mode!r}.",
            {"modes": ", ".join(MODES)},
            do="Leave the mode out, or use one of these.",
        )
    if (placement := given.get("placement", "auto")) not in PLACEMENTS:
        raise KeelError(
            "bad-option",
            f"There is no placement {placement!r}.",
            {"placements": ", ".join(PLACEMENTS)},
            do="Leave it out, or use one of these.",
        )
    strict = given.get("strict", False)
    backends = _measured(resolve(given.get("backends"), strict=strict), given.get("costs", os.environ.get(COSTS)))
    backends = pinned(backends, given.get("pins", {}))
    found = Settings(backends, mode or "default", strict, given.get("fuel"), placement)
    if placement in BY_COST and sheets_of(found.backends) is None:
        lacking = [b.name for b in found.backends if b.cost is None and not b.last_resort]
        raise KeelError(
            "bad-option",
            f"The placement cannot be by cost: {' and '.join(lacking)} "
            f"{'has' if len(lacking) == 1 else 'have'} no data sheet.",
            do="Give each backend a `cost`, or leave the placement out.",
        )
    return found


def _measured(backends: tuple[Backend, ...], costs: Costs | None) -> tuple[Backend, ...]:
    """The backends with the data sheets that ``costs`` have of them instead of their own."""
    if costs is None:
        return backends
    sheets = costs if isinstance(costs, Mapping) else read_sheets(costs)
    return tuple(replace(b, cost=sheets[b.name]) if b.name in sheets else b for b in backends)


_MEANING = {
    "backends": "a list of names or Backend values",
    "strict": "True or False",
    "fuel": "the number of fusions to allow",
    "placement": f"one of {', '.join(PLACEMENTS)}",
    "costs": "data sheets by backend name, or the path of a file of them",
    "pins": "names of backends by operator",
}
