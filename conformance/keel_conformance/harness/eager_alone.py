"""Eager PyTorch alone at a case, in a process of its own: what ends it there, too, is not the backend's fault."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch

from ..cases.case import Case
from ..cases.case_kinds import package_of
from ..cases.inputs import draw_inputs
from ..devices import HOST, has_eager, synchronize
from ..programs.restricted_compiler import plain
from ..results.verdict import Status, Verdict
from ..workers.pool import STARTING, Outcome, ReportPhase
from .backend_worker import inputs_on, overload
from .protocol import DRAWS, EagerRequest, EagerResponse

ORACLE = "eager alone"
GRAVE: frozenset[Status] = frozenset({"crash", "timeout", "resource"})
"""How a process may end before anybody could judge a result."""


def run_alone(job: EagerRequest, tell: ReportPhase) -> EagerResponse:
    """The work of a process that has no backend: the case on the device, as often as a backend is called."""
    torch.set_num_threads(job.threads)
    if not has_eager(job.device):
        return EagerResponse(attempted=False)
    tell("running eager PyTorch alone")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            _run(job.case, job.device)
            synchronize(job.device)
        except Exception as e:  # the backend may raise as well, and must not end its process
            return EagerResponse(error=f"{type(e).__name__}: {e}"[:300], spent=job.device != HOST)
    return EagerResponse(spent=job.device != HOST)


def _run(case: Case, device: str) -> None:
    if case.kind in ("program", "graph"):
        with torch.enable_grad():
            package_of(case.kind).run_case(case, plain, device)
        return
    for draw in DRAWS:
        there = inputs_on(device, case, draw_inputs(case, draw))
        torch.manual_seed(case.seed + draw)
        overload(case.overload)(*there.args, **there.kwargs)


@dataclass(frozen=True)
class Blame:
    """Whether the backend is to blame for ``verdict``, after eager PyTorch was alone at the case."""

    verdict: Verdict
    device: str

    def after(self, outcome: Outcome) -> Verdict:
        """The verdict, which is of the backend only if eager PyTorch came through."""
        response: EagerResponse | None = outcome.row
        if response is not None or outcome.doing == STARTING:
            return self.verdict
        sentence = (
            f"Eager PyTorch alone does not come through this case on {self.device}: {outcome.failure} So nothing is "
            f"known of the backend, which was said to {self.verdict.status}: {self.verdict.sentence}"
        )
        return replace(self.verdict, status="not run", oracle=ORACLE, sentence=sentence, clause="", figures={})


def is_doubtful(verdict: Verdict, case: Case) -> bool:
    """True if a process ended that may have ended without the backend: its own, or that of the judge, which runs eager
    PyTorch on the device. Kernels have no form in eager PyTorch.
    """
    ended = verdict.status in GRAVE and verdict.oracle == "process"
    return case.kind != "kernel" and (ended or (verdict.status == "harness error" and verdict.oracle == "judge"))
