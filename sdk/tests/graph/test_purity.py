"""Which graphs may run several times as if they had run once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keel.graph.purity import why_not_rerunnable

X = torch.ones(1, 2, 4, 4)
aten = torch.ops.aten


def attention(x: torch.Tensor, dropout: float) -> torch.Tensor:
    return aten._scaled_dot_product_flash_attention_for_cpu.default(x, x, x, dropout)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: (x @ x).relu(), None),
        (lambda x: (x.view(-1), x.nonzero()), None),
        (lambda x: attention(x, 0.0), None),
        (lambda x: attention(x, 0.1), "draws random numbers"),
        (lambda x: aten.native_dropout.default(x, 0.5, True)[0], "draws random numbers"),
        (lambda x: x + aten.rand.default([4]), "draws random numbers"),
        (lambda x: aten.add_.Tensor(x, 1), "may have an effect"),
        (lambda x: (aten._assert_async.msg(x.sum() > 0, "no"), x)[1], "may have an effect"),
    ],
    ids=[
        "values",
        "views, and sizes that are data",
        "attention",
        "attention with dropout",
        "dropout",
        "draw",
        "write",
        "check",
    ],
)
def test_graphs_of_values_alone_may_run_again(fn: Callable[[torch.Tensor], Any], why: str | None) -> None:
    found = why_not_rerunnable(make_fx(fn, tracing_mode="symbolic")(X).graph)
    assert found is None if why is None else found is not None and why in found and found.startswith("%")


def test_a_graph_in_a_graph_may_hold_anything() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    assert "cond" in (why_not_rerunnable(make_fx(fn, tracing_mode="symbolic")(X).graph) or "")
