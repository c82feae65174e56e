"""PyTorch's own kernels as externs: a loop target on a device that PyTorch supports gets these kernels for free.

Contraction, convolution, attention, sorting, scatters with collisions, random numbers.  Where ATen has an out kernel
that writes in place (rather than one that computes and copies), it is used, so results go straight into planned memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from keel.extern_limits import CHANGED, LIMITS
from keel.loops.lower import lower
from keel.plugin import Extern, Refusal
from keel.spec import MEMBERS, Op
from keel.torch_adapter import may_alias
from keel.types import DTYPE_NAMES, Call, TensorType

aten = torch.ops.aten

_FRESH = (
    # convolution and its like
    "aten.convolution.default",
    "aten.convolution_backward.default",
    "aten.im2col.default",
    "aten.col2im.default",
    "aten.max_pool2d_with_indices_backward.default",
    "aten.max_pool3d_with_indices_backward.default",
    "aten.adaptive_max_pool2d_backward.default",
    "aten.adaptive_max_pool3d_backward.default",
    "aten.grid_sampler_2d.default",
    "aten.grid_sampler_2d_backward.default",
    "aten.grid_sampler_3d.default",
    "aten.grid_sampler_3d_backward.default",
    "aten.upsample_linear1d_backward.default",
    "aten.upsample_bilinear2d_backward.default",
    "aten.upsample_trilinear3d_backward.default",
    "aten.upsample_bicubic2d.default",
    "aten.upsample_bicubic2d_backward.default",
    # order
    "aten.sort.default",
    "aten.sort.stable",
    "aten.topk.default",
    "aten.kthvalue.default",
    "aten.median.default",
    "aten.median.dim",
    "aten.nanmedian.default",
    "aten.nanmedian.dim",
    "aten.mode.default",
    "aten.searchsorted.Tensor",
    "aten.searchsorted.Scalar",
    "aten.bucketize.Tensor",
    "aten.bucketize.Scalar",
    "aten.nonzero.default",
    "aten.histc.default",
    # sizes that only the run will tell: what they are made of would tell others
    "aten.masked_select.default",
    "aten.masked_scatter.default",
    "aten.bincount.default",
    "aten.repeat_interleave.Tensor",
    "aten._unique2.default",
    "aten._unique.default",
    "aten.unique_consecutive.default",
    "aten.unique_dim.default",
    "aten.unique_dim_consecutive.default",
    # scatters, whose collisions the library settles the same way every time
    "aten.embedding_dense_backward.default",
    "aten.index_put.default",
    "aten._unsafe_index_put.default",
    "aten.index_add.default",
    "aten.index_reduce.default",
    "aten.scatter.src",
    "aten.scatter.value",
    "aten.scatter.reduce",
    "aten.scatter.value_reduce",
    "aten.scatter_add.default",
    "aten.scatter_reduce.two",
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    # running folds that have no monoid
    "aten.logcumsumexp.default",
    "aten.cummax.default",
    "aten.cummin.default",
    # random numbers
    "aten.rand.default",
    "aten.rand.generator",
    "aten.randn.default",
    "aten.randn.generator",
    "aten.randint.default",
    "aten.randint.low",
    "aten.randperm.default",
    "aten.rand_like.default",
    "aten.randn_like.default",
    "aten.randint_like.default",
    "aten.randint_like.low_dtype",
    "aten.bernoulli.default",
    "aten.bernoulli.p",
    "aten.bernoulli.Tensor",
    "aten.multinomial.default",
    "aten.uniform.default",
    "aten.normal_functional.default",
    "aten.normal.Tensor_Tensor",
    "aten.normal.Tensor_float",
    "aten.normal.float_Tensor",
    "aten.exponential.default",
    "aten.poisson.default",
    # algebra
    "aten._int_mm.default",
    "aten._scaled_mm.default",
    "aten._cdist_forward.default",
    "aten._cdist_backward.default",
    "aten.linalg_vector_norm.default",
    "aten._fft_c2c.default",
    "aten._fft_r2c.default",
    "aten._fft_c2r.default",
    "aten.cholesky.default",
    "aten.linalg_cholesky_ex.default",
    "aten.triangular_solve.default",
    "aten.linalg_solve_triangular.default",
)
"""Overloads that give fresh tensors, on every device."""

_INSTEAD: Mapping[str, Callable[..., Any]] = {"aten._conj.default": aten._conj_physical.default}
"""The overloads to call instead of those that only return a marker for the work."""

_WITHOUT_LOOPS = (
    "aten.upsample_nearest1d_backward.default",
    "aten.upsample_nearest2d_backward.default",
    "aten.upsample_nearest3d_backward.default",
    "aten._upsample_nearest_exact1d_backward.default",
    "aten._upsample_nearest_exact2d_backward.default",
    "aten._upsample_nearest_exact3d_backward.default",
)
"""Overloads taken only where they have no loops."""

_BY_DEVICE: Mapping[str, tuple[str, ...]] = {
    "cpu": (
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
        "aten.mkldnn_rnn_layer.default",
        "aten.mkldnn_rnn_layer_backward.default",
    ),
    "cuda": (
        "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_flash_attention_backward.default",
        "aten._scaled_dot_product_efficient_attention.default",
        "aten._scaled_dot_product_efficient_attention_backward.default",
        "aten._scaled_dot_product_cudnn_attention.default",
        "aten._scaled_dot_product_cudnn_attention_backward.default",
        "aten._flash_attention_forward.default",
        "aten._flash_attention_backward.default",
        "aten._efficient_attention_forward.default",
        "aten._efficient_attention_backward.default",
        "aten.cumsum.default",
        "aten.cumprod.default",  # a scan in loops runs one row per thread
    ),
}


_RUNTIME = frozenset({"control", "collective", "host", "effect"})
"""Tags of primitives that no library has: they do not compute a tensor from tensors on one device."""


def aten_externs(device: str, dtypes: Collection[torch.dtype] = tuple(DTYPE_NAMES)) -> Mapping[str, Extern]:
    """PyTorch's kernels for a device type (``cpu``, ``cuda``), by overload name, as ``LoopTarget.externs`` takes them.

    Results, random ones too, are bitwise equal to eager's, except for halves on CUDA if its kernels keep partial sums
    in halves. Calls that these kernels cannot run, or run differently from the operator set, are refused with the
    reason. On a CPU every primitive of the operator set is covered: a primitive is lowered to loops if it has a
    lowering on ``dtypes``, those of the target, unless an extern is better."""
    known = {
        str(run): Extern(run=run, out=_overload(f"{str(run).removesuffix('.default')}.out"))
        for op in MEMBERS.values()
        if op.blas
        for run in op.targets
        if str(run).endswith(".default")
    }
    has_loops = partial(_has_loops, dtypes=frozenset(dtypes))
    rest = tuple(str(t) for op in MEMBERS.values() if _is_kernel(op) for t in op.targets) if device == "cpu" else ()
    for names, refuse in (((*_FRESH, *_BY_DEVICE.get(device, ())), None), ((*_WITHOUT_LOOPS, *rest), has_loops)):
        known = {
            name: Extern(run=run, refuse=refuse, view=bool(may_alias(run)))
            for name in names
            if (run := _overload(name)) is not None
        } | known
    known |= {name: Extern(run=run) for name, run in _INSTEAD.items()}
    known |= {
        name: replace(known[name], run=changed(known[name].run))
        for name, changed in CHANGED.get(device, {}).items()
        if name in known
    }
    return known | {
        name: replace(known[name], refuse=limit) for name, limit in LIMITS.get(device, {}).items() if name in known
    }


def _is_kernel(op: Op) -> bool:
    return op.kind == "primitive" and not op.tags & _RUNTIME


def _overload(name: str) -> Any:
    """The overload of that name; None if this PyTorch has none."""
    space, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, space), packet, None), overload, None)


def _has_loops(call: Call, dtypes: frozenset[torch.dtype]) -> Refusal | None:
    types = (*call.tensors, *(t for t in call.out if isinstance(t, TensorType)))
    if any(t.dtype not in dtypes for t in types) or isinstance(lower(call), str):
        return None
    return Refusal(f"{call.name} is lowered to loops here so that it can fuse; the extern is not used.")
