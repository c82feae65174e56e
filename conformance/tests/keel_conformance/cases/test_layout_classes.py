"""A layout moves elements in memory and changes nothing else."""

from __future__ import annotations

import pytest
import torch

from keel_conformance.cases.layout_classes import LAYOUTS, fits, with_layout
from keel_conformance.cases.shapes import SHAPES, shape_of


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_changes_where_elements_are_and_nothing_else(layout: str) -> None:
    seen = 0
    for shape in map(shape_of, SHAPES):
        if not fits(layout, shape):
            continue
        x = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
        y, other = with_layout(x, layout), with_layout(x + 1, layout)
        assert y.shape == x.shape and y.stride() == other.stride()
        repeated = layout.startswith("expanded")
        want = x if not repeated else x.narrow(0 if layout == "expanded" else -1, 0, 1).expand(shape)
        assert torch.equal(y, want)
        if x.numel() > 1:
            assert y.is_contiguous() == (layout in ("contiguous", "offset", "odd_ones"))
        seen += 1
    assert seen > (2 if layout == "channels_last" else 3)


def test_what_is_between_elements_is_poison() -> None:
    y = with_layout(torch.ones(3, 5), "gapped")
    memory = torch.empty(0).set_(y.untyped_storage())
    assert int(memory.isnan().sum()) == len(memory) - 15 > 0
    whole = with_layout(torch.ones(4, dtype=torch.int32), "offset")
    assert whole.storage_offset() % 4 != 0
    assert (torch.empty(0, dtype=torch.int32).set_(whole.untyped_storage())[:3] != 1).all()


def test_nothing_fits_where_there_is_no_room_for_it() -> None:
    assert not fits("transposed", (5,)) and not fits("channels_last", (2, 3, 4)) and not fits("expanded", ())
    assert not fits("gapped", (3, 1)) and not fits("odd_ones", (3, 4)) and fits("contiguous", ())


@pytest.mark.parametrize("layout", ["transposed", "reversed", "expanded", "expanded_last", "gapped", "rows_apart"])
def test_what_is_not_row_major_does_not_begin_where_its_memory_does(layout: str) -> None:
    x = with_layout(torch.randn(3, 4, 5), layout)
    assert x.storage_offset() > 0
    assert layout not in ("transposed", "expanded") or x.storage_offset() * x.itemsize % 64 == 0
