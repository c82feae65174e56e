"""Fourier transforms: what the clauses say, tried on eager; frequencies; layouts on CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from keel.graph.calls import type_of
from keel.spec import MEMBERS, Sample, decomposition_of
from keel.spec.bind import bound
from keel.torch_adapter import fix_strides

from .test_types import agrees
from .written_out import pieces

aten = torch.ops.aten
C2C, R2C, C2R = aten._fft_c2c.default, aten._fft_r2c.default, aten._fft_c2r.default
NAN, INF = float("nan"), float("inf")


def samples(name: str, dtype: torch.dtype) -> Iterator[Sample]:
    assert MEMBERS[name].samples is not None
    yield from MEMBERS[name].samples(dtype)  # type: ignore[misc]


def transform(x: torch.Tensor, dims: list[int], normalization: int, forward: bool) -> torch.Tensor:
    """By the definition, one dimension after the other, as products with the matrix of roots of unity."""
    total = 1
    for d in dims:
        n = x.shape[d]
        total *= n
        turn = torch.outer(torch.arange(n), torch.arange(n)) % n
        roots = torch.exp((-2j if forward else 2j) * torch.pi * turn.to(torch.complex128) / n)
        x = (x.movedim(d, -1).to(torch.complex128) @ roots).movedim(-1, d)
    return x * {0: 1.0, 1: total**-0.5, 2: 1.0 / total}[normalization]


def test_complex_is_the_definition() -> None:
    for sample in samples("fft_c2c", torch.complex128):
        torch.testing.assert_close(C2C(*sample.args), transform(*sample.args))


def test_real_is_the_first_half() -> None:
    for sample in samples("fft_r2c", torch.float64):
        x, dims, normalization, onesided = sample.args
        want, got = transform(x, dims, normalization, True), R2C(*sample.args)
        last = dims[-1]
        torch.testing.assert_close(got, want.narrow(last, 0, x.shape[last] // 2 + 1) if onesided else want)
        if len(dims) == 1:
            assert not got.imag.narrow(last, 0, 1).any()


def test_back_to_real_reads_half_and_not_the_imaginary_parts_that_must_be_0() -> None:
    for sample in samples("fft_c2r", torch.complex128):
        x, dims, normalization, n = sample.args
        kept = x.clone()
        got = C2R(*sample.args)
        assert torch.equal(x, kept)
        half = x.narrow(dims[-1], 0, n // 2 + 1)
        torch.testing.assert_close(got, C2R(half.contiguous(), dims, normalization, n))
        if len(dims) == 1:
            moved = half.movedim(dims[0], -1).clone()
            moved[..., 0] += 5j
            if n % 2 == 0:
                moved[..., -1] -= 3j
            torch.testing.assert_close(got, C2R(moved.movedim(-1, dims[0]), dims, normalization, n))
            full = torch.cat(
                [moved.real[..., :1] + 0j, moved[..., 1:], moved[..., 1 : (n + 1) // 2].conj().flip(-1)], -1
            )
            if n % 2 == 0:
                full[..., n // 2] = full[..., n // 2].real + 0j
            want = transform(full, [full.dim() - 1], normalization, False).real.movedim(-1, dims[0])
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("special", [NAN, INF, -INF])
@pytest.mark.parametrize("n", [1, 4, 7, 30])
def test_what_is_not_finite_leaves_nothing_finite(special: float, n: int) -> None:
    for at in range(n):
        x = torch.randn(n)
        x[at] = special
        assert not torch.isfinite(R2C(x, [0], 0, True)).any()
        assert not torch.isfinite(C2C(torch.complex(x, torch.randn(n)), [0], 0, True)).any()


def test_there_and_back() -> None:
    x = torch.randn(3, 4, 5, dtype=torch.complex128)
    torch.testing.assert_close(C2C(C2C(x, [0, 2], 0, True), [2, 0], 2, False), x)
    torch.testing.assert_close(C2C(C2C(x, [1], 1, True), [1], 1, False), x)
    y = torch.randn(4, 7, dtype=torch.float64)
    torch.testing.assert_close(C2R(R2C(y, [0, 1], 2, True), [0, 1], 0, 7), y)
    assert torch.equal(C2C(x, [], 0, True), x)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("fft_c2c", (torch.zeros(3, 4, dtype=torch.complex64), [1, 1], 0, True)),
        ("fft_c2c", (torch.zeros(3, 4, dtype=torch.complex64), [-1], 0, True)),
        ("fft_c2c", (torch.zeros(3, 0, dtype=torch.complex64), [0], 0, True)),
        ("fft_r2c", (torch.zeros(3, 4), [], 0, True)),
        ("fft_c2r", (torch.zeros(3, dtype=torch.complex64), [0], 0, 9)),
        ("fft_c2r", (torch.zeros(1, dtype=torch.complex64), [0], 0, 0)),
    ],
    ids=range(6),
)
def test_preconditions(name: str, args: tuple[Any, ...]) -> None:
    given = [type_of(a) if isinstance(a, torch.Tensor) else a for a in args]
    broken = [r for r in MEMBERS[name].requires if not r.holds(bound(MEMBERS[name].targets[0], given, {}))]
    assert len(broken) == 1


@pytest.mark.parametrize("name", ["fft_c2c", "fft_r2c", "fft_c2r"])
def test_layouts_are_fake_tensors_on_cuda_too(name: str) -> None:
    op = MEMBERS[name]
    for sample in samples(name, op.dtypes[0]):
        x, *rest = sample.args
        with FakeTensorMode():
            fake = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
            want = fix_strides(op.targets[0], (fake, *rest), {}, op.targets[0](fake, *rest))
        (got,) = op.types(bound(op.targets[0], [type_of(fake), *rest], {}))
        assert agrees(type_of(want), got), f"{type_of(fake)}, {rest}: {type_of(want)}; the rule says {got}"


@pytest.mark.parametrize("op", [aten.fft_fftfreq.default, aten.fft_rfftfreq.default], ids=str)
def test_frequencies(op: Any) -> None:
    for n in (0, 1, 2, 7, 8, 1000):
        for d in (1.0, 0.25, 3.0, 0.0, -0.0):
            for keywords in ({}, {"dtype": torch.float64}, {"dtype": torch.bfloat16}):
                want, got = op(n, d, **keywords), decomposition_of(op)(n, d, **keywords)
                assert (got.dtype, got.shape) == (want.dtype, want.shape)
                near = 1e-7 if got.dtype != torch.bfloat16 else 2**-7  # eager rounds the factor, too
                torch.testing.assert_close(got, want, rtol=near, atol=0, equal_nan=True)
    assert str(op) not in pieces(op, 8, 0.5, symbolic=False)


@pytest.mark.parametrize("n", [-1, -2, -3, -4])
def test_frequencies_of_fewer_elements_than_none(n: int) -> None:
    """A size is rounded towards 0, as integers of C++ are."""
    for op in (aten.fft_fftfreq.default, aten.fft_rfftfreq.default):
        try:
            want = op(n, 0.5)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                decomposition_of(op)(n, 0.5)
        else:
            torch.testing.assert_close(decomposition_of(op)(n, 0.5), want, rtol=0, atol=0)
