"""The cases of a run on a Ray cluster: a task for each chunk of cases that have to be done in order.

A task does a whole chunk on the machine where Ray starts it, in processes of its own, by the same scheduler as a run on
one machine. So the verdicts do not depend on where a chunk is done. If a machine dies, Ray does its chunks elsewhere.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from keel import KeelError

from ..cases.case import Case
from ..results.verdict import Verdict
from .executor import Executor
from .protocol import Settings
from .scheduler import Scheduler, run_queue

RETRIES = 5
"""How often a chunk is done again because its machine died."""
Batch = tuple[Case, ...]


@dataclass(frozen=True)
class Cluster:
    """``address`` is that of Ray's head (``auto`` for the one of this machine). ``resource`` is the custom resource
    that each board has one of: a task takes one. Without it a task takes one processor.
    """

    address: str
    resource: str = ""


@dataclass(frozen=True)
class ChunkResult:
    """The batches of a chunk with their verdicts, and what the time was spent on."""

    batches: tuple[tuple[Batch, tuple[Verdict, ...]], ...]
    clock: Mapping[str, float]


def run_chunk(settings: Settings, cases: Batch, earlier: Mapping[str, Verdict]) -> ChunkResult:
    """The verdicts on a chunk, on this machine. ``earlier`` has those that are known."""
    done: list[tuple[Batch, tuple[Verdict, ...]]] = []

    def known(batch: Batch) -> list[Verdict] | None:
        results = [earlier[c.id] for c in batch if c.id in earlier]
        return results if len(results) == len(batch) else None

    with tempfile.TemporaryDirectory(prefix="keel-chunk-") as folder, closing(Executor()) as executor:
        scheduler = Scheduler(settings, Path(folder))
        steps = run_queue(
            scheduler, cases, known, lambda batch: None, lambda batch, verdicts: done.append((batch, tuple(verdicts)))
        )
        executor.run(steps)
    return ChunkResult(tuple(done), dict(scheduler.clock))


def run_on_cluster(
    cluster: Cluster,
    settings: Settings,
    chunks: Sequence[Batch],
    earlier: Mapping[str, Verdict],
    began: Callable[[Batch], None],
    ended: Callable[[Batch, list[Verdict]], None],
    stopped: Callable[[], bool] = lambda: False,
) -> Counter[str]:
    """Does all chunks on the cluster, until ``stopped``, and returns what the time was spent on. Raises
    KeelError[missing-extra] without Ray, and KeelError[not-here] if the cluster does not answer or loses a chunk.
    """
    ray = _connected(cluster)
    task = ray.remote(run_chunk).options(
        max_retries=RETRIES, **({"resources": {cluster.resource: 1}} if cluster.resource else {"num_cpus": 1})
    )
    todo = [chunk for chunk in chunks if not all(c.id in earlier for c in chunk)]
    open_: dict[Any, Batch] = {}
    for chunk in todo:
        known = {c.id: earlier[c.id] for c in chunk if c.id in earlier}
        open_[task.remote(settings, chunk, known)] = chunk
        began(tuple(c for c in chunk if c.id not in known))
    clock = Counter[str]()
    while open_ and not stopped():
        ready, _ = ray.wait([*open_], num_returns=1, timeout=0.5)
        for one in ready:
            chunk = open_.pop(one)
            result = _result(ray, one, chunk)
            clock.update(result.clock)
            for batch, verdicts in result.batches:
                ended(batch, list(verdicts))
    for one in open_:
        ray.cancel(one, force=True)
    return clock


def _result(ray: Any, one: Any, chunk: Batch) -> ChunkResult:
    try:
        result: ChunkResult = ray.get(one)
    except ray.exceptions.RayError as e:
        raise KeelError(
            "not-here",
            f"The cluster has lost the chunk of {chunk[0].id}.",
            {"Ray": str(e).strip().splitlines()[-1][:300]},
            do="--resume goes on with the run.",
        ) from e
    return result


@cache
def _connected(cluster: Cluster) -> Any:
    """Ray, connected to the cluster."""
    if find_spec("ray") is None:
        raise KeelError(
            "missing-extra",
            "A run on a cluster needs ray, which this Python does not have.",
            do='Install the extra on each machine: pip install "torch-keel[conform,ray]".',
        )
    import ray

    if not ray.is_initialized():
        try:
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as e:
            why = {cluster.address: str(e).strip().splitlines()[0][:300]}
            raise KeelError("not-here", "There is no Ray cluster.", why, do="Start one: ray start --head.") from e
    have = ray.cluster_resources()
    if cluster.resource and not have.get(cluster.resource):
        raise KeelError(
            "bad-option",
            f"No machine of the cluster has the resource {cluster.resource!r}.",
            {"resources": ", ".join(sorted(have))},
            do=f"Start each machine with ray start --resources '{{\"{cluster.resource}\": 1}}', 1 for each board.",
        )
    return ray
