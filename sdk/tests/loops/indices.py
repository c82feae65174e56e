"""Random indices for property tests, with a second evaluation that knows nothing of canonical forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from hypothesis import strategies as st

from keel.loops.index import Axis, Div, Index, Loaded, Mod, floordiv, index, mod
from keel.loops.symbolic_sizes import evaluate, symbol
from keel.types import Dim

S0, S1 = symbol("s0"), symbol("s1")
SYMBOLS = {"s0": 3, "s1": 4}
LITERAL_AXES = tuple(Axis(f"i{n}", size) for n, size in enumerate((1, 2, 3, 4, 6)))
SYMBOLIC_AXES = (Axis("i0", S0), Axis("i1", S1), Axis("i2", 4), Axis("i3", 1))
LOADED = Loaded(7, 5)

Tree = tuple[Any, ...]
"""("axis", Axis) | ("loaded", Loaded) | ("const", Dim) | ("add", Tree, Tree) | ("mul" | "div" | "mod", Tree, Dim)"""


@dataclass(frozen=True)
class Space:
    """What an index may be made of, and the points at which it is looked at."""

    axes: tuple[Axis, ...]
    factors: tuple[Dim, ...]
    divisors: tuple[Dim, ...]
    symbols: Mapping[str, int]

    def points(self) -> Iterator[dict[str, int]]:
        sizes = [evaluate(a.size, self.symbols) for a in self.axes]
        for *position, loaded in product(*map(range, sizes), range(5)):
            yield {a.name: p for a, p in zip(self.axes, position, strict=True)} | {"%7": loaded}


LITERAL = Space(LITERAL_AXES, (-3, -2, -1, 0, 1, 2, 3, 4, 6, 12), (1, 2, 3, 4, 6, 12), {})
SYMBOLIC = Space(
    SYMBOLIC_AXES,
    (-2, -1, 1, 2, 4, S0, S1, 2 * S0, S0 * S1, -S1, S0 + 1, S0 - 1),
    (1, 2, 4, S0, S1, 2 * S0, S0 * S1, 4 * S1, S0 + 1),
    SYMBOLS,
)
SPACES = st.sampled_from((LITERAL, SYMBOLIC))


def trees(space: Space) -> st.SearchStrategy[Tree]:
    leaf = st.one_of(
        st.tuples(st.just("axis"), st.sampled_from(space.axes)),
        st.just(("loaded", LOADED)),
        st.tuples(st.just("const"), st.sampled_from(space.factors)),
    )
    return st.recursive(
        leaf,
        lambda t: st.one_of(
            st.tuples(st.just("add"), t, t),
            st.tuples(st.just("mul"), t, st.sampled_from(space.factors)),
            st.tuples(st.sampled_from(("div", "mod")), t, st.sampled_from(space.divisors)),
        ),
        max_leaves=6,
    )


def build(tree: Tree) -> Index:
    match tree:
        case "axis" | "loaded" | "const", leaf:
            return index(leaf)
        case "add", a, b:
            return build(a) + build(b)
        case "mul", a, c:
            return build(a) * c
        case "div", a, by:
            return floordiv(build(a), by)
        case _, a, by:
            return mod(build(a), by)


def value_of(tree: Tree, point: Mapping[str, int], symbols: Mapping[str, int]) -> int:
    """What ``tree`` means, in plain integers."""
    match tree:
        case "axis", axis:
            return point[axis.name]
        case "loaded", loaded:
            return point[f"%{loaded.value}"]
        case "const", c:
            return evaluate(c, symbols)
        case "add", a, b:
            return value_of(a, point, symbols) + value_of(b, point, symbols)
        case op, a, c:
            left, right = value_of(a, point, symbols), evaluate(c, symbols)
            return left * right if op == "mul" else left // right if op == "div" else left % right


def value_at(i: Index, point: Mapping[str, int], symbols: Mapping[str, int]) -> int:
    """What an Index is at a point."""
    total = evaluate(i.const, symbols)
    for atom, c in i.terms:
        match atom:
            case Axis():
                here = point[atom.name]
            case Loaded():
                here = point[f"%{atom.value}"]
            case Div():
                here = value_at(atom.of, point, symbols) // evaluate(atom.by, symbols)
            case Mod():
                here = value_at(atom.of, point, symbols) % evaluate(atom.by, symbols)
        total += here * evaluate(c, symbols)
    return total
