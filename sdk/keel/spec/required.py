"""Whether a call keeps what its member requires of arguments: what does not is for eager PyTorch to refuse, or to do.

Tracing does not tell. PyTorch's fake tensors give a type to a difference of a bool and a float, which it refuses, and
in 2.11 to a row beyond the last one, which a kernel would read from memory of something else.
"""

from __future__ import annotations

from keel.spec.bind import bind
from keel.spec.opset import OPSET
from keel.types import Call, SymType, leaves


def broken(call: Call) -> str | None:
    """The precondition that the call breaks, as a sentence; None if it breaks none, or if it has sizes that only a run
    tells, or arguments of which its preconditions cannot be asked.
    """
    op = OPSET.get(call.op)
    if op is None or not op.requires or _symbolic(call):
        return None
    args = bind(call)
    for required in op.requires:
        try:
            if not required.holds(args):
                return required.sentence
        except (IndexError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            continue
    return None


def _symbolic(call: Call) -> bool:
    return any(t.symbols for t in call.tensors) or any(
        isinstance(v, SymType) for v in leaves((*call.args, *call.kwargs.values()))
    )
