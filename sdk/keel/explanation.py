"""Explains the placement of a model: owners of calls, refusals with reasons and lines of code, and fallbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import fx, nn

from keel.compiler import DynamoBackend
from keel.events import EventLog, GraphState
from keel.extras import require
from keel.graph.calls import types_of
from keel.graph.module_paths import common_path, module_path
from keel.graph.size_hints import typical_sizes
from keel.plugin import Backend
from keel.refusal_reports import passed_over, refusal_reports
from keel.reports import GraphReport, PartReport
from keel.runtime.autotune import LONGEST
from keel.runtime.link import CompiledPart
from keel.settings import Costs, Settings, read_settings, with_plugins
from keel.symbols import evaluate
from keel.types import TensorType
from keel.what_if import Step, merged, next_steps, suppose


@dataclass(frozen=True)
class Explanation:
    """How a function was placed. ``as_json`` returns plain data. ``print`` prints text, and ``rich.print`` the same in
    color; both need the extra ``cli``.
    """

    backends: tuple[str, ...]
    last_resorts: tuple[str, ...]
    graphs: tuple[GraphReport, ...]

    @property
    def taken(self) -> dict[str, int]:
        """The number of calls that each backend compiled."""
        counts = dict.fromkeys(self.backends, 0)
        for part in self._parts():
            counts[part.owner] += part.calls
        return counts

    @property
    def fell_back(self) -> dict[str, int]:
        """The operators that only a backend of last resort took, with the number of their calls."""
        counts: Counter[str] = Counter()
        for part in self._parts():
            counts.update(part.operators if part.owner in self.last_resorts else {})
        return dict(counts.most_common())

    @property
    def steps(self) -> tuple[Step, ...]:
        """What to implement next: the operators that backends refuse in all graphs, sorted by the seconds that they
        would save.
        """
        return merged(step for graph in self.graphs for step in graph.steps)

    def _parts(self) -> Iterable[PartReport]:
        return (part for graph in self.graphs for part in graph.parts)

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "taken": self.taken,
            "fell_back": self.fell_back,
            "steps": [asdict(step) for step in self.steps],
        }

    def __rich__(self) -> Any:
        require("cli", "An explanation as text")
        from keel.explanation_text import document

        return document(self.graphs, self.taken, self.fell_back, self.steps)

    def __str__(self) -> str:
        require("cli", "An explanation as text")
        from keel.explanation_text import plain

        return plain(self.__rich__())


def explain(
    fn: Callable[..., Any],
    *args: Any,
    backends: Sequence[str | Backend] | None = None,
    strict: bool = False,
    dynamic: bool | None = None,
    placement: str = "auto",
    costs: Costs | None = None,
    without: Sequence[str] = (),
    assume: Sequence[str] = (),
    pins: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> Explanation:
    """Compiles ``fn`` as ``keel.compile`` would, by calling it once on these arguments, and explains its placement.

    ``without`` removes backends (``cpp``) or operators (``softmax``, on every backend; ``cpp.softmax``). ``assume``
    makes backends take operators that they refuse (``acme.softmax``). With either, nothing is compiled, and parts run
    in eager PyTorch. If a result needs gradients, the backward pass runs too; no ``.grad`` is written. With the
    placement ``measured``, ``fn`` is called until all plans are decided. Raises what compiling raises.
    """
    settings = read_settings(
        None, {"backends": backends, "strict": strict, "placement": placement, "costs": costs, "pins": pins}
    )
    settings = with_plugins_for(settings, fn, args, kwargs)
    if without or assume:  # parts run in eager PyTorch, so measured times would be wrong
        settings = replace(
            settings,
            backends=suppose(settings.backends, without, assume),
            named=True,  # so that a plugin that was removed does not come back
            placement="cost" if settings.placement == "measured" else settings.placement,
        )
    log = EventLog()
    # A new callable, so that Dynamo does not reuse earlier compiled code.
    run = torch.compile(fn, backend=DynamoBackend(settings, log), dynamic=dynamic)
    for _ in range(LONGEST * (1 + len(settings.backends))):
        run_backward(run(*args, **kwargs), fn, args, kwargs)
        if not log.is_timing:
            break
    return Explanation(
        tuple(b.name for b in settings.backends),
        tuple(b.name for b in settings.backends if b.last_resort),
        tuple(_report(state, settings) for state in log.states),
    )


def with_plugins_for(
    settings: Settings, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Settings:
    """The settings with the installed backends of the devices that a call of ``fn`` has tensors on."""
    owned = [*fn.parameters(), *fn.buffers()] if isinstance(fn, nn.Module) else []
    return with_plugins(settings, {t.device.type for t in (*tensors_in((args, kwargs)), *owned)})


def run_backward(
    results: Any,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    ones: Callable[[torch.Tensor], torch.Tensor] = torch.ones_like,
) -> list[torch.Tensor]:
    """Runs the backward pass, if there is one, because its graph is compiled when it is first needed. Returns the
    gradients of all tensors that require them and are used. No ``.grad`` is written. ``ones`` makes the gradients of
    the results.
    """
    outputs = [t for t in tensors_in(results) if t.requires_grad]
    leaves = [t for t in tensors_in((args, dict(kwargs))) if t.requires_grad]
    leaves += [p for p in (fn.parameters() if isinstance(fn, nn.Module) else ()) if p.requires_grad]
    if not outputs or not leaves:
        return []
    gradients = torch.autograd.grad(outputs, leaves, [*map(ones, outputs)], allow_unused=True)
    return [g for g in gradients if g is not None]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    match value:
        case torch.Tensor():
            return [value]
        case Mapping():
            return [t for v in value.values() for t in tensors_in(v)]
        case list() | tuple():
            return [t for v in value for t in tensors_in(v)]
    return []


def _report(state: GraphState, settings: Settings) -> GraphReport:
    compiled = state.graph
    plan, sizes = compiled.plan, _sizes(compiled.gm.graph)
    nodes = {n.name: n for n in compiled.gm.graph.nodes}
    parts = []
    for i, (part, made) in enumerate(zip(plan.parts, compiled.parts, strict=True)):
        report = _part(made, [nodes[name] for name in part.nodes], _bytes_read(made, compiled.parts, sizes))
        if compiled.bills is not None:
            bill = compiled.bills[i]
            report = replace(report, work=bill.work, moves=bill.moves, launch=bill.launch)
        fusions = Counter(fusion.name for fusion in part.fusions)
        parts.append(replace(report, fusions=dict(fusions.most_common())))
    steps = next_steps(compiled.gm, plan, compiled.price, compiled.constants)
    no_sheet = {b.name for b in settings.backends if b.cost is None and not b.last_resort}
    return GraphReport(
        compiled.kind,
        tuple(parts),
        tuple(refusal_reports(compiled.gm, plan)),
        None if plan.claim is None else plan.claim.bound,
        steps,
        state.timings,
        "The graph was called too few times." if state.is_timing else state.skipped,
        tuple(b.name for b in plan.backends if b.name in no_sheet and plan.claim is not None),
        passed_over(compiled.gm, plan),
    )


def _part(made: CompiledPart, calls: Sequence[fx.Node], bytes_read: Mapping[str, int]) -> PartReport:
    modules: dict[str, Counter[str]] = {}
    for node in calls:
        modules.setdefault(module_path(node), Counter())[str(node.target)] += 1
    return PartReport(
        made.name,
        made.owner,
        next((who for error in made.trouble for who in error.reasons or {}), made.owner),
        len(calls),
        dict(Counter(str(node.target) for node in calls).most_common()),
        tuple(map(str, made.trouble)),
        tuple(name for name in bytes_read if name),
        module=common_path(modules),
        modules={path: dict(counts.most_common()) for path, counts in modules.items()},
        bytes_read=bytes_read,
    )


def _sizes(graph: fx.Graph) -> dict[str, int]:
    """The bytes of each tensor in a graph, at the sizes that it was captured with; 0 for data-dependent sizes."""
    known, sizes = typical_sizes(graph), dict[str, int]()
    for node in graph.nodes:
        types = [t for t in types_of(node.meta.get("val")) if isinstance(t, TensorType)]
        sizes[node.name] = sum(
            int(evaluate(t.numel, known)) * t.dtype.itemsize for t in types if known.keys() >= {*t.symbols}
        )
    return sizes


def _bytes_read(part: CompiledPart, parts: Sequence[CompiledPart], sizes: Mapping[str, int]) -> dict[str, int]:
    """The bytes that a part reads, by the name of the part that makes them; the name of the graph's inputs is empty."""
    makers = {name: made.name for made in parts for name in made.outputs}
    read: Counter[str] = Counter()
    for name in dict.fromkeys(part.inputs):
        read[makers.get(name, "")] += sizes[name]
    return dict(read)
