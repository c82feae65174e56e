"""A spread of cases: their arguments have one type in all calls, and eager PyTorch runs what is valid."""

from __future__ import annotations

import warnings
from functools import cache

import pytest
import torch

from keel.opset import MEMBERS
from keel_conformance.cases.case import Case, Inputs
from keel_conformance.cases.inputs import REDRAWN, draw_inputs
from keel_conformance.cases.plan import plan

TARGETS = {str(t): t for op in MEMBERS.values() for t in op.targets}


@pytest.fixture(scope="module")
def cases() -> tuple[Case, ...]:
    return tuple(c for c in plan(profile="strict", tier="smoke") if c.kind in ("op", "negative"))


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format).reshape(-1).as_strided((x.numel(),), (1,)).view(torch.uint8)


def other(inputs: Inputs) -> str:
    return repr(
        (
            [v for v in inputs.args if not isinstance(v, torch.Tensor | list)],
            {k: v for k, v in inputs.kwargs.items() if not isinstance(v, torch.Tensor)},
        )
    )


def test_calls_have_equal_types_and_attributes_and_the_same_bits_again(cases: tuple[Case, ...]) -> None:
    for case in cases[::9]:
        one, again, two = draw_inputs(case, 0), draw_inputs(case, 0), draw_inputs(case, 1)
        assert other(one) == other(two), case.id
        assert one.notes == two.notes or REDRAWN in two.notes, case.id
        for x, same, y in zip(one.tensors, again.tensors, two.tensors, strict=True):
            assert (x.dtype, x.shape, x.stride()) == (y.dtype, y.shape, y.stride()), case.id
            assert x.data_ptr() != y.data_ptr() or not x.numel(), case.id
            assert torch.equal(bits(x), bits(same)), case.id


@cache
def scales_rows() -> bool:
    """Whether the kernel for a CPU multiplies float8 matrices with a scale for each row; that of PyTorch 2.11 has one
    scale for a matrix.
    """
    x = torch.ones(16, 16).to(torch.float8_e5m2)
    try:
        torch._scaled_mm(x, x.t(), torch.ones(16, 1), torch.ones(1, 16), out_dtype=torch.float32)
    except RuntimeError as refused:
        assert "only supports per-tensor scaling" in str(refused)
        return False
    return True


def runs_here(case: Case) -> bool:
    return case.op != "scaled_mm" or ("scaled", "rows") not in case.choice or scales_rows()


def test_eager_runs_what_is_valid_and_refuses_what_is_not(cases: tuple[Case, ...]) -> None:
    wrong = []
    for case in (*filter(runs_here, cases[::3]), *(c for c in cases if c.kind == "negative")):
        inputs = draw_inputs(case, 1)
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                TARGETS[case.overload](*inputs.args, **inputs.kwargs)
        except Exception as e:  # of whatever kind: it is refused
            wrong += [f"{case.id}: {e}"] if case.kind == "op" else []
        else:
            wrong += [f"{case.id}: taken"] if case.kind == "negative" else []
    assert not wrong


def test_a_case_that_no_domain_has_is_refused() -> None:
    with pytest.raises(ValueError, match="No domain has the case"):
        draw_inputs(Case("add", "elementwise binary", "negative", "core", choice=(("breaks", "nothing"),)), 0)


def test_a_cholesky_factor_has_a_real_positive_diagonal() -> None:
    for case in plan(ops=("cholesky_inverse",), profile="inference"):
        if case.kind == "op":
            diagonal = draw_inputs(case, 0).args[0].diagonal(dim1=-2, dim2=-1)
            assert bool((diagonal.imag == 0).all()) if diagonal.is_complex() else bool((diagonal > 0).all())
