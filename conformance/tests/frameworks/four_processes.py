"""Four processes that train models together: ``four_processes.py FOLDER``.

Each leaves in the folder what it found: the figures of the bench for each way to train, under eager PyTorch, under
``aot_eager``, which captures and compiles nothing, and under Keel; for each variant of training the losses, and the
largest difference of a parameter from eager's; and what it learned of a process that died.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from keel_bench.distributed.decoder import Sizes
from keel_bench.distributed.parallel_ways import WAYS, mesh_of
from keel_bench.distributed.rank_process import Rank, complete
from keel_bench.jobs import Job
from keel_conformance.workers.fork_safety import MODES, without_devices

SIZE, ROWS, WIDTH, STEPS = 4, 8, 16, 3
SECONDS = 30
"""How long a process waits for another one."""
LIMIT = 400
"""How long all processes may take together, in seconds."""
BACKENDS = {"fsdp2": "eager", "tp": "eager"}
"""Keel's backends for ways to train. The others have kernels, and compiling those takes half of the time."""
DEAD = 3
"""The rank that dies."""
Compile = Callable[[Any], Any]
Trained = tuple[list[Tensor], nn.Module]
"""The loss of each step, and the model."""


class Small(Rank):
    """The bench with a smaller decoder, whose embedding and logits fill a bucket of DDP each."""

    sizes = Sizes(32, 64, 4, 1, 9000, 16, 2, steps=6, bucket_mb=1.0)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


class Network(nn.Module):
    def __init__(self, again: bool = False):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.again = nn.ModuleList([Layer(), Layer()]), again

    def forward(self, x: Tensor) -> Tensor:
        """Computes layers again in backward if ``again`` is set."""
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return x.square().mean()


def rows(step: int, part: int = 0, count: int = ROWS) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(100 * step + part))


# -- variants ------------------------------------------------------------------------------------------------


def checkpointed(compiled: Compile) -> Trained:
    """Layers that are split among the processes and computed again in backward, with their collectives."""
    model, mesh = Network(again=True), init_device_mesh("cpu", (SIZE,))
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return trained(compiled(model), model)


def accumulated(compiled: Compile) -> Trained:
    """DDP, which sums gradients in every second backward pass, and clips them."""
    model = Network()
    parallel = DistributedDataParallel(model)
    return in_two_parts(compiled(parallel), model, lambda last: nullcontext() if last else parallel.no_sync())


def accumulated_in_shards(compiled: Compile) -> Trained:
    """The same with FSDP2."""
    model = sharded(compiled)

    def synchronizing(last: bool) -> AbstractContextManager[Any]:
        model.set_requires_gradient_sync(last)  # type: ignore[operator]  # a method that fully_shard adds
        return nullcontext()

    return in_two_parts(model, model, synchronizing)


def in_two_parts(
    run: Callable[[Tensor], Tensor], model: nn.Module, synchronizing: Callable[[bool], AbstractContextManager[Any]]
) -> Trained:
    """Trains on two parts of each batch. ``synchronizing`` has gradients exchanged for the last part alone."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for step in range(STEPS):
        for part in range(2):
            with synchronizing(part == 1):
                loss = run(rows(step, SIZE * part + dist.get_rank()))
                loss.backward()
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    return losses, model


def updated_in_a_graph(compiled: Compile) -> Trained:
    """The optimizer is compiled, and updates shards."""
    model = sharded(compiled)
    return trained(model, model, compiled)


def uneven(compiled: Compile) -> Trained:
    """DDP, where the last batch is smaller, and half of the processes have none."""
    model, losses = Network(), []
    parallel = DistributedDataParallel(model)
    run, optimizer = compiled(parallel), torch.optim.AdamW(model.parameters(), lr=0.01)
    with parallel.join():
        for step in range(STEPS - dist.get_rank() % 2):
            loss = run(rows(step, dist.get_rank(), ROWS if step < STEPS - 1 else 3))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
    return losses, model


def sharded(compiled: Compile) -> nn.Module:
    model, mesh = Network(), init_device_mesh("cpu", (SIZE,))
    for i, layer in enumerate(model.layers):
        model.layers[i] = fully_shard(compiled(layer), mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def trained(run: Callable[..., Tensor], model: nn.Module, compiled: Compile = lambda fn: fn) -> Trained:
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    update = compiled(optimizer.step)
    for step in range(STEPS):
        loss = run(rows(step))
        loss.backward()
        update()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, model


VARIANTS: Mapping[str, Callable[[Compile], Trained]] = {
    "checkpoint": checkpointed,
    "accumulation": accumulated,
    "accumulation in shards": accumulated_in_shards,
    "optimizer in a graph": updated_in_a_graph,
    "uneven last batch": uneven,
}


def compared(variant: Callable[[Compile], Trained], dump: Path) -> dict[str, Any]:
    """Losses of eager PyTorch and of Keel, the largest difference of a parameter, and for each graph that Keel compiled
    its kind and its collectives in their order.
    """
    os.environ["KEEL_DUMP"] = str(dump)
    expected, eager = variant(lambda fn: fn)
    losses, model = variant(lambda fn: torch.compile(fn, backend="keel"))
    pairs = zip(model.parameters(), eager.parameters(), strict=True)
    difference = max(float((complete(a) - complete(b)).abs().max()) for a, b in pairs)
    torch.compiler.reset()
    return {
        "eager": torch.stack(expected).tolist(),
        "losses": torch.stack(losses).tolist(),
        "difference": difference,
        "graphs": [(graph.name.partition("-")[2], collectives(graph)) for graph in sorted(dump.iterdir())],
    }


def collectives(graph: Path) -> list[str]:
    """The collectives of a graph that Keel dumped."""
    parts = json.loads((graph / "03-placed.json").read_text())["parts"]
    return [node for part in parts for node in part["nodes"] if node.startswith(("all_", "reduce_scatter"))]


# -- processes -----------------------------------------------------------------------------------------------


def way(name: str, rank: int, folder: Path) -> dict[str, Any]:
    """The bench's figures of each compiler."""
    job = Job("distributed", name, BACKENDS.get(name, "keel"), "training", "bf16", "tiny")
    bench = Small(job, rank, SIZE, folder, folder / "exact", mesh_of(WAYS[name], "cpu", SIZE))
    compilers = ["eager", "aot_eager", "keel"]
    exact = [] if bench.reference.exists() else ["reference"]
    dist.barrier()  # all have looked
    return {compiler: bench(compiler, lambda text: None) for compiler in [*exact, *compilers]}


def lose_a_process(rank: int) -> dict[str, Any]:
    """What a process raises in a compiled step when another one has died, and after how many seconds."""
    model, mesh = Network(), init_device_mesh("cpu", (SIZE,))
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    run = torch.compile(model, backend="keel")
    run(rows(0)).backward()
    if rank == DEAD:
        os._exit(1)
    begin = time.monotonic()
    try:
        for step in range(STEPS):
            run(rows(step)).backward()
    except Exception as e:
        return {"type": type(e).__name__, "error": str(e), "seconds": time.monotonic() - begin}
    return {"error": "", "seconds": time.monotonic() - begin}


def run(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=SIZE,
        timeout=timedelta(seconds=SECONDS),
    )
    report: dict[str, Any] = {"seconds": {}}
    for name, fn in [
        *((name, lambda name=name: way(name, rank, folder)) for name in WAYS),
        *(
            (name, lambda name=name, variant=variant: compared(variant, folder / f"{name}-{rank}"))
            for name, variant in VARIANTS.items()
        ),
        ("death", lambda: lose_a_process(rank)),
    ]:
        begin = time.monotonic()
        report[name] = fn()
        report["seconds"][name] = time.monotonic() - begin
    (folder / f"{rank}.json").write_text(json.dumps(report))
    os._exit(0)


def prepare() -> None:
    """What PyTorch and Keel set up on their first use, once for all processes that are forked from this one."""
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    without_devices()
    with torch.set_grad_enabled("training" in MODES):  # the trace of a training step is a backward pass, too
        for backend in ("aot_eager", "keel"):
            loss = torch.compile(Network(), backend=backend)(rows(0))
            if loss.requires_grad:
                loss.backward()
    torch.compiler.reset()


def main(folder: Path) -> None:
    prepare()
    context = mp.get_context("fork")
    processes = [context.Process(target=run, args=(rank, folder)) for rank in range(SIZE)]
    for process in processes:
        process.start()
    end = time.monotonic() + LIMIT
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    sys.exit(codes != [int(rank == DEAD) for rank in range(SIZE)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
