"""What the arguments of a choice have that clauses speak of, told from a draw of them.

``special`` values, ``duplicate`` ones, those ``halfway`` between results, the kind of dtype (``half``, ``integer``,
``bool``, ``complex``), ``empty`` and ``0d`` tensors, sizes that ``broadcast``, ``mixed`` dtypes, and ``given p`` for a
parameter that is not at its default.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from keel.opset import MEMBERS

from .case import Inputs
from .domain import DTYPES, Domain, Levels
from .values import SeededValues

SPECIAL = frozenset({"specials", "all", "every", "huge"})
REPEATED = frozenset({"duplicates", "ties", "true", "false", "exact", "all", "every", "specials"})
HALFWAY = frozenset({"ties", "all", "every"})

NOT_STRUCTURAL = frozenset({"dtype", "values", "layout", "place", "taken"})
"""Factors that neither sizes nor attributes follow from, as far as clauses speak of them."""


def features(domain: Domain, levels: Levels) -> frozenset[str]:
    """Those of a choice."""
    dtype = DTYPES[levels["dtype"]]
    values = levels.get("values", "random")
    results = set(_of_dtype(dtype)) | {f"{f} {v}" for f, v in levels.items()}
    results |= {"special"} if values in SPECIAL or (values == "wide" and not dtype.is_floating_point) else set()
    results |= {"duplicate"} if values in REPEATED or dtype in (torch.bool, torch.uint8, torch.int8) else set()
    results |= {"halfway"} if values in HALFWAY else set()
    results |= {"duplicate"} if levels.get("taken") in ("equal", "one", "many") else set()
    shape = tuple((f, _class(f, levels[f])) for f in domain.factors if f not in NOT_STRUCTURAL)
    return frozenset(results | _of_arguments(domain.op.name, shape, _Drawn(domain, levels)))


def _class(factor: str, level: str) -> str:
    """The class of a level. A size only counts as a scalar, empty, or neither."""
    if factor not in ("shape", "extent"):
        return level
    return level if level in ("0d", "all", "every") else "empty" if "0" in level.split("x") else "some"


def _of_dtype(dtype: torch.dtype) -> set[str]:
    if dtype.is_complex:
        return {"complex"}
    if dtype.is_floating_point:
        return {"half"} if dtype.itemsize == 2 else set()
    return {"bool", "whole"} if dtype == torch.bool else {"integer", "whole", *(["u8"] if dtype == torch.uint8 else [])}


class _Drawn:
    """A choice that is drawn when it is asked for; equal to all others, so that what is kept of one serves all."""

    def __init__(self, domain: Domain, levels: Levels):
        self.domain, self.levels = domain, levels

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Drawn)

    def trial(self) -> Inputs | None:
        return self.domain.make(self.levels, DTYPES[self.levels["dtype"]], SeededValues("features", bare=True))


@lru_cache(200_000)
def _of_arguments(name: str, levels: tuple[tuple[str, str], ...], drawn: _Drawn) -> frozenset[str]:
    """What sizes and attributes have; layouts, values and the dtype do not matter here."""
    inputs = drawn.trial()
    if inputs is None:
        return frozenset()
    overload = drawn.domain.overload(drawn.levels) or str(drawn.domain.op.targets[0])
    target = next(t for t in MEMBERS[name].targets if str(t) == overload)
    tensors = [v for v in _leaves((inputs.args, tuple(inputs.kwargs.values()))) if isinstance(v, torch.Tensor)]
    results = set[str]()
    results |= {"empty"} if any(0 in t.shape for t in tensors) else set()
    results |= {"0d"} if any(not t.dim() for t in tensors) else set()
    results |= {"broadcast"} if len({t.shape for t in tensors}) > 1 else set()
    numbers = [v for v in _leaves((inputs.args, tuple(inputs.kwargs.values()))) if isinstance(v, int | float | complex)]
    results |= {"mixed"} if len({t.dtype for t in tensors}) > 1 or (tensors and numbers) else set()
    return frozenset(results | {f"given {p}" for p in _passed_parameters(target, inputs)})


def _passed_parameters(target: Any, inputs: Inputs) -> list[str]:
    """The parameters whose arguments are not their defaults."""
    if not hasattr(target, "_schema"):
        return []
    parameters = target._schema.arguments
    values = dict(zip((p.name for p in parameters), inputs.args, strict=False)) | dict(inputs.kwargs)
    results = []
    for p in parameters:
        if p.name in values and values[p.name] is not None:
            value = values[p.name]
            if isinstance(value, torch.Tensor) or not p.has_default_value() or value != p.default_value:
                results.append(p.name)
    return results


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for v in value for leaf in _leaves(v)]
    return [value]
