"""Who takes what of a model, who refused and why, where in the user's code, and what fell back."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import StringIO
from typing import Any

import torch
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from torch import nn

from keel.compiler import Compiled, Costs, DynamoBackend, Settings, pricing, read_settings
from keel.graph.calls import call_of, where
from keel.plugin import Backend
from keel.runtime.tried import LONGEST, Tried
from keel.what_if import Step, merged, next_steps, suppose

SHOWN = 5
"""How many of the steps that would save time are printed."""
FIGURES = ("calls", "calls take", "moves", "launch", "predicted", "took")


@dataclass(frozen=True)
class PartReport:
    """One part: how many calls of which operators, who claimed them, and who compiled them in the end; the parts that
    it reads from; and by the data sheets, if all backends have some, the seconds of its calls, of what it takes from
    and gives to others, and to enter it."""

    name: str
    owner: str
    claimed_by: str
    calls: int
    operators: Mapping[str, int]
    trouble: tuple[str, ...]
    reads: tuple[str, ...] = ()
    work: float | None = None
    moves: float | None = None
    launch: float | None = None


@dataclass(frozen=True)
class RefusalReport:
    """One reason of one backend for not taking an operator: how often, and the first lines of user code it hit."""

    backend: str
    operator: str
    reason: str
    nearest: str | None
    calls: int
    where: tuple[str, ...]
    owner: str


@dataclass(frozen=True)
class GraphReport:
    """One compiled graph: ``kind`` is inference, forward or backward.  ``bound`` are seconds that no placement of it
    undercuts, if it was placed by cost; ``steps`` are what could be taken besides; ``tried`` are the plans that ran
    against each other, ``untried`` says why none did where that was asked for."""

    kind: str
    parts: tuple[PartReport, ...]
    refused: tuple[RefusalReport, ...]
    bound: float | None = None
    steps: tuple[Step, ...] = ()
    tried: tuple[Tried, ...] = ()
    untried: str = ""

    @property
    def calls(self) -> int:
        return sum(p.calls for p in self.parts)

    @property
    def seconds(self) -> float | None:
        """By the data sheets."""
        known = [p.work + p.moves + p.launch for p in self.parts
                 if p.work is not None and p.moves is not None and p.launch is not None]
        return sum(known) if len(known) == len(self.parts) else None


@dataclass(frozen=True)
class Explanation:
    """How a function was placed.  ``print`` gives text, ``rich.print`` the same in colour, ``as_json`` plain data."""

    backends: tuple[str, ...]
    last_resorts: tuple[str, ...]
    graphs: tuple[GraphReport, ...]

    @property
    def taken(self) -> dict[str, int]:
        """How many calls each backend compiled."""
        found = dict.fromkeys(self.backends, 0)
        for part in self._parts():
            found[part.owner] += part.calls
        return found

    @property
    def fell_back(self) -> dict[str, int]:
        """The operators that only a backend of last resort took, and how many calls of each."""
        found: Counter[str] = Counter()
        for part in self._parts():
            found.update(part.operators if part.owner in self.last_resorts else {})
        return dict(found.most_common())

    @property
    def steps(self) -> tuple[Step, ...]:
        """What to implement next: over all graphs, the operators that backends refuse, the most seconds saved first."""
        return merged(step for graph in self.graphs for step in graph.steps)

    def _parts(self) -> Iterable[PartReport]:
        return (part for graph in self.graphs for part in graph.parts)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "taken": self.taken, "fell_back": self.fell_back,
                "steps": [asdict(step) for step in self.steps]}

    def __rich__(self) -> RenderableType:
        if not self.graphs:
            return "Nothing was compiled: the function computes no tensors, or Dynamo skipped it."
        return Group(*(block for graph in self.graphs for block in _blocks(graph)), _summary(self))

    def __str__(self) -> str:
        console = Console(file=StringIO(), width=120, color_system=None, legacy_windows=False)
        console.print(self)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in text.splitlines())


def explain(fn: Callable[..., Any], *args: Any, backends: Sequence[str | Backend] | None = None, strict: bool = False,
            dynamic: bool | None = None, placement: str = "auto", costs: Costs | None = None,
            without: Sequence[str] = (), assume: Sequence[str] = (), pins: Mapping[str, str] | None = None,
            **kwargs: Any) -> Explanation:
    """Compiles ``fn`` as ``keel.compile`` would, by calling it once on these arguments, and says who took what.

    ``without`` leaves backends (``cpp``) or operators (``softmax``, on every backend; ``cpp.softmax``) away, ``assume``
    has backends take operators that they refuse (``acme.softmax``): then nothing is compiled, and parts run in eager
    PyTorch.  Where a result needs gradients, the backward pass runs too; no ``.grad`` is written.  With the placement
    ``measured`` it is called until all is decided.  Raises what compiling raises.
    """
    settings = read_settings(None, {"backends": backends, "strict": strict, "placement": placement, "costs": costs,
                                    "pins": pins})
    if without or assume:                                     # what runs in eager PyTorch instead takes another time
        settings = replace(settings, backends=suppose(settings.backends, without, assume),
                           placement="cost" if settings.placement == "measured" else settings.placement)
    heard: list[Compiled] = []
    # A new callable, so that Dynamo does not find the function compiled already.
    run = torch.compile(fn, backend=DynamoBackend(settings, heard.append), dynamic=dynamic)
    for _ in range(LONGEST * (1 + len(settings.backends))):
        _backward(run(*args, **kwargs), fn, args, kwargs)
        graphs = {id(compiled.captured): compiled for compiled in heard}      # of each the last that was heard
        if not any(compiled.open for compiled in graphs.values()):
            break
    return Explanation(tuple(b.name for b in settings.backends),
                       tuple(b.name for b in settings.backends if b.last_resort), 
                       tuple(_report(compiled, settings) for compiled in graphs.values()))


def _backward(results: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Runs the backward pass, where there is one: its graph is compiled when it is first needed."""
    outputs = [t for t in _tensors(results) if t.requires_grad]
    wanted = [t for t in _tensors((args, dict(kwargs))) if t.requires_grad]
    wanted += [p for p in (fn.parameters() if isinstance(fn, nn.Module) else ()) if p.requires_grad]
    if outputs and wanted:
        torch.autograd.grad(outputs, wanted, [torch.ones_like(t) for t in outputs], allow_unused=True)


def _tensors(value: Any) -> list[torch.Tensor]:
    match value:
        case torch.Tensor():
            return [value]
        case Mapping():
            return [t for v in value.values() for t in _tensors(v)]
        case list() | tuple():
            return [t for v in value for t in _tensors(v)]
    return []


def _report(compiled: Compiled, settings: Settings) -> GraphReport:
    nodes = {n.name: n for n in compiled.gm.graph.nodes}
    plan, parts = compiled.plan, []
    bills = compiled.bills or [None] * len(plan.parts)
    maker = {name: made.name for made in compiled.parts for name in made.outputs}
    for part, made, paid in zip(plan.parts, compiled.parts, bills, strict=True):
        operators = Counter(str(nodes[name].target) for name in part.nodes)
        claimed = next((who for error in made.trouble for who in error.reasons or {}), part.owner.name)
        parts.append(PartReport(part.name, made.owner, claimed, len(part.nodes), dict(operators.most_common()),
                                tuple(map(str, made.trouble)),
                                tuple(dict.fromkeys(maker[name] for name in made.inputs if name in maker)),
                                *((paid.work, paid.moves, paid.launch) if paid else (None, None, None))))
    steps = next_steps(compiled.gm, plan, pricing(settings, compiled.constants), compiled.constants)
    return GraphReport(compiled.kind, tuple(parts), tuple(_refusals(compiled)),
                       None if plan.claim is None else plan.claim.bound, steps, compiled.tried,
                       "The function calls it too seldom." if compiled.open else compiled.untried)


def _refusals(compiled: Compiled) -> list[RefusalReport]:
    owners = compiled.plan.owner_of
    found: dict[tuple[str, str, str, str | None, str], list[str | None]] = {}
    for node in compiled.gm.graph.nodes:
        if node.name not in owners or (call := call_of(node)) is None:
            continue
        for backend, why in compiled.plan.refusals.get(node.name, {}).items():
            key = (backend, call.name, why.sentence, why.nearest, owners[node.name].name)
            found.setdefault(key, []).append(where(node))
    return [RefusalReport(backend, operator, sentence, nearest, len(lines),
                          tuple(dict.fromkeys(line for line in lines if line))[:3], owner)
            for (backend, operator, sentence, nearest, owner), lines in
            sorted(found.items(), key=lambda item: (-len(item[1]), item[0][:2]))]


def _blocks(graph: GraphReport) -> Iterable[RenderableType]:
    yield f"[bold]{graph.kind}[/]: {_count(graph.calls, 'call')} in {_count(len(graph.parts), 'part')}"
    priced = graph.seconds is not None
    parts = _table("part", "by", "calls", *(("calls take", "moves", "launch") if priced else ()), "operators")
    for p in graph.parts:
        by = p.owner if p.owner == p.claimed_by else f"{p.owner}, for {p.claimed_by} could not compile it"
        seconds = map(duration, (p.work, p.moves, p.launch)) if priced else ()
        parts.add_row(p.name, by, str(p.calls), *seconds, escape(", ".join(
            f"{_short(o)} {n}" if n > 1 else _short(o) for o, n in p.operators.items())))
    yield parts
    if graph.seconds is not None:
        bound = f"; no placement takes less than {duration(graph.bound)}" if graph.bound is not None else ""
        yield f"By the data sheets {duration(graph.seconds)}{bound}."
    if graph.tried:
        tried = _table("tried", "predicted", "took", "")
        for t in graph.tried:
            tried.add_row(" and ".join(t.owners), duration(t.predicted), duration(t.took),
                          escape(t.why) or ("kept" if t.kept else ""))
        yield tried
    if graph.untried:
        yield escape(f"Nothing was tried. {graph.untried}")
    if graph.refused:
        refused = _table("refused by", "operator", "calls", "why", "at", "taken by")
        for r in graph.refused:
            why = f"{r.reason} It would take {r.nearest}." if r.nearest else r.reason
            refused.add_row(r.backend, _short(r.operator), str(r.calls), escape(why),
                            escape("\n".join(line.split("   ")[0] for line in r.where)), r.owner)
        yield refused
    yield ""


def _summary(explanation: Explanation) -> str:
    lines = [", ".join(f"{name} takes {_count(n, 'call')}" for name, n in explanation.taken.items()) + "."]
    if fell := explanation.fell_back:
        lines.append("Only a last resort takes " + ", ".join(f"{_short(o)} ({n})" for o, n in fell.items()) + ".")
    if worth := [s for s in explanation.steps if s.saved is not None and s.saved > 0][:SHOWN]:
        lines.append("It would save most if " + ", ".join(
            f"{s.backend} took {_short(s.operator)} ({duration(s.saved)})" for s in worth) + ".")
    return escape("\n".join(lines))


def duration(seconds: float | None) -> str:
    """``12.3 us``."""
    if seconds is None:
        return ""
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms")) if seconds >= s), (1e-6, "us"))
    return f"{seconds / scale:.3g} {unit}"


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in FIGURES else "left", overflow="fold")
    return table


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _short(operator: str) -> str:
    return operator.removeprefix("aten.").removesuffix(".default")
