"""Functional programs drawn at random: motifs that schedulers fuse, and others that look like them and must not be.

Types are valid by construction. In an exact program every value is an integer with a known bound, small enough for all
sums of the dtype to be exact in any order. In a rounded one no comparison, index or rounding is made of rounded values,
so that none has a jump.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

from .graph_builder import ROOM, GraphBuilder, Value, broadcasts
from .graph_ir import SMOOTH, Node, RandomGraph, pruned

NODES = 40


@dataclass
class GraphGenerator(GraphBuilder):
    """Draws motifs."""

    def pointwise(self) -> None:
        v = self.pick()
        for _ in range(self.random.randint(1, 4)):
            w = self.partner(v)
            v = self.random.choice(STEPS)(self, v, w)

    def total(self, op: str, v: Value, w: Value) -> Value:
        v, w = self.clamp_to(v, self.limit / 2), self.clamp_to(w, self.limit / 2)
        return self.add_node(op, v, w, bound=v.bound + w.bound)

    def times(self, v: Value, w: Value) -> Value:
        root = int(self.limit**0.5)
        v, w = self.clamp_to(v, root), self.clamp_to(w, root)
        return self.add_node("mul", v, w, bound=v.bound * w.bound)

    def by_number(self, v: Value) -> Value:
        v = self.clamp_to(v, self.limit / 4)
        return (
            self.add_node("mul_scalar", v, by=2, bound=2 * v.bound)
            if self.random.random() < 0.5
            else (self.add_node("add_scalar", v, by=3, bound=v.bound + 3))
        )

    def transcendental(self) -> None:
        v = self.pick()
        op = self.random.choice(tuple(SMOOTH))
        if op in ("sqrt", "log", "rsqrt"):
            v = self.add_node("add_scalar", self.add_node("abs", v), by=1)
        self.add_node(op, self.add_node("tanh", v, rounds=True) if op == "exp" else v, bound=6.0, rounds=True)

    def reduce(self, v: Value | None = None) -> Value:
        """Over one axis or two, kept or not; twice over the same value half of the time."""
        v = v or self.pick()
        dims = sorted(self.random.sample(range(len(v.shape)), self.random.choice((1, 1, min(2, len(v.shape))))))
        op = self.random.choice(("sum", *EXTREMES))
        count = prod(v.shape[d] for d in dims)
        if op == "sum":
            v = self.clamp_to(v, max(self.limit // count, 1))
        if op == "sum" and v.bound * count > self.limit:
            op = "amax"
        keep = self.random.random() < 0.5
        return self.add_node(op, v, dim=dims, keepdim=keep, bound=v.bound * (count if op == "sum" else 1))

    def centered(self) -> None:
        """x - amax(x), over the same axis or, a near miss, over another."""
        v = self.clamp_to(self.pick(), self.limit / 2)
        top = self.add_node(self.random.choice(EXTREMES), v, dim=[self.dim(v)], keepdim=True)
        self.add_node("sub", v, top, bound=2 * v.bound)

    def softmax(self) -> None:
        """Written out; a near miss sums over another axis, or leaves the maximum out."""
        v = self.add_node("tanh", self.pick(), rounds=True)
        d = self.dim(v)
        near = self.random.random()
        top = self.add_node("amax", v, dim=[d], keepdim=True)
        shifted = v if near < 0.2 else self.add_node("sub", v, top)
        raised = self.add_node("exp", shifted, rounds=True)
        total = self.add_node("sum", raised, dim=[self.dim(v) if near > 0.7 else d], keepdim=True)
        self.add_node("div", raised, total, rounds=True)

    def normalized(self) -> None:
        """(x - mean) * rsqrt(var + eps), or a near miss of it: other axes, another divisor, no mean."""
        v = self.pick()
        d = self.dim(v)
        near = self.random.random()
        mean = self.add_node("mean", v, dim=[self.dim(v) if near > 0.75 else d], keepdim=True, rounds=True)
        centered = self.add_node("sub", v, mean)
        if near < 0.5:
            square = self.add_node("mul", centered, v if near < 0.15 else centered)
            spread = self.add_node("mean", self.add_node("abs", square), dim=[d], keepdim=True, rounds=True)
        else:
            spread = self.add_node("var", v, dim=[d], keepdim=True, correction=0, rounds=True)
        inverse = self.add_node("rsqrt", self.add_node("add_scalar", spread, by=1e-2), rounds=True)
        self.add_node("mul", centered, inverse, bound=8.0)

    def library(self) -> None:
        v = self.pick()
        self.random.choice(INTEGER_OPS)(self, v)

    def soft(self, op: str, v: Value) -> None:
        self.add_node(op, v, dim=self.dim(v), rounds=True)

    def layer_norm(self, v: Value) -> None:
        self.add_node("layer_norm", v, rounds=True)

    def move(self) -> None:
        """Transposes, reshapes across dimensions that were fused, flips, slices, joins."""
        v = self.pick()
        if self.random.choice(MOVES)(self, v) is None:
            self.cut(v)

    def permute(self, v: Value) -> Value:
        rank = len(v.shape)
        return self.add_node("permute", v, order=self.random.sample(range(rank), rank))

    def reshape(self, v: Value) -> Value:
        return self.add_node(
            "reshape",
            v,
            shape=[prod(v.shape)]
            if self.random.random() < 0.4
            else [v.shape[0], prod(v.shape[1:])]
            if len(v.shape) > 1
            else [1, *v.shape],
        )

    def split(self, v: Value) -> Value | None:
        if not (divisors := [d for d in (2, 3, 4, 5, 7, 8) if v.shape[-1] % d == 0 and v.shape[-1] > d]):
            return None
        d = self.random.choice(divisors)
        return self.add_node("reshape", v, shape=[*v.shape[:-1], d, v.shape[-1] // d])

    def flip(self, v: Value) -> Value:
        return self.add_node("flip", v, dim=[self.dim(v)])

    def roll(self, v: Value) -> Value:
        return self.add_node("roll", v, by=self.random.choice((1, -1, 3)), dim=self.dim(v))

    def unsqueeze(self, v: Value) -> Value:
        return self.add_node("unsqueeze", v, dim=self.random.randint(0, len(v.shape)))

    def expand(self, v: Value) -> Value | None:
        if prod(v.shape) * 3 > ROOM:
            return None
        return self.add_node("expand", self.add_node("unsqueeze", v, dim=0), shape=[3, *v.shape])

    def cat(self, v: Value) -> Value | None:
        return self.add_node("cat", v, self.add_node("neg", v), dim=self.dim(v)) if prod(v.shape) * 2 <= ROOM else None

    def stack(self, v: Value) -> Value | None:
        if prod(v.shape) * 2 > ROOM:
            return None
        return self.add_node("stack", v, self.add_node("relu", v), dim=self.random.randint(0, len(v.shape)))

    def pad(self, v: Value) -> Value | None:
        if prod(v.shape) > ROOM // 4:
            return None
        return self.add_node("pad", v, by=[1, 2], value=3.0, bound=max(v.bound, 3))

    def triangle(self, v: Value) -> Value | None:
        if len(v.shape) < 2:
            return None
        return self.add_node(self.random.choice(("tril", "triu")), v, diagonal=self.random.choice((0, -1, 1)))

    def cut(self, v: Value) -> Value:
        d = self.dim(v)
        n = v.shape[d]
        start = self.random.randrange(max(n // 2, 1))
        return self.add_node(
            "slice",
            v,
            dim=d,
            start=start,
            stop=max(n - self.random.randrange(2), start + 1),
            step=self.random.choice((1, 1, 2)),
        )

    def twice(self) -> None:
        """A move of a move: one that turns back, and a near miss; a slice of a slice."""
        v = self.pick(lambda x: len(x.shape) > 1)
        self.random.choice(TWICE)(self, v)

    def permute_twice(self, v: Value) -> None:
        self.permute(self.permute(v))

    def cut_twice(self, v: Value) -> None:
        rank = len(v.shape)
        for _ in range(2):
            d = self.random.randrange(rank)
            start = self.random.randrange(max(v.shape[d] // 2, 1))
            v = self.add_node("slice", v, dim=d, start=start, stop=v.shape[d], step=1)

    def permute_and_fuse(self, v: Value) -> None:
        w = self.permute(v)
        self.add_node("reshape", w, shape=[prod(w.shape)] if len(v.shape) < 3 else [w.shape[0], prod(w.shape[1:])])

    def alike(self) -> None:
        """Two nodes of one operator and operand with other numbers."""
        v = self.clamp_to(self.pick(), self.limit / 4)
        self.random.choice(ALIKE)(self, v)

    def amax_alike(self, v: Value) -> None:
        keep = self.random.random() < 0.5
        for d in self.random.sample(range(len(v.shape)), min(2, len(v.shape))):
            self.add_node("amax", v, dim=[d], keepdim=keep)

    def rolls_alike(self, v: Value) -> None:
        for by in self.random.sample((1, 2, -1), 2):
            self.add_node("roll", v, by=by, dim=self.dim(v))

    def clamps_alike(self, v: Value) -> None:
        for top in self.random.sample((1, 2, 3), 2):
            self.add_node("clamp", v, low=-top, high=top, bound=min(v.bound, top))

    def sums_alike(self, v: Value) -> None:
        for by in self.random.sample((1, 2, 3), 2):
            self.add_node("add_scalar", v, by=by, bound=v.bound + by)

    def products_alike(self, v: Value) -> None:
        for by in self.random.sample((1, 2, 3), 2):
            self.add_node("mul_scalar", v, by=by, bound=v.bound * by)

    def narrowed(self) -> None:
        """A cast there and back, which rounds what is sure to the nearest; half of it, cut off at the point."""
        sure = [x for x in self.pool if x.is_integer and x.dtype == self.dtype and x.shape and x.bound < 60_000]
        if not sure or self.dtype not in ("float32", "float64"):
            return
        v = self.random.choice(sure)
        if self.random.random() < 0.5:
            w = self.add_node("cast", v, to=self.random.choice(("bfloat16", "float16")), bound=2 * v.bound)
        else:
            half = self.add_node("mul_scalar", v, by=0.5)
            self.pool.remove(half)  # it is not an integer
            w = self.add_node("cast", half, to=self.random.choice(("int64", "int32")))
        self.add_node("cast", w, to=self.dtype)
        self.pool.remove(w)  # no other motif takes its dtype

    def mask(self) -> None:
        """A choice by a comparison of what is sure, or by flags that are given."""
        v = self.pick()
        w = self.partner(v)
        sure = [
            x for x in self.pool if x.is_integer and x.dtype in (self.dtype, "int64") and broadcasts(x.shape, v.shape)
        ]
        if sure and self.random.random() < 0.7:
            flag = self.add_node("gt_scalar", self.random.choice(sure), by=0)
        else:
            flag = self.add_input([d if self.random.random() < 0.8 else 1 for d in v.shape], "bool")
            self.pool.append(flag)
        if self.random.random() < 0.3:
            flag = self.add_node("not", flag)
        if self.random.random() < 0.3:
            self.add_node("masked_fill", v, flag, value=2.0, bound=max(v.bound, 2))
        else:
            self.add_node("where", flag, v, w)

    def integers(self) -> None:
        """From floats that are sure to integers and flags, and back."""
        sure = [x for x in self.pool if x.is_integer and x.dtype == self.dtype and x.shape]
        if not sure:
            new = self.add_input(self.shape(), "int64")
            self.pool.append(new)
            self.add_node("cast", new, to=self.dtype)
            return
        v = self.random.choice(sure)
        i = self.add_node("cast", v, to="int64")
        j = self.add_node(
            "add_scalar", self.add_node("mul_scalar", i, by=3, bound=3 * v.bound), by=1, bound=3 * v.bound + 1
        )
        flag = self.add_node("gt", j, i)
        self.add_node(
            "where",
            flag,
            v,
            self.add_node("cast", self.add_node("clamp", j, low=-5, high=5, bound=5), to=self.dtype, bound=5),
        )
        if self.random.random() < 0.5:
            self.add_node(self.random.choice(("any", "all")), flag, dim=self.dim(v))
        elif self.exact:
            self.add_node("argmax", v, dim=self.dim(v), bound=max(v.shape))

    def index(self) -> None:
        v = self.pick(lambda x: len(x.shape) > 1)
        if len(v.shape) < 2:
            return
        self.random.choice(INDEXED)(self, v)

    def rows(self, op: str, v: Value) -> None:
        many = min(self.random.choice((1, 3, 8)), max(ROOM // max(prod(v.shape[1:]), 1), 1))
        self.add_node(op, v, self.add_input([many], "int64", 0, v.shape[0] - 1))

    def gather(self, v: Value) -> None:
        n = v.shape[0]
        self.add_node("gather", v, self.add_input([min(n, 3), *v.shape[1:]], "int64", 0, n - 1), dim=0)

    def added_up(self, op: str, v: Value) -> None:
        """By rows, or element by element."""
        n = v.shape[0]
        v = self.clamp_to(v, max(self.limit // n, 1))
        if v.is_integer and v.bound * n > self.limit:
            return
        shape = [n] if op == "index_add" else list(v.shape)
        more: dict[str, Any] = {} if op == "index_add" else {"dim": 0}
        self.add_node(op, v, self.add_input(shape, "int64", 0, 4), size=5, bound=v.bound * n, **more)

    def window(self) -> None:
        v = self.pick(lambda x: x.shape[-1] >= 3)
        if v.shape[-1] < 3:
            return
        if len(v.shape) == 3 and self.random.random() < 0.4:
            self.add_node("max_pool", v, size=2, step=self.random.choice((1, 2)))
        elif prod(v.shape) * 3 <= ROOM:
            wide = self.add_node("windows", v, dim=len(v.shape) - 1, size=3, step=self.random.choice((1, 2)))
            self.reduce(wide)

    def product(self) -> None:
        """A matrix product with a prologue or an epilogue."""
        v = self.pick(lambda x: 2 <= len(x.shape) <= 3)
        if not 2 <= len(v.shape) <= 3:
            return
        n, k = v.shape[-1], self.random.choice((1, 3, 8, 16))
        if prod(v.shape[:-1]) * k > ROOM:
            return
        v = self.clamp_to(v, max(self.limit // (8 * n), 1))
        if v.is_integer and v.bound * 4 * n > self.limit:
            return
        w = self.add_input([n, k])
        result = self.add_node("matmul", v, w, bound=v.bound * 4 * n if v.is_integer else 6.0)
        if self.random.random() < 0.6:
            self.add_node(
                "relu",
                self.add_node(
                    "add", self.clamp_to(result, self.limit / 2), self.add_input([k]), bound=result.bound + 4
                ),
            )

    def scan(self) -> None:
        v = self.pick()
        d = self.dim(v)
        v = self.clamp_to(v, max(self.limit // v.shape[d], 1))
        if not v.is_integer or v.bound * v.shape[d] <= self.limit:
            self.add_node("cumsum", v, dim=d, bound=v.bound * v.shape[d])


def _of(function: Callable[..., Any], op: str) -> Callable[..., Any]:
    """A motif that takes the name of what it draws."""
    return lambda draw, *values: function(draw, op, *values)


def _pair(op: str) -> Callable[[GraphGenerator, Value, Value], Value]:
    return lambda draw, v, w: draw.add_node(op, v, w)


def _one(op: str) -> Callable[[GraphGenerator, Value, Value], Value]:
    return lambda draw, v, w: draw.add_node(op, v)


EXTREMES = ("amax", "amin")
STEPS = (
    _of(GraphGenerator.total, "add"),
    _of(GraphGenerator.total, "sub"),
    GraphGenerator.times,
    _pair("maximum"),
    _pair("minimum"),
    _one("neg"),
    _one("abs"),
    _one("relu"),
    lambda draw, v, w: draw.by_number(v),
)
INTEGER_OPS = (_of(GraphGenerator.soft, "softmax"), _of(GraphGenerator.soft, "log_softmax"), GraphGenerator.layer_norm)
MOVES: tuple[Callable[[GraphGenerator, Value], Value | None], ...] = (
    GraphGenerator.permute,
    GraphGenerator.reshape,
    GraphGenerator.flip,
    GraphGenerator.roll,
    GraphGenerator.unsqueeze,
    GraphGenerator.expand,
    GraphGenerator.cut,
    GraphGenerator.cat,
    GraphGenerator.stack,
    GraphGenerator.pad,
    GraphGenerator.triangle,
    GraphGenerator.split,
)
TWICE = (GraphGenerator.permute_twice, GraphGenerator.cut_twice, GraphGenerator.permute_and_fuse)
ALIKE = (
    GraphGenerator.amax_alike,
    GraphGenerator.sums_alike,
    GraphGenerator.products_alike,
    GraphGenerator.rolls_alike,
    GraphGenerator.clamps_alike,
)
INDEXED = (
    _of(GraphGenerator.rows, "take"),
    _of(GraphGenerator.rows, "select_rows"),
    GraphGenerator.gather,
    _of(GraphGenerator.added_up, "index_add"),
    _of(GraphGenerator.added_up, "scatter_add"),
)
EXACT = (
    GraphGenerator.pointwise,
    GraphGenerator.pointwise,
    GraphGenerator.reduce,
    GraphGenerator.centered,
    GraphGenerator.move,
    GraphGenerator.move,
    GraphGenerator.mask,
    GraphGenerator.integers,
    GraphGenerator.index,
    GraphGenerator.window,
    GraphGenerator.product,
    GraphGenerator.scan,
    GraphGenerator.twice,
    GraphGenerator.alike,
    GraphGenerator.narrowed,
)
ROUNDED = (
    *EXACT,
    GraphGenerator.transcendental,
    GraphGenerator.transcendental,
    GraphGenerator.softmax,
    GraphGenerator.softmax,
    GraphGenerator.normalized,
    GraphGenerator.normalized,
    GraphGenerator.library,
)


def draw(seed: int, exact: bool = True, dtype: str = "float32") -> RandomGraph:
    """The program of that seed, of at most ``NODES`` nodes."""
    d = GraphGenerator(Random(seed), dtype, exact)
    d.pool.append(d.add_input(d.shape()))
    length = d.random.randint(3, NODES - 10)
    while len(d.nodes) < length:
        before = len(d.nodes), len(d.pool)
        d.random.choice(EXACT if exact else ROUNDED)(d)
        if len(d.nodes) > NODES or any(prod(v.shape) > ROOM or 0 in v.shape or len(v.shape) > 5 for v in d.pool):
            del d.nodes[before[0] :]
            d.pool = list(d.pool[: before[1]])
    made = [v for v in d.pool if v.number >= 0]
    used = {a for n in d.nodes for a in n.args}
    ends = [v.number for v in made if v.number not in used]
    inner = d.random.sample(made, min(len(made), d.random.choice((0, 0, 1, 2))))
    outputs = dict.fromkeys([*ends[-5:], *(v.number for v in inner)])
    shift = len(d.inputs)

    def number(n: int) -> int:
        return n + shift if n >= 0 else -n - 1

    nodes = tuple(Node(n.op, tuple(number(a) for a in n.args), n.attrs) for n in d.nodes)
    return pruned(RandomGraph(tuple(d.inputs), nodes, tuple(number(o) for o in outputs), exact))
