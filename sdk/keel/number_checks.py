"""``KEEL_CHECK=numbers`` compares results of parts with float64 while a program runs.

Only some calls are checked, so that the checks take at most a small share of the time of the parts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, fx

from keel.error_budgets import JudgedResult, NodeRuns, judge_part
from keel.errors import KeelError, KeelWarning, count, first_line
from keel.placement.part_graphs import PartGraph
from keel.runtime.contract_checks import NUMBERS, Run, check_words
from keel.runtime.link import CompiledPart
from keel.runtime.part_interface import BuiltPart, Watch
from keel.torch_adapter import is_random
from keel.types import leaves

SHARE = 0.02
"""The share of the time of parts that checks take by default."""
GUESS = 40.0
"""A check is assumed to take this many times as long as a call of its part, until one has been timed."""
FIRST_CALLS = 2
"""The first calls of a part are not timed: they compile kernels and allocate memory."""

Alarm = Callable[["CheckedRun", Sequence[Any], Sequence[Any], Sequence[JudgedResult]], None]
Save = Callable[[str, fx.GraphModule, Sequence[Any], str], None]
"""Saves a call of a part that is wrong: the kind of graph, the graph of the part, its inputs, and a sentence."""


def checked_share() -> float | None:
    """The share of the time that KEEL_CHECK allows for checks of numbers: infinity for ``numbers:all``, the number in
    ``numbers:0.1``, and a small one for ``numbers``. None if numbers are not checked. Raises KeelError[bad-option].
    """
    for word in check_words():
        name, _, amount = word.partition(":")
        if name != NUMBERS:
            continue
        if amount in ("", "all"):
            return math.inf if amount else SHARE
        try:
            share = float(amount)
        except ValueError:
            share = -1.0
        if not 0 < share < math.inf:
            raise KeelError(
                "bad-option",
                f"KEEL_CHECK={word} cannot be read.",
                {"keel": f"{amount!r} is not a share of time."},
                do="Write numbers, numbers:all to check every call, or numbers:0.1 to spend a tenth of the time.",
            )
        return share
    return None


class CheckClock:
    """Decides which calls of the parts of a graph are checked. ``share`` is the share of the time of the parts that the
    checks may take.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.busy = 0.0
        self.spent = 0.0
        self.queue: list[CheckedRun] = []

    def is_due(self, run: CheckedRun) -> bool:
        """True if this call of a part is checked: it is the part's turn, and there is time for it."""
        if self.share == math.inf:
            return True
        if not self.queue or self.queue[0] is not run:
            return False
        return self.share * self.busy >= self.spent + run.cost

    def checked(self, run: CheckedRun, seconds: float) -> None:
        """A check took this long. The part is last in turn now."""
        self.spent += seconds
        run.cost = seconds
        if run in self.queue:
            self.queue.remove(run)
            self.queue.append(run)

    def ran(self, run: CheckedRun, seconds: float) -> None:
        """A call of a part took this long without a check."""
        run.calls += 1
        if run.calls <= FIRST_CALLS:
            return
        self.busy += seconds
        if run.cost == math.inf:
            run.cost = GUESS * seconds


class CheckedRun:
    """A compiled part whose results are compared with float64 in some calls."""

    def __init__(self, graph: PartGraph, part: CompiledPart, clock: CheckClock, alarm: Alarm):
        self.graph, self.name, self.owner = graph, part.name, graph.part.owner
        self.clock, self.alarm = clock, alarm
        self.cost, self.calls = math.inf, 0
        self.is_silent = False
        self._run = part.run
        self._runs: NodeRuns | None = None
        self._draws = draws(graph.graph)
        if part.boxed is not None:
            inner = part.boxed
            self.boxed: Callable[[list[Any]], Sequence[Any]] = lambda args: self._boxed(inner, args)
        clock.queue.append(self)

    def __call__(self, *args: Any) -> Sequence[Any]:
        if self.clock.is_due(self):
            return self.check(self._run, args)
        began = perf_counter()
        results = self._run(*args)
        self.clock.ran(self, perf_counter() - began)
        return results

    def _boxed(self, inner: Callable[[list[Any]], Sequence[Any]], args: list[Any]) -> Sequence[Any]:
        if self.clock.is_due(self):
            inputs = tuple(args)
            args.clear()
            return self.check(self._run, inputs)
        began = perf_counter()
        results = inner(args)
        self.clock.ran(self, perf_counter() - began)
        return results

    def first_of(self, first: Run) -> Run:
        """The function that is called in place of the part until it has returned once."""
        return lambda *args: self.check(first, args) if self.clock.is_due(self) else first(*args)

    def check(self, run: Run, args: Sequence[Any]) -> Sequence[Any]:
        """Runs the part and judges its results. A part that cannot be judged is not checked again."""
        before = generator_states(args) if self._draws else None
        results = run(*args)
        began = perf_counter()
        try:
            judged = self.judged(args, results, before)
            if wrong := [one for one in judged if one.judgment.is_over]:
                self.alarm(self, args, results, wrong)
        except KeelError as error:
            self._leave_out()
            if error.code != "bad-graph":
                raise
        except (RuntimeError, TypeError, ValueError, MemoryError, NotImplementedError) as raised:
            self._leave_out()
            message = f"Part {self.name} of {self.owner.name} is not checked: {first_line(raised)}"
            warnings.warn(message, KeelWarning, stacklevel=2)
        self.clock.checked(self, perf_counter() - began)
        return results

    def judged(
        self, args: Sequence[Any], results: Sequence[Any], before: Mapping[str, Tensor] | None
    ) -> Sequence[JudgedResult]:
        """The judgments on results that were computed from ``args``, when PyTorch's generators had the states
        ``before``. Those on random numbers are left out if the backend draws others than eager PyTorch.
        """
        if self._runs is None:
            self._runs = NodeRuns(self.graph.gm, self.owner.arithmetic)
        inputs = [a.detach() if isinstance(a, Tensor) else a for a in args]
        if before is None:
            return judge_part(self.graph.gm, inputs, results, runs=self._runs)
        after = generator_states(args)
        set_generators(before)
        try:
            judged = judge_part(self.graph.gm, inputs, results, runs=self._runs)
            has_same_draws = all(torch.equal(after[k], now) for k, now in generator_states(args).items())
        finally:
            set_generators(after)
        return [one for one in judged if has_same_draws or not one.is_drawn]

    def _leave_out(self) -> None:
        if self in self.clock.queue:
            self.clock.queue.remove(self)


def number_checks(*, strict: bool, save: Save | None = None) -> Watch | None:
    """The checks that KEEL_CHECK asks for; None if it asks for none of numbers. Wrong numbers are an error if
    ``strict``. The first wrong call of each part is handed to ``save``. Raises KeelError[bad-option].
    """
    if (share := checked_share()) is None:
        return None

    def watch(
        kind: str, graphs: Sequence[PartGraph], built: Sequence[BuiltPart], parts: Sequence[CompiledPart]
    ) -> list[CompiledPart]:
        clock, checked = CheckClock(share), list[CompiledPart]()
        alarm: Alarm = raise_wrong_numbers if strict else warn_of_numbers
        alarm = alarm if save is None else saving(alarm, kind, save)
        for graph, part in zip(graphs, parts, strict=True):
            run = CheckedRun(graph, part, clock, alarm)
            checked.append(replace(part, run=run, first=None if part.first is None else run.first_of(part.first)))
        return checked

    return watch


def saving(alarm: Alarm, kind: str, save: Save) -> Alarm:
    """The alarm, which saves the first wrong call of each part of a graph of this kind before."""
    saved = set[str]()

    def saved_alarm(
        run: CheckedRun, args: Sequence[Any], results: Sequence[Any], wrong: Sequence[JudgedResult]
    ) -> None:
        if run.name not in saved:
            saved.add(run.name)
            save(kind, run.graph.gm, args, str(wrong_numbers(run, wrong)))
        alarm(run, args, results, wrong)

    return saved_alarm


def draws(graph: fx.Graph) -> bool:
    """True if a graph draws random numbers."""
    return any(n.op == "call_function" and callable(n.target) and is_random(n.target) for n in graph.nodes)


def generator_states(values: Any) -> dict[str, Tensor]:
    """The states of PyTorch's default generators of the host and of the devices of some tensors."""
    states = {"cpu": torch.get_rng_state()}
    for device in {x.device for x in leaves(list(values)) if isinstance(x, Tensor)} - {torch.device("cpu")}:
        states[str(device)] = torch.get_device_module(device).get_rng_state(device)
    return states


def set_generators(states: Mapping[str, Tensor]) -> None:
    """Sets PyTorch's default generators to these states."""
    for name, state in states.items():
        if name == "cpu":
            torch.set_rng_state(state)
        else:
            torch.get_device_module(torch.device(name)).set_rng_state(state, torch.device(name))


def warn_of_numbers(
    run: CheckedRun, args: Sequence[Any], results: Sequence[Any], wrong: Sequence[JudgedResult]
) -> None:
    """Warns of wrong numbers, once for each part."""
    if not run.is_silent:
        run.is_silent = True
        warnings.warn(str(wrong_numbers(run, wrong)), KeelWarning, stacklevel=2)


def raise_wrong_numbers(
    run: CheckedRun, args: Sequence[Any], results: Sequence[Any], wrong: Sequence[JudgedResult]
) -> None:
    """Raises KeelError[wrong-result]."""
    raise wrong_numbers(run, wrong)


def wrong_numbers(run: CheckedRun, wrong: Sequence[JudgedResult]) -> KeelError:
    """The error about results that are over their budgets."""
    first = wrong[0]
    reasons = {f"%{one.name}": _sentence(one) for one in wrong[:3]}
    if len(wrong) > 3:
        reasons["keel"] = f"{count(len(wrong) - 3, 'more result')} of the part are wrong."
    return KeelError(
        "wrong-result",
        f"{run.owner.name} computed wrong numbers in part {run.name}.",
        reasons,
        first.line,
        "keel compare shows which operator is wrong, and keel minify makes a short script of it. "
        f"Without {run.owner.name} among the backends, other backends run these calls.",
        aspect="values",
    )


def _sentence(one: JudgedResult) -> str:
    where = f" in {one.module}" if one.module else ""
    return f"{one.judgment.defect} It is the result of {one.operator}{where}."
