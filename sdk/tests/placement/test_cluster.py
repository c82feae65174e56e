"""The fewest groups, against every grouping there is."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.placement.cluster import cluster, cluster_in_one, delay_to_consumers, fewest, owners

Dag = tuple[list[int], list[list[int]]]


@st.composite
def dags(draw: st.DrawFn, most: int = 7, colors: int = 2) -> Dag:
    """Colors and needs of a random graph of at most ``most`` nodes."""
    size = draw(st.integers(1, most))
    needs = [[u for u in range(v) if draw(st.booleans())] for v in range(size)]
    return draw(st.lists(st.integers(0, colors - 1), min_size=size, max_size=size)), needs


def groupings(colors: Sequence[int], size: int) -> Iterator[list[int]]:
    """Every set partition of ``range(size)`` into groups of one color, as a group number per node."""

    def extend(groups: list[int]) -> Iterator[list[int]]:
        v = len(groups)
        if v == size:
            yield groups
            return
        for g in range(max(groups, default=-1) + 2):
            if all(colors[u] == colors[v] for u, have in enumerate(groups) if have == g):
                yield from extend([*groups, g])

    yield from extend([])


def acyclic(groups: Sequence[int], needs: Sequence[Sequence[int]]) -> bool:
    edges = {(groups[u], groups[v]) for v, wanted in enumerate(needs) for u in wanted if groups[u] != groups[v]}
    left = set(groups)
    while left:
        free = {g for g in left if not any(b == g and a in left for a, b in edges)}
        if not free:
            return False
        left -= free
    return True


def least(colors: Sequence[int], needs: Sequence[Sequence[int]]) -> int:
    return min(len(set(g)) for g in groupings(colors, len(needs)) if acyclic(g, needs))


def holds(groups: Sequence[int], colors: Sequence[int], needs: Sequence[Sequence[int]]) -> bool:
    """Whether groups have one color, need only lower ones, and are numbered without gaps."""
    one_color = all(len({c for c, h in zip(colors, groups, strict=True) if h == g}) == 1 for g in set(groups))
    upward = all(groups[u] <= groups[v] for v, wanted in enumerate(needs) for u in wanted)
    return one_color and upward and set(groups) == set(range(max(groups, default=-1) + 1))


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(dags())
def test_two_colors_give_the_fewest_groups_there_are(dag: Dag) -> None:
    colors, needs = dag
    groups = cluster(colors, needs)
    assert holds(groups, colors, needs)
    assert len(set(groups)) == least(colors, needs)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(dags(most=6), st.lists(st.integers(0, 3), min_size=2, max_size=2))
def test_two_colors_with_prices_give_the_cheapest_groups_there_are(dag: Dag, launch: list[int]) -> None:
    colors, needs = dag
    groups = cluster(colors, needs, launch)
    assert holds(groups, colors, needs)

    def price(of: Sequence[int]) -> int:
        return sum(launch[c] for c in owners(of, colors))

    assert price(groups) == min(price(g) for g in groupings(colors, len(needs)) if acyclic(g, needs))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(dags(most=6, colors=3))
def test_more_colors_give_valid_groups_near_the_fewest(dag: Dag) -> None:
    colors, needs = dag
    groups = cluster(colors, needs)
    assert holds(groups, colors, needs)
    assert fewest(colors, needs) <= least(colors, needs) <= len(set(groups)) <= least(colors, needs) + 1


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(dags(most=20, colors=3), st.randoms(use_true_random=False))
def test_sinking_keeps_groups_valid_and_moves_nodes_only_later(dag: Dag, chance: random.Random) -> None:
    colors, needs = dag
    groups = cluster(colors, needs)
    movable = [chance.random() < 0.5 for _ in needs]
    sunk = delay_to_consumers(groups, colors, needs, movable)
    assert holds(sunk, colors, needs)
    assert len(set(sunk)) <= len(set(groups))
    if len(set(sunk)) == len(set(groups)):
        assert all(a == b if not m else a <= b for a, b, m in zip(groups, sunk, movable, strict=True))


def test_a_constant_sinks_to_its_reader() -> None:
    #        0: a constant   1: first of color 0   2: color 1   3: color 0, reads the constant
    colors, needs = [0, 0, 1, 0], [[], [], [1], [0, 2]]
    assert cluster(colors, needs) == [0, 0, 1, 2]
    assert delay_to_consumers([0, 0, 1, 2], colors, needs, [True, False, False, False]) == [2, 0, 1, 2]


def test_a_node_without_readers_stays() -> None:
    assert delay_to_consumers([0, 1, 2], [0, 1, 0], [[], [0], [1]], [True] * 3) == [0, 1, 2]
    assert delay_to_consumers([0, 0, 1, 2], [0, 0, 1, 0], [[], [], [1], [2]], [True] * 4) == [0, 0, 1, 2]


def test_the_empty_graph_has_no_groups() -> None:
    assert cluster([], []) == [] == delay_to_consumers([], [], [], [])


def chain(size: int, colors: int) -> Dag:
    return [v % colors for v in range(size)], [[v - 1] if v else [] for v in range(size)]


def local(size: int, colors: int) -> Dag:
    chance = random.Random(size)
    needs = [sorted({chance.randrange(max(0, v - 20), v) for _ in range(2)}) if v else [] for v in range(size)]
    return [chance.randrange(colors) for _ in range(size)], needs


@pytest.mark.slow
@pytest.mark.parametrize(("graph", "colors"), [(chain, 2), (local, 3)])
def test_time_grows_with_the_graph_and_not_with_its_square(graph: object, colors: int) -> None:
    assert callable(graph)

    def seconds(size: int) -> float:
        case = graph(size, colors)
        gc.collect()
        gc.disable()
        start = time.process_time()
        cluster(*case)
        gc.enable()
        return time.process_time() - start

    small, large = min(seconds(4_000) for _ in range(5)), min(seconds(64_000) for _ in range(2))
    assert large < 100 * small  # 16 where linear, 256 where quadratic


def test_two_runs_agree() -> None:
    assert cluster(*local(500, 3)) == cluster(*local(500, 3))


# -- sets of nodes in one group ----------------------------------------------------------------------------------------


@st.composite
def dags_with_sets(draw: st.DrawFn) -> tuple[Dag, list[list[int]]]:
    """A graph, and sets of two or three nodes of one color, which may overlap and be in each other's way."""
    colors, needs = draw(dags(most=8))
    sets = []
    for color in set(colors):
        nodes = [v for v, c in enumerate(colors) if c == color]
        if len(nodes) > 1:
            sets += draw(st.lists(st.lists(st.sampled_from(nodes), min_size=2, max_size=3, unique=True), max_size=2))
    return (colors, needs), sets


@settings(deadline=None, max_examples=400)
@given(dags_with_sets())
def test_sets_are_in_one_group_unless_their_nodes_wait_for_each_other(drawn: tuple[Dag, list[list[int]]]) -> None:
    (colors, needs), sets = drawn
    groups, apart = cluster_in_one(colors, needs, sets)
    assert holds(groups, colors, needs)
    together = [nodes for i, nodes in enumerate(sets) if i not in apart]
    assert all(len({groups[v] for v in nodes}) == 1 for nodes in together)
    for i in apart:  # with the sets before it in one block each, it would wait for itself
        block = blocks_of(len(colors), [*(nodes for k, nodes in enumerate(sets) if k < i and k not in apart), sets[i]])
        assert not acyclic(block, needs)


def blocks_of(count: int, sets: Sequence[Sequence[int]]) -> list[int]:
    """A number for each node, the same for the nodes of a set and of sets that overlap it."""
    block = list(range(count))
    for nodes in sets:
        merged = {block[v] for v in nodes}
        block = [min(merged) if b in merged else b for b in block]
    return block


def test_the_fewest_groups_with_a_set_in_one() -> None:
    needs = [[], [0], [1], [], [2, 3]]  # 0 -> 1 -> 2 -> 4 and 3 -> 4, where 1 has another color
    assert cluster_in_one([0, 1, 0, 0, 0], needs, []) == ([0, 1, 2, 0, 2], ())
    assert cluster_in_one([0, 1, 0, 0, 0], needs, [[3, 4]]) == ([0, 1, 2, 2, 2], ())
    assert cluster_in_one([0, 1, 0, 0, 0], needs, [[0, 2], [3, 4]]) == ([0, 1, 2, 2, 2], (0,))
