"""Makes a failing program smaller: calls, runs, sizes, layouts, dtypes, values and options, in that order."""

from __future__ import annotations

import hashlib
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from keel.minify.delta_debugging import Deadline, cut_where, cuts, ddmin, greedy_descent
from keel.minify.failure import RUNNING, Failure, Subject, Trial
from keel.minify.graph_program import (
    LOW,
    Call,
    Program,
    aliases,
    evaluate,
    pruned,
    run_calls,
    substitutes,
    with_calls,
    without_aliases,
)
from keel.minify.program_trials import attempt
from keel.minify.tensor_literals import SMALL
from keel.minify.trial_process import TrialProcess
from keel.torch_adapter import map_leaves

FIRST, LATER, HANGING = 120.0, 30.0, 6.0
"""The most seconds of CPU time for each thing that a trial does: in the first trial, in later ones, and if the program
hangs.
"""
CALLS, SLOWEST = 10.0, 500.0
"""The calls of a program hang after this number of seconds of CPU time, and after this multiple of the time in eager
PyTorch.
"""
SOONER = 5.0
"""Calls of smaller programs hang this many times sooner."""


@dataclass
class Search:
    """Tries programs, each once, until the ``deadline``. ``key`` is the kind of failure that is looked for.
    ``seconds`` limits each thing that a trial does, and ``calls`` the calls of the program. ``has_aliases`` says that a
    program may have outputs that share memory with a parameter.
    """

    process: TrialProcess
    subject: Subject
    deadline: Deadline
    when: str = ""
    key: tuple[str, str] = ("", "")
    seconds: float = FIRST
    calls: float = FIRST
    has_aliases: bool = True
    trials: int = 0
    known: dict[str, Failure] = field(default_factory=dict)

    def failure(
        self, program: Program, subject: Subject | None = None, swap: str = "", fuel: int | None = None
    ) -> Failure:
        """How a program fails."""
        trial = Trial(program, subject or self.subject, swap, fuel, self.when)
        digest = hashlib.sha256(pickle.dumps(trial)).hexdigest()
        if digest not in self.known:
            self.trials += 1
            outcome = self.process.run(attempt, trial, seconds=self.seconds, limits={RUNNING: self.calls})
            ended = Failure("invalid" if outcome.end == "raised" else outcome.end, outcome.sentence, outcome.detail)
            self.known[digest] = ended if outcome.end else outcome.result
        return self.known[digest]

    def fails(self, program: Program | None, subject: Subject | None = None) -> bool:
        """True if it fails as the first one did."""
        if program is None or (not self.has_aliases and aliases_of(program)):
            return False
        return self.failure(program, subject).key == self.key


def values_of(program: Program) -> list[Mapping[str, Any]]:
    """The values of all names, for each run."""
    with torch.no_grad():
        return [run_calls(program, inputs) for inputs in program.inputs]


def aliases_of(program: Program) -> tuple[str, ...]:
    """The outputs that share memory with a parameter; none if eager PyTorch cannot run the program."""
    return aliases(program, values_of(program)[0]) if runs(program) else ()


def seconds_of_calls(program: Program) -> float:
    """The seconds of CPU time after which the calls of a program hang."""
    begin = time.process_time()
    runs(program)
    return max(CALLS, SLOWEST * (time.process_time() - begin))


def runs(program: Program) -> bool:
    """True if eager PyTorch can run it."""
    try:
        with torch.no_grad():
            return all(evaluate(program, *inputs) is not None for inputs in program.inputs)
    except Exception:
        return False


def reduced(program: Program, search: Search) -> Program:
    """The smallest program that fails alike which was found before the deadline."""
    if len(program.inputs) > 1:
        program = next((one for one in single_runs(program) if search.fails(one)), program)
    copied = without_aliases(program, values_of(program)[0])
    if copied is program or search.fails(copied):
        program, search.has_aliases = copied, False
    program = fewer_calls(program, search)
    program = greedy_descent(program, lambda p: substitutes(p, values_of(p)[0]), search.fails, search.deadline)
    program = fewer_outputs(program, search)
    program = greedy_descent(program, smaller, search.fails, search.deadline)
    program = fewer_calls(program, search)
    program = greedy_descent(program, straighter, search.fails, search.deadline)
    program = next((one for one in in_float32(program) if search.fails(one)), program)
    program = plainer(program, search)
    return greedy_descent(program, fewer_arguments, search.fails, search.deadline)


def single_runs(program: Program) -> Iterator[Program]:
    """Each run of a program by itself."""
    for inputs in program.inputs:
        yield replace(program, inputs=(inputs,))


def fewer_calls(program: Program, search: Search) -> Program:
    """A part of the calls that needs each of them; what the others computed becomes inputs."""
    values = values_of(program)

    def of(names: Sequence[str]) -> Program | None:
        part = with_calls(program, {*names}, values) if names else None
        return part if part is None or search.has_aliases else without_aliases(part, values_of(part)[0])

    names = [call.name for call in program.calls]
    if len(names) < 2 or not (is_whole(of(names), program) or search.fails(of(names))):
        return program
    return of(ddmin(names, lambda some: search.fails(of(some)), search.deadline)) or program


def is_whole(part: Program | None, program: Program) -> bool:
    """True if a part has all that the program has, so a trial of it would give the same result."""
    return part is not None and part.calls == program.calls and {*part.outputs} == {*program.outputs}


def fewer_outputs(program: Program, search: Search) -> Program:
    """A part of the outputs that needs each of them."""

    def of(names: Sequence[str]) -> Program | None:
        return pruned(replace(program, outputs=tuple(names))) if names else None

    return of(ddmin(program.outputs, lambda some: search.fails(of(some)), search.deadline)) or program


def smaller(program: Program) -> Iterator[Program]:
    """Each size of the inputs cut, with the sizes that calls name."""
    sizes = sorted({n for inputs in program.inputs for x in inputs for n in x.shape if n > 1}, reverse=True)
    for n in sizes:
        for start, length in cuts(n):
            inputs = tuple(tuple(cut_where(x, n, start, length).clone() for x in each) for each in program.inputs)
            for change in _resizes(n, length):
                calls = tuple(_resized(call, change) for call in program.calls)
                one = replace(program, calls=calls, inputs=inputs)
                if runs(one):
                    yield one
                    break


def _resizes(n: int, length: int) -> Sequence[Callable[[int, bool], int]]:
    """Ways to change the numbers of a call when a size changes: equal ones in lists, multiples, all, and none."""

    def equal(v: int, listed: bool) -> int:
        return length if listed and v == n else v

    def multiple(v: int, listed: bool) -> int:
        return v // n * length if listed and v % n == 0 else v

    def all_equal(v: int, listed: bool) -> int:
        return length if v == n else v

    return equal, multiple, all_equal, lambda v, listed: v


def _resized(call: Call, change: Callable[[int, bool], int]) -> Call:
    def one(value: Any, listed: bool) -> Any:
        if isinstance(value, list):
            return [one(v, True) for v in value]
        return change(value, listed) if type(value) is int else value

    return replace(
        call, args=tuple(one(v, False) for v in call.args), kwargs=tuple((k, one(v, False)) for k, v in call.kwargs)
    )


def straighter(program: Program) -> Iterator[Program]:
    """Each input in row-major order."""
    for k, x in enumerate(program.inputs[0]):
        if not x.is_contiguous() or x.storage_offset():
            yield with_input(program, k, lambda y: y.clone(memory_format=torch.contiguous_format))


def with_input(program: Program, k: int, change: Callable[[Tensor], Tensor]) -> Program:
    """The program with one of its inputs changed in each run."""
    inputs = tuple((*each[:k], change(each[k]), *each[k + 1 :]) for each in program.inputs)
    return replace(program, inputs=inputs)


def in_float32(program: Program) -> Iterator[Program]:
    """The program with all floats in float32."""
    floats = {*LOW, torch.float64} - {torch.float32}

    def plain(v: Any) -> Any:
        if isinstance(v, Tensor):
            return v.float() if v.dtype in floats else v
        return torch.float32 if v in floats else v

    one = replace(
        program,
        calls=tuple(
            call.mapped(lambda v: torch.float32 if isinstance(v, torch.dtype) and v in floats else v)
            for call in program.calls
        ),
        inputs=map_leaves(plain, program.inputs),
    )
    dtypes = {x.dtype for each in program.inputs for x in each}
    if dtypes & floats and runs(one):
        yield one


def plainer(program: Program, search: Search) -> Program:
    """Plain values: ones, then rounded numbers, then small integers in turn, then as few others as can be."""
    for k in range(len(program.params)):
        for change in (_ones, counted, _rounded):
            one = with_input(program, k, change)
            if search.deadline.over:
                return program
            if search.fails(one):
                program = one
                break
        else:
            program = _fewer_values(program, k, search)
    return program


def _ones(x: Tensor) -> Tensor:
    return torch.ones_like(x) if x.is_floating_point() else torch.zeros_like(x)


def counted(x: Tensor) -> Tensor:
    """Small numbers in turn, for a tensor of floats."""
    if not x.is_floating_point():
        return x
    return ((torch.arange(x.numel()) % 7 - 3).to(x.dtype) / 2).reshape(x.shape).to(x.device)


def _rounded(x: Tensor) -> Tensor:
    return (x * 8).round() / 8 if x.is_floating_point() else x


def _fewer_values(program: Program, k: int, search: Search) -> Program:
    x = program.inputs[0][k]
    if x.numel() > SMALL or len(program.inputs) > 1 or x.numel() < 2 or not x.is_contiguous():
        return program

    def of(places: Sequence[int]) -> Program:
        def change(y: Tensor) -> Tensor:
            plain = _ones(y)
            plain.view(-1)[list(places)] = y.reshape(-1)[list(places)]
            return plain

        return with_input(program, k, change)

    return of(ddmin(range(x.numel()), lambda places: search.fails(of(places)), search.deadline))


def fewer_arguments(program: Program) -> Iterator[Program]:
    """Each keyword argument left out."""
    for n, call in enumerate(program.calls):
        for name, _ in call.kwargs:
            other = replace(call, kwargs=tuple((k, v) for k, v in call.kwargs if k != name))
            one = pruned(replace(program, calls=(*program.calls[:n], other, *program.calls[n + 1 :])))
            if runs(one):
                yield one


def fewer_options(program: Program, search: Search) -> Subject:
    """The subject without the backends and options that the failure can do without."""
    subject = search.subject
    for name in subject.backends if len(subject.backends) > 1 else ():
        one = replace(subject, backends=tuple(b for b in subject.backends if b != name))
        if one.backends and search.fails(program, one):
            subject = one
    for option in subject.options:
        one = replace(subject, options=tuple(o for o in subject.options if o != option))
        if search.fails(program, one):
            subject = one
    return subject
