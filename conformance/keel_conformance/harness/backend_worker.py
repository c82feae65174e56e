"""In the process of the backend: cases compiled and called, watched, and their results left in a file to be judged."""

from __future__ import annotations

import errno
import resource
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

import keel
from keel import KeelError, TensorType
from keel.opset import MEMBERS

from ..cases.case import Case, Inputs, Kind
from ..cases.case_kinds import package_of
from ..cases.inputs import draw_inputs
from ..devices import HOST, has_eager, is_alive, synchronize
from ..programs.restricted_compiler import Compiler
from ..results.fault import Fault
from ..workers.pool import ReportPhase
from .backend_under_test import BackendUnderTest, load_backend
from .protocol import DRAWS, CaseResult, ExceptionInfo, Phase, RunRequest, RunResponse
from .red_zones import GuardedArguments, guard_arguments, map_leaves, overlaps, same_bits, snapshot, span

NOTHING = "Keel itself does all of it, as a view, a constant or nothing at all, so no backend is asked."
SCARCE = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "bad_alloc")


@dataclass
class Clock:
    """Seconds by what they were spent on; and as ``….cpu`` those of this thread, which others' load does not add to."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        begin, busy = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - begin
            self.seconds[f"{what}.cpu"] += time.thread_time() - busy


class BatchAborted(Exception):
    """The backend raised, or the case could not be brought before it."""

    def __init__(self, raised: ExceptionInfo):
        super().__init__(raised.text)
        self.raised = raised


def run_batch(job: RunRequest, tell: ReportPhase) -> RunResponse:
    """The work of a process that is given to the backend."""
    clock = Clock()
    with clock.at("all"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tell("loading the backend")
        under_test = load_backend(job.settings.subject)
        has_eager(under_test.device)  # while nothing has been there that may end that
        _limit_memory(under_test.device, job.settings.memory)
        torch.set_num_threads(1)
        try:
            match job.cases[0].kind:
                case "op":
                    case_results = _run_calls(job, under_test, clock, tell)
                case "negative":
                    case_results = list(_run_invalid_calls(job, under_test, clock, tell))
                case kind:
                    case_results = _run_programs(job, under_test, kind, clock, tell)
            result = RunResponse(case_results)
        except BatchAborted as end:
            result = RunResponse([], end.raised)
        except Exception as e:
            result = RunResponse([], _exception_info("watching it", e))
        result.device, result.spent = under_test.device, not is_alive(under_test.device)
        result.arithmetic = under_test.arithmetic
    result.clock = dict(clock.seconds)
    return result


@cache
def _limit_memory(device: str, memory: int | None) -> None:
    """Bounds the memory of this process, once; of the host alone, since devices are mapped at sizes of their own."""
    if memory is None or device != HOST:
        return
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    bound = mapped + memory if most == resource.RLIM_INFINITY else min(mapped + memory, most)
    resource.setrlimit(resource.RLIMIT_AS, (bound, most))


# -- calls of operators ------------------------------------------------------------------------------------------------


@dataclass
class CallRecord:
    """One case on its way: what each call was given, what it gave, and a copy of that from before the next one."""

    case: Case
    op: Callable[..., Any]
    inputs: list[Inputs]
    result: CaseResult
    guarded: list[GuardedArguments] = field(default_factory=list)
    results: list[tuple[Any, ...]] = field(default_factory=list)
    copies: list[list[Any]] = field(default_factory=list)


def _run_calls(job: RunRequest, under_test: BackendUnderTest, clock: Clock, tell: ReportPhase) -> list[CaseResult]:
    """The cases compiled as one graph, and called as often as there are draws."""
    tell("drawing arguments")
    drawn = [_draw_inputs(case, clock) for case in job.cases]
    calls = [c for c in drawn if c.result.exception is None]
    if calls:
        _place(calls, 0, under_test, clock)
        tell("compiling")
        with clock.at("backend"), _backend_at("compiling", job.settings.threads):
            batch = keel.testing.compile_calls(
                [(c.op, c.guarded[0].args, c.guarded[0].kwargs) for c in calls],
                backends=under_test.with_eager,
                strict=True,
            )
        for c, owners, refusals, results in zip(calls, batch.owners, batch.refusals, batch.results, strict=True):
            c.result.claimed = under_test.name in owners
            own_refusals = [why for why in refusals if why.startswith(f"{under_test.name}: ")]
            c.result.refusals = " ".join(own_refusals if c.result.claimed else refusals) or (
                "" if c.result.claimed else NOTHING
            )
            c.result.types = types_on(under_test.device, results)
        try:
            _run(calls, batch, job.settings.threads, under_test, clock, tell)
        except BatchAborted as end:
            if len(drawn) > 1 or calls[0].result.claimed:
                raise
            calls[0].result.exception = end.raised  # of eager PyTorch, on the backend's device
            torch.save([[]], job.file)
            return [calls[0].result]
        for c in calls:
            c.result.seconds = clock.seconds["backend"] / len(calls)
            first, again = c.copies[0], c.copies.pop()  # the last call is like the first one
            c.result.nondeterministic = [
                n for n, pair in enumerate(zip(first, again, strict=True)) if not same_bits(*pair)
            ]
        tell("looking at results")
        check_aliasing(calls)
    torch.save([c.copies for c in drawn], job.file)
    return [c.result for c in drawn]


def _run(
    calls: Sequence[CallRecord],
    batch: keel.testing.Batch,
    threads: int,
    under_test: BackendUnderTest,
    clock: Clock,
    tell: ReportPhase,
) -> None:
    """The calls' results, as often as there are draws, and what these did that they must not."""
    for k, draw in enumerate(DRAWS):
        if k:
            _place(calls, draw, under_test, clock)
        tell(f"running call {k}")
        torch.manual_seed(calls[0].case.seed + draw)
        with clock.at("backend"), _backend_at("running", threads):
            outputs = batch.run([(c.guarded[k].args, c.guarded[k].kwargs) for c in calls])
            synchronize(under_test.device)
        for c, results in zip(calls, outputs, strict=True):
            c.results.append(results)
            c.copies.append([snapshot(r) for r in results])
            c.result.faults += [fault.of_call(k) for fault in c.guarded[k].faults()]
            c.result.faults += _on_wrong_device(results, under_test, k)


def types_on(device: str, traced: Sequence[Any]) -> tuple[TensorType | None, ...]:
    """What results are held to that have other types than on the host: those traced whose sizes are known."""

    def known(t: Any) -> bool:
        return isinstance(t, TensorType) and all(isinstance(n, int) for n in (*t.shape, *t.strides))

    return () if device == HOST else tuple(t if known(t) else None for t in traced)


def _draw_inputs(case: Case, clock: Clock) -> CallRecord:
    try:
        with clock.at("drawing"):
            return CallRecord(
                case,
                overload(case.overload),
                [draw_inputs(case, k) for k in range(max(DRAWS) + 1)],
                CaseResult(case.id),
            )
    except Exception as e:
        return CallRecord(case, print, [], CaseResult(case.id, exception=_exception_info("drawing its arguments", e)))


@cache
def overload(name: str) -> Callable[..., Any]:
    """The operator that graphs call by this name, ``aten.add.Tensor``. What registers its namespace may not have been
    imported yet; Keel knows what does.
    """
    try:
        result: Callable[..., Any] = reduce(getattr, name.split("."), cast(Any, torch.ops))
    except AttributeError:
        result = next(
            t for member in MEMBERS.values() if name in member.overloads for t in member.targets if str(t) == name
        )
    return result


def _place(calls: Sequence[CallRecord], draw: int, under_test: BackendUnderTest, clock: Clock) -> None:
    for c in calls:
        inputs = c.inputs[draw]
        c.guarded.append(inputs_on(under_test.device, c.case, inputs))


def inputs_on(device: str, case: Case, inputs: Inputs) -> GuardedArguments:
    """The case's arguments there."""
    # Some operators read memory that no element of their argument lies in.
    return guard_arguments(
        inputs.args, with_device_kwarg(device, case, inputs), device, entire_storage="as_strided" in case.overload
    )


def with_device_kwarg(device: str, case: Case, inputs: Inputs) -> Mapping[str, Any]:
    """The arguments by name. An operator that makes a tensor from no tensor gets the device as an argument."""
    names = {a.name for a in overload(case.overload)._schema.arguments}  # type: ignore[attr-defined]
    asks = device != HOST and "device" in names and not inputs.tensors
    return {**inputs.kwargs, "device": torch.device(device)} if asks else inputs.kwargs


@contextmanager
def _backend_at(phase: Phase, threads: int) -> Iterator[None]:
    """Where the backend is at work, with its threads: what is done around it is too small for more than one."""
    torch.set_num_threads(threads)
    try:
        yield
    except (Exception, SystemExit) as e:
        untraced = isinstance(e, KeelError) and e.code == "bad-graph"
        raise BatchAborted(_exception_info("tracing it" if untraced else phase, e)) from e
    finally:
        torch.set_num_threads(1)


def _exception_info(phase: Phase, e: BaseException) -> ExceptionInfo:
    chain: list[BaseException] = [e]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    memory = any(
        isinstance(x, MemoryError | torch.OutOfMemoryError)
        or getattr(x, "errno", None) == errno.ENOMEM
        or any(word in str(x).lower() for word in SCARCE)
        for x in chain
    )
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    code, aspect = (e.code, e.aspect or "") if isinstance(e, KeelError) else ("", "")
    return ExceptionInfo(phase, " ".join([f"{type(e).__name__}:", *lines[:4]])[:1000], memory, code, aspect)


def _on_wrong_device(results: Sequence[Any], under_test: BackendUnderTest, call: int) -> list[Fault]:
    return [
        Fault("device", f"Result {k} is on {r.device.type}, not on {under_test.device}.", k, call)
        for k, r in enumerate(results)
        if isinstance(r, Tensor) and r.device.type != under_test.device
    ]


def check_aliasing(calls: Sequence[CallRecord]) -> None:
    """Adds to the faults of each which results were changed by later calls, and which share memory."""
    for c in calls:
        for k, (results, copies) in enumerate(zip(c.results[:-1], c.copies, strict=False)):
            c.result.faults += [
                Fault("result changed", f"Result {n} of call {k} was changed by a later one.", n, k)
                for n, (r, copy) in enumerate(zip(results, copies, strict=True))
                if not same_bits(snapshot(r), copy)
            ]
    owners: list[tuple[int, int, tuple[CallRecord, int, int | str]]] = [
        (*g.interval, (c, k, f"argument {g.name}")) for c in calls for k, p in enumerate(c.guarded) for g in p.guards
    ]
    owners += [
        (r.data_ptr(), r.data_ptr() + span(r) * r.element_size(), (c, k, n))
        for c in calls
        for k, results in enumerate(c.results)
        for n, r in enumerate(results)
        if isinstance(r, Tensor) and r.layout == torch.strided and r.numel() and r.data_ptr()
    ]
    for one, other in overlaps(owners):
        (c, k, n), (d, j, m) = one, other
        if isinstance(n, str):
            (c, k, n), (d, j, m) = other, one
        if c is d and k == j and _eager_shares(c, n, m):
            continue
        where = "" if c is d and k == j else f" of call {j}" if c is d else f" of {d.case.id}, call {j}"
        what = m if isinstance(m, str) else f"result {m}"
        own = isinstance(m, int) and c is d
        c.result.faults.append(
            Fault(
                "argument shared" if isinstance(m, str) else "result shared",
                f"Result {n} of call {k} shares memory with {what}{where}.",
                n,
                k,
                m if own else None,
                j if own and k != j else None,
            )
        )


def _eager_shares(c: CallRecord, n: int, other: int | str) -> bool:
    """Whether eager PyTorch's result shares the same memory: the operator is a view."""
    inputs = inputs_on(HOST, c.case, c.inputs[0])
    with torch.no_grad():
        results: list[Any] = []
        map_leaves(lambda v, _: results.append(v), c.op(*inputs.args, **inputs.kwargs), "")

    def storage(which: int | str) -> int:
        if isinstance(which, int):
            return int(results[which].untyped_storage().data_ptr())
        return next(g.raw.data_ptr() for g in inputs.guards if f"argument {g.name}" == which)

    return storage(n) == storage(other)


# -- calls that break a precondition -----------------------------------------------------------------------------------


def _run_invalid_calls(
    job: RunRequest, under_test: BackendUnderTest, clock: Clock, tell: ReportPhase
) -> Iterator[CaseResult]:
    """Those up to the first after which the device answers no more."""
    for case in job.cases:
        yield _run_invalid_call(case, job.settings.threads, under_test, clock, tell)
        if not is_alive(under_test.device):
            return


def _run_invalid_call(
    case: Case, threads: int, under_test: BackendUnderTest, clock: Clock, tell: ReportPhase
) -> CaseResult:
    """An exception is right, wherever it comes from; ``exception`` has it, and without it the case is accepted."""
    c = _draw_inputs(case, clock)
    if c.result.exception is not None:
        raise BatchAborted(c.result.exception)
    _place([c], 0, under_test, clock)
    tell(f"running {case.id}")
    begin = time.perf_counter()
    try:
        with clock.at("backend"), _backend_at("running", threads):
            batch = keel.testing.compile_calls(
                [(c.op, c.guarded[0].args, c.guarded[0].kwargs)], backends=under_test.with_eager, strict=True
            )
            c.result.claimed = under_test.name in batch.owners[0]
            c.result.refusals = "" if c.result.claimed else " ".join(batch.refusals[0])
            batch.run([(c.guarded[0].args, c.guarded[0].kwargs)])
            synchronize(under_test.device)
    except BatchAborted as end:
        c.result.exception = end.raised
    c.result.seconds = time.perf_counter() - begin
    if is_alive(under_test.device):
        c.result.faults = c.guarded[0].faults()
    return c.result


# -- programs, graphs and kernels --------------------------------------------------------------------------------------


def _run_programs(
    job: RunRequest, under_test: BackendUnderTest, kind: Kind, clock: Clock, tell: ReportPhase
) -> list[CaseResult]:
    """Runs cases that each write what was observed to a file of their own."""
    room = package_of(kind)
    target = under_test.backend.target
    if kind == "kernel" and target is None:
        why = f"{under_test.name} has no loop target, so it is given no kernels."
        return [CaseResult(c.id, claimed=False, refusals=why) for c in job.cases]
    tell("running")
    torch.compiler.reset()
    begin = time.perf_counter()
    with clock.at("backend"), _backend_at("running", job.settings.threads):
        if target is not None and kind == "kernel":
            observations = room.run_cases(job.cases, room.Builder(target), under_test.device)
        else:
            observations = [room.run_case(c, Compiler(under_test.backend), under_test.device) for c in job.cases]
    seconds = (time.perf_counter() - begin) / len(observations)
    tell("looking at results")
    case_results = []
    for k, (case, observed) in enumerate(zip(job.cases, observations, strict=True)):
        observed.save(Path(f"{job.file}.{k}"))
        scarce = any(word in observed.error.lower() for word in SCARCE)
        raised = ExceptionInfo("running", observed.error, True) if scarce else None
        case_results.append(CaseResult(case.id, exception=raised, seconds=seconds))
    return case_results
