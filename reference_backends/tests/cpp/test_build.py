"""Building: what is compiled once, what is kept, what is said when the compiler says no."""
from __future__ import annotations

import importlib
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from keel import KeelError, Source
from keel_cpp import target

from .kernels import kernel

build, probe = (importlib.import_module(f"keel_cpp.{name}") for name in ("build", "probe"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that go through the compiler."""
    seen: list[str] = []
    run = subprocess.run

    def counted(command: list[str], **options: Any) -> Any:
        if "input" in options:
            seen.append(options["input"])
        return run(command, **options)

    monkeypatch.setattr(build.subprocess, "run", counted)
    return seen


def source(name: str = "in_place", called: str | None = None, **sizes: int | None) -> Source:
    k = kernel(name, **(sizes or {"N": 3, "M": 4}))
    k = replace(k, name=called or k.name)
    return Source(k, target.render(k))


def squares(launcher: Callable[..., None]) -> list[float]:
    x = torch.arange(12.0)
    launcher(x, torch.empty(1))
    return x.tolist()


def test_one_run_of_the_compiler_for_all_kernels_and_none_the_next_time(runs: list[str], folder: Path) -> None:
    sources = [source(), source("broadcast", N=2, M=3), source("column_sum", N=2, M=3)]
    first = target.build(sources)
    assert len(runs) == 1
    second = target.build(sources)
    assert len(runs) == 1
    assert squares(first[0]) == squares(second[0]) == [float(n * n) for n in range(12)]
    assert [p.suffix for p in folder.iterdir()] == [".so"]


def test_equal_kernels_are_compiled_once(runs: list[str]) -> None:
    sources = [source(called=name) for name in ("one", "two", "three")]
    launchers = target.build(sources)
    assert runs[0].count('extern "C" __attribute__((visibility("default"))) void') == 1
    assert all(squares(launcher) == [float(n * n) for n in range(12)] for launcher in launchers)


def test_another_flag_is_another_library(runs: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target.build([source()])
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DOTHER"))
    target.build([source()])
    assert len(runs) == 2 and len(list(folder.iterdir())) == 2


def test_a_library_cut_short_is_built_again(
        runs: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target.build([source()])
    (library,) = folder.iterdir()
    other = folder / "other"
    other.mkdir()
    (other / library.name).write_bytes(library.read_bytes()[:100])
    monkeypatch.setenv("KEEL_CACHE_DIR", str(other))
    (launcher,) = target.build([source()])
    assert len(runs) == 2 and squares(launcher) == [float(n * n) for n in range(12)]


def test_what_the_compiler_rejects(golden: Callable[..., None], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = source()
    bad = replace(good, text=good.text.replace("v1 * v1", "v1 * nothing"))
    monkeypatch.setattr(build, "prelude", lambda: "using i64 = long;\n#define SIMD\n")
    with pytest.raises(KeelError) as caught:
        target.build([bad])
    assert caught.value.code == "build-failed"
    golden(re.sub(r"keel_\w+|:\d+:\d+", "...", str(caught.value)))
    assert list(folder.iterdir()) == []


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, golden: Callable[..., None]) -> None:
    monkeypatch.setattr(probe.shutil, "which", lambda name: None)
    assert probe.probe() == "cpp compiles with g++, which is not on PATH."
    with pytest.raises(KeelError) as caught:
        target.build([source()])
    golden(str(caught.value))


def test_wide_vectors_only_where_the_cpu_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "cpu", lambda: "x86_64\nsome CPU\nfpu avx2 fma")
    assert build.flags() == build.FLAGS
    monkeypatch.setattr(build, "cpu", lambda: "x86_64\nsome CPU\nfpu avx2 fma avx512f avx512bw")
    assert build.flags() == build.FLAGS + build.WIDE


def test_it_can_run_here() -> None:
    assert target.probe() is None
