"""The types of results of operators for which PyTorch has no meta kernel, so that they can be recorded with symbolic
sizes. Nothing is registered: only the recorder asks.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch._meta_registrations  # what is registered there is not lacking

aten = torch.ops.aten


def _geqrf(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    *batch, m, n = x.shape
    return x.new_empty([*batch, n, m]).transpose(-2, -1), x.new_empty([*batch, torch.sym_min(m, n)])  # type: ignore[no-untyped-call]


def _binomial(count: torch.Tensor, prob: torch.Tensor, generator: Any = None) -> torch.Tensor:
    return torch.empty_like(count, memory_format=torch.contiguous_format)


def _gamma(alpha: torch.Tensor, generator: Any = None) -> torch.Tensor:
    return torch.empty_like(alpha, memory_format=torch.contiguous_format)


_OURS: Mapping[Any, Callable[..., Any]] = {
    aten.geqrf.default: _geqrf, aten.binomial.default: _binomial, aten._standard_gamma.default: _gamma,
}
METAS: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType({
    op: ours for op, ours in _OURS.items() if not op.has_kernel_for_dispatch_key(torch._C.DispatchKey.Meta)})
