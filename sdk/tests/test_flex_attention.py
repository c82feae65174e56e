"""flex_attention, forward and backward, with what its functions capture.

PyTorch itself has no backward on a CPU and on devices that it does not list, and says so before anything is captured.
Its check is lifted here to try on a CPU the graphs that Keel gets for other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import keel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),  # by PyTorch, when it calls the operator
]
LENGTH = 128
CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device.")],
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


def plain(q: Tensor, k: Tensor, v: Tensor, slope: Tensor) -> Tensor:
    return flex_attention(q, k, v) * slope.sum()


def of_distances(q: Tensor, k: Tensor, v: Tensor, slope: Tensor) -> Tensor:
    """A score captures a tensor that has a gradient."""
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + slope[h] * (j - i))


def under_a_mask(q: Tensor, k: Tensor, v: Tensor, slope: Tensor) -> Tensor:
    mask = create_block_mask(sees, None, None, LENGTH, LENGTH, device=q.device.type)
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * slope[h], block_mask=mask)


def with_sums(q: Tensor, k: Tensor, v: Tensor, slope: Tensor) -> Tensor:
    """The logarithms of sums have gradients of their own; two heads of queries share a head of keys."""
    y, sums = flex_attention(q, k[:, :2], v[:, :2], return_lse=True, enable_gqa=True)
    return y * slope[:, None, None] + sums[..., None]


def arguments(device: str) -> Sequence[Tensor]:
    heads = [torch.randn(2, 4, LENGTH, 16) for _ in range(3)]
    return [x.to(device).requires_grad_() for x in (*heads, torch.rand(4))]


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("attention", [plain, of_distances, under_a_mask, with_sums], ids=lambda f: f.__name__)
def test_it_trains_as_in_eager(attention: Callable[..., Tensor], device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cpu":
        monkeypatch.setattr(f"{flex_attention.__module__}._validate_device", lambda *args: None)
    inputs, outer = arguments(device), torch.randn(2, 4, LENGTH, 16).to(device)
    results = [f(*inputs) for f in (keel.compile(attention), attention)]
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(*(torch.autograd.grad(y, inputs, outer) for y in results), rtol=1e-3, atol=1e-3)


def test_pytorch_says_that_a_cpu_has_no_backward() -> None:
    with pytest.raises(NotImplementedError, match="FlexAttention does not support backward on CPU"):
        keel.compile(plain)(*arguments("cpu"))
