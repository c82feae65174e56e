"""Which clause of the contract is broken by what was seen of a call, beside its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .protocol import ExceptionInfo
from .red_zones import same_bits

STALE_RESULTS = "contract.calls.C1"
REPEATED = "contract.calls.C3"


def of_exception(what: ExceptionInfo) -> str:
    """Returns the clause that an exception breaks. Keel itself says where a part breaks its promise on the form of a
    result.
    """
    if what.code != "wrong-result":
        return ""
    return "contract.layouts.C1" if what.aspect == "strides" else "contract.layouts.C4"


def of_later_call(first: Sequence[Any], later: Sequence[Any]) -> str:
    """Returns the clause that a wrong later call breaks, if the first call was right and the later one repeats its
    results.
    """
    same = len(first) == len(later) and all(
        isinstance(a, Tensor) and isinstance(b, Tensor) and a.numel() > 0 and same_bits(a, b)
        for a, b in zip(first, later, strict=True)
    )
    return STALE_RESULTS if same and first else ""
