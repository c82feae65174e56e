"""A first step has its seconds, a hash of each tensor that it leaves, and what became of each graph."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from keel_bench.warm_start.first_step import LOG, FirstStep, digest, keel_compile, torch_compile, work
from keel_bench.warm_start.second_process import compiled_again, different, own_seconds
from keel_bench.warm_start.slow_plugin import mlp


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Empty caches, and afterwards as many threads as before."""
    monkeypatch.setenv("KEEL_GRAPH_CACHE", "1")
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "keel"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    threads = torch.get_num_threads()
    yield
    assert not logging.getLogger(LOG).handlers
    torch.set_num_threads(threads)
    torch.compiler.reset()


def step(mode: str, backend: str = "") -> FirstStep:
    torch.compiler.reset()
    return FirstStep(
        "it", mlp, mode, partial(keel_compile, backend) if backend else partial(torch_compile, "aot_eager")
    )


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [("inference", ["inference"]), ("training", ["forward", "backward"])],
    ids=["inference", "training"],
)
def test_the_second_step_loads_what_the_first_one_compiled(mode: str, kinds: list[str]) -> None:
    cold, warm = (work(step(mode, "interp"), lambda text: None) for _ in range(2))
    assert [(g["graph"], g["result"]) for g in cold["graphs"]] == [(kind, "compiled") for kind in kinds]
    assert [(g["graph"], g["result"]) for g in warm["graphs"]] == [(kind, "loaded") for kind in kinds]
    assert different(cold["left"], warm["left"]) == [] and len(warm["left"]) == (1 if mode == "inference" else 5)
    assert compiled_again(cold) == [f"{kind} graph" for kind in kinds] and compiled_again(warm) == []
    assert 0 < own_seconds(warm) < warm["seconds"] and warm["cpu"] > 0


def test_other_compilers_have_no_graphs_of_keel() -> None:
    row = work(step("inference"), lambda text: None)
    assert row["graphs"] == [] and row["seconds"] > 0


def test_a_graph_that_is_not_kept_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(captured: object, settings: object) -> None:
        raise ValueError("Because.")

    monkeypatch.setattr("keel.artifact.graph_cache.graph_key", fails)
    row = work(step("inference", "interp"), lambda text: None)
    assert compiled_again(row) == ["inference graph: Because."]


def test_a_hash_is_of_bits() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    assert digest(x) == digest(x.t().contiguous().t()) == digest(x.clone())
    assert digest(x) != digest(torch.nextafter(x, torch.ones(2, 2)))
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))
    assert digest(torch.tensor([torch.nan])) == digest(torch.tensor([torch.nan]))
