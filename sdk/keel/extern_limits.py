"""What of PyTorch's kernels on a device is not as the operator set has it: calls they cannot do, or do with less.

Read from PyTorch's sources (``aten/src/ATen/native/cuda``), and seen when the conformance suite ran on one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from keel.plugin import Refusal
from keel.spec import MEMBERS, bind
from keel.types import Call, TensorType

HALVES = (torch.float16, torch.bfloat16)
Limit = Callable[[Call], Refusal | None]
"""Why a kernel is not for a call; None if it is."""


def in_float32(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with halves as float32: for a kernel that keeps its partial sums in the dtype it is given. Each result is
    rounded once.
    """

    def wide(*args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        floats = [a.dtype for a in args if isinstance(a, Tensor) and a.is_floating_point()]
        to = dtype if dtype is not None or not floats else floats[0]
        if to not in HALVES:
            return run(*args, **kwargs) if dtype is None else run(*args, dtype=dtype, **kwargs)

        def widened(a: Any) -> Any:
            mine = isinstance(a, Tensor) and (dtype is not None or a.is_floating_point())
            return a.to(to).float() if mine else a

        def rounded(a: Any) -> Any:
            return a.to(to) if isinstance(a, Tensor) and a.dtype == torch.float32 else a

        found = run(*map(widened, args), **kwargs)
        return tuple(map(rounded, found)) if isinstance(found, tuple) else rounded(found)

    return wide


def without_padding(run: Callable[..., Any]) -> Callable[..., Any]:
    """A bag's ``run`` for a kernel that multiplies the rows that it leaves out, as zeros, by their weights."""

    def settled(
        weight: Tensor,
        indices: Tensor,
        offsets: Tensor,
        scale_grad_by_freq: bool = False,
        mode: int = 0,
        sparse: bool = False,
        per_sample_weights: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int = -1,
    ) -> Any:
        if per_sample_weights is not None and padding_idx >= 0:
            per_sample_weights = per_sample_weights.masked_fill(indices == padding_idx, 0)
        return run(
            weight,
            indices,
            offsets,
            scale_grad_by_freq,
            mode,
            sparse,
            per_sample_weights,
            include_last_offset,
            padding_idx,
        )

    return settled


def _dtype(call: Call) -> torch.dtype | None:
    return next((t.dtype for t in call.out if isinstance(t, TensorType)), None)


def _lacks(*dtypes: torch.dtype) -> Limit:
    def limit(call: Call) -> Refusal | None:
        dtype = _dtype(call)
        return Refusal(f"PyTorch's CUDA kernel has no {dtype}.") if dtype in dtypes else None

    return limit


def _does_otherwise(how: str) -> Limit:
    return lambda call: Refusal(f"PyTorch's CUDA kernel {how}.")


_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_no_integers, _no_halves = _lacks(*_WHOLE), _lacks(*HALVES)
_any_index = _does_otherwise("names another of several equal elements at every call")


def _int_mm(call: Call) -> Refusal | None:
    (rows, shared), (_, columns) = (t.shape for t in call.tensors[:2])
    multiples = all(n and n % 8 == 0 for n in (shared, columns) if isinstance(n, int))
    fits = multiples and not (isinstance(rows, int) and rows <= 16)
    return None if fits else Refusal("cuBLAS multiplies int8 of more than 16 rows, by multiples of 8, alone.")


def _scaled_mm(call: Call) -> Refusal | None:
    if all(t.dtype == torch.float8_e5m2 for t in call.tensors[:2]):
        return Refusal("cuBLAS multiplies no two float8_e5m2.")
    biased = bind(call).get("bias") is not None and _dtype(call) == torch.float32
    return Refusal("cuBLAS adds no bias to a product of float32.") if biased else None


def _topk(call: Call) -> Refusal | None:
    none = not call.tensors[0].rank and bind(call)["k"] == 0
    return Refusal("PyTorch's CUDA kernel writes nothing where no element of a scalar is asked for.") if none else None


LIMITS: Mapping[str, Mapping[str, Limit]] = {
    "cuda": {
        **{
            name: _no_integers
            for op in MEMBERS.values()
            if op.blas
            for name in op.overloads
            if name.endswith(".default")
        },
        "aten._int_mm.default": _int_mm,
        "aten._scaled_mm.default": _scaled_mm,
        "aten.histc.default": _no_halves,
        "aten.topk.default": _topk,
        "aten.embedding_dense_backward.default": _lacks(*_WHOLE, torch.complex64, torch.complex128),
        **dict.fromkeys(
            (
                "aten.scatter.reduce",
                "aten.scatter.value_reduce",
                "aten.index_reduce.default",
                "aten.scatter_reduce.two",
            ),
            _lacks(torch.bool, torch.complex64, torch.complex128),
        ),
        "aten._unique2.default": _lacks(torch.bool),
        "aten.logcumsumexp.default": _lacks(torch.complex64, torch.complex128),
        **dict.fromkeys(("aten.median.dim", "aten.nanmedian.dim", "aten.kthvalue.default"), _any_index),
        "aten.mode.default": _does_otherwise("takes any of several values that are as frequent, and not the least"),
    }
}
"""By device type and overload."""

_NARROW = (
    "aten.cumsum.default",
    "aten.cumprod.default",
    "aten.logcumsumexp.default",
    "aten.upsample_linear1d_backward.default",
    "aten.upsample_bilinear2d_backward.default",
    "aten.upsample_trilinear3d_backward.default",
    "aten.upsample_bicubic2d_backward.default",
    "aten.adaptive_max_pool2d_backward.default",
    "aten.adaptive_max_pool3d_backward.default",
    "aten.max_pool3d_with_indices_backward.default",
    "aten.grid_sampler_2d_backward.default",
    "aten.grid_sampler_3d_backward.default",
)
CHANGED: Mapping[str, Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "cuda": {
        **dict.fromkeys(_NARROW, in_float32),
        **dict.fromkeys(("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default"), without_padding),
    }
}
"""By device type and overload, what makes a kernel what the operator set has.  ``_NARROW`` are those that keep partial
sums of halves in halves.
"""
