"""libdevice for Triton's interpreter, which has none: the same functions by PyTorch on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

_UNARY: dict[str, Callable[..., torch.Tensor]] = {
    name: getattr(torch, name)
    for name in (
        "exp",
        "exp2",
        "expm1",
        "rsqrt",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "erfc",
        "erfinv",
        "lgamma",
        "trunc",
    )
}
_BINARY: dict[str, Callable[..., torch.Tensor]] = {
    name: getattr(torch, name) for name in ("pow", "atan2", "copysign", "nextafter", "fmod")
}


def _lifted(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        data = [torch.from_numpy(np.ascontiguousarray(a.handle.data)) for a in args]
        out = function(*data).numpy()
        dtype = args[0].dtype
        shapes = [a.shape for a in args if a.shape]
        kind = tl.block_type(dtype, list(out.shape)) if shapes else dtype
        return tl.core.tensor(TensorHandle(out, dtype), kind)

    return call


libdevice = SimpleNamespace(**{name: _lifted(f) for name, f in {**_UNARY, **_BINARY, "nearbyint": torch.round}.items()})
