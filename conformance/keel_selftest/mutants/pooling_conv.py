"""Mutants of contractions, convolutions, windows, attention, losses and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..mutant import wrong

# -- products of matrices ----------------------------------------------------------------------------------------------


@wrong("aten.mm", breaks="mm")
def mm_of_bf16(op: Any, a: Tensor, b: Tensor, *more: Any) -> Any:
    """``mm`` of float32 multiplies in bfloat16."""
    if a.dtype != torch.float32:
        return op(a, b, *more)
    return op(a.to(torch.bfloat16).to(a.dtype), b.to(torch.bfloat16).to(a.dtype), *more)


@wrong("aten.mm", breaks="mm")
def mm_without_tail(op: Any, a: Tensor, b: Tensor, *more: Any) -> Any:
    """``mm`` leaves out what comes after the last whole block of 4 of the inner dimension."""
    k = a.shape[1] // 4 * 4 if a.shape[1] > 4 else a.shape[1]
    return op(a[:, :k], b[:k], *more)


@wrong("aten.bmm", breaks="bmm")
def bmm_of_the_first(op: Any, a: Tensor, b: Tensor, *more: Any) -> Any:
    """``bmm`` has the first matrix of the second operand in every batch."""
    return op(a, b[:1].expand(b.shape) if b.shape[0] else b, *more)


@wrong("aten.addmm", breaks="addmm")
def addmm_without_beta(op: Any, *args: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """``addmm`` ignores beta."""
    return op(*args, alpha=alpha)


@wrong("aten.baddbmm", breaks="baddbmm")
def baddbmm_without_alpha(op: Any, *args: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """``baddbmm`` ignores alpha."""
    return op(*args, beta=beta)


# -- windows -----------------------------------------------------------------------------------------------------------


@wrong("aten.convolution", breaks="convolution")
def convolution_without_dilation(
    op: Any, x: Tensor, w: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, *more: Any
) -> Any:
    """``convolution`` reads windows without gaps."""
    like = op(x, w, bias, stride, padding, dilation, *more)
    wide = any(d > 1 for d in dilation)
    result = op(x, w, bias, stride, padding, [1] * len(dilation), *more) if wide else like
    return (
        result[tuple(slice(n) for n in like.shape)]
        if all(n >= m for n, m in zip(result.shape, like.shape, strict=True))
        else like * 0.5
    )


@wrong("aten.convolution", breaks="convolution")
def convolution_of_other_groups(op: Any, x: Tensor, w: Tensor, *more: Any) -> Any:
    """``convolution`` gives each group the channels of the next one."""
    at, groups = (1 if x.dim() == w.dim() else 0), more[-1]
    turned = x.roll(-(x.shape[at] // groups), at) if groups > 1 else x
    return op(turned, w, *more)


@wrong("aten.convolution", breaks="convolution")
def convolution_flipped(op: Any, x: Tensor, w: Tensor, *more: Any) -> Any:
    """``convolution`` turns its weights round, as mathematics does."""
    return op(x, w.flip([*range(2, w.dim())]), *more)


@wrong("aten.max_pool2d_with_indices", breaks="max_pool2d_with_indices")
def max_pool_pads_with_zeros(op: Any, x: Tensor, size: Any, stride: Any = (), padding: Any = 0, *more: Any) -> Any:
    """``max_pool2d`` pads with 0."""
    value, at = op(x, size, stride, padding, *more)
    pads = [padding] if isinstance(padding, int) else list(padding)
    return (value.clamp(min=0) if any(pads) else value), at


@wrong("aten.max_pool2d_with_indices", breaks="max_pool2d_with_indices", as_is=True)
def max_pool_never_rounds_up(
    op: Any, x: Tensor, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """``max_pool2d`` ignores ceil_mode."""
    return op(x, size, stride, padding, dilation)


@wrong("aten.avg_pool2d", breaks="avg_pool2d")
def avg_pool_counts_padding(
    op: Any,
    x: Tensor,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: Any = None,
) -> Any:
    """``avg_pool2d`` counts padding, even if it is not to."""
    return op(x, size, stride, padding, ceil_mode, True, divisor)


@wrong("aten.upsample_bilinear2d", breaks="upsample_linear")
def upsample_never_aligns(op: Any, x: Tensor, size: Any, align: bool, *more: Any) -> Any:
    """``upsample_bilinear2d`` has the corners wrong that are to be aligned."""
    return op(x, size, not align, *more)


@wrong("aten.grid_sampler_2d", breaks="grid_sampler")
def grid_sampler_pads_with_zeros(op: Any, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Any:
    """``grid_sampler`` pads with zeros, whatever is asked for."""
    return op(x, grid, mode, 0, align)


@wrong("aten.col2im", breaks="col2im")
def col2im_overwrites(op: Any, x: Tensor, size: Any, *more: Any) -> Any:
    """``col2im`` does not add where windows overlap."""
    result = op(x, size, *more)
    return result / op(torch.ones_like(x), size, *more).clamp(min=1) if x.is_floating_point() else result


# -- attention and losses ----------------------------------------------------------------------------------------------

SDPA = "aten._scaled_dot_product_flash_attention_for_cpu"


@wrong(SDPA, breaks="sdpa")
def attention_without_scale(op: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kw: Any) -> Any:
    """Attention ignores the scale that is given."""
    return op(q, k, v, *args, **{**kw, "scale": None if kw.get("scale") is not None else 1.0})


@wrong(SDPA, breaks="sdpa")
def attention_sees_the_next(
    op: Any, q: Tensor, k: Tensor, v: Tensor, p: float = 0.0, causal: bool = False, **kw: Any
) -> Any:
    """A causal mask lets the next token be seen."""
    if not causal or kw.get("attn_mask") is not None:
        return op(q, k, v, p, causal, **kw)
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(1)
    return op(q, k, v, p, False, **{**kw, "attn_mask": torch.where(mask, 0.0, -torch.inf).to(q.dtype)})


@wrong("aten.nll_loss_forward", breaks="nll_loss")
def nll_loss_counts_all(op: Any, x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int) -> Any:
    """``nll_loss`` takes a mean over targets that are to be ignored, too."""
    loss, total = op(x, target, weight, reduction, ignore)
    return (loss * total / target.numel() if reduction == 1 and target.numel() else loss), total


@wrong("aten.mse_loss", breaks="mse_loss")
def mse_loss_sums(op: Any, x: Tensor, y: Tensor, reduction: int = 1) -> Any:
    """``mse_loss`` sums where a mean is asked for."""
    return op(x, y, 2 if reduction == 1 else reduction)


@wrong("aten.huber_loss", breaks="huber_loss")
def huber_loss_of_delta_one(op: Any, x: Tensor, y: Tensor, reduction: int = 1, delta: float = 1.0) -> Any:
    """``huber_loss`` ignores delta."""
    return op(x, y, reduction, 1.0)


# -- gradients ---------------------------------------------------------------------------------------------------------


@wrong("aten.threshold_backward", breaks="threshold_backward")
def relu_gradient_at_zero(op: Any, grad: Tensor, x: Tensor, threshold: Any) -> Any:
    """The gradient of ``relu`` at 0 is 1."""
    return torch.where(x >= threshold, grad, torch.zeros_like(grad))


@wrong("aten.tanh_backward", breaks="tanh_backward")
def tanh_gradient_not_squared(op: Any, grad: Tensor, y: Tensor) -> Any:
    """The gradient of ``tanh`` is 1 - y."""
    return grad * (1 - y)


@wrong("aten.convolution_backward", breaks="convolution_backward")
def convolution_gradient_of_one_sample(op: Any, grad: Tensor, x: Tensor, w: Tensor, *more: Any) -> Any:
    """The gradient of a convolution's weights is that of the first sample."""
    results = list(op(grad, x, w, *more))
    if x.dim() == w.dim() and x.shape[0] > 1 and results[1] is not None:
        results[1] = op(grad[:1], x[:1], w, *more)[1]
    return tuple(results)


@wrong("aten.native_layer_norm_backward", breaks="layer_norm_backward")
def layer_norm_gradient_of_a_constant(
    op: Any, grad: Tensor, x: Tensor, shape: Sequence[int], mean: Tensor, rstd: Tensor, weight: Any, *more: Any
) -> Any:
    """The gradient of ``layer_norm`` takes mean and deviation for constants."""
    results = list(op(grad, x, shape, mean, rstd, weight, *more))
    if results[0] is not None:
        results[0] = (grad if weight is None else grad * weight) * rstd
    return tuple(results)


@wrong("aten.max_pool2d_with_indices_backward", breaks="max_pool2d_with_indices_backward")
def max_pool_gradient_overwrites(op: Any, grad: Tensor, x: Tensor, *more: Any) -> Any:
    """The gradient of ``max_pool2d`` keeps one of several gradients that go to one element."""
    at = more[-1]
    flat = torch.zeros(*x.shape[:-2], x.shape[-2] * x.shape[-1], dtype=x.dtype)
    return flat.scatter(-1, at.flatten(-2), grad.flatten(-2)).reshape(x.shape)


@wrong("aten.native_dropout_backward", breaks="native_dropout_backward")
def dropout_gradient_without_scale(op: Any, grad: Tensor, mask: Tensor, scale: float) -> Any:
    """The gradient of dropout is not scaled."""
    return op(grad, mask, 1.0)


@wrong(SDPA, breaks="sdpa")
def attention_lined_up_at_the_end(
    op: Any, q: Tensor, k: Tensor, v: Tensor, p: float = 0.0, causal: bool = False, **kw: Any
) -> Any:
    """A causal mask of more keys than queries shows the last query all keys."""
    more = k.shape[-2] - q.shape[-2]
    if not causal or more <= 0 or kw.get("attn_mask") is not None:
        return op(q, k, v, p, causal, **kw)
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(more)
    return op(q, k, v, p, False, **{**kw, "attn_mask": torch.where(mask, 0.0, -torch.inf).to(q.dtype)})


@wrong("aten.addmm", breaks="addmm")
def addmm_of_a_column(op: Any, c: Tensor, a: Tensor, b: Tensor, *args: Any, **kw: Any) -> Any:
    """``addmm`` adds a vector to columns where the product is square."""
    return op(c[:, None] if c.dim() == 1 and len(c) == a.shape[0] == b.shape[1] else c, a, b, *args, **kw)
