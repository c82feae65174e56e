"""A run on a cluster of three machines, of which one dies, gives the verdicts of a run on one machine."""

from __future__ import annotations

import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from keel import KeelError
from keel_conformance.cases.case import Case
from keel_conformance.cases.plan import plan
from keel_conformance.harness import ray_run
from keel_conformance.harness.protocol import Settings
from keel_conformance.harness.ray_run import Cluster, run_chunk
from keel_conformance.harness.run import run
from keel_conformance.harness.scheduler import queues
from keel_conformance.results.verdict import Verdict


def cases(*ops: str) -> tuple[Case, ...]:
    return tuple(c for c in plan(ops=ops, tier="smoke") if c.kind == "op")


def statuses(verdicts: list[Verdict]) -> dict[str, str]:
    return {v.case: v.status for v in verdicts}


@pytest.mark.slow
def test_a_chunk_has_the_verdicts_of_a_run(tmp_path: Path) -> None:
    some = cases("neg")
    settings = Settings("faulty_backends:zeros", threads=1)
    (chunk,) = queues(some)
    earlier = {some[0].id: Verdict(some[0].id, "pass")}
    result = run_chunk(settings, chunk, {})
    found = {v.case: v.status for _, verdicts in result.batches for v in verdicts}
    assert found == statuses(run(some, settings.subject, out=tmp_path, settings=settings).verdicts)
    assert "fail" in found.values() and result.clock["performing.all"] > 0
    assert run_chunk(settings, chunk[:1], earlier).batches == ()


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_run, "find_spec", lambda name: None)
    with pytest.raises(KeelError, match=r"needs ray") as raised:
        ray_run._connected(Cluster("nowhere:1"))
    assert "torch-keel[conform,ray]" in (raised.value.do or "")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install torch-keel[ray]")
@pytest.mark.filterwarnings("ignore")  # of Ray's own modules
def test_a_machine_that_dies_costs_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster as Local

    monkeypatch.setenv("PYTHONPATH", ":".join([str(Path(__file__).parent), *filter(None, sys.path)]))
    local: Any = Local(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"board": 1}})
    nodes = [local.add_node(num_cpus=1, resources={"board": 1}) for _ in range(2)]
    some, settings = cases("neg", "abs", "exp", "sqrt", "add", "sum", "amax", "cat", "softmax"), Settings("eager")
    killed: list[float] = []

    def on_verdicts(verdicts: list[Verdict]) -> None:
        if verdicts and not killed:
            killed.append(time.monotonic())
            local.remove_node(nodes[0], allow_graceful=False)

    try:
        there = run(
            some,
            "eager",
            out=tmp_path / "there",
            settings=settings,
            cluster=Cluster(local.address, "board"),
            on_verdicts=on_verdicts,  # type: ignore[arg-type]
        )
    finally:
        import ray

        ray.shutdown()
        local.shutdown()
        ray_run._connected.cache_clear()
    here = run(some, "eager", out=tmp_path / "here", settings=settings)
    assert killed and statuses(there.verdicts) == statuses(here.verdicts) and len(there.verdicts) == len(some)
    lines = [json.loads(line) for line in (tmp_path / "there" / "log.jsonl").read_text().splitlines()]
    assert sum(len(line.get("end", ())) for line in lines) == len(some)
