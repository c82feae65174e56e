"""Models that a graph-level backend compiles as one part, with their weights as constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

import keel
from keel import Backend
from keel.plugin import CompileContext
from keel_conformance.models import build


def check_one_part(name: str, backend: Backend) -> None:
    """Asserts that a model of the zoo is one part of ``backend``, and computes what eager PyTorch does."""
    case = build(name, scale="tiny", seed=0)
    parts: list[int] = []

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Any:
        parts.append(len(ctx.constants))
        return backend.compile(gm, ctx)

    one = replace(backend, compile=compile)
    with torch.no_grad():
        result = keel.compile(case.model, backends=[one], strict=True, dynamic=False)(*case.args, **case.kwargs)
        expected = case.model(*case.args, **case.kwargs)
    result, expected = (r if isinstance(r, Tensor) else next(iter(r.values())) for r in (result, expected))
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    assert len(parts) == 1 and parts[0] > 40
