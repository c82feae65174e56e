"""What a job asks for, by its universe."""

from __future__ import annotations

from typing import Any

from keel_conformance.workers.pool import ReportPhase

from . import cost, measure, zoo
from .jobs import Job

MEASURES = {"opinfo": measure.measure, "zoo": zoo.measure, "time": cost.measure}


def work(job: Job, tell: ReportPhase) -> Any:
    """The job's row, or what else it measures."""
    return MEASURES[job.universe](job, tell)
