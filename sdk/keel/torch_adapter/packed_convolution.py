"""oneDNN's convolutions with a weight that was packed before, and with operators that are applied on the way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from keel.torch_adapter.onednn_dtypes import has_onednn


def packs_dtype(dtype: torch.dtype) -> bool:
    """True if oneDNN has packed convolutions of ``dtype`` here (see ``has_onednn``)."""
    return has_onednn(dtype, "_convolution_pointwise", "_reorder_convolution_weight")


def pack_convolution(weight: torch.Tensor, image: Sequence[int], rest: Sequence[Any]) -> torch.Tensor:
    """Returns the weight in the layout that is fastest for images of the sizes ``image``.

    ``rest`` are the arguments of ``aten.convolution`` behind the bias. oneDNN may return a tensor of a layout of its
    own, which only ``packed_convolution`` takes.
    """
    stride, padding, dilation, groups = _sizes(rest)
    weight = weight.contiguous(memory_format=torch.channels_last)
    packed: torch.Tensor = torch.ops.mkldnn._reorder_convolution_weight(
        weight, padding, stride, dilation, groups, list(image)
    )
    return packed


def packed_convolution(
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rest: Sequence[Any],
    other: torch.Tensor | None,
    then: str | None,
) -> torch.Tensor:
    """The convolution plus ``other``, or the operator of the name ``then`` of it, or the convolution alone."""
    stride, padding, dilation, groups = _sizes(rest)
    run = torch.ops.mkldnn._convolution_pointwise
    where = (padding, stride, dilation, groups)
    result: torch.Tensor
    if other is None:
        result = run.default(image, weight, bias, *where, then or "none", [], "")
    else:
        result = run.binary(image, other, weight, bias, *where, "add", 1.0, None, [], None)
    return result


def _sizes(rest: Sequence[Any]) -> tuple[list[int], list[int], list[int], int]:
    stride, padding, dilation, _, _, groups = rest
    return _two(stride), _two(padding), _two(dilation), groups


def _two(sizes: Sequence[int]) -> list[int]:
    return [*sizes] * (1 if len(sizes) == 2 else 2)
