"""Lets torchvision be imported beside a build of torch that its compiled extension was not made for.

timm and transformers import torchvision; nothing here calls an operator of its extension.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import torch

# torchvision's Python part attaches fake kernels to these two operators while it is imported, extension or not.
SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


@cache
def allow_torchvision() -> bool:
    """True if torchvision's extension loads here; otherwise declares the operators its import needs, and is False.

    Call it before the first import of torchvision, timm or transformers. It changes nothing but torch's table of
    operators, by the public ``torch.library.define``, and only the first time.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return False
    for library in sorted(Path(spec.origin).parent.glob("_C*.so")):
        try:
            torch.ops.load_library(str(library))
            return True
        except OSError:  # linked against another build of torch
            continue
    for name, schema in SCHEMAS.items():
        torch.library.define(f"torchvision::{name}", schema)
    return False
