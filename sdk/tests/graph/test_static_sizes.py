"""Whether a graph can have some sizes: relations between sizes, which symbols do not show, hold for some alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from keel.errors import KeelError
from keel.graph.calls import type_of
from keel.graph.static_sizes import fits_its_types, graph_with_sizes
from keel.types import TensorType


def fits(function: Callable[..., Tensor], inputs: Sequence[Tensor], *sizes: int) -> bool:
    """Whether the graph of a function fits its types if the sizes of its inputs, in order, are ``sizes``."""
    gm = make_fx(function, tracing_mode="symbolic")(*inputs)
    types = [type_of(n.meta["val"]) for n in gm.graph.find_nodes(op="placeholder")]
    dims = [d for t in types if isinstance(t, TensorType) for d in t.shape]
    return fits_its_types(graph_with_sizes(gm, dict(zip(map(str, dims), sizes, strict=True)))[0])


@pytest.mark.parametrize(("sizes", "answer"), [((20, 16), True), ((16, 16), True), ((15, 16), False)])
def test_a_slice_has_as_many_elements_as_promised(sizes: tuple[int, ...], answer: bool) -> None:
    assert fits(lambda x, y: x[: y.shape[0]] + 1, [torch.ones(9), torch.ones(7)], *sizes) is answer


@pytest.mark.parametrize(("size", "answer"), [(16, True), (10, False)])
def test_a_view_is_of_all_elements(size: int, answer: bool) -> None:
    assert fits(lambda x: x.view(-1, 4) + 1, [torch.ones(8)], size) is answer


@pytest.mark.parametrize(("size", "answer"), [(9, True), (10, False)])
def test_rows_of_an_input_do_not_overlap(size: int, answer: bool) -> None:
    gapped = torch.as_strided(torch.ones(99), (3, 7), (9, 1))
    gm = make_fx(torch.neg, tracing_mode="symbolic")(gapped)
    known = type_of(gm.graph.find_nodes(op="placeholder")[0].meta["val"])
    assert isinstance(known, TensorType)
    sizes = dict(zip(map(str, (*known.shape, known.strides[0])), (4, size, 9), strict=True))
    assert fits_its_types(graph_with_sizes(gm, sizes)[0]) is answer


def test_a_size_that_depends_on_data_is_an_error() -> None:
    with pytest.raises(KeelError, match=r"A size of i64.*depends on data") as raised:
        fits(torch.nonzero, [torch.ones(9)], 16)
    assert raised.value.code == "bad-graph"


def test_an_expanded_input_does_not_overlap() -> None:
    assert fits(torch.neg, [torch.ones(1, 7).expand(3, 7)], 8, 16)


def test_the_results_of_a_call_with_several_fit() -> None:
    assert fits(lambda x: x.sort().values * 2, [torch.ones(9)], 16)
