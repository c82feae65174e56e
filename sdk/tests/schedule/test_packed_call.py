"""Recipes compute values from parameters; a packed call keeps what it packs."""

from __future__ import annotations

import torch

from keel.plugin import Packed, PackedForm
from keel.schedule.packed_call import PackedCall, Recipe
from keel.schedule.tensor_graph import Slot

REST = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)


def test_a_recipe_computes_what_is_wanted() -> None:
    calls = ((torch.add, (Slot(0), Slot(1)), {}), (torch.mul, (Slot(2), 3.0), {}))
    total, number, nothing = Recipe(calls, (Slot(3), 2.0, None)).run([torch.ones(2), torch.ones(2)])
    assert total.tolist() == [6.0, 6.0]
    assert (number, nothing) == (2.0, None)


def test_a_weight_is_packed_once_for_each_version() -> None:
    packed: list[torch.Tensor] = []

    def pack(weight, image, rest):
        packed.append(weight)
        return weight

    def run(image, weight, bias, rest, other, then):
        result = torch.nn.functional.conv2d(image, weight, bias)
        return result if other is None else result + other

    facts = Packed(kind="convolution", weight=1, bias=2, worth=lambda args: True)
    form = PackedForm(facts=facts, takes=lambda dtype: True, pack=pack, run=run)
    folded = ("aten.mul.Tensor", "aten.sub.Tensor")
    call = PackedCall(form, REST, Recipe((), (Slot(0), None, Slot(1), 0.5)), folded, True, None)
    image, other, weight, scale = (
        torch.randn(1, 2, 3, 3),
        torch.randn(1, 2, 3, 3),
        torch.randn(2, 2, 1, 1),
        torch.randn(2),
    )

    def expected() -> torch.Tensor:
        return torch.nn.functional.conv2d(image, weight) * scale.reshape(2, 1, 1) - 0.5 + other

    for count, change in ((1, None), (1, None), (2, scale), (3, weight)):
        if change is not None:
            change.add_(1)
        torch.testing.assert_close(call(image, other, weight, scale), expected())
        assert len(packed) == count
