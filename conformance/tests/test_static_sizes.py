"""Models whose batch size changes run on a backend that needs known sizes, with few compilations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map

import keel
from keel import Backend, Rule, Support
from keel_conformance.models import build

pytestmark = pytest.mark.slow


def batch_of(rows: int, value: Any) -> Any:
    return torch.cat([value] * rows)[:rows] if isinstance(value, Tensor) else value


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_twenty_batch_sizes_take_few_compilations(name: str) -> None:
    parts: list[fx.GraphModule] = []

    def compile(gm: fx.GraphModule) -> fx.GraphModule:
        parts.append(gm)
        return gm

    static = Support((Rule(ops=("*",), static=True),))
    acme = Backend(name="acme", device="cpu", supports=static, compile=compile)
    torch.compiler.reset()
    case = build(name, scale="tiny")
    case.model.eval()
    run = keel.compile(case.model, backends=[acme], strict=True, dynamic=True)
    with torch.no_grad():
        for rows in range(3, 23):
            args, kwargs = tree_map(lambda value, n=rows: batch_of(n, value), (case.args, case.kwargs))
            results, expected = (tree_leaves(f(*args, **kwargs)) for f in (run, case.model))
            torch.testing.assert_close(
                [r for r in results if isinstance(r, Tensor)], [e for e in expected if isinstance(e, Tensor)]
            )
    assert len(parts) <= 4
