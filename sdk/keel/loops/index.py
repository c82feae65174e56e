"""Index arithmetic: integer-affine expressions over loop axes, with floor-division, modulo and loaded indices as atoms.

The canonical form is a constant plus terms sorted by atom, with equal atoms merged and zero coefficients dropped, so
equality is structural. Coefficients are ``int``, or sympy polynomials where sizes are symbolic. sympy is not used
otherwise, because it is slow. Every axis ranges over 0 <= axis < size, and every size is positive while its loop runs.
Therefore the simplifications of ``floordiv`` and ``mod`` are sound: (q*n + r) // n = q when 0 <= r < n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import sympy

from keel.loops.symbolic_sizes import canonicalize, format_size, is_positive, join_terms, non_negative
from keel.types import Dim, as_dim


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop variable, which runs from 0 to below ``size``."""

    name: str
    size: Dim

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Loaded:
    """The kernel's integer value number ``value``, used as an index. 0 <= value < bound, by construction or because of
    a Check.
    """

    value: int
    bound: Dim

    def __str__(self) -> str:
        return f"(%{self.value} < {format_size(self.bound)})"


@dataclass(frozen=True, slots=True)
class Div:
    """floor(of / by), by > 0."""

    of: Index
    by: Dim

    def __str__(self) -> str:
        return f"{_operand(self.of)} // {format_size(self.by, tight=True)}"


@dataclass(frozen=True, slots=True)
class Mod:
    """of - by * floor(of / by), by > 0."""

    of: Index
    by: Dim

    def __str__(self) -> str:
        return f"{_operand(self.of)} % {format_size(self.by, tight=True)}"


Atom = Axis | Loaded | Div | Mod


@dataclass(frozen=True, slots=True)
class Index:
    """const + sum of coefficient * atom."""

    const: Dim = 0
    terms: tuple[tuple[Atom, Dim], ...] = ()

    def __add__(self, other: Index | Dim) -> Index:
        other = index(other)
        return make(self.const + other.const, (*self.terms, *other.terms))

    __radd__ = __add__

    def __sub__(self, other: Index | Dim) -> Index:
        return self + index(other) * -1

    def __rsub__(self, other: Index | Dim) -> Index:
        return index(other) - self

    def __mul__(self, factor: Dim) -> Index:
        """The product with a size. The product of two indices is not affine and cannot be expressed."""
        if factor == 1:
            return self
        return make(self.const * factor, [(a, c * factor) for a, c in self.terms])

    __rmul__ = __mul__

    def __floordiv__(self, by: Dim) -> Index:
        return floordiv(self, by)

    def __mod__(self, by: Dim) -> Index:
        return mod(self, by)

    @property
    def is_const(self) -> bool:
        return not self.terms

    def coefficient(self, atom: Atom) -> Dim:
        """The coefficient of ``atom`` as a direct term, or 0 if it is not a direct term (it may still occur inside a
        Div or Mod).
        """
        return next((c for a, c in self.terms if a == atom), 0)

    def __str__(self) -> str:
        if len(self.terms) == 1 and self.const == 0 and self.terms[0][1] == 1:
            return str(self.terms[0][0])
        parts = [_term(atom, c) for atom, c in self.terms]
        if self.const != 0 or not parts:
            parts.append(format_size(self.const))
        return join_terms(parts)


def _term(atom: Atom, c: Dim) -> str:
    text = f"({atom})" if isinstance(atom, Div | Mod) else str(atom)
    if isinstance(c, int):
        return text if c == 1 else f"-{text}" if c == -1 else f"{c}*{text}"
    return f"{format_size(c, tight=True)}*{text}"


def _operand(i: Index) -> str:
    lone = len(i.terms) == 1 and i.const == 0 and i.terms[0][1] == 1 and isinstance(i.terms[0][0], Axis)
    return str(i) if lone else f"({i})"


ZERO = Index()


def index(value: Index | Atom | Dim) -> Index:
    """``value`` as an Index: an atom with coefficient 1, a size as a constant."""
    if isinstance(value, Index):
        return value
    if isinstance(value, Axis | Loaded | Div | Mod):
        return ZERO if isinstance(value, Axis) and value.size == 1 else Index(0, ((value, 1),))
    return Index(canonicalize(as_dim(value)))


def make(const: Dim, terms: Iterable[tuple[Atom, Dim]]) -> Index:
    """The canonical Index of a constant and of terms in any order.

    Equal atoms are merged, axes of size 1 dropped, b*(x // b) + x % b rejoined to x.
    """
    merged: dict[Atom, Dim] = {}
    for atom, c in terms:
        if isinstance(atom, Axis) and atom.size == 1:
            continue
        merged[atom] = merged[atom] + c if atom in merged else c
    nonzero = [(a, k) for a, c in merged.items() if (k := canonicalize(c)) != 0]
    if len(nonzero) > 1:
        joined = _rejoined(nonzero)
        if joined is not None:
            return joined + index(const)
        nonzero.sort(key=lambda t: _order(t[0]))
    return Index(canonicalize(const), tuple(nonzero))


def _order(atom: Atom) -> tuple[int, str]:
    return (0 if isinstance(atom, Axis) else 1, str(atom))


def _rejoined(terms: list[tuple[Atom, Dim]]) -> Index | None:
    """The sum of ``terms`` if a pair of them is one: c*b*(x // b) + c*(x % b) = c*x and
    c*b*((x // b) % a) + c*(x % b) = c*(x % (a*b)).
    """
    coefficients = dict(terms)
    for atom, c in terms:
        if not isinstance(atom, Mod):
            continue
        q, step = floordiv(atom.of, atom.by), canonicalize(c * atom.by)
        for other in (a for a, k in terms if k == step):
            if index(other) == q:
                joined = atom.of * c
            elif isinstance(other, Mod) and other.of == q:
                joined = mod(atom.of, canonicalize(atom.by * other.by)) * c
            else:
                continue
            del coefficients[atom], coefficients[other]
            total: Index = make(0, coefficients.items()) + joined
            return total
    return None


def is_provably_less(low: Dim, high: Dim) -> bool:
    """True if low < high can be proved. False means that it is unknown."""
    return is_positive(high - low)


def quotient(d: Dim, by: Dim) -> Dim | None:
    """Returns d / by if that is an integer polynomial, else None."""
    if isinstance(d, int) and isinstance(by, int):
        return d // by if d % by == 0 else None
    if d == 0:
        return 0
    return _symbolic_quotient(d, by)


@lru_cache(maxsize=4096)
def _symbolic_quotient(d: Dim, by: Dim) -> Dim | None:
    ratio = sympy.cancel(sympy.sympify(d) / by)
    numerator, denominator = ratio.as_numer_denom()
    if denominator != 1 or ratio.is_integer is False:
        return None
    return as_dim(sympy.expand(numerator))


def bounds(i: Index) -> tuple[Dim, Dim] | None:
    """Inclusive lower and upper bound of ``i`` over all its axes, or None if a sign is not known."""
    low: Dim = i.const
    high: Dim = i.const
    for atom, c in i.terms:
        top = _top(atom)
        if top is None:
            return None
        if non_negative(c):
            high = high + c * top
        elif non_negative(-c):
            low = low + c * top
        else:
            return None
    return canonicalize(low), canonicalize(high)


def _top(atom: Atom) -> Dim | None:
    match atom:
        case Axis():
            return atom.size - 1
        case Loaded():
            return atom.bound - 1
        case Mod():
            return atom.by - 1
        case Div():
            inner = bounds(atom.of)
            if inner is None or not non_negative(inner[0]):
                return None
            high = inner[1]
            if isinstance(high, int) and isinstance(atom.by, int):
                return high // atom.by
            exact = quotient(canonicalize(high + 1), atom.by)  # floor((n*k - 1) / n) = k - 1
            return None if exact is None else canonicalize(exact - 1)


def split(i: Index, by: Dim) -> tuple[Index, Index]:
    """``i`` as (multiples, rest) with i = by * multiples + rest, every term that ``by`` divides in ``multiples``."""
    multiples: list[tuple[Atom, Dim]] = []
    rest: list[tuple[Atom, Dim]] = []
    for atom, c in i.terms:
        q = quotient(c, by)
        if q is None:
            rest.append((atom, c))
        else:
            multiples.append((atom, q))
    if isinstance(i.const, int) and isinstance(by, int):
        q, r = divmod(i.const, by)
        return make(q, multiples), make(r, rest)
    exact = quotient(i.const, by)
    return (make(exact, multiples), make(0, rest)) if exact is not None else (make(0, multiples), make(i.const, rest))


def is_within(i: Index, by: Dim) -> bool:
    """True if 0 <= i < by can be proved."""
    interval = bounds(i)
    return interval is not None and non_negative(interval[0]) and is_provably_less(interval[1], by)


def floordiv(i: Index, by: Dim) -> Index:
    """floor(i / by); by > 0."""
    by = canonicalize(by)
    if by == 1:
        return i
    quotient_part, rest = split(i, by)
    if is_within(rest, by):
        return quotient_part
    if rest.is_const:
        return quotient_part + index(sympy.floor(sympy.expand(sympy.sympify(rest.const) / by)))
    inner = lone_atom(rest)
    if isinstance(inner, Div):  # (x // a) // b = x // (a * b)
        return quotient_part + floordiv(inner.of, inner.by * by)
    if isinstance(inner, Mod) and (a := quotient(inner.by, by)) is not None:
        return quotient_part + mod(floordiv(inner.of, by), a)  # (x % (a * b)) // b = (x // b) % a
    for c, n in _factors(rest, by):  # (c*x + r) // (c*n) = x // n where 0 <= r < c
        x, r = split(rest, c)
        if is_within(r, c):
            return quotient_part + floordiv(x, n)
    return quotient_part + index(Div(rest, by))


def mod(i: Index, by: Dim) -> Index:
    """i - by * floor(i / by); by > 0."""
    by = canonicalize(by)
    if by == 1:
        return ZERO
    _, rest = split(i, by)
    if is_within(rest, by):
        return rest
    if rest.is_const:
        return index(sympy.Mod(rest.const, by))
    inner = lone_atom(rest)
    if isinstance(inner, Mod) and quotient(inner.by, by) is not None:
        return mod(inner.of, by)  # (x % (a * b)) % b = x % b
    for c, n in _factors(rest, by):  # (c*x + r) % (c*n) = c*(x % n) + r where 0 <= r < c
        x, r = split(rest, c)
        if is_within(r, c):
            scaled: Index = mod(x, n) * c
            return scaled + r
    return index(Mod(rest, by))


def lone_atom(i: Index) -> Atom | None:
    """The atom that an index consists of; None if it is computed."""
    return i.terms[0][0] if i.const == 0 and len(i.terms) == 1 and i.terms[0][1] == 1 else None


def _factors(i: Index, by: Dim) -> list[tuple[Dim, Dim]]:
    """The (c, n) with by = c * n that could come out of ``i``: each c > 1 shares a factor with a coefficient."""
    factors: dict[Dim, Dim] = {}
    for _, k in i.terms:
        c = gcd(k, by) if isinstance(k, int) and isinstance(by, int) else k
        n = quotient(by, c) if c != 1 and is_positive(c) else None
        if n is not None and n != 1:
            factors[c] = n
    return list(factors.items())


def substitute(i: Index, values: Mapping[Axis, Index], loaded: Callable[[int], int] | None = None) -> Index:
    """``i`` with each axis replaced by its value (if it has one), and each Loaded renumbered; canonical again."""
    if (moved := _moved(i, values)) is not None:
        return moved
    out = Index(i.const)
    for atom, c in i.terms:
        match atom:
            case Axis():
                out = out + values.get(atom, index(atom)) * c
            case Loaded():
                out = out + index(atom if loaded is None else Loaded(loaded(atom.value), atom.bound)) * c
            case Div():
                out = out + floordiv(substitute(atom.of, values, loaded), atom.by) * c
            case Mod():
                out = out + mod(substitute(atom.of, values, loaded), atom.by) * c
    return out


def _moved(i: Index, values: Mapping[Axis, Index]) -> Index | None:
    """A fast path of ``substitute`` for sums of axes with integer coefficients, in which no terms can be rejoined.
    Returns None for other indices.
    """
    const = i.const
    terms: list[tuple[Atom, Dim]] = []
    for atom, c in i.terms:
        if not isinstance(atom, Axis) or not isinstance(c, int):
            return None
        value = values.get(atom)
        if value is None:
            terms.append((atom, c))
            continue
        if not isinstance(value.const, int) or not all(
            isinstance(a, Axis) and isinstance(k, int) for a, k in value.terms
        ):
            return None
        const = const + value.const * c
        terms += [(a, k * c) for a, k in value.terms]
    return make(const, terms)


def axes_of(i: Index) -> set[Axis]:
    """Every axis that occurs in ``i``, inside Div and Mod too."""
    axes: set[Axis] = set()
    for atom, _ in i.terms:
        match atom:
            case Axis():
                axes.add(atom)
            case Div() | Mod():
                axes |= axes_of(atom.of)
            case Loaded():
                pass
    return axes


def loaded_of(i: Index) -> set[int]:
    """The numbers of the values that ``i`` reads as indices."""
    values: set[int] = set()
    for atom, _ in i.terms:
        match atom:
            case Loaded():
                values.add(atom.value)
            case Div() | Mod():
                values |= loaded_of(atom.of)
            case Axis():
                pass
    return values


def loaded_bounds(i: Index) -> list[Dim]:
    """The bounds of the values that ``i`` reads as indices."""
    limits: list[Dim] = []
    for atom, _ in i.terms:
        match atom:
            case Loaded():
                limits.append(atom.bound)
            case Div() | Mod():
                limits += loaded_bounds(atom.of)
            case Axis():
                pass
    return limits


def dims_of(i: Index) -> set[Dim]:
    """Every symbolic size that ``i`` contains, as a coefficient, constant, divisor or bound."""
    dims = {i.const, *(c for _, c in i.terms)}
    for atom, _ in i.terms:
        if isinstance(atom, Div | Mod):
            dims |= {atom.by} | dims_of(atom.of)
        elif isinstance(atom, Loaded):
            dims.add(atom.bound)
    return {d for d in dims if not isinstance(d, int)}


def flatten(indices: Iterable[Index], strides: Iterable[Dim]) -> Index:
    """The storage offset of one element, in elements."""
    total = ZERO
    for i, s in zip(indices, strides, strict=True):
        total = total + i * s
    return total


def unflatten(offset: Index, shape: tuple[Dim, ...]) -> tuple[Index, ...]:
    """Row-major coordinates of a linear index; the caller promises 0 <= offset < the product of ``shape``."""
    if 0 in shape:  # no valid offset exists, so any coordinates will do
        return (ZERO,) * len(shape)
    out: list[Index] = []
    step: Dim = 1
    for axis, size in reversed(list(enumerate(shape))):
        q = floordiv(offset, step)
        out.append(ZERO if size == 1 else q if axis == 0 else mod(q, size))
        step = canonicalize(step * size)
    return tuple(reversed(out))
