"""Every rule gives what eager gives, on the samples of the operator set's declarations, in every dtype declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from keel.loops.builder import LoopDefinition
from keel.loops.lower import RULES, calls_by_result, lower
from keel.spec import MEMBERS, Op
from keel.spec.normal import overload_of
from keel.types import Call

from .calls import call_of, eager, tensors_in
from .evaluate import evaluate

LOWERED = [
    op
    for op in MEMBERS.values()
    if op.kind == "primitive" and op.samples is not None and any(t in RULES for t in op.targets)
]
INEXACT = frozenset({"fmod", "remainder"})
"""Operators for which eager's vectorized code gives NaN where x / y is beyond 2^31; its scalar code does not."""
SPREADS_NAN = frozenset({"convolution"})
"""Operators whose kernel for bfloat16 gives NaN for windows that hold none, next to windows that do."""
UNDEFINED = frozenset({"empty"})
"""Operators whose values are whatever the memory held."""


def cases(op: Op, dtype: torch.dtype) -> Iterator[tuple[Call, LoopDefinition, list[Tensor], Any]]:
    """The samples that have loops, with what eager gives; those it does not run are left out."""
    assert op.samples is not None
    for sample in op.samples(dtype):
        try:
            target = overload_of(op, sample.args, sample.kwargs)
            want = eager(target, *sample.args, **sample.kwargs)
        except (RuntimeError, NotImplementedError, IndexError):
            continue
        call = call_of(target, sample.args, sample.kwargs, want)
        if op.name in SPREADS_NAN and dtype == torch.bfloat16:
            want = eager(target, *(a.float() if isinstance(a, Tensor) else a for a in sample.args)).to(dtype)
        for each in calls_by_result(call):
            definition = lower(each)
            if isinstance(definition, LoopDefinition):
                wanted = want if each is call else [w for w, t in zip(want, each.out, strict=True) if t is not None]
                yield each, definition, tensors_in([*sample.args, *sample.kwargs.values()]), wanted


def unlike(got: Tensor, want: Tensor, op: Op) -> str | None:
    """What is wrong with a result: its type, or its values beyond what rounding and the order of a sum explain."""
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype} {list(got.shape)}, not {want.dtype} {list(want.shape)}"
    if not (want.dtype.is_floating_point or want.dtype.is_complex):
        wrong = got != want
        return f"{got[wrong][:4].tolist()}, not {want[wrong][:4].tolist()}" if wrong.any() else None
    if want.dtype.itemsize == 1:
        got, want = got.float(), want.float()
    budget = op.budget.get(want.dtype)
    ulps = 64.0 if budget is None or budget.ulps is None else 2 * budget.ulps + 2
    eps = torch.finfo(want.dtype).eps
    near = torch.isclose(
        got, want, rtol=ulps * eps, atol=ulps * torch.finfo(want.dtype).smallest_normal, equal_nan=True
    )
    if op.name in INEXACT:
        near |= want.isnan() & got.isfinite()
    if budget is None or budget.ulps is None or "fma" in op.name:  # terms that cancel
        finite = want.isfinite()
        scale = float(want[finite].abs().double().max()) if finite.any() else 0.0
        near |= torch.isclose(got, want, rtol=0.0, atol=ulps * eps * scale, equal_nan=True)
    return None if near.all() else f"{got[~near][:4].tolist()}, not {want[~near][:4].tolist()}"


@pytest.mark.slow
@pytest.mark.parametrize("op", LOWERED, ids=lambda op: op.name)
def test_rules_are_eager_s(op: Op) -> None:
    wrong: list[str] = []
    for dtype in op.dtypes or (torch.float32,):
        for call, definition, tensors, want in cases(op, dtype):
            wants = [w for w in (want if isinstance(want, tuple | list) else (want,)) if w is not None]
            gots = evaluate(definition, tensors)
            for got, w in zip(gots, wants, strict=True):
                if op.name in UNDEFINED:
                    got = w if (got.dtype, got.shape) == (w.dtype, w.shape) else got
                if (why := unlike(got, w, op)) is not None:
                    wrong.append(f"{call}: {why}")
    assert not wrong, f"{len(wrong)} samples, such as:\n" + "\n".join(wrong[:3])
