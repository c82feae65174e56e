"""What the built kernels compute, against references and the interpreter, and where their machine code may run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from keel import KeelError, Source
from keel.loops import Kernel, evaluate, parse
from keel.plugin import CompileContext
from keel.testing import fitted, kernel_launchers
from keel_conformance import kernels as conformance
from keel_opencl import opencl_devices, target

from ..kernels import REFERENCES, TEXTS, sized, sizes_of

pytestmark = [
    pytest.mark.skipif(opencl_devices.probe() is not None, reason=opencl_devices.probe() or ""),
    pytest.mark.slow,
]
CTX = CompileContext(options={"platform": "", "device": "", "flags": ""})
ROWS = {1: 3, 65: 5, 1100: 2}
"""Row lengths around the size of a group, and how many rows."""
DOUBLED = """
kernel doubled(in0: f32[8]) -> (out0: f32[8]):
  parallel i0 < 8:
    %0 = load in0[i0]
    %1 = add %0 %0
    store out0[i0] %1
"""


def test_kernels_compute_what_pytorch_does() -> None:
    kernels: list[tuple[str, Kernel, dict[str, int]]] = []
    for name, text in TEXTS.items():
        for m, n in ROWS.items():
            sizes = {s: {"N": n, "M": m, "K": 3}[s] for s in sizes_of(text)}
            kernels.append((name, sized(text, **sizes if m == 65 else {}), sizes))
    different = [*dict.fromkeys(kernel for _, kernel, _ in kernels)]
    built = kernel_launchers(target, [fitted(kernel, target) for kernel in different])
    launchers = dict(zip(different, built, strict=True))
    for name, kernel, sizes in kernels:
        buffers = {b.name: torch.randn(evaluate(b.size, sizes)).to(b.dtype) for b in kernel.buffers}
        wanted = REFERENCES[name](buffers, **sizes)
        launchers[kernel](*buffers.values(), *(sizes[s] for s in kernel.symbols))
        for out, value in wanted.items():
            torch.testing.assert_close(buffers[out], value.flatten().to(buffers[out].dtype), rtol=1e-5, atol=1e-5)


def test_kernels_of_the_suite_are_right() -> None:
    """Scalar operations on special values, hand-written kernels and drawn ones: a slice of `keel conform`."""
    cases = [*conformance.cases("standard")]
    chosen = [c for c in cases if c.levels.get("nest") == "alone"][::60]
    chosen += [c for c in cases if "sizes" in c.levels and "nest" not in c.levels][::120]
    chosen += [c for c in cases if "number" in c.levels][::100]
    seen = conformance.run_cases(chosen, conformance.Builder(target))
    verdicts = [conformance.judge(c, o) for c, o in zip(chosen, seen, strict=True)]
    assert [v for v in verdicts if v.status not in ("pass", "not claimed")] == []
    assert sum(v.status == "pass" for v in verdicts) > 0.8 * len(chosen) > 6


def test_kernels_of_one_name_are_in_different_programs() -> None:
    one = parse(DOUBLED)
    other = parse(DOUBLED.replace("add %0 %0", "mul %0 %0"))
    sources = [Source(kernel, target.render(kernel)) for kernel in (one, other)]
    assert target.compile is not None
    objects = target.compile(sources, None, ctx=CTX)
    assert [[f.source for f in each.functions] for each in objects] == [[0], [1]]
    x, results = torch.arange(8.0), [torch.zeros(8), torch.zeros(8)]
    for launch, out in zip(kernel_launchers(target, [one, other]), results, strict=True):
        launch(x, out)
    assert torch.equal(results[0], x + x) and torch.equal(results[1], x * x)


def test_machine_code_runs_on_the_device_and_driver_that_it_is_for() -> None:
    kernel = parse(DOUBLED)
    sources = [Source(kernel, target.render(kernel))]
    assert target.compile is not None and target.load is not None
    (code,) = target.compile(sources, None, ctx=CTX)
    assert len(target.load([code], sources, ctx=CTX)) == 1
    with pytest.raises(KeelError, match="were compiled for other and cannot run on"):
        target.load([replace(code, target="other", needs=(("opencl", "other"),))], sources, ctx=CTX)
    with pytest.raises(KeelError, match="opencl cannot compile for 'other'"):
        target.compile(sources, "other", ctx=CTX)


def test_the_compilers_words_are_in_the_error() -> None:
    wrong = Source(parse(DOUBLED), "__kernel void doubled_0() { nonsense; }")
    with pytest.raises(KeelError, match="nonsense"):
        target.build([wrong], ctx=CTX)
