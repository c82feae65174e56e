"""Programs off the beaten track, whole on each loop backend: complex numbers, sizes that only the run will tell."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import keel

BACKENDS = ("interp", "cpp")


def moved(x: Tensor) -> tuple[Tensor, ...]:
    """Complex elements copied, turned, chosen, padded and joined, with a transform between."""
    turned = torch.fft.fft(x).t().contiguous()
    chosen = torch.where(turned.real > 0, turned, x.t())
    return torch.nn.functional.pad(chosen, (1, 2)), torch.cat([x, x.flip(0)]).clone(), x[1:, ::2] * 2


def viewed(x: Tensor) -> tuple[Tensor, ...]:
    """Parts of complex numbers, which no loop looks at: of an argument, of what is kept, of what is given back."""
    spectrum = torch.fft.fft(x)
    parts = torch.view_as_real(spectrum)
    back = torch.view_as_complex(parts.sin().contiguous()) * 2
    back = back[:, :3].conj() * back[:, 1:4]
    return back.real.clone().exp(), torch.view_as_real(back)[1:, ..., 1], torch.view_as_real(x)[2:], parts.sum()


def counted(x: Tensor) -> tuple[Tensor, ...]:
    """What is left of x after a choice, computed with, matched and written back."""
    found = x[x > 0] * 2 + 1
    return found, found.sum(), found[:, None] * found, torch.nonzero(x).float().exp()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_move(backend: str, dtype: torch.dtype) -> None:
    for shape in ((5, 5), (70, 70)):  # the larger is turned in tiles
        x = torch.randn(*shape, dtype=dtype)
        torch._dynamo.reset()
        got = keel.compile(moved, backends=[backend], strict=True)(x)
        for g, w in zip(got, moved(x), strict=True):
            torch.testing.assert_close(g, w)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_that_a_library_makes(backend: str) -> None:
    x = torch.randn(4, 5, dtype=torch.complex64)
    torch._dynamo.reset()
    run = keel.compile(viewed, backends=[backend], strict=True)
    first = run(x)
    run(-x)  # writes over what it does not give back
    for g, w in zip(first, viewed(x), strict=True):
        torch.testing.assert_close(g, w)
    assert first[2].data_ptr() == x[2:].data_ptr()


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_that_a_library_tells(backend: str) -> None:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = keel.compile(counted, backends=[backend, "eager"], fullgraph=True)  # assertions on sizes are eager's
        for n in (6, 6, 9):  # the same sizes, another count; other sizes
            x = torch.randn(n, 4)
            for g, w in zip(run(x), counted(x), strict=True):
                torch.testing.assert_close(g, w)
