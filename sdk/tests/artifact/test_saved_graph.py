"""Compiled graphs that PyTorch saves: its AOTAutograd cache, cache artifacts, and ``aot_compile``."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.utils import counters

import keel
from keel import KeelError
from keel.artifact.compiled_graph import packed, unpacked
from keel.artifact.saved_graph import restored, restoring_with
from keel.settings import read_settings

from ..line import whole
from .new_process import kinds_of, run

R = torch.randn
AHEAD = pytest.mark.skipif(
    not hasattr(torch.compile(torch.nn.Identity()).forward, "aot_compile"),
    reason="Before PyTorch 2.12, aot_compile is behind a switch.",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keel's and PyTorch's caches in folders of their own, which have nothing in them."""
    for name, value in caches(tmp_path).items():
        monkeypatch.setenv(name, value)
    torch.compiler.reset()
    counters.clear()
    yield tmp_path
    torch.compiler.reset()


def caches(folder: Path) -> dict[str, str]:
    return {
        "KEEL_GRAPH_CACHE": "torch",
        "KEEL_CACHE_DIR": str(folder / "keel"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the graphs that AOTAutograd traced."""
    return kinds_of(monkeypatch, "compile_captured")


class Counted(torch.nn.Module):
    """Writes to a buffer in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x).relu() * torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device) + self.calls


def test_a_saved_graph_is_not_traced_again(captured: list[str]) -> None:
    model, x = Counted(), R(3, 4)
    with torch.no_grad():
        results = [run(model, x) for _ in range(3)]
    assert captured == ["inference"] and model.calls == 3
    torch.testing.assert_close(results[2] - results[0], torch.full((3, 4), 2.0))


@pytest.mark.parametrize("dynamic", [False, True])
def test_training_is_saved_when_backward_has_been_compiled(dynamic: bool, captured: list[str]) -> None:
    def step() -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        model = Counted()
        run(model, x, dynamic=dynamic).square().sum().backward()
        return model.calls, *(p.grad for p in model.parameters() if p.grad is not None)

    x = R(3, 4)
    first = step()
    assert sorted(captured) == ["backward", "forward"]
    torch.testing.assert_close(step(), first, rtol=0, atol=0)
    assert len(captured) == 2 and counters["aot_autograd"]["autograd_cache_hit"] == 1
    assert not torch._functorch.config.bundled_autograd_cache


def test_inference_graphs_are_left_to_the_cache_of_keel(captured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_GRAPH_CACHE", "1")
    for _ in range(2):
        with torch.no_grad():
            run(Counted(), R(3, 4))
        run(torch.sin, R(3))
    assert captured == ["inference"] * 4 and counters["aot_autograd"].keys() <= {"total"}


def test_sizes_that_come_later_are_right(captured: list[str]) -> None:
    def both() -> list[Tensor]:
        torch.compiler.reset()
        step = keel.compile(lambda x: x.reshape(-1, 2).sum(0) + x.shape[0], backends=["cpp", "eager"], dynamic=True)
        return [step(x) for x in inputs]

    inputs = [torch.ones(n, 2) for n in (3, 4, 7)]
    first = both()
    graphs = len(captured)
    torch.testing.assert_close(both(), first)
    assert len(captured) == graphs and counters["aot_autograd"]["autograd_cache_hit"] == 1
    torch.testing.assert_close(first, [torch.full((2,), 2.0 * n) for n in (3, 4, 7)])


def test_a_graph_for_one_value_of_a_float_is_not_saved(captured: list[str]) -> None:
    """AOTAutograd puts the bounds into the graph as numbers. PyTorch would not save the guard on ``bound``."""

    def clamped(x: Tensor, bound: float) -> Tensor:
        return (x * bound + 1).clamp(-bound, bound)

    compiled = keel.compile(clamped, dynamic=True)
    for bound in (0.5, 0.75, 1.25):
        x = torch.tensor([-3.0, 0.1, 3.0], requires_grad=True)
        torch.testing.assert_close(compiled(x, bound), clamped(x, bound))
    assert captured.count("forward") == 3


def test_another_backend_or_another_line_is_traced_again(captured: list[str]) -> None:
    def fn(x: Tensor) -> Tensor:
        return x.sin() + 1

    def same(x: Tensor) -> Tensor:
        return x.sin() + 1

    vendor, x = whole("acme", fingerprint=lambda: "1"), R(3)
    for _ in range(2):
        run(fn, x, backends=[vendor])
    assert len(captured) == 1
    run(fn, x, backends=[replace(vendor, fingerprint=lambda: "2")])
    run(same, x, backends=[vendor])
    run(fn, x, backends=[whole("acme")])  # without a fingerprint
    assert len(captured) == 4


def test_the_backends_of_the_call_are_used_when_a_graph_is_restored(captured: list[str]) -> None:
    """No package has such a backend."""

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        built.append(gm)
        return gm.forward

    built: list[fx.GraphModule] = []
    vendor = replace(whole("not-installed", fingerprint=lambda: "1"), compile=compile)
    x = R(3)
    for _ in range(2):
        torch.testing.assert_close(run(torch.sin, x, backends=[vendor]), x.sin())
    assert captured == ["inference"] and len(built) == 2


def states(model: torch.nn.Module, backends: list[Any]) -> dict[str, dict[str, Any]]:
    """What PyTorch saves of the forward and the backward graph of a model, by kind."""
    before = saved_graphs()
    torch.compile(model, backend="keel", options={"backends": backends})(R(3, 4)).sum().backward()
    new = [each for each in saved_graphs() if not any(each is other for other in before)]
    return {each.__reduce__()[1][0]["kind"]: each.__reduce__()[1][0] for each in new}


def saved_graphs() -> list[Any]:
    """The compiled graphs in this process that PyTorch can save."""
    return [each for each in gc.get_objects() if type(each).__name__ == "SavedGraph"]


@pytest.mark.parametrize(
    ("piece", "change", "place"),
    [
        ("graph", lambda data: data.pop("link"), "graph"),
        ("graph", lambda data: data["parts"][0]["graph"].update(saved="AAA"), "p0"),
        ("graph", lambda data: data["link"]["LinkProgram"].update(results=7), "link.results"),
        ("graph", lambda data: data["link"]["LinkProgram"]["constants"].append("w"), "graph.link.constants"),
        ("mutations", lambda data: data.pop("values"), "mutations"),
        ("mutations", lambda data: data.update(overwrites=[[0, 9]]), "mutations.overwrites"),
        ("mutations", lambda data: data["placeholders"].append("self"), "mutations.placeholders[2]"),
        ("mutations", lambda data: data["placeholders"].append("x"), "mutations.placeholders"),
        ("mutations", lambda data: data["calls"][0].__setitem__(1, {"operator": "os.system"}), "mutations.calls[0]"),
        ("mutations", lambda data: data.update(inputs=[99]), "mutations"),
    ],
)
def test_a_damaged_graph_is_refused_with_its_place(piece: str, change: Callable[[Any], Any], place: str) -> None:
    backend = replace(
        whole("mine"),
        fingerprint=lambda: "1",
        serialize=lambda run: b"a part",
        deserialize=lambda content: lambda *inputs: (),
    )
    state = states(Counted(), [backend])["forward"]
    data = unpacked(state["graph"]) if piece == "graph" else json.loads(state["mutations"])
    change(data)
    with restoring_with(read_settings(None, {"backends": [backend]})):
        restored(state)
        with pytest.raises(KeelError, match="A saved forward graph cannot be loaded") as raised:
            restored({**state, piece: packed(data) if piece == "graph" else json.dumps(data)})
    assert raised.value.code == "bad-artifact" and [*(raised.value.reasons or {})] == [place]


def test_a_fingerprint_that_raises_costs_nothing_but_the_cache(captured: list[str]) -> None:
    vendor = whole("acme", fingerprint=lambda: 1 / 0)
    for _ in range(2):
        torch.testing.assert_close(run(torch.sin, R(3).fill_(2), backends=[vendor]), torch.full((3,), 2.0).sin())
    assert len(captured) == 2


@AHEAD
def test_a_graph_that_cannot_be_saved_says_why_if_it_has_to_be() -> None:
    model = torch.nn.Linear(3, 3)
    step = torch.compile(model, backend="keel", options={"backends": [whole("acme")]}, fullgraph=True)
    with pytest.raises(KeelError, match=r"bad-artifact.*cannot be saved(.|\n)*acme has no fingerprint"):
        step.forward.aot_compile(((R(2, 3),), {}))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device.")
@pytest.mark.parametrize("backends", [("triton", "eager"), ("triton", "cpp", "eager")])
def test_training_on_a_gpu_is_saved(backends: tuple[str, ...], captured: list[str]) -> None:
    def step() -> list[Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(Counted(), torch.nn.GELU(), torch.nn.LayerNorm(4)).cuda()
        run(model, x.cuda(), backends=backends).square().sum().backward()
        return [p.grad.cpu() for p in model.parameters() if p.grad is not None]

    x = R(3, 4)
    first = step()
    torch.testing.assert_close(step(), first, rtol=0, atol=0)
    assert len(captured) == 2 and counters["aot_autograd"]["autograd_cache_hit"] == 1


PROGRAM = """
import sys, torch, keel
from torch._dynamo.utils import counters
torch.manual_seed(0)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
    def forward(self, x):
        return self.norm(torch.nn.functional.gelu(self.layer(x)))
model = Model()
x, file = torch.randn(3, 4), sys.argv[2]
options = {"backends": ["cpp", "eager"], "pins": {"gelu": "cpp"}, "placement": "order", "buckets": [8]}
if sys.argv[1] == "save":
    step = torch.compile(model, backend="keel", options=options, fullgraph=True).forward.aot_compile(((x,), {}))
    step.save_compiled_function(file)
    loss = step(model, x)
elif sys.argv[1] == "load":
    step = torch.compiler.load_compiled_function(open(file, "rb"))
    loss = step(model, x)
else:
    if sys.argv[1] == "artifacts-load":
        assert torch.compiler.load_cache_artifacts(open(file, "rb").read())
    loss = torch.compile(model, backend="keel", options=options)(x)
loss.square().sum().backward()
if sys.argv[1] == "artifacts-save":
    open(file, "wb").write(torch.compiler.save_cache_artifacts()[0])
if sys.argv[1] == "artifacts-load":
    assert counters["aot_autograd"]["autograd_cache_hit"] == 1, counters
print([p.grad.double().sum().item() for p in model.parameters()])
"""


@pytest.mark.parametrize("way", [pytest.param("", marks=AHEAD), "artifacts-"])
def test_saved_graphs_run_in_another_process(way: str, folder: Path) -> None:
    texts = []
    for action in ("save", "load"):
        # The second process has caches of its own, in which nothing is but what the file brings.
        env = caches(folder / action) | {
            "PYTHONPATH": ":".join(sys.path),
            "OMP_NUM_THREADS": "1",
            "PATH": "/usr/bin:/bin",
        }
        command = [sys.executable, "-c", PROGRAM, f"{way}{action}", str(folder / "file")]
        ran = subprocess.run(command, capture_output=True, text=True, env=env)
        assert ran.returncode == 0, ran.stderr
        texts.append(ran.stdout)
    assert texts[0] == texts[1]
    saved, loaded = (sorted(p.name for p in (folder / a / "keel").glob("cpp-*.so")) for a in ("save", "load"))
    assert saved and set(saved) == set(loaded)
