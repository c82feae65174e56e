"""ONNX Runtime as a backend: its operators, whole models in one part, weights that it packs once, its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import getitem
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import keel
from keel import KeelWarning
from keel.opset import MEMBERS
from keel.plugin import CompileContext, Constant, PreparedConstants
from keel.testing import compile_calls, compile_part
from keel_onnxruntime import backend, onnx_operators

from ..one_part import check_one_part
from .operator_calls import arguments

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime onnx")
if (obstacle := backend.probe()) is not None:
    pytest.skip(obstacle, allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
EMPTY = "empty.memory_format empty_like empty_strided empty_permuted new_empty new_empty_strided"
UNTOLD = {f"aten.{name}" if "." in name else f"aten.{name}.default" for name in EMPTY.split()}
"""Operators whose results may be anything."""


def full(name: str) -> str:
    return name.replace("::", ".") if "::" in name else f"aten.{name}"


def operator(name: str) -> Any:
    members = [op for op in MEMBERS.values() if name in op.overloads]
    targets = {str(target): target for op in members for target in op.targets}
    return targets.get(name) or getattr(getattr(torch.ops.aten, name.split(".")[1]), name.split(".")[2])


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


@pytest.mark.slow
def test_each_operator_computes_what_pytorch_computes() -> None:
    """All results are those of ONNX Runtime, also views, which Keel makes itself of a backend with any layout."""
    cases = {full(name): calls for name, calls in arguments().items()}
    assert cases.keys() == onnx_operators.EMITTERS.keys() - UNTOLD
    calls = [(operator(name), c) for name in cases for c in cases[name]]
    pairs = list[tuple[str, Tensor, Tensor]]()

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any]:
        run, nodes = compile_part(backend, gm, ctx), gm.graph.output_node().all_input_nodes
        names = [str((n.all_input_nodes[0] if n.target is getitem else n).target) for n in nodes]

        def both(*inputs: Tensor) -> Any:
            expected = gm(*inputs)
            pairs.extend(zip(names, run(*inputs), expected, strict=True))
            return expected

        return both

    whole = replace(backend, compile=compile, any_layout=False)
    batch = compile_calls([(op, args, kwargs) for op, (args, kwargs) in calls], backends=[whole], strict=True)
    batch.run([c for _, c in calls])
    assert len(pairs) >= len(calls)
    for name, result, expected in pairs:
        torch.testing.assert_close(result, expected, equal_nan=True, msg=lambda m, name=name: f"{name}: {m}")  # type: ignore
        if name in ("aten.where.self", "aten.clone.default", "aten.neg.default", "aten.copysign.Tensor"):
            assert torch.equal(result.signbit(), expected.signbit())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "resnet18"])
def test_a_model_is_one_part(name: str) -> None:
    check_one_part(name, backend)


class Strided(nn.Module):
    """Weights of other strides than rows of rows have."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.table = nn.Parameter(torch.randn(16, 40).t())
        self.weight, self.bias = nn.Parameter(torch.randn(16, 8).t()), nn.Parameter(torch.randn(32)[::2])

    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        return self.conv(x).mean((2, 3)) @ self.weight + self.table[i] + self.bias


@pytest.mark.slow
def test_weights_of_any_strides_are_there_in_each_call() -> None:
    """Sessions read the memory of weights. They read that of a copy if a weight is not contiguous."""
    model = Strided().eval()
    compiled = keel.compile(model, backends=[backend], strict=True, fullgraph=True)
    for _ in range(3):
        x, i = torch.randn(2, 3, 9, 8), torch.randint(40, (2,))
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, i), model(x, i), rtol=1e-4, atol=1e-5)
        [torch.full((n,), torch.nan) for n in range(1, 1000)]  # where memory was freed


class Sessions:
    """The sessions that are opened: how many, and the settings of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings: list[Any] = []
        open_session = onnxruntime.InferenceSession

        def opened(model: bytes, settings: Any, **more: Any) -> Any:
            self.settings.append(settings)
            return open_session(model, settings, **more)

        monkeypatch.setattr(onnxruntime, "InferenceSession", opened)


def test_weights_are_prepared_once_for_each_version(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, model = Sessions(monkeypatch), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    run = keel.compile(model, backends=[backend], strict=True)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 4)
            torch.testing.assert_close(run(x), model(x))
        assert len(sessions.settings) == 2, "one checks the model while it is compiled, one has the weights"
        model[0].get_parameter("weight").mul_(3)
        for _ in range(2):
            torch.testing.assert_close(run(x), model(x))
        assert len(sessions.settings) == 3


def test_options_reach_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(monkeypatch)
    options = {"onnxruntime.threads": 3, "onnxruntime.level": "ENABLE_BASIC"}
    keel.compile(torch.exp, backends=[backend], strict=True, options=options)(torch.ones(2))
    assert sessions.settings[-1].intra_op_num_threads == 3
    assert sessions.settings[-1].graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with pytest.raises(keel.KeelError, match="must be one of 'DISABLE_ALL'"):
        keel.compile(torch.exp, backends=[backend], options={"onnxruntime.level": "fast"})


def test_sizes_and_layouts_may_change() -> None:
    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return (y := F.softmax(x @ w, -1) + 1), y.t()

    run = keel.compile(fn, backends=[backend], strict=True, dynamic=True)
    for x in (torch.randn(3, 4), torch.randn(4, 9).t(), torch.randn(12, 8)[:, ::2]):
        w = torch.randn(4, 5)
        results = run(x, w)
        torch.testing.assert_close(results, fn(x, w), check_stride=True)
        assert results[0].data_ptr() == results[1].data_ptr()


def test_training_takes_it_too() -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(2, 4)
    expected = torch.autograd.grad(model(x).pow(2).sum(), list(model.parameters()))
    run = keel.compile(model, backends=[backend, "eager"])
    found = torch.autograd.grad(run(x).pow(2).sum(), list(model.parameters()))
    torch.testing.assert_close(found, expected)


def test_a_model_that_onnx_runtime_does_not_take_is_refused_while_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong: Callable[..., str] = lambda g, out, x: g.node("Conv", x)  # noqa: E731
    monkeypatch.setitem(onnx_operators.EMITTERS, "aten.exp.default", wrong)
    x = torch.randn(3)
    with pytest.warns(KeelWarning, match="onnxruntime could not compile part p0"):
        run = keel.compile(torch.exp, backends=[backend, "eager"])
        torch.testing.assert_close(run(x), x.exp())


def test_a_part_is_the_same_again_from_its_bytes() -> None:
    """The bytes have the model and the types of the results, and no weights."""
    gm = fx.symbolic_trace(lambda x, w: (torch.ops.aten.mm.default(x, w),))
    values = [torch.randn(2, 300), torch.randn(300, 3)]
    for node, value in zip(gm.graph.nodes, [*values, values[0] @ values[1]], strict=False):
        node.meta["val"] = value
    ctx = CompileContext(
        constants={"w": Constant(kind="parameter")}, options={o.name: o.default for o in backend.options}
    )
    part = backend.compile(gm, ctx)
    assert isinstance(part, PreparedConstants) and backend.serialize and backend.deserialize
    data = backend.serialize(part)
    assert len(data) < 1000, "weights of 3600 bytes lie outside"
    again = backend.deserialize(data, ctx)
    prepared = again.prepare({"w": values[1]})
    assert torch.equal(again.run(prepared, values[0])[0], part.run(part.prepare({"w": values[1]}), values[0])[0])
    assert backend.serialize(again) == data


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.bool, torch.int64])
def test_a_session_reads_and_writes_the_memory_of_tensors(dtype: torch.dtype) -> None:
    x = (torch.arange(6) % 2).view(2, 3).to(dtype)
    run = keel.compile(lambda x: torch.cat([x, x]), backends=[backend], strict=True)
    assert torch.equal(run(x), torch.cat([x, x]))
