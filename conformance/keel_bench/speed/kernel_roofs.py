"""Kernels that wait for memory: their speed as a share of a copy's in the same run, and relative to Inductor's.

A step that has to pass over a tensor n times, to read or to write it, can take no less than n / 2 copies of that tensor
where caches hold nothing of it.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from ..compilers import EAGER, INDUCTOR, compiled
from ..jobs import Job, Selection, beyond, failed
from ..models.bandwidth_kernels import BYTES, FEW_BYTES, KERNELS, Arguments, BandwidthKernel
from ..run_time import alone, finish
from .contender_process import distance
from .contenders import KEEL

COPY = "copy"
SHARE, BESIDE_INDUCTOR = 0.92, 0.97
"""The least share of a copy's speed, and the least speed relative to Inductor's: rounds vary by some percent."""
ROUNDS, TURN = 7, 0.05
"""Rounds for each round that the user asks for, and the seconds of a turn if a step is shorter."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
DISTANCE = {"fp32": 1e-4, "bf16": 3e-2}
"""The largest distance of a result from eager PyTorch's, relative to its norm."""
Step = Callable[[], Any]


def jobs(part: str, chosen: Selection) -> list[Job]:
    return [
        chosen.job(part, name, KERNELS[name].mode, precision=precision)
        for precision in chosen.precisions
        for name in chosen.models
        if name in KERNELS and KERNELS[name].mode in chosen.modes
    ]


def measure(job: Job) -> dict[str, Any]:
    """Milliseconds of every round: of eager PyTorch, Inductor, Keel, and of copies that move as many bytes.

    Raises RuntimeError if a compiler's results are not eager PyTorch's.
    """
    kernel = KERNELS[job.model]
    size = BYTES[job.device] if job.scale != "tiny" else FEW_BYTES
    torch.manual_seed(0)
    arguments = kernel.arguments(DTYPES[job.precision], job.device, size)
    forwards = {name: compiled(kernel.fn, name) for name in (EAGER, INDUCTOR)} | {
        KEEL: compiled(kernel.fn, job.compiler)
    }
    expected = results(kernel, forwards[EAGER], arguments)
    for name in (INDUCTOR, KEEL):
        far = distance(results(kernel, forwards[name], arguments), expected)
        if far > DISTANCE[job.precision] and not kernel.random:
            raise RuntimeError(f"{name} is {far:.2g} away from eager PyTorch.")
    steps = {name: partial(step, kernel, forward, arguments) for name, forward in forwards.items()}
    rounds = race({COPY: copy_of(arguments[0]), **steps}, job)
    rounds[COPY] = [ms * kernel.passes / 2 for ms in rounds[COPY]]
    return {"rounds": rounds}


def step(kernel: BandwidthKernel, forward: Callable[..., Tensor], arguments: Arguments) -> tuple[Tensor, ...]:
    """The result, and the gradients of a trained one. Its gradient is what stands in the result's place."""
    if not kernel.trained:
        with torch.no_grad():
            return (forward(*arguments),)
    leaves = [t for t in arguments if t.requires_grad]
    result = forward(*arguments)
    return (result.detach(), *torch.autograd.grad(result, leaves, gradient(result.shape, result.dtype, result.device)))


@lru_cache(maxsize=1)
def gradient(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randn(shape, device=device).to(dtype)


def results(kernel: BandwidthKernel, forward: Callable[..., Tensor], arguments: Arguments) -> list[Tensor]:
    """What a step gives, which may write to its arguments: these are copies."""
    copies = tuple(t.detach().clone().requires_grad_(t.requires_grad) for t in arguments)
    return [t.clone() for t in step(kernel, forward, copies)]


def copy_of(x: Tensor) -> Step:
    """Copies the tensor: that reads its bytes once and writes them once."""
    x = x.detach()
    target = torch.empty_like(x)
    return lambda: target.copy_(x)


def race(steps: Mapping[str, Step], job: Job) -> dict[str, list[float]]:
    """Milliseconds of a step in each round. A round is a turn of each; each round begins with another one."""
    rounds: dict[str, list[float]] = {name: [] for name in steps}
    order = deque(steps)
    with alone():
        counts = {name: max(1, round(TURN / (turn(steps[name], 2, job.device) / 1e3))) for name in order}
        for _ in range(ROUNDS * job.rounds):
            for name in order:
                rounds[name].append(turn(steps[name], counts[name], job.device))
            order.rotate(-1)
    return rounds


def turn(run: Step, count: int, device: str) -> float:
    """Milliseconds of a step, over ``count`` of them."""
    finish(device)
    start = time.perf_counter()
    for _ in range(count):
        run()
    finish(device)
    return 1e3 * (time.perf_counter() - start) / count


def bars(outcomes: Mapping[Job, Outcome]) -> Iterator[Criterion]:
    for job, outcome in outcomes.items():
        if outcome.row is None:
            yield failed(job, outcome, f">= {SHARE:g}")
            continue
        rounds = outcome.row["rounds"]
        note = ", ".join(f"{name} {statistics.median(ms):.3g} ms" for name, ms in rounds.items())
        yield beyond(f"{job.title}: share of a copy's speed", ratio(rounds, COPY), SHARE, note)
        yield beyond(f"{job.title}: beside Inductor", ratio(rounds, INDUCTOR), BESIDE_INDUCTOR)


def ratio(rounds: Mapping[str, list[float]], other: str) -> float:
    """Keel's speed relative to the other's: the median over rounds."""
    return statistics.median(b / a for a, b in zip(rounds[KEEL], rounds[other], strict=True))
