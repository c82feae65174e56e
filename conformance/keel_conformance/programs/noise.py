"""Monte Carlo arithmetic: within ``Noise`` the results of operators are disturbed as rounding would disturb them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from keel_conformance.trees import tensors

LAPPED = 4.0
"""Roundings counted for each result: an operator that a backend writes out has about that many in a row."""


class Noise(TorchFunctionMode):
    """Multiplies each new float64 result by 1 + LAPPED * unit * r, and the floating arguments of what sums by as much,
    r uniform in [-1, 1], elementwise, from a generator of its own.

    The factor is part of the graph that is differentiated, so gradients are disturbed on their way back as well. A
    perturbation of the arguments of a sum by k u stands for the rounding of its partial sums: the error of any order of
    n terms is at most (n - 1) u sum|x|, and of the size of sqrt(n) u sum|x| (Higham and Mary, 2019); disturbing each
    term alone gives sqrt(sum x^2) k u, so the result gets sqrt(n) u times the sum of magnitudes where it is cheap.
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
        self.inside = True
        try:
            name = (resolve_name(func) or getattr(func, "__name__", "")).rpartition(".")[2]
            found = func(*self.near(name, args), **kwargs)
            if name == "gelu" and found.dtype == torch.float64:    # x (1 + erf) / 2 cancels: it is off by u |x|
                return found + self.scaled(args[0]).sub(args[0]).detach()
            if isinstance(found, Tensor):
                return self.disturbed(found, args)
            if isinstance(found, tuple) and type(found) is tuple:
                return tuple(self.disturbed(x, args) if isinstance(x, Tensor) else x for x in found)
            return found
        finally:
            self.inside = False

    def near(self, name: str, args: Any) -> Any:
        """The arguments of a sum, disturbed; but those that it writes to, which would be left as they are."""
        if name not in SUMS:
            return args
        read = 1 if name in WRITING else len(args)
        return (*(self.scaled(a) if isinstance(a, Tensor) and a.dtype == torch.float64 else a for a in args[:read]),
                *args[read:])

    def disturbed(self, found: Tensor, args: Any) -> Tensor:
        memory = {a.untyped_storage().data_ptr() for a in tensors(args)}
        if found.dtype != torch.float64 or not found.numel() or (found.is_leaf and found.requires_grad) or (
                found.untyped_storage().data_ptr() in memory):
            return found                                      # a parameter, a view, or what was written in place
        return self.scaled(found)

    def scaled(self, x: Tensor) -> Tensor:
        if not x.numel():
            return x
        noise = torch.rand(x.shape, generator=self.draw, dtype=torch.float64)
        return x * (1 + LAPPED * self.unit * (2 * noise - 1))


SUMS = frozenset((
    "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "linear", "conv1d", "conv2d", "conv3d", "sum", "mean",
    "layer_norm", "batch_norm", "group_norm", "instance_norm", "softmax", "log_softmax", "cross_entropy",
    "scaled_dot_product_attention", "cumsum", "var", "einsum", "baddbmm", "logsumexp", "square",
))
WRITING = frozenset(("batch_norm", "instance_norm"))
"""Of these, what update the running statistics that come after their first argument."""
