"""Profiles of small models end to end: a graph break, a recompilation and a fallback, each with its line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import keel
from keel.profile import Profile, profile
from keel.testing import find

from ..line import takes, whole
from .records import SHEET


class Net(nn.Module):
    """Its first two calls differ from all later ones, and it prints."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.calls = nn.Linear(16, 32), nn.Linear(32, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        if self.calls < 2:
            self.calls += 1
        y = torch.relu(self.up(x)) * self.calls
        print(end="")
        return self.down(torch.erf(y))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Profile, Path]:
    torch.compiler.reset()
    trace = tmp_path_factory.mktemp("profile") / "trace.json"
    backends = [takes("addmm", "mm", "mul", "permute", "relu", "t", name="acme"), "eager"]
    options = {"placement": "order", "steps": 3, "inductor": False, "trace": trace}
    with torch.no_grad():
        return profile(Net(), torch.randn(8, 16), backends=backends, **options), trace


@pytest.mark.slow
def test_a_break_a_recompilation_and_a_fallback_are_named_with_their_lines(found: tuple[Profile, Path]) -> None:
    made = found[0].facts
    assert [b.line.partition("   ")[2] for b in made.breaks] == ['print(end="")']
    [again] = [r for r in made.recompilations if r.function == "forward"]
    assert again.line.endswith("   if self.calls < 2:") or again.line.endswith("   self.calls += 1")
    assert again.times == 2 and again.reasons[0] == "self.calls == 0"
    [fallback] = made.fallbacks
    assert fallback.operator == "aten.erf.default" and fallback.reason == "acme has no aten.erf.default."
    assert fallback.lines[0].endswith("   return self.down(torch.erf(y))") and fallback.calls == 1
    assert fallback.seconds > 0


@pytest.mark.slow
def test_the_times_of_a_step_add_up(found: tuple[Profile, Path]) -> None:
    times = found[0].facts.times
    assert times.busy > 0 and times.outside > 0 and times.inside > 0 and times.between > 0
    assert times.busy + times.inside + times.outside == pytest.approx(times.seconds)
    assert set(found[0].facts.medians) == {"keel", "eager"} and not found[0].facts.is_training


@pytest.mark.slow
def test_the_trace_has_the_graphs_and_memory_over_time(found: tuple[Profile, Path]) -> None:
    events = json.loads(found[1].read_text())["traceEvents"]
    names = {e.get("name") for e in events}
    assert any(str(n).startswith("keel inference graph 0/2") for n in names) and "keel profile: step 4" in names
    counters = [e for e in events if e.get("ph") == "C"]
    assert counters and all({"name", "pid", "ts", "args"} <= e.keys() for e in counters)
    assert max(e["args"]["bytes"] for e in counters) == found[0].facts.memory[0].peak > 0


@pytest.mark.slow
def test_training_on_a_loop_target_has_kernels_with_roofs() -> None:
    torch.compiler.reset()
    backends = [replace(find("interp"), cost=SHEET), "eager"]
    model = nn.Sequential(nn.Linear(8, 4), nn.GELU())
    made = profile(model, torch.randn(2, 8), backends=backends, placement="order", steps=3, inductor=False).facts
    assert made.is_training and all(p.grad is None for p in model.parameters())
    kernels = [k for k in made.times.kernels if k.backend == "interp"]
    assert {k.graph.split()[1] for k in kernels} == {"forward", "backward"}
    assert all(k.roof is not None and k.bytes for k in kernels) and not made.breaks and not made.fallbacks
    # Forward multiplies 2 x 8 by 8 x 4; a multiplication and an addition are two operations.
    assert sum(k.flops or 0 for k in kernels if "forward" in k.graph) >= 2 * 2 * 8 * 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_that_is_always_compiled_again_ends_in_eager_pytorch() -> None:
    torch.compiler.reset()

    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.calls

    made = profile(Counting(), torch.randn(3), backends=[whole()], steps=2, inductor=False).facts
    assert [b.is_skipped for b in made.breaks] == [True] and made.recompilations[0].times >= 7
    assert any("Nothing of a step runs in compiled graphs" in note for note in made.notes), made.notes


def test_bad_files_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    from keel.debug_commands import profile as command

    with pytest.raises(keel.KeelError, match=r"bad-option.*--trace"):
        command("no_such_module:model", trace=tmp_path / "missing" / "trace.json")
    with pytest.raises(keel.KeelError, match=r"bad-option.*--html"):
        command("no_such_module:model", html=tmp_path)
