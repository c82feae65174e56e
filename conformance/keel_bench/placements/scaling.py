"""How the time to place and to split grows with the graph, beside PyTorch's CapabilityBasedPartitioner.

CPU seconds of one process, the least of a few runs; graphs are made and read before the clock starts.
"""

from __future__ import annotations

import gc
import math
import operator
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from keel import Backend, Rule, Support, placement
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from ..jobs import Job, Selection, beyond, failed, within
from .synthetic_graphs import FAMILIES, priced, unsupported

SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 100_000)
COMPARED = (500, 1_000, 2_000)
"""Sizes for the other partitioner.  Its time grows with the cube: beyond these it is estimated."""
TINY, TINY_COMPARED = (100, 200, 400), (50, 100)
SOLVE, SPLIT, SOLVE_THREE = 2.0, 5.0, 10.0  # CPU seconds for the largest graph
EXPONENT = 1.2
FASTER = 1_000
LARGE = 20_000
"""Graphs from this size on are timed once, smaller ones a few times."""
MODULES = 200
"""Parts of which a module is made, to say what one takes."""


def jobs(chosen: Selection) -> list[Job]:
    return [Job("scale", family, "keel", "", "", chosen.scale) for family in FAMILIES]


def measure(job: Job) -> dict[str, Any]:
    tiny = job.scale == "tiny"
    _placed(FAMILIES[job.model](100))  # what is imported or set up once
    return {
        "sizes": [_placed(FAMILIES[job.model](size)) for size in (TINY if tiny else SIZES)],
        "beside": [_other_partitioner(FAMILIES[job.model](size)) for size in (TINY_COMPARED if tiny else COMPARED)],
    }


def _placed(gm: fx.GraphModule) -> dict[str, Any]:
    """Seconds and findings of one graph."""
    units = placement.call_graph_of(gm.graph)
    refused = unsupported(units)
    two, three = (priced(units, backends, refused) for backends in (2, 3))
    alone = replace(two, launch=np.zeros(2))
    read, _ = _timed(lambda: placement.call_graph_of(gm.graph), units)
    without, fewest = _timed(lambda: placement.solve_placement(alone), units)
    solve, result = _timed(lambda: placement.solve_placement(two), units)
    more, other = _timed(lambda: placement.solve_placement(three), units)
    plan = _plan(units, result)
    check, _ = _timed(lambda: placement.verify_placement(gm, plan), units)
    gc.collect()
    split, parts = _timed(lambda: placement.build_part_graphs(gm, plan), units)
    modules, _ = _timed(lambda: [part.gm for part in parts[:MODULES]], units, once=True)
    return {
        "calls": len(units.nodes),
        "read": read,
        "alone": without,
        "fewest": max(fewest.group) + 1,
        "solve": solve,
        "gap": result.gap,
        "parts": len(parts),
        "three": more,
        "three_gap": other.gap,
        "three_parts": max(other.group) + 1,
        "check": check,
        "split": split,
        "module": modules / min(len(parts), MODULES),
    }


def _timed(work: Callable[[], Any], units: placement.CallGraph, once: bool = False) -> tuple[float, Any]:
    """CPU seconds, and what came of it."""
    least, result = math.inf, None
    for _ in range(1 if once or len(units.nodes) >= LARGE else 5):
        result = None
        start = time.process_time()
        result = work()
        least = min(least, time.process_time() - start)
    return least, result


def _plan(units: placement.CallGraph, solved: placement.SolvedPlacement) -> placement.Plan:
    backends = [
        Backend(name=name, device="*", supports=Support((Rule(ops=("*",)),)), compile=lambda gm: gm.forward)
        for name in ("fast", "host")
    ]
    members: dict[int, list[int]] = {}
    for unit, group in enumerate(solved.group):
        members.setdefault(group, []).append(unit)
    return placement.Plan(
        tuple(
            placement.Part(f"p{group}", backends[solved.backend[own[0]]], tuple(units.nodes[u].name for u in own))
            for group, own in sorted(members.items())
        ),
        tuple(backends),
        {},
    )


class _Supported(OperatorSupportBase):
    """What the other partitioner asks: the same calls are refused."""

    def __init__(self, refused: set[str]) -> None:
        self.refused = refused

    def is_node_supported(self, submodules: Mapping[str, Any], node: fx.Node) -> bool:
        call = node.args[0] if node.target is operator.getitem else node
        return node.op == "call_function" and isinstance(call, fx.Node) and call.name not in self.refused


def _other_partitioner(gm: fx.GraphModule) -> dict[str, Any]:
    units = placement.call_graph_of(gm.graph)
    partitioner = CapabilityBasedPartitioner(gm, _Supported(unsupported(units)), allows_single_node_partition=True)
    seconds, result = _timed(partitioner.propose_partitions, units, once=True)
    return {"calls": len(units.nodes), "seconds": seconds, "partitions": len(result)}


# -- bars --------------------------------------------------------------------------------------------------------------


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    for job, outcome in results.items():
        if outcome.row is None:
            yield failed(job, outcome, "measured")
        else:
            yield from _bars(f"scale, {job.model}", outcome.row["sizes"], outcome.row["beside"])


def _bars(what: str, sizes: Sequence[dict[str, Any]], baseline: Sequence[dict[str, Any]]) -> Iterable[Criterion]:
    last, name = sizes[-1], f"{what}, {sizes[-1]['calls']} calls"
    yield within(
        f"{name}: CPU s to solve for 2 backends",
        last["solve"],
        SOLVE,
        f"{last['parts']} parts, at most {100 * last['gap']:.2g} % above the optimum",
    )
    yield within(
        f"{name}: the same and the split",
        last["solve"] + last["split"],
        SPLIT,
        f"every part's graph is there; its module, if one is asked for, takes {1e3 * last['module']:.2g} ms "
        f"more; the certificate {last['check']:.2g} s",
    )
    yield within(
        f"{name}: CPU s to solve for 3 backends",
        last["three"],
        SOLVE_THREE,
        f"{last['three_parts']} parts, at most {100 * last['three_gap']:.2g} % above the optimum",
    )
    for title, key in (
        ("2 backends", "solve"),
        ("2 backends without launch costs", "alone"),
        ("3 backends", "three"),
        ("the split", "split"),
    ):
        yield within(
            f"{what}: growth of the time, {title}",
            exponent(sizes, key),
            EXPONENT,
            f"exponent from {sizes[0]['calls']} to {last['calls']} calls; over the last step "
            f"{exponent(sizes[-2:], key):.2g}",
        )
    other = baseline[-1]
    own = next((s for s in sizes if s["calls"] == other["calls"]), None)
    if own is None:
        return
    for title, key in (("", "alone"), (" with launch costs", "solve")):
        ratio = other["seconds"] / (own["read"] + own[key])
        note = (
            f"{other['seconds']:.3g} s, {1e3 * (own['read'] + own[key]):.3g} ms with the reading of the graph; it "
            f"has {other['partitions']} partitions, and Keel {own['fewest' if key == 'alone' else 'parts']} parts "
            "of both backends"
        )
        title = f"{what}, {own['calls']} calls{title}: CapabilityBasedPartitioner's time / Keel's"
        yield beyond(title, ratio, FASTER, note) if key == "alone" else Criterion(title, ratio, "shown", None, note)
    growth = exponent(baseline, "seconds")
    yield Criterion(
        f"{what}: growth of CapabilityBasedPartitioner's time",
        growth,
        "shown",
        None,
        f"exponent from {baseline[0]['calls']} to {other['calls']} calls; at {last['calls']} that is an estimated "
        f"{other['seconds'] * (last['calls'] / other['calls']) ** growth / 3600:.2g} h, not measured",
    )


def exponent(rows: Sequence[dict[str, Any]], key: str) -> float:
    """Returns the power of the number of calls by which the time grows, from a least-squares line in logarithms."""
    sizes, seconds = (np.log([row[k] for row in rows]) for k in ("calls", key))
    return float(np.polyfit(sizes, seconds, 1)[0])
