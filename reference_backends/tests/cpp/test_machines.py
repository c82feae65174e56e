"""Machine code for other CPUs: what it may use, what it computes where it runs, and what it is linked with."""

from __future__ import annotations

import importlib
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import sympy
import torch

from keel import KeelError, Source
from keel.loops import SCALARS, Apply, Axis, Buffer, Kernel, Load, Loop, Store, index
from keel_cpp import machines, target
from keel_cpp.machines import LEVELS, features_of, lacking, machine, native_features
from keel_cpp.native_launch import entry
from keel_cpp.probe import cpu_features

from .kernels import TEXTS, kernel, sizes_of
from .test_execute import check

probe = importlib.import_module("keel_cpp.probe")
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="The levels are those of x86-64.")
NAMES = (None, *LEVELS)
F64 = torch.float64


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEEL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def sources() -> list[Source]:
    kernels = [kernel(name, **dict.fromkeys(sizes_of(name))) for name in TEXTS]
    return [Source(k, target.render(k)) for k in kernels]


def functions_of_numbers() -> list[Source]:
    """A kernel for each scalar op of one or two float64 operands: those call functions of libm."""
    kernels = []
    for op, facts in SCALARS.items():
        if op in target.scalars and facts.arity in (1, 2) and facts.domain == "float":
            kernels.append(mapped(op, facts.arity))
    return [Source(k, target.render(k)) for k in kernels]


def mapped(op: str, arity: int) -> Kernel:
    n = sympy.Symbol("s0", integer=True, positive=True)
    axis = Axis("i0", n)
    loads = tuple(Load(k, f"in{k}", index(axis), F64) for k in range(arity))
    buffers = (*(Buffer(f"in{k}", F64, n, "in") for k in range(arity)), Buffer("out0", F64, n, "out"))
    body = (*loads, Apply(arity, op, tuple(range(arity)), F64), Store("out0", index(axis), arity))
    return Kernel(f"{op}_{arity}", buffers, (Loop("parallel", (axis,), body),))


ALLOWED = re.compile(
    r"w (?:GOMP_parallel|omp_get_(?:max_threads|num_threads|thread_num))"
    r"|U (?:mem(?:set|cpy|move)|fmaf?|fmodf?|nextafterf?|exp2|log2|log10|log1p|expm1|pow|erfc?|lgamma_r"
    r"|a?(?:sin|cos|tan)h?|atan2|exp|log|cbrt)"
)
"""What a library may leave undefined: threads, which PyTorch's OpenMP has or nobody, and functions of libm and libc."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nm") is None, reason="There is no nm, of GNU's binutils.")
@pytest.mark.parametrize("name", NAMES)
def test_a_library_needs_no_other(name: str | None, tmp_path: Path) -> None:
    for k, all_sources in enumerate((sources(), functions_of_numbers())):
        (code,) = target.compile(all_sources, name)
        file = tmp_path / f"{k}.so"
        file.write_bytes(code.content)
        listed = subprocess.run(["nm", "-D", str(file)], capture_output=True, text=True, check=True).stdout
        symbols = re.findall(r"(\w) (\w+)$", listed, re.MULTILINE)
        needed = [f"{kind} {symbol}" for kind, symbol in symbols if kind not in "T"]
        assert [each for each in needed if not ALLOWED.fullmatch(each)] == []
        assert {symbol for kind, symbol in symbols if kind == "T"} == {f.name for f in code.functions}
        assert needed, "threads or libm"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_kernels_for_a_level(name: str | None) -> None:
    all_sources = sources()
    (code,) = target.compile(all_sources, name)
    if why := lacking(code.needs, cpu_features()):
        pytest.skip(why)
    for source, launch in zip(all_sources, target.load([code], all_sources), strict=True):
        for m, n in ((1, 3), (17, 7), (33, 15)):
            values = {"N": n, "M": m, "K": 3}
            check(source.kernel, launch, {s: values[s] for s in sizes_of(source.kernel.name)})


@pytest.mark.skipif(shutil.which("objdump") is None, reason="There is no objdump, of GNU's binutils.")
def test_code_for_an_old_cpu_has_no_new_instructions(tmp_path: Path) -> None:
    k = kernel("broadcast", N=None, M=None)
    registers = {}
    for name in LEVELS:
        (code,) = target.compile([Source(k, target.render(k))], name)
        (tmp_path / "k.so").write_bytes(code.content)
        command = ["objdump", "-d", "--no-show-raw-insn", str(tmp_path / "k.so")]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        registers[name] = {*re.findall(r"%([xyz]mm)", text)}
    assert registers == {
        "x86-64-v2": {"xmm"},
        "x86-64-v3": {"xmm", "ymm"},
        "x86-64-v4": {"xmm", "ymm", "zmm"},
    }


# -- features ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEVELS)
def test_levels_are_what_the_compiler_takes_them_for(name: str) -> None:
    """Apart from the baseline, which all levels have, and xsave, which only systems use."""
    plain, macros = (machines._macros(f"-march={m}") for m in ("x86-64", name))
    assert features_of(macros - plain) == {*LEVELS[name]} - {*machines._V1, "xsave", "cx16"}


def test_levels_contain_each_other() -> None:
    v2, v3, v4 = (frozenset(LEVELS[name]) for name in LEVELS)
    assert v2 < v3 < v4


def test_this_cpu_has_what_the_compiler_uses_here() -> None:
    assert not lacking([("cpu", feature) for feature in native_features()], cpu_features())


def test_names_of_the_compiler_and_of_the_system() -> None:
    macros = ["__AVX512VNNI__", "__LZCNT__", "__SSE3__", "__SSE4_1__", "__XSAVE__", "__BMI2__"]
    assert features_of(macros) == {"avx512_vnni", "abm", "pni", "sse4_1", "bmi2"}
    assert features_of(["__BIGGEST_ALIGNMENT__", "__znver3__", "__tune_znver3__", "__FP_FAST_FMA"]) == set()


def test_an_extension_without_a_known_name_is_needed_by_its_own() -> None:
    assert features_of(["__FROBNICATE__"]) == {"frobnicate"}
    assert lacking([("cpu", "frobnicate")], cpu_features()) == "This CPU lacks frobnicate."


def test_features_are_those_of_the_cpu_and_not_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "processor\t: 0",
        "BogoMIPS\t: 243.75",
        "Features\t: fp asimd atomics",
        "CPU part\t: 0xd0c",
        "",
        "processor\t: 1",
    ]
    (tmp_path / "cpuinfo").write_text("\n".join(lines))
    monkeypatch.setattr(probe, "Path", lambda name: tmp_path / Path(name).name)
    assert probe.cpu_features.__wrapped__() == {"fp", "asimd", "atomics"}
    assert probe.cpu.__wrapped__().splitlines()[1:] == ["fp asimd atomics", "0xd0c"]
    monkeypatch.setattr(machines, "cpu_features", probe.cpu_features.__wrapped__)
    monkeypatch.setattr(machines.platform, "machine", lambda: "aarch64")
    assert native_features.__wrapped__() == ("asimd", "atomics", "fp")


def test_what_a_cpu_lacks() -> None:
    needs = [("cpu", "avx2"), ("cpu", "fma"), ("cpu", "sse2")]
    assert lacking(needs, ["sse2", "avx2", "fma"]) == ""
    assert lacking(needs, ["sse2"]) == "This CPU lacks avx2, fma."
    assert lacking([("cuda", "sm_90")], ["sse2"]) == "This CPU lacks sm_90."


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x86-64-v9", "haswell", "", "x86-64-v3 -DX", "aarch64-armv99", "sm_90"])
def test_a_machine_that_is_not_known(name: str) -> None:
    with pytest.raises(KeelError, match=r"(?s)bad-option.*x86-64-v2, x86-64-v3, x86-64-v4, aarch64-armv8-a.*native"):
        target.compile([], name)


def test_an_arm_without_a_cross_compiler(monkeypatch: pytest.MonkeyPatch, golden: Callable[..., None]) -> None:
    monkeypatch.setattr(machines.shutil, "which", lambda name: None)
    with pytest.raises(KeelError) as caught:
        machine("aarch64-armv8-a")
    assert caught.value.code == "build-failed"
    golden(str(caught.value))


@pytest.mark.parametrize("name", ["aarch64-armv8-a", "aarch64-armv8.2-a"])
def test_code_for_an_arm(name: str) -> None:
    if not any(map(shutil.which, machines.ARM_COMPILERS)):
        pytest.skip("There is no cross compiler for aarch64.")
    sources = [Source(k := kernel("softmax", N=None, M=None), target.render(k))]
    (code,) = target.compile(sources, name)
    assert code.content[18:20] == b"\xb7\x00", "EM_AARCH64 of the ELF header"
    assert ("cpu", "asimd") in code.needs
    with pytest.raises(KeelError, match=r"(?s)not-here.*This CPU lacks asimd"):
        target.load([code], sources)


RUNS = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <cmath>
extern "C" {
ENTRIES
}
static double (*volatile links_libm)(double) = std::sin;

// LIBRARY FUNCTION COUNT FILE... NUMBER...: calls the function, and writes the buffers back to their files.
int main(int argc, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW);
  void* function = library ? dlsym(library, argv[2]) : nullptr;
  if (!function) return std::puts(dlerror()), 1;
  const int count = argc - 4, buffers = std::atoi(argv[3]);
  uint64_t values[64];
  long sizes[64];
  for (int i = 0; i < buffers; ++i) {
    FILE* file = std::fopen(argv[4 + i], "rb");
    std::fseek(file, 0, SEEK_END);
    sizes[i] = std::ftell(file);
    std::rewind(file);
    void* memory = std::malloc(sizes[i] + 1);
    if (std::fread(memory, 1, sizes[i], file) != size_t(sizes[i])) return 1;
    values[i] = uint64_t(memory);
    std::fclose(file);
  }
  for (int i = buffers; i < count; ++i) values[i] = std::atoll(argv[4 + i]);
  switch (count) { CASES }
  for (int i = 0; i < buffers; ++i) {
    FILE* file = std::fopen(argv[4 + i], "wb");
    std::fwrite((void*)values[i], 1, sizes[i], file);
    std::fclose(file);
  }
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aarch64-armv8-a", "aarch64-armv8.2-a"])
def test_code_for_an_arm_runs_in_an_emulator(name: str, tmp_path: Path) -> None:
    compilers, emulator = [*filter(shutil.which, machines.ARM_COMPILERS)], shutil.which("qemu-aarch64")
    if not compilers or emulator is None:
        pytest.skip("There is no cross compiler for aarch64, or no qemu-aarch64 to run its code.")
    all_sources = sources()
    (code,) = target.compile(all_sources, name)
    library, program = tmp_path / "kernels.so", tmp_path / "runs"
    library.write_bytes(code.content)
    counts = {len(s.kernel.buffers) + len(s.kernel.symbols) for s in all_sources}
    cases = " ".join(f"case {n}: keel_cpp_call_{n}(function, values, 0, 0); break;" for n in sorted(counts))
    text = RUNS.replace("ENTRIES", "".join(map(entry, sorted(counts)))).replace("CASES", cases)
    command = [compilers[0], "-x", "c++", "-", "-o", str(program), "-Wl,--no-as-needed", "-lm", "-ldl"]
    subprocess.run(command, input=text, text=True, check=True)
    root = subprocess.run([compilers[0], "-print-sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    prefix = Path(root) / "usr" / "aarch64-linux-gnu" if root in ("", "/") else Path(root)
    for function, source in zip(code.functions, all_sources, strict=True):

        def launch(*args: object, symbol: str = function.name) -> None:
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            files = [tmp_path / f"{k}" for k in range(len(tensors))]
            for file, tensor in zip(files, tensors, strict=True):
                file.write_bytes(bytes(tensor.contiguous().view(torch.uint8).tolist()))
            numbers = [str(a) for a in args if isinstance(a, int)]
            run = [emulator, "-L", str(prefix), str(program), str(library), symbol, str(len(files))]
            subprocess.run([*run, *map(str, files), *numbers], check=True, capture_output=True)
            for file, tensor in zip(files, tensors, strict=True):
                if tensor.numel():
                    tensor.view(torch.uint8).copy_(torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8))

        values = {"N": 7, "M": 17, "K": 3}
        check(source.kernel, launch, {s: values[s] for s in sizes_of(source.kernel.name)})


def test_wide_vectors_only_where_the_cpu_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "cpu_features", lambda: {"fpu", "avx2", "fma"})
    assert machines.native_options() == ("-march=native",)
    monkeypatch.setattr(machines, "cpu_features", lambda: {"fpu", "avx2", "fma", "avx512f", "avx512bw"})
    assert machines.native_options() == ("-march=native", *machines.WIDE)
    assert machine("x86-64-v3").options == ("-march=x86-64-v3",)
    assert machine("x86-64-v4").options == ("-march=x86-64-v4", *machines.WIDE)
