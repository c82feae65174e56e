"""A functional graph under construction: nodes are appended, each with the type and the bound of its value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

import torch

from .graph_ir import OPS, Input, Node

DIMS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64)
ROOM = 4096
"""Elements of a value, at most."""
EQUAL = 0.25
"""The share of new sizes that are equal, so that what takes a wrong turn has the right sizes."""
LIMITS = {"float32": 1 << 22, "float64": 1 << 40, "bfloat16": 1 << 7, "int64": 1 << 40}


@dataclass(frozen=True)
class Value:
    """``bound`` is the largest magnitude; ``sure`` says that the value is an integer whatever rounds elsewhere."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    bound: float
    is_integer: bool


@dataclass
class GraphBuilder:
    """A graph that grows, and the values of it that the next node may take."""

    random: Random
    dtype: str
    exact: bool
    inputs: list[Input] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    pool: list[Value] = field(default_factory=list)

    @property
    def limit(self) -> float:
        return LIMITS[self.dtype]

    def add_input(self, shape: Sequence[int], dtype: str = "", low: int = -4, high: int = 4) -> Value:
        dtype = dtype or self.dtype
        self.inputs.append(Input(tuple(shape), dtype, low, high))
        sure = self.exact or dtype in ("int64", "bool")
        # Inputs have negative numbers until the end, when all of them are known and nodes can be numbered after them.
        return Value(-len(self.inputs), tuple(shape), dtype, max(-low, high) if sure else 6.0, sure)

    def add_node(self, op: str, *args: Value, bound: float | None = None, rounds: bool = False, **attrs: Any) -> Value:
        """Appends a node; its type is what the operator says on tensors without memory. ``rounds`` says that it makes
        more of integers than integers.
        """
        fake = [torch.empty(a.shape, dtype=getattr(torch, a.dtype), device="meta") for a in args]
        result = OPS[op](*fake, **attrs)
        self.nodes.append(Node(op, tuple(a.number for a in args), tuple(attrs.items())))
        value = Value(
            len(self.nodes) - 1,
            tuple(result.shape),
            str(result.dtype).removeprefix("torch."),
            max(a.bound for a in args) if bound is None else bound,
            all(a.is_integer for a in args) and not rounds,
        )
        self.pool.append(value)
        return value

    def pick(self, fits: Callable[[Value], bool] = lambda v: True) -> Value:
        """A value of the program's dtype, the later the likelier; a new input if none fits."""
        results = [v for v in self.pool if v.dtype == self.dtype and v.shape and fits(v)]
        if results and self.random.random() > 0.15:
            return results[int(len(results) * self.random.random() ** 0.5)]
        new = self.add_input(self.shape())
        self.pool.append(new)
        return results[-1] if results and not fits(new) else new

    def shape(self, rank: int = 0) -> tuple[int, ...]:
        rank = rank or self.random.choice((1, 2, 2, 3, 3))
        if self.random.random() < EQUAL:
            return (self.random.choice([d for d in DIMS if d**rank <= ROOM]),) * rank
        dims: list[int] = []
        for _ in range(rank):
            dims.append(self.random.choice([d for d in DIMS if d * prod(dims) <= ROOM]))
        return tuple(dims)

    def dim(self, v: Value) -> int:
        return self.random.randrange(len(v.shape))

    def partner(self, v: Value) -> Value:
        """A value that broadcasts against ``v``: of its shape, or with ones in it."""
        same = [w for w in self.pool if w.dtype == v.dtype and broadcasts(w.shape, v.shape)]
        if same and self.random.random() < 0.7:
            return self.random.choice(same)
        shape = [d if self.random.random() < 0.6 else 1 for d in v.shape]
        new = self.add_input(shape[self.random.randrange(len(shape)) :] if self.random.random() < 0.3 else shape)
        self.pool.append(new)
        return new

    def clamp_to(self, v: Value, bound: float) -> Value:
        """``v``, made smaller where what follows would be too large to be exact."""
        if not v.is_integer or v.bound <= bound:
            return v
        return self.add_node("clamp", v, low=-int(bound), high=int(bound), bound=int(bound))


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))
