"""Composites that stay whole though a size that they reduce along is padded: their operands get neutral values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from keel.loops.growing_index import Blocks
from keel.padded_loops import Fill
from keel.spec.bind import bind
from keel.spec.opset import OPSET
from keel.torch_adapter import parameters
from keel.types import Call, Dim, TensorType, leaves


@dataclass(frozen=True)
class AddedMask:
    """A mask that a call gets for its ``parameter``: it is added to scores of the operand ``query`` with those of the
    operand ``key``, whose dimension ``dim`` it is about, with blocks of the size ``block`` if that is not None.
    """

    parameter: str
    query: int
    key: int
    dim: int
    block: Dim | None


@dataclass(frozen=True)
class NeutralOperands:
    """What a call has to get so that it leaves out what is behind the size."""

    fills: tuple[Fill, ...]
    mask: AddedMask | None = None


def neutral_operands(
    node: fx.Node, call: Call, mentions: Callable[[Any], bool], blocks: Callable[[fx.Node], Blocks]
) -> NeutralOperands | None:
    """How a call leaves out what is behind a size along which it reduces; None if it is not known how. ``mentions``
    says whether a dimension depends on the size, and ``blocks`` has the blocks of operands.
    """
    neutral = None if (op := OPSET.get(call.op)) is None else op.neutral
    if neutral is None:
        return None
    args, operands = bind(call), _operands(node)
    if any(mentions(args[name].shape[dim]) for name, dim in neutral.fixed):
        return None

    def fill(name: str, dim: int, value: bool | float) -> Fill:
        number, operand = operands[name]
        known = blocks(operand)
        return Fill(number, dim, value, known[dim] if known else None)

    fills = []
    for name, (place, value) in neutral.values.items():
        dim = (args[place] if isinstance(place, str) else place) % args[name].rank
        if not mentions(args[name].shape[dim]):
            return None
        fills.append(fill(name, dim, value))
    key, parameter = fills[0], neutral.masks.get(str(call.op))
    mask, size = None if parameter is None else args[parameter], call.tensors[key.operand].shape[key.dim]
    if neutral.causal is not None and args[neutral.causal[0]]:
        hides = mask is None and args[neutral.causal[1]].shape[key.dim] == size
        return NeutralOperands(tuple(fills)) if hides else None
    if not neutral.masks:
        return NeutralOperands(tuple(fills))
    if parameter is None:
        return None
    if mask is None:
        return NeutralOperands(tuple(fills), AddedMask(parameter, 0, key.operand, key.dim, key.block))
    if not isinstance(mask, TensorType) or mask.shape[-1] != size:
        return None
    hidden = fill(parameter, mask.rank - 1, False if mask.dtype == torch.bool else -math.inf)
    return NeutralOperands((*fills, hidden))


def _operands(node: fx.Node) -> Mapping[str, tuple[int, fx.Node]]:
    """The tensor arguments of a call by parameter name, and which of its tensor operands they are."""
    names = [parameter.name for parameter in parameters(node.target)]
    results, number = dict[str, tuple[int, fx.Node]](), 0
    for name, value in (*zip(names, node.args, strict=False), *node.kwargs.items()):
        for each in leaves([value]):
            if isinstance(each, fx.Node) and isinstance(each.meta.get("val"), torch.Tensor):
                results.setdefault(name, (number, each))
                number += 1
    return results
