"""Turns cases into verdicts: a batch that dies is split, a case that fails is tried again.

The scheduler runs nothing itself. Its generators yield a request and are sent the outcome. ``run`` lets processes
fulfill the requests, ``run_inline`` fulfills them in this process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from pathlib import Path
from typing import TypeVar

from ..cases.case import Case
from ..results.verdict import BAD, Status, Verdict
from ..workers.pool import STARTING, Outcome
from .backend_under_test import load_backend
from .backend_worker import run_batch
from .eager_alone import Blame, is_doubtful, run_alone
from .judge_worker import exception_verdict, judge_batch
from .protocol import (
    EagerRequest,
    EagerResponse,
    JudgeRequest,
    JudgeResponse,
    RunRequest,
    RunResponse,
    Settings,
)

TOGETHER = 16
"""Calls of an operator in one graph, or kernels that are built at once."""
SHARED = 2 * TOGETHER
"""Calls in one graph of operators of which there are few."""
IDENTICAL = 20
"""After this many failures of one kind the later cases of an operator are not run."""
JUDGING = 600.0
"""Seconds that judging a batch may take."""


STARTUP = 5.0
"""Seconds that a process which runs eager PyTorch alone has beyond the limit of a case."""
RETRIED: frozenset[Status] = frozenset({"fail", "crash", "timeout", "resource"})
"""What is tried again in a fresh process before it is believed."""


Job = RunRequest | JudgeRequest | EagerRequest


@dataclass(frozen=True)
class Request:
    """A job, the seconds it may take, and whether a process of its own has to do it."""

    job: Job
    limit: float
    fresh: bool = False


T = TypeVar("T")
Steps = Generator[Request, Outcome, T]


def batches(cases: Sequence[Case]) -> Iterator[tuple[Case, ...]]:
    """``cases`` of a lane in order, those together that one process does at once."""
    for kind, group in groupby(cases, lambda c: c.kind):
        together = list(group)
        size = _batch_size(kind, together)
        yield from (tuple(together[k : k + size]) for k in range(0, len(together), size))


def _batch_size(kind: str, cases: Sequence[Case]) -> int:
    if kind not in ("op", "negative", "kernel"):
        return 1
    return SHARED if kind != "kernel" and len({c.op for c in cases}) > 1 else TOGETHER


def queues(cases: Sequence[Case]) -> list[tuple[Case, ...]]:
    """What has to be done in order, since it depends on what came before: the calls of one operator. Operators of which
    there are few share a graph, for one more graph costs as much as many calls. Kernels are done together, whatever
    they are about.
    """
    results: dict[object, list[Case]] = {}
    kernels, shared = count(), _shared(cases)
    for case in sorted(cases, key=lambda c: c.kind == "negative"):
        match case.kind:
            case "op" | "negative":
                results.setdefault(("calls", shared.get(case.op, case.op)), []).append(case)
            case "kernel":
                results.setdefault(("kernels", next(kernels) // TOGETHER), []).append(case)
            case _:
                results.setdefault(case.id, []).append(case)
    return [tuple(lane) for lane in results.values()]


def _shared(cases: Sequence[Case]) -> dict[str, int]:
    """Of operators that have few calls, the number of the graph that has them."""
    results: dict[str, int] = {}
    number, room = 0, SHARED
    for op, calls in Counter(c.op for c in cases if c.kind == "op").items():
        if calls > TOGETHER:
            continue
        if calls > room:
            number, room = number + 1, SHARED
        results[op], room = number, room - calls
    return results


def too_many_failures(failures: Counter[tuple[str, ...]], ops: set[str]) -> str:
    """Why no later case of these operators is run; '' if they are, for no other operator says anything of one."""
    for (op, status, *what), n in failures.items():
        if n >= IDENTICAL and ops == {op}:
            return f"{n} cases of the operator before it end alike: {' '.join([status, *filter(None, what)])}."
    return ""


def kind_of(case: Case, v: Verdict) -> tuple[str, ...]:
    return case.op, v.status, v.oracle, v.clause


class Scheduler:
    """Steps that settle cases under the same ``settings``, with files for results in ``folder``. What fails is tried
    again in a fresh process, unless ``once``.
    """

    def __init__(self, settings: Settings, folder: Path, *, once: bool = False):
        self.settings, self.folder, self.once, self._files = settings, folder, once, count()
        self.clock: Counter[str] = Counter()

    def resolve(self, cases: tuple[Case, ...], parent: Status | None = None) -> Steps[list[Verdict]]:
        """A verdict for each case; ``parent`` is how a batch that these are a part of ended, if it died or raised."""
        results = yield from self._run_and_judge(cases)
        if isinstance(results, Verdict):
            return (yield from self._bisect(cases, results, parent))
        left = cases[len(results) :]
        if not self.once and any(v.status in RETRIED for v in results):
            again = yield from self._run_and_judge(cases[: len(results)], fresh=True)
            if isinstance(again, Verdict):
                again = [replace(again, case=v.case) for v in results]
            again += results[len(again) :]
            results = [
                first if first.status not in RETRIED else _verdict_after_retry(first, second)
                for first, second in zip(results, again, strict=True)
            ]
        return [*results, *(yield from self.resolve(left))] if left else results

    def _bisect(self, cases: tuple[Case, ...], end: Verdict, parent: Status | None) -> Steps[list[Verdict]]:
        """A batch that ended without results: its halves, or each case where it took too long."""
        if len(cases) == 1:
            first = replace(end, case=cases[0].id)
            if not (self.once or parent == end.status or end.status == "harness error"):
                again = yield from self._run_and_judge(cases, fresh=True)
                first = _verdict_after_retry(first, again if isinstance(again, Verdict) else again[0])
            return [(yield from self._blame(cases[0], first))]
        size = 1 if end.status == "timeout" else (len(cases) + 1) // 2
        parts = [cases[k : k + size] for k in range(0, len(cases), size)]
        results: list[Verdict] = []
        for part in parts:
            results += yield from self.resolve(part, end.status)
        if any(v.status in BAD or v.status == "not run" for v in results):  # a case is to blame, or none was run
            return results
        others = ", ".join(c.id for c in cases[1:])
        together = replace(end, case=cases[0].id, sentence=f"{end.sentence} It does so only together with {others}.")
        if self.once:
            return [together, *results[1:]]
        again = yield from self._run_and_judge(cases, fresh=True)
        return [_verdict_after_retry(together, again if isinstance(again, Verdict) else again[0]), *results[1:]]

    def _blame(self, case: Case, verdict: Verdict) -> Steps[Verdict]:
        """The verdict on a case that ended a process: eager PyTorch is tried alone before it is the backend's."""
        if not is_doubtful(verdict, case):
            return verdict
        under_test = load_backend(self.settings.subject)
        if under_test.backend.last_resort:  # it is eager PyTorch
            return verdict
        limit = self.settings.limit + STARTUP
        job = EagerRequest(case, under_test.device, self.settings.threads)
        outcome = yield Request(job, limit, fresh=True)
        return Blame(verdict, under_test.device).after(outcome)

    def _run_and_judge(self, cases: tuple[Case, ...], fresh: bool = False) -> Steps[list[Verdict] | Verdict]:
        """The verdicts, on the first of the cases alone if their device died; or the one that holds for the batch as a
        whole, which died or raised.
        """
        file = self.folder / f"{next(self._files)}.pt"
        job = RunRequest(self.settings, cases, str(file))
        try:
            outcome = yield Request(job, self.settings.limit + self.settings.slack * (len(cases) - 1), fresh)
            if outcome.row is None:
                return _died(outcome)
            performed: RunResponse = outcome.row
            self._count("performing", performed.clock)
            if performed.exception is not None and (len(cases) > 1 or cases[0].kind != "op"):
                return exception_verdict(cases[0], performed.exception)
            count = len(cases if performed.exception else performed.results)
            outcome = yield Request(JudgeRequest(cases[:count], performed, str(file), self.settings.threads), JUDGING)
            if outcome.row is None:
                sentence = f"Judging it failed. {outcome.failure}"
                return Verdict("", "harness error", "judge", sentence)
            appraised: JudgeResponse = outcome.row
            self._count("appraising", appraised.clock)
            if performed.exception is not None and appraised.verdicts[0].status != "not run":
                return appraised.verdicts[0]
            return appraised.verdicts
        finally:
            for left in self.folder.glob(f"{file.name}*"):
                left.unlink()

    def _count(self, where: str, clock: dict[str, float]) -> None:
        self.clock.update({f"{where}.{what}": seconds for what, seconds in clock.items()})


def run_queue(
    scheduler: Scheduler,
    cases: Sequence[Case],
    known: Callable[[tuple[Case, ...]], list[Verdict] | None],
    began: Callable[[tuple[Case, ...]], None],
    ended: Callable[[tuple[Case, ...], list[Verdict]], None],
) -> Steps[None]:
    """The batches of a lane in order, until too many cases fail alike; ``known`` has what an earlier run saw."""
    failures: Counter[tuple[str, ...]] = Counter()
    for batch in batches(cases):
        verdicts = known(batch)
        if verdicts is None:
            if why := too_many_failures(failures, {c.op for c in batch}):
                verdicts = [Verdict(c.id, "not run", "cascade", why) for c in batch]
            else:
                began(batch)
                verdicts = yield from scheduler.resolve(batch)
            ended(batch, verdicts)
        failures.update(kind_of(c, v) for c, v in zip(batch, verdicts, strict=True) if v.status in BAD)


def run_inline(steps: Steps[T]) -> T:
    """Has all done in this process, which a backend may take down."""
    outcome: Outcome | None = None
    while True:
        try:
            ask = next(steps) if outcome is None else steps.send(outcome)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        match ask.job:
            case RunRequest():
                outcome = Outcome(run_batch(ask.job, lambda text: None))
            case JudgeRequest():
                outcome = Outcome(judge_batch(ask.job, lambda text: None))
            case EagerRequest():
                outcome = Outcome(run_alone(ask.job, lambda text: None))


def work(job: Job, tell: Callable[[str], None]) -> RunResponse | JudgeResponse | EagerResponse:
    """What processes do; one that performs is never asked to judge."""
    match job:
        case RunRequest():
            return run_batch(job, tell)
        case EagerRequest():
            return run_alone(job, tell)
    return judge_batch(job, tell)


def _died(outcome: Outcome) -> Verdict:
    """What the end of a process says of the batch that it was at. Who is killed without us was, by all appearances, by
    a system that had no memory left.
    """
    status: Status = {"late": "timeout", "SIGKILL": "resource"}.get(outcome.end, "crash")  # type: ignore[assignment]
    if outcome.doing == STARTING:  # before it took the job: no backend has been there
        status = "harness error"
    return Verdict("", status, "process", outcome.failure)


def _verdict_after_retry(first: Verdict, second: Verdict) -> Verdict:
    """The verdict on a case that was tried again, in a fresh process."""
    if first.status == second.status:
        return first
    suffix = f" {second.sentence}" if second.sentence else ""
    return replace(
        first,
        status="flaky",
        sentence=f"First {first.status}: {first.sentence} Tried again, in a fresh process, {second.status}.{suffix}",
    )
