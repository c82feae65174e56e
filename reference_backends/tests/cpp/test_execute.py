"""What the built kernels compute, against PyTorch in float64, and drawn ones against the interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import keel
from keel import Launcher, Source
from keel.loops import Kernel, evaluate, interpret, parse, verify
from keel_conformance.kernels.kernel_generator import RandomKernel, draw
from keel_cpp import target

from .kernels import REFERENCES, TEXTS, kernel, sizes_of

INF, NAN = float("inf"), float("nan")
ROWS = {1: 3, 7: 5, 15: 4, 16: 33, 17: 7, 33: 15, 1100: 2}
"""Row lengths around the widths of vectors, beyond what a row's sum takes in one go, and how many rows."""
TOLERANCE = {torch.float32: (2e-6, 2e-6), torch.bfloat16: (4e-3, 1e-30), torch.float16: (1e-3, 1e-7)}


@dataclass(frozen=True)
class Case:
    name: str
    sizes: tuple[tuple[str, int], ...]
    static: bool

    def __str__(self) -> str:
        return f"{self.name}-{'x'.join(str(v) for _, v in self.sizes)}-{'static' if self.static else 'symbolic'}"

    def kernel(self) -> Kernel:
        return kernel(self.name, **{s: v if self.static else None for s, v in self.sizes})


def cases() -> Iterator[Case]:
    for name in TEXTS:
        for m, n in ROWS.items():
            values = {"N": n, "M": m, "K": 3}
            sizes = tuple((s, values[s]) for s in sizes_of(name))
            yield Case(name, sizes, False)
            if m in (1, 17, 33):
                yield Case(name, sizes, True)


CASES = list(cases())


@pytest.fixture(scope="module")
def launchers() -> dict[Case, Launcher]:
    """All kernels of this module, built at once; one for all sizes of a symbolic kernel."""
    kernels = {str(c.kernel()): c.kernel() for c in CASES}
    built = target.build([Source(k, target.render(k)) for k in kernels.values()])
    by_text = dict(zip(kernels, built, strict=True))
    return {c: by_text[str(c.kernel())] for c in CASES}


def inputs(kernel: Kernel, sizes: Mapping[str, int], special: bool) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    out = {}
    for b in kernel.buffers:
        n = evaluate(b.size, sizes)
        if b.dtype == torch.bool:
            out[b.name] = torch.rand(n, generator=generator) < 0.7
        elif b.dtype.is_floating_point:
            out[b.name] = torch.randn(n, generator=generator).to(b.dtype)
            if special and b.role == "in" and n > 4:
                for at, value in ((1, NAN), (n // 2, INF), (n - 1, -INF), (n - 2, -0.0), (n // 3, 0.0)):
                    out[b.name][at] = value
        else:
            low, high = (0, sizes["N"]) if "K" in sizes else (-100 if b.dtype.is_signed else 0, 100)
            out[b.name] = torch.randint(low, high, (n,), generator=generator).to(b.dtype)
    return out


def check(kernel: Kernel, launcher: Launcher, sizes: Mapping[str, int], special: bool = False) -> None:
    given = inputs(kernel, sizes, special)
    wide = {n: t.double() if t.dtype.is_floating_point else t.clone() for n, t in given.items()}
    want = REFERENCES[kernel.name](wide, **sizes)
    launcher(*given.values(), *(sizes[s] for s in kernel.symbols))
    for name, tensor in want.items():
        have, need = given[name], tensor.reshape(-1).to(given[name].dtype)
        rtol, atol = TOLERANCE.get(have.dtype, (0, 0))
        torch.testing.assert_close(
            have,
            need,
            rtol=rtol,
            atol=atol * max(1, sizes.get("M", 1) ** 0.5),
            equal_nan=True,
            msg=lambda m, name=name: f"{name} of {kernel.name}: {m}",
        )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_pytorch(case: Case, launchers: dict[Case, Launcher]) -> None:
    check(case.kernel(), launchers[case], dict(case.sizes))


# Folds of infinities of both signs differ by order where PyTorch's do; these kernels have one answer.
SPECIAL = ("softmax", "argmax", "total", "column_softmax", "transposed", "broadcast", "cast", "in_place", "bools")


@pytest.mark.parametrize("case", [c for c in CASES if c.name in SPECIAL and dict(c.sizes).get("M", 0) > 4], ids=str)
def test_nan_and_infinities(case: Case, launchers: dict[Case, Launcher]) -> None:
    check(case.kernel(), launchers[case], dict(case.sizes), special=True)


def test_negative_zero_is_kept(launchers: dict[Case, Launcher]) -> None:
    case = next(c for c in CASES if c.name == "transposed" and dict(c.sizes)["M"] == 17 and c.static)
    n, m = (dict(case.sizes)[s] for s in "NM")
    out = torch.ones(n * m)
    launchers[case](torch.full((n * m,), -0.0), torch.ones(n), out)
    assert out.signbit().all()


@pytest.mark.parametrize("name", [n for n in TEXTS if n not in ("argmax", "gather")])
def test_no_rows(name: str, launchers: dict[Case, Launcher]) -> None:
    """Size 0, where every loop over rows is empty and no buffer may be touched through a null address."""
    case = next(c for c in CASES if c.name == name and not c.static)
    sizes = dict.fromkeys(sizes_of(name), 0)
    kernel = case.kernel()
    buffers = [torch.empty(evaluate(b.size, sizes), dtype=b.dtype) for b in kernel.buffers]
    launchers[case](*buffers, *(0 for _ in kernel.symbols))
    if name == "total":
        assert buffers[1].item() == 0 and buffers[2].item() == -INF


def test_a_fold_that_needs_another_of_no_elements() -> None:
    """The work of no chunks is not divided by their number."""

    def fn(x: Tensor) -> Tensor:
        a = x.nonzero()[:, 0].float()
        return ((a * a).sum() + a).sum()

    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = keel.compile(fn, backends=["cpp"], fullgraph=True)
        for x in (torch.ones(5), torch.zeros(5)):
            assert run(x) == fn(x)


def test_buffers_are_addressed_from_their_first_element(launchers: dict[Case, Launcher]) -> None:
    case = next(c for c in CASES if c.name == "in_place" and dict(c.sizes)["M"] == 17 and c.static)
    n, m = (dict(case.sizes)[s] for s in "NM")
    memory = torch.full((n * m + 5,), 2.0)
    launchers[case](memory[3 : 3 + n * m].view(m, n).T, torch.empty(1))
    assert memory.tolist() == [2.0] * 3 + [4.0] * (n * m) + [2.0] * 2


TURNED = (
    "kernel turned(in0: {0}[K*N*M]) -> (out0: {0}[K*N*M]) where K, M, N:\n  parallel i2 < K, i0 < M, i1 < N:\n"
    "    %0 = load in0[N*M*i2 + M*i1 + i0]\n    store out0[N*M*i2 + N*i0 + i1] %0\n"
)
WIDTHS = {
    "f64": torch.float64,
    "i32": torch.int32,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "b8": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
}


@pytest.mark.parametrize("name", WIDTHS)
def test_tiles_of_every_width(name: str) -> None:
    k = parse(TURNED.format(name))
    (launcher,) = target.build([Source(k, target.render(k))])
    for n, m in ((1, 1), (64, 64), (100, 77), (33, 200)):
        x = torch.arange(3 * n * m).remainder(101).to(WIDTHS[name]).view(3, n, m)
        out = torch.empty(3, m, n, dtype=x.dtype)
        launcher(x, out, *({"K": 3, "N": n, "M": m}[s] for s in k.symbols))
        assert torch.equal(out, x.transpose(1, 2))


SWAPPED = """kernel swapped(in0: {0}[2*N]) -> (out0: {0}[2*N]) where N:
  %0 = const 5 : i64
  parallel i0 < N:
    %1 = position i0
    %2 = gt %1 %0
    %3 = load in0[2*i0 + 1] if %2
    %4 = load in0[2*i0] if %2
    store out0[2*i0] %3
    store out0[2*i0 + 1] %4
"""


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_guarded_loads_of_neighbors_keep_their_order(name: str) -> None:
    """GCC 12 swaps them when it vectorizes this loop."""
    k = parse(SWAPPED.format(name))
    (launcher,) = target.build([Source(k, target.render(k))])
    x = torch.arange(200).to({"f32": torch.float32, "f64": torch.float64}[name])
    out = torch.empty_like(x)
    launcher(x, out, 100)
    on = torch.arange(100)[:, None] > 5
    assert torch.equal(out.view(100, 2), torch.where(on, x.view(100, 2).flip(1), 0))


# -- drawn kernels ------------------------------------------------------------------------------------------------

DRAWN = {seed: drawn for seed in range(72) if (drawn := draw(seed)).ok}


def data(drawn: RandomKernel, seed: int) -> list[Tensor]:
    """A buffer for each of the kernel's: small integers, indices below 2."""
    generator = torch.Generator().manual_seed(seed)
    ranges = {b.name: (0, 2) if b.dtype == torch.int64 and b.role == "in" else (-3, 4) for b in drawn.kernel.buffers}
    return [
        torch.randint(*ranges[b.name], (drawn.sizes[b.name],), generator=generator).to(b.dtype)
        for b in drawn.kernel.buffers
    ]


@pytest.fixture(scope="module")
def drawn_launchers() -> dict[int, Launcher]:
    sources = [Source(d.kernel, target.render(d.kernel)) for d in DRAWN.values()]
    return dict(zip(DRAWN, target.build(sources), strict=True))


@pytest.mark.parametrize("seed", DRAWN)
def test_drawn_kernels_do_what_the_interpreter_does(seed: int, drawn_launchers: dict[int, Launcher]) -> None:
    drawn = DRAWN[seed]
    verify(drawn.kernel)
    symbols = {s: drawn.symbols[s] for s in drawn.kernel.symbols}
    have = data(drawn, seed)
    want = [t.clone() for t in have]
    interpret(drawn.kernel, want, symbols)
    drawn_launchers[seed](*have, *symbols.values())
    for buffer, a, b in zip(drawn.kernel.buffers, have, want, strict=True):
        assert torch.equal(a, b), buffer.name


ALONE = """kernel alone(in0: f32[N]) -> (out0: f32[N]) where N >= 0:
  parallel:
    scan j0 < N:
      %0 = load in0[j0]
      %1 = scan sum %0
      store out0[j0] %1
"""


def test_loops_without_axes() -> None:
    (launcher,) = target.build([Source(k := parse(ALONE), target.render(k))])
    for n in (0, 1, 40_000):
        out = torch.empty(n)
        launcher(torch.ones(n), out, n)
        assert torch.equal(out, torch.arange(1.0, n + 1))
