"""Graphs that are compiled by themselves, as serving engines compile pieces of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import keel
from keel import Artifact, Backend, KeelError

from .line import whole

# PyTorch's own exporter uses what PyTorch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
R = torch.randn


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache that has nothing in it."""
    monkeypatch.setenv("KEEL_GRAPH_CACHE", "1")
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))
    torch.compiler.reset()
    yield tmp_path
    torch.compiler.reset()


def vendor(compiled: list[Any]) -> Backend:
    """A backend that adds what it compiles to a list, and saves a part as its number in the list."""

    def compile(gm: fx.GraphModule) -> Any:
        compiled.append(gm.forward)
        return gm.forward

    return replace(
        whole("vendor"),
        compile=compile,
        serialize=lambda run: str(compiled.index(run)).encode(),
        deserialize=lambda content: compiled[int(content)],
        fingerprint=lambda: "1",
    )


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor, cache: Tensor) -> Tensor:
        cache.add_(1)
        return x + torch.relu(self.linear(self.norm(x)))


class Engine:
    """What a serving engine does: Dynamo's graphs are compiled one by one, and run without Dynamo's guards."""

    def __init__(self, backends: Sequence[Any]) -> None:
        self.backends, self.pieces = backends, list[tuple[Artifact, list[Any]]]()

    def __call__(self, gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        artifact = keel.standalone_compile(gm, example_inputs, backends=self.backends)
        self.pieces.append((artifact, example_inputs))
        return artifact


def layers(count: int) -> list[Layer]:
    torch.manual_seed(0)
    return [Layer().eval() for _ in range(count)]


def serve(engine: Engine, model: Sequence[nn.Module], rows: Sequence[int]) -> None:
    """Compiles each layer as a piece, for any number of rows, and compares it with eager PyTorch."""
    compiled = [torch.compile(layer, backend=engine, fullgraph=True) for layer in model]
    for n in rows:
        x, caches = R(n, 8), (torch.zeros(2), torch.zeros(2))
        torch._dynamo.mark_dynamic(x, 0)
        want, got = x, x
        with torch.no_grad():
            for layer, piece in zip(model, compiled, strict=True):
                want, got = layer(want, caches[0]), piece(got, caches[1])
        torch.testing.assert_close(got, want)
        assert torch.equal(*caches)


def test_pieces_of_a_model_compute_what_it_computes() -> None:
    engine = Engine(["cpp"])
    serve(engine, layers(2), (4, 7, 2))
    assert engine.pieces


def test_equal_pieces_are_compiled_once() -> None:
    compiled: list[Any] = []
    engine, model = Engine([vendor(compiled)]), layers(3)
    for number in range(3):
        torch.compiler.reset()
        serve(engine, [torch.nn.ModuleDict({f"layer{number}": model[number]})[f"layer{number}"]], (4, 6))
    assert len(engine.pieces) == 3 and len(compiled) == 1


def test_an_artifact_is_saved_and_loaded(tmp_path: Path) -> None:
    engine = Engine(["cpp"])
    serve(engine, layers(1), (4,))
    artifact, inputs = engine.pieces[0]
    artifact.save(tmp_path / "piece.keel")
    with pytest.raises(KeelError, match="not trusted"):
        Artifact.load(tmp_path / "piece.keel")
    loaded = Artifact.load(tmp_path / "piece.keel", trusted=True)
    x = next(i for i, value in enumerate(inputs) if isinstance(value, Tensor) and value.shape == (4, 8))
    n = next(i for i, value in enumerate(inputs) if isinstance(value, int | torch.SymInt))
    for rows in (3, 9):
        arguments = [R(rows, 8) if i == x else rows if i == n else v.clone() for i, v in enumerate(inputs)]
        with torch.no_grad():
            want = artifact(*[v.clone() if isinstance(v, Tensor) else v for v in arguments])
        assert torch.equal(loaded(*arguments)[0], want[0])


def traced(fn: Any, *inputs: Tensor, mode: str = "fake") -> fx.GraphModule:
    return torch.fx.experimental.proxy_tensor.make_fx(fn, tracing_mode=mode)(*inputs)


def test_the_sizes_of_a_traced_graph_are_kept() -> None:
    x = R(3, 4)
    artifact = keel.standalone_compile(traced(lambda x: (x * 2, x.sum(0)), x), [x], backends=["cpp"])
    assert torch.equal(artifact(x)[0], x * 2)
    with pytest.raises(KeelError, match=r"shape is \[5, 4\]"):
        artifact(R(5, 4))


def test_the_sizes_may_come_from_the_inputs() -> None:
    graph = fx.symbolic_trace(lambda x: (torch.relu(x), x.shape[0]))
    artifact = keel.standalone_compile(graph, [R(3, 4)], dynamic_shapes="from_example_inputs", backends=["cpp"])
    result, rows = artifact(x := R(3, 4))
    assert torch.equal(result, x.relu()) and rows == 3
    with pytest.raises(KeelError, match="has no value"):
        keel.standalone_compile(graph, [R(3, 4)], backends=["cpp"])


def test_parameters_of_the_graph_are_in_the_artifact(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    graph, x = fx.symbolic_trace(model), R(3, 4)
    artifact = keel.standalone_compile(graph, [x], dynamic_shapes="from_example_inputs", backends=["cpp"])
    artifact.save(tmp_path / "model.keel")
    loaded = keel.load_package(tmp_path / "model.keel", trusted=True)
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), model(x))
    assert [*loaded.weights] == ["0.weight", "0.bias"]


def test_conditions_of_the_trace_hold_in_each_call() -> None:
    def halves(x: Tensor, y: Tensor) -> Tensor:
        return x + y if x.shape[0] % 2 == 0 else x - y

    graph = traced(halves, R(4, 3), R(4, 3), mode="symbolic")
    artifact = keel.standalone_compile(graph, [], backends=["cpp"])
    x = R(6, 3)
    assert torch.equal(artifact(x, x), x + x)
    with pytest.raises(KeelError, match="condition on sizes"):
        artifact(x[:5], x[:5])


def test_a_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeelError, match="There is no file"):
        Artifact.load(tmp_path / "none.keel")
