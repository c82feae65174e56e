"""Two processes train the model of the page by DDP, FSDP2 and tensor parallel, as one trains it in eager PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from keel_conformance.programs import process_group

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not process_group.can_meet(), reason="No process group of gloo can be made here."),
]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the two processes found."""
    folder = tmp_path_factory.mktemp("two")
    environment = {**os.environ, "KEEL_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("two_processes.py")), str(folder), "cpu"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("way", ["replicated", "sharded", "parallel"])
def test_two_processes_train_as_one_does(way: str, reports: list[dict[str, Any]]) -> None:
    for report in reports:
        assert report[way]["losses"] == pytest.approx(report["alone"], rel=1e-4)
        assert report["alone"][-1] < report["alone"][0] and report[way]["difference"] < 1e-5


@pytest.mark.parametrize("way", ["replicated", "sharded"])
def test_all_of_the_model_is_compiled(way: str, reports: list[dict[str, Any]]) -> None:
    for report in reports:
        forward, backward = report[way]["graphs"]
        assert forward.keys() == backward.keys() == {"kind", "cpp"}
        assert (forward["kind"], backward["kind"]) == ("forward", "backward")
        assert {"addmm", "gelu", "addmm_1"} <= {*forward["cpp"]} and "gelu_backward" in backward["cpp"]


def test_collectives_of_tensor_parallel_are_calls_of_its_graphs(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        forward, backward = report["parallel"]["graphs"]
        assert {"addmm", "gelu", "addmm_1"} <= {*forward["cpp"]} and "gelu_backward" in backward["cpp"]
        assert {"all_reduce", "wait_tensor"} <= {*forward["eager"]}


class Layers(nn.Module):
    """Each is more than the first bucket of DDP holds, which is a MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(600, 600) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = nn.functional.gelu(layer(x))
        return x


@pytest.fixture
def alone() -> Iterator[None]:
    """This process as a group."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]  # not in its __all__
    try:
        yield
    finally:
        dist.destroy_process_group()


def test_ddp_cuts_a_graph_into_buckets(alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bucket has a forward and a backward graph. DDP calls each forward graph with fake tensors first."""
    monkeypatch.setenv("KEEL_DUMP", str(tmp_path))
    x = torch.randn(4, 600)

    def gradients(*, compiled: bool) -> list[Tensor | None]:
        torch.manual_seed(1)
        model = Layers()
        parallel = DistributedDataParallel(model, bucket_cap_mb=1)
        run = torch.compile(parallel, backend="keel", options={"backends": ["eager"]}) if compiled else parallel
        for _ in range(2):
            model.zero_grad()
            run(x).square().mean().backward()
        return [p.grad for p in model.parameters()]

    assert all(map(torch.equal, gradients(compiled=True), gradients(compiled=False)))
    kinds = [graph.name.partition("-")[2] for graph in sorted(tmp_path.iterdir())]
    assert kinds == ["forward"] * 3 + ["backward"] * 3
