"""Files, constants and probes: what happens before anything runs on a device."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import linecache
import threading
from pathlib import Path

import pytest
import torch

import keel
from keel import Source
from keel_triton import backend, target
from keel_triton.block_sizes import Blocks
from keel_triton.build import build, constants, load, settle
from keel_triton.launch_plan import plan
from keel_triton.render import render

from .kernels import kernel

built = importlib.import_module("keel_triton.build")
pytest.importorskip("triton", reason="triton is not installed")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_equal_sources_are_one_module_and_no_file(folder: Path) -> None:
    text = render(kernel("softmax", N=3, M=100))
    assert load(text) is load(text) is not load(render(kernel("softmax", N=4, M=100)))
    assert inspect.getsource(load(text).softmax.fn) in text
    assert not list(folder.rglob("*.py"))


def test_threads_that_load_at_once() -> None:
    """Each gets all of the module."""
    texts = [f"R = {r}\n" + "".join(f"def f{i}(): return R + {i}\n" for i in range(300)) for r in range(10)]
    seen: list[list[int]] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        seen.append([load(text).f299() for text in texts])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen == [[r + 299 for r in range(10)]] * 8


def test_a_file_of_the_name_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "def f(): return 7\n# a file\n"
    (tmp_path / load(text).__file__).write_text("def f(): return 8\n")
    load.cache_clear()
    linecache.checkcache()
    assert load(text).f() == 7 and inspect.getsource(load(text).f) == "def f(): return 7\n"


def modules_of(kernels: list[keel.loops.Kernel], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many modules a build loads."""
    seen: list[str] = []
    monkeypatch.setattr(built, "load", lambda text: seen.append(text) or load(text))
    assert len(build([Source(k, render(k)) for k in kernels])) == len(kernels)
    return len(seen)


def test_a_graph_is_one_module(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [kernel("softmax", N=3, M=100), kernel("argmax", N=3, M=100), kernel("in_turn", N=3, M=4)]
    assert modules_of(kernels, monkeypatch) == 1


def test_kernels_of_one_name_keep_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert modules_of([kernel("softmax", N=3, M=100), kernel("softmax", N=3, M=200)], monkeypatch) == 2


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
