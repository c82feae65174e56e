"""Monte Carlo arithmetic: within ``Noise`` the results of operators are disturbed as rounding would disturb them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from ..pytree import tensor_leaves

LAPPED = 4.0
"""Roundings counted for each result: an operator that a backend writes out has about that many in a row."""


class Noise(TorchFunctionMode):
    """Multiplies each new float64 result by 1 + LAPPED * unit * r, and the floating arguments of what sums by as much,
    r uniform in [-1, 1], elementwise, from a generator of its own.

    The factor is part of the graph that is differentiated, so gradients are disturbed on their way back as well. A
    perturbation of the arguments of a sum by k u stands for the rounding of its partial sums: the error of any order of
    n terms is at most (n - 1) u sum|x|, and of the size of sqrt(n) u sum|x| (Higham and Mary, 2019); disturbing each
    term alone gives sqrt(sum x^2) k u, which with the bound's own factor is enough for sums as long as programs have.
    What cancels within one operator's gradient would be exact in float64, so such operators are ``WRITTEN_OUT``.
    """

    def __init__(self, seed: int, unit: float):
        super().__init__()
        self.draw = torch.Generator().manual_seed(seed)
        self.unit = unit
        self.inside = False

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.inside:
            return func(*args, **kwargs)
        name = (resolve_name(func) or getattr(func, "__name__", "")).rpartition(".")[2]
        if name in WRITTEN_OUT and args and isinstance(args[0], Tensor) and args[0].dtype == torch.float64:
            with self:
                result = WRITTEN_OUT[name](*args, **kwargs)
            if result is not None:
                return result
        self.inside = True
        try:
            result = func(*self.near(name, args), **kwargs)
            if name in CANCELING and result.dtype == torch.float64:
                return result + CANCELING[name](self, *args)
            if isinstance(result, Tensor):
                return self.disturbed(result, args)
            if isinstance(result, tuple) and type(result) is tuple:
                return tuple(self.disturbed(x, args) if isinstance(x, Tensor) else x for x in result)
            return result
        finally:
            self.inside = False

    def near(self, name: str, args: Any) -> Any:
        """The arguments of a sum, disturbed; but those that it writes to, which would be left as they are."""
        if name not in SUMS:
            return args
        read = 1 if name in WRITING else len(args)
        return (
            *(self.scaled(a) if isinstance(a, Tensor) and a.dtype == torch.float64 else a for a in args[:read]),
            *args[read:],
        )

    def disturbed(self, result: Tensor, args: Any) -> Tensor:
        memory = {a.untyped_storage().data_ptr() for a in tensor_leaves(args)}
        if (
            result.dtype != torch.float64
            or not result.numel()
            or (result.is_leaf and result.requires_grad)
            or (result.untyped_storage().data_ptr() in memory)
        ):
            return result  # a parameter, a view, or what was written in place
        return self.scaled(result)

    def scaled(self, x: Tensor) -> Tensor:
        if not x.numel():
            return x
        noise = torch.rand(x.shape, generator=self.draw, dtype=torch.float64)
        return x * (1 + LAPPED * self.unit * (2 * noise - 1))


SUMS = frozenset(
    (
        "matmul",
        "__matmul__",
        "__rmatmul__",
        "mm",
        "bmm",
        "addmm",
        "linear",
        "conv1d",
        "conv2d",
        "conv3d",
        "sum",
        "mean",
        "layer_norm",
        "batch_norm",
        "group_norm",
        "instance_norm",
        "softmax",
        "log_softmax",
        "cross_entropy",
        "scaled_dot_product_attention",
        "cumsum",
        "var",
        "einsum",
        "baddbmm",
        "logsumexp",
        "square",
    )
)
WRITING = frozenset(("batch_norm", "instance_norm"))
"""Of these, what update the running statistics that come after their first argument."""


def softmax(
    x: Tensor, dim: int | None = None, *other: Any, dtype: torch.dtype | None = None, **more: Any
) -> Tensor | None:
    """None where a parameter asks for what is not written out here."""
    if dim is None or other or (dtype or x.dtype) != x.dtype:
        return None
    e, total = _powers(x, dim)
    return e * spread(1 / total, e)


def _powers(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """e to the distance from the largest element, and their sum."""
    largest = x.detach().amax(dim, keepdim=True)
    e = (x - largest.masked_fill(largest.isinf(), 0.0)).exp()
    return e, e.sum(dim, keepdim=True)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """None where a parameter asks for what is not written out here.  It divides last, as kernels do that keep no
    weights: then the sum in the softmax's slope comes from the result.
    """
    if dropout_p or enable_gqa:
        return None
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    e, total = _powers(scores, -1)
    result = e @ value
    return result * spread(1 / total.masked_fill(total == 0, 1.0), result)  # where all is masked, 0


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """None without a bias."""
    if bias is None:
        return None
    result = torch.nn.functional.linear(x, weight)
    return result + spread(bias, result)


def spread(x: Tensor, over: Tensor) -> Tensor:
    """``x`` at each place of what it broadcasts to, so that each term of its slope, a sum over these, is off."""
    return x * torch.ones_like(over)


def gelu_error(noise: Noise, x: Tensor, *rest: Any) -> Tensor:
    """x (1 + erf) / 2 cancels: it is off by u |x|."""
    return noise.scaled(x).sub(x).detach()


CANCELING: Mapping[str, Callable[..., Tensor]] = {"gelu": gelu_error}
"""The errors of operators that cancel within: more than a rounding of the result."""
WRITTEN_OUT: Mapping[str, Callable[..., Tensor | None]] = {
    "softmax": softmax,
    "scaled_dot_product_attention": attention,
    "linear": linear,
}
"""Operators whose slopes sum up what may cancel.  That of a softmax is p (g - sum(p g)): it sums up to 0 over what the
softmax is over, and so does that of a bias of attention's keys, which is all rounding."""
