"""One job in a process of its own: ``python -m keel_conformance.bench.worker JOB.json FIGURES.json``."""
from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from .jobs import Job
from .suite import PARTS


def main(job_file: str, figures_file: str) -> None:
    job = Job(**json.loads(Path(job_file).read_text()))
    torch.set_num_threads(job.threads)
    figures = PARTS[job.part].measure(job)
    Path(figures_file).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
