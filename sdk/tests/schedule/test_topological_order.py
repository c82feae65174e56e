"""Units that grow, in an order that stays one in which they can run; held to a search of the whole graph."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.schedule.topological_order import UnitOrder


class Unit:
    """What needs the ``needs``, by the number of the node that makes them."""

    def __init__(self, node: int, needs: set[int]):
        self.nodes, self.needs = [node], needs


class Graph:
    def __init__(self) -> None:
        self.of: dict[int, Unit] = {}
        self.order: UnitOrder[Unit] = UnitOrder(self.before)

    def before(self, unit: Unit) -> list[Unit]:
        return [self.of[n] for n in sorted(unit.needs) if self.of[n] is not unit]

    def reached(self, units: list[Unit]) -> list[Unit]:
        todo, seen = list(units), list[Unit]()
        while todo:
            unit = todo.pop()
            if unit not in seen:
                seen.append(unit)
                todo += self.before(unit)
        return seen

    def check(self) -> None:
        ranks = self.order._rank
        for unit in set(self.of.values()):
            assert all(ranks[id(u)] < ranks[id(unit)] for u in self.before(unit))


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_the_order_stays_topological_and_finds_every_path(data):
    """Each node becomes a unit, or joins one, as far as no cycle arises; sometimes a unit that it needs is taken in."""
    graph = Graph()
    for node in range(data.draw(st.integers(2, 14))):
        needs = data.draw(st.sets(st.integers(0, node - 1), max_size=3)) if node else set()
        units = list(dict.fromkeys(graph.of.values()))
        goal = data.draw(st.sampled_from(units)) if units and data.draw(st.booleans()) else None
        outside = [graph.of[n] for n in sorted(needs) if graph.of[n] is not goal]
        if goal is not None:
            found = graph.order.reaches(outside, goal)
            assert found == (goal in graph.reached(outside))
            goal = None if found else goal
        if goal is None:
            goal = Unit(node, needs)
            graph.order.append(goal)
        else:
            graph.order.put_after(goal, outside)
            goal.nodes.append(node)
            goal.needs |= needs
        graph.of[node] = goal
        graph.check()
        for other in graph.before(goal):
            rest = [u for u in graph.before(goal) if u is not other]
            found = graph.order.reaches(rest, other)
            assert found == (other in graph.reached(rest))
            if not found and data.draw(st.booleans()):
                goal.nodes += other.nodes
                goal.needs |= other.needs
                graph.of.update(dict.fromkeys(other.nodes, goal))
                graph.order.merge(goal, other)
                graph.check()
                break
