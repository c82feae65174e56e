"""The error budget: what counts as eager's error, what as a difference in class, what passes and what does not."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from keel_bench.error_metrics import Comparison, Verdict, compare, judge, same_classes

EPS = torch.finfo(torch.float32).eps


def verdict(x: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, name: str = "output") -> Verdict:
    return judge([compare({name: x}, {name: eager}, {name: exact})])[0]


def off(exact: torch.Tensor, relative: float) -> torch.Tensor:
    return (exact * (1 + relative)).float()


def test_the_error_is_a_multiple_of_eagers() -> None:
    exact = torch.linspace(1, 2, 100, dtype=torch.float64)
    found = verdict(off(exact, 3e-3), off(exact, 1e-3), exact)
    assert math.isclose(found.times, 3, rel_tol=1e-3)
    assert math.isclose(found.eager, 1e-3, rel_tol=1e-3)
    assert not found.holds
    assert verdict(off(exact, 1.9e-3), off(exact, 1e-3), exact).holds


def test_an_exact_eager_still_leaves_room_for_rounding() -> None:
    exact = torch.linspace(1, 2, 100, dtype=torch.float64).float().double()
    assert verdict(off(exact, 1.9 * EPS), exact.float(), exact).holds
    assert not verdict(off(exact, 4 * EPS), exact.float(), exact).holds


def test_a_zero_must_be_zero() -> None:
    zero = torch.zeros(3, dtype=torch.float64)
    assert verdict(zero.float(), zero.float(), zero).times == 0
    assert verdict(zero.float() + 1e-30, zero.float(), zero).times == math.inf


def test_draws_are_pooled() -> None:
    exact = torch.ones(4, dtype=torch.float64)
    lucky = compare({"x": off(exact, 3e-3)}, {"x": off(exact, 1e-5)}, {"x": exact})
    usual = compare({"x": off(exact, 3e-3)}, {"x": off(exact, 3e-3)}, {"x": exact})
    assert not judge([lucky])[0].holds
    assert judge([lucky, usual])[0].holds


def test_a_running_mean_is_measured_against_the_spread_of_its_data() -> None:
    names = ("buffer bn.running_mean", "buffer bn.running_var")
    exact = dict(
        zip(names, (torch.full((3,), 1e-12, dtype=torch.float64), torch.ones(3, dtype=torch.float64)), strict=True)
    )
    eager = {n: t.float() for n, t in exact.items()}
    near = {**eager, names[0]: torch.full((3,), 1e-9)}
    far = {**eager, names[0]: torch.full((3,), 1e-5)}
    assert all(v.holds for v in judge([compare(near, eager, exact)]))
    assert not all(v.holds for v in judge([compare(far, eager, exact)]))


def test_classes_are_compared_with_eager_and_left_out_of_the_norm() -> None:
    exact = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    eager = torch.tensor([1.0, math.inf, 3.0])
    assert verdict(eager.clone(), eager, exact).holds
    for wrong in (-math.inf, math.nan, 2.0):
        assert not verdict(torch.tensor([1.0, wrong, 3.0]), eager, exact).holds


def test_another_shape_or_dtype_is_wrong() -> None:
    exact = torch.ones(4, dtype=torch.float64)
    assert not verdict(torch.ones(2, 2), exact.float(), exact).holds
    assert not verdict(exact, exact.float(), exact).holds


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan]), max_size=8))
def test_a_tensor_has_its_own_classes(values: list[float]) -> None:
    x = torch.tensor(values)
    assert same_classes(x, x.clone())
    if any(math.isnan(v) or math.isinf(v) for v in values):
        assert not same_classes(x, torch.zeros_like(x))


def test_at_a_kink_the_exact_results_jump_is_the_budget() -> None:
    exact = torch.ones(4, dtype=torch.float64)
    (smooth,) = compare({"x": off(exact, 1e-6)}, {"x": off(exact, 1e-6)}, {"x": exact}).values()
    (flipped,) = compare({"x": off(exact, 1e-2)}, {"x": off(exact, 1e-6)}, {"x": exact}).values()

    def judged(*draws: Comparison) -> Verdict:
        return judge([{"x": d} for d in draws])[0]

    assert not judged(smooth, flipped).holds
    jump = flipped.squared_scale * 1e-4
    assert judged(smooth, replace(flipped, squared_motion=jump)).holds
    assert not judged(smooth, replace(flipped, squared_motion=jump / 5)).holds
    assert not judged(smooth, replace(flipped, squared_motion=4 * flipped.squared_least)).holds  # as any smooth tensor


def test_one_kink_does_not_excuse_other_draws() -> None:
    exact = torch.ones(4, dtype=torch.float64)
    (wrong,) = compare({"x": off(exact, 1e-2)}, {"x": off(exact, 1e-6)}, {"x": exact}).values()
    found = judge([{"x": wrong}, {"x": replace(wrong, squared_motion=wrong.squared_scale * 1e-4)}])[0]
    assert found.kinks == 1 and found.jump <= 2 and not found.holds


def test_a_draw_at_which_eager_jumps_hides_nothing() -> None:
    exact = torch.ones(4, dtype=torch.float64)
    (wrong,) = compare({"x": off(exact, 1e-4)}, {"x": off(exact, 1e-6)}, {"x": exact}).values()
    (jumped,) = compare({"x": off(exact, 1e-4)}, {"x": off(exact, 1e-2)}, {"x": exact}).values()
    (right,) = compare({"x": off(exact, 1e-6)}, {"x": off(exact, 1e-2)}, {"x": exact}).values()
    assert not judge([{"x": d} for d in (wrong, wrong, jumped)])[0].holds
    (smooth,) = compare({"x": off(exact, 1e-6)}, {"x": off(exact, 1e-6)}, {"x": exact}).values()
    assert judge([{"x": d} for d in (smooth, smooth, right)])[0].holds


def test_draws_of_other_sizes_are_no_kinks() -> None:
    exact = torch.linspace(1, 2, 50, dtype=torch.float64)
    draws = [
        compare({"x": off(exact * size, 2e-6)}, {"x": off(exact * size, 1e-6)}, {"x": exact * size})
        for size in (1.0, 1.0, 100.0)
    ]
    (found,) = judge(draws)
    assert found.kinks == 0 and math.isclose(found.times, 2, rel_tol=0.1)


def test_a_draw_that_cancels_to_little_is_no_kink() -> None:
    exact = torch.linspace(1, 2, 50, dtype=torch.float64)
    (usual,) = compare({"x": off(exact, 1e-6)}, {"x": off(exact, 1e-6)}, {"x": exact}).values()
    little = replace(
        usual,
        squared_scale=usual.squared_scale * 1e-6,
        squared_motion=usual.squared_eager,
        squared_error=usual.squared_eager * 9,
    )
    (found,) = judge([{"x": d} for d in (*[usual] * 20, little)])
    assert found.kinks == 0 and found.holds


def test_a_kink_is_told_of_what_cancels_to_nothing_in_most_draws() -> None:
    exact = torch.linspace(1, 2, 50, dtype=torch.float64)
    (nothing,) = compare({"x": off(exact, 1e-2)}, {"x": off(exact, 1e-2)}, {"x": exact}).values()
    nothing = replace(
        nothing,
        squared_scale=nothing.squared_scale * 1e-6,
        squared_error=nothing.squared_error * 1e-6,
        squared_eager=nothing.squared_eager * 1e-6,
    )
    (large,) = compare({"x": off(exact, 1e-6)}, {"x": off(exact, 1e-6)}, {"x": exact}).values()
    flipped = replace(large, squared_error=large.squared_scale * 1e-4, squared_motion=large.squared_scale * 1e-4)
    (found,) = judge([{"x": d} for d in (*[nothing] * 9, large, flipped)])
    assert found.kinks == 1 and found.holds
    assert not judge([{"x": d} for d in (*[nothing] * 9, large, replace(flipped, squared_motion=0.0))])[0].holds


def test_what_kinks_do_not_explain_in_most_draws_is_wrong() -> None:
    exact = torch.ones(4, dtype=torch.float64)
    (right,) = compare({"x": off(exact, 1e-6)}, {"x": off(exact, 1e-6)}, {"x": exact}).values()
    unlike = replace(right, unexplained=3.0)
    assert judge([{"x": d} for d in (right, right, unlike)])[0].holds
    assert not judge([{"x": d} for d in (right, unlike, unlike)])[0].holds


def test_what_is_zero_in_exact_arithmetic_is_compared_as_noise() -> None:
    exact = torch.full((8,), 1e-18, dtype=torch.float64)
    eager = torch.full((8,), 1e-9)
    assert verdict(5 * eager, eager, exact).holds
    assert not verdict(9 * eager, eager, exact).holds
    assert not verdict(5 * eager, eager, torch.full((8,), 2e-9, dtype=torch.float64)).holds


def test_samples_of_one_noise_are_alike() -> None:
    """Each of twelve draws; elements that move together, as those of a gradient may."""
    generator = torch.Generator().manual_seed(0)
    zero = torch.full((4,), 1e-18, dtype=torch.float64)
    ours, eager = (torch.randn(1000, 12, 1, generator=generator).expand(-1, -1, 4) * 1e-9 for _ in range(2))
    over = [
        not judge([compare({"x": a}, {"x": b}, {"x": zero}) for a, b in zip(*pair, strict=True)])[0].holds
        for pair in zip(ours, eager, strict=True)
    ]
    assert not any(over)
