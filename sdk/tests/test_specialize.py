"""Backends that need known sizes run parts with symbolic sizes: compiled per size, or padded where that is proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import keel
from keel import Backend, KeelError, KeelWarning, Rule, Support
from keel.graph.calls import call_of, type_of
from keel.plugin import CompileContext, PreparedConstants, Staged
from keel.runtime.contract_checks import mismatch


class Acme:
    """A backend that needs known sizes, and inputs of exactly the types that it compiled for. ``shapes`` has the shape
    of the first tensor of each part that it compiled.
    """

    def __init__(self, **fields: Any) -> None:
        self.shapes: list[tuple[int, ...]] = []
        supports = Support((Rule(ops=("*",), static=True),))
        self.backend = Backend(name="acme", device="cpu", **{"supports": supports, "compile": self.compile, **fields})

    def compile(self, gm: fx.GraphModule, ctx: CompileContext) -> Any:
        assert not ctx.sizes
        for node in gm.graph.nodes:
            if isinstance(value := node.meta.get("val"), Tensor):
                assert all(type(n) is int for n in (*value.shape, *value.stride()))
        values = [n.meta["val"] for n in gm.graph.nodes if n.op in ("placeholder", "call_function")]
        self.shapes.append(tuple(values[0].shape))
        types = [type_of(n.meta["val"]) for n in gm.graph.find_nodes(op="placeholder")]

        def run(*inputs: Tensor) -> Any:
            for want, got in zip(types, inputs, strict=True):
                assert mismatch(want, got, {}) is None
            return gm(*inputs)

        return run


def compiled(function: Callable[..., Any], acme: Acme, **options: Any) -> Callable[..., Any]:
    torch.compiler.reset()
    backends = [acme.backend, *options.pop("others", [])]
    return keel.compile(function, backends=backends, strict=True, dynamic=True, **options)


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


def test_a_mean_along_the_size_is_compiled_for_each_size() -> None:
    acme = Acme()
    run = compiled(lambda x: x.mean(0) * 2, acme)
    for rows in (5, 6, 7, 5):
        x = torch.arange(rows * 3.0).reshape(rows, 3)
        torch.testing.assert_close(run(x), x.mean(0) * 2, rtol=0, atol=0)
    assert [shape[0] for shape in acme.shapes] == [5, 6, 7]


def test_the_least_recently_used_size_is_dropped() -> None:
    acme = Acme()
    run = compiled(lambda x: x.flip(0), acme)
    for rows in (*range(10, 19), 18, 10):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(run(x), x.flip(0))
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


def check(function: Callable[..., Any], acme: Acme, *calls: tuple[Tensor, ...], **options: Any) -> None:
    """The function, compiled once, returns in each call what it returns in eager PyTorch."""
    run = compiled(function, acme, **options)
    for inputs in calls:
        results, expected = run(*inputs), function(*inputs)
        torch.testing.assert_close(results, expected, rtol=0, atol=0, check_stride=True)


def test_strides_of_an_input_may_be_symbolic() -> None:
    acme = Acme()
    check(torch.neg, acme, *((torch.randn(rows, width)[:, :7],) for rows, width in ((12, 9), (13, 9), (14, 30))))
    assert acme.shapes == [(16, 8), (16, 8)], "compiled for each stride"


def test_rows_of_an_input_do_not_overlap_when_they_are_padded() -> None:
    acme = Acme()
    check(torch.neg, acme, (torch.randn(13, 25)[:, :20],), (torch.randn(13, 40)[:, :20],))
    assert acme.shapes == [(13, 20), (16, 32)]


def test_an_expanded_input_is_padded() -> None:
    acme = Acme()
    check(lambda x, y: x * 2 + y, acme, *((torch.randn(1, 5).expand(n, 5), torch.randn(n, 5)) for n in (12, 13)))
    assert acme.shapes == [(16, 8)]


def test_an_expanded_result_is_cut_off() -> None:
    acme = Acme()
    check(lambda x, y: ((x * 2).expand(y.shape[0], 5), y + 1), acme, *((torch.randn(5), y) for y in map(ones, (9, 12))))
    assert acme.shapes == [(5,)]


def test_a_result_has_the_strides_of_the_call() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y[:, 0], y

    acme = Acme()
    check(function, acme, *((rows_known(5, n),) for n in (12, 13)))
    assert acme.shapes == [(5, 16)]


def test_sizes_that_do_not_fit_each_other_are_not_rounded() -> None:
    acme = Acme()
    check(
        lambda x, y: (x[: y.shape[0]] + y, x.mean(0)), acme, *((ones(m), ones(n)) for m, n in ((10, 7), (7, 7), (9, 6)))
    )
    assert acme.shapes == [(8,), (7,), (8,)], "of y: 7 elements of x have no 8th one"


@pytest.mark.parametrize("shape", [(5, 1), (5, 1, 2)], ids=["a size", "a product"])
def test_strides_may_depend_on_a_size_that_no_shape_has(shape: tuple[int, ...]) -> None:
    acme = Acme(supports=Support((Rule(ops=("aten.mul", "aten.add"), static=True),)))
    calls = [(rows_known(5, n, *shape[2:]),) for n in (12, 13)]
    check(lambda x: x.flatten(2)[:, 0, 0] * 2 if x.dim() > 2 else x[:, 0] * 2, acme, *calls, others=["eager"])
    assert {*acme.shapes} == {(5,)}


def test_strides_may_depend_on_a_size_that_another_input_has() -> None:
    acme = Acme(supports=Support((Rule(ops=("aten.mul", "aten.add"), static=True),)))
    calls = [(rows_known(5, n), ones(n)) for n in (12, 13)]
    check(lambda x, y: (x[:, 0] * 2, y + 1), acme, *calls, others=["eager"])
    assert len(acme.shapes) == 1


def test_a_size_may_be_told_by_an_expression() -> None:
    acme = Acme(supports=Support((Rule(ops=("aten.mul",), static=True),)))
    check(lambda x: x.reshape(-1).sin() * 2, acme, *((rows_known(5, n),) for n in (12, 13)), others=["eager"])
    assert acme.shapes == [(80,)]


def test_two_stages_are_kept() -> None:
    order: list[str] = []

    def begin(gm: fx.GraphModule, ctx: CompileContext) -> Callable[[], Any]:
        assert not ctx.sizes
        order.append("begin")

        def finish() -> Any:
            order.append("finish")
            return gm

        return finish

    supports = Support((Rule(ops=("aten.mul",), static=True),))
    check(
        lambda x: (x * 2).cumsum(0) * 3,
        Acme(compile=Staged(begin), supports=supports),
        *((torch.randn(n, 3),) for n in (12, 14)),
        others=["eager"],
    )
    assert order == ["begin", "begin", "finish", "finish"], "the first stages of both parts, then the second ones"


def ones(*shape: int) -> Tensor:
    return torch.ones(shape)


def rows_known(*shape: int) -> Tensor:
    """A tensor with a static number of rows."""
    x = torch.randn(shape)
    torch._dynamo.mark_static(x, 0)
    return x


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


def test_rounded_sizes_that_the_backend_refuses_are_not_used() -> None:
    def supports(call: keel.Call) -> str | None:
        small = call.is_static and all(t.shape[0] <= 70 for t in call.tensors)
        return None if small else "acme takes at most 70 rows."

    acme = Acme(supports=supports, static=True)
    check(torch.neg, acme, (ones(50, 2),), (ones(70, 2),))
    assert acme.shapes == [(64, 8), (70, 2)]


FAILS = {
    "refuses": "acme: acme takes at most 64 rows",
    "raises": "acme: MemoryError: out of registers",
}


@pytest.mark.parametrize("how", FAILS)
def test_a_last_resort_compiles_for_sizes_that_the_backend_fails_for(how: str) -> None:
    def supports(call: keel.Call) -> str | None:
        small = call.is_static and all(t.shape[0] <= 64 for t in call.tensors)
        return None if small or how == "raises" else "acme takes at most 64 rows."

    class Fails(Acme):
        def compile(self, gm: fx.GraphModule, ctx: CompileContext) -> Any:
            run = super().compile(gm, ctx)
            if self.shapes[-1][0] > 64:
                raise MemoryError("out of registers")
            return run

    acme = Fails(supports=supports, static=True)
    torch.compiler.reset()
    run = keel.compile(lambda x: (x * 2).t(), backends=[acme.backend, "eager"], dynamic=True)
    torch.testing.assert_close(run(ones(50, 3)), ones(50, 3).t() * 2, check_stride=True)
    with pytest.warns(KeelWarning, match=rf"(?s)sizes .*=(70|128).*{FAILS[how]}.*eager compiles it instead") as warned:
        for _ in range(2):
            torch.testing.assert_close(run(ones(70, 3)), (ones(70, 3) * 2).t(), check_stride=True)
    assert len(warned) == 1, "in the first call"
    with pytest.raises(KeelError, match=rf"(?s)sizes .*=(70|128).*{FAILS[how]}.*test_specialize.py") as raised:
        strict = compiled(lambda x: -x, Fails(supports=supports, static=True))
        strict(ones(50, 3)), strict(ones(70, 3))
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
    "columns made flat": lambda x: x.t().reshape(-1) + 1,
    "columns": lambda x: x.t().contiguous() * 2,
    "running sum": lambda x: x.cumsum(0),
    "half of the rows": lambda x: x[: x.shape[0] // 2] + 1,
    "positions": lambda x: torch.arange(x.shape[0]) * 2,
    "integer sum of rows": lambda x: x.to(torch.int32).sum(1),
}
MASKED: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(0),
    "largest": lambda x: x.amax(0),
    "product": lambda x: (x * 0 + 2).prod(0),
    "softmax of columns": lambda x: x.softmax(0),
    "product of matrices": lambda x: x.t() @ x,
    "computed index": lambda x: F.embedding(x.to(torch.int64)[:, 0] * 0 + 1, torch.ones(3, 2)),
    "integer division": lambda x: 7 // (x.to(torch.int32) + 100),
}
UNSAFE: dict[str, Callable[[Tensor], Any]] = {
    "mean": lambda x: x.mean(),
    "flip": lambda x: x.flip(0),
    "concatenation": lambda x: torch.cat([x, x * 2]),
    "last row": lambda x: x[-1] * 2,
    "roll": lambda x: x.roll(1, 0),
    "size as a number": lambda x: x * x.shape[0],
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


@pytest.mark.parametrize("name", MASKED)
def test_what_is_behind_the_size_is_masked(name: str) -> None:
    assert sizes_compiled(MASKED[name]) == [16], "one size for both"


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


class Layer(nn.Module):
    """A layer of a transformer. ``written_out`` attention is what a model did before PyTorch had a function for it."""

    def __init__(self, *, causal: bool = False, written_out: bool = False) -> None:
        super().__init__()
        self.norm, self.projections, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.causal, self.written_out = causal, written_out

    def forward(self, x: Tensor) -> Tensor:
        parts = self.projections(self.norm(x)).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        if self.written_out:
            scores = q @ k.mT / 2
            if self.causal:
                scores = scores.masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1) > 0, float("-inf"))
            attended = scores.softmax(-1) @ v
        else:
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.out(attended.transpose(1, 2).reshape(x.shape))


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("written_out", [False, True], ids=["sdpa", "written out"])
def test_lengths_of_sequences_are_padded(causal: bool, written_out: bool) -> None:
    acme, model = Acme(), Layer(causal=causal, written_out=written_out)
    run = compiled(model, acme)
    with torch.no_grad():
        for length in range(5, 25):
            x = torch.randn(3 + length % 4, length, 16)
            torch.testing.assert_close(run(x), model(x))
    assert len(acme.shapes) == 3, "lengths of 8, 16 and 32"


def test_sizes_that_need_masks_are_exact_if_the_backend_lacks_them() -> None:
    taken = Support((Rule(ops=("aten.mul", "aten.sum"), static=True),))
    acme = Acme(supports=taken)
    run = compiled(lambda x: (x * 2).sum(1), acme)
    for rows, columns in ((5, 9), (6, 9), (7, 9), (7, 10)):
        x = torch.arange(float(rows * columns)).reshape(rows, columns)
        torch.testing.assert_close(run(x), (x * 2).sum(1))
    assert acme.shapes == [(8, 9), (8, 10)]


def test_parts_pass_on_a_dimension_that_is_made_of_several() -> None:
    taken = Support((Rule(ops=("aten.view", "aten.mul", "aten.exp"), static=True),))
    acme = Acme(supports=taken)

    def function(x: Tensor) -> Tensor:
        rows = (x * 2).view(-1, 4)
        rows = torch.sin(rows)  # of another part
        return rows.exp().view(x.shape) * 3

    run = compiled(function, acme, others=["eager"])
    for batch, length in ((3, 9), (3, 10), (5, 13), (5, 16), (6, 12)):
        x = torch.randn(batch, length, 4)
        torch.testing.assert_close(run(x), function(x))
    assert acme.shapes == [(8, 16, 4), (128, 4)], "two parts"


def test_more_queries_than_keys_see_no_key_behind_the_size() -> None:
    acme = Acme()

    def function(x: Tensor) -> Tensor:
        queries = x.unsqueeze(3).expand(*x.shape[:3], 2, 4).reshape(*x.shape[:2], -1, 4)
        return F.scaled_dot_product_attention(queries, x, x, is_causal=True)

    run = compiled(function, acme)
    for length in (9, 13, 11):
        x = torch.randn(2, 3, length, 4)
        torch.testing.assert_close(run(x), function(x))
    assert len(acme.shapes) == 1


@pytest.mark.parametrize("name", ["_softmax", "_scaled_dot_product_flash_attention_for_cpu"])
def test_composites_stay_whole(name: str) -> None:
    called = list[str]()

    def compile(gm: fx.GraphModule) -> fx.GraphModule:
        called.extend(str(node.target).split(".")[1] for node in gm.graph.nodes if call_of(node) is not None)
        return gm

    acme, model = Acme(compile=compile), Layer(written_out=name == "_softmax")
    run = compiled(model, acme)
    with torch.no_grad():
        for length in (9, 13):
            x = torch.randn(3, length, 16)
            torch.testing.assert_close(run(x), model(x))
    assert called.count(name) == 1 and "amax" not in called and "where" in called
