"""Backends of torch.compile as Keel backends: alone, beside others, in training, with changing sizes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import keel
from keel import Backend, Rule, Support
from keel_foreign import foreign, inductor, untraceable

CPU = Backend(
    name="mm",
    device="cpu",
    compile=lambda gm: gm.forward,
    supports=Support((Rule(ops=("aten.mm", "aten.addmm", "aten.t")),)),
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


class Small(nn.Module):
    """A convolution whose result leaves in channels-last order, and a small head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x).permute(0, 2, 3, 1)
        return self.head(nn.functional.gelu(self.norm(y))).softmax(-1), y.relu()


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, check_stride=True, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Inductor's own, on import
def test_inductor_beside_another_computes_values_and_gradients_with_eagers_strides() -> None:
    model = Small()
    twin = copy.deepcopy(model)
    compiled = keel.compile(twin, backends=[CPU, inductor], strict=True, fullgraph=True)
    x = torch.randn(2, 3, 6, 5)
    wanted, found = model(x), compiled(x)
    same(found, wanted)
    for results in (wanted, found):
        sum(r.pow(2).sum() for r in results).backward()
    same([p.grad for p in twin.parameters()], [p.grad for p in model.parameters()])


def test_sizes_may_change() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, int]:
        return (x @ w).softmax(-1).sum(0), x.shape[0] * 2

    compiled = keel.compile(fn, backends=[CPU, foreign("aot_eager")], strict=True, dynamic=True)
    before = keel.testing.compiled_graphs()
    for rows in (3, 7, 12):
        x, w = torch.randn(rows, 4), torch.randn(4, 5)
        found, wanted = compiled(x, w), fn(x, w)
        same(found, wanted)
    assert keel.testing.compiled_graphs() - before == 1


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_any_registered_backend_works(name: str) -> None:
    x = torch.randn(4, 4)
    explanation = keel.explain(lambda x: (x @ x).relu().sum(), x, backends=[CPU, foreign(name)], strict=True)
    assert explanation.taken == {"mm": 1, name: 2}


@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_a_float_that_changes_is_a_constant_where_the_other_compiler_asks_for_that(name: str) -> None:
    go = torch.compile(
        lambda x, n, f: (x * n, x + f), backend="keel", options={"backends": [foreign(name), "eager"], "strict": True}
    )
    x = torch.ones(2)
    for k in range(3):
        same(go(x, k + 2, k * 0.5), (x * (k + 2), x + k * 0.5))


def test_symbols_that_another_compiler_makes_up_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    environments = []

    def inventive(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        made = inputs[0].fake_mode.from_tensor(torch.ones(5, 7))
        assert isinstance(made.shape[0], torch.SymInt)
        environments.append((made.fake_mode.shape_env, next(iter(gm.graph.nodes)).meta["val"].fake_mode.shape_env))
        return gm.forward

    known = torch._dynamo.backends.registry
    monkeypatch.setattr(known, "_BACKENDS", dict(known._BACKENDS))
    monkeypatch.setattr(known, "_COMPILER_FNS", dict(known._COMPILER_FNS))
    known.register_backend(inventive, name="inventive")
    x = torch.randn(4, 4)
    same(keel.compile(lambda x: x.sin(), backends=[foreign("inventive")], strict=True, dynamic=False)(x), x.sin())
    [(theirs, ours)] = environments
    assert theirs is not ours


def test_a_backend_that_torch_compile_does_not_know() -> None:
    with pytest.raises(keel.KeelError, match=r"torch\.compile has no backend named 'inducktor'") as caught:
        keel.compile(torch.relu, backends=[foreign("inducktor")])
    assert caught.value.code == "not-here"
    with pytest.raises(keel.KeelError, match="Did you mean 'inductor'") as caught:
        keel.plugin.torch_compile_backend("inducktor")
    assert caught.value.code == "unknown-backend"


def test_keel_is_not_foreign_to_itself() -> None:
    with pytest.raises(keel.KeelError, match="no backend named 'keel'"):
        keel.plugin.torch_compile_backend("keel")


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (torch.ops.aten.nonzero.default, "known only when it has run"),
        (torch.ops.aten._local_scalar_dense.default, "known only when it has run"),
        (torch.ops.aten.add_.Tensor, "acts by what it does"),
        (torch.ops.aten.__ilshift__.Scalar, "acts by what it does"),
        (torch.ops.aten._assert_async.default, "acts by what it does"),
        (torch.ops.higher_order.cond, "of higher order"),
        (torch.ops._c10d_functional.wait_tensor.default, "talks to other processes"),
    ],
)
def test_what_cannot_be_traced_is_refused(op: Callable[..., Any], reason: str) -> None:
    out = () if op is torch.ops.aten._assert_async.default else (keel.TensorType.dense(torch.float32, (4,)),)
    assert reason in str(untraceable(keel.Call(op, (), {}, out)))


def test_operators_in_underscores_are_taken() -> None:
    x = keel.TensorType.dense(torch.int64, (4,))
    assert untraceable(keel.Call(torch.ops.aten.__lshift__.Scalar, (x, 2), {}, (x,))) is None


def test_an_index_is_refused_only_where_it_is_a_mask() -> None:
    flags, at, mask = (keel.TensorType.dense(d, (4,)) for d in (torch.bool, torch.int64, torch.bool))
    index = torch.ops.aten.index.Tensor
    assert untraceable(keel.Call(index, (flags, [at]), {}, (flags,))) is None
    for wrong in (mask, keel.TensorType.dense(torch.uint8, (4,))):
        assert "known only" in str(untraceable(keel.Call(index, (flags, [None, wrong]), {}, (flags,))))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Inductor's own, on import
def test_inductor_reads_flags_at_places() -> None:
    flags, at = torch.tensor([[True, False], [False, False]]), torch.tensor([1, 0, 0])

    def fn(flags: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return flags[at, at] | flags[:, at][0]

    explanation = keel.explain(fn, flags, at, backends=[inductor], strict=True)
    assert set(explanation.taken) == {"inductor"}
    assert keel.compile(fn, backends=[inductor], strict=True)(flags, at).tolist() == fn(flags, at).tolist()


def test_the_rest_is_taken() -> None:
    t = keel.TensorType.dense(torch.float32, (4,))
    for op in (torch.ops.aten.add.Tensor, torch.ops.aten.rand_like.default, torch.ops.aten.sort.default):
        assert untraceable(keel.Call(op, (t,), {}, (t,))) is None
