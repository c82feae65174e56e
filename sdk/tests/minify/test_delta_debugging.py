"""Delta debugging leaves what is needed, and nothing that is not, in the time that it has."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from keel.minify import Deadline, ddmin, greedy_descent


@given(st.sets(st.integers(0, 63), max_size=6), st.integers(1, 64))
def test_what_is_needed_is_left(needed: set[int], count: int) -> None:
    wanted = {n for n in needed if n < count}

    def fails(some: Sequence[int]) -> bool:
        return wanted <= {*some}

    assert ddmin(range(count), fails, Deadline(60.0)) == sorted(wanted)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_no_single_one_can_be_left_out(items: list[int]) -> None:
    def fails(some: Sequence[int]) -> bool:
        return sum(some) % 3 == sum(items) % 3 and len(some) > 0

    found = ddmin(items, fails, Deadline(60.0))
    assert fails(found) and not any(fails(found[:k] + found[k + 1 :]) for k in range(len(found)))


def test_time_ends_it() -> None:
    tries: list[int] = []

    def fails(some: Sequence[int]) -> bool:
        tries.append(len(some))
        return True

    assert ddmin(range(100), fails, Deadline(0.0)) == list(range(100)) and not tries
    assert greedy_descent(100, lambda n: iter([n - 1]), lambda n: n > 40, Deadline(60.0)) == 41
    assert greedy_descent(100, lambda n: iter([n - 1]), lambda n: True, Deadline(0.0)) == 100
