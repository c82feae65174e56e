"""Backends that need known sizes run parts with symbolic sizes: compiled per size, or padded where that is proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import keel
from keel import Backend, KeelError, Rule, Support
from keel.plugin import CompileContext, PreparedConstants


class Acme:
    """A backend that needs known sizes. ``shapes`` has the shape of the first tensor of each part that it compiled."""

    def __init__(self, **fields: Any) -> None:
        self.shapes: list[tuple[int, ...]] = []
        fields = {"supports": Support((Rule(ops=("*",), static=True),)), **fields}
        self.backend = Backend(name="acme", device="cpu", compile=self.compile, **fields)

    def compile(self, gm: fx.GraphModule, ctx: CompileContext) -> Any:
        assert not ctx.sizes
        for node in gm.graph.nodes:
            if isinstance(value := node.meta.get("val"), Tensor):
                assert all(type(n) is int for n in (*value.shape, *value.stride()))
        values = [n.meta["val"] for n in gm.graph.nodes if n.op in ("placeholder", "call_function")]
        self.shapes.append(tuple(values[0].shape))
        return gm


def compiled(function: Callable[..., Any], acme: Acme, **options: Any) -> Callable[..., Any]:
    torch.compiler.reset()
    return keel.compile(function, backends=[acme.backend], strict=True, dynamic=True, **options)


def test_rows_are_padded_and_cut_off() -> None:
    acme, model = Acme(), nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    run = compiled(model, acme)
    with torch.no_grad():
        for rows in range(20, 60, 2):
            x = torch.randn(rows, 8)
            result = run(x)
            torch.testing.assert_close(result, model(x))
            assert result.stride() == model(x).stride()
    assert len(acme.shapes) <= 2, "32 and 64 rows"


def test_a_sum_along_the_size_is_compiled_for_each_size() -> None:
    acme = Acme()
    run = compiled(lambda x: x.sum(0) * 2, acme)
    for rows in (5, 6, 7, 5):
        x = torch.arange(rows * 3.0).reshape(rows, 3)
        torch.testing.assert_close(run(x), x.sum(0) * 2, rtol=0, atol=0)
    assert [shape[0] for shape in acme.shapes] == [5, 6, 7]


def test_the_least_recently_used_size_is_dropped() -> None:
    acme = Acme()
    run = compiled(lambda x: x.sum(0), acme)
    for rows in (*range(10, 19), 18, 10):
        torch.testing.assert_close(run(torch.ones(rows, 3)), torch.full((3,), float(rows)))
    assert [shape[0] for shape in acme.shapes] == [*range(10, 19), 10]


def test_the_user_s_buckets_are_used() -> None:
    acme = Acme()
    run = compiled(torch.sin, acme, buckets=[10, 20])
    for rows in (3, 9, 11, 20, 25):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(run(x), x.sin())
    assert sorted(shape[0] for shape in acme.shapes) == [10, 20, 25]


def test_no_buckets_mean_no_padding() -> None:
    acme = Acme()
    run = compiled(torch.sin, acme, buckets=[])
    for rows in (3, 4, 5):
        run(torch.randn(rows, 2))
    assert [shape[0] for shape in acme.shapes] == [3, 4, 5]


def test_bounds_of_a_size_are_kept() -> None:
    acme = Acme()
    run = compiled(torch.sin, acme)
    x = torch.randn(30, 2)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=40)
    torch.testing.assert_close(run(x), x.sin())
    x = torch.randn(35, 2)
    torch.testing.assert_close(run(x), x.sin())
    assert [shape[0] for shape in acme.shapes] == [32, 40]


def test_a_function_may_be_asked_about_known_sizes() -> None:
    def supports(call: keel.Call) -> str | None:
        return None if call.is_static else "acme needs known sizes."

    acme = Acme(supports=supports, static=True)
    run = compiled(torch.cos, acme)
    torch.testing.assert_close(run(torch.ones(5)), torch.ones(5).cos())
    assert acme.shapes == [(8,)]


def test_training_is_right() -> None:
    acme, model = Acme(), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    run = compiled(model, acme)
    for rows in (6, 9, 12):
        x = torch.randn(rows, 4)
        model.zero_grad()
        model(x).square().sum().backward()
        expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        run(x).square().sum().backward()
        torch.testing.assert_close([p.grad for p in model.parameters()], expected)


def test_a_refusal_for_another_size_says_so() -> None:
    def supports(call: keel.Call) -> str | None:
        small = call.is_static and all(t.shape[0] <= 64 for t in call.tensors)
        return None if small else "acme takes at most 64 rows."

    acme = Acme(supports=supports, static=True)
    run = compiled(torch.sin, acme)
    run(torch.ones(8, 2))
    with pytest.raises(KeelError, match="acme takes at most 64 rows") as raised:
        run(torch.ones(70, 2))
    assert raised.value.code == "compile-raised"


def test_constants_are_prepared_for_each_compiled_size() -> None:
    prepared: list[list[str]] = []

    class Packs(Acme):
        def compile(self, gm: fx.GraphModule, ctx: CompileContext) -> Any:
            super().compile(gm, ctx)
            names = [node.name for node in gm.graph.find_nodes(op="placeholder")]

            def prepare(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
                prepared.append(sorted(ctx.constants[name].name for name in tensors))
                return {name: tensor.clone() for name, tensor in tensors.items()}

            def run(constants: Mapping[str, Tensor], *others: Tensor) -> Any:
                rest = iter(others)
                return gm(*[constants[name] if name in constants else next(rest) for name in names])

            return PreparedConstants(prepare, run)

    acme, model = Packs(), nn.Linear(4, 3)
    run = compiled(model, acme)
    with torch.no_grad():
        for rows in (9, 12, 15, 17, 20):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(run(x), model(x))
        assert prepared == [["bias", "weight"]] * len(acme.shapes)
        model.weight.mul_(2)
        torch.testing.assert_close(run(x), model(x))
    assert len(prepared) == len(acme.shapes) + 1


@pytest.mark.parametrize("buckets", [[0], [8, 8], [16, 8], [1.5], ["8"], [True]])
def test_wrong_buckets_are_refused(buckets: Any) -> None:
    with pytest.raises(KeelError, match="The option 'buckets' is"):
        compiled(torch.sin, Acme(), buckets=buckets)


SAFE: dict[str, Callable[[Tensor], Any]] = {
    "pointwise": lambda x: (x * 2 + 1).relu(),
    "rows of a norm": lambda x: F.layer_norm(x, (6,)),
    "softmax of rows": lambda x: x.softmax(-1),
    "rows made flat": lambda x: x.reshape(-1) + 1,
    "columns": lambda x: x.t().contiguous() * 2,
    "running sum": lambda x: x.cumsum(0),
    "half of the rows": lambda x: x[: x.shape[0] // 2] + 1,
    "positions": lambda x: torch.arange(x.shape[0]) * 2,
    "integer sum of rows": lambda x: x.to(torch.int32).sum(1),
}
UNSAFE: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "flip": lambda x: x.flip(0),
    "columns made flat": lambda x: x.t().reshape(-1) + 1,
    "concatenation": lambda x: torch.cat([x, x * 2]),
    "last row": lambda x: x[-1] * 2,
    "roll": lambda x: x.roll(1, 0),
    "softmax of columns": lambda x: x.softmax(0),
    "size as a number": lambda x: x * x.shape[0],
    "computed index": lambda x: F.embedding(x.to(torch.int64)[:, 0] * 0 + 1, torch.ones(3, 2)),
    "integer division": lambda x: 7 // (x.to(torch.int32) + 100),
    "sorted": lambda x: x.sort(0).values,
    "random": lambda x: torch.rand_like(x) * 0,
}


def sizes_compiled(function: Callable[[Tensor], Any]) -> list[int]:
    acme = Acme()
    run = compiled(function, acme)
    for rows in (12, 14):
        x = torch.arange(rows * 6.0).reshape(rows, 6) / 7
        torch.testing.assert_close(run(x), function(x))
    return [shape[0] for shape in acme.shapes]


@pytest.mark.parametrize("name", SAFE)
def test_padding_is_proved_safe(name: str) -> None:
    assert sizes_compiled(SAFE[name]) in ([16], []), "one size for both"


@pytest.mark.parametrize("name", UNSAFE)
def test_padding_is_refused(name: str) -> None:
    assert 16 not in sizes_compiled(UNSAFE[name])


def test_an_index_that_is_an_input_is_padded() -> None:
    acme, table = Acme(), torch.randn(3, 2)
    run = compiled(lambda i: F.embedding(i, table) * 2, acme)
    for n in (9, 10, 11):
        indices = torch.arange(n) % 3
        torch.testing.assert_close(run(indices), table[indices] * 2)
    assert len(acme.shapes) == 1
