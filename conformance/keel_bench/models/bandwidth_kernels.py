"""Functions whose time is that of the memory they read and write: norms, softmax, losses, transposes and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

COLUMNS, VOCABULARY, HEADS, HEAD, CHANNELS, SIDE = 1024, 50257, 16, 128, 64, 64
BYTES: Mapping[str, int] = {"cpu": 1 << 28, "cuda": 1 << 29}
"""Bytes of the tensor that a kernel passes over, by device: several times what caches hold."""
FEW_BYTES = 1 << 20
DECAY, FIRST, SECOND, STEP, EPSILON = 1e-2, 0.9, 0.999, 1e-3, 1e-8

Arguments = tuple[Tensor, ...]


@dataclass(frozen=True)
class BandwidthKernel:
    """``fn`` of the tensors that ``make`` makes for a dtype, a device and a number of bytes.

    ``passes`` counts the tensors of the size of the first argument that have to be read or written. A step of a
    ``trained`` one also computes the gradients of the floating-point arguments, from a gradient that it reads. The
    results of a ``random`` one differ from call to call.
    """

    fn: Callable[..., Tensor]
    make: Callable[[torch.dtype, str, int], Arguments]
    passes: float
    trained: bool = False
    random: bool = False

    @property
    def mode(self) -> str:
        return "training" if self.trained else "inference"

    def arguments(self, dtype: torch.dtype, device: str, size: int) -> Arguments:
        made = self.make(dtype, device, size)
        return tuple(t.requires_grad_(self.trained and t.is_floating_point()) for t in made)


def matrix(dtype: torch.dtype, device: str, size: int, columns: int = COLUMNS, tensors: int = 1) -> Arguments:
    """Matrices with ``columns``, each of about ``size`` bytes."""
    rows = max(1, size // (columns * dtype.itemsize))
    return tuple(torch.randn(rows, columns, device=device).to(dtype) for _ in range(tensors))


def normalized(dtype: torch.dtype, device: str, size: int, tensors: int = 1) -> Arguments:
    """Matrices, and the weight and bias of their columns."""
    vectors = (torch.randn(COLUMNS, device=device).to(dtype) for _ in range(2))
    return (*matrix(dtype, device, size, tensors=tensors), *vectors)


def scores(dtype: torch.dtype, device: str, size: int) -> Arguments:
    """The scores of a vocabulary for some words, and which words they are."""
    (x,) = matrix(dtype, device, size, VOCABULARY)
    return x, torch.randint(VOCABULARY, (len(x),), device=device)


def square(dtype: torch.dtype, device: str, size: int) -> Arguments:
    side = int((size // dtype.itemsize) ** 0.5) // 64 * 64
    return matrix(dtype, device, side * side * dtype.itemsize, side)


def heads(dtype: torch.dtype, device: str, size: int) -> Arguments:
    """What attention has of each word, head by head."""
    (x,) = matrix(dtype, device, size, HEADS * HEAD)
    return (x.view(1, -1, HEADS, HEAD),)


def rotated(dtype: torch.dtype, device: str, size: int) -> Arguments:
    (x,) = heads(dtype, device, size)
    angles = torch.randn(x.shape[1], 1, HEAD, device=device)
    return x, angles.cos().to(dtype), angles.sin().to(dtype)


def images(dtype: torch.dtype, device: str, size: int) -> Arguments:
    (x,) = matrix(dtype, device, size, CHANNELS * SIDE * SIDE)
    return (x.view(-1, CHANNELS, SIDE, SIDE),)


def moments(dtype: torch.dtype, device: str, size: int) -> Arguments:
    """A parameter, its gradient, and the moments of earlier gradients. The second one is not near zero: there the step
    would be as large as its rounding errors.
    """
    weight, gradient, first, second = matrix(dtype, device, size, tensors=4)
    return weight, gradient, first, second.square().add_(1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (COLUMNS,), weight, bias)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def adamw(weight: Tensor, gradient: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """A step of AdamW without its bias corrections, in place."""
    first.lerp_(gradient, 1 - FIRST)
    second.mul_(SECOND).addcmul_(gradient, gradient, value=1 - SECOND)
    weight.mul_(1 - STEP * DECAY).addcdiv_(first, second.sqrt() + EPSILON, value=-STEP)
    return weight


KERNELS: Mapping[str, BandwidthKernel] = {
    "layer-norm": BandwidthKernel(layer_norm, normalized, 2),
    "add-layer-norm": BandwidthKernel(
        lambda x, y, weight, bias: layer_norm(x + y, weight, bias), partial(normalized, tensors=2), 3
    ),
    "rms-norm": BandwidthKernel(lambda x, weight, _: F.rms_norm(x, (COLUMNS,), weight), normalized, 2),
    "batch-norm": BandwidthKernel(lambda x: F.batch_norm(x, None, None, training=True), images, 3),
    "softmax": BandwidthKernel(lambda x: F.softmax(x, -1), matrix, 2),
    "softmax-vocabulary": BandwidthKernel(lambda x: F.softmax(x, -1), partial(matrix, columns=VOCABULARY), 2),
    "cross-entropy": BandwidthKernel(F.cross_entropy, scores, 1),
    "gelu": BandwidthKernel(lambda x, bias, _: F.gelu(x + bias), normalized, 2),
    "swiglu": BandwidthKernel(lambda x, y: F.silu(x) * y, partial(matrix, tensors=2), 3),
    "dropout": BandwidthKernel(lambda x: F.dropout(x, 0.1), matrix, 2, random=True),
    "rotary": BandwidthKernel(rotate, rotated, 2),
    "transpose": BandwidthKernel(lambda x: x.t().contiguous(), square, 2),
    "transpose-heads": BandwidthKernel(lambda x: x.transpose(1, 2).contiguous(), heads, 2),
    "channels-last": BandwidthKernel(lambda x: x.contiguous(memory_format=torch.channels_last), images, 2),
    "column-sum": BandwidthKernel(lambda x: x.sum(0), matrix, 1),
    "layer-norm-training": BandwidthKernel(layer_norm, normalized, 5, trained=True),
    "softmax-training": BandwidthKernel(lambda x: F.softmax(x, -1), matrix, 5, trained=True),
    "cross-entropy-training": BandwidthKernel(F.cross_entropy, scores, 3, trained=True),
    "adamw": BandwidthKernel(adamw, moments, 7),
}
