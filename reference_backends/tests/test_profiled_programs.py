"""What profilers show of compiled programs: each part, kernel and library call is a range with its module's path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

import keel

REGIONS = ("Torch-Compiled Region", "CompiledFunctionBackward")
"""The events of calls of compiled code; what PyTorch's own wrappers do is directly inside."""
PRODUCTS = ("aten::addmm", "aten::mm", "aten::bmm", "aten::convolution", "aten::convolution_backward")
TANGENTS = "aten::contiguous"
"""By this PyTorch's wrapper lays out gradients of results before it calls a backward graph."""
KERNEL, RANGE = re.compile(r"keel\.triton[^:]*: k_"), re.compile(r"keel\.triton|keel \w+ graph")
WIDTH, HEADS = 32, 4


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).view(*x.shape[:2], HEADS, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(WIDTH)
        self.intermediate, self.output = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x + self.attention(x))
        return self.dropout(self.output(F.gelu(self.intermediate(x)))) + x


class Bert(nn.Module):
    """The architecture of BERT, small."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(50, WIDTH)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList([Layer(), Layer()])})
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embeddings(tokens)
        for layer in self.encoder["layer"]:  # type: ignore[union-attr]
            x = layer(x)
        return torch.tanh(self.pooler(x[:, 0]))


def conv_net() -> nn.Module:
    block = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(nn.Sequential(*block), nn.Flatten(), nn.Linear(72, 5))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "bert": (Bert, lambda: torch.randint(0, 50, (2, 16))),
    "conv_net": (conv_net, lambda: torch.randn(2, 3, 8, 8)),
}


@pytest.fixture(params=[*MODELS])
def model(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, inputs = MODELS[request.param]
    return make(), inputs()


def steps(net: nn.Module, x: Tensor, backend: str, *, training: bool) -> Callable[[], None]:
    """A function that runs the compiled model once, after a call that compiled it."""
    compiled = keel.compile(net.train(training), backends=[backend])

    def step() -> None:
        with torch.set_grad_enabled(training):
            out = compiled(x)
        if training:
            out.sum().backward()

    step()
    return step


def profiled(step: Callable[[], None]) -> list[FunctionEvent]:
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        step()
    return list(profiler.events())


def around(event: FunctionEvent) -> Iterator[str]:
    """The names of the events around one, from the inside."""
    while (event := event.cpu_parent) is not None:
        yield event.name


def path_of(name: str) -> str:
    return re.match(r"keel\.\w+ ?([^:]*): ", name)[1]  # type: ignore[index]


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_all_that_a_call_runs_is_in_a_range_with_the_path_of_its_module(
    model: tuple[nn.Module, Tensor], training: bool
) -> None:
    net, x = model
    events = profiled(steps(net, x, "cpp", training=training))
    calls = [e for e in events if e.name.startswith("aten::") and any(n.startswith(REGIONS) for n in around(e))]
    assert [e.name for e in calls if not any(n.startswith("keel.cpp") for n in around(e)) and not is_wrapper(e)] == []
    modules = {name for name, _ in net.named_modules()}
    ranges = [e.name for e in events if e.name.startswith("keel.cpp")]
    assert {path_of(name) for name in ranges} <= modules
    if training:  # in inference a library computes a convolution and its batch norm in one call
        assert {path_of(n) for n in ranges} >= {
            n for n, m in net.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)
        }
    graphs = {"keel forward graph", "keel backward graph"} if training else {"keel inference graph"}
    assert {m[0] for e in events if (m := re.match(r"keel \w+ graph", e.name))} == graphs
    assert all(re.fullmatch(r"keel \w+ graph \d+/\d+", e.name) for e in events if e.name.startswith("keel "))


def is_wrapper(event: FunctionEvent) -> bool:
    """True for the work of PyTorch's wrappers around compiled graphs, for new contents of buffers, and for views."""
    name = next((n for n in around(event) if n.startswith("keel")), None)
    return name is None or event.name in ("aten::_foreach_copy_", "aten::copy_", "aten::detach")


def test_kernels_name_their_operators_and_lie_in_their_part(model: tuple[nn.Module, Tensor]) -> None:
    net, x = model
    events = profiled(steps(net, x, "cpp", training=False))
    kernels = [e for e in events if re.match(r"keel\.cpp[^:]*: k_", e.name)]
    assert kernels and all(re.search(r": k_\w+( [a-z_]\w*(, (\w+|\.\.\.))*)?$", e.name) for e in kernels)
    assert {next(around(e)) for e in kernels} == {"keel.cpp: part p0"}


def test_a_part_of_a_graph_level_backend_is_a_range(model: tuple[nn.Module, Tensor]) -> None:
    net, x = model
    events = profiled(steps(net, x, "eager", training=True))
    products = [e for e in events if e.name in PRODUCTS]
    assert products and all("keel.eager: part p0" in around(e) for e in products)


def test_profiled_calls_compute_the_same(model: tuple[nn.Module, Tensor]) -> None:
    net, x = model
    compiled = keel.compile(net.eval(), backends=["cpp"])
    with torch.no_grad():
        before = compiled(x)
        with profile(activities=[ProfilerActivity.CPU], acc_events=True):
            during = compiled(x)
        assert torch.equal(before, during) and torch.equal(before, compiled(x))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_kernels_of_a_gpu_are_launched_in_ranges(
    model: tuple[nn.Module, Tensor], training: bool, tmp_path: Path
) -> None:
    net, x = model
    step = steps(net.cuda(), x.cuda(), "triton", training=training)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        step()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e.get("ph") == "X"]
    host = [e for e in events if e["cat"] in ("cpu_op", "user_annotation")]
    ops = {e["args"]["External id"]: e for e in host if "External id" in e["args"]}
    launched = [names_around(ops[e["args"]["External id"]], host) for e in events if e["cat"] == "kernel"]
    ours = [names for names in launched if any(name.startswith(REGIONS) for name in names)]
    assert any(KERNEL.match(name) for names in ours for name in names)
    assert [names for names in ours if not any(map(RANGE.match, names)) and TANGENTS not in names] == []


def names_around(event: dict[str, Any], others: list[dict[str, Any]]) -> list[str]:
    """The names of an event of a trace and of those around it."""
    return [
        other["name"]
        for other in others
        if event["tid"] == other["tid"] and other["ts"] <= event["ts"] <= other["ts"] + other["dur"]
    ]
