"""The C++ runtime under the sanitizers of addresses and of undefined behavior: calls by threads, and damaged files."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import keel

from .runtime_library import SANITIZERS, SOURCES, built

# PyTorch's own exporter uses what PyTorch deprecates.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="The runtime is built by g++, which is not on PATH."),
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]


class Mixed(nn.Module):
    """Kernels alone, so that no libtorch is needed: with weights, an arena, and a result that is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.scale = nn.LayerNorm(9), nn.Parameter(torch.randn(9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x.softmax(-1)) * self.scale
        return (y - y.amax(0)).cumsum(-1).t()


@cache
def program() -> Path:
    files = [Path(__file__).with_name("sanitized.cpp"), *sorted(SOURCES.glob("*.cpp"))]
    return built("sanitized", files, "-O0", "-g", *SANITIZERS)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("sanitized") / "mixed.keel"
    shapes = ({0: Dim("n", min=2)},)
    keel.package(export(Mixed().eval(), (torch.randn(4, 9),), dynamic_shapes=shapes), path, backends=("cpp",))
    return path


def run(*words: str) -> str:
    done = subprocess.run([str(program()), *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_threads_call_a_model(path: Path) -> None:
    x = (torch.arange(36.0) % 7 - 3).reshape(4, 9)
    want = keel.load_package(path, trusted=True)(x)
    got = [float.fromhex(value) for value in run("run", str(path)).split()]
    assert torch.equal(torch.tensor(got), want.t().reshape(-1))  # a view: as it lies in memory


def test_damaged_packages_fail_with_a_sentence(path: Path) -> None:
    loaded, failed, read, refused = map(int, run("damage", str(path), "2000").split())
    assert loaded == 0
    assert failed > 1900
    assert read + refused == 2000
    assert refused > 1000
