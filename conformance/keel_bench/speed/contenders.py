"""The compilers that run side by side, each in its default and in its best mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

import keel

from ..compilers import EAGER, INDUCTOR
from ..jobs import Job

INDUCTOR_BEST, KEEL, KEEL_BEST = "inductor-best", "keel", "keel-best"

INDUCTORS_BEST: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("cpu", "inference"): {"options": {"freezing": True}},
    ("cuda", "inference"): {"mode": "max-autotune"},
    ("cuda", "training"): {"mode": "max-autotune"},
}
"""Arguments of ``torch.compile``, by device and mode. Inductor has no better mode for training on a CPU. Its mode
``max-autotune`` has CUDA graphs.
"""
INDUCTORS_ENVIRONMENT: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("cpu", "inference"): {"TORCHINDUCTOR_FREEZING": "1"},
}
"""Environment of Inductor in its best mode. Dynamo reads this setting outside the backend, where the options of
``torch.compile`` are not in force: with them alone, nothing is frozen.
"""
KEELS_BEST: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("cpu", "inference"): {"mode": "max-autotune", "placement": "order"},
    ("cuda", "inference"): {"mode": "reduce-overhead"},
    ("cuda", "training"): {"mode": "reduce-overhead"},
}
"""Arguments of ``keel.compile``. Elsewhere the default mode is the best one."""


def contenders(job: Job) -> tuple[str, ...]:
    """The contenders of a job, eager PyTorch first."""
    where = (job.device, job.mode)
    best = [name for name, table in ((INDUCTOR_BEST, INDUCTORS_BEST), (KEEL_BEST, KEELS_BEST)) if where in table]
    return (EAGER, INDUCTOR, KEEL, *best)


def environment_of(contender: str, job: Job) -> Mapping[str, str]:
    """What a contender's process needs in its environment, besides this process's own."""
    return INDUCTORS_ENVIRONMENT.get((job.device, job.mode), {}) if contender == INDUCTOR_BEST else {}


def compiled_by(contender: str, fn: Callable[..., Any], job: Job) -> Callable[..., Any]:
    """``fn`` compiled as the contender does it. Models may break graphs, as they may for users."""
    where = (job.device, job.mode)
    match contender:
        case "eager":
            return fn
        case "inductor":
            return torch.compile(fn)
        case "inductor-best":
            return torch.compile(fn, **INDUCTORS_BEST[where])
    backends = list(dict.fromkeys([job.compiler, EAGER]))
    return keel.compile(fn, backends=backends, **(KEELS_BEST[where] if contender == KEEL_BEST else {}))
