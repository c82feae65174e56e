"""The same kernels on a CUDA device, at larger sizes too; run with ``pytest -m gpu`` where there is one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import keel
from keel import Launcher, Source
from keel.loops import evaluate
from keel.plugin import CompileContext, SizeRange
from keel_triton import backend, target
from keel_triton.build import build
from keel_triton.render import render

from ..kernels import sized
from .cases import Case, cases, check, wide_cases
from .kernels import kernel
from .scalars import FLOATS, INTS, check_casts, check_ops

BIG = """
kernel big(in0: i8[N]) -> (out0: i8[N]):
  parallel i0 < N:
    %0 = load in0[i0]
    store out0[i0] %0
"""

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEEL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("case", [*cases(), *wide_cases()], ids=str)
def test_kernel(case: Case) -> None:
    check(case, kernel(case.kernel, **{s: v if case.static else None for s, v in case.sizes}), "cuda")


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool], ids=str)
def test_scalar_ops(dtype: torch.dtype) -> None:
    assert check_ops(dtype, "cuda") == []


def test_casts() -> None:
    assert check_casts("cuda") == []


def test_pointers_that_are_not_aligned() -> None:
    k = kernel("broadcast", N=64, M=128)
    (launch,) = build([Source(k, render(k))])
    for offset in (0, 1, 2, 0):
        x = torch.randn(64 * 128 + offset, device="cuda")[offset:]
        y, z = torch.randn(128, device="cuda"), torch.randn(64, device="cuda")
        out = torch.empty(64 * 128, device="cuda")
        launch(x, y, z, out)
        torch.testing.assert_close(out.view(64, 128), (x.view(64, 128) + y * z[:, None]) * 0.5)


@pytest.mark.parametrize("static", [True, False])
def test_more_elements_than_int32_counts(static: bool) -> None:
    n = 2**31 + 130
    k = sized(BIG, N=n if static else None)
    (launch,) = build([Source(k, render(k))])
    x = torch.randint(-128, 128, (n,), device="cuda", dtype=torch.int8)
    out = torch.zeros_like(x)
    launch(x, out, *([] if static else [n]))
    assert torch.equal(x, out)


def test_a_size_of_zero_launches_nothing() -> None:
    k = kernel("column_sum", N=None, M=None)
    (launch,) = build([Source(k, render(k))])
    out = torch.full((3,), 7.0, device="cuda")
    sizes = {"N": 0, "M": 3}
    launch(torch.empty(0, device="cuda"), out, *(sizes[s] for s in k.symbols))
    assert out.tolist() == [0.0, 0.0, 0.0]
    sizes = {"N": 3, "M": 0}
    launch(torch.empty(0, device="cuda"), torch.empty(0, device="cuda"), *(sizes[s] for s in k.symbols))


def test_launches_are_captured_in_a_graph() -> None:
    k = kernel("softmax", N=32, M=100)
    (launch,) = build([Source(k, render(k))])
    x, out = torch.randn(32, 100, device="cuda"), torch.zeros(32, 100, device="cuda")
    launch(x, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(x, out)
    x.copy_(torch.randn(32, 100))
    graph.replay()
    torch.testing.assert_close(out, x.softmax(1))


def test_machine_code_is_kept_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from keel_triton import binaries
    from keel_triton.kernel_cache import compiler, stored

    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path))
    k = kernel("in_place", N=3, M=5)
    for compiles in (True, False):
        monkeypatch.setattr(compiler, "done", {})  # as in a new process
        if not compiles:
            monkeypatch.setattr(binaries, "_compiled", None)
        (launch,) = build([Source(k, render(k))])
        x = torch.arange(15.0, device="cuda")
        launch(x)
        assert torch.equal(x, torch.arange(15.0, device="cuda") ** 2)
        stored().result()
    assert len(list(tmp_path.glob("triton-*.json"))) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_model_forward_and_backward(dtype: torch.dtype, dynamic: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256),
        torch.nn.GELU(),
        torch.nn.LayerNorm(256),
        torch.nn.Linear(256, 10),
        torch.nn.LogSoftmax(-1),
    ).to("cuda", dtype)
    fast = keel.compile(model, backends=[backend, "eager"], dynamic=dynamic)
    for rows in (32, 48):
        x = torch.randn(rows, 64, device="cuda", dtype=dtype, requires_grad=True)
        found = torch.autograd.grad(fast(x).square().mean(), [x, *model.parameters()])
        want = torch.autograd.grad(model(x).square().mean(), [x, *model.parameters()])
        close = 1e-4 if dtype == torch.float32 else 3e-2
        for a, b in zip(found, want, strict=True):
            torch.testing.assert_close(a, b, rtol=close, atol=close * b.abs().max().item())


@pytest.mark.parametrize("training", [False, True])
def test_indices_that_are_data_are_checked(training: bool) -> None:
    """On the device, in what torch.compile makes of it, with nobody to fall back on."""

    def fn(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(numbers, table) * 2

    table = torch.randn(8, 16, device="cuda", requires_grad=training)
    compiled = keel.compile(fn, backends=[backend], strict=True)
    numbers = torch.tensor([1, 7, 0], device="cuda")
    assert torch.equal(compiled(table, numbers), fn(table, numbers))
    with pytest.raises(keel.KeelError, match="index 99 is out of bounds for a dimension of size 8"):
        for _ in range(2):  # but in a part's first call, the next one says so
            compiled(table, torch.tensor([1, 99, 0], device="cuda"))
            torch.cuda.synchronize()


@pytest.mark.parametrize("case", [*cases(), *wide_cases()], ids=str)
def test_machine_code_that_was_compiled_before(case: Case) -> None:
    check(case, kernel(case.kernel, **{s: v if case.static else None for s, v in case.sizes}), "cuda", compiled_before)


def compiled_before(sources: list[Source]) -> list[Launcher]:
    """The launchers of machine code that is data between compiling and loading."""
    objects = target.compile(sources, None)
    return list(target.load([pickle.loads(pickle.dumps(each)) for each in objects], sources))


def test_machine_code_and_pointers_that_are_not_aligned() -> None:
    k = kernel("broadcast", N=None, M=None)
    sizes = {"N": 64, "M": 128}
    (launch,) = compiled_before([Source(k, render(k))])
    for offset in (0, 1, 2, 0):
        x = torch.randn(64 * 128 + offset, device="cuda")[offset:]
        y, z = torch.randn(128, device="cuda"), torch.randn(64, device="cuda")
        out = torch.empty(64 * 128, device="cuda")
        launch(x, y, z, out, *(sizes[s] for s in k.symbols))
        torch.testing.assert_close(out.view(64, 128), (x.view(64, 128) + y * z[:, None]) * 0.5)


def test_machine_code_and_a_size_of_zero() -> None:
    k = kernel("column_sum", N=None, M=None)
    (launch,) = compiled_before([Source(k, render(k))])
    out = torch.full((3,), 7.0, device="cuda")
    sizes = {"N": 0, "M": 3}
    launch(torch.empty(0, device="cuda"), out, *(sizes[s] for s in k.symbols))
    assert out.tolist() == [0.0, 0.0, 0.0]
    sizes = {"N": 3, "M": 0}
    launch(torch.empty(0, device="cuda"), torch.empty(0, device="cuda"), *(sizes[s] for s in k.symbols))


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "total", "in_turn", "column_sum"])
def test_machine_code_computes_the_same_bits(name: str) -> None:
    """At the typical sizes it is the same code as that of ``build``."""
    k = kernel(name, N=None, M=None)
    sizes = {"N": 640, "M": 768}
    ranges = {s: SizeRange(low=1, high=None, typical=sizes[s]) for s in k.symbols}
    source, values = Source(k, render(k)), [sizes[s] for s in k.symbols]
    (first,) = build([source])
    (second,) = target.load(target.compile([source], None, ctx=CompileContext(sizes=ranges)), [source])
    results = []
    for launch in (first, second):
        torch.manual_seed(0)
        buffers = [torch.randn(evaluate(b.size, sizes), device="cuda").to(b.dtype) for b in k.buffers]
        launch(*buffers, *values)
        results.append(buffers)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


LOADS = """
import pickle, sys
import torch
sys.modules["triton"] = None  # nothing imports it
from keel import Source
from keel.loops import parse
from keel_triton import target
objects, text, rendered = pickle.load(open(sys.argv[1], "rb"))
(launch,) = target.load(objects, [Source(parse(text), rendered)])
x, out = torch.arange(12.0, device="cuda"), torch.zeros(12, device="cuda")
launch(x, out)
torch.testing.assert_close(out.view(3, 4), x.view(3, 4).softmax(1))
print("right")
"""


def test_machine_code_runs_in_a_process_without_triton(tmp_path: Path) -> None:
    k = kernel("softmax", N=3, M=4)
    objects = target.compile([Source(k, render(k))], None)
    (tmp_path / "code").write_bytes(pickle.dumps((objects, str(k), render(k))))
    ran = subprocess.run([sys.executable, "-c", LOADS, str(tmp_path / "code")], capture_output=True, text=True)
    assert ran.stdout == "right\n", ran.stderr


def test_machine_code_for_another_device_is_refused() -> None:
    k = kernel("softmax", N=3, M=4)
    major, _ = torch.cuda.get_device_capability()
    other = "sm_80" if major != 8 else "sm_90"
    with pytest.raises(keel.KeelError, match=r"(?s)not-here.*They are for sm_"):
        target.load(target.compile([Source(k, render(k))], other), [Source(k, render(k))])
