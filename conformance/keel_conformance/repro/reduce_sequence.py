"""A sequence of actions that fails, reduced to the shortest one that breaks the same clause, as a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from keel.minify import Deadline, ddmin

from ..cases.case import Case
from ..devices import HOST, has_eager
from ..harness.backend_under_test import load_backend
from ..programs import plain
from ..programs.actions import ACTIONS
from ..programs.compare_facts import first_failure, run_program, summarize
from ..programs.context import Context
from ..programs.observation import Observation
from ..programs.program import Program
from ..programs.restricted_compiler import Compiler
from ..programs.states import NAMES, perform, states
from ..results.verdict import Verdict
from . import script
from .replay import ReplayPool
from .written_script import Written, name_of


@dataclass(frozen=True)
class Trial:
    """Actions that are done with what ``subject`` names, and in eager PyTorch."""

    subject: str
    names: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class Failure:
    """``done`` has the actions until the first one that fails, which is the last of them."""

    done: tuple[str, ...]
    clause: str
    sentence: str


def attempt(trial: Trial) -> Failure | None:
    """The first failure of the actions; None if they all hold."""
    under_test = load_backend(trial.subject)
    device = under_test.device if has_eager(under_test.device) else HOST
    expected, _ = _facts(trial, plain, device)
    observed, ends = _facts(trial, Compiler(under_test.backend), under_test.device)
    if observed.error:
        done = trial.names[: len(ends) + 1]
        return Failure(done, ACTIONS[done[-1]].clause, f"It raised {observed.error}")
    failure = first_failure(observed, expected)
    if failure is None:
        return None
    name, clause, sentence = failure
    place = next((k for k, fact in enumerate(observed.facts) if fact[0] == name), len(observed.facts))
    count = sum(end <= place for _, end in ends) + 1
    return Failure(tuple(action for action, _ in ends[:count]), clause, sentence)


def _facts(trial: Trial, compiler: object, device: str) -> tuple[Observation, list[tuple[str, int]]]:
    """What was told, and for each action how much had been told when it ended."""
    ends = list[tuple[str, int]]()

    def body(ctx: Context) -> None:
        context.append(ctx)
        perform(ctx, trial.names, lambda name: ends.append((name, len(ctx.facts))))

    context = list[Context]()
    program = Program(states.name, states.name, (states.programs[0].clauses[0],), body)
    try:
        run_program(program, compiler, trial.seed, 3, device)  # type: ignore[arg-type]
    except Exception as raised:
        return Observation(context[0].finish() if context else (), summarize(raised)), ends
    return Observation(context[0].finish()), ends


def of_sequence(
    folder: Path, subject: str, case: Case, v: Verdict, bench: ReplayPool, deadline: Deadline, *, trying: bool = True
) -> Written:
    """The script of a failing sequence, made as short as time allows."""
    names = tuple(NAMES[case.op](case.seed))
    size = len(names)
    if trying:
        first = bench.value(attempt, Trial(subject, names, case.seed))
        if first is not None:
            names = _shortest(Trial(subject, first.done, case.seed), first.clause, bench, deadline)
    path = folder / name_of(case)
    path.write_text(text_of(subject, names, case.seed, v), encoding="utf-8")
    return Written(case.id, name_of(case), trying and bench.status(str(path)) == 1, len(names) < size)


def _shortest(trial: Trial, clause: str, bench: ReplayPool, deadline: Deadline) -> tuple[str, ...]:
    """The fewest actions that break the clause: the last ones, without those that do not matter."""

    def fails(names: Sequence[str]) -> bool:
        failure = bench.value(attempt, Trial(trial.subject, tuple(names), trial.seed))
        return failure is not None and failure.clause == clause

    names, count = trial.names, 2
    while count < len(names) and not deadline.over:
        if fails(names[-count:]):
            names = names[-count:]
            break
        count *= 2
    return tuple(ddmin(names, fails, deadline))


def text_of(subject: str, names: Sequence[str], seed: int, v: Verdict) -> str:
    """The script of the actions, with a sentence for each."""
    abouts = [f"# {name}: {ACTIONS[name].about}" for name in dict.fromkeys(names)]
    listed = [f"    {name!r}," for name in names]
    lines = [
        script.title(v, subject),
        "import sys",
        "",
        "from keel_conformance.repro.reduce_sequence import show",
        "",
        *(abouts if len(names) <= MOST else []),
        "names = [",
        *listed,
        "]",
        f"sys.exit(show({subject!r}, names, seed={seed}))",
        "",
    ]
    return "\n".join(lines)


MOST = 40
"""Actions of a script that says what each one does."""


def show(subject: str, names: Sequence[str], *, seed: int) -> int:
    """Does the actions with the backend and in eager PyTorch, prints what differs, and returns 1 if anything does."""
    failure = attempt(Trial(subject, tuple(names), seed))
    if failure is None:
        print("expected what eager PyTorch gives, and found it")
        return 0
    done = len(failure.done)
    print(f"expected what eager PyTorch gives, found after {done} actions: {failure.sentence} {failure.clause}")
    return 1
