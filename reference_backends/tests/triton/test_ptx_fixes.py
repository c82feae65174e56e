"""What ptxas makes wrong, and that none of it is left to it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

import keel
from keel_triton.build import build, constants, load, settle
from keel_triton.launch_plan import plan
from keel_triton.render import render

triton = pytest.importorskip("triton", reason="triton is not installed")

HOPPER = triton.backends.compiler.GPUTarget("cuda", 90, 32)
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def assembly(registers: str, body: str) -> str:
    """PTX of an entry that reads from %rd1 and writes to %rd2."""
    return f"""
.version 8.7
.target sm_90a
.address_size 64
.visible .entry made(.param .u64 from, .param .u64 to)
{{
    {registers}
    .reg .b64 %rd<3>;
    ld.param.b64 %rd1, [from];
    ld.param.b64 %rd2, [to];
    {body}
    ret;
}}
"""


UPPER = assembly(
    ".reg .b16 %rs<4>; .reg .b32 %r<4>;",
    """
    ld.global.b16 %rs1, [%rd1];
    mov.b32 %r1, {%rs1, %rs1};
    mov.b32 %r2, 131072;
    add.s16x2 %r3, %r1, %r2;
    mov.b32 {_, %rs2}, %r3;
    st.global.b16 [%rd2], %rs2;""",
)
"""Adds 2 to a 16-bit number, in the upper half of a register."""
POOLED = """kernel pooled(in0: f32[420]) -> (out0: f32[360]):
  parallel i0 < 2, i1 < 4, i2 < 5, i3 < 9:
    %0 = position i1
    %1 = const 0.0 : f32
    reduce j0 < 2:
      %2 = position (2*j0 + 2*((3*i1) // 2)) // 3
      %3 = le %2 %0
      %4 = load in0[210*i0 + 7*i2 + 35*j0 + 35*((3*i1) // 2) + ((7*i3) // 9)] if %3
      %5 = position ((2*j0 + 2*((3*i1) // 2) + 1) // 3) - ((2*j0 + 2*((3*i1) // 2)) // 3) + 1
      %6 = cast %5 : f32
      %7 = div %4 %6
      %8 = where %3 %7 %1
      %9 = reduce sum %8
    store out0[180*i0 + 45*i1 + 9*i2 + i3] %9
"""
"""From the gradient of adaptive pooling: places along an axis of 4 that is pooled to 6."""


COMPARED = """kernel compared(in0: f32[36]) -> (out0: b8[36]):
  %0 = const -2.0 : f32
  parallel i0 < 36:
    %1 = load in0[i0]
    %2 = abs %1
    %3 = gt %2 %0
    store out0[i0] %3
"""
"""Every number is greater, and NaN is not."""


def comparison(made: str, how: str, number: str) -> str:
    """PTX that compares %r2, which ``made`` makes of what is read."""
    return assembly(
        ".reg .pred %p<2>; .reg .b32 %r<8>;",
        f"""
    ld.global.b32 %r1, [%rd1];
    {made}
    setp.{how}.f32 %p1, %r2, {number};
    selp.b32 %r5, 7, 9, %p1;
    st.global.b32 [%rd2], %r5;""",
    )


def disassembled(cubin: Path) -> str:
    return subprocess.run([TOOLS / "cuobjdump", "-sass", cubin], capture_output=True, text=True, check=True).stdout


def test_a_sum_in_the_upper_half_keeps_what_is_added(tmp_path: Path) -> None:
    from keel_triton.ptx_fixes import unpacked

    ptx, cubin = tmp_path / "k.ptx", tmp_path / "k.cubin"
    single = unpacked(UPPER)
    assert "x2" not in single and single.count("add.s16 ") == 2
    ptx.write_text(single)
    subprocess.run([TOOLS / "ptxas", "-arch=sm_90a", ptx, "-o", cubin], check=True)
    assert re.search(r"IADD\S* R\d+, R\d+, 0x2\b", disassembled(cubin))


def test_kernels_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = _compiled(POOLED, "pooled", tmp_path, monkeypatch)
    assert "IADD" in code and "VIADD.16x2" not in code


@pytest.mark.parametrize(
    ("made", "how", "number"),
    [
        ("abs.f32 %r2, %r1;", "gt", "0fC0000000"),
        ("abs.f32 %r2, %r1;", "ge", "0f00000000"),
        ("abs.f32 %r2, %r1;", "ge", "0f80000000"),
        ("ex2.approx.f32 %r2, %r1;", "gt", "0fBF800000"),
        ("abs.f32 %r3, %r1; neg.f32 %r2, %r3;", "lt", "0f40000000"),
        ("abs.f32 %r3, %r1; neg.f32 %r2, %r3;", "le", "0f00000000"),
    ],
)
def test_nan_is_compared(made: str, how: str, number: str, tmp_path: Path) -> None:
    from keel_triton.ptx_fixes import ordered

    ptx, cubin = tmp_path / "k.ptx", tmp_path / "k.cubin"
    ptx.write_text(ordered(comparison(made, how, number)))
    subprocess.run([TOOLS / "ptxas", "-arch=sm_90a", ptx, "-o", cubin], check=True)
    assert re.search(r"\bSEL R", disassembled(cubin)), "ptxas takes it to be true"


@pytest.mark.parametrize(
    ("made", "how", "number"),
    [
        ("abs.f32 %r2, %r1;", "gt", "0f40000000"),
        ("abs.f32 %r2, %r1;", "lt", "0fC0000000"),
        ("neg.f32 %r2, %r1;", "lt", "0f40000000"),
        ("abs.f32 %r3, %r1; neg.f32 %r2, %r3;", "gt", "0fC0000000"),
    ],
)
def test_other_comparisons_stay(made: str, how: str, number: str) -> None:
    from keel_triton.ptx_fixes import ordered

    ptx = comparison(made, how, number)
    assert ordered(ptx) == ptx


def test_kernels_compare_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.search(r"FSETP\.[GL]", _compiled(COMPARED, "compared", tmp_path, monkeypatch))


def _compiled(text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The machine code of a kernel of one launch."""
    from keel_triton.kernel_cache import Variant, compile_now

    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton-cache"))
    kernel = keel.loops.parse(text)
    (one,) = plan(kernel)
    blocks, _, _ = settle(kernel, one, {})
    variant = Variant(constants(one, blocks), blocks[0].warps)
    made = compile_now(getattr(load(render(kernel)), name), one, variant, HOPPER)
    cubin = tmp_path / "made.cubin"
    cubin.write_bytes(made.asm["cubin"])
    return disassembled(cubin)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_places_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path))
    kernel, x, want = keel.loops.parse(POOLED), torch.randn(420), torch.empty(360)
    keel.loops.interpret(kernel, [x, want], {})
    found = torch.empty(360, device="cuda")
    (launch,) = build([keel.Source(kernel, render(kernel))])
    launch(x.cuda(), found)
    torch.testing.assert_close(found.cpu(), want)
