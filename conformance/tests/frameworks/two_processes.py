"""Two processes that train a model together, and alone in eager PyTorch: ``two_processes.py FOLDER DEVICE``.

Each leaves in the folder, for each way of training, the losses, the largest difference of a parameter from eager's, and
the graphs: which backends have which calls.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from snippets import snippets
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

SIZE, STEPS = 2, 3
SECONDS = 300
"""How long a process may take."""
HALVES = "replicated", "sharded"
"""The ways in which each process gets its part of the batch."""


def train(run: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The loss of each step."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(run(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


def placed(dump: Path) -> list[dict[str, Any]]:
    """The kind of each graph that was compiled, and its calls by backend."""
    return [
        {"kind": graph.name.partition("-")[2]}
        | {part["owner"]: part["nodes"] for part in json.loads((graph / "03-placed.json").read_text())["parts"]}
        for graph in sorted(dump.glob("*"))
    ]


def group_of(device: str) -> str:
    """The backend of ``torch.distributed`` for tensors on this device."""
    if device == "cpu":
        return "gloo"
    from keel_privateuse1.host_exchange import GROUP  # which registers the device, too

    return GROUP


def start(folder: str, device: str) -> int:
    """Runs both processes. Returns 0 if both end with 0."""
    ranks = [subprocess.Popen([sys.executable, __file__, folder, device, str(rank)]) for rank in range(SIZE)]
    try:
        return max(abs(process.wait(SECONDS)) for process in ranks)
    finally:
        for process in ranks:
            process.kill()


def main(folder: Path, device: str, rank: int) -> None:
    dump = folder / f"dump-{rank}"
    os.environ["KEEL_DUMP"] = str(dump)
    dist.init_process_group(group_of(device), init_method=f"file://{folder}/meet", rank=rank, world_size=SIZE)
    names: dict[str, Any] = {}
    exec(snippets("## DDP, FSDP2 and tensor parallel")[0], names)
    torch.manual_seed(0)
    model = names["Block"]()
    alone, x, y = copy.deepcopy(model), torch.randn(8, 8), torch.randn(8, 4)
    report: dict[str, Any] = {"alone": train(alone, alone, x, y).tolist()}
    for way in ("replicated", "sharded", "parallel"):
        shutil.rmtree(dump, ignore_errors=True)
        torch.compiler.reset()
        mesh, halves = init_device_mesh(device, (SIZE,)), way in HALVES
        trained = copy.deepcopy(model).to(device)
        run = names[way](trained, mesh)
        rows = (x.chunk(SIZE)[rank], y.chunk(SIZE)[rank]) if halves else (x, y)
        losses = train(run, trained, *(t.to(device) for t in rows)).cpu()
        if halves:
            dist.all_reduce(losses)
            losses /= SIZE
        full = [p.full_tensor() if isinstance(p, DTensor) else p for p in trained.parameters()]
        difference = max((a.cpu() - b).abs().max().item() for a, b in zip(full, alone.parameters(), strict=True))
        report[way] = {"losses": losses.tolist(), "difference": difference, "graphs": placed(dump)}
    (folder / f"{rank}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(start(*sys.argv[1:]))
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
