"""keel compare: clean models, defects that it names, defects that show only in fusions, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from keel import Backend
from keel.comparison import Comparison, compare
from keel.comparison_page import page

from .line import whole

GELU = torch.ops.aten.gelu.default


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(), Block(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4))


X = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))


def replacing(op: Any, wrong: Callable[..., Any], number: int = 0, alone: bool = True) -> Backend:
    """Runs graphs in eager PyTorch, but for call ``number`` of an operator. Unless ``alone``, that is so only where the
    operand of the call is not a result of the graph.
    """

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        calls = [n for n in gm.graph.nodes if n.target is op]
        returned = gm.graph.output_node().all_input_nodes
        if len(calls) > number and (alone or calls[number].args[0] not in returned):
            calls[number].target = wrong
        gm.recompile()
        return gm.forward  # type: ignore[no-any-return]

    return Backend(name="acme", device="cpu", supports=lambda call: None, compile=compile)


def tanh_gelu(x: Tensor) -> Tensor:
    return GELU(x, approximate="tanh")


@pytest.fixture(scope="module")
def clean() -> Comparison:
    return compare(model(), X, backends=[whole()])


@pytest.fixture(scope="module")
def wrong() -> Comparison:
    return compare(model(), X, backends=[replacing(GELU, tanh_gelu, 1)])


@pytest.mark.slow
def test_a_clean_model_has_nothing_wrong_forward_and_backward(clean: Comparison) -> None:
    assert not clean.wrong and {v.kind for v in clean.values} == {"forward", "backward"}
    assert {"0.up", "1.down", "3"} <= {v.module for v in clean.values}
    assert all(v.judgment.ratio <= 1 for v in clean.values)
    assert any(v.is_inside for v in clean.values) and any(v.error > 0 for v in clean.values)


@pytest.mark.slow
def test_the_first_wrong_operator_is_named_with_its_module_and_line(wrong: Comparison) -> None:
    [found] = wrong.wrong
    assert (found.operator, found.module, found.kind) == ("aten.gelu.default", "1", "forward")
    assert not found.is_fused and "is allowed" in found.sentence
    assert "self.down(torch.nn.functional.gelu(self.up(x)))" in (found.line or "")


@pytest.mark.slow
def test_a_defect_that_only_fused_calls_have_is_bisected() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x.exp() - 1).tanh()

    found = compare(f, X, backends=[replacing(GELU, tanh_gelu, alone=False)], inside=False)
    assert [(w.operator, w.is_fused) for w in found.wrong] == [("aten.gelu.default", True)]


@pytest.mark.slow
def test_another_backend_may_be_the_reference() -> None:
    found = compare(lambda x: x.exp().sum(0), X, backends=[whole()], against="interp")
    assert found.against == "interp" and all(v.reference == v.reference for v in found.values if not v.is_inside)


@pytest.mark.slow
def test_it_reads_well_at_80_columns(wrong: Comparison) -> None:
    text = str(wrong)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("gelu is wrong in 1: ") and "budget used" in text and " times" in text


@pytest.mark.slow
def test_the_page_needs_nothing_from_outside(wrong: Comparison) -> None:
    html = page({"model": wrong})
    assert "http" not in html and "prefers-color-scheme: dark" in html
    assert "gelu" in html and 's5"' in html


@pytest.mark.slow
def test_steps_keep_the_worst_of_each_value() -> None:
    once, twice = (compare(lambda x: x.exp(), X, backends=[whole()], steps=n) for n in (1, 2))
    assert len(once.values) == len(twice.values) and twice.steps == 2
