"""Controls give values that have nothing to do with the question; benign variants give what is right."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch

import keel
from keel_conformance import programs
from keel_conformance.cases.case import Case
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import plan
from keel_conformance.harness.backend_worker import overload
from keel_conformance.oracles.judge import judge
from keel_conformance.programs.process_group import can_meet
from keel_conformance.pytree import tensor_leaves
from keel_selftest.discriminating import has_decided_values, is_expected_pass
from keel_selftest.null_backends import MEANT
from keel_selftest.registry import BENIGN, CONTROLS

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
    "aten.convolution.default": (
        torch.randn(2, 3, 8, 8),
        torch.randn(4, 3, 3, 3),
        torch.randn(4),
        [2, 2],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
    ),
    "aten.maximum.default": (torch.tensor([1.0, -2.0, float("nan")]), torch.tensor([0.5, 3.0, 1.0])),
    "aten.exp.default": (torch.randn(5, 6).t(),),
    "aten.sub.Tensor": (torch.randn(5, 6), torch.randn(6)),
    "aten.scatter_add.default": (torch.zeros(5), 0, torch.tensor([1, 1, 4]), torch.randn(3)),
}


def run(backend: keel.Backend, op: str) -> tuple[Any, ...]:
    args = CALLS[op]
    batch = keel.testing.compile_calls([(overload(op), args, {})], backends=[backend, "eager"], strict=True)
    return batch.run([(args, {})])[0]


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


C, X = torch.randn(4, 3, dtype=torch.complex64), torch.randn(4)
BAD: dict[str, tuple[Any, ...]] = {
    "aten._batch_norm_no_update.default": (torch.randn(2, 4, 5), None, X, X, X.abs(), 0.1, 1e-5),
    "aten._batch_norm_with_update_functional.default": (torch.randn(2, 4, 5), X, None, X, X.abs(), 0.1, 1e-5),
    "aten._fft_c2c.default": (C, [1, 0], 0, True),
    "aten._foreach_addcmul.Tensor": ([X], [X], [X], torch.ones(1)),
    "aten._foreach_addcdiv.Tensor": ([X], [X], [X], torch.ones(1)),
    "aten.lift_fresh_copy.default": (torch.randn(3, 2).t(),),
    "aten.multi_margin_loss.default": (X, torch.tensor(1), 1, 1, None, 0),
    "aten.multilabel_margin_loss_forward.default": (X, torch.tensor([3, -1, 1, 0]), 0),
}


@pytest.mark.parametrize("op", BAD)
def test_what_aot_eager_does_wrongly_it_is_not_asked_for(op: str) -> None:
    """Composites are written out for it, which it does right."""
    batch = keel.testing.compile_calls(
        [(overload(op), BAD[op], {})], strict=True, backends=[BENIGN["functional-again"].backend, "eager"]
    )
    torch.testing.assert_close(
        batch.run([(BAD[op], {})])[0], tuple(tensor_leaves(overload(op)(*BAD[op]))), check_stride=True
    )


def test_what_aot_eager_does_right_it_is_asked_for() -> None:
    right = {
        "aten._fft_c2c.default": (C, [0, 1], 0, True),
        "aten.multi_margin_loss.default": (C.real, torch.tensor([1, 2, 0, 0]), 1, 1, None, 0),
    }
    batch = keel.testing.compile_calls(
        [(overload(op), args, {}) for op, args in right.items()], backends=[BENIGN["functional-again"].backend, "eager"]
    )
    assert set().union(*batch.owners) == {"aot_eager"}


def test_sums_of_one_element_have_memory_of_their_own() -> None:
    x = torch.ones(1, 1)
    call = overload("aten.sum.dim_IntList"), (x, [0, 1], True), {}
    batch = keel.testing.compile_calls([call], backends=[BENIGN["sum-in-pairs"].backend, "eager"], strict=True)
    (got,) = batch.run([call[1:]])[0]
    assert got.data_ptr() != x.data_ptr()


@pytest.mark.skipif(not can_meet(), reason="No process group of gloo can be made here.")
@pytest.mark.parametrize("name", ["in-two-halves", "last-things-first"])
@pytest.mark.parametrize("program", ["all-gather", "two-of-one-size", "of-several-tensors", "not-used"])
def test_collectives_keep_their_order_and_are_waited_for(name: str, program: str) -> None:
    case = next(c for c in programs.cases() if c.op == f"collectives-{program}")
    found = programs.judge(case, programs.run_case(case, programs.Compiler(BENIGN[name].backend)))
    assert found.status == "pass", found.sentence


def test_blocks_leave_formats_alone() -> None:
    x = torch.randn(2, 3, 4, 5)
    call = overload("aten.clone.default"), (x,), {"memory_format": torch.channels_last}
    batch = keel.testing.compile_calls([call], backends=[BENIGN["in-blocks"].backend, "eager"], strict=True)
    (got,) = batch.run([call[1:]])[0]
    assert torch.equal(got, x) and got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_fails(name: str) -> None:
    """On the first case of an operator with values, by the oracles' own word."""
    case = next(c for c in plan(tier="smoke", ops=["add"]) if c.kind == "op")
    inputs = draw_inputs(case, 0)
    batch = keel.testing.compile_calls(
        [(overload(case.overload), inputs.args, inputs.kwargs)], backends=[CONTROLS[name].backend, "eager"], strict=True
    )
    verdict = judge(case, inputs, batch.run([(inputs.args, inputs.kwargs)])[0])
    assert verdict.status == "fail"


def test_zeros_are_zeros() -> None:
    assert not run(CONTROLS["zeros"].backend, "aten.mm.default")[0].any()


def test_the_identity_has_the_first_arguments_elements() -> None:
    (got,) = run(CONTROLS["identity"].backend, "aten.sum.dim_IntList")
    assert torch.equal(got, CALLS["aten.sum.dim_IntList"][0].reshape(-1)[:6])


def test_controls_excuse_only_members_that_there_are() -> None:
    assert set(MEANT) == set(CONTROLS) and not {m for some in MEANT.values() for m in some} - set(keel.opset.MEMBERS)


def cases_of(op: str) -> list[Case]:
    return [c for c in plan(ops=[op]) if c.kind == "op"]


def test_which_cases_bear_values() -> None:
    add, *_ = cases_of("add")
    assert has_decided_values(add) and not is_expected_pass("zeros", add)
    empty, *_, full = sorted(cases_of("zeros"), key=lambda c: prod(draw_inputs(c, 0).args[0]))
    assert not has_decided_values(empty) and is_expected_pass("ones", empty)
    assert has_decided_values(full) and is_expected_pass("zeros", full) and not is_expected_pass("ones", full)
