"""The composites that Keel decomposes itself, where PyTorch has no decomposition or one that is inaccurate or does not
fuse.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from keel import torch_adapter
from keel.spec.op import Op
from keel.spec.ops import (
    attention,
    batch_norm,
    contraction,
    indexing,
    losses,
    normalisation,
    parts,
    random,
    statistics,
)

OPSET: Mapping[Callable[..., Any], Op] = MappingProxyType({
    **statistics.family.table, **normalisation.family.table, **batch_norm.family.table, **losses.family.table,
    **attention.family.table, **contraction.family.table, **indexing.family.table, **parts.family.table,
    **random.family.table,
})


def decomposition_of(op: Callable[..., Any]) -> Callable[..., Any] | None:
    """What an operator is made of: Keel's own decomposition if there is one, else PyTorch's; None for a primitive."""
    known = OPSET.get(op)
    return known.decompose if known else torch_adapter.decomposition_of(op)
