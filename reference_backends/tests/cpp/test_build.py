"""Building: what is compiled once, what is kept, what is said when the compiler says no."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch

import keel
from keel import KeelError, Source
from keel.launcher.native import launcher_type
from keel.loops import parse
from keel.plugin import KernelFunction
from keel_cpp import target
from keel_cpp.native_launch import entries

from .kernels import kernel

build, probe = (importlib.import_module(f"keel_cpp.{name}") for name in ("build", "probe"))
library = importlib.import_module("keel.cache.library")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))
    forget(monkeypatch)
    return tmp_path / "cache"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(library, "_BUILT", {})
    monkeypatch.setattr(library, "_LOADED", {})


def libraries(folder: Path) -> list[Path]:
    return sorted(folder.glob("cpp-*"))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of kernels that go through the compiler: what launches them is compiled before."""
    launcher_type()
    entries()
    seen: list[str] = []
    run = library.run_compiler

    def counted(command: list[str], text: str, **options: Any) -> Any:
        seen.append(text)
        return run(command, text, **options)

    monkeypatch.setattr(library, "run_compiler", counted)
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
    assert [p.suffix for p in libraries(folder)] == [".so"]


def test_equal_kernels_are_compiled_once(runs: list[str]) -> None:
    sources = [source(called=name) for name in ("one", "two", "three")]
    launchers = target.build(sources)
    assert runs[0].count('extern "C" __attribute__((visibility("default"))) void') == 1
    assert all(squares(launcher) == [float(n * n) for n in range(12)] for launcher in launchers)


def test_another_flag_is_another_library(runs: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target.build([source()])
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DOTHER"))
    target.build([source()])
    assert len(runs) == 2 and len(libraries(folder)) == 2


def damaged(held: bytes) -> list[bytes]:
    """Cut short, empty, and with one bit turned: in the code, in a constant, in the last line."""
    (factor,) = (at for at in [held.find(struct.pack("<f", FACTOR))] if at > 0)
    turned = []
    for at in (factor + 2, len(held) // 2, len(held) - 5):
        other = bytearray(held)
        other[at] ^= 8
        turned.append(bytes(other))
    return [held[:100], b"", *turned]


FACTOR = 3.734375


def test_a_damaged_library_is_built_again(runs: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    k = parse(f"""kernel scaled(in0: f32[12]) -> (out0: f32[12]):
  parallel i < 12:
    %0 = load in0[i]
    %1 = const {FACTOR} : f32
    %2 = mul %0 %1
    store out0[i] %2
""")
    x, out = torch.arange(12.0), torch.empty(12)
    sources = [Source(k, target.render(k))]
    target.build(sources)
    (path,) = libraries(folder)
    for turn, held in enumerate(damaged(path.read_bytes())):
        path.write_bytes(held)
        forget(monkeypatch)
        (launcher,) = target.build(sources)
        launcher(x, out)
        assert len(runs) == turn + 2 and torch.equal(out, x * FACTOR)
    forget(monkeypatch)
    target.build(sources)
    assert len(runs) == turn + 2


def test_a_compiler_that_hangs_costs_its_part_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = folder.parent / "bin"
    binaries.mkdir()
    (binaries / "g++").write_text("#!/bin/sh\ncase $1 in -print*) exit 1;; esac\nsleep 1000 & wait\n")
    (binaries / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KEEL_COMPILER_TIMEOUT", "0.5")
    x = torch.arange(6.0)
    compiled = keel.compile(lambda x: x * 2 + 1, backends=["cpp", "eager"])
    with pytest.warns(keel.KeelWarning, match=r"g\+\+ did not end within 0\.5 seconds and was stopped"):
        assert torch.equal(compiled(x), x * 2 + 1)


def test_launchers_pass_any_number_of_arguments() -> None:
    for buffers, symbols in ((1, 0), (0, 2), (3, 2), (300, 4)):
        seen: list[Any] = []
        launch = FunctionType(build._passing(buffers, symbols), {"function": lambda *a, seen=seen: seen.extend(a)})
        tensors = [torch.empty(1) for _ in range(buffers)]
        launch(*tensors, *range(symbols))
        assert seen == [*(t.data_ptr() for t in tensors), *range(symbols)]


def test_what_the_compiler_rejects(golden: Callable[..., None], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = source()
    bad = replace(good, text=good.text.replace("v1 * v1", "v1 * nothing"))
    monkeypatch.setattr(build, "prelude", lambda: "using i64 = long;\n#define SIMD\n")
    with pytest.raises(KeelError) as caught:
        target.build([bad])
    assert caught.value.code == "build-failed"
    golden(re.sub(r"keel_\w+|:\d+:\d+", "...", str(caught.value)))
    assert libraries(folder) == []


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, golden: Callable[..., None]) -> None:
    monkeypatch.setattr(probe.shutil, "which", lambda name: None)
    assert probe.probe() == "cpp compiles with g++, which is not on PATH."
    with pytest.raises(KeelError) as caught:
        target.build([source()])
    golden(str(caught.value))


def test_machine_code_is_what_build_loads(runs: list[str], folder: Path) -> None:
    sources = [source(), source("broadcast", N=2, M=3), source(called="again")]
    target.build(sources)
    (code,) = target.compile(sources, None)
    assert len(runs) == 1 and len(libraries(folder)) == 1
    assert (code.kind, code.target) == ("elf", "native") and code.content.startswith(b"\x7fELF")
    assert [function.source for function in code.functions] == [0, 1, 2]
    assert code.functions[0].name == code.functions[2].name, "equal bodies are one function"
    launchers = target.load([code], sources)
    assert squares(launchers[0]) == squares(launchers[2]) == [float(n * n) for n in range(12)]


def test_machine_code_for_another_cpu_is_another_library(folder: Path) -> None:
    codes = [target.compile([source()], name)[0] for name in ("x86-64-v2", "x86-64-v3", None, "x86-64-v2")]
    assert len(libraries(folder)) == 3 and codes[0] == codes[3]
    assert codes[0].content != codes[1].content
    assert ("cpu", "avx2") in codes[1].needs and ("cpu", "avx2") not in codes[0].needs


def test_a_cpu_that_lacks_a_feature_is_refused(golden: Callable[..., None]) -> None:
    sources = [source()]
    code = target.compile(sources, "x86-64-v3")
    features = frozenset(feature for _, feature in code[0].needs)
    (launch,) = build.load_for(features, code, sources)
    assert squares(launch) == [float(n * n) for n in range(12)]
    with pytest.raises(KeelError) as caught:
        build.load_for(features - {"fma", "bmi2"}, code, sources)
    assert caught.value.code == "not-here"
    golden(str(caught.value))


def test_a_library_that_is_cut_short_is_refused() -> None:
    sources = [source()]
    (code,) = target.compile(sources, None)
    with pytest.raises(KeelError, match=r"build-failed.*truncated"):
        target.load([replace(code, content=code.content[:5000])], sources)


def test_a_library_without_the_function_is_refused() -> None:
    sources = [source()]
    (code,) = target.compile(sources, None)
    with pytest.raises(KeelError, match=r"bad-artifact.*no function keel_other"):
        target.load([replace(code, functions=(KernelFunction(name="keel_other"),))], sources)
    with pytest.raises(KeelError, match=r"bad-artifact.*no function of in_place"):
        target.load([replace(code, functions=())], sources)


LOADS = """
import pickle, sys
import torch
from keel import Source
from keel.loops import parse
from keel.plugin import KernelFunction
from keel_cpp import target
from keel_cpp.build import probe
assert probe() is not None, "there is a compiler"
code, kernels = pickle.load(open(sys.argv[1], "rb"))
(launch,) = target.load([code], [Source(parse(text), rendered) for text, rendered in kernels])
x = torch.arange(12.0)
launch(x, torch.empty(1))
print(x.tolist())
"""


@pytest.mark.slow
def test_machine_code_runs_in_a_process_without_a_compiler(tmp_path: Path) -> None:
    one = source()
    (code,) = target.compile([one], "x86-64-v2")
    (tmp_path / "code").write_bytes(pickle.dumps((code, [(str(one.kernel), one.text)])))
    environment = {**os.environ, "PATH": str(tmp_path), "KEEL_CACHE_DIR": str(tmp_path / "other")}
    command = [sys.executable, "-c", LOADS, str(tmp_path / "code")]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.stdout == f"{[float(n * n) for n in range(12)]}\n", ran.stderr
    assert not list((tmp_path / "other").glob("cpp-*"))


def test_it_can_run_here() -> None:
    assert target.probe() is None
