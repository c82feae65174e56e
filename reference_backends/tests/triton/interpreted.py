"""All kernels through Triton's interpreter, on the CPU.  ``test_interpreted`` runs this in a process of its own, for
whether Triton interprets is settled when it is imported.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import keel
from keel import aten_externs, loop_backend
from keel_triton import target

from .cases import Case, cases, check
from .kernels import kernel
from .scalars import FLOATS, INTS, check_casts, check_ops

# The lanes past the end of a block compute too, on whatever is there.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_kernel(case: Case) -> None:
    check(case, kernel(case.kernel, **{s: v if case.static else None for s, v in case.sizes}), "cpu")


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool], ids=str)
def test_scalar_ops(dtype: torch.dtype) -> None:
    assert check_ops(dtype, "cpu") == []


def test_casts() -> None:
    assert check_casts("cpu", rounding=False) == []


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_through_the_whole_line(dynamic: bool) -> None:
    """As on a device: captured, lowered, scheduled, rendered, built, launched."""
    here = replace(target, device="cpu", externs=aten_externs("cpu"), probe=lambda: None)

    def block(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = F.gelu(F.layer_norm(x, (x.shape[-1],), w)) * torch.sigmoid(y)
        return h.softmax(-1), h.sum(0), h.argmax(-1), h.T.contiguous()

    given = torch.randn(5, 33), torch.randn(33), torch.randn(5, 33)
    found = keel.compile(block, backends=[loop_backend(here)], dynamic=dynamic)(*given)
    for a, b in zip(found, block(*given), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dynamic", [False, True])
def test_statistics_of_channels_in_chunks(dynamic: bool) -> None:
    """Channels are neighbors in memory, so the statistics of each are split, and what needs them is split again."""
    here = replace(target, device="cpu", externs=aten_externs("cpu"), probe=lambda: None)
    # Positive, for the gradient of a weight near 0 is a sum whose terms cancel.
    weights = [(torch.rand(n) + 0.5).requires_grad_() for n in (20, 20)]

    def block(x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, None, None, *weights, training=True).relu()

    x = torch.randn(3, 20, 41, 43).to(memory_format=torch.channels_last).requires_grad_()
    compiled = keel.compile(block, backends=[loop_backend(here)], dynamic=dynamic)
    results = []
    for fn in (compiled, block):
        y = fn(x)
        results.append((y, *torch.autograd.grad(y.square().sum(), [x, *weights])))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_numbers_that_the_host_computes() -> None:
    """Sizes and floats that are functions of sizes; kernels are given floats by their bits."""
    here = replace(target, device="cpu", externs={}, probe=lambda: None)

    def block(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.shape[1]
        return x[:, : int(n * 0.75)] * 2, x * (n / 3), x + n**-0.5, x * (n & 6), x.new_ones(round(n / 2)) * n

    compiled = keel.compile(block, backends=[loop_backend(here)], dynamic=True)
    for n in (33, 48):
        x = torch.randn(5, n)
        for a, b in zip(compiled(x), block(x), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_index_out_of_range_is_named(dynamic: bool) -> None:
    here = replace(target, device="cpu", externs={}, probe=lambda: None)

    def block(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.gather(1, i) * 2, x.gather(1, i).sum(1), F.embedding(j, x) + 1, x[j].sum(0), x.scatter_add(1, i, x)

    x, i, j = torch.randn(5, 33), torch.randint(0, 33, (5, 33)), torch.tensor([4, 0, 3])
    compiled = keel.compile(block, backends=[loop_backend(here)], dynamic=dynamic)
    for a, b in zip(compiled(x, i, j), block(x, i, j), strict=True):
        torch.testing.assert_close(a, b)
    for wrong in (33, -1, 2**40):
        bad = i.clone()
        bad[3, 7] = wrong
        with pytest.raises(keel.loops.BadIndex, match=f"index {wrong} is out of bounds for a dimension of size 33"):
            compiled(x, bad, j)
    with pytest.raises(keel.loops.BadIndex, match="index 5 is out of bounds for a dimension of size 5"):
        compiled(x, i, j + 1)
