"""Index texts are worth what the indices are, in integers that divide toward zero."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest
import sympy
import torch

from keel import Dim
from keel.loops import Axis, Index, Loaded, index
from keel_triton.index_text import Var, index_text, merged, narrowed, product_text, runs, size_text

A, B, C = Axis("a", 3), Axis("b", 5), Axis("c", 7)
S = sympy.Symbol("s0", integer=True, positive=True)
NONE = frozenset[str]()


@dataclass(frozen=True)
class Machine:
    """An integer as hardware divides it."""

    value: int

    def __add__(self, other: object) -> Machine:
        return Machine(self.value + _int(other))

    def __sub__(self, other: object) -> Machine:
        return Machine(self.value - _int(other))

    def __mul__(self, other: object) -> Machine:
        return Machine(self.value * _int(other))

    def __floordiv__(self, other: object) -> Machine:
        q = abs(self.value) // abs(_int(other))
        return Machine(q if (self.value < 0) == (_int(other) < 0) else -q)

    def __mod__(self, other: object) -> Machine:
        return Machine(self.value - _int((self // other) * other))

    __radd__, __rmul__ = __add__, __mul__


def _int(x: object) -> int:
    return x.value if isinstance(x, Machine) else int(x)


def lookup(atom: Axis | Loaded) -> Var:
    return Var(atom.name if isinstance(atom, Axis) else f"v{atom.value}", NONE, torch.int64)


@pytest.mark.parametrize(
    "i",
    [
        index(A) * 35 + index(B) * 7 + C,
        (index(A) * 5 + B) // 4,
        (index(A) * 5 + B) % 4 * 3 + 2,
        (index(A) * 5 + index(B) - 6) // 4,
        (index(A) * 5 + index(B) - 6) % 4,
        (index(A) - index(B) * 2) // 3 + (index(B) - 4) % 3 * 5 - 1,
        ((index(A) * -3 + 1) // 2 + 9) % 5,
    ],
    ids=str,
)
def test_texts_are_worth_what_indices_are(i: Index) -> None:
    text, _ = index_text(i, lookup, {})
    for a, b, c in product(range(3), range(5), range(7)):
        want = sum(_value(t, (a, b, c)) * k for t, k in i.terms) + i.const
        found = eval(text, {}, {"a": Machine(a), "b": Machine(b), "c": Machine(c)})
        assert _int(found) == want, text


def _value(atom: object, point: tuple[int, int, int]) -> int:
    if isinstance(atom, Axis):
        return point["abc".index(atom.name)]
    inner = sum(_value(t, point) * k for t, k in atom.of.terms) + atom.of.const
    return inner // atom.by if type(atom).__name__ == "Div" else inner % atom.by


@pytest.mark.parametrize(
    ("d", "derived", "text"),
    [
        (5, {}, "5"),
        (S, {}, "s0"),
        (S * 768, {}, "768*s0"),
        (S + 1, {}, "1 + s0"),
        (S * (S + 1), {}, "s0*(1 + s0)"),
        (sympy.floor(S / 2) * 3, {sympy.floor(S / 2): "n0"}, "3*n0"),
        (S**2, {S**2: "n0"}, "n0"),
    ],
)
def test_sizes(d: Dim, derived: dict[Dim, str], text: str) -> None:
    assert size_text(d, derived) == text


def test_products_of_sizes() -> None:
    assert product_text((), {}) == "1"
    assert product_text((3, S, 5, S + 1), {}) == "15*s0*(1 + s0)"


def test_neighboring_digits_that_are_one_number() -> None:
    i = index(A) * 70 + index(B) * 14 + index(C) * 2
    assert list(runs(i, (A, B, C))) == [(0, 3)]
    joint = Axis("abc", 105)
    assert merged(i, (A, B, C), joint) == index(joint) * 2
    assert list(runs(index(A) * 35 + index(B) * 7 + index(C) * 2, (A, B, C))) == [(0, 2)]
    assert list(runs(index(A) + index(C), (A, B, C))) == []
    s = Axis("s", S)
    assert list(runs(index(A) * S + index(s), (A, s))) == [(0, 2)]


def test_loaded_indices_take_the_dtype_of_the_others() -> None:
    v = Var("v3", NONE, torch.int64)
    assert narrowed(v, "int32") == "v3.to(tl.int32)"
    assert narrowed(v, "int64") == "v3"
    assert narrowed(v, "INDEX") == "v3.to(INDEX)"
