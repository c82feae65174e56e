"""Random placement problems of every regime, small enough for all of their placements to be tried."""

from __future__ import annotations

import itertools
import random

import numpy as np

from keel import placement

US = 1e-6
"""Costs are whole microseconds, so that ticks hold them without rounding."""


def drawn(seed: int, units: int, backends: int, *, uniform: bool = False) -> placement.Problem:
    """The problem of that seed: ties, zeros, refusals, tensors from and to places, several readers, backends of one
    place, units that stay together, patterns, traffic between backends, launch costs.

    ``uniform``: each tensor costs the same on all its ways, each backend has a place, and nothing is charged besides,
    as the bound of alpha-expansion wants it.
    """
    r = random.Random(seed)
    top = r.choice((3, 5, 100, 1000))
    needs = [sorted(r.sample(range(v), min(v, r.choice((0, 1, 1, 2, 3))))) for v in range(units)]
    compute = np.array([[r.randint(0, top) for _ in range(backends)] for _ in range(units)], float) * US
    for u, b in itertools.product(range(units), range(backends)):
        if r.random() < 0.15 and np.isfinite(np.delete(compute[u], b)).any():
            compute[u, b] = np.inf
    places = backends if uniform else r.choice((backends, backends, max(1, backends - 1)))
    moved = _tensors(r, needs, places, top // 2 + 1, uniform)
    together = list(range(units))
    a, b = r.randrange(units), r.randrange(units)
    if r.random() < 0.4 and np.isfinite(compute[a] + compute[b]).any():
        together[a] = together[b]
    savings = [
        placement.Saving(tuple(r.sample(range(units), 2)), r.randrange(backends), r.randint(0, top) * US)
        for _ in range(units > 1 and not uniform and r.random() < 0.4)
    ]
    return placement.problem(
        compute,
        needs,
        moved,
        place=[b if b < places else r.randrange(places) for b in range(backends)],
        launch=[r.randint(0, top) * US for _ in range(backends)],
        together=together,
        savings=savings,
        passed=_passed(r, needs, backends, top // 3 + 1) if not uniform and r.random() < 0.4 else None,
    )


def _tensors(r: random.Random, needs: list[list[int]], places: int, top: int, uniform: bool) -> placement.Tensors:
    """One of each unit, and some that the graph is given."""
    units = len(needs)
    readers = [[v for v, sources in enumerate(needs) if u in sources] for u in range(units)]
    inputs = [sorted(r.sample(range(units), r.randint(1, min(3, units)))) for _ in range(r.randint(0, 3))]
    count = units + len(inputs)
    ways = np.array(
        [[[r.randint(0, top) for _ in range(places)] for _ in range(places)] for _ in range(count)], float
    ).reshape(count, places, places)
    if uniform:
        ways = np.broadcast_to(ways[:, :1, :1], ways.shape)
    return placement.tensors(
        [*range(units), *[-1] * len(inputs)],
        [*readers, *inputs],
        ways * US,
        home=[*[-1] * units, *(r.randrange(places) for _ in inputs)],
        ends=[*(r.choice((-1, -1, -1, r.randrange(places))) for _ in range(units)), *[-1] * len(inputs)],
        handover=[0 if uniform else r.choice((0, 0, r.randint(0, top))) * US for _ in range(count)],
    )


def _passed(r: random.Random, needs: list[list[int]], backends: int, top: int) -> placement.Tensors:
    """Traffic of loops with memory: some tensors, that each other backend that reads them pays for, and some inputs."""
    rows = [(u, [v for v, sources in enumerate(needs) if u in sources]) for u in range(len(needs))]
    rows = [(u if r.random() < 0.7 else -1, readers) for u, readers in rows if readers]
    ways = np.array(
        [[[r.randint(0, top) for _ in range(backends + 1)] for _ in range(backends + 1)] for _ in rows], float
    ).reshape(len(rows), backends + 1, backends + 1)
    return placement.tensors(
        [u for u, _ in rows],
        [readers for _, readers in rows],
        ways * US,
        home=[backends if u < 0 else -1 for u, _ in rows],
    )
