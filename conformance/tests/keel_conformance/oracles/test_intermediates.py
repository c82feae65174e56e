"""What a composite computes on the way may be rounded to 16 bits, unless a clause says that it is in float32."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from keel.opset import MEMBERS, Op, decomposition_of
from keel_conformance.cases.case import Case, Inputs
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import plan
from keel_conformance.oracles.error_rules import flat
from keel_conformance.oracles.judge import judge, target_of
from keel_selftest.equivalent_fused import RoundedSteps, rounds_its_steps

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)
NARROW = {"f16": torch.float16, "bf16": torch.bfloat16}


def cases(op: Op) -> list[Case]:
    """A case of 16-bit floats with ordinary values."""
    if not op.targets:
        return []
    made = plan(ops=(op.name,), profile="strict", tier="smoke")
    usual = ("random", "own", "duplicates", "nonnegative")
    return [c for c in made if c.kind == "op" and c.dtype in NARROW and c.levels.get("values", "own") in usual][:1]


@pytest.mark.slow
def test_composites_without_a_promise_may_round_every_step() -> None:
    judged = 0
    for op in filter(rounds_its_steps, MEMBERS.values()):
        for seed, case in enumerate(cases(op)):
            inputs = draw_inputs(case, 0)
            try:
                eager = flat(target_of(case.op, case.overload)(*inputs.args, **inputs.kwargs))
            except NotImplementedError:  # PyTorch 2.11 has no trace of bfloat16
                continue
            decompose = decomposition_of(target_of(case.op, case.overload))
            assert decompose is not None
            with warnings.catch_warnings(), RoundedSteps(NARROW[case.dtype], seed):
                warnings.simplefilter("ignore")
                results = flat(decompose(*inputs.args, **inputs.kwargs))
            found = judge(case, inputs, _in_strides_of(eager, results))
            judged += found.oracle == "composite"
            assert found.status != "fail", (case.id, found.sentence)
    assert judged > 100


def _in_strides_of(eager: tuple[Any, ...], results: tuple[Any, ...]) -> list[Any]:
    return [
        torch.empty_strided(y.shape, y.stride(), dtype=y.dtype).copy_(x) if isinstance(y, Tensor) else x
        for x, y in zip(results, eager, strict=True)
    ]


def softmax_of_rounded(x: Tensor) -> Tensor:
    e = (x.float() - x.float().amax(-1, keepdim=True)).exp()
    return (e.to(x.dtype).float() / e.sum(-1, keepdim=True)).to(x.dtype)


def log_softmax_of_rounded(x: Tensor) -> Tensor:
    shifted = x.float() - x.float().amax(-1, keepdim=True)
    return (shifted - shifted.exp().sum(-1, keepdim=True).to(x.dtype).float().log()).to(x.dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("reach", [0.1, 3.0])
def test_softmax_may_round_exponentials_and_their_sum(dtype: torch.dtype, reach: float) -> None:
    x = (torch.randn(40, 33, generator=torch.Generator().manual_seed(0)) * reach).to(dtype)
    for name, op, way in (
        ("softmax", aten._softmax.default, softmax_of_rounded),
        ("log_softmax", aten._log_softmax.default, log_softmax_of_rounded),
    ):
        case, inputs = Case(name, "", "op", "core", str(op)), Inputs((x, -1, False))
        assert judge(case, inputs, [way(x)]).status == "pass"
        assert judge(case, inputs, [op(x, -1, False)]).status == "pass"  # eager does so for some layouts
        narrow = op(x.double(), -1, False).to(dtype)
        assert judge(case, inputs, [narrow]).status == "pass"
        assert judge(case, inputs, [narrow * 1.02 + (name == "log_softmax") * 0.02]).status == "fail"


@pytest.mark.parametrize("dtype", HALVES)
def test_a_composite_that_promises_float32_may_not_round_its_steps(dtype: torch.dtype) -> None:
    x = torch.linspace(-1, 3, 400)[None].to(dtype)
    case = Case("layer_norm", "", "op", "core", "aten.native_layer_norm.default")
    inputs = Inputs((x, [400], None, None, 1e-5))
    out, mean, rstd = aten.native_layer_norm.default(*inputs.args)
    assert judge(case, inputs, [out, mean, rstd]).status == "pass"
    var, exact = torch.var_mean(x.float(), -1, correction=0, keepdim=True)
    centered = (x.float() - exact).to(dtype).float()
    assert judge(case, inputs, [(centered * var.rsqrt().to(dtype)).to(dtype), mean, rstd]).status == "fail"
