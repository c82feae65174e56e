"""Tensors that are alive together do not share memory."""

from hypothesis import given
from hypothesis import strategies as st

from keel.schedule.memory_plan import ALIGNMENT, Lifetime, pack

lifetimes = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 30),
        st.integers(0, 10),
    ),
    max_size=30,
)


@given(lifetimes)
def test_tensors_alive_together_do_not_overlap(lives):
    offsets, total = pack(lives)
    spans = [(o, o + t.size, t) for o, t in zip(offsets, lives, strict=True)]
    for k, (low, high, mine) in enumerate(spans):
        assert low % ALIGNMENT == 0 and high <= total
        for start, end, other in spans[:k]:
            together = mine.first <= other.last and other.first <= mine.last
            assert not together or high <= start or end <= low


def test_a_chain_needs_room_for_two():
    lives = [Lifetime(1024, k, k + 1) for k in range(20)]
    assert pack(lives)[1] == 2048


def test_nothing_needs_no_room():
    assert pack([]) == ((), 0)
