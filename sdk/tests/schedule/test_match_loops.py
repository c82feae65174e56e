"""The axes of two loop nests are matched, or there is no solution."""

import pytest

from keel.loops.index import Axis, index, unflatten
from keel.schedule.match_loops import MixedRadix, NoSolution, Solution, radix
from keel.types import symbol

a, b, c = Axis("a", 4), Axis("b", 12), Axis("c", 64)


def solve(lefts, rights, sizes):
    solution = Solution(MixedRadix("x"), MixedRadix("y"))
    solution.equate(lefts, rights, sizes)
    return solution


def test_equal_loops_match_axis_by_axis():
    p, q = Axis("p", 4), Axis("q", 12)
    solution = solve([index(p), index(q)], [index(a), index(b)], [4, 12])
    assert solution.value(index(p) * 12 + q) == index(a) * 12 + b


def test_permuted_loops_match():
    p, q = Axis("p", 12), Axis("q", 4)
    solution = solve([index(q), index(p)], [index(a), index(b)], [4, 12])
    assert solution.value(index(p)) == index(b)


def test_a_merged_dimension_is_split_into_the_groups_axes():
    p = Axis("p", 768)
    solution = solve([index(p) // 64, index(p) % 64], [index(b), index(c)], [12, 64])
    assert solution.value(index(p)) == index(b) * 64 + c


def test_a_group_axis_is_refined_for_a_consumer_that_splits_it():
    h, p, q = Axis("h", 768), Axis("p", 12), Axis("q", 64)
    solution = solve([index(p) * 64 + q], [index(h)], [768])
    high, low = solution.value(index(p)), solution.value(index(q))
    assert solution.y.now(index(h)) == high * 64 + low


def test_symbolic_sizes_match():
    s = symbol("s0")
    n, h = Axis("n", s), Axis("h", 768)
    p = Axis("p", s * 768)
    solution = solve(unflatten(index(p), (s, 768)), [index(n), index(h)], [s, 768])
    assert solution.value(index(p)) == index(n) * 768 + h


def test_refining_a_matched_axis_again_splits_both_sides():
    p, h = Axis("p", 768), Axis("h", 768)
    solution = solve([index(p)], [index(h)], [768])
    solution.equate([index(p) // 64], [index(h) // 64], [12])
    assert solution.y.now(solution.value(index(p))) == solution.y.now(index(h))


@pytest.mark.parametrize(
    ("left", "right", "size"),
    [
        (index(Axis("p", 4)) + 1, index(a), 4),  # shifted
        (index(Axis("p", 8)) * 2, index(Axis("z", 16)), 16),  # strided
        (index(Axis("p", 6)), index(b), 12),  # covers a part
        (index(Axis("p", 10)), index(Axis("z", 15)), 30),  # radices that share no refinement
    ],
)
def test_what_is_no_bijection_has_no_solution(left, right, size):
    with pytest.raises(NoSolution):
        solve([left], [right], [size])


def test_radix_orders_digits_from_the_lowest():
    assert radix(index(a) * 768 + index(b) * 64 + c, 4 * 768) == [c, b, a]
    assert radix(index(a) * 768 + c, 4 * 768) is None
