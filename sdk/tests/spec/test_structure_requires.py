"""Preconditions of what moves elements: every sample keeps them, and what breaks one is an error in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

from keel.graph.calls import type_of
from keel.spec import MEMBERS
from keel.spec.bind import bound
from keel.spec.op import Op

FAMILIES = ("reduction", "scan", "views", "shape", "indexing", "ordering", "dynamic")
GUARDED = [
    n for n, op in MEMBERS.items() if op.requires and op.samples and op.kind == "primitive" and op.family in FAMILIES
]
X, IDS = torch.randn(3, 4), torch.tensor([0, 1])


def kept(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[bool]:
    def typed(v: Any) -> Any:
        return type_of(v) if isinstance(v, torch.Tensor) else v

    given = bound(op.targets[0], *tree_map(typed, (list(args), kwargs)))
    return [r.holds(given) for r in op.requires]


@pytest.mark.parametrize("name", GUARDED)
def test_samples_keep_them(name: str) -> None:
    op = MEMBERS[name]
    for sample in op.samples(op.dtypes[0]):
        assert all(kept(op, sample.args, dict(sample.kwargs))), sample


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("amax", (torch.zeros(2, 0), [1])),
        ("argmax", (torch.zeros(0),)),
        ("max_with_index", (torch.zeros(2, 0), 1)),
        ("reduce_xor", (torch.zeros(2, 0), [1])),
        ("reshape", (X, [5, 2])),
        ("reshape", (X, [-1, -1])),
        ("reshape", (X, [-1, 5])),
        ("permute", (X, [0, 0])),
        ("permute", (X, [0])),
        ("expand", (X, [3, 5])),
        ("expand", (X, [4])),
        ("unsqueeze", (X, 3)),
        ("slice", (X, 0, 0, 2, 0)),
        ("slice", (X, 2)),
        ("select", (X, 0, 3)),
        ("diagonal", (X, 0, 1, 1)),
        ("diagonal", (X[0],)),
        ("sliding_window", (X, 0, 4, 1)),
        ("sliding_window", (X, 0, 2, 0)),
        ("bitcast", (X[:, :3], torch.float64)),
        ("bitcast", (X[0, 0], torch.int8)),
        ("as_strided", (X, [2], [1, 1])),
        ("as_strided", (X, [2], [-1])),
        ("cat", ([],)),
        ("cat", ([X, X[0]],)),
        ("cat", ([X, X[:, :2]],)),
        ("flip", (X, [0, 0])),
        ("pad", (X, [1])),
        ("pad", (X, [1] * 6)),
        ("slice_scatter", (X, X, 0, 0, 2)),
        ("gather", (X, 0, IDS)),
        ("gather", (X, 0, torch.zeros(1, 9).long())),
        ("scatter", (X, 0, IDS, X)),
        ("scatter_add", (X, 0, torch.zeros(2, 4).long(), X[:1])),
        ("index", (X, [IDS, IDS, IDS])),
        ("searchsorted", (X, X[:2])),
        ("topk", (X, 5)),
        ("topk", (X, -1)),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_breaks_one_is_an_error(name: str, args: tuple[Any, ...]) -> None:
    op = MEMBERS[name]
    assert not all(kept(op, args, {})), f"{name} allows it"
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        op.targets[0](*args)


@pytest.mark.parametrize(
    ("name", "sizes", "where"),
    [
        ("select_backward", (3, 5), (1, 2)),
        ("slice_backward", (3, 2), (1, -4, -2, 1)),
        ("diagonal_backward", (3,), (1, 0, 1)),
        ("unfold_backward", (3, 2, 3), (1, 3, 2)),
    ],
)
def test_a_gradient_of_a_view_has_its_sizes(name: str, sizes: tuple[int, ...], where: tuple[int, ...]) -> None:
    op, whole = MEMBERS[name], [3, 5, 5] if name == "select_backward" else [3, 5]
    assert kept(op, (torch.ones(sizes), whole, *where), {}) == [True]
    for wrong in ((1,) * len(sizes), (*sizes, 1)):
        assert kept(op, (torch.ones(wrong), whole, *where), {}) == [False]
