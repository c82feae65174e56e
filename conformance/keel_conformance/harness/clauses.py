"""Which clause of the contract is broken by what was seen of a call, beside its numbers."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .guard import same_bits

FAULTS = (
    ("was changed by a later one", "contract.calls.C2"), ("It wrote to argument", "contract.mutation.C1"),
    ("It wrote", "contract.mutation.C5"), ("shares memory with argument", "contract.aliases.C4"),
    ("shares memory with result", "contract.aliases.C1"), (" is on ", "contract.layouts.C4"))
"""What a fault's sentence has, and the clause; the first that fits."""
KEPT = "contract.calls.C1"
REPEATED = "contract.calls.C3"


def of_fault(fault: str) -> str:
    """Of a sentence on what was written to, and what shares memory."""
    if "shares memory with result" in fault and " of call " in fault.partition("shares memory with")[2]:
        return "contract.calls.C2"
    return next((clause for words, clause in FAULTS if words in fault), "")


def of_exception(text: str) -> str:
    """Of an exception's text: Keel itself says where a part breaks its promise on the form of a result."""
    if "KeelError[wrong-result]" not in text:
        return ""
    return "contract.layouts.C1" if "strides are" in text else "contract.layouts.C4"


def of_later_call(first: Sequence[Any], later: Sequence[Any]) -> str:
    """Of a call that is wrong where the first was right: if it has the first one's results, they were kept."""
    same = len(first) == len(later) and all(isinstance(a, Tensor) and isinstance(b, Tensor) and a.numel() > 0
                                            and same_bits(a, b) for a, b in zip(first, later, strict=True))
    return KEPT if same and first else ""
