"""Numeric facts of backends: what they may be, how they are shown, and which calls are refused by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import keel
import keel.commands
from keel.cli import main
from keel.entry_points import Carried
from keel.plugin import Arithmetic, Backend, Call, LoopTarget, TensorType
from keel.testing import Discovery, refusal

FACTS = Arithmetic(
    flushes_subnormals=(torch.float32, torch.float16),
    products={torch.float32: "tf32"},
    sums={torch.bfloat16: torch.bfloat16},
    float64=False,
    native=(torch.float8_e4m3fn,),
)
ACME = Backend(name="acme", device="cpu", supports=lambda call: None, compile=lambda gm: gm, arithmetic=FACTS)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: Arithmetic(flushes_subnormals=torch.float32),  # type: ignore[arg-type]
        lambda: Arithmetic(flushes_subnormals=("float32",)),  # type: ignore[arg-type]
        lambda: Arithmetic(flushes_subnormals=(torch.int32,)),
        lambda: Arithmetic(products={torch.float32: "tf19"}),
        lambda: Arithmetic(products={torch.bfloat16: "tf32"}),
        lambda: Arithmetic(products=("tf32",)),  # type: ignore[arg-type]
        lambda: Arithmetic(sums={torch.float32: torch.bfloat16}),
        lambda: Arithmetic(sums={torch.bfloat16: torch.float32}),
        lambda: Arithmetic(float64=0),  # type: ignore[arg-type]
        lambda: Arithmetic(native=(torch.float32,)),
        lambda: replace(ACME, arithmetic={"float64": False}),
    ],
)
def test_a_mistake_is_refused_with_what_to_write(mistake: Callable[[], Any]) -> None:
    with pytest.raises(keel.KeelError, match=r"bad-plugin(.|\n)*(Write|It takes)"):
        mistake()


def test_facts_are_sentences() -> None:
    assert FACTS.sentences() == (
        "flushes subnormals of float32 and float16",
        "cuts operands of float32 products to tf32",
        "accumulates sums of bfloat16 in bfloat16",
        "has no float64",
        "computes natively in float8_e4m3fn",
    )
    assert Arithmetic().sentences() == ()


def test_a_loop_target_has_facts_too() -> None:
    target = LoopTarget(
        name="lab",
        device="cpu",
        dtypes={torch.float32: "float"},
        scalars={"add": "{0} + {1}"},
        reductions={},
        render=lambda kernel: "",
        build=lambda sources: [],
        arithmetic=FACTS,
    )
    assert keel.loop_backend(target).arithmetic is FACTS


def negation(dtype: torch.dtype) -> Call:
    x = TensorType(dtype, (3,), (1,), torch.device("cpu"))
    return Call(torch.ops.aten.neg.default, (x,), {}, (x,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_call_on_float64_is_refused_in_a_sentence(dtype: torch.dtype) -> None:
    refused = refusal(ACME, negation(dtype))
    assert refused is not None and refused.sentence == (
        f"acme has no aten.neg.default on {str(dtype).removeprefix('torch.')}: it has no float64."
    )
    assert refused.nearest == f"a cast to {'complex64' if dtype.is_complex else 'float32'}"
    assert refusal(ACME, negation(torch.float32)) is None
    assert refusal(replace(ACME, arithmetic=Arithmetic()), negation(dtype)) is None


def test_what_is_converted_to_float64_goes_elsewhere() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return (x.sin().double() + 1).float().cos()

    x = torch.randn(5)
    explanation = keel.explain(double, x, backends=[ACME, "eager"], placement="order")
    assert explanation.taken["acme"] == 2 and explanation.taken["eager"] > 0
    torch.testing.assert_close(keel.compile(double, backends=[ACME, "eager"], placement="order")(x), double(x))
    with pytest.raises(keel.KeelError, match="it has no float64"):
        keel.compile(double, backends=[ACME], strict=True)(x)


def test_backends_are_listed_with_their_facts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(keel.commands, "survey", lambda **_: Discovery({"acme": ACME}, {}, {}, {}))
    carried = Carried("acme", "keel_acme:backend", "keel.backends", "keel-acme")
    monkeypatch.setattr(keel.commands, "installed", lambda: {"acme": [carried]})
    assert main(["backends"]) == 0
    assert f"acme {', '.join(FACTS.sentences())}." in " ".join(capsys.readouterr().out.split())
    assert main(["backends", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["arithmetic"] == list(FACTS.sentences())
