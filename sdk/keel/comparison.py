"""Compares a compiled model with float64, part by part and module by module: which operator is wrong, and by how much.

Each part gets the inputs that it has in the running program, so that an error is found in the part that makes it. The
part runs as it is compiled. A second version of it, compiled with more outputs, shows the values that modules pass on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from keel.compared_values import ComparedValue, WrongOperator
from keel.compiler import DynamoBackend
from keel.discovery import find
from keel.error_budgets import JudgedResult, NodeRuns
from keel.error_budgets.judgment import judge_several
from keel.errors import KeelError, first_line
from keel.events import EventLog
from keel.explanation import run_backward, with_plugins_for
from keel.extras import require
from keel.graph.calls import call_of
from keel.number_checks import generator_states, set_generators
from keel.placement.part_graphs import PartGraph
from keel.plugin import Backend, CompileContext
from keel.refusals import answer
from keel.runtime.contract_checks import Run
from keel.runtime.link import CompiledPart
from keel.runtime.part_interface import BuiltPart
from keel.settings import read_settings
from keel.tapped_parts import Suspect, first_wrong_call, tapped, taps_at_modules

EAGER = "eager"


@dataclass(frozen=True)
class Comparison:
    """What a comparison found. ``values`` has each value with its worst judgment over all ``steps``, in the order in
    which they are computed. ``wrong`` has the first wrong operator of each part that is over its budget. ``against``
    names the reference. ``notes`` say what was not compared, and why.
    """

    backends: tuple[str, ...]
    against: str
    steps: int
    values: tuple[ComparedValue, ...]
    wrong: tuple[WrongOperator, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __rich__(self) -> Any:
        require("cli", "A comparison as text")
        from keel.comparison_text import document

        return document(self.values, self.wrong, self.notes, self.against)

    def __str__(self) -> str:
        require("cli", "A comparison as text")
        from keel.explanation_text import plain

        return plain(self.__rich__())


def compare(
    fn: Callable[..., Any],
    *args: Any,
    backends: Sequence[str | Backend] | None = None,
    against: str = EAGER,
    steps: int = 1,
    inside: bool = True,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> Comparison:
    """Compiles ``fn``, runs it on these arguments, with its backward pass if a result needs gradients, and compares the
    results of each part with float64.

    ``against`` is ``eager`` or the name of another backend, whose errors are shown next to those of ``backends``. Only
    the worst of several ``steps`` is kept. Without ``inside``, only results of parts are compared, as they are
    compiled. No ``.grad`` is written. Raises what compiling raises.
    """
    settings = read_settings(None, {"backends": backends, "placement": "order"})
    settings = with_plugins_for(settings, fn, args, kwargs)
    comparing = _Comparing(None if against == EAGER else find(against), inside)
    run = torch.compile(fn, backend=DynamoBackend(settings, EventLog(), comparing.watch), dynamic=dynamic)
    for _ in range(steps):
        run_backward(run(*args, **kwargs), fn, args, kwargs)
    names = tuple(b.name for b in settings.backends)
    return comparing.comparison(names, against, steps)


@dataclass
class _Comparing:
    """Watches the parts of all graphs of a model."""

    other: Backend | None
    inside: bool
    graphs: int = 0
    values: dict[tuple[int, str, str], ComparedValue] = field(default_factory=dict)
    wrong: dict[tuple[int, str], WrongOperator] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def watch(
        self, kind: str, graphs: Sequence[PartGraph], built: Sequence[BuiltPart], parts: Sequence[CompiledPart]
    ) -> list[CompiledPart]:
        self.graphs += 1
        watched = []
        for graph, b, part in zip(graphs, built, parts, strict=True):
            run = _ComparedPart(self, self.graphs, kind, graph, b.ctx)
            first = None if part.first is None else run.around(part.first)
            watched.append(replace(part, run=run.around(part.run), first=first))
        return watched

    def add(self, value: ComparedValue) -> None:
        """Keeps the worse of two judgments on a value."""
        key = value.graph, value.part, value.name
        before = self.values.get(key)
        if before is None or value.judgment.ratio > before.judgment.ratio:
            self.values[key] = value

    def note(self, sentence: str) -> None:
        self.notes[sentence] = None

    def comparison(self, backends: tuple[str, ...], against: str, steps: int) -> Comparison:
        return Comparison(
            backends, against, steps, tuple(self.values.values()), tuple(self.wrong.values()), tuple(self.notes)
        )


class _ComparedPart:
    """A part whose calls are compared with float64."""

    def __init__(self, comparing: _Comparing, graph: int, kind: str, part: PartGraph, ctx: CompileContext):
        self.comparing, self.graph, self.kind, self.part, self.ctx = comparing, graph, kind, part, ctx
        self.owner = self.part.part.owner
        self._runs: NodeRuns | None = None
        self._versions: dict[str, Callable[..., dict[str, Any]] | None] = {}

    def around(self, run: Run) -> Run:
        """The part, which compares its results in each call."""

        def compared(*inputs: Any) -> Sequence[Any]:
            before = generator_states(inputs)
            results = run(*inputs)
            after = generator_states(inputs)
            try:
                self._compare([x.detach() if isinstance(x, Tensor) else x for x in inputs], results, before, after)
            except KeelError as error:
                self.comparing.note(f"{self._name} is not compared: {error.what} {_reasons(error)}")
            finally:
                set_generators(after)
            return results

        return compared

    @property
    def _name(self) -> str:
        return f"Part {self.part.part.name} of the {self.kind} graph {self.graph}"

    def _compare(
        self, inputs: Sequence[Any], results: Sequence[Any], before: Mapping[str, Tensor], after: Mapping[str, Tensor]
    ) -> None:
        """Compares values of a call. PyTorch's generators had the states ``before`` and ``after`` it."""
        if self._runs is None:
            self._runs = NodeRuns(self.part.gm, self.owner.arithmetic)
        outputs = dict(zip(self.part.outputs, results, strict=True))
        set_generators(before)
        inner = {n: v for n, v in self._inside(self.owner, inputs).items() if n not in outputs}
        others = {} if self.comparing.other is None else self._inside(self.comparing.other, inputs)
        compared: list[tuple[JudgedResult, bool, float]] = []
        set_generators(before)
        for node, expected in self._runs.run(inputs, {*outputs, *inner}):
            is_inside = node.name not in outputs
            judgment = judge_several((inner if is_inside else outputs)[node.name], expected)
            reference = judgment.eager_norm
            if self.comparing.other is not None:
                reference = judge_several(others[node.name], expected).norm if node.name in others else math.nan
            result = JudgedResult.of(node, judgment, is_drawn=expected.is_drawn)
            compared.append((result, is_inside, reference))
        has_same_draws = all(torch.equal(after[k], now) for k, now in generator_states(inputs).items())
        compared = [one for one in compared if has_same_draws or not one[0].is_drawn]
        for one in compared:
            self._add(*one)
        wrong = [result for result, is_inside, _ in compared if result.judgment.is_over and not is_inside]
        if wrong and (self.graph, self.part.part.name) not in self.comparing.wrong:
            set_generators(before)
            self._locate(inputs, wrong)

    def _inside(self, backend: Backend, inputs: Sequence[Any]) -> dict[str, Any]:
        """The values that modules inside the part pass on, by a backend."""
        name = backend.name
        if not self.comparing.inside and backend is self.owner:
            return {}
        if name not in self._versions:
            self._versions[name] = self._version(backend)
        version = self._versions[name]
        return {} if version is None else version(*inputs)

    def _version(self, backend: Backend) -> Callable[..., dict[str, Any]] | None:
        calls = [call for node in self.part.graph.nodes if (call := call_of(node)) is not None]
        refusals = [why for call in calls if backend is not self.owner and (why := answer(backend, call)) is not None]
        if refusals:
            self.comparing.note(f"{self._name} is not compared with {backend.name}: {refusals[0]}")
            return None
        taps = {*taps_at_modules(self.part.graph)} if self.comparing.inside else set()
        taps |= set() if backend is self.owner else set(self.part.outputs)
        try:
            return tapped(self.part, self.ctx, taps, backend) if taps else None
        except Exception as raised:  # what a backend raises for a graph that it was not asked about
            what = f"{self._name} has no values inside: {backend.name} could not compile it with more outputs: "
            self.comparing.note(what + first_line(raised))
            return None

    def _add(self, result: JudgedResult, is_inside: bool, reference: float) -> None:
        place = self.graph, self.kind, self.part.part.name, self.owner.name
        of = result.name, result.operator, result.module, result.line
        self.comparing.add(ComparedValue(*place, *of, is_inside, result.judgment, reference))

    def _locate(self, inputs: Sequence[Any], wrong: Sequence[JudgedResult]) -> None:
        """Finds the first wrong call of the part; the first wrong result stands for it if none is found."""
        suspect: Suspect | None = None
        try:
            suspect = first_wrong_call(self.part, self.ctx, inputs, wrong[0].name)
        except Exception as raised:  # what a backend raises for a graph that it was not asked about
            self.comparing.note(f"{self._name} could not be compiled with more outputs: {first_line(raised)}")
        suspect = suspect or Suspect(wrong[0], True)
        result = suspect.result
        self.comparing.wrong[self.graph, self.part.part.name] = WrongOperator(
            self.graph,
            self.kind,
            self.part.part.name,
            self.owner.name,
            result.operator,
            result.name,
            result.module,
            result.line,
            result.judgment.defect,
            suspect.is_fused,
        )


def _reasons(error: KeelError) -> str:
    return " ".join((error.reasons or {}).values())
