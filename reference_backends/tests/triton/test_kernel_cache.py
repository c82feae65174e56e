"""Triton takes the sources: they compile for a GPU that is not here, and the machine code keeps to its registers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import keel
from keel import KeelError
from keel_triton.build import constants, load, settle
from keel_triton.launch_plan import plan
from keel_triton.render import render

from .kernels import TEXTS, kernel

triton = pytest.importorskip("triton", reason="triton is not installed")

HOPPER = triton.backends.compiler.GPUTarget("cuda", 90, 32)
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
SIZES = {"N": 4096, "M": 768, "K": 64}


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton-cache"))


def compiled(name: str, static: bool, aligned: bool = True) -> list:
    from keel_triton.kernel_cache import Variant, compile_now

    sizes = {s: v for s, v in SIZES.items() if re.search(rf"\b{s}\b", TEXTS[name])}
    k = kernel(name, **{s: v if static else None for s, v in sizes.items()})
    module, found = load(render(k)), []
    for one in plan(k):
        blocks, wide, numbers = settle(k, one, {s: sizes[s] for s in k.symbols})
        even = frozenset(n for n, v in numbers.items() if v % 16 == 0)
        variant = Variant(constants(one, blocks), max(b.warps for b in blocks), aligned, even, wide)
        found.append(compile_now(getattr(module, one.name), one, variant, HOPPER))
    return found


@pytest.mark.parametrize(
    ("name", "static"),
    [*((name, True) for name in TEXTS), *((name, False) for name in ("layer_norm", "total", "roll", "side_by_side"))],
)
def test_compiles_without_spilling(name: str, static: bool, tmp_path: Path) -> None:
    for k, one in enumerate(compiled(name, static)):
        cubin = tmp_path / f"{k}.cubin"
        cubin.write_bytes(one.asm["cubin"])
        usage = subprocess.run([CUOBJDUMP, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout
        found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", usage)
        assert found is not None, usage
        registers, stack, shared, local = map(int, found.groups())
        assert (stack, local) == (0, 0) and registers <= 128 and shared <= 48 * 1024, usage


@pytest.mark.parametrize("name", ["softmax", "broadcast", "column_sum", "layer_norm_bf16", "in_place"])
def test_rows_are_read_sixteen_bytes_at_a_time(name: str) -> None:
    (one,) = compiled(name, static=True)
    assert re.search(r"ld\.global\.v4\.b32|ld\.global\.v4\.f32", one.asm["ptx"]), one.asm["ptx"]
    (other,) = compiled(name, static=True, aligned=False)
    assert not re.search(r"\.v[24]\.", other.asm["ptx"]), "vector access to pointers that may not be aligned"


def entries(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("triton-*.json"))


def test_a_kernel_is_compiled_once_for_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from keel_triton import binaries

    (first,) = compiled("broadcast", static=True)
    monkeypatch.setattr(binaries, "_compiled", None)
    (again,) = compiled("broadcast", static=True)
    assert again.asm == first.asm and again.metadata == first.metadata and len(entries(tmp_path)) == 1
    with pytest.raises(KeelError, match="build-failed"):
        compiled("broadcast", static=True, aligned=False)


def test_a_damaged_kernel_is_compiled_again(tmp_path: Path) -> None:
    (first,) = compiled("broadcast", static=True)
    (path,) = entries(tmp_path)
    held = path.read_bytes()
    for at in (len(held) // 2, len(held) - 3, 5):
        path.write_bytes(held[:at] + bytes([held[at] ^ 1]) + held[at + 1 :])
        (again,) = compiled("broadcast", static=True)
        assert again.asm == first.asm and path.read_bytes() == held
    path.write_bytes(held[:1000])
    assert compiled("broadcast", static=True)[0].asm == first.asm


@pytest.mark.parametrize("name", ["softmax", "broadcast"])
def test_the_machine_code_is_what_triton_makes(name: str) -> None:
    """Its own ``compile`` keeps files that nobody verifies, and ``binaries`` runs its stages instead."""
    from keel_triton.kernel_cache import OPTIONS, Variant, source_of

    (made,) = compiled(name, static=True)
    k = kernel(name, N=4096, M=768)
    (one,) = plan(k)
    blocks, _, _ = settle(k, one, {})
    variant = Variant(constants(one, blocks), blocks[0].warps)
    source = source_of(getattr(load(render(k)), one.name), one, variant)
    theirs = triton.compile(source, target=HOPPER, options={**OPTIONS, "num_warps": variant.warps})
    assert (made.asm["ptx"], made.asm["cubin"]) == (theirs.asm["ptx"], theirs.asm["cubin"])
    for each, value in vars(made.metadata).items():
        assert value == getattr(theirs.metadata, each), each


def test_nothing_is_left_in_tritons_own_cache(tmp_path: Path) -> None:
    compiled("broadcast", static=True)
    assert entries(tmp_path) and not (tmp_path / "triton-cache").exists()


def test_compilations_run_side_by_side_and_are_shared() -> None:
    from keel_triton.kernel_cache import Compiler, Variant

    compiler, started = Compiler(), []
    for name in ("broadcast", "in_place", "permuted"):
        k = kernel(name, **{s: 64 for s in SIZES if re.search(rf"\b{s}\b", TEXTS[name])})
        (one,) = plan(k)
        blocks, _, _ = settle(k, one, {})
        variant = Variant(constants(one, blocks), 4)
        function = getattr(load(render(k)), one.name)
        started.append(compiler.start(function, one, variant, HOPPER))
        assert compiler.start(function, one, variant, HOPPER) is started[-1]
    assert [f.result().metadata.name for f in started] == ["broadcast", "in_place", "permuted"]


def test_one_source_is_compiled_for_each_dtype_that_it_is_of() -> None:
    """That of a copy says nothing of what it copies."""
    from keel_triton.kernel_cache import Compiler, Variant

    compiler, modules, loads = Compiler(), set(), set()
    for dtype in ("f64", "i16", "i8"):
        k = keel.loops.parse(
            f"kernel copy(a: {dtype}[64]) -> (o: {dtype}[64]):\n"
            "  parallel i < 64:\n    %0 = load a[i]\n    store o[i] %0\n"
        )
        (one,) = plan(k)
        module = load(render(k))
        blocks, _, _ = settle(k, one, {})
        compiled = compiler.start(module.copy, one, Variant(constants(one, blocks), 1), HOPPER).result()
        modules.add(module.__name__)
        loads |= set(re.findall(r"ld\.global[\w.]*", compiled.asm["ptx"]))
    assert len(modules) == 1, "what this is about"
    assert len(loads) == 3, loads


def test_a_source_that_triton_rejects() -> None:
    from keel_triton.kernel_cache import Variant, compile_now

    (one,) = plan(kernel("in_place", N=8, M=8))
    bad = render(kernel("in_place", N=8, M=8)).replace("tl.store(", "tl.stash(")
    with pytest.raises(KeelError, match=r"(?s)build-failed.*Triton could not compile in_place.*stash"):
        compile_now(load(bad).in_place, one, Variant((("XBLOCK", 128),), 1), HOPPER)


def test_division_and_square_root_round_correctly() -> None:
    (one,) = compiled("softmax", static=True)
    assert "div.rn.f32" in one.asm["ptx"] and "div.full" not in one.asm["ptx"]
