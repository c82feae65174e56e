"""Controls give values that have nothing to do with the question; benign variants give what is right."""
from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch

import keel
from keel_conformance.cases.arguments import arguments
from keel_conformance.cases.case import Case
from keel_conformance.cases.plan import plan
from keel_conformance.harness.perform import overload
from keel_conformance.mutants import BENIGN, CONTROLS
from keel_conformance.mutants.controls import MEANT
from keel_conformance.mutants.selftest import bears, meant
from keel_conformance.oracles.judge import judge

aten = torch.ops.aten
CALLS: dict[str, tuple[Any, ...]] = {
    "aten.sum.dim_IntList": (torch.randn(6, 33), [1]),
    "aten.mm.default": (torch.randn(5, 9), torch.randn(9, 4)),
    "aten.bmm.default": (torch.randn(2, 5, 9), torch.randn(2, 9, 4)),
    "aten.addmm.default": (torch.randn(4), torch.randn(5, 9), torch.randn(9, 4)),
    "aten._softmax.default": (torch.randn(4, 9), -1, False),
    "aten.native_layer_norm.default": (torch.randn(4, 9), [9], torch.randn(9), None, 1e-5),
    "aten.var.correction": (torch.randn(4, 9), [1]),
    "aten.sigmoid.default": (torch.tensor([-200.0, -1.0, 0.0, 1.0, 200.0]),),
    "aten.cumsum.default": (torch.randn(4, 9), 1),
    "aten.convolution.default": (torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4), [2, 2], [1, 1],
                                 [1, 1], False, [0, 0], 1),
    "aten.maximum.default": (torch.tensor([1.0, -2.0, float("nan")]), torch.tensor([0.5, 3.0, 1.0])),
    "aten.exp.default": (torch.randn(5, 6).t(),),
    "aten.sub.Tensor": (torch.randn(5, 6), torch.randn(6)),
    "aten.scatter_add.default": (torch.zeros(5), 0, torch.tensor([1, 1, 4]), torch.randn(3)),
}


def run(backend: keel.Backend, op: str) -> tuple[Any, ...]:
    args = CALLS[op]
    return keel.compile_calls([(overload(op), args, {})], backends=[backend, "eager"], strict=True).run([(args, {})])[0]


@pytest.mark.parametrize("name", BENIGN)
def test_a_benign_variant_is_near_eager(name: str) -> None:
    """Within a few roundings, with eager's strides: the oracles say the rest."""
    mine = BENIGN[name]
    for op, args in CALLS.items():
        if name in ("interpreted", "functional-again") and op not in ("aten.exp.default", "aten.mm.default"):
            continue
        got = run(mine.backend, op)
        want = overload(op)(*args)
        for g, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5, equal_nan=True, check_stride=True)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_fails(name: str) -> None:
    """On the first case of an operator with values, by the oracles' own word."""
    case = next(c for c in plan(tier="smoke", ops=["add"]) if c.kind == "op")
    trial = arguments(case, 0)
    batch = keel.compile_calls([(overload(case.overload), trial.args, trial.kwargs)],
                               backends=[CONTROLS[name].backend, "eager"], strict=True)
    verdict = judge(case, trial, batch.run([(trial.args, trial.kwargs)])[0])
    assert verdict.status == "fail"


def test_zeros_are_zeros() -> None:
    assert not run(CONTROLS["zeros"].backend, "aten.mm.default")[0].any()


def test_the_identity_has_the_first_arguments_elements() -> None:
    (got,) = run(CONTROLS["identity"].backend, "aten.sum.dim_IntList")
    assert torch.equal(got, CALLS["aten.sum.dim_IntList"][0].reshape(-1)[:6])


def test_controls_excuse_only_members_that_there_are() -> None:
    assert set(MEANT) == set(CONTROLS) and not {m for some in MEANT.values() for m in some} - set(keel.MEMBERS)


def cases_of(op: str) -> list[Case]:
    return [c for c in plan(ops=[op]) if c.kind == "op"]


def test_which_cases_bear_values() -> None:
    add, *_ = cases_of("add")
    assert bears(add) and not meant("zeros", add)
    empty, *_, full = sorted(cases_of("zeros"), key=lambda c: prod(arguments(c, 0).args[0]))
    assert not bears(empty) and meant("ones", empty)
    assert bears(full) and meant("zeros", full) and not meant("ones", full)
