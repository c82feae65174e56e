"""How a program fails on backends: a trial compares them with eager PyTorch, and names the kind of failure."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor

from keel.compiler import compile_captured
from keel.discovery import resolve
from keel.errors import KeelError, KeelWarning, message_of
from keel.events import EventLog
from keel.graph.tensor_devices import device_types
from keel.minify.graph_program import Program, evaluate, fresh
from keel.minify.judged_program import WrongResult, wrong_result
from keel.named_models import backend_named
from keel.plugin import Arithmetic
from keel.runtime.contract_checks import Run
from keel.settings import Settings, read_settings, with_plugins
from keel.torch_adapter import Captured, captured_function, without_autocast

KINDS = ("crash", "hang", "memory", "raises", "type", "writes", "stale", "nan", "wrong", "slow")
COMPILING, RUNNING, JUDGING = "compiling", "running", "judging"
"""What a trial does."""
SLOWER, LEAST = 3.0, 5e-4
"""A slow program takes this many times as long as eager PyTorch, and this many seconds more."""


@dataclass(frozen=True)
class Subject:
    """What is tried: backends as text, by preference, with options of theirs. A text is the name of an installed
    backend, or ``module:attribute`` of a Backend.
    """

    backends: tuple[str, ...]
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Failure:
    """``kind`` is one of KINDS, '' for none, or 'invalid' for a program that eager PyTorch cannot run. Reductions keep
    the ``key``. ``output`` is the number of the result that is wrong, in the run ``run``. ``modules`` are those of Keel
    that an exception passed, the innermost first.
    """

    kind: str
    sentence: str = ""
    detail: str = ""
    run: int = 0
    output: int = 0
    modules: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.detail


NONE = Failure("")


@dataclass(frozen=True)
class Trial:
    """A program to try on backends. ``when`` names the kinds that count: slow and wrong exclude each other."""

    program: Program
    subject: Subject
    swap: str = ""
    fuel: int | None = None
    when: str = ""


def settings_of(subject: Subject, fuel: int | None = None) -> Settings:
    """The settings with which a subject is tried: a backend that fails is an error. Raises what resolving raises."""
    backends = [backend_named(text) for text in subject.backends]
    if not any(b.last_resort for b in resolve(backends, strict=True)):
        backends.append("eager")
    options = {"backends": backends, "strict": True, "placement": "order", "fuel": fuel, **dict(subject.options)}
    return read_settings(None, options)


def captured(program: Program) -> Captured:
    """The program as a captured graph, with known sizes."""
    return captured_function(lambda *inputs: evaluate(program, *inputs), program.inputs[0])


def compiled(program: Program, settings: Settings, log: EventLog | None = None) -> Run:
    """The program compiled with these settings, as a function of its inputs."""
    graph = captured(program)
    run = compile_captured(graph, with_plugins(settings, device_types(graph.gm.graph)), log or EventLog())

    def call(*inputs: Any) -> Sequence[Any]:
        with torch.no_grad(), without_autocast():
            return run(list(inputs))

    return call


def observe(trial: Trial, settings: Settings, say: Callable[[str], None] = lambda text: None) -> Failure:
    """How the program fails with these settings."""
    program = trial.program
    try:
        with torch.no_grad():
            want = [evaluate(program, *map(fresh, inputs)) for inputs in program.inputs]
    except Exception as e:
        return Failure("invalid", f"Eager PyTorch cannot run it: {message_of(e)[:200]}")
    say(COMPILING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeelWarning)
        try:
            run = compiled(program, settings)
            say(RUNNING)
            return _failure_of_runs(trial, run, want, arithmetic_of(settings), say)
        except MemoryError as e:
            return Failure("memory", f"It ran out of memory: {message_of(e)[:200]}")
        except Exception as e:
            if "not enough memory" in message_of(e) or "can't allocate memory" in message_of(e):
                return Failure("memory", f"It ran out of memory: {message_of(e)[:200]}")
            sentence = f"It raised {type(e).__name__}: {message_of(e).strip()[:300]}"
            return Failure("raises", sentence, _reason(e), modules=_modules(e))


def _cause(e: BaseException) -> BaseException:
    while e.__cause__ is not None:
        e = e.__cause__
    return e


def _modules(e: Exception) -> tuple[str, ...]:
    """The modules of Keel that an exception passed, the innermost first."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(_cause(e).__traceback__)]
    return tuple(dict.fromkeys(m for m in reversed(modules) if m.startswith("keel.")))


def _reason(e: Exception) -> str:
    """Why something was raised, without the names and numbers that change as a program becomes smaller."""
    code = f"[{e.code}]" if isinstance(e, KeelError) else ""
    cause = _cause(e)
    words = re.sub(r"0x[0-9a-f]+|%\w+|\b\w*\d\w*\b|[^A-Za-z ]", " ", message_of(cause))
    return f"{type(e).__name__}{code} {type(cause).__name__} {' '.join(words.split()[:12])}"


def arithmetic_of(settings: Settings) -> Arithmetic:
    """The arithmetic of the backend that runs most of a program: the first one."""
    return settings.backends[0].arithmetic


def _failure_of_runs(
    trial: Trial, run: Run, want: Sequence[Sequence[Any]], arithmetic: Arithmetic, say: Callable[[str], None]
) -> Failure:
    program = trial.program
    results, copies = [], list[list[Any]]()
    for number, inputs in enumerate(program.inputs):
        own = [fresh(x) for x in inputs]
        results.append(list(run(*own)))
        copies.append([fresh(x) for x in results[-1]])
        if k := next((k for k, (a, b) in enumerate(zip(own, inputs, strict=True), 1) if not same(a, b)), 0):
            return Failure("writes", f"It wrote to its input {k - 1}.", run=number)
    for number, (have, was) in enumerate(zip(results, copies, strict=True)):
        for k, (a, b) in enumerate(zip(have, was, strict=True)):
            if not same(a, b):
                return Failure("stale", f"Result {k} of call {number} changed during a later call.", "", number, k)
    for number, (have, right) in enumerate(zip(copies, want, strict=True)):
        if (failure := wrong_type(number, have, right)) is not None:
            return failure
    say(JUDGING)
    if trial.when == "slow":
        return _slowness(program, run)
    for number, (have, inputs) in enumerate(zip(copies, program.inputs, strict=True)):
        wrong = wrong_result(program, inputs, have, arithmetic)
        if wrong is not None:
            return _wrong(wrong, number)
    return NONE


def _wrong(wrong: WrongResult, number: int) -> Failure:
    where = f"Call {number}: " if number else ""
    return Failure("nan" if wrong.is_nan else "wrong", where + wrong.sentence, "", number, wrong.output)


def wrong_type(number: int, have: Sequence[Any], want: Sequence[Any]) -> Failure | None:
    """The failure of results whose dtypes or shapes are not those of eager PyTorch; None if all are."""
    if len(have) != len(want):
        return Failure("type", f"It returned {len(have)} results, not {len(want)}.")
    for k, (x, y) in enumerate(zip(have, want, strict=True)):
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            text = f"Result {k} is {x.dtype} {list(x.shape)}, not {y.dtype} {list(y.shape)}."
            return Failure("type", text, "dtype" if x.dtype != y.dtype else "shape", number, k)
    return None


def same(a: Any, b: Any) -> bool:
    """True if two tensors have the same bits."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return bool(a == b)
    return a.shape == b.shape and torch.equal(_bytes(a), _bytes(b))


def _bytes(x: Tensor) -> Tensor:
    """The elements in row-major order as bytes. The copy of a single element has the stride 1."""
    dense = x if x.is_contiguous() and x.numel() > 1 else x.clone(memory_format=torch.contiguous_format)
    return dense.reshape(-1).view(torch.uint8)


def _slowness(program: Program, run: Run) -> Failure:
    inputs = program.inputs[0]
    eager, took = _seconds(lambda: evaluate(program, *inputs)), _seconds(lambda: run(*inputs))
    if took > SLOWER * eager and took - eager > LEAST:
        return Failure("slow", f"It took {1e3 * took:.3g} ms, and eager PyTorch {1e3 * eager:.3g} ms.")
    return NONE


def _seconds(call: Callable[[], Any]) -> float:
    """The least time of some calls."""
    best, end = float("inf"), time.perf_counter() + 0.3
    with torch.no_grad():
        for _ in range(50):
            begin = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - begin)
            if time.perf_counter() > end:
                break
    return best
