"""Drawn programs placed over backends drawn as well: certified, run beside eager PyTorch, and placed alike each time.

A backend runs PyTorch's own kernels, so that results are equal bit for bit; what it refuses and what it costs is drawn.
Where PyTorch captures other operators than it runs, the parts are held to the captured graph bit for bit, and that to
eager PyTorch by running error analysis.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from keel import Backend, Call, KeelError, TensorType, placement, universe
from keel.testing import compile_part
from keel_conformance.graphs.graph_generator import draw
from keel_conformance.graphs.graph_ir import RandomGraph, module, random_inputs
from keel_conformance.oracles.graph import judge_graph
from keel_conformance.report import Criterion, join_names
from keel_conformance.workers.pool import Outcome

from ..jobs import Job, Selection, failed, within
from .brute_force import Oracle
from .synthetic_graphs import tensors_of

COUNT, CHUNK = 10_000, 1_000
HASH_SEEDS = ("0", "1")
"""Values of PYTHONHASHSEED.  Under the first everything is placed and run, under others every FOURTH is placed."""
FOURTH = 4
AGAIN = 10
"""One program in this many is placed twice in one process."""
SHOWN = 20


def jobs(chosen: Selection) -> list[Job]:
    few = chosen.few(COUNT)
    return [
        Job("random", f"hash seed {seed}", "keel", "", "", chosen.scale, f"{first}-{min(first + CHUNK, few) - 1}")
        for first in range(0, few, CHUNK)
        for seed in HASH_SEEDS
    ]


def environment(job: Job) -> dict[str, str]:
    return {"PYTHONHASHSEED": job.model.split()[-1]}


def measure(job: Job) -> dict[str, Any]:
    """``plans`` has a digest of each plan; the other lists have the numbers of programs of which something is wrong."""
    first, last = map(int, job.along.split("-"))
    start = time.process_time()
    results: dict[str, Any] = {
        "plans": [],
        "certificate": [],
        "wrong": [],
        "unsteady": [],
        "miscounted": [],
        "rounded": [],
        "again": 0,
        "parts": 0,
        "calls": 0,
        "mixed": 0,
    }
    runs = job.model == f"hash seed {HASH_SEEDS[0]}"
    for seed in range(first, last + 1, 1 if runs else FOURTH):
        _one(seed, runs, results)
    return {**results, "cpu_seconds": time.process_time() - start}


def _one(seed: int, runs: bool, outcome: dict[str, Any]) -> None:
    program = draw(seed, seed % 3 != 2)
    inputs = random_inputs(program, seed, 0)
    gm = _captured(program, inputs)
    backends, price = _drawn_backends(seed)
    plan = placement.place(gm, backends, price=price)
    digest = hashlib.sha256(str(plan).encode()).hexdigest()[:16]
    outcome["plans"].append(digest)
    outcome["parts"] += len(plan.parts)
    outcome["calls"] += sum(len(part.nodes) for part in plan.parts)
    outcome["mixed"] += len({part.owner.name for part in plan.parts}) > 1
    outcome["again"] += (repeats := seed % AGAIN == 0)
    if repeats and str(placement.place(gm, backends, price=price)) != str(plan):
        outcome["unsteady"].append(seed)
    try:
        placement.verify_placement(gm, plan)
    except KeelError:
        outcome["certificate"].append(seed)
        return
    if price.differs(gm, plan):
        outcome["miscounted"].append(seed)
    if runs and (what := _unlike(gm, _parts(gm, plan, inputs), module(program)(*inputs), inputs)):
        outcome[what].append(seed)


def _captured(program: RandomGraph, inputs: Sequence[Tensor]) -> fx.GraphModule:
    """The program as Keel captures it: functional, in ATen."""
    graphs: list[fx.GraphModule] = []

    def keep(captured: Any) -> Callable[[list[Any]], Any]:
        graphs.append(captured.gm)
        return lambda values: captured.gm(*values)

    with torch.no_grad():
        universe.trace(module(program), inputs, keep)
    return graphs[0]


def _parts(gm: fx.GraphModule, plan: placement.Plan, inputs: Sequence[Tensor]) -> list[Any]:
    """What the parts compute, one after another."""
    values: dict[str, Any] = {
        node.name: x for node, x in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True)
    }
    for part in placement.build_part_graphs(gm, plan):
        results = compile_part(part.part.owner, part.gm)(*(values[name] for name in part.inputs))
        values.update(zip(part.outputs, results, strict=True))
    (outputs,) = gm.graph.output_node().args
    assert isinstance(outputs, tuple | list)
    return [values[node.name] if isinstance(node, fx.Node) else node for node in outputs]


def _unlike(gm: fx.GraphModule, results: Sequence[Any], eager: Sequence[Tensor], inputs: Sequence[Tensor]) -> str:
    """What results of the parts are that are not eager's, bit for bit: ``rounded`` if they are those of the captured
    graph ``gm``, and eager's are within its rounding errors, ``wrong`` otherwise; nothing if they are.
    """
    if len(results) == len(eager) and all(map(_same, results, eager)):
        return ""
    expected = gm(*inputs)
    same = len(results) == len(expected) and all(map(_same, results, expected))
    return "rounded" if same and not any(f.sentence for f in judge_graph(gm, inputs, eager)) else "wrong"


def _same(got: Tensor, expected: Tensor) -> bool:
    return (
        got.dtype == expected.dtype
        and got.shape == expected.shape
        and torch.equal(torch.nan_to_num(got.double()), torch.nan_to_num(expected.double()))
        and torch.equal(got.isnan(), expected.isnan())
    )


# -- backends ----------------------------------------------------------------------------------------------------------


class _Prices:
    """Drawn costs of a graph's calls and tensors; remembers the problem that it gave last."""

    def __init__(self, seed: int, backends: int) -> None:
        self.seed, self.backends = seed, backends
        self.problem: placement.Problem | None = None

    def __call__(self, units: placement.CallGraph, order: tuple[Backend, ...], supported: Any) -> placement.Problem:
        r = random.Random(f"costs {self.seed}")
        count, top = len(units.nodes), r.choice((3, 30, 1000))
        compute = np.array([[r.randint(0, top) for _ in order] for _ in range(count)], float) * 1e-6
        makers, readers, _, ends = tensors_of(units)
        places = r.choice((len(order), len(order), max(1, len(order) - 1)))
        ways = (
            np.array(
                [[[r.randint(0, top // 2 + 1) for _ in range(places)] for _ in range(places)] for _ in makers], float
            ).reshape(len(makers), places, places)
            * 1e-6
        )
        moved = placement.tensors(
            makers, readers, ways, home=0, ends=np.minimum(ends, 0), handover=r.choice((0, 0, 2)) * 1e-6
        )
        problem = placement.problem(
            np.where(supported, compute, np.inf),
            units.needs,
            moved,
            place=[min(b, places - 1) for b in range(len(order))],
            launch=[r.choice((0, r.randint(0, top))) * 1e-6 for _ in order],
        )
        self.problem = problem
        return problem

    def differs(self, gm: fx.GraphModule, plan: placement.Plan) -> bool:
        """Whether the plan does not cost what it says, or more than a backend alone that takes all calls."""
        assert self.problem is not None
        oracle = Oracle(self.problem, launches=False)
        numbers = {b.name: i for i, b in enumerate(plan.backends)}
        owner = {node: numbers[backend.name] for node, backend in plan.owner_of.items()}
        labels = [owner[node.name] for node in placement.call_graph_of(gm.graph).nodes]
        cost = oracle.cost(labels) + sum(oracle.launch[numbers[part.owner.name]] for part in plan.parts)
        alone = [oracle.cost([b] * len(labels)) + oracle.launch[b] for b in numbers.values()]
        predicted = plan.claim.seconds * 1e6 if plan.claim is not None else -1.0
        return bool(labels) and (abs(predicted - cost) > 1e-3 or cost > min(alone) + 1e-3)


def _drawn_backends(seed: int) -> tuple[list[Backend], _Prices]:
    """Two to four; each but the last refuses some operators, and some operators on some dtypes or ranks."""
    count = 2 + seed % 3

    def refuses(number: int) -> Callable[[Call], str | None]:
        def why(call: Call) -> str | None:
            out = call.out[0] if call.out else None
            kind = (call.name, str(out.dtype) if isinstance(out, TensorType) else "")
            for what, share in ((kind[0], 0.3), (kind, 0.1), ((*kind, len(call.tensors)), 0.1)):
                if random.Random(f"{seed} {number} {what}").random() < share:
                    return f"{call.name} is not one of its operators."
            return None

        return why if number < count - 1 else lambda call: None

    backends = [
        Backend(name=f"drawn{k}", device="*", supports=refuses(k), compile=lambda gm: gm.forward) for k in range(count)
    ]
    return [*backends[:-1], replace(backends[-1], last_resort=seed % 2 == 0)], _Prices(seed, count)


# -- bars --------------------------------------------------------------------------------------------------------------


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    for job, outcome in results.items():
        if outcome.row is None:
            yield failed(job, outcome, "measured")
    rows = {(j.along, j.model): o.row for j, o in results.items() if o.row is not None}
    run = [row for (_, seed), row in rows.items() if seed == f"hash seed {HASH_SEEDS[0]}"]
    if not run:
        return
    count = sum(len(row["plans"]) for row in run)
    note = (
        f"of {count}, with {sum(r['parts'] for r in run)} parts of {sum(r['calls'] for r in run)} calls; "
        f"{sum(r['mixed'] for r in run)} on several backends"
    )
    rounded = sum(len(r["rounded"]) for r in run)
    for title, key, more in (
        ("plans that the certificate refuses", "certificate", note),
        (
            "programs whose results are not eager's",
            "wrong",
            f"of {count}, {rounded} of them but for the rounding of what is captured",
        ),
        ("plans that do not cost what is said, or more than a backend alone", "miscounted", ""),
        (
            "plans that differ when made again in one process",
            "unsteady",
            f"of {sum(r['again'] for r in rows.values())}",
        ),
    ):
        seeds = [str(seed) for row in (rows.values() if key != "wrong" else run) for seed in row[key]]
        yield within(f"random: {title}", len(seeds), 0, join_names(seeds, SHOWN) or more)
    for seed in HASH_SEEDS[1:]:
        pairs = [
            (row["plans"], rows[along, f"hash seed {seed}"]["plans"])
            for (along, own), row in rows.items()
            if own == f"hash seed {HASH_SEEDS[0]}" and (along, f"hash seed {seed}") in rows
        ]
        differ = sum(a != b for first, other in pairs for a, b in zip(first[::FOURTH], other, strict=True))
        yield within(
            f"random: plans that differ with PYTHONHASHSEED={seed}",
            differ,
            0,
            f"of {sum(len(other) for _, other in pairs)}",
        )
