"""Index arithmetic: integer-affine expressions over loop axes, with floor-division, modulo and loaded indices as atoms.

Canonical form: a constant plus terms sorted by atom, equal atoms merged, zero coefficients dropped; so equality of canonical
forms is structural.  Coefficients are ``int``, or sympy polynomials where sizes are symbolic; sympy is never touched otherwise.
Every axis ranges over 0 <= axis < size and every size is positive while its loop runs, which is what makes the
simplifications of ``floordiv`` and ``mod`` sound: (q*n + r) // n = q when 0 <= r < n.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import sympy

from keel.types import Dim, as_dim


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop variable and how many values it takes, from 0."""

    name: str
    size: Dim

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Loaded:
    """The integer value numbered ``value`` of the kernel, used as an index; the caller promises 0 <= value < bound."""

    value: int
    bound: Dim

    def __str__(self) -> str:
        return f"%{self.value}"


@dataclass(frozen=True, slots=True)
class Div:
    """floor(of / by), by > 0."""

    of: Index
    by: Dim

    def __str__(self) -> str:
        return f"({self.of}) // {_factor(self.by)}"


@dataclass(frozen=True, slots=True)
class Mod:
    """of - by * floor(of / by), by > 0."""

    of: Index
    by: Dim

    def __str__(self) -> str:
        return f"({self.of}) % {_factor(self.by)}"


Atom = Axis | Loaded | Div | Mod


@dataclass(frozen=True, slots=True)
class Index:
    """const + sum of coefficient * atom."""

    const: Dim = 0
    terms: tuple[tuple[Atom, Dim], ...] = ()

    def __add__(self, other: Index | Dim) -> Index:
        other = index(other)
        return make(self.const + other.const, (*self.terms, *other.terms))

    def __sub__(self, other: Index | Dim) -> Index:
        return self + index(other) * -1

    def __mul__(self, factor: Dim) -> Index:
        """Times a size; the product of two indices is not affine and has no form here."""
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
        """The coefficient of ``atom`` as a direct term; 0 if it is none (it may still occur inside a Div or Mod)."""
        return next((c for a, c in self.terms if a == atom), 0)

    def __str__(self) -> str:
        parts = []
        for atom, c in self.terms:
            text = str(atom)
            if c != 1:
                text = f"{_factor(c)}*({text})" if isinstance(atom, Div | Mod) else f"{_factor(c)}*{text}"
            elif isinstance(atom, Div | Mod) and (len(self.terms) > 1 or self.const != 0):
                text = f"({text})"
            parts.append(text)
        if self.const != 0 or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


def _factor(d: Dim) -> str:
    text = str(d)
    return text if isinstance(d, int) and d >= 0 or text.isidentifier() else f"({text})"


ZERO = Index()


def index(value: Index | Atom | Dim) -> Index:
    """``value`` as an Index: an atom with coefficient 1, a size as a constant."""
    if isinstance(value, Index):
        return value
    if isinstance(value, Axis | Loaded | Div | Mod):
        return Index(0, ((value, 1),))
    return Index(as_dim(value))


def make(const: Dim, terms: Iterable[tuple[Atom, Dim]]) -> Index:
    """The canonical Index of a constant and of terms in any order, axes of size 1 dropped."""
    merged: dict[Atom, Dim] = {}
    for atom, c in terms:
        if isinstance(atom, Axis) and atom.size == 1:
            continue
        merged[atom] = merged[atom] + c if atom in merged else c
    kept = [(a, _tidy(c)) for a, c in merged.items()]
    return Index(_tidy(const), tuple(sorted(((a, c) for a, c in kept if c != 0), key=lambda t: _order(t[0]))))


def _tidy(d: Dim) -> Dim:
    return d if isinstance(d, int) else as_dim(sympy.expand(d))


def _order(atom: Atom) -> tuple[int, str]:
    return (0 if isinstance(atom, Axis) else 1, str(atom))


def below(low: Dim, high: Dim) -> bool:
    """Whether low < high can be proved; False means that it is not known."""
    if isinstance(low, int) and isinstance(high, int):
        return low < high
    return sympy.expand(high - low).is_positive is True


def quotient(d: Dim, by: Dim) -> Dim | None:
    """d / by where that is an integer polynomial, else None."""
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
        if _non_negative(c):
            high = high + c * top
        elif _non_negative(-c):
            low = low + c * top
        else:
            return None
    return _tidy(low), _tidy(high)


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
            if inner is None or not _non_negative(inner[0]):
                return None
            high = inner[1]
            if isinstance(high, int) and isinstance(atom.by, int):
                return high // atom.by
            exact = quotient(_tidy(high + 1), atom.by)      # floor((n*k - 1) / n) = k - 1
            return None if exact is None else _tidy(exact - 1)


def _non_negative(d: Dim) -> bool:
    return d >= 0 if isinstance(d, int) else d.is_nonnegative is True


def _split(i: Index, by: Dim) -> tuple[Index, Index]:
    """``i`` as (whole, rest) with i = by * whole + rest, every term that ``by`` divides in ``whole``."""
    whole: list[tuple[Atom, Dim]] = []
    rest: list[tuple[Atom, Dim]] = []
    for atom, c in i.terms:
        q = quotient(c, by)
        if q is None:
            rest.append((atom, c))
        else:
            whole.append((atom, q))
    if isinstance(i.const, int) and isinstance(by, int):
        q, r = divmod(i.const, by)
        return make(q, whole), make(r, rest)
    exact = quotient(i.const, by)
    return (make(exact, whole), make(0, rest)) if exact is not None else (make(0, whole), make(i.const, rest))


def _within(i: Index, by: Dim) -> bool:
    found = bounds(i)
    return found is not None and _non_negative(found[0]) and below(found[1], by)


def floordiv(i: Index, by: Dim) -> Index:
    if by == 1:
        return i
    whole, rest = _split(i, by)
    if _within(rest, by):
        return whole
    if (rest.const == 0 and len(rest.terms) == 1 and rest.terms[0][1] == 1 and isinstance(rest.terms[0][0], Div)):
        inner = rest.terms[0][0]                       # (x // a) // b = x // (a * b)
        return whole + floordiv(inner.of, _tidy(inner.by * by))
    rest, by = _reduced(rest, by)
    return whole + index(Div(rest, by))


def mod(i: Index, by: Dim) -> Index:
    if by == 1:
        return ZERO
    _, rest = _split(i, by)
    if _within(rest, by):
        return rest
    if rest.const == 0 and len(rest.terms) == 1 and rest.terms[0][1] == 1 and isinstance(rest.terms[0][0], Mod):
        inner = rest.terms[0][0]                       # (x % (a * b)) % b = x % b
        if quotient(inner.by, by) is not None:
            return mod(inner.of, by)
    return index(Mod(rest, by))


def _reduced(rest: Index, by: Dim) -> tuple[Index, Dim]:
    """(c*x) // (c*n) = x // n for the largest literal c that divides every coefficient."""
    for _, c in rest.terms:
        n = quotient(by, c) if c != 1 else None
        if n is None or n == 1:
            continue
        quotients = [quotient(k, c) for _, k in rest.terms]
        const = quotient(rest.const, c)
        if const is not None and all(q is not None for q in quotients):
            return make(const, [(a, q) for (a, _), q in zip(rest.terms, quotients, strict=True) if q is not None]), n
    return rest, by


def substitute(i: Index, values: Mapping[Axis, Index], loaded: Callable[[int], int] | None = None) -> Index:
    """``i`` with each axis replaced by its value (if it has one), and each Loaded renumbered; canonical again."""
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


def axes_of(i: Index) -> set[Axis]:
    """Every axis that occurs in ``i``, inside Div and Mod too."""
    found: set[Axis] = set()
    for atom, _ in i.terms:
        match atom:
            case Axis():
                found.add(atom)
            case Div() | Mod():
                found |= axes_of(atom.of)
            case Loaded():
                pass
    return found


def loaded_of(i: Index) -> set[int]:
    """The numbers of the values that ``i`` reads as indices."""
    found: set[int] = set()
    for atom, _ in i.terms:
        match atom:
            case Loaded():
                found.add(atom.value)
            case Div() | Mod():
                found |= loaded_of(atom.of)
            case Axis():
                pass
    return found


def dims_of(i: Index) -> set[Dim]:
    """Every symbolic size that ``i`` mentions, as coefficients, constants or divisors."""
    found = {i.const, *(c for _, c in i.terms)}
    for atom, _ in i.terms:
        if isinstance(atom, Div | Mod):
            found |= {atom.by} | dims_of(atom.of)
    return {d for d in found if not isinstance(d, int)}


def flatten(indices: Iterable[Index], strides: Iterable[Dim]) -> Index:
    """The storage offset of one element, in elements."""
    total = ZERO
    for i, s in zip(indices, strides, strict=True):
        total = total + i * s
    return total


def unflatten(offset: Index, shape: tuple[Dim, ...]) -> tuple[Index, ...]:
    """Row-major coordinates of a linear index."""
    out: list[Index] = []
    step: Dim = 1
    for axis, size in reversed(list(enumerate(shape))):
        q = floordiv(offset, step)
        out.append(q if axis == 0 else mod(q, size))
        step = _tidy(step * size)
    return tuple(reversed(out))
