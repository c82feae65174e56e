"""What schemas say."""

from __future__ import annotations

import torch

from keel.torch_adapter import decomposition_of, has_effect, is_operator, is_overload, is_random, may_alias, writes
from keel.torch_adapter.decompositions import LEFT_OUT

aten = torch.ops.aten


def test_views_say_whose_memory_they_are_in() -> None:
    assert may_alias(aten.view.default) == {0: (0,)}
    assert may_alias(aten.split.Tensor) == {0: (0,)}
    assert may_alias(aten.unbind.int) == {0: (0,)}
    assert may_alias(aten.unsafe_split.Tensor) == {0: (0,)}, "its schema does not say that it gives views"
    assert may_alias(aten.add.Tensor) == {}
    assert may_alias(aten.native_dropout.default) == {}


def test_writes_randomness_and_effects() -> None:
    assert writes(aten.add_.Tensor) and not writes(aten.add.Tensor)
    assert is_random(aten.rand.default) and not is_random(aten.add.Tensor)
    assert has_effect(aten._assert_async.msg) and has_effect(aten.bernoulli.p) and not has_effect(aten.mm.default)


def test_operators_are_told_from_functions() -> None:
    assert is_operator(aten.add.Tensor) and is_overload(aten.add.Tensor)
    assert is_operator(torch.ops.higher_order.cond) and not is_overload(torch.ops.higher_order.cond)
    assert not is_operator(torch.sym_max)


def test_left_out_decompositions_are_not_found_and_exist() -> None:
    for name in LEFT_OUT:
        packet, overload = name.removeprefix("aten.").split(".")
        op = getattr(getattr(aten, packet), overload)
        assert decomposition_of(op) is None


def test_composites_that_the_dispatcher_decomposes_are_found() -> None:
    assert decomposition_of(aten.linear.default) is not None
    assert decomposition_of(aten.mm.default) is None
