"""Two processes train on the device by DDP, FSDP2 and tensor parallel, as one trains in eager PyTorch on the host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from torch import distributed as dist

import keel_privateuse1
from keel_privateuse1 import NAME

PROJECT = Path(keel_privateuse1.__file__).parents[1]
PROGRAM = PROJECT.parents[1] / "conformance" / "tests" / "frameworks" / "two_processes.py"
pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="No process group of gloo can be made here."
)


def installed(folder: Path) -> str:
    """A path with the plugins as pip would install them."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    info = folder / "keel_privateuse1-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [f"{name} = {value}" for name, value in project["entry-points"]["keel.backends"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[keel.backends]", *points, ""]))
    return os.pathsep.join([str(folder), *sys.path])


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the two processes found."""
    folder = tmp_path_factory.mktemp("two")
    environment = {**os.environ, "PYTHONPATH": installed(folder), "KEEL_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, str(PROGRAM), str(folder), NAME]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("way", ["replicated", "sharded", "parallel"])
def test_two_processes_train_as_one_does(way: str, reports: list[dict[str, Any]]) -> None:
    for report in reports:
        assert report[way]["losses"] == pytest.approx(report["alone"], rel=1e-4)
        assert report["alone"][-1] < report["alone"][0] and report[way]["difference"] < 1e-5


@pytest.mark.parametrize("way", ["replicated", "sharded", "parallel"])
def test_the_plugin_compiles_the_model(way: str, reports: list[dict[str, Any]]) -> None:
    for report in reports:
        forward, backward = report[way]["graphs"]
        assert {"addmm", "gelu", "addmm_1"} <= {*forward[NAME]} and "gelu_backward" in backward[NAME]
        assert {who for graph in (forward, backward) for who in graph} <= {"kind", NAME, "eager"}
