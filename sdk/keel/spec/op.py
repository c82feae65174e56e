"""The declaration of an operator: once, as data, with its meaning in numbered clauses."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Op:
    """A composite: ``decompose`` takes the overload's arguments and gives its results over simpler operators.

    It runs on fake tensors, symbolic sizes included. ``clauses`` are the sentences that hold for every
    implementation, whole or in pieces; a clause is cited as ``name.C1``.
    """

    name: str
    overloads: tuple[Callable[..., Any], ...]
    family: str
    doc: str
    clauses: tuple[str, ...]
    decompose: Callable[..., Any]


class Family:
    """Collects the composites of one module: ``@family(overload, ...)`` above the function that decomposes them."""

    def __init__(self, name: str):
        self.name = name
        self.ops: dict[Callable[..., Any], Op] = {}

    def __call__(self, *overloads: Callable[..., Any], clauses: tuple[str, ...]) -> Callable[..., Any]:
        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            op = Op(function.__name__.rstrip("_"), overloads, self.name, function.__doc__ or "", clauses, function)
            self.ops |= dict.fromkeys(overloads, op)
            return function
        return declare

    @property
    def table(self) -> Mapping[Callable[..., Any], Op]:
        return self.ops


def existing(*names: str) -> tuple[Callable[..., Any], ...]:
    """Those ATen overloads that this PyTorch has, by ``packet.overload``."""
    packets = ((getattr(torch.ops.aten, name.split(".")[0], None), name.split(".")[1]) for name in names)
    return tuple(getattr(packet, overload) for packet, overload in packets
                 if packet is not None and overload in packet.overloads())
