"""No legal computation breaks a bound: other orders of sums, FMA, more precision, other formulas."""

from __future__ import annotations

from typing import Any

import legal_evaluations as legal
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_helpers import verdict
from torch import Tensor

from keel.opset import MEMBERS
from keel_conformance.cases.case import Case, Inputs
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import plan
from keel_conformance.oracles.error_rules import flat
from keel_conformance.oracles.judge import judge, target_of
from keel_conformance.oracles.running_error import analyze
from keel_conformance.oracles.tracked_tensor import error_of, errors, plain_of, tracked, ulp

aten = torch.ops.aten
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6)
INF = float("inf")
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=40), st.sampled_from(sorted(legal.WAYS)))
def test_every_order_of_a_sum_of_products_is_within_the_bound(pairs: list[tuple[float, float]], way: str) -> None:
    x, y = (torch.tensor(v, dtype=torch.float32) for v in zip(*pairs, strict=True))
    got = torch.tensor([[legal.WAYS[way](x, y)]])
    found = verdict("mm", "aten.mm.default", (x[None], y[:, None]), [got])
    assert found.status in ("pass", "vacuous"), found.sentence


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=60), st.sampled_from(sorted(legal.WAYS)))
def test_small_integers_are_exact_in_every_order(numbers: list[int], way: str) -> None:
    x = torch.tensor(numbers, dtype=torch.float32)
    got = torch.tensor(legal.WAYS[way](x, torch.ones_like(x)))
    found = verdict("sum", "aten.sum.dim_IntList", (x, [0]), [got], frozenset({"exact"}))
    assert found.status == "pass" and found.oracle == "exact by construction", found.sentence


@settings(max_examples=100, deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=8), st.sampled_from(["exp", "log1p", "sin", "tanh", "sqrt", "erf"]))
def test_what_is_rounded_once_is_within_the_bound(numbers: list[float], name: str) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.tensor(numbers, dtype=torch.float64).to(dtype)
        op = getattr(aten, name).default
        found = verdict(name, str(op), (x,), [op(x.double()).to(dtype)])
        assert found.status in ("pass", "vacuous"), (x, found.sentence)


def convolution(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    result: Tensor,
    *,
    padding: int = 1,
    stride: int = 1,
    transposed: bool = False,
) -> str:
    args = (x, w, bias, [stride], [padding], [1], transposed, [0], 1)
    return str(verdict("convolution", "aten.convolution.default", args, [result]).status)


def test_a_bias_may_be_added_to_what_is_rounded() -> None:
    draw = torch.Generator().manual_seed(0)
    x, w, bias = (torch.randn(n, generator=draw).bfloat16() for n in ((2, 8, 33), (6, 8, 3), (6,)))
    plain = torch.conv1d(x.float(), w.float(), padding=1)
    twice = plain.bfloat16() + bias[:, None]
    assert convolution(x, w, bias, twice) == "pass"
    assert convolution(x, w, bias, (plain.bfloat16() * 1.02).bfloat16() + bias[:, None]) == "fail"
    assert convolution(x, w, None, plain.bfloat16()) == "pass"


@pytest.mark.parametrize("transposed", [False, True])
def test_an_infinite_weight_at_padding_gives_nan_or_nothing(transposed: bool) -> None:
    x, w = torch.ones(1, 2, 4), torch.ones(2, 2, 3)
    w[1, 0, 0] = INF
    channel, alone, met = (0, 1, 2) if transposed else (1, 0, 1)  # places that it does not, and does, reach x from
    way = {"padding": 2, "stride": 2, "transposed": transposed}
    right = aten.convolution.default(x, w, None, [2], [2], [1], transposed, [0], 1)
    assert bool(right[0, channel, met].isinf())

    def changed(channel: int, place: int, value: float) -> str:
        result = right.clone()
        result[0, channel, place] = value
        return convolution(x, w, None, result, **way)

    assert {changed(channel, alone, v) for v in (INF, torch.nan, 2.0)} <= {"pass", "vacuous"}
    assert changed(channel, met, torch.nan) == changed(channel, met, 2.0) == "fail"
    assert changed(1 - channel, alone, torch.nan) == "fail"


def keys(t: Tensor) -> Tensor:
    """The four weights of cubic convolution as sums of powers, as PyTorch's kernels have them."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return torch.stack([far(t + 1), near(t), near(1 - t), far(2 - t)], -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_of_cubic_convolution_may_cancel(dtype: torch.dtype) -> None:
    """In samples next to elements, where two of four weights are nearly 0."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 4, 32, generator=draw, dtype=dtype)
    at = torch.randint(4, 27, (64,), generator=draw) + 1e-5 + 1e-4 * torch.rand(64, generator=draw)
    grid = torch.stack([((2 * at + 1) / 32 - 1).to(dtype), torch.full((64,), -0.15, dtype=dtype)], -1)[None, None]
    places = [((grid[0, 0, :, k] + 1) * n - 1) / 2 for k, n in ((0, 32), (1, 4))]
    across, down = (keys(p - p.floor()) for p in places)
    columns = places[0].long()[:, None] + torch.arange(-1, 3)
    weights = down[:, :, None] * across[:, None]  # [sample, row, column]
    result = (x[0, 0][:, columns].transpose(0, 1) * weights).sum((1, 2)).reshape(1, 1, 1, 64)
    args = (x, grid, 2, 0, False)
    name = ("grid_sampler", "aten.grid_sampler_2d.default")
    assert verdict(*name, args, [result]).status == "pass"
    assert verdict(*name, args, [result + 1e-3]).status == "fail"
    gradient = torch.randn(1, 1, 1, 64, generator=draw, dtype=dtype)
    parts = gradient.flatten()[:, None, None] * weights
    dx = torch.zeros(4, 32, dtype=dtype).index_put((torch.arange(4)[:, None], columns[:, None]), parts, True)
    _, dgrid = aten.grid_sampler_2d_backward.default(gradient, *args, [True, True])
    name, given = ("grid_sampler_backward", "aten.grid_sampler_2d_backward.default"), (gradient, *args, [True, True])
    found = verdict(*name, given, [dx.reshape(x.shape), dgrid])
    assert found.status == "pass", found.sentence
    assert verdict(*name, given, [dx.reshape(x.shape) * 1.01, dgrid]).status == "fail"
    assert verdict(*name, given, [dx.reshape(x.shape), dgrid * 1.01]).status == "fail"


def formulas(x: Tensor) -> dict[str, Tensor]:
    """softmax, each way legal."""
    top = x.amax(-1, keepdim=True)
    e = (x - top).exp()
    return {
        "plain": e / e.sum(-1, keepdim=True),
        "backwards": e / e.flip(-1).cumsum(-1)[..., -1:],
        "wide": torch.softmax(x.double(), -1).to(x.dtype),
        "inverse": e * (1 / e.sum(-1, keepdim=True)),
        "logarithm": (x - top - e.sum(-1, keepdim=True).log()).exp(),
    }


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 70),
    st.sampled_from([1.0, 10.0, 80.0]),
    st.integers(0, 1000),
    st.sampled_from(["plain", "backwards", "wide", "inverse"]),
)
def test_formulas_of_a_composite_are_within_the_bound(size: int, reach: float, seed: int, which: str) -> None:
    x = torch.randn(3, size, generator=torch.Generator().manual_seed(seed)) * reach
    found = verdict("softmax", "aten._softmax.default", (x, -1, False), [formulas(x)[which]])
    assert found.status == "pass", found.sentence


@settings(max_examples=200, deadline=None)
@given(FINITE, st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_rounding_to_nearest_is_off_by_half_an_ulp(number: float, dtype: torch.dtype) -> None:
    x = torch.tensor(number, dtype=torch.float64)
    near = x.to(dtype).double()
    if near.isfinite():
        assert float((near - x).abs()) <= 0.5 * float(ulp(x, dtype))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, float("nan")]), min_size=1, max_size=12), st.integers(0, 100))
def test_any_order_of_equals_is_a_sort_unless_it_must_be_stable(numbers: list[float], seed: int) -> None:
    x = torch.tensor(numbers)
    mixed = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    where = x[mixed].sort(dim=0, stable=True)[1]
    found = verdict("sort", "aten.sort.default", (x, 0, False), [x[mixed[where]], mixed[where]])
    assert found.status == "pass", found.sentence
    k = max(1, len(x) // 2)
    top = x[mixed].sort(dim=0, descending=True, stable=True)[1][:k]
    found = verdict("topk", "aten.topk.default", (x, k), [x[mixed[top]], mixed[top]])
    assert found.status == "pass", found.sentence


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_any_signs_of_factors_are_right(sign: float) -> None:
    a = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    q, r = torch.linalg.qr(a)
    flip = torch.tensor([sign, -sign, 1.0])
    found = verdict(
        "linalg_qr",
        "aten.linalg_qr.default",
        (a,),
        [(q * flip).mT.contiguous().mT, (r * flip[:, None]).mT.contiguous().mT],
    )
    assert found.status == "pass", found.sentence
    w, v = torch.linalg.eigh(a.mT @ a)
    found = verdict("eigh", "aten._linalg_eigh.default", (a.mT @ a,), [w, (v * flip).mT.contiguous().mT])
    assert found.status == "pass", found.sentence


def test_one_of_the_elements_written_to_a_place_stands_there() -> None:
    x, index, src = torch.zeros(4), torch.tensor([1, 1, 3]), torch.tensor([5.0, 6.0, 7.0])
    for kept, status in ((5.0, "pass"), (6.0, "pass"), (11.0, "fail")):
        got = torch.tensor([0.0, kept, 0.0, 7.0])
        assert verdict("scatter", "aten.scatter.src", (x, 0, index, src), [got]).status == status
        assert verdict("index_put", "aten.index_put.default", (x, [index], src), [got]).status == status


def by_eager(name: str, overload: str, *args: Any) -> str:
    """The status of what eager PyTorch itself gives."""
    return str(verdict(name, overload, args, flat(target_of(name, overload)(*args))).status)


def test_an_average_by_a_negative_divisor() -> None:
    x = torch.rand(1, 2, 6, 6, generator=torch.Generator().manual_seed(0)) - 0.5
    args = (x, [3, 3], [1, 1], [0, 0], False, True, -4)
    assert by_eager("avg_pool2d", "aten.avg_pool2d.default", *args) == "pass"


def test_pivots_of_complex_matrices() -> None:
    """LAPACK takes the largest |re| + |im|, by which 0.8 + 0.8i goes before 1.5."""
    a = torch.tensor([[1.5, 1], [0.8 + 0.8j, 2]], dtype=torch.complex64)
    assert by_eager("lu_factor", "aten.linalg_lu_factor_ex.default", a) == "pass"


@pytest.mark.parametrize("pivot", [0, 3])
def test_pivots_that_name_no_row_are_the_backends_failure(pivot: int) -> None:
    a = torch.eye(2)
    lu, _, info = torch.linalg.lu_factor_ex(a)
    found = verdict(
        "lu_factor", "aten.linalg_lu_factor_ex.default", (a,), [lu, torch.tensor([1, pivot], dtype=torch.int32), info]
    )
    assert (found.status, found.sentence) == ("fail", f"A pivot names no row: [1, {pivot}], of matrices of 2.")


def test_a_piece_that_an_operator_refuses_is_no_error_of_the_suite() -> None:
    """It is written in Python, and asserts that there is a scale for each row."""
    x, scales, zeros = torch.rand(9, 3), torch.full((9, 1), 0.5), torch.zeros(9, 1, dtype=torch.int64)
    wrong = torch.full((9, 3), 77, dtype=torch.int8)
    found = verdict(
        "quantize_per_token",
        "quantized_decomposed.quantize_per_token.default",
        (x, scales, zeros, -128, 127, torch.int8),
        [wrong],
    )
    assert found.status == "fail"


def test_what_an_unknown_index_picks_is_unknown_alone() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    near = tracked(
        torch.tensor([0.5, 0.999999]),
        analyze,
        torch.tensor([0.5, 1.0], dtype=torch.float64),
        torch.tensor([0.0, 1e-6], dtype=torch.float64),
    )
    index = analyze(aten._to_copy.default, [near], {"dtype": torch.int64})
    picked = analyze(aten.index.Tensor, [tracked(x, analyze), [None, index]], {})
    gathered = analyze(aten.gather.default, [tracked(x, analyze), 1, index.expand(2, 2)], {})
    for found in (picked, gathered):
        assert error_of(found).tolist() == [[0.0, float("inf")]] * 2


@pytest.mark.parametrize(("name", "overload"), [("sum", "aten.sum.dim_IntList"), ("cumsum", "aten.cumsum.default")])
def test_sums_that_are_told_to_be_complex_are_judged(name: str, overload: str) -> None:
    x = torch.randn(3, 16, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    dim: Any = [1] if name == "sum" else 1
    right = target_of(name, overload)(x, dim, dtype=torch.complex128)
    assert verdict(name, overload, (x, dim), [right], dtype=torch.complex128).status == "pass"
    assert verdict(name, overload, (x, dim), [right + 1e-6], dtype=torch.complex128).status == "fail"


@pytest.mark.parametrize("name", ["kaiser_window", "blackman_window", "linspace", "range_inclusive"])
def test_what_is_made_of_numbers_alone_is_analyzed(name: str) -> None:
    op, args = {
        "kaiser_window": (aten.kaiser_window.beta, (33, True, 5.3)),
        "linspace": (aten.linspace.default, (0.1, 2.7, 9)),
        "blackman_window": (aten.blackman_window.default, (33,)),
        "range_inclusive": (aten.range.step, (-1, 1, 0.1)),
    }[name]
    case, right = Case(name, "", "op", "core", str(op)), op(*args)
    precise = op(*args, dtype=torch.float64).float()  # another right way
    wrong = right.clone()
    wrong[len(wrong) // 3] *= 1 + 2.0**-14
    for result, statuses in ((right, ("pass", "quality warning")), (precise, ("pass",)), (wrong, ("fail",))):
        found = judge(case, Inputs(args), [result])
        assert found.status in statuses and found.oracle == "composite", found


def test_integers_are_added_without_error_in_float64_too() -> None:
    x = tracked(torch.tensor([3.0, 0.1]).double(), analyze)
    assert error_of(x + 1).tolist()[0] == 0 and error_of(x + 1).tolist()[1] > 0


@pytest.mark.skipif(not MEMBERS["linear_cross_entropy"].targets, reason="this PyTorch lacks the operator")
def test_a_result_without_elements_hides_no_other() -> None:
    (op,) = MEMBERS["linear_cross_entropy"].targets
    for case in plan(ops=("linear_cross_entropy",), profile="strict"):
        if case.kind == "op" and (case.dtype, case.levels["values"]) == ("f32", "random"):
            inputs = draw_inputs(case, 0)
            right = list(flat(op(*inputs.args, **inputs.kwargs)))
            if not right[-1].numel():
                break
    assert right[0].numel() and not right[-1].numel()
    assert judge(case, inputs, right).oracle == "composite"
    assert judge(case, inputs, [right[0] * 1.01, *right[1:]]).status == "fail"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_changes_nothing_has_no_error(dtype: torch.dtype) -> None:
    x, zero = (tracked(torch.tensor(v, dtype=dtype), analyze) for v in ([0.1, 0.7], [0.0, 0.3]))
    off = x / 3
    for known, found in (
        (True, x + zero),
        (True, x - zero),
        (True, off * zero),
        (True, x * 1),
        (False, off + zero),
        (False, x * 3),
    ):
        assert (float(errors(found)[0]) == 0) == known
    assert float(errors(x + zero)[1]) > 0


def test_places_are_known_where_errors_do_not_reach() -> None:
    rows = tracked(torch.tensor([0.3, 0.6, 0.9]), analyze) / 3
    values = torch.tensor([0.15, float(plain_of(rows)[1]), 0.25])
    found = aten.searchsorted.Tensor(rows, values)
    assert plain_of(found).tolist()[::2] == [1, 2] and errors(found).isinf().tolist() == [False, True, False]


def test_the_place_of_a_number_among_integers_is_known() -> None:
    rows = torch.tensor([1, 2, 3])
    said = [
        verdict("searchsorted_number", "aten.searchsorted.Scalar", (rows, 2.5), [torch.tensor(k)]).status
        for k in (2, 1)
    ]
    assert said == ["pass", "fail"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=32, min_value=-4, max_value=4), min_size=1, max_size=30),
    st.integers(1, 7),
    st.randoms(use_true_random=False),
)
def test_elements_beside_an_edge_count_in_either_bin(numbers: list[float], bins: int, random: Any) -> None:
    x = torch.tensor([*numbers, *torch.linspace(-1, 1, bins + 1).tolist()], dtype=torch.float32)
    edges = torch.linspace(-1, 1, bins + 1, dtype=torch.float64).float()
    near = torch.tensor([float(e) + random.choice((-1, 0, 1)) * float(ulp(e.double(), torch.float32)) for e in edges])
    counts = torch.histogram(x, torch.cat([edges[:1], near[1:-1], edges[-1:]]).sort().values)[0]
    found = verdict("histogram_of_count", "aten.histogram.bin_ct", (x, bins), [counts, edges], range=[-1.0, 1.0])
    assert found.status in ("pass", "vacuous", "quality warning"), found.sentence


def test_a_lost_count_is_seen_beside_one_that_may_be_in_either_bin() -> None:
    x = torch.linspace(-1, 1, 8)[:7].repeat(9)  # edges of seven bins, as near as may be
    counts, edges = torch.histogram(x, 7, range=(-1.0, 1.0))
    wrong = verdict("histogram_of_count", "aten.histogram.bin_ct", (x, 7), [counts * 9, edges], range=[-1.0, 1.0])
    assert wrong.status == "fail"


def test_functions_of_float64_are_held_to_what_they_are_and_not_to_eager() -> None:
    """Eager PyTorch's log1p loses the least numbers, and its digamma all digits beside a pole."""
    x = torch.tensor([5e-324, -5e-324, 1e-310, 0.5] * 300, dtype=torch.float64)
    case = Case("log1p", "", "op", "core", "aten.log1p.default")
    right = torch.where(x == 0.5, aten.log1p.default(x[3]), x)
    assert judge(case, Inputs((x,)), [right]).status == "pass"
    assert judge(case, Inputs((x,)), [right + 1e-300]).status == "fail"
    x = torch.tensor([-0.9999999999999999, -0.25] * 8, dtype=torch.float64)
    case = Case("digamma", "", "op", "core", "aten.digamma.default")
    right = torch.tensor([-9007199254740992.0, 2.9141391202135277] * 8, dtype=torch.float64)
    assert judge(case, Inputs((x,)), [right]).status == "pass"
    assert judge(case, Inputs((x,)), [aten.digamma.default(x)]).status in ("pass", "quality warning")
    assert judge(case, Inputs((x,)), [right * 0.7]).status == "fail"


def test_a_normalization_may_add_one_number_that_has_the_mean_in_it() -> None:
    """x s + (b - mean s), which cancels where the mean is large and loses what (x - mean) s keeps."""
    x = torch.linspace(999.0, 1001.0, 12).reshape(2, 6)
    mean, rstd = x.mean(-1, keepdim=True), 1 / (x.double().var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    case = Case("layer_norm", "", "op", "core", "aten.native_layer_norm.default")
    inputs = Inputs((x, [6], None, None, 1e-5))
    scale = rstd.float()
    for shift, status in ((-mean * scale, "pass"), (-mean * scale * (1 + 1e-5), "fail")):
        assert judge(case, inputs, [x * scale + shift, mean, scale]).status == status


def test_what_eager_loses_of_arguments_that_lie_otherwise_is_no_failure() -> None:
    """Its vectors of gelu's gradient give 0 far out, its code for single elements does not."""
    x, grad = torch.full((64,), -8.5), torch.full((64,), -5.0)
    op = torch.ops.aten.gelu_backward.default
    case = Case("gelu_backward", "", "op", "core", "aten.gelu_backward.default")
    apart = Inputs((grad.repeat_interleave(2)[::2], x.repeat_interleave(2)[::2]))
    assert judge(case, apart, [op(grad, x)]).status in ("pass", "quality warning")
    assert judge(case, apart, [op(grad, x) + 1e-3]).status == "fail"


def test_powers_of_two_round_no_product() -> None:
    """A thousand of them, and one other factor: the result is that one."""
    x = torch.tensor([2.0, 0.5] * 20 + [1.0] * 960 + [1 + 2.0**-7]).bfloat16()
    case = Case("prod", "", "op", "core", "aten.prod.dim_int")
    for places, status in ((0, "pass"), (3, "fail")):
        got = torch.tensor(1 + 2.0**-7 + places * 2.0**-7).bfloat16()
        assert judge(case, Inputs((x, 0)), [got]).status == status


def test_what_this_pytorch_has_no_kernel_for_is_not_judged() -> None:
    x = torch.ones(3)
    case = Case("bitwise_and", "", "op", "core", "aten.bitwise_and.Tensor")
    found = judge(case, Inputs((x, x)), [x])
    assert found.status == "not run" and "itself does not do this call. NotImplementedError" in found.sentence


def test_a_failure_says_where_it_is_and_of_which_operands() -> None:
    x, y = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[0.25], [0.5]])
    bad = x + y
    bad[1, 2] = 7
    found = verdict("add", "aten.add.Tensor", (x, y), [bad])
    assert found.sentence.startswith("At (1, 2) it is 7.0, not 3.5") and "1 of 6 elements is wrong" in found.sentence
    assert found.sentence.endswith("There the operands are 3.0 and 0.5.")
    found = verdict("neg", "aten.neg.default", (torch.tensor(4),), [torch.tensor(4)])
    assert found.sentence == "It is 4, not -4; 1 of 1 elements is wrong. There the operand is 4."
    found = verdict("sum", "aten.sum.dim_IntList", (x, [0]), [torch.tensor(9.0)])
    assert found.sentence.startswith("It is 9.0, not 6.0") and "operand" not in found.sentence


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=60))
def test_a_mean_that_is_moved_by_one_element_after_another_is_right_of_integers_too(numbers: list[int]) -> None:
    x = torch.tensor(numbers, dtype=torch.float32)
    mean, squares = torch.tensor(0.0), torch.tensor(0.0)
    for k, value in enumerate(x, 1):
        apart = value - mean
        mean = mean + apart / k
        squares = squares + apart * (value - mean)
    found = verdict("var_mean", "aten.var_mean.correction", (x, [0]), [squares / (len(x) - 1), mean])
    assert found.status in ("pass", "vacuous"), found.sentence
    assert (
        verdict("var_mean", "aten.var_mean.correction", (x, [0]), [squares / (len(x) - 1), mean + 0.01]).status
        == "fail"
    )


@pytest.mark.parametrize("center", [0.0, 1000.0])
def test_slopes_of_normalizations_by_sums_are_right(center: float) -> None:
    torch.manual_seed(0)
    grad, x, weight = torch.randn(6, 16), torch.randn(6, 16) + center, torch.randn(16)
    _, mean, rstd = torch.native_layer_norm(x, [16], weight, None, 1e-5)
    mask = [False, True, False]
    args = (grad, x, [16], mean, rstd, weight, None, mask)
    slope = (grad * x * rstd).sum(0) - (grad * mean * rstd).sum(0)
    call = ("layer_norm_backward", "aten.native_layer_norm_backward.default", args)
    assert verdict(*call, [None, slope, None]).status == "pass"
    assert verdict(*call, [None, slope * (1 + 1e-2), None]).status == "fail"
    args = (
        grad.view(2, 4, 12),
        x.view(2, 4, 12),
        mean[:4].view(2, 2),
        rstd[:4].view(2, 2),
        weight[:4],
        2,
        4,
        12,
        2,
        mask,
    )
    sums, scales = (grad.view(2, 4, 12) * x.view(2, 4, 12)).sum(-1), rstd[:4].view(2, 2, 1)
    slope = ((sums.view(2, 2, 2) - grad.view(2, 2, 2, 12).sum(-1) * mean[:4].view(2, 2, 1)) * scales).sum(0).view(4)
    call = ("group_norm_backward", "aten.native_group_norm_backward.default", args)
    assert verdict(*call, [None, slope, None]).status == "pass"
    assert verdict(*call, [None, slope.roll(1), None]).status == "fail"


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_another_solution_in_float64_is_as_right_as_eagers(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    a = torch.randn(9, 9, dtype=dtype, generator=draw) + torch.diag(10.0 ** -torch.arange(9.0)).to(dtype)
    b = torch.randn(9, 2, dtype=dtype, generator=draw)
    lu, pivots = torch.linalg.lu_factor(a)
    other = torch.linalg.solve(a.flip(0), b.flip(0))
    call = ("linalg_lu_solve", "aten.linalg_lu_solve.default", (lu, pivots, b))
    found = verdict(*call, [other])
    assert found.status == "pass", (found.oracle, found.sentence)
    assert verdict(*call, [other * (1 + 1e-9)]).status == "fail"
