"""How an elementwise decomposition is judged: element by element in ulps, by eager's own distance from float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from keel.spec import MEMBERS, Op, Sample, decomposition_of
from keel.spec.dtype_groups import HALVES
from keel.spec.normal import overload_of
from keel.spec.samples import INF, drawn, specials

from .traced import ends, traced

DOUBLES = (torch.float64, torch.complex128)
WITHIN = 2.0
"""A decomposition's worst distance over eager's, where eager's counts as one ulp at least."""


def ratio(op: Any, *args: Any, decomposition: Callable[..., Any] | None = None, **kwargs: Any) -> float:
    """The worst distance from float64 of the decomposition of ``op`` over that of eager. Fails where dtypes, sizes,
    NaN or infinities differ from eager's, unless they are float64's.
    """
    decompose = decomposition or decomposition_of(op)
    assert decompose is not None, f"{op} has no decomposition."
    want = _several(op(*map(_double, args), **{k: _double(v) for k, v in kwargs.items()}))
    eager, ours = _several(op(*args, **kwargs)), _several(decompose(*args, **kwargs))
    assert len(eager) == len(ours)
    return max(
        (
            _ratio(f"{op}{_brief(args)}{kwargs}", w, e, o)
            for w, e, o in zip(want, eager, ours, strict=True)
            if w is not None
        ),
        default=0.0,
    )


def _ratio(what: str, want: torch.Tensor, eager: torch.Tensor, ours: torch.Tensor) -> float:
    assert (ours.dtype, ours.shape) == (eager.dtype, eager.shape), (
        f"{what}: {ours.dtype} {list(ours.shape)}, not {eager.dtype} {list(eager.shape)}"
    )
    if not (eager.dtype.is_floating_point or eager.dtype.is_complex):
        assert torch.equal(eager, ours), f"{what}: {ours}, not {eager}"
        return 0.0
    nearest = want.to(eager.dtype)
    plain = nearest.isfinite() & ours.isfinite()
    same = (ours == eager) | (ours == nearest) | (ours.isnan() & (eager.isnan() | nearest.isnan()))
    odd = ~(plain | same)
    assert not odd.any(), f"{what}: {ours[odd][:4]}, not {eager[odd][:4]} (float64: {want[odd][:4]})"
    if not plain.any():
        return 0.0
    mine = float(distance(ours[plain], want[plain]).max())
    sane = plain & eager.isfinite()
    theirs = float(distance(eager[sane], want[sane]).max()) if sane.any() else 0.0
    return mine / max(theirs, 16.0 if eager.dtype in DOUBLES else 1.0)


def distance(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """|got - want| in ulps: the gap between neighbors at |want| in the dtype of ``got``. Doubles, which have no better
    judge than themselves, are not judged more closely than the distance of 1 to its neighbor.
    """
    facts = torch.finfo(got.dtype)
    _, exponent = torch.frexp(want.abs().clamp(min=facts.smallest_normal).double())
    gap = torch.ldexp(torch.full(want.shape, facts.eps, dtype=torch.float64), exponent - 1)
    if got.dtype in DOUBLES:
        gap = gap.clamp(min=facts.eps)
    return (got.to(want.dtype) - want).abs() / gap


def within_budget(op: Op, judged: Callable[[Sample], bool] = lambda sample: True) -> None:
    """Eager in each dtype is as near to eager in float64 as the budget says, on the operator's samples of one dtype,
    and is NaN and infinite where that is; a result that is not a float is equal.
    """
    assert op.samples is not None and set(op.budget) == set(op.dtypes)
    for dtype in op.dtypes:
        ulps = op.budget[dtype].ulps
        assert ulps is not None
        for sample in op.samples(dtype):
            if not judged(sample) or any(isinstance(a, torch.Tensor) and a.dtype != dtype for a in sample.args):
                continue
            target = overload_of(op, sample.args, sample.kwargs)
            try:
                got = target(*sample.args, **sample.kwargs)
            except NotImplementedError:  # FakeTensor promises what this device has not
                continue
            want = target(*map(_double, sample.args), **{k: _double(v) for k, v in sample.kwargs.items()})
            for g, w in zip(_several(got), _several(want), strict=True):
                found = _off(g, w)
                assert found <= ulps, f"{target}{_brief(sample.args)}{dict(sample.kwargs)}: {found:.2f} ulps"


def _off(got: torch.Tensor, want: torch.Tensor) -> float:
    """The worst distance, of a complex number from 0; infinity where NaN, infinities or exact values differ."""
    if not (got.dtype.is_floating_point or got.dtype.is_complex):
        return 0.0 if torch.equal(got, want.to(got.dtype)) else INF
    nearest = want.to(got.dtype)
    plain = nearest.isfinite() & got.isfinite()
    g, n = got[~plain], nearest[~plain]
    if not got.dtype.is_complex and not torch.equal(g.nan_to_num(0.0, 1.0, -1.0), n.nan_to_num(0.0, 1.0, -1.0)):
        return INF
    return float(distance(got[plain], want[plain]).max()) if plain.any() else 0.0


def faithful(op: Op, within: float = WITHIN, judged: Callable[[Sample], bool] = lambda sample: True) -> None:
    """The composite's decomposition is as near to float64 as eager, within the factor, on all its samples."""
    assert op.samples is not None and op.dtypes
    for dtype in op.dtypes:
        seen = 0
        for sample in filter(judged, op.samples(dtype)):
            if any(isinstance(a, torch.Tensor) and a.is_complex() and not (a.abs() < 1e10).all() for a in sample.args):
                continue  # how complex infinities and overflow combine is free
            target = overload_of(op, sample.args, sample.kwargs)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # PyTorch's versions differ in what they warn of
                try:
                    target(*sample.args, **sample.kwargs)
                except NotImplementedError:  # eager has it not on this device
                    continue
                found = ratio(target, *sample.args, **sample.kwargs)
            assert found <= within, (
                f"{target}{_brief(sample.args)}{dict(sample.kwargs)}: {found:.1f} times eager's distance from float64"
            )
            seen += 1
        assert seen or dtype in HALVES, f"{op.name} was not tried on {dtype}."


def closed(op: Op, count: int = 2, symbolic: tuple[bool, ...] = (False, True)) -> None:
    """Some of the composite's samples, traced and written out as long as something can be, end in primitives, with the
    types that the call promises, sizes known or not.
    """
    assert op.samples is not None
    primitives = {name for p in MEMBERS.values() if p.kind == "primitive" for name in p.overloads}
    samples = [
        s for s in op.samples(op.dtypes[0]) if all(not isinstance(a, torch.Tensor) or a.numel() > 1 for a in s.args)
    ][:count]
    assert samples
    for sample in samples:
        for unknown in symbolic:
            target = overload_of(op, sample.args, sample.kwargs)
            found = ends(traced(target, *sample.args, symbolic=unknown, **sample.kwargs))
            assert found and found <= primitives, f"{op.name}{_brief(sample.args)} ends in {found - primitives}"


def ranges(dtype: torch.dtype, count: int = 1, size: int = 512) -> Iterator[tuple[torch.Tensor, ...]]:
    """Operands of several magnitudes, then special values, all pairs (triples ...) of them for several operands."""
    for i, reach in enumerate((1e-30, 1e-3, 1.0, 5.0, 30.0, 90.0, 1e4, 1e30)):
        if reach < torch.finfo(dtype).max and reach > torch.finfo(dtype).smallest_normal:
            yield tuple(drawn(dtype, size, seed=10 * i + n, low=-reach, high=reach) for n in range(count))
    values = specials(dtype)
    yield tuple(t.flatten() for t in torch.meshgrid(*[values] * count, indexing="ij")) if count > 1 else (values,)


def _double(value: Any) -> Any:
    if isinstance(value, torch.dtype):  # what a creation is asked for
        return torch.complex128 if value.is_complex else torch.float64 if value.is_floating_point else value
    if isinstance(value, torch.Tensor) and value.is_complex():
        return value.to(torch.complex128)
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _brief(args: tuple[Any, ...]) -> list[Any]:
    return [f"{a.dtype} {list(a.shape)}" if isinstance(a, torch.Tensor) else a for a in args]
