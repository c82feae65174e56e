"""Graphs saved and loaded: the same results, types and names, in eager and compiled; what is refused, and how."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

import keel
from keel import KeelError
from keel.graph.verify import violations
from keel.serialize import load_graph, save_graph

from .archives import changed, data_of

aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "graph.keel"


def traced(fn: Callable[..., Any], *args: Any, mode: str = "symbolic") -> fx.GraphModule:
    return make_fx(fn, tracing_mode=mode)(*args)


def moments(x: torch.Tensor, y: torch.Tensor) -> Sequence[Any]:
    return torch.sigmoid(x).exp() @ y, torch.var_mean(x, 0), x.nonzero().sum(0), x.shape[0] * 2


@pytest.mark.parametrize("mode", ["symbolic", "fake", "real"])
def test_a_traced_graph_comes_back(mode: str, file: Path) -> None:
    x, y = torch.randn(5, 4), torch.randn(4, 3)
    save_graph(traced(moments, x, y, mode=mode), file)
    loaded = load_graph(file)
    assert not dict(violations(loaded))
    want = torch.utils._pytree.tree_leaves(moments(x, y))
    torch.testing.assert_close(torch.utils._pytree.tree_leaves(loaded(x, y)), want)
    again = file.with_name("again.keel")
    save_graph(loaded, again)
    assert data_of(again) == data_of(file)


@pytest.mark.slow
def test_symbols_keep_their_ranges_and_hints(file: Path) -> None:
    x, y = torch.randn(5, 4), torch.randn(4, 3)
    save_graph(traced(moments, x, y), file)
    loaded = load_graph(file)
    rows, inner = next(iter(loaded.graph.nodes)).meta["val"].shape
    assert (rows.node.hint, inner.node.hint) == (5, 4)
    assert rows.node.shape_env.bound_sympy(rows.node.expr).lower == 2
    facts = data_of(file)["symbols"]
    assert facts[str(rows)] == {"hint": 5, "lower": 2, "upper": None, "positive": True, "kind": "int"}
    assert facts["u0"]["hint"] is None
    x = torch.randn(7, 4)
    torch.testing.assert_close(loaded(x, y)[0], moments(x, y)[0])
    torch.testing.assert_close(keel.compile(loaded, backends=["eager"], dynamic=True)(x, y)[0], moments(x, y)[0])


def test_one_result_is_one_result(file: Path) -> None:
    save_graph(traced(torch.exp, torch.ones(3)), file)
    assert isinstance(load_graph(file)(torch.ones(3)), torch.Tensor)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, pair: dict[str, torch.Tensor], *, scale: float = 2.0) -> dict[str, Any]:
        self.calls += 1
        return {"a": torch.relu(self.norm(self.linear(x))) * scale, "b": [x.mean() + pair["y"], x[:, :2].t()]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    torch.manual_seed(0)
    model, file = Model(), tmp_path_factory.mktemp("files") / "model.keel"
    x, y = torch.randn(6, 4), {"y": torch.ones(())}
    program = torch.export.export(
        model,
        (x, y),
        {"scale": 3.0},
        dynamic_shapes={"x": {0: torch.export.Dim("rows", min=2, max=64)}, "pair": {"y": None}, "scale": None},
    )
    save_graph(program, file)
    return model, file


@pytest.fixture
def exported(made: tuple[Model, Path]) -> tuple[Model, Any]:
    return copy.deepcopy(made[0]), load_graph(made[1])


@pytest.mark.slow
def test_an_exported_program_comes_back(exported: tuple[Model, Any]) -> None:
    model, loaded = exported
    assert {type(p) for p in loaded.parameters()} == {nn.Parameter} and len(list(loaded.parameters())) == 4
    for rows in (6, 9):
        x, y = torch.randn(rows, 4), {"y": torch.ones(())}
        torch.testing.assert_close(loaded(x, y, scale=3.0), model(x, y, scale=3.0))
        torch.testing.assert_close(loaded.b_norm_running_mean, model.norm.running_mean)
    assert loaded.b_calls == model.calls == 2
    x = torch.randn(4, 6).t()  # other strides than those it was traced for
    torch.testing.assert_close(loaded(x, y, scale=3.0), model(x, y, scale=3.0))


@pytest.mark.slow
def test_a_loaded_program_compiles_and_trains(exported: tuple[Model, Any]) -> None:
    model, loaded = exported
    torch.compiler.reset()
    compiled = keel.compile(loaded, backends=["eager"], fullgraph=True, dynamic=True)
    graphs = 0
    for rows in (6, 9):
        x, y = torch.randn(rows, 4), {"y": torch.ones(())}
        compiled(x, y, scale=3.0)["a"].square().sum().backward()
        model(x, y, scale=3.0)["a"].square().sum().backward()
        torch.testing.assert_close(loaded.p_linear_weight.grad, model.linear.weight.grad)
        graphs = graphs or keel.testing.compiled_graphs()
    torch.testing.assert_close(loaded.b_norm_running_var, model.norm.running_var)
    assert keel.testing.compiled_graphs() == graphs  # the check before a call needs none of its own per size


@pytest.mark.parametrize(
    ("x", "kwargs", "why"),
    [
        (torch.ones(1, 4), {"scale": 3.0}, "The size is 1, not between 2 and 64"),
        (torch.ones(65, 4), {"scale": 3.0}, "The size is 65"),
        (torch.ones(6, 5), {"scale": 3.0}, "x: Its size in dimension 1 is 5, not 4"),
        (torch.ones(6), {"scale": 3.0}, "x: It has 1 dimensions, not 2"),
        (torch.ones(6, 4, dtype=torch.float64), {"scale": 3.0}, "x: Its dtype is torch.float64, not torch.float32"),
        (7, {"scale": 3.0}, "x: It is int, not a tensor"),
        (torch.ones(6, 4), {"scale": 2.0}, "scale: It is 2.0, not 3.0"),
        (torch.ones(6, 4, device="meta"), {"scale": 3.0}, "x: Its device is meta, not cpu"),
    ],
)
def test_arguments_that_do_not_fit(x: Any, kwargs: dict[str, Any], why: str, exported: tuple[Model, Any]) -> None:
    with pytest.raises(KeelError, match=rf"\[bad-input\](.|\n)*{why}"):
        exported[1](x, {"y": torch.ones(())}, **kwargs)


def test_sizes_that_follow_from_others_are_checked(file: Path) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)

    class Halves(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.exp(x), torch.exp(y)  # type: ignore[return-value]

    program = torch.export.export(
        Halves(), (torch.ones(4), torch.ones(9)), dynamic_shapes=({0: rows}, {0: 2 * rows + 1})
    )
    save_graph(program, file)
    loaded = load_graph(file)
    assert loaded(torch.ones(5), torch.ones(11))[1].shape == (11,)
    with pytest.raises(KeelError, match="y: Its size in dimension 0 is 10, not 11"):
        loaded(torch.ones(5), torch.ones(10))


def test_written_inputs_are_written(file: Path) -> None:
    class Counts(nn.Module):
        def forward(self, x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
            total.add_(x)
            return torch.exp(total)

    save_graph(torch.export.export(Counts(), (torch.ones(2, 3), torch.ones(2, 3))), file)
    loaded, total = load_graph(file), torch.ones(2, 3)
    torch.testing.assert_close(loaded(torch.ones(2, 3), total), torch.full((2, 3), 2.0).exp())
    assert (total == 2).all()
    with pytest.raises(KeelError, match="total: The graph writes to it, so it must have the strides"):
        loaded(torch.ones(2, 3), torch.ones(3, 2).t())


@pytest.mark.slow
def test_inner_graphs(file: Path) -> None:
    class Either(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: torch.exp(x), lambda x: torch.sin(x), (x,))  # type: ignore[no-any-return]

    save_graph(torch.export.export(Either(), (torch.ones(3),)), file)
    loaded = load_graph(file)
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(loaded(x), Either()(x))


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(file: Path) -> Path:
    save_graph(traced(lambda x: torch.var_mean(torch.exp(x), 0), torch.ones(4, 3)), file)
    return file


def edited(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.update(values)


def edited_node(i: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["graph"]["nodes"][i].update(values)


def without_default(data: dict[str, Any]) -> None:
    node = next(n for n in data["graph"]["nodes"] if n["op"] == "aten.exp.default")
    node["args"]["speed"] = 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code", "why"),
    [
        (edited(opset="1.1"), "opset-version", "Nothing leads from opset 1.1 to 1.0"),
        (edited(opset="2.0"), "opset-version", "Nothing leads from opset 2.0 to 1.0"),
        (edited(format=2), "opset-version", "is of format 2"),
        (edited(keel="soup"), "bad-file", "keel: It is 'soup', not 'graph'"),
        (edited(graph={}), "bad-file", "graph: It lacks inputs"),
        (edited_node(0, op="aten.copy_.default"), "opset-version", "aten.copy_.default: It is not a member"),
        (edited_node(0, op="os.system.default"), "opset-version", "os.system.default: It is not a member"),
        (edited_node(0, name="import os"), "bad-file", "'import os' is not a valid name"),
        (
            edited_node(0, out={"dtype": "float32", "shape": ["q"], "strides": [1], "offset": 0, "device": "cpu"}),
            "bad-file",
            "'q' is not a size",
        ),
        (edited_node(0, args={"self": {"node": "nobody"}}), "bad-file", "nobody"),
        (without_default, "opset-version", "The graph sets 'speed' of .* to 3"),
    ],
)
def test_files_that_do_not_load(change: Callable[..., None], code: str, why: str, saved: Path) -> None:
    changed(saved, change)
    with pytest.raises(KeelError, match=rf"\[{code}\](.|\n)*{why}"):
        load_graph(saved)


def test_damaged_files(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:40])
    with pytest.raises(KeelError, match=r"\[bad-file\].*It is not a graph that keel.serialize.save_graph wrote"):
        load_graph(saved)
    with pytest.raises(KeelError, match="There is no file"):
        load_graph(saved.with_name("lost"))


def test_parameters_that_another_pytorch_has(saved: Path) -> None:
    """A parameter unknown here may have its default; one that is missing gets this PyTorch's."""

    def change(data: dict[str, Any]) -> None:
        node = next(n for n in data["graph"]["nodes"] if n["op"] == "aten.var_mean.correction")
        node["args"]["speed"] = 3
        node["default"] = [*node["default"], "speed"]
        assert node["args"].pop("keepdim") is False

    changed(saved, change)
    x = torch.randn(4, 3)
    torch.testing.assert_close(load_graph(saved)(x), torch.var_mean(torch.exp(x), 0))


def test_arguments_are_saved_by_name(saved: Path) -> None:
    node = next(n for n in data_of(saved)["graph"]["nodes"] if n["op"] == "aten.var_mean.correction")
    assert node["args"] == {"self": {"node": "exp"}, "dim": [0], "correction": 1, "keepdim": False}
    assert node["default"] == ["keepdim"]


def test_graphs_that_cannot_be_saved(file: Path) -> None:
    untyped = fx.symbolic_trace(lambda x: aten.exp.default(x))
    with pytest.raises(KeelError, match=r"\[bad-graph\](.|\n)*has no type(.|\n)*make_fx"):
        save_graph(untyped, file)
    with pytest.raises(KeelError, match=r"\[bad-graph\](.|\n)*writes to its arguments"):
        save_graph(traced(lambda x: x.add_(1), torch.ones(2)), file)
    with pytest.raises(KeelError, match=r"\[opset-version\].*from opset 1.0 to 0.9"):
        save_graph(traced(torch.exp, torch.ones(2)), file, opset="0.9")
    assert not file.exists()


def test_operators_outside_the_opset_cannot_be_saved(file: Path) -> None:
    with torch.library._scoped_library("keel_test_files", "DEF") as library:
        library.define("own(Tensor x) -> Tensor")
        library.impl("own", lambda x: x + 1, "CompositeExplicitAutograd")
        library.impl("own", lambda x: torch.empty_like(x), "Meta")
        with pytest.raises(
            KeelError, match=r"\[bad-graph\].*no opset has %own = keel_test_files(.|\n)*custom operators"
        ):
            save_graph(traced(torch.ops.keel_test_files.own, torch.ones(2)), file)
