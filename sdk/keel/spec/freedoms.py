"""What an implementation of a composite may compute otherwise than its decomposition does, stated in that.

Compiled, these functions return their first argument. The conformance suite evaluates decompositions on tensors of a
class of its own, and derives from these calls how far a right result may be off.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Freedoms:
    """A base of tensors that bound the errors of what decompositions may compute otherwise."""

    def may_be_off(self, share: float, least: float) -> Tensor:
        """The tensor with an error of so much of itself, and of ``least`` where it is not 0."""
        raise NotImplementedError

    def may_be(self, other: Tensor) -> Tensor:
        """The tensor with an error that reaches ``other``, too."""
        raise NotImplementedError


def may_be_off(x: Tensor, share: float) -> Tensor:
    """``x``, which an implementation may compute with a relative error of ``share``."""
    return x.may_be_off(share, 0.0) if isinstance(x, Freedoms) else x


def may_round(x: Tensor, dtype: torch.dtype) -> Tensor:
    """``x``, which an implementation may round to a 16-bit ``dtype`` before it goes on with it, also while a factor is
    still to be divided out. That may cost precision, and not range. Other dtypes round nothing.
    """
    if not isinstance(x, Freedoms) or dtype not in (torch.float16, torch.bfloat16):
        return x
    facts = torch.finfo(dtype)
    return x.may_be_off(facts.eps / 2, facts.smallest_normal * facts.eps / 2)


def may_compute(x: Tensor, other: Callable[[], Tensor]) -> Tensor:
    """``x``, in place of which an implementation may compute ``other``."""
    return x.may_be(other()) if isinstance(x, Freedoms) else x
