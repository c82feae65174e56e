"""One model of the zoo in a process of its own: traced by Dynamo as users trace it, legalized and typed."""

from __future__ import annotations

import warnings

import torch

from keel import closure
from keel_conformance.workers.pool import ReportPhase

from ..models import model_zoo
from ..training_step import Step, prepare, run
from .jobs import Job, Row
from .trace_watch import Endings, Watch, last_line


def measure(job: Job, tell: ReportPhase) -> Row:
    """What becomes of the graphs that Dynamo makes of the model; it runs as what they end in."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    row, endings = Row(samples=1), Endings()
    watch = Watch(tell, job.name, row.wrong, [])
    watch.now("running in eager PyTorch")
    step = Step("training" if job.mode == "training" else "inference")
    try:
        case = prepare(step, model_zoo.build(job.name))
        run(step, case, case.model)
    except Exception as e:
        row.untraced[last_line(e)] = "eager"
        return row
    watch.now("tracing")
    try:
        prepare(step, case)
        run(step, case, torch.compile(case.model, backend=closure.dynamo_backend(watch), dynamic=job.dynamic))
    except Exception as e:
        if watch.ends:
            row.wrong.append(last_line(e))
        else:
            row.untraced[last_line(e)] = "compiled"
    row.traced = int(bool(watch.ends))
    if watch.left_out is not None:
        row.left_out[watch.left_out] = job.name
    watch.now("typing")
    endings.take(watch.ends)
    endings.fill(row)
    return row
