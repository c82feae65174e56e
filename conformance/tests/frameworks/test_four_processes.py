"""Four processes train as in eager PyTorch, with the same collectives, and notice that one of them has died."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keel_bench.distributed.distributed_bars import Figures, beside_eager
from keel_bench.distributed.parallel_ways import WAYS
from keel_bench.distributed.step_trace import GRAPH
from keel_conformance.programs import process_group

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not process_group.can_meet(), reason="No process group of gloo can be made here."),
]
SURVIVORS = 3
Reports = list[dict[str, Any]]

GRAPHS = {
    "checkpoint": {"forward": 1, "backward": 1},
    "accumulation": {"forward": 1, "backward": 1},
    "accumulation in shards": {"forward": 2, "backward": 2},
    "optimizer in a graph": {"forward": 2, "backward": 2, "inference": 1},
    "uneven last batch": {"forward": 2, "backward": 2},
}
"""How many graphs of each kind Keel compiles in the first process: for each layer, or for the size of each batch."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """What each of the processes found that did not die."""
    folder = tmp_path_factory.mktemp("four")
    environment = {**os.environ, "KEEL_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("four_processes.py")), str(folder)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(SURVIVORS)]


@pytest.mark.parametrize("way", WAYS)
def test_losses_and_parameters_are_as_exact_as_eager(way: str, reports: Reports) -> None:
    compilers = {name: {"ranks": [report[way][name] for report in reports]} for name in ("eager", "keel")}
    short = [bar for bar in beside_eager(way, Figures(compilers)) if not bar.holds]
    assert not short
    for report in reports:
        first, last = report[way]["keel"]["losses"]
        assert last < first


@pytest.mark.parametrize("way", WAYS)
def test_collectives_are_those_that_pytorch_captures(way: str, reports: Reports) -> None:
    orders = [report[way]["keel"]["order"] for report in reports]
    assert orders == [report[way]["aot_eager"]["order"] for report in reports]
    assert all(order == orders[0] for order in orders)
    assert [report[way]["keel"]["waits"] for report in reports] == [
        report[way]["aot_eager"]["waits"] for report in reports
    ]
    first, own = orders[0][0], {*orders[0]}
    assert orders[0].count(GRAPH) >= 2
    if "tp" in way:
        assert {"all_gather_into_tensor", "reduce_scatter_tensor"} <= own
    if way == "ddp":
        assert first == "broadcast" and "allreduce" in own
    if "fsdp2" in way:
        assert any("all_gather" in name or "allgather" in name for name in own)


@pytest.mark.parametrize("variant", GRAPHS)
def test_variants_of_training(variant: str, reports: Reports) -> None:
    for report in (report[variant] for report in reports):
        assert report["losses"] == pytest.approx(report["eager"], rel=1e-5)
        assert report["eager"][-1] < report["eager"][0] and report["difference"] < 1e-5
    kinds = [kind for kind, _ in reports[0][variant]["graphs"]]
    assert {kind: kinds.count(kind) for kind in kinds} == GRAPHS[variant]


def test_a_checkpoint_repeats_collectives_in_backward(reports: Reports) -> None:
    """One of them again, before the one of the gradient, and the same in each process."""
    for report in reports:
        (_, forward), (_, backward) = report["checkpoint"]["graphs"]
        assert (len(forward), len(backward)) == (2, 2)


def test_a_process_that_dies_ends_the_others_with_the_reason(reports: Reports) -> None:
    for death in (report["death"] for report in reports):
        assert death["type"] == "RuntimeError" and death["seconds"] < 20
        assert re.search(r"(closed|reset) by peer", death["error"])
