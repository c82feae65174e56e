"""Results that are right by the numeric facts that a backend declares, and not without them.

A call is judged by IEEE arithmetic first. Only if it fails, it is judged again by each fact alone, and by all together:

* **Subnormals that are flushed:** the operands as they are, or with those below the normal numbers as 0; a result that
  may be below them may be 0, and so may each product and partial sum (Higham 2002, section 2.8). The analysis of a
  composite allows that of intermediate results for every backend.
* **Operands of products that are cut:** each is off by 2^(1 - p) of itself, for a format with p bits of significand;
  errors of operands enter a sum of products as sum (|x| + ex)(|y| + ey) - sum |x| |y|. Products of operands that the
  format holds stay exact.
* **Sums in 16 bits:** gamma(n + 1) with the unit roundoff of the dtype. Where that reaches 1, nothing is known, and the
  case is ``vacuous``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from keel.plugin import Arithmetic

from ..cases.case import Inputs
from ..pytree import tree_map
from ..results.verdict import Verdict

RIGHT = ("pass", "quality warning")
Judge = Callable[[Inputs, Arithmetic], Verdict]
"""The verdict on a call's results, for its inputs and an arithmetic."""


def judge_by_facts(first: Verdict, inputs: Inputs, arithmetic: Arithmetic, judge: Judge) -> Verdict:
    """``first`` is the verdict by IEEE arithmetic. If that is ``fail``, returns the first verdict by facts by which the
    results are right, or not known to be wrong because sums are in 16 bits. It names the fact. Else returns ``first``.
    """
    if first.status != "fail":
        return first
    for fact in arithmetic.one_by_one():
        for operands in (inputs, *_flushed(inputs, fact.flushes_subnormals)):
            verdict = judge(operands, fact)
            if verdict.status in RIGHT or (fact.sums and verdict.status == "vacuous"):
                words = ", ".join(fact.sentences())
                sentence = " ".join(filter(None, [f"By its declaration, it {words}.", verdict.sentence]))
                return replace(verdict, sentence=sentence, figures={**verdict.figures, "fact": words})
    return first


def _flushed(inputs: Inputs, dtypes: Sequence[torch.dtype]) -> tuple[Inputs, ...]:
    """The inputs, in the same strides, with subnormals of these dtypes as zeros of their signs, if they have any."""
    changed = False

    def flushed(x: object) -> object:
        nonlocal changed
        if (
            not isinstance(x, Tensor)
            or not (x.is_floating_point() or x.is_complex())
            or x.dtype.to_real() not in dtypes
        ):
            return x
        span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
        memory = x.as_strided((span,), (1,)).clone()
        numbers = torch.view_as_real(memory) if x.is_complex() else memory
        small = (numbers != 0) & (numbers.abs() < torch.finfo(x.dtype).smallest_normal)
        numbers.copy_(torch.where(small, torch.zeros_like(numbers).copysign(numbers), numbers))
        changed = changed or bool(small.any())
        return memory.as_strided(x.shape, x.stride())

    args, kwargs = tree_map(tuple(inputs.args), flushed), tree_map(dict(inputs.kwargs), flushed)
    return (replace(inputs, args=args, kwargs=kwargs),) if changed else ()
