"""Windows are eager's, for every length and overload; so are numbers at equal distances."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.spec import decomposition_of

aten = torch.ops.aten
WINDOWS = [
    (op, end)
    for op, ends in (
        (aten.bartlett_window, ()),
        (aten.blackman_window, ()),
        (aten.hann_window, ()),
        (aten.hamming_window, (0.5, 0.4)),
        (aten.kaiser_window, (7.5,)),
    )
    for end in (None, *((True,), (False,), (False, *ends)))
]


@pytest.mark.parametrize(("packet", "more"), WINDOWS, ids=str)
@pytest.mark.parametrize("length", [0, 1, 2, 3, 8, 101])
def test_windows(packet: Any, more: tuple[Any, ...] | None, length: int) -> None:
    ends = {
        None: "default",
        1: "periodic",
        2: "beta" if packet is aten.kaiser_window else "periodic_alpha",
        3: "periodic_alpha_beta",
    }
    op = getattr(packet, ends[None if more is None else len(more)])
    want = op(length, *(more or ()), dtype=torch.float64)
    got, eager = (f(length, *(more or ()), dtype=torch.float32) for f in (decomposition_of(op), op))
    assert got.dtype == torch.float32 and got.shape == want.shape
    if length:
        worst, theirs = ((t.double() - want).abs().max() for t in (got, eager))
        assert worst <= 2 * theirs + 4 * torch.finfo(torch.float32).eps
    assert decomposition_of(op)(length, *(more or ())).dtype == torch.get_default_dtype()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_windows_of_small_floats_are_rounded_once(dtype: torch.dtype) -> None:
    got = decomposition_of(aten.hamming_window.periodic)(300, False, dtype=dtype)
    assert torch.equal(got, torch.hamming_window(300, periodic=False, dtype=torch.float64).to(dtype))


@pytest.mark.parametrize("given", [(0, 4), (1.5, 7.25, 0.25), (5, -5, -2.5), (0, 1, 0.1), (-3, 1e3, 7)], ids=str)
@pytest.mark.parametrize("dtype", [None, torch.float64, torch.int64, torch.bfloat16], ids=str)
def test_range(given: tuple[Any, ...], dtype: torch.dtype | None) -> None:
    if dtype == torch.int64 and any(isinstance(v, float) and v != int(v) for v in given[2:]):
        given = (*given[:2], 2 if given[2] > 0 else -2)
    op = aten.range.default if len(given) == 2 else aten.range.step
    want, got = op(*given, dtype=dtype), decomposition_of(op)(*given, dtype=dtype)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want)


def test_a_window_of_integers_is_not_made() -> None:
    assert decomposition_of(aten.bartlett_window.default)(4, dtype=torch.int64) is NotImplemented
