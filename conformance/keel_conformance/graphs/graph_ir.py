"""A functional program as plain data: inputs, a list of nodes, outputs; and what each node computes.

Values are numbered: the inputs first, then the nodes in order. So a program can be cut down node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F


@dataclass(frozen=True)
class Input:
    """Floats and integers are integers from ``low`` to ``high``, both included; of a rounded program floats are normal
    numbers.
    """

    shape: tuple[int, ...]
    dtype: str
    low: int = -4
    high: int = 4


@dataclass(frozen=True)
class Node:
    """``op`` is a name of ``OPS``; ``args`` numbers of values before it; ``attrs`` its plain arguments."""

    op: str
    args: tuple[int, ...]
    attrs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class RandomGraph:
    """``exact`` says that no evaluation of it rounds anything."""

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    exact: bool

    def __str__(self) -> str:
        lines = [f"%{k}: {i.dtype}{list(i.shape)}" for k, i in enumerate(self.inputs)]
        for k, n in enumerate(self.nodes, len(self.inputs)):
            words = [f"%{a}" for a in n.args] + [f"{name}={value}" for name, value in n.attrs]
            lines.append(f"%{k} = {n.op}({', '.join(words)})")
        return "\n".join([*lines, "return " + ", ".join(f"%{o}" for o in self.outputs)])


def _where(mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(mask, a, b)


def _slice(x: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    return x[(slice(None),) * dim + (slice(start, stop, step),)]


SMOOTH: Mapping[str, Callable[..., Tensor]] = {
    f.__name__: f
    for f in (
        torch.exp,
        torch.tanh,
        torch.sigmoid,
        torch.sin,
        torch.erf,
        F.gelu,
        F.silu,
        torch.sqrt,
        torch.log,
        torch.rsqrt,
    )
}
"""Functions of one tensor, whose results are rounded."""
OPS: Mapping[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "neg": torch.neg,
    "abs": torch.abs,
    "relu": torch.relu,
    "sign": torch.sign,
    "clamp": lambda x, low, high: torch.clamp(x, low, high),
    "add_scalar": lambda x, by: x + by,
    "mul_scalar": lambda x, by: x * by,
    "where": _where,
    "gt": torch.gt,
    "le": torch.le,
    "eq": torch.eq,
    "gt_scalar": lambda x, by: x > by,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
    "masked_fill": lambda x, mask, value: x.masked_fill(mask, value),
    "cast": lambda x, to: x.to(getattr(torch, to)),
    **SMOOTH,
    "sum": lambda x, dim, keepdim: x.sum(dim, keepdim=keepdim),
    "amax": lambda x, dim, keepdim: x.amax(dim, keepdim=keepdim),
    "amin": lambda x, dim, keepdim: x.amin(dim, keepdim=keepdim),
    "mean": lambda x, dim, keepdim: x.mean(dim, keepdim=keepdim),
    "var": lambda x, dim, keepdim, correction: x.var(dim, keepdim=keepdim, correction=correction),
    "argmax": lambda x, dim: x.argmax(dim),
    "any": lambda x, dim: x.any(dim),
    "all": lambda x, dim: x.all(dim),
    "cumsum": lambda x, dim: x.cumsum(dim),
    "flip": lambda x, dim: x.flip(dim),
    "roll": lambda x, by, dim: x.roll(by, dim),
    "permute": lambda x, order: x.permute(order),
    "reshape": lambda x, shape: x.reshape(shape),
    "expand": lambda x, shape: x.expand(shape),
    "unsqueeze": lambda x, dim: x.unsqueeze(dim),
    "slice": _slice,
    "cat": lambda a, b, dim: torch.cat([a, b], dim),
    "stack": lambda a, b, dim: torch.stack([a, b], dim),
    "pad": lambda x, by, value: F.pad(x, by, value=value),
    "tril": lambda x, diagonal: x.tril(diagonal),
    "triu": lambda x, diagonal: x.triu(diagonal),
    "matmul": torch.matmul,
    "select_rows": lambda x, i: x.index_select(0, i),
    "take": lambda x, i: x[i],
    "gather": lambda x, i, dim: x.gather(dim, i),
    "scatter_add": lambda x, i, dim, size: _zeros(x, dim, size).scatter_add(dim, i, x),
    "index_add": lambda x, i, size: _zeros(x, 0, size).index_add(0, i, x),
    "windows": lambda x, dim, size, step: x.unfold(dim, size, step),
    "max_pool": lambda x, size, step: F.max_pool1d(x, size, step),
    "conv": lambda x, w, padding: F.conv1d(x, w, padding=padding),
    "softmax": lambda x, dim: torch.softmax(x, dim),
    "log_softmax": lambda x, dim: torch.log_softmax(x, dim),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
}


def _zeros(x: Tensor, dim: int, size: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = size
    return torch.zeros(shape, dtype=x.dtype, device=x.device)


def module(program: RandomGraph) -> fx.GraphModule:
    """The program as a module that takes its inputs and returns a tuple."""
    graph = fx.Graph()
    values: list[fx.Node] = [graph.placeholder(f"x{k}") for k in range(len(program.inputs))]
    for node in program.nodes:
        values.append(graph.call_function(OPS[node.op], tuple(values[a] for a in node.args), dict(node.attrs)))
    graph.output(tuple(values[o] for o in program.outputs))
    return fx.GraphModule({}, graph)


def run(program: RandomGraph, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    values = list(inputs)
    for node in program.nodes:
        values.append(OPS[node.op](*(values[a] for a in node.args), **dict(node.attrs)))
    return tuple(values[o] for o in program.outputs)


def random_inputs(program: RandomGraph, seed: int, call: int) -> list[Tensor]:
    """Fresh inputs for a call."""
    draw = torch.Generator().manual_seed(seed * 31 + call)
    return [_random_input(i, program.exact, draw) for i in program.inputs]


def _random_input(i: Input, exact: bool, draw: torch.Generator) -> Tensor:
    dtype: torch.dtype = getattr(torch, i.dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, i.shape, generator=draw) > 0
    if dtype.is_floating_point and not exact:
        return torch.randn(i.shape, generator=draw).to(dtype)
    return torch.randint(i.low, i.high + 1, i.shape, generator=draw).to(dtype)


def pruned(program: RandomGraph) -> RandomGraph:
    """The program without the nodes and inputs that no output needs; an input stays where none would be left."""
    needed, first = set(program.outputs), len(program.inputs)
    for k in range(len(program.nodes) - 1, -1, -1):
        if first + k in needed:
            needed |= set(program.nodes[k].args)
    keep = [v for v in range(first + len(program.nodes)) if v in needed]
    new = {v: n for n, v in enumerate(keep)}
    nodes = tuple(
        Node(n.op, tuple(new[a] for a in n.args), n.attrs) for k, n in enumerate(program.nodes) if first + k in needed
    )
    return RandomGraph(
        tuple(i for k, i in enumerate(program.inputs) if k in needed),
        nodes,
        tuple(new[o] for o in program.outputs),
        program.exact,
    )
