"""Claim or descend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

from keel import closure, universe
from keel.errors import KeelError
from keel.graph import legalize as room
from keel.graph.calls import types_of
from keel.graph.legalize import legalize
from keel.graph.verify import verify
from keel.torch_adapter import Captured, decomposition_of, tidied

from ..line import takes, trace, whole

aten = torch.ops.aten
R = torch.randn
LAST = whole("last", last_resort=True)


def captured(fn: Callable[..., Any], *inputs: Any, symbolic: bool = False) -> Captured:
    gm = trace(lambda *a: _tuple(fn(*a)), *inputs, symbolic=symbolic)
    return tidied(gm, "inference")


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def operators(gm: fx.GraphModule) -> list[str]:
    return [str(n.target).removeprefix("aten.") for n in gm.graph.nodes if n.op == "call_function"]


def test_a_composite_that_is_claimed_stays_whole() -> None:
    gm = legalize(captured(lambda x: x.softmax(-1), R(3, 4)), [takes("_softmax"), LAST]).gm
    assert operators(gm) == ["_softmax.default"]


SOFTMAX = ("amax", "sub", "exp", "sum", "div")


def test_a_composite_whose_pieces_are_claimed_descends() -> None:
    gm = legalize(captured(lambda x: x.softmax(-1), R(3, 4)), [takes(*SOFTMAX), LAST]).gm
    assert operators(gm) == ["amax.default", "sub.Tensor", "exp.default", "sum.dim_IntList", "div.Tensor"]
    verify(gm, "legalization")
    x = R(3, 4)
    torch.testing.assert_close(gm(x), (x.softmax(-1),))


def test_a_composite_stays_whole_for_the_last_resort_if_one_piece_is_not_claimed() -> None:
    legalized = legalize(captured(lambda x: x.softmax(-1), R(3, 4)), [takes(*SOFTMAX[1:]), LAST])
    assert operators(legalized.gm) == ["_softmax.default"]
    assert set(legalized.refusals["_softmax"]) == {"some"}
    assert str(legalized.refusals["_softmax"]["some"]).endswith(
        "It stays whole because no other backend takes its piece aten.amax.default."
    )


def test_a_composite_stays_whole_for_the_last_resort_if_its_decomposition_fails() -> None:
    def fails(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        return x.exp().to(torch.float64)

    legalized = legalize(
        captured(lambda x: x.softmax(-1), R(3, 4)),
        [takes(*SOFTMAX), LAST],
        descent=lambda call: fails if call.name == "aten._softmax.default" else None,
    )
    assert operators(legalized.gm) == ["_softmax.default"]
    assert str(legalized.refusals["_softmax"]["some"]).endswith(
        "It stays whole because its decomposition failed: Its decomposition returns torch.float64 on cpu, "
        "not torch.float32 on cpu."
    )


def test_the_last_resort_alone_keeps_all() -> None:
    assert operators(legalize(captured(lambda x: x.softmax(-1), R(3, 4)), [LAST]).gm) == ["_softmax.default"]


def test_what_only_the_last_resort_takes_in_pieces_is_written_out() -> None:
    last = takes(*SOFTMAX, name="last", last_resort=True)
    gm = legalize(captured(lambda x: x.softmax(-1), R(3, 4)), [takes("mm"), last]).gm
    assert "exp.default" in operators(gm)


def test_pieces_descend_in_their_turn() -> None:
    gm = legalize(
        captured(lambda x: F.softplus(x) + F.mish(x), R(3)),
        [takes("exp", "log1p", "gt", "where", "div", "mul", "add", "tanh", "log", "ne"), LAST],
    ).gm
    assert "softplus.default" not in operators(gm) and "mish.default" not in operators(gm)
    x = R(3)
    torch.testing.assert_close(gm(x), (F.softplus(x) + F.mish(x),))


def test_a_decomposition_is_recorded_once_for_equal_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    count = []
    real = room.decompose_call
    monkeypatch.setattr(room, "decompose_call", lambda *args: count.append(args[0]) or real(*args))
    legalize(
        captured(lambda x: x.softmax(-1) + (x + 1).softmax(-1) + x.softmax(0), R(3, 4)), [takes(*SOFTMAX, "add"), LAST]
    )
    assert len(count) == 2


def test_a_call_in_its_own_decomposition_is_no_way_round() -> None:
    def lookup(call: Any) -> Any:
        return (lambda x: aten.neg(aten.exp(aten.neg(x)))) if call.op is aten.exp.default else None

    gm = legalize(captured(torch.exp, R(3)), [takes("neg"), LAST], descent=lookup).gm
    assert operators(gm) == ["exp.default"]


def test_nodes_written_out_say_where_they_come_from() -> None:
    it = captured(lambda x: x.softmax(-1), R(3, 4))
    softmax = next(n for n in it.gm.graph.nodes if n.name == "_softmax")
    softmax.meta |= {"stack_trace": "here", "nn_module_stack": {"a": ("b", "c")}}
    gm = legalize(it, [takes(*SOFTMAX), LAST]).gm
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    assert all(n.meta["stack_trace"] == "here" and n.meta["keel.composite"] == "_softmax" for n in calls)
    assert all(n.meta["nn_module_stack"] == {"a": ("b", "c")} for n in calls)


def test_equal_calls_are_merged_and_unused_ones_dropped() -> None:
    gm = legalize(captured(lambda x: ((x * 2).sum() + (x * 2).sum(), x.exp()[:1])[0], R(3)), [whole()]).gm
    assert operators(gm) == ["mul.Tensor", "sum.default", "add.Tensor"]


def test_random_calls_and_numbers_of_other_kinds_are_not_merged() -> None:
    gm = legalize(captured(lambda x: torch.rand_like(x) + torch.rand_like(x) + (x * 1) + (x * 1.0), R(3)), [whole()]).gm
    assert operators(gm).count("rand_like.default") == 2 and operators(gm).count("mul.Tensor") == 2


def test_results_stay_apart() -> None:
    gm = legalize(captured(lambda x: (torch.zeros(3), torch.zeros(3), (x + 1).view(3, 1), (x + 1)), R(3)), [whole()]).gm
    found = gm(R(3))
    assert len({t.untyped_storage().data_ptr() for t in found}) == 4


def test_a_result_that_a_decomposition_makes_its_input_is_copied() -> None:
    def fn(x: Tensor) -> Any:
        return aten.native_dropout(x, 0.5, False)[0], aten.native_dropout(x * 2, 0.5, False)[0] + 1

    gm = legalize(
        captured(fn, R(3)),
        [takes("mul", "add", "clone", "ones_like", "full", "ones"), LAST],
        descent=lambda call: decomposition_of(call.op),
    ).gm
    assert "native_dropout.default" not in operators(gm)
    x = R(3)
    first, second = gm(x)
    assert first.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    torch.testing.assert_close((first, second), (x, x * 2 + 1))


def test_a_decomposition_with_other_strides_is_copied_into_place() -> None:
    def lookup(call: Any) -> Any:
        return (lambda x: aten.neg(x.t().contiguous()).t()) if call.op is aten.exp.default else None

    gm = legalize(
        captured(torch.exp, R(3, 4)), [takes("neg", "t", "clone", "permute", "transpose"), LAST], descent=lookup
    ).gm
    assert "exp.default" not in operators(gm)
    assert gm(R(3, 4))[0].is_contiguous()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.double(),
        lambda x: x[:1],
        lambda x: (x, x),
        lambda x: 3,
        lambda x: NotImplemented,
        lambda x: 1 / 0,
    ],
    ids=["dtype", "shape", "count", "number", "not implemented", "raises"],
)
def test_a_decomposition_that_gives_something_else_is_not_used(wrong: Callable[..., Any]) -> None:
    gm = legalize(
        captured(torch.exp, R(3, 4)),
        [takes("mul", "slice", "_to_copy"), LAST],
        descent=lambda call: wrong if call.op is aten.exp.default else None,
    ).gm
    assert operators(gm) == ["exp.default"]


def test_sizes_in_pieces_are_the_graphs_own() -> None:
    it = captured(lambda x, w: F.layer_norm(x, (4,)) * x.shape[0], R(3, 4), R(4), symbolic=True)
    gm = legalize(it, [takes("var_mean", "add", "rsqrt", "sub", "mul"), LAST]).gm
    assert operators(gm).count("sym_size.int") <= 1
    x = R(5, 4)
    torch.testing.assert_close(gm(x, R(4)), (F.layer_norm(x, (4,)) * 5,))


def test_views_start_where_their_sources_do() -> None:
    def lookup(call: Any) -> Any:
        return (lambda x: aten.neg(x[1:])) if call.op is aten.exp.default else None

    def fn(x: Tensor) -> Any:
        return aten.exp(x[:3]) + aten.exp(x[3:])

    # The decomposition is wrong by its shape, so it is only used where it is right: nowhere.
    gm = legalize(captured(fn, R(6)), [takes("neg", "slice", "add"), LAST], descent=lookup).gm
    assert operators(gm).count("exp.default") == 2


def test_a_piece_that_is_a_view_has_the_offset_of_its_argument() -> None:
    def lookup(call: Any) -> Any:
        return (lambda x: torch.cat([x[1:], x[:1]]).flip(0).flip(0)) if call.op is aten.exp.default else None

    gm = legalize(
        captured(lambda x: aten.exp(x[:3]) + aten.exp(x[3:]), R(6)),
        [takes("slice", "cat", "flip", "add"), LAST],
        descent=lookup,
    ).gm
    for node in gm.graph.nodes:
        if node.target is aten.slice.Tensor:
            source, dim, start = node.args[:3]
            value, origin = node.meta["val"], source.meta["val"]
            assert value.storage_offset() == origin.storage_offset() + start * origin.stride(dim)


def test_nobody_is_an_error() -> None:
    with pytest.raises(KeelError, match="no backend takes %exp"):
        legalize(captured(torch.exp, R(3)), [takes("neg")])


def test_a_piece_whose_size_only_the_run_tells_is_another_in_each_place() -> None:
    def lookup(call: Any) -> Any:
        def halved(x: Tensor) -> Tensor:  # where x is positive
            places = aten.squeeze.dims(aten.nonzero.default(aten.gt.Scalar(x, 0)), [1])
            half = aten.full.default([places.shape[0]], 0.5)
            return aten.index_put.default(x, [places], half * aten.index.Tensor(x, [places]))

        return halved if call.op is aten.exp.default else None

    it = unknown_sizes(lambda x, y: torch.exp(x) - torch.exp(y), R(6), R(6))
    gm = legalize(
        it, [takes("gt", "nonzero", "squeeze", "full", "index", "mul", "index_put", "sub")], descent=lookup
    ).gm
    assert operators(gm).count("nonzero.default") == 2 and "exp.default" not in operators(gm)
    x, y = torch.tensor([1.0, 2, 0, -4, 3, 0]), torch.tensor([1.0, 2, 4, 8, 2, 0])
    torch.testing.assert_close(gm(x, y), (torch.where(x > 0, x / 2, x) - y / 2,))


def test_calls_whose_size_only_the_run_tells_keep_the_symbols_of_their_results() -> None:
    it = unknown_sizes(lambda x, y, m: (torch.masked_select(x, m), torch.masked_select(y, m)), R(6), R(6), R(6) > 0)
    promised = [types_of(n.meta["val"]) for n in it.gm.graph.nodes if n.target is aten.masked_select.default]
    gm = legalize(it, [closure.opset_backend()]).gm
    verify(gm, "legalization")
    assert [types_of(r.meta["val"]) for r in gm.graph.output_node().args[0]] == promised  # type: ignore[union-attr]
    made = [types_of(n.meta["val"])[0].shape[0] for n in gm.graph.nodes if n.target is aten.nonzero.default]  # type: ignore[union-attr]
    assert made == [t[0].shape[0] for t in promised]  # type: ignore[union-attr]
    x, y, m = R(6), R(6), R(6) > 0
    torch.testing.assert_close(gm(x, y, m), (x[m], y[m]))


def unknown_sizes(fn: Callable[..., Any], *inputs: Tensor) -> Captured:
    seen: list[Captured] = []

    def compiler(it: Captured) -> Any:
        seen.append(it)
        return lambda inputs: it.gm(*inputs)

    with torch.no_grad():
        universe.trace(lambda *a: _tuple(fn(*a)), inputs, compiler)
    return seen[0]
