"""The cost of a placement as arrays: a price for each unit on each backend, and for each way that a tensor may take.

A :class:`Problem` is in seconds.  Solvers work on its :class:`Terms`: the same in integers, with units that must stay
together contracted to one *bundle*, so that two of them can be compared without a tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FORBIDDEN = 1 << 43
"""The cost of a refusal in ticks: more than any placement without one, and small enough to be summed over half a
million units without overflow."""


@dataclass(frozen=True, eq=False)
class Tensors:
    """The T tensors that may have to move. Tensor t is made by unit ``maker[t]``; if that is -1, it is on place
    ``home[t]`` when the graph starts. ``reader[first[t]:first[t + 1]]`` are the units that read it.

    ``transfer[t, p, q]`` are the seconds to bring it from place p to place q. They are charged once, however many units
    on place q read it, and inf if there is no way. ``ends[t]`` is the place where it must end, or -1. ``handover[t]``
    are the seconds charged once for each backend other than its maker's that reads it, on any place: the two would save
    them if they were one. ``size[t]`` is its size in bytes.
    """

    maker: Ints
    first: Ints
    reader: Ints
    transfer: Floats
    home: Ints
    ends: Ints
    handover: Floats
    size: Ints

    @property
    def star(self) -> Ints:
        """Returns the tensor that each entry of ``reader`` reads."""
        return np.repeat(np.arange(len(self.maker)), np.diff(self.first))


@dataclass(frozen=True)
class Saving:
    """A pattern that a backend runs as one: ``seconds`` are saved if ``backend`` has all of ``units``.

    ``in_one_part`` means that the units must be in one part, too.
    """

    units: tuple[int, ...]
    backend: int
    seconds: float
    in_one_part: bool = False


@dataclass(frozen=True, eq=False)
class Problem:
    """``compute[u, b]`` are the seconds of unit u on backend b, inf if b refuses it. Backends are numbered by
    preference; of two placements of equal cost the one with more on the first backend is chosen.

    ``needs[u]`` are the units that u waits for, all below u; ``place[b]`` numbers the device (and layout) where backend
    b keeps its tensors; ``launch[b]`` are the seconds that each part of b costs; ``memory[p]`` is the size of place p
    in bytes, inf without a limit; units with equal numbers in ``together`` go to one backend, for the sum of their
    costs. ``passed`` are tensors as in ``tensors``, but between backends instead of places: a place for each backend,
    and one more, without a backend, for tensors that are there when the graph starts.
    """

    compute: Floats
    needs: Sequence[Sequence[int]]
    tensors: Tensors
    place: Ints
    launch: Floats
    memory: Floats
    together: Ints
    savings: tuple[Saving, ...] = ()
    passed: Tensors | None = None

    @property
    def backends(self) -> int:
        return int(self.compute.shape[1])


def tensors(
    maker: ArrayLike,
    readers: Sequence[Sequence[int]],
    transfer: ArrayLike,
    *,
    home: ArrayLike = -1,
    ends: ArrayLike = -1,
    handover: ArrayLike = 0.0,
    size: ArrayLike = 0,
) -> Tensors:
    """Makes tensors from a list of readers for each. Every other argument is an array over tensors, or one value for
    all; ``transfer`` may lack the axis of tensors.
    """
    count = len(readers)
    first = np.zeros(count + 1, np.int64)
    np.cumsum([len(r) for r in readers], out=first[1:])
    reader = np.fromiter((u for r in readers for u in r), np.int64, int(first[-1]))
    ways = np.asarray(transfer, np.float64)
    return Tensors(
        _spread(maker, count),
        first,
        reader,
        np.broadcast_to(ways, (count, *ways.shape[-2:])),
        _spread(home, count),
        _spread(ends, count),
        np.broadcast_to(np.asarray(handover, np.float64), (count,)),
        _spread(size, count),
    )


def problem(
    compute: ArrayLike,
    needs: Sequence[Sequence[int]],
    moved: Tensors | None = None,
    *,
    place: ArrayLike | None = None,
    launch: ArrayLike = 0.0,
    memory: ArrayLike = np.inf,
    together: ArrayLike | None = None,
    savings: Sequence[Saving] = (),
    passed: Tensors | None = None,
) -> Problem:
    """Makes a problem with defaults: each backend on a place of its own, no launch costs, no limits.

    Raises ValueError if shapes do not match, a cost is negative or NaN, or no backend can take some unit.
    """
    costs = np.asarray(compute, np.float64)
    units, backends = costs.shape
    places = np.arange(backends) if place is None else np.asarray(place, np.int64)
    several = int(places.max(initial=0)) + 1
    made = Problem(
        costs,
        needs,
        moved or tensors([], [], np.zeros((several, several))),
        places,
        np.broadcast_to(np.asarray(launch, np.float64), (backends,)),
        np.broadcast_to(np.asarray(memory, np.float64), (several,)),
        np.arange(units) if together is None else np.asarray(together, np.int64),
        tuple(savings),
        passed,
    )
    _check(made)
    return made


def pinned(original: Problem, pins: Mapping[int, int]) -> Problem:
    """Fixes each unit in ``pins`` to the backend given there.  Raises ValueError if that backend refuses it."""
    compute = original.compute.copy()
    for unit, backend in pins.items():
        compute[unit, np.arange(original.backends) != backend] = np.inf
    made = replace(original, compute=compute)
    _check(made)
    return made


@dataclass(frozen=True, eq=False)
class Stars:
    """Charges on tensors between places: ``price[t, p, q]`` ticks once, if the maker of t is on place p and some reader
    of it on place q. ``star[i]`` and ``reader[i]`` are a tensor and one of its readers; ``place[b]`` is the place of
    backend b; ``home`` and ``ends`` as in :class:`Tensors`. A tensor's maker is not among its readers.
    """

    place: Ints
    maker: Ints
    star: Ints
    reader: Ints
    price: Ints
    home: Ints
    ends: Ints


@dataclass(frozen=True, eq=False)
class Wholes:
    """Patterns: ``worth[i]`` ticks are charged unless all of pattern i, ``member[which == i]``, is on its backend."""

    which: Ints
    member: Ints
    backend: Ints
    worth: Ints


@dataclass(frozen=True, eq=False)
class Terms:
    """A problem for solvers: ``cost[v, b]`` of bundle v on backend b in ticks of ``tick`` seconds, FORBIDDEN where it
    is refused; ``bundle[u]`` is the bundle of unit u; ``launch`` in ticks; ``credit`` is the sum of all savings.
    """

    cost: Ints
    stars: tuple[Stars, ...]
    wholes: Wholes
    launch: Ints
    bundle: Ints
    credit: int
    tick: float = field(default=1e-12)

    @property
    def backends(self) -> int:
        return int(self.cost.shape[1])


def scaled(original: Problem) -> Terms:
    """Returns the terms of a problem. A tick is the smallest power of two of picoseconds with which all costs together
    (each unit on its most expensive backend, each tensor on its most expensive way) stay below half of FORBIDDEN.

    Only the costs are rounded, each to the nearest tick. So the cost of a placement is off by at most half a tick for
    each unit, tensor, saving and part.
    """
    tick = _tick(original)

    def ticks(seconds: Floats) -> Ints:
        rounded = np.rint(np.where(np.isfinite(seconds), seconds, 0) / tick).astype(np.int64)
        return np.where(np.isfinite(seconds), rounded, FORBIDDEN)

    units, backends = original.compute.shape

    def moving(t: Tensors, place: Ints) -> Stars:
        wayward = np.broadcast_to(~np.eye(t.transfer.shape[1], dtype=bool), t.transfer.shape)
        return Stars(place, t.maker, t.star, t.reader, ticks(np.where(wayward, t.transfer, 0.0)), t.home, t.ends)

    t, owners = original.tensors, np.arange(backends)
    layers = [moving(t, original.place)]
    if original.passed is not None:
        layers.append(moving(original.passed, owners))
    if t.handover.any():
        made = t.maker >= 0
        price = ticks(t.handover * made)[:, None, None] * ~np.eye(backends, dtype=bool)
        nowhere = np.full(len(t.maker), -1)
        layers.append(Stars(owners, t.maker, t.star, t.reader, price, np.where(made, -1, 0), nowhere))
    lengths = [len(s.units) for s in original.savings]
    wholes = Wholes(
        np.repeat(np.arange(len(lengths)), lengths),
        _ints(u for s in original.savings for u in s.units),
        _ints(s.backend for s in original.savings),
        ticks(np.array([s.seconds for s in original.savings])),
    )
    terms = Terms(
        ticks(original.compute),
        tuple(layers),
        wholes,
        ticks(original.launch),
        np.arange(units),
        int(wholes.worth.sum()),
        tick,
    )
    return contracted(terms, np.unique(original.together, return_inverse=True)[1].astype(np.int64))


def contracted(terms: Terms, into: Ints) -> Terms:
    """Merges bundle v into bundle ``into[v]``.  The new numbers have no gaps."""
    count = int(into.max(initial=-1)) + 1
    cost = np.zeros((count, terms.backends), np.int64)
    np.add.at(cost, into, np.minimum(terms.cost, FORBIDDEN))
    w = terms.wholes
    return replace(
        terms,
        cost=np.minimum(cost, FORBIDDEN),
        stars=tuple(_drawn(s, into, count) for s in terms.stars),
        wholes=replace(w, member=into[w.member]),
        bundle=into[terms.bundle],
    )


def value(terms: Terms, labels: Ints) -> int:
    """Returns the cost of a placement in ticks without launches: FORBIDDEN or more if some call is refused."""
    total = int(terms.cost[np.arange(len(labels)), labels].sum()) - terms.credit
    w = terms.wholes
    broken = np.zeros(len(w.backend), bool)
    broken[w.which[labels[w.member] != w.backend[w.which]]] = True
    return total + int(w.worth[broken].sum()) + sum(charged(s, labels) for s in terms.stars)


def charged(stars: Stars, labels: Ints) -> int:
    """Returns the ticks of one kind of charge."""
    count, places = stars.price.shape[:2]
    at = stars.place[labels]
    needed = np.zeros((count, places), bool)
    needed[stars.star, at[stars.reader]] = True
    ending = stars.ends >= 0
    needed[ending, stars.ends[ending]] = True
    return int(ways(stars, at)[needed].sum())


def ways(stars: Stars, at: Ints) -> Ints:
    """Returns the cost of bringing each tensor to each place ([tensors, places]) if bundles are on places ``at``."""
    return stars.price[np.arange(len(stars.maker)), sources(stars, at)]


def sources(stars: Stars, at: Ints) -> Ints:
    """Returns the place that each tensor comes from if bundles are on places ``at``."""
    if not len(at):
        return stars.home
    return np.where(stars.maker >= 0, at[stars.maker], stars.home)


def _drawn(stars: Stars, into: Ints, count: int) -> Stars:
    """Returns the stars between merged bundles: each reader once, without the maker, and without tensors that only
    their maker reads.
    """
    maker = np.where(stars.maker >= 0, into[stars.maker], -1) if len(into) else stars.maker
    reader = into[stars.reader]
    once = np.unique(stars.star * count + reader)
    star, reader = (once // count, once % count) if count else (once, once)
    other = reader != maker[star]
    star, reader = star[other], reader[other]
    retained = stars.ends >= 0
    retained[star] = True
    retained &= stars.price.any(axis=(1, 2))
    number = np.cumsum(retained) - 1
    read = retained[star]
    return Stars(
        stars.place,
        maker[retained],
        number[star[read]],
        reader[read],
        stars.price[retained],
        stars.home[retained],
        stars.ends[retained],
    )


def _tick(original: Problem) -> float:
    t = original.tensors

    def most(of: Floats, axes: Any) -> float:
        return float(np.where(np.isfinite(of), of, 0.0).max(axis=axes, initial=0.0).sum())

    tensors, units = len(t.maker), len(original.compute)
    passed = 0.0 if original.passed is None else most(original.passed.transfer, 1)
    total = (
        most(original.compute, 1)
        + most(t.transfer, 1)
        + float(t.handover.sum()) * original.backends
        + passed
        + sum(s.seconds for s in original.savings)
        + (units + tensors + 1) * float(original.launch.max(initial=0.0))
    )
    exponent = max(0, int(np.ceil(np.log2(max(total, 1e-30) * 1e12))) - 41)
    return float(1e-12 * 2.0**exponent)


def _check(p: Problem) -> None:
    units = len(p.compute)
    reasons = {
        "as many needs and owners together as there are units": len(p.needs) == units == len(p.together),
        "a place for each backend": p.place.shape == (p.backends,) and (p.place >= 0).all(),
        "costs that are not negative": (p.compute >= 0).all()
        and (p.launch >= 0).all()
        and all(s.seconds >= 0 for s in p.savings),
        "finite launch costs": np.isfinite(p.launch).all(),
        "savings on backends": all(0 <= s.backend < p.backends for s in p.savings),
        **_conditions(p.tensors, units, len(p.memory)),
        **({} if p.passed is None else _conditions(p.passed, units, p.backends + 1)),
    }
    if missing := [what for what, holds in reasons.items() if not holds]:
        raise ValueError(f"A placement problem needs {'; '.join(missing)}.")
    refused: Any = np.zeros((int(p.together.max(initial=-1)) + 1, p.backends), bool)
    np.logical_or.at(refused, p.together, ~np.isfinite(p.compute))
    if len(stuck := np.nonzero(refused.all(axis=1)[p.together])[0]):
        raise ValueError(f"No backend can take unit {stuck[0]} and the units that must stay with it.")


def _conditions(t: Tensors, units: int, places: int) -> dict[str, Any]:
    """Yields each condition on the tensors of a problem, and whether it holds."""
    return {
        "transfers [tensors, places, places]": t.transfer.shape == (len(t.maker), places, places),
        "units as makers and readers": (t.maker < units).all() and ((t.reader >= 0) & (t.reader < units)).all(),
        "a home or a maker for each tensor": ((t.maker >= 0) | (t.home >= 0)).all(),
        "places as homes and ends": (t.home < places).all() and (t.ends < places).all(),
        "transfers and handovers that are not negative": (t.transfer >= 0).all() and (t.handover >= 0).all(),
        "finite handover costs": np.isfinite(t.handover).all(),
    }


def _spread(values: ArrayLike, count: int) -> Ints:
    return np.broadcast_to(np.asarray(values, np.int64), (count,))


def _ints(values: Any) -> Ints:
    return np.fromiter(values, np.int64)
