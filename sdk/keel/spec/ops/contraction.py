"""Contractions in terms of those that libraries have."""
from __future__ import annotations

from typing import Any

import torch

from keel.spec.op import Family

aten = torch.ops.aten
family = Family("contraction")


@family(aten.addbmm.default, clauses=(
    "The result is beta * x + alpha * the sum over the batch of batch1[i] @ batch2[i]; x is not read if beta is 0.",
))
def addbmm(x: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, *, beta: Any = 1,
           alpha: Any = 1) -> torch.Tensor:
    """The batch is one more dimension contracted over."""
    b, n, k = batch1.shape
    rows = aten.reshape.default(aten.permute.default(batch1, [1, 0, 2]), [n, b * k])
    columns = aten.reshape.default(batch2, [b * k, batch2.shape[2]])
    return aten.addmm.default(x, rows, columns, beta=beta, alpha=alpha)
