"""Files, constants and probes: what happens before anything runs on a device."""
from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from keel import Source
from keel_triton import backend, target
from keel_triton.blocks import Blocks
from keel_triton.build import build, cache_folder, constants, load, settle
from keel_triton.plan import plan
from keel_triton.render import render

from .kernels import kernel

pytest.importorskip("triton", reason="triton is not installed")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_equal_sources_are_one_file_and_one_module(folder: Path) -> None:
    text = render(kernel("softmax", N=3, M=100))
    assert load(text) is load(text)
    (path,) = (folder / "triton").iterdir()
    assert path.read_text() == text and path.parent == cache_folder()
    load(render(kernel("softmax", N=4, M=100)))
    assert len(list((folder / "triton").iterdir())) == 2


def test_a_graph_is_one_file(folder: Path) -> None:
    kernels = [kernel("softmax", N=3, M=100), kernel("argmax", N=3, M=100), kernel("in_turn", N=3, M=4)]
    assert len(build([Source(k, render(k)) for k in kernels])) == 3
    assert len(list((folder / "triton").iterdir())) == 1


def test_kernels_of_one_name_keep_apart(folder: Path) -> None:
    kernels = [kernel("softmax", N=3, M=100), kernel("softmax", N=3, M=200)]
    build([Source(k, render(k)) for k in kernels])
    assert len(list((folder / "triton").iterdir())) == 2


def test_nothing_to_build() -> None:
    assert list(build([])) == []


def test_int_parameters_and_blocks_follow_from_sizes() -> None:
    k = kernel("layer_norm", N=None, M=None)
    (launch,) = plan(k)
    blocks, wide, numbers = settle(k, launch, {"M": 768, "N": 4096})
    assert (blocks, wide, numbers) == ((Blocks(1, 1024, 4, 4096),), False, {"M": 768, "N": 4096})
    assert constants(launch, blocks) == (("INDEX", 0), ("XBLOCK", 1), ("RBLOCK", 1024))
    assert settle(k, launch, {"M": 768, "N": 2**22})[1]


def test_parts_have_constants_of_their_own() -> None:
    k = kernel("side_by_side", N=300, M=768, K=1000)
    (launch,) = plan(k)
    blocks, _, _ = settle(k, launch, {})
    assert constants(launch, blocks) == (("XBLOCK0", 1), ("XBLOCK1", 128))


def test_the_probe_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        assert target.probe() == "No CUDA device was found."
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert target.probe() == "triton is not installed."


def test_the_backend() -> None:
    assert (backend.name, backend.device) == ("triton", "cuda")
