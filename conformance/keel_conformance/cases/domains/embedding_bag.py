"""Rows of a table reduced bag by bag: bags without rows, rows taken twice, padding, weights, a last offset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from keel.opset import Op

from ...by_member import ByMember
from ..domain import Domain, Levels, Rule
from ..shapes import shapes
from ..values import SeededValues
from .call_templates import FLOATS, CallTemplate, TensorArg, always, domain

TABLES = shapes("9x5", "33x16", "129x8", "7x33", "17x17", "3x129")
"""Rows, and elements of each."""
LOOKUPS: Mapping[str, tuple[int, int, torch.dtype]] = {
    "7in3": (7, 3, torch.int64),
    "0in4": (0, 4, torch.int64),
    "1in1": (1, 1, torch.int32),
    "40in17": (40, 17, torch.int32),
    "12in12": (12, 12, torch.int64),
    "300in9": (300, 9, torch.int64),
}
"""How many rows are taken, into how many bags, and the dtype of what says so."""
BAGS = ("some", "first_empty", "last_empty", "one_has_all")
INDICES = ("any", "one", "few", "twice")
"""Which rows are taken: any, the same one, few often, or each that is taken just twice."""
MODES: Mapping[str, int] = {"sum": 0, "mean": 1, "max": 2, "weighted": 0}
PADDED = 2
"""The row that does not count, where one is named."""


@dataclass(frozen=True)
class Bags:
    """What one call takes, the same for each of its arguments that asks."""

    levels: Levels
    draw: SeededValues

    def _own(self, what: str) -> SeededValues:
        return SeededValues(f"{self.draw.text} {what}", self.draw.call, self.draw.bare, self.draw.turn)

    @property
    def lookups(self) -> int:
        return LOOKUPS[self.levels["size"]][0]

    @property
    def bags(self) -> int:
        return LOOKUPS[self.levels["size"]][1]

    @cached_property
    def offsets(self) -> torch.Tensor:
        """Where each bag begins; the first at 0."""
        own, kind = self._own("offsets"), self.levels["bags"]
        if kind == "one_has_all":
            return torch.where(torch.arange(self.bags) > own.integers(1, 0, self.bags), self.lookups, 0)
        result = own.integers(self.bags, 0, self.lookups + 1).sort().values
        result[: 2 if kind == "first_empty" else 1] = 0
        if kind == "last_empty":
            result[-1] = self.lookups
        return result

    @cached_property
    def bag(self) -> torch.Tensor:
        """The bag of each row that is taken."""
        result: torch.Tensor = torch.searchsorted(self.offsets, torch.arange(self.lookups), right=True) - 1
        return result

    @cached_property
    def indices(self) -> torch.Tensor:
        own, n, rows = self._own("indices"), self.lookups, TABLES[self.levels["rows"]][0]
        match self.levels["indices"]:
            case "one":
                return own.integers(1, 0, rows).expand(n).clone()
            case "few":
                return own.integers(n, 0, max(1, rows // 3))
            case "twice":
                return own.shuffled(torch.randperm(rows, generator=own.fresh)[: n // 2].repeat(2))
        return own.integers(n, 0, rows)

    @cached_property
    def counted(self) -> torch.Tensor:
        """Which of them count."""
        return self.indices != _padding(self.levels)

    @cached_property
    def sizes(self) -> torch.Tensor:
        """How many rows count in each bag. A sum does not use it."""
        result = torch.zeros(self.bags, dtype=torch.int64)
        return result if not MODES[self.levels["mode"]] else result.index_add(0, self.bag, self.counted.long())

    @cached_property
    def greatest(self) -> torch.Tensor:
        """For ``max``, the row that each element came from. Any row of the bag is valid; an empty bag has 0."""
        if self.levels["mode"] != "max":
            return torch.zeros(self.bags, dtype=torch.int64)
        own, width = self._own("greatest"), TABLES[self.levels["rows"]][1]
        result = torch.zeros(self.bags, width, dtype=torch.int64)
        for b in range(self.bags):
            if len(bag_rows := self.indices[(self.bag == b) & self.counted]):
                result[b] = bag_rows[own.integers(width, 0, len(bag_rows))]
        return result


def _padding(levels: Levels) -> int:
    return PADDED if levels["form"].startswith("padded") else -1


def _of(levels: Levels, shape: tuple[int, ...], what: Callable[[Bags], torch.Tensor]) -> TensorArg:
    return TensorArg(
        shape,
        dtype=LOOKUPS[levels["size"]][2],
        lies="none",
        draw=lambda draw, dtype, s, values: what(Bags(levels, draw)).to(dtype),
    )


def _possible(levels: Levels) -> bool:
    rows, _ = TABLES[levels["rows"]]
    lookups, bags, _ = LOOKUPS[levels["size"]]
    if levels["indices"] == "twice" and (lookups % 2 or lookups // 2 > rows or levels["form"].startswith("padded")):
        return False
    if levels["form"] == "divided" and (levels["indices"] != "twice" or levels["mode"] == "max"):
        return False  # of others PyTorch divides by another row's number
    return bags > 1 or levels["bags"] in ("some", "one_has_all")


def _weights(levels: Levels) -> TensorArg | None:
    shape = (LOOKUPS[levels["size"]][0],)
    return TensorArg(shape, -2.0, 2.0, kind="random", lies="none") if levels["mode"] == "weighted" else None


def _forward(levels: Levels) -> CallTemplate | None:
    if not _possible(levels):
        return None
    lookups, bags, _ = LOOKUPS[levels["size"]]
    last = levels["form"].endswith("last")

    def offsets(of: Bags) -> torch.Tensor:
        return torch.cat([of.offsets, torch.tensor([lookups])]) if last else of.offsets

    return CallTemplate(
        "aten._embedding_bag_forward_only.default",
        (
            TensorArg(TABLES[levels["rows"]], products=max(lookups, 1)),
            _of(levels, (lookups,), lambda of: of.indices),
            _of(levels, (bags + last,), offsets),
            False,
            MODES[levels["mode"]],
            False,
            _weights(levels),
            last,
            _padding(levels),
        ),
        exact=levels["mode"] == "sum",
    )


def _backward(levels: Levels) -> CallTemplate | None:
    if not _possible(levels):
        return None
    (rows, width), (lookups, bags, _) = TABLES[levels["rows"]], LOOKUPS[levels["size"]]
    greatest = (bags, width) if levels["mode"] == "max" else (bags,)
    return CallTemplate(
        "aten._embedding_bag_dense_backward.default",
        (
            TensorArg((bags, width), products=max(lookups, 1), lies="none"),
            _of(levels, (lookups,), lambda of: of.indices),
            _of(levels, (lookups,), lambda of: of.bag),
            _of(levels, (bags,), lambda of: of.sizes),
            _of(levels, greatest, lambda of: of.greatest),
            rows,
            levels["form"] == "divided",
            MODES[levels["mode"]],
            _weights(levels),
            _padding(levels),
        ),
        exact=levels["mode"] == "sum",
    )


# -- their domains -----------------------------------------------------------------------------------------------------

_FACTORS: Mapping[str, tuple[str, ...]] = {
    "rows": tuple(TABLES),
    "size": tuple(LOOKUPS),
    "bags": BAGS,
    "indices": INDICES,
    "mode": tuple(MODES),
}
_KINDS = ("random", "duplicates", "cancel", "exact")
_TELLING: tuple[Levels, ...] = (
    {"dtype": "f32", "rows": "9x5", "size": "7in3", "mode": "max", "values": "duplicates", "form": "padded"},
    {"dtype": "f32", "rows": "9x5", "size": "40in17", "mode": "mean", "values": "random", "form": "padded_last"},
    {"dtype": "f32", "rows": "17x17", "size": "12in12", "indices": "twice", "mode": "sum", "form": "divided"},
    {"dtype": "f32", "rows": "33x16", "size": "40in17", "mode": "weighted", "bags": "first_empty"},
    {"dtype": "bf16", "rows": "129x8", "size": "300in9", "mode": "sum", "values": "random", "indices": "few"},
)


def _domain(op: Op, forms: tuple[str, ...], ask: Callable[[Levels], CallTemplate | None], **how: Any) -> Domain:
    return domain(op, {**_FACTORS, "form": forms}, ask, kinds=_KINDS, priority=_TELLING, covers=always(op), **how)


_LONG = Rule(("dtype", "mode"), lambda dtype, mode: mode != "mean" or dtype in ("f32", "f64"))
"""PyTorch itself adds 16-bit floats up in their own dtype there, and all of them in the backward pass."""
BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare(
    "embedding_bag_forward_only",
    lambda op: _domain(
        op,
        ("plain", "padded", "last", "padded_last"),
        _forward,
        dtypes=FLOATS,
        rules=(_LONG,),
        lay=("contiguous", "offset", "rows_apart"),
    ),
)
declare(
    "embedding_bag_dense_backward",
    lambda op: _domain(op, ("plain", "padded", "divided"), _backward, dtypes=FLOATS[:2], lay=("contiguous",)),
)
