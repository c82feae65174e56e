"""What arguments of one call say of its bags agrees."""

from __future__ import annotations

import pytest
import torch

from keel_conformance.cases.domains import embedding_bag
from keel_conformance.cases.values import SeededValues


@pytest.mark.parametrize("kind", embedding_bag.BAGS)
def test_every_row_is_in_the_bag_that_its_place_says(kind: str) -> None:
    levels = {"rows": "33x16", "size": "40in17", "bags": kind, "indices": "any", "mode": "max", "form": "padded"}
    for call in range(3):
        of = embedding_bag.Bags(levels, SeededValues("some case", call))
        ends = [*of.offsets[1:].tolist(), of.lookups]
        assert of.offsets[0] == 0 and ends == sorted(ends)
        for b, (begin, end) in enumerate(zip(of.offsets.tolist(), ends, strict=True)):
            assert (of.bag[begin:end] == b).all()
            counted = of.indices[begin:end][of.indices[begin:end] != embedding_bag.PADDED]
            assert of.sizes[b] == len(counted)
            assert set(of.greatest[b].tolist()) <= (set(counted.tolist()) or {0})


def test_arguments_that_ask_on_their_own_are_told_the_same() -> None:
    levels = {"rows": "129x8", "size": "300in9", "bags": "some", "indices": "few", "mode": "mean", "form": "plain"}
    one, other = (embedding_bag.Bags(levels, SeededValues("some case", 1)) for _ in range(2))
    assert torch.equal(one.sizes, other.sizes) and torch.equal(one.indices, other.indices)
    assert not torch.equal(one.indices, embedding_bag.Bags(levels, SeededValues("some case", 2)).indices)


def test_what_is_divided_by_how_often_it_is_taken_is_taken_twice() -> None:
    levels = {"rows": "17x17", "size": "12in12", "bags": "some", "indices": "twice", "mode": "sum", "form": "divided"}
    counts = embedding_bag.Bags(levels, SeededValues("some case")).indices.bincount()
    assert set(counts.tolist()) == {0, 2}
