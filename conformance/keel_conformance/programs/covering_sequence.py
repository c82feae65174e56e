"""A sequence of actions in which every pair, or every triple, of actions stands one after another.

An action may need a fact and may end one: a backward pass needs a forward pass that is waiting for it. The sequence
takes an action only where what it needs holds, and lacks only the pairs and triples that no sequence can have.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol


class Step(Protocol):
    """What the sequence has to know of an action: the facts that it needs, brings about, and ends."""

    @property
    def needs(self) -> Set[str]: ...
    @property
    def gives(self) -> Set[str]: ...
    @property
    def ends(self) -> Set[str]: ...


Facts = frozenset[str]
Recent = tuple[str, ...]


def facts_after(facts: Facts, step: Step) -> Facts:
    return (facts - step.ends) | step.gives


def possible(names: Iterable[str], steps: Mapping[str, Step]) -> list[str]:
    """The names without those of steps that lack what they need when it is their turn."""
    facts, results = Facts(), list[str]()
    for name in names:
        if steps[name].needs <= facts:
            facts = facts_after(facts, steps[name])
            results.append(name)
    return results


def covering_sequence(steps: Mapping[str, Step], strength: int, seed: int, only: Set[str] = Facts()) -> list[str]:
    """Names in an order that has each combination of ``strength`` of them; with ``only``, each that has one of these.
    The same seed gives the same order.
    """
    return list(_Walk(steps, strength, seed, only).names())


@dataclass
class _Walk:
    """``left`` has, by the names before it, the names that have not followed yet."""

    steps: Mapping[str, Step]
    strength: int
    seed: int
    only: Set[str]
    left: dict[Recent, dict[str, None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)
        self.order = list(self.steps)
        draw.shuffle(self.order)
        for before in product(self.order, repeat=self.strength - 1):
            following = draw.sample(self.order, len(self.order))
            names = [n for n in following if not self.only or not self.only.isdisjoint((*before, n))]
            if names:
                self.left[before] = dict.fromkeys(names)

    def names(self) -> Iterator[str]:
        facts, recent = Facts(), Recent()
        while way := self._way(facts, recent):
            for name in way:
                self._met(recent, name)
                facts, recent = facts_after(facts, self.steps[name]), self._later(recent, name)
                yield name

    def _later(self, recent: Recent, name: str) -> Recent:
        return (*recent, name)[-(self.strength - 1) :]

    def _met(self, recent: Recent, name: str) -> None:
        if (following := self.left.get(recent)) is not None:
            following.pop(name, None)
            if not following:
                del self.left[recent]

    def _way(self, facts: Facts, recent: Recent) -> Sequence[str]:
        """A short way to a combination that is left, its last name included; empty if no sequence has those left."""
        for common in range(len(recent), 0, -1):  # names of the combination that have just been
            begin = recent[len(recent) - common :]
            for rest in product(self.order, repeat=self.strength - 1 - common):
                for name in self.left.get((*begin, *rest), ()):
                    if self._runs(facts, (*rest, name)):
                        return *rest, name
        ways = self._ways(facts)
        while self.left:
            before, following = next(iter(self.left.items()))
            for name in list(following):
                for there, way in ways.items():
                    if self._runs(there, (*before, name)):
                        return *way, *before, name
                self._met(before, name)  # nothing brings about what it needs
        return ()

    def _runs(self, facts: Facts, names: Iterable[str]) -> bool:
        """Whether each has what it needs when it is its turn."""
        for name in names:
            if not self.steps[name].needs <= facts:
                return False
            facts = facts_after(facts, self.steps[name])
        return True

    def _ways(self, facts: Facts) -> Mapping[Facts, tuple[str, ...]]:
        """The names by which each set of facts is reached, the nearest first."""
        ways: dict[Facts, tuple[str, ...]] = {facts: ()}
        waiting = deque([facts])
        while waiting:
            here = waiting.popleft()
            for name in self.order:
                there = facts_after(here, self.steps[name])
                if self.steps[name].needs <= here and there not in ways:
                    ways[there] = *ways[here], name
                    waiting.append(there)
        return ways
