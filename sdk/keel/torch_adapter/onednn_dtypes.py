"""The dtypes in which oneDNN computes on this processor."""

from __future__ import annotations

import torch


def has_onednn(dtype: torch.dtype, *functions: str) -> bool:
    """True if oneDNN computes in ``dtype`` on this processor, this PyTorch has ``functions`` of ``torch.ops.mkldnn``,
    and the user has not switched oneDNN off.
    """
    onednn = torch.ops.mkldnn
    if not torch._C._get_mkldnn_enabled() or not all(hasattr(onednn, name) for name in functions):
        return False
    match dtype:
        case torch.float32:
            return True
        case torch.bfloat16:
            return bool(onednn._is_mkldnn_bf16_supported())
        case torch.float16:
            return bool(onednn._is_mkldnn_fp16_supported())
    return False
