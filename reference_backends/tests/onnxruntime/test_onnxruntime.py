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
from keel.plugin import CompileContext
from keel.testing import compile_calls, compile_part
from keel_conformance.models import build
from keel_onnxruntime import backend, onnx_operators

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime onnx")
pytest.importorskip("onnx", reason="onnx is not installed: pip install onnx")
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


def call(*args: Any, **kwargs: Any) -> Arguments:
    return args, kwargs


def arguments() -> dict[str, list[Arguments]]:
    """Calls of each operator that the backend takes, by overload."""
    x, y, image, matrix = torch.randn(2, 3), torch.randn(2, 3), torch.randn(2, 4, 6, 5), torch.randn(3, 4)
    whole, flags, at = torch.arange(6).view(2, 3), x > 0, torch.tensor([[1, 0, 1], [0, 0, 1]])
    special = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.5])
    positive, ones, heads = x.abs() + 0.1, torch.ones(3), torch.randn(3, 2, 2, 5, 4)
    mask = torch.zeros(5, 5).masked_fill_(torch.ones(5, 5).triu_(1) > 0, -INF)
    mask[2] = -INF
    pairs = [call(x, y), call(whole, whole.flip(0)), call(x, x)]
    numbers = [call(x, 2), call(whole, 3), call(x, -0.5)]
    cases: dict[str, list[Arguments]] = {}
    for name in onnx_operators.FLOATS.split():
        cases[f"{name}.default"] = [call(positive), *([] if name in ("log", "sqrt") else [call(x)])]
    cases["relu.default"] += [call(special)]
    for name in ("add", "sub", "mul", "ne", *onnx_operators.ORDER):
        cases |= {f"{name}.Tensor": pairs, f"{name}.Scalar": numbers}
    for name, other in (("logical_and", "bitwise_and"), ("logical_or", "bitwise_or")):
        cases |= {f"{name}.default": [call(flags, flags.flip(0))], f"{other}.Tensor": [call(flags, flags.flip(0))]}
    for name in ("ones", "zeros"):
        cases[f"{name}.default"] = [call([2, 3]), call([2], dtype=torch.int64)]
        cases[f"new_{name}.default"] = [call(x, [4]), call(x, [], dtype=torch.bool)]
        cases[f"{name}_like.default"] = [call(x), call(flags)]
    return cases | {
        "div.Tensor": [call(x, positive)],
        "div.Scalar": [call(x, 3)],
        "pow.Tensor_Scalar": [call(x, 2), call(positive, 0.7)],
        "maximum.default": [call(special, special.flip(0)), call(whole, at)],
        "minimum.default": [call(special, special.flip(0)), call(whole, at)],
        "rsqrt.default": [call(positive)],
        "sigmoid.default": [call(x * 20)],
        "logical_not.default": [call(flags)],
        "bitwise_not.default": [call(flags)],
        "where.self": [call(flags, x, y), call(flags, whole, at), call(special > 0, special, -special)],
        "_to_copy.default": [call(x * 9, dtype=torch.int64), call(whole, dtype=torch.bool), call(flags, dtype=x.dtype)],
        **{f"{name}.default": [call(x, [3, 2]), call(flags, [6])] for name in ("view", "_unsafe_view", "reshape")},
        "unsqueeze.default": [call(x, -1)],
        "squeeze.default": [call(x[:1])],
        "squeeze.dim": [call(x[:1], 0)],
        "squeeze.dims": [call(x[:1, :, None], [0, 2])],
        "clone.default": [call(x), call(image.permute(0, 2, 3, 1), memory_format=torch.contiguous_format)],
        "alias.default": [call(x)],
        "expand.default": [call(x, [4, -1, 3]), call(torch.tensor(1.5), [2])],
        "permute.default": [call(image, [0, -1, 1, 2])],
        "t.default": [call(x), call(ones)],
        "transpose.int": [call(image, 1, -1)],
        "slice.Tensor": [call(x, 1, 1), call(x, 0, 0, 1), call(x, 1, 0, 9, 2), call(x, -1, -2)],
        "select.int": [call(x, 1, -1), call(flags, 0, 1)],
        "split.Tensor": [call(image, 3, 2)],
        "split_with_sizes.default": [call(x, [1, 2], 1)],
        "cat.default": [call([x, y], 1), call([flags, flags])],
        "full.default": [call([2, 3], 7), call([2], -INF), call([], True)],
        "scalar_tensor.default": [call(2.5, dtype=torch.float32)],
        "new_full.default": [call(x, [2], 3)],
        "arange.default": [call(5)],
        "arange.start": [call(2, 7)],
        "embedding.default": [call(x, at), call(x, at, 0)],
        "index_select.default": [call(x, 1, at[0])],
        "gather.default": [call(whole, 1, at), call(x, 0, at)],
        "index.Tensor": [call(x, [at]), call(flags, [at, whole % 3]), call(image, [at[:, :1], at[0]])],
        "sum.dim_IntList": [call(x, [0]), call(image, [-1, 1], True)],
        "mean.dim": [call(x, [1]), call(image, None, True)],
        "cumsum.default": [call(x, 1), call(whole, 0)],
        "_softmax.default": [call(x, -1, False)],
        "_log_softmax.default": [call(x, 0, False)],
        "native_layer_norm.default": [call(x, [3], ones, y[0], 1e-5), call(image, [6, 5], None, None, 1e-6)],
        "_native_batch_norm_legit_no_training.default": [
            call(image, torch.rand(4), torch.rand(4), torch.rand(4), torch.rand(4) + 0.1, 0.1, 1e-5),
            call(image, None, None, torch.rand(4), torch.rand(4) + 0.1, 0.1, 1e-5),
        ],
        "mm.default": [call(x, matrix)],
        "bmm.default": [call(image[0], image[0].mT)],
        "addmm.default": [call(matrix[0], x, matrix), call(torch.randn(2, 4), x, matrix)],
        "convolution.default": [
            call(image, torch.randn(6, 4, 3, 2), torch.randn(6), [2, 1], [1, 0], [1, 2], False, [0, 0], 1),
            call(image, torch.randn(4, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
            call(image[0], torch.randn(2, 6, 3), None, [1], [0], [1], False, [0], 1),
        ],
        "max_pool2d_with_indices.default": [call(image, [2]), call(image, [3, 2], [2, 1], [1, 0])],
        "_scaled_dot_product_flash_attention_for_cpu.default": [
            call(*heads),
            call(*heads, scale=0.3),
            call(*heads, attn_mask=mask),
        ],
    }


def test_each_operator_computes_what_pytorch_computes() -> None:
    """All results are those of ONNX Runtime, also views, which Keel makes itself of a backend with any layout."""
    cases = {f"aten.{name}": calls for name, calls in arguments().items()}
    assert cases.keys() == onnx_operators.EMITTERS.keys()
    calls = [(getattr(getattr(aten, name.split(".")[1]), name.split(".")[2]), c) for name in cases for c in cases[name]]
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
        if name in ("aten.where.self", "aten.clone.default", "aten.neg.default"):
            assert torch.equal(result.signbit(), expected.signbit())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "resnet18"])
def test_a_model_is_one_part(name: str) -> None:
    case = build(name, scale="tiny", seed=0)
    parts: list[int] = []

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Any:
        parts.append(len(ctx.constants))
        return backend.compile(gm, ctx)

    one = replace(backend, compile=compile)
    with torch.no_grad():
        found = keel.compile(case.model, backends=[one], strict=True, dynamic=False)(*case.args, **case.kwargs)
        expected = case.model(*case.args, **case.kwargs)
    found, expected = (r if isinstance(r, Tensor) else next(iter(r.values())) for r in (found, expected))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(parts) == 1 and parts[0] > 40


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
