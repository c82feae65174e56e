"""What plans keep alive, counted twice: from the graph, and from the problem that solvers are given."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from keel.errors import KeelError
from keel.placement import place, verify_placement
from keel.placement.audit.peak_memory import peak_usage
from keel.placement.cluster import cluster
from keel.placement.solve.build_problem import Pricing
from keel.placement.solve.memory_budget import peaks

from ..solve.test_build_problem import FAR, MB, SHEET, Takes, Trace, W, X, model, plan_of, problem_of


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_both_counts_agree_on_every_placement(seed: int, trace: Trace, takes: Takes) -> None:
    r = random.Random(seed)
    gm = trace(model, X, W, X[0], symbolic=seed % 3 == 0)
    sheets = [replace(r.choice((SHEET, FAR)), memory=1e9) for _ in range(r.randint(2, 3))]
    backends = [replace(takes(n, "*"), cost=sheet) for n, sheet in zip("abc", sheets, strict=False)]
    units, given = problem_of(gm, backends)
    for _ in range(6):
        labels = np.array([r.randrange(len(backends)) for _ in units.nodes])
        groups = cluster(labels.tolist(), units.needs)
        by_problem = peaks(given, np.arange(len(labels)), (labels, groups))
        by_graph = {room.backends[0]: room.used for room in peak_usage(gm, plan_of(gm, backends, labels.tolist()))}
        assert by_graph == {b.name: by_problem[given.place[i]] for i, b in enumerate(backends) if b.name in by_graph}
        assert len(by_graph) == len(set(given.place.tolist()))


def test_a_plan_that_keeps_more_alive_than_there_is_room_for_is_rejected(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: ((x @ x).sin(), (x @ x.t()).cos()), X)
    home, far = replace(takes("home", "*"), cost=SHEET), replace(takes("far", "*"), cost=replace(FAR, memory=1e6))
    plan = place(gm, [far, home], price=Pricing())
    verify_placement(gm, plan)
    tight = {b.name: replace(b, cost=replace(b.cost, memory=3 * MB * 1e6)) for b in (home, far) if b.cost}
    parts = tuple(replace(p, owner=tight[p.owner.name]) for p in plan.parts)
    with pytest.raises(KeelError, match=r"it keeps \d+ bytes alive at once at home, which has 49152"):
        verify_placement(gm, replace(plan, parts=parts, backends=tuple(tight[b.name] for b in plan.backends)))


def test_where_no_device_has_a_budget_nothing_is_counted(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: x.sin(), X)
    assert peak_usage(gm, place(gm, [replace(takes("a", "*"), cost=SHEET)], price=Pricing())) == ()


def test_what_is_placed_within_a_budget_stays_within_it(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x, w: ((x + 1) @ w).sin() + (w * 2) @ x + (x * 3) @ w, X, W)
    plan = place(
        gm,
        [
            replace(takes("far", "*"), cost=replace(FAR, flops={torch.float32: 1e14}, memory=6 * MB * 1e6)),
            replace(takes("home", "*"), cost=SHEET),
        ],
        price=Pricing(),
    )
    verify_placement(gm, plan)
