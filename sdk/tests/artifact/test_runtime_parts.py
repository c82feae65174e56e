"""Parts of a vendor's backend in the C++ runtime: by a library with the C interface, or refused by name."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.export import export

import keel
from keel import Backend, Call, Refusal
from keel.packages.package_manifest import opened

from .runtime_library import SOURCES, Model, Refused, words

# PyTorch's own exporter uses what PyTorch deprecates.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="The runtime is built by g++, which is not on PATH."),
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]


class Negates(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (-(x + 1)).exp()


def takes_neg(call: Call) -> Refusal | None:
    return None if call.name == "aten.neg.default" else Refusal("It negates, and nothing else.")


def vendor(saved: bytes | None = b"neg") -> Backend:
    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        return lambda x: (-x,)

    if saved is None:
        return Backend(name="vendor", device="cpu", supports=takes_neg, compile=compile)
    return Backend(
        name="vendor",
        device="cpu",
        supports=takes_neg,
        compile=compile,
        serialize=lambda run: saved,
        deserialize=lambda content: lambda x: (-x,),
        fingerprint=lambda: "1",
    )


def written(path: Path, backend: Backend) -> Path:
    keel.package(export(Negates(), (torch.ones(2, 3),)), path, backends=(backend, "cpp"))
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("parts") / "parts.so"
    source = Path(__file__).with_name("negating_parts.c")
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{SOURCES}")
    subprocess.run(["gcc", *flags, str(source), "-o", str(made)], check=True)
    return str(made)


def test_a_library_runs_the_parts_of_a_vendor(tmp_path: Path, library: str) -> None:
    path, x = written(tmp_path / "m.keel", vendor()), torch.randn(2, 3)
    model = Model(path, part_files=words(library), part_file_count=1)
    assert torch.equal(model(x)[0], keel.load_package(path, trusted=True, backends=(vendor(), "cpp"))(x))
    with pytest.raises(Refused, match=r"A part of the backend vendor failed: The element 5 is too large\."):
        model(torch.tensor([[0.0] * 3, [0.0, 0.0, 1e7]]))
    torch.testing.assert_close(model(x)[0], Negates()(x))  # it goes on


def test_a_part_without_a_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="a part of the backend vendor, and no library that runs its parts") as raised:
        Model(written(tmp_path / "m.keel", vendor()))
    assert raised.value.status == 2


def test_a_library_refuses_a_part_in_its_own_words(tmp_path: Path, library: str) -> None:
    path = written(tmp_path / "m.keel", vendor(b"foreign"))
    with pytest.raises(Refused, match=r"The library of vendor cannot load a part: It is not a part of this vendor\."):
        Model(path, part_files=words(library), part_file_count=1)


def test_a_part_that_runs_in_python_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "m.keel", vendor(None))
    (variant,) = opened(path)[1].variants
    assert variant.program is None
    assert variant.why_no_program == "Part p1 is compiled by vendor, which runs it in Python: aten.neg.default."
    with pytest.raises(Refused, match="the variant native: it runs in Python alone: Part p1 is compiled by vendor"):
        Model(path)
