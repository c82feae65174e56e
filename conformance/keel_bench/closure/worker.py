"""What a job asks for, by its universe."""

from __future__ import annotations

from typing import Any

from keel_conformance.workers.pool import ReportPhase

from . import measure, measure_model, tracing_time
from .jobs import Job

MEASURES = {"opinfo": measure.measure, "zoo": measure_model.measure, "time": tracing_time.measure}


def work(job: Job, tell: ReportPhase) -> Any:
    """The job's row, or what else it measures."""
    return MEASURES[job.universe](job, tell)
