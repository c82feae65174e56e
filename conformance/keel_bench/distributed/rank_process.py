"""One of the processes that train the decoder together: its figures under one compiler after the other."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from keel_conformance.workers.pool import ReportPhase

from ..compilers import EAGER, INDUCTOR
from ..jobs import Job
from ..run_time import finish
from .decoder import BATCHES, SIZES, Sizes, batch, decoder
from .parallel_ways import WAYS, mesh_of, share
from .step_trace import traced
from .training_run import TrainingRun, allocated_mib

REFERENCE, KEEL = "reference", "keel"
"""``REFERENCE`` trains in float64, without autocast, each process with a part of the batch."""
COMPILERS = (EAGER, INDUCTOR, KEEL)
GROUPS = {"cuda": "nccl", "cpu": "gloo"}
PATIENCE = timedelta(seconds=300)
"""How long a process waits for another one, which may have to compile first."""


def failure_file(folder: Path, rank: int) -> Path:
    """Where a process leaves the time at which it failed, on a clock that all processes share."""
    return folder / f"failed-{rank}"


@dataclass
class Rank:
    """Answers with the figures of a compiler, by its name. It is sent to the process that it runs in before that has
    begun. All ranks answer for the same compilers in the same order. The processes meet by a file in ``folder``.
    ``reference`` is the file that holds what exact training ends with.
    """

    job: Job
    rank: int
    processes: int
    folder: Path
    reference: Path
    mesh: DeviceMesh | None = None
    """Without one, the processes meet when they answer for the first time."""

    def __call__(self, compiler: str, tell: ReportPhase) -> dict[str, Any]:
        try:
            if self.mesh is None:
                tell("meeting the other processes")
                self.mesh = self.meet()
            figures = self.exact(tell) if compiler == REFERENCE else self.train(self.mesh, compiler, tell)
            dist.barrier()
        except BaseException:
            failure_file(self.folder, self.rank).write_text(str(time.monotonic()))
            raise
        torch.compiler.reset()
        gc.collect()
        if self.job.device == "cuda":
            torch.cuda.empty_cache()
        return figures

    @property
    def sizes(self) -> Sizes:
        return SIZES[self.job.scale, self.job.device]

    def meet(self) -> DeviceMesh:
        torch.set_num_threads(self.job.threads)
        where: dict[str, Any] = {}
        if self.job.device == "cuda":
            torch.cuda.set_device(self.rank)
            where = {"device_id": torch.device("cuda", self.rank)}
        dist.init_process_group(
            GROUPS[self.job.device],
            init_method=f"file://{self.folder}/meet",
            rank=self.rank,
            world_size=self.processes,
            timeout=PATIENCE,
            **where,
        )
        return mesh_of(WAYS[self.job.model], self.job.device, self.processes)

    def exact(self, tell: ReportPhase) -> dict[str, Any]:
        """Trains in float64, and leaves the losses, the parameters, and how far each of these moved, in a file."""
        tell("training in float64")
        model = decoder(self.sizes, self.job.device, torch.float64)
        start = [p.detach().clone() for p in model.parameters()]

        def average_gradients() -> None:
            for parameter in model.parameters():
                assert parameter.grad is not None
                dist.all_reduce(parameter.grad)
                parameter.grad /= self.processes

        rows = self.batches(lambda t: t.chunk(self.processes)[self.rank])
        run = TrainingRun(model, model, rows, self.job.device, bf16=False, before_update=average_gradients)
        losses = averaged(run.run(self.sizes.steps)[0])
        if self.rank == 0:
            motion = [float((p.detach() - s).norm()) for p, s in zip(model.parameters(), start, strict=True)]
            parameters = [p.detach().float().cpu() for p in model.parameters()]
            torch.save({"parameters": parameters, "motion": motion, "losses": losses.cpu()}, self.reference)
        return {}

    def train(self, mesh: DeviceMesh, compiler: str, tell: ReportPhase) -> dict[str, Any]:
        """The figures of training under the compiler: seconds of the first step (``first_s``), the median ``ms`` of a
        step, ``peak_mib`` less what other things took before (``before_mib``), the first and the last of the
        ``losses``, errors relative to exact training, and what a step does by the profiler.
        """
        tell(f"preparing {compiler}")
        before = allocated_mib(self.job.device)
        model = decoder(self.sizes, self.job.device)
        compiled = partial(compile_module, compiler, self.job.compiler)
        forward = WAYS[self.job.model].apply(model, mesh, self.sizes, compiled)
        run = TrainingRun(model, forward, self.batches(lambda t: share(t, mesh)), self.job.device)
        tell(f"running the first step of {compiler}")
        begin = time.perf_counter()
        first = run.step()
        finish(self.job.device)
        seconds = time.perf_counter() - begin
        tell(f"training with {compiler}")
        rest, figures = run.run(self.sizes.steps - 1)
        if figures["peak_mib"] is not None:
            figures |= {"peak_mib": figures["peak_mib"] - before, "before_mib": before}
        losses = averaged(torch.cat([first[None], rest]))
        tell(f"comparing the parameters of {compiler}")
        figures |= {"first_s": seconds, "losses": [float(losses[0]), float(losses[-1])], **self.errors(model, losses)}
        tell(f"tracing a step of {compiler}")
        return {**figures, **traced(run.step, partial(finish, self.job.device))}

    def batches(self, part: Any) -> list[tuple[Tensor, Tensor]]:
        """This process's part of each batch, on its device."""
        drawn = (batch(self.sizes, step, self.processes) for step in range(BATCHES))
        return [(part(x).to(self.job.device), part(y).to(self.job.device)) for x, y in drawn]

    def errors(self, model: nn.Module, losses: Tensor) -> dict[str, Any]:
        """``loss_error``, the root mean square of the relative errors of losses; and ``parameter_errors``, for each
        parameter the norm of its error relative to how far exact training moved it. By their order: names change where
        modules are compiled.
        """
        exact = torch.load(self.reference, mmap=True)
        relative = losses.cpu().double() / exact["losses"].double() - 1
        pairs = zip(model.parameters(), exact["parameters"], exact["motion"], strict=True)
        return {
            "loss_error": float(relative.square().mean().sqrt()),
            "parameter_errors": [float((complete(p) - e.to(p.device)).norm()) / motion for p, e, motion in pairs],
        }


def complete(parameter: Tensor) -> Tensor:
    """All of a parameter of which this process may have a part."""
    detached = parameter.detach()
    return detached.full_tensor() if isinstance(detached, DTensor) else detached


def averaged(losses: Tensor) -> Tensor:
    """The mean of all processes' losses, which saw parts of the batch of equal size or the same rows."""
    dist.all_reduce(losses)
    return losses / dist.get_world_size()


def compile_module(compiler: str, backend: str, module: nn.Module) -> nn.Module:
    """The module under ``compiler``. Keel uses the ``backend``, or those that it chooses itself if that is "keel"."""
    match compiler:
        case "eager":
            return module
        case "inductor" | "aot_eager":
            return cast(nn.Module, torch.compile(module, backend=compiler))
    options: Any = {} if backend == KEEL else {"options": {"backends": list(dict.fromkeys([backend, EAGER]))}}
    return cast(nn.Module, torch.compile(module, backend="keel", **options))
