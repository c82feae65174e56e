"""PyTorch's own kernels as externs: what a loop target on a device that PyTorch knows need not bring itself.

Contraction, convolution, attention, sorting, scatters with collisions, random numbers. Where ATen has an out kernel
that writes in place (rather than one that computes and copies), it is used, so results go straight into planned
memory.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from keel.plugin import Extern, Refusal
from keel.types import Call

aten = torch.ops.aten

_FILLING: Mapping[str, Callable[..., Any]] = {
    "aten.mm.default": aten.mm.out,
    "aten.bmm.default": aten.bmm.out,
    "aten.addmm.default": aten.addmm.out,
    "aten.baddbmm.default": aten.baddbmm.out,
    "aten.addmv.default": aten.addmv.out,
    "aten.mv.default": aten.mv.out,
    "aten.dot.default": aten.dot.out,
}
"""Overloads whose out form fills the tensor it is given, by their functional form."""

_FRESH = (
    "aten.convolution.default", "aten.convolution_backward.default",
    "aten.max_pool2d_with_indices_backward.default", "aten.avg_pool2d_backward.default",
    "aten.max_pool3d_with_indices.default", "aten.max_pool3d_with_indices_backward.default",
    "aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool2d.default",
    "aten.upsample_bilinear2d.vec", "aten.upsample_bilinear2d_backward.vec",
    "aten.upsample_bicubic2d.vec", "aten.upsample_bicubic2d_backward.vec",
    "aten.grid_sampler_2d.default", "aten.grid_sampler_2d_backward.default",
    "aten.im2col.default", "aten.col2im.default",
    "aten.sort.default", "aten.sort.stable", "aten.topk.default", "aten.kthvalue.default", "aten.median.dim",
    "aten.embedding_dense_backward.default", "aten.index_put.default", "aten._unsafe_index_put.default",
    "aten.index_add.default", "aten.scatter_add.default", "aten.scatter_reduce.two",
    "aten.cumprod.default", "aten.logcumsumexp.default", "aten.cummax.default", "aten.cummin.default",
    "aten._cdist_forward.default", "aten.searchsorted.Tensor", "aten.bucketize.Tensor", "aten.nonzero.default",
    "aten.rand.default", "aten.randn.default", "aten.randint.default", "aten.randint.low", "aten.randperm.default",
    "aten.rand_like.default", "aten.randn_like.default", "aten.bernoulli.default", "aten.bernoulli.p",
    "aten.multinomial.default", "aten.uniform.default", "aten.normal_functional.default",
    "aten._fft_c2c.default", "aten._fft_r2c.default", "aten._fft_c2r.default",
    "aten.linalg_vector_norm.default", "aten.cholesky.default", "aten.triangular_solve.default",
)
"""Overloads that give fresh tensors, on every device."""

_ATTENTION: Mapping[str, tuple[str, ...]] = {
    "cpu": ("aten._scaled_dot_product_flash_attention_for_cpu.default",
            "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"),
    "cuda": ("aten._scaled_dot_product_flash_attention.default",
             "aten._scaled_dot_product_flash_attention_backward.default",
             "aten._scaled_dot_product_efficient_attention.default",
             "aten._scaled_dot_product_efficient_attention_backward.default",
             "aten._scaled_dot_product_cudnn_attention.default",
             "aten._scaled_dot_product_cudnn_attention_backward.default"),
}


def aten_externs(device: str) -> Mapping[str, Extern]:
    """PyTorch's kernels for a device type (``cpu``, ``cuda``), by overload name, as ``LoopTarget.externs`` takes them.
    """
    known = {name: Extern(run=_overload(name), out=out) for name, out in _FILLING.items()}
    for name in (*_FRESH, *_ATTENTION.get(device, ())):
        if (run := _overload(name)) is not None:
            known[name] = Extern(run=run, refuse=_REFUSE.get(name))
    return known


def _overload(name: str) -> Any:
    """The overload of that name; None if this PyTorch has none."""
    _, packet, overload = name.split(".")
    return getattr(getattr(aten, packet, None), overload, None)


def _not_whole(call: Call) -> Refusal | None:
    """An adaptive pool whose windows are all alike is an ordinary one, which fuses."""
    size, out = call.tensors[0].shape, call.args[1]
    windows = list(zip(size[-2:], out, strict=True))
    if all(isinstance(n, int) and isinstance(k, int) and k and n % k == 0 for n, k in windows):
        return Refusal(f"{call.name} with equal windows is an ordinary average, which has loops.")
    return None


_REFUSE: Mapping[str, Callable[[Call], Refusal | None]] = {"aten._adaptive_avg_pool2d.default": _not_whole}
