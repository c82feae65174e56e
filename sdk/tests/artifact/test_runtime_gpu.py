"""The C++ runtime on a CUDA device: the bits of Python, by cubins and libraries; run with ``pytest -m gpu``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

import keel

from .runtime_library import Model, Refused, same

# PyTorch's own exporter uses what PyTorch deprecates.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device."),
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]
TRITON = ("triton",)
Case = tuple[nn.Module, tuple[Tensor, ...], Any, tuple[tuple[Tensor, ...], ...]]
"""A model, its example, its dynamic shapes, and more arguments to call it with."""


class Looks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(10, 8), nn.Linear(8, 8)

    def forward(self, i: Tensor) -> Tensor:
        return self.linear(self.table(i)).softmax(-1)


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(4))

    def forward(self, x: Tensor) -> Any:
        self.n.add_(x.sum(0))
        return x * self.n, x.t()


class Convolves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu().mean((2, 3))


def r(*sizes: int) -> Tensor:
    return torch.randn(*sizes, device="cuda")


def softmax() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(64), nn.Softmax(-1))


def attention() -> nn.Module:
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))


n = Dim("n", min=3)
CASES: Mapping[str, Callable[[], Case]] = {
    "no libraries": lambda: (softmax(), (r(8, 64),), None, ()),
    "symbolic": lambda: (softmax(), (r(8, 64),), ({0: n},), ((r(5, 64),), (r(3000, 64),))),
    "products": lambda: (perceptron(), (r(32, 64),), None, ()),
    "indices": lambda: (Looks(), (torch.randint(10, (4, 3), device="cuda"),), None, ()),
    "a buffer": lambda: (Counts(), (r(3, 4),), None, ()),
    "a convolution": lambda: (Convolves(), (r(2, 3, 16, 16),), None, ()),
    "attention": lambda: (attention(), (r(2, 16, 64),), None, ()),
}


def packaged(path: Path, name: str) -> tuple[Case, Any]:
    """Writes a package of a case, and loads it in Python."""
    torch.manual_seed(0)
    model, example, shapes, more = CASES[name]()
    keel.package(export(model.eval().cuda(), example, dynamic_shapes=shapes), path, backends=TRITON)
    return (model, example, shapes, more), keel.load_package(path, trusted=True)


def loaded(path: Path) -> Model:
    return Model(path, libtorch=str(Path(torch.__file__).parent / "lib").encode())


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_program_in_python(tmp_path: Path, name: str) -> None:
    (_, example, _, more), python = packaged(tmp_path / "m.keel", name)
    model = loaded(tmp_path / "m.keel")
    for values in (example, *more, example):
        here, there = [v.clone() for v in values], [v.clone() for v in values]
        want, got = python.call_flat(here), model(*there)
        torch.cuda.synchronize()
        assert all(map(same, got, want))


def test_a_wrong_index_is_reported(tmp_path: Path) -> None:
    (_, example, _, _), python = packaged(tmp_path / "m.keel", "indices")
    model = loaded(tmp_path / "m.keel")
    with pytest.raises(Refused, match="index 11 is out of bounds for a dimension of size 10") as raised:
        model(torch.full_like(example[0], 11))
    assert raised.value.status == 4
    assert same(model(*example)[0], python(*example))


def test_threads_run_one_model_at_once(tmp_path: Path) -> None:
    (_, example, _, more), python = packaged(tmp_path / "m.keel", "symbolic")
    model = loaded(tmp_path / "m.keel")
    calls = [(values, python.call_flat(list(values))) for values in (example, *more)]
    torch.cuda.synchronize()
    wrong: list[int] = []

    def run(k: int) -> None:
        for turn in range(30):
            values, want = calls[(k + turn) % len(calls)]
            if not all(map(same, model(*values), want)):
                wrong.append(turn)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_input_on_the_host_is_refused(tmp_path: Path) -> None:
    packaged(tmp_path / "m.keel", "no libraries")
    with pytest.raises(Refused, match="The input input is not on the first CUDA device"):
        loaded(tmp_path / "m.keel")(torch.randn(8, 64))
