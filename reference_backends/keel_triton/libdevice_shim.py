"""Replaces libdevice in Triton's interpreter, which lacks it, by PyTorch's functions on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle


def _lifted(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        data = [torch.from_numpy(np.ascontiguousarray(a.handle.data)) for a in args]
        out = function(*data).numpy()
        dtype = args[0].dtype
        shapes = [a.shape for a in args if a.shape]
        kind = tl.block_type(dtype, list(out.shape)) if shapes else dtype
        return tl.core.tensor(TensorHandle(out, dtype), kind)

    return call


class _Libdevice:
    """PyTorch has libdevice's functions under the same names, with one exception."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _lifted(getattr(torch, "round" if name == "nearbyint" else name))


libdevice = _Libdevice()
