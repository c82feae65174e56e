"""Resampled images and volumes keep channels-last in a trace, as they do in eager.

PyTorch's dispatcher takes resampling apart before any graph has it, so that no promise of its own is left to correct;
what it makes of it is row-major on CUDA for few channels (4 by the nearest element, 16 by lines) and, in PyTorch 2.11,
for volumes. Source: torch/_decomp/decompositions.py, and aten/src/ATen/native/UpSample*.cpp, whose results have the
operand's memory format whatever the kernels do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from keel.torch_adapter.meta_bugs.strides import channels_last

_NAMES = (
    "upsample_nearest2d",
    "_upsample_nearest_exact2d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact3d",
    "upsample_trilinear3d",
)
_PACKETS = [getattr(torch.ops.aten, name) for name in _NAMES]
_RESAMPLING: frozenset[Any] = frozenset(
    (
        F.interpolate,
        F.upsample,
        F.upsample_nearest,
        F.upsample_bilinear,
        *(getattr(torch._C._nn, name) for name in _NAMES),
        *(op for packet in _PACKETS for op in (packet, packet.default, packet.vec)),
    )
)
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


class _Resampled(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func not in _RESAMPLING or "area" in (kwargs.get("mode"), *args[3:4]):  # which pools
            return result
        x = args[0] if args else kwargs["self" if "self" in kwargs else "input"]
        return result.to(memory_format=_FORMATS[x.dim()]) if channels_last(x) else result


def resampled(gm: fx.GraphModule) -> AbstractContextManager[Any]:
    """A context to trace ``gm`` in; one that costs nothing where nothing is resampled."""
    graphs = [m.graph for m in gm.modules() if isinstance(m, fx.GraphModule)]
    has_resampling = any(g.find_nodes(op="call_function", target=t) for g in graphs for t in _RESAMPLING)
    return _Resampled() if has_resampling else nullcontext()
