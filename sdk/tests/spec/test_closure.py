"""Every operator of the bench line's models has loops, is an extern, or is made of operators that are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from keel import Backend, Call, Refusal, aten_externs
from keel.graph.calls import call_of
from keel.graph.legalize import legalize
from keel.loops.lower import lower
from keel.torch_adapter import Captured, capture
from keel_conformance.models import NAMES, build

pytestmark = pytest.mark.slow

EXTERNS = aten_externs("cpu")


def refuse(call: Call) -> Refusal | str | None:
    """What any loop target can say at best: it has the extern, or the loops, or nothing."""
    extern = EXTERNS.get(call.name)
    if extern is not None and (extern.refuse is None or extern.refuse(call) is None):
        return None
    answer = lower(call)
    return answer if isinstance(answer, str) else None


LOOPS = Backend(name="loops", device="cpu", supports=refuse, compile=lambda gm: gm.forward)


def legalized(kinds: list[str]) -> Callable[..., Any]:
    """A Dynamo backend that legalizes for LOOPS alone, and runs what comes out in eager.

    Legalization raises KeelError[no-owner] for an operator without loops, extern or closed decomposition.
    """

    def compile_graph(captured: Captured) -> Callable[[list[Any]], Sequence[Any]]:
        gm = legalize(captured, [LOOPS]).gm
        kinds.append(captured.kind)
        owned = [c for n in gm.graph.nodes if (c := call_of(n)) is not None]
        assert owned and all(refuse(c) is None for c in owned)

        def run(inputs: list[Any]) -> Sequence[Any]:
            args = [*inputs, *captured.constants.values()]
            inputs.clear()
            return gm(*args)  # type: ignore[no-any-return]

        return run

    return lambda gm, inputs: capture(gm, inputs, compile_graph)


# Tracing with symbolic sizes takes several times as long, so only two of the models are.
SYMBOLIC = ("gpt2", "resnet18")


@pytest.mark.parametrize("name", NAMES)
def test_training_in_bfloat16(name: str) -> None:
    case, kinds = build(name, scale="tiny"), list[str]()
    reference = case.twin()
    losses = []
    for c in (case, reference):
        torch.compiler.reset()
        c.model.train()
        model = torch.compile(c.model, backend=legalized(kinds), dynamic=name in SYMBOLIC) if c is case else c.model
        with torch.autocast("cpu", torch.bfloat16):
            out = model(*c.args, **c.kwargs, **c.targets)
        loss = c.loss(out)
        loss.backward()
        losses.append(loss.detach())
    assert {"forward", "backward"} <= set(kinds)
    torch.testing.assert_close(losses[0], losses[1], rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["bert", "llama", "resnet18", "convnext"])
def test_inference_in_float32(name: str) -> None:
    case, kinds = build(name, scale="tiny"), list[str]()
    torch.compiler.reset()
    with torch.no_grad():
        want = case.model(*case.args, **case.kwargs)["logits"]
        got = torch.compile(case.model, backend=legalized(kinds))(*case.args, **case.kwargs)["logits"]
    assert set(kinds) == {"inference"}
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def test_an_operator_outside_is_noticed() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._standard_gamma_grad(x, x)

    torch.compiler.reset()
    with pytest.raises(Exception, match=r"no backend takes %.* = aten\._standard_gamma_grad"):
        torch.compile(run, backend=legalized([]))(torch.eye(3))
