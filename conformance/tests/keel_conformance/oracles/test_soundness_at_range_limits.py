"""No legal computation breaks a bound where numbers leave the range of a dtype, or are subnormal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from judge_helpers import verdict

from keel_conformance.cases.case import Case, Inputs
from keel_conformance.oracles import relative_to_eager
from keel_conformance.oracles.error_rules import ErrorBound
from keel_conformance.oracles.judge import judge
from keel_conformance.oracles.running_error import _wrapped, analyze
from keel_conformance.oracles.tracked_tensor import errors, tracked

aten = torch.ops.aten
INF = float("inf")


def test_what_is_added_to_one_place_may_be_flushed() -> None:
    x = torch.zeros(3)
    index, tiny = torch.tensor([0, 0, 2]), torch.tensor([1e-38, 5e-39, 1.5e-38])
    args = (x, 0, index, tiny)
    flushed = torch.tensor([0.0, 0.0, 1.5e-38])
    name = ("scatter_add", "aten.scatter_add.default")
    assert verdict(*name, args, [flushed]).status == "pass"
    assert verdict(*name, args, [flushed + 1e-30]).status == "fail"
    half = torch.tensor([1e-5, 1e-5, 0.0]).half()
    assert verdict(*name, (x.half(), 0, index, half), [torch.zeros(3).half()]).status == "fail"


@pytest.mark.parametrize("got", [float("inf"), float("nan"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_partial_sums_that_overflow_the_infinity_is_open(dtype: torch.dtype, got: float) -> None:
    most = torch.finfo(dtype).max
    x = torch.tensor([[most, most, float("inf") if dtype == torch.float32 else -most, -most]], dtype=dtype)
    found = verdict("mm", "aten.mm.default", (x, torch.ones(4, 1, dtype=dtype)), [torch.full((1, 1), got, dtype=dtype)])
    assert found.status == "vacuous" and found.sentence.startswith("Of 100.0% of the elements nothing is known")
    bad = verdict(
        "mm", "aten.mm.default", (torch.tensor([[1.0, float("nan")]]), torch.ones(2, 1)), [torch.full((1, 1), 1.0)]
    )
    assert bad.status == "fail"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 3.0])
def test_a_product_with_noise_may_be_rounded_to_subnormals(dtype: torch.dtype, size: float) -> None:
    facts = torch.finfo(dtype)
    x = torch.full((64,), -size * (facts.smallest_normal if size == 1.0 else 1.0), dtype=dtype)
    noise = torch.rand(64, generator=torch.Generator().manual_seed(1)) * 0.2 + 0.1
    got = (x.float() * noise).to(dtype), noise.to(dtype)
    args = (x, 0.1, 0.3, True)
    assert (
        verdict("rrelu", "aten.rrelu_with_noise_functional.default", (x, torch.zeros_like(x), *args[1:]), got).status
        == "pass"
    )
    wrong = (got[0] * 1.25, got[1])
    assert (
        verdict("rrelu", "aten.rrelu_with_noise_functional.default", (x, torch.zeros_like(x), *args[1:]), wrong).status
        == "fail"
    )


@pytest.mark.parametrize("zero", [0, 3])
def test_a_solution_that_is_infinite_is_judged_by_its_classes(zero: int) -> None:
    a = torch.eye(4).expand(2, 4, 4).clone()
    a[0, zero, zero], b = 0.0, torch.ones(2, 4, 1)
    case = Case("triangular_solve", "", "op", "core", "aten.linalg_solve_triangular.default")
    x = aten.linalg_solve_triangular.default(a, b, upper=True)
    assert not x.isfinite().all()
    others = x.nan_to_num(1.0, 1.0, 1.0), x * torch.tensor([1.0, 2.0])[:, None, None]
    for result, status in ((x, "pass"), *((y, "fail") for y in others)):
        assert judge(case, Inputs((a, b), {"upper": True}), [result]).status == status


def test_what_leaves_the_range_of_float64_on_the_way_is_open() -> None:
    grad, x = torch.tensor([1e300, 1e300, 2.0]).double(), torch.tensor([18.0, 1.0, 1.0]).double()
    right = grad / (1 + (-x).exp())
    case = Case("softplus_backward", "", "op", "core", "aten.softplus_backward.default")
    big = torch.tensor([1e308, 1.0, 1.0]).double()
    for args, result, status in (
        ((grad, x, 1, 20), right, "pass"),
        ((grad, x, 1, 20), right * 1.001, "fail"),
        ((grad * big, x, 1, 20), right * big, "pass"),
    ):
        assert judge(case, Inputs(args), [result]).status == status


def test_the_parts_of_a_complex_infinity_combine_as_they_may() -> None:
    got, eager = torch.tensor([complex("inf+nanj"), 1.0]), torch.tensor([complex("nan+nanj"), 1.0])
    assert not relative_to_eager.compare(got, eager, None).sentence
    assert "not finite" in relative_to_eager.compare(eager.flip(0), eager, None).sentence


def test_what_may_have_overflowed_times_zero_is_open() -> None:
    x, zero = (tracked(torch.tensor([v]), analyze) for v in (1e38, 0.0))
    assert float(errors(x * 10 * zero)) == float("inf") and float(errors(x / 10 * zero)) == 0


def test_an_error_that_is_no_number_is_none_that_is_known() -> None:
    def rule(gap: float) -> Any:
        return _wrapped(torch.ones(1), ErrorBound(torch.ones(1).double(), torch.tensor([gap]).double()), analyze, None)

    assert float(errors(rule(float("nan")))) == float("inf") and float(errors(rule(0.5))) == 0.5


def test_what_is_subnormal_on_the_way_may_be_lost() -> None:
    grad, x = (torch.tensor([v] * 16, dtype=torch.float64) for v in (-195.73834473221575, -21.237891579388684))
    case = Case("gelu_backward", "", "op", "core", "aten.gelu_backward.default")
    for found, status in ((1.0930614500506392e-306, "pass"), (0.0, "pass"), (1e-290, "fail")):
        got = torch.full((16,), found, dtype=torch.float64)
        assert judge(case, Inputs((grad, x), {"approximate": "tanh"}), [got]).status == status
    grad, x = torch.full((8,), 47.0), torch.full((8,), -90.0)  # exp(-90) is subnormal in float32
    case = Case("softplus_backward", "", "op", "core", "aten.softplus_backward.default")
    right = (grad.double() * x.double().exp()).float()
    for factor, status in ((1.0, "pass"), (0.0, "pass"), (2.5, "fail")):
        assert judge(case, Inputs((grad, x, 1.0, 20.0)), [right * factor]).status == status


def test_what_is_subnormal_at_the_end_is_not_lost() -> None:
    x = torch.full((8,), 1e-39)
    for factor, status in ((1.0, "pass"), (0.0, "fail")):
        assert (
            judge(Case("mul", "", "op", "core", "aten.mul.Tensor"), Inputs((x, torch.ones(8))), [x * factor]).status
            == status
        )


def test_a_mean_of_infinities_may_be_moved_from_one_to_the_next() -> None:
    x = torch.tensor([[1.0, torch.inf, 2.0], [1.0, torch.nan, 2.0], [1.0, 2.0, 3.0]])
    case, nan = Case("layer_norm", "", "op", "core", "aten.native_layer_norm.default"), torch.full((3, 1), torch.nan)
    value, mean, rstd = torch.ops.aten.native_layer_norm.default(x, [3], None, None, 1e-5)
    for moved, statuses in (
        (torch.where(x[:, 1:2].isinf(), nan, mean), ("pass", "quality warning")),
        (torch.where(x[:, 1:2].isnan(), 1.0, mean), ("fail",)),
    ):
        assert judge(case, Inputs((x, [3], None, None, 1e-5)), [value, moved, rstd]).status in statuses


def test_a_product_that_leaves_the_range_in_some_order_is_open() -> None:
    x = torch.tensor([1e200, 1e200, 1e-200, 1e-200, 0.5] * 2, dtype=torch.float64)
    case = Case("prod", "", "op", "core", "aten.prod.dim_int")
    for found in (0.25, 0.0, torch.nan, torch.inf):
        got = torch.tensor(found, dtype=torch.float64)
        assert judge(case, Inputs((x, 0)), [got]).status in ("pass", "vacuous")
    x = torch.tensor([3e38] * 3 + [0.0], dtype=torch.float32)
    for found in (0.0, torch.nan):
        assert judge(case, Inputs((x, 0)), [torch.tensor(found)]).status in ("pass", "vacuous")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_scaled_operand_may_overflow_before_the_sum_does_not(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    x = torch.tensor([-most, most, 1.0] * 40, dtype=dtype)
    y = torch.tensor([-most / 2, -most / 2, 1.0] * 40, dtype=dtype)
    fused = torch.tensor([most / 4, INF, -1.5] * 40, dtype=dtype)
    for got, status in (
        (fused, "pass"),
        (torch.where(fused == most / 4, INF, fused), "pass"),
        (torch.where(fused.isinf(), most, fused), "fail"),
        (-fused, "fail"),
    ):
        found = verdict("sub", "aten.sub.Tensor", (x, y), [got], alpha=2.5)
        assert found.status == status, found.sentence
