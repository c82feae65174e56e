"""Whether the sign of a zero is decided: by the operator's declaration, or because all that it is made of keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from keel.opset import OPSET, Op, decomposition_of

from ..cases.case import Inputs
from ..pytree import tree_map
from .tracked_tensor import plain_of, tracked


def differ(member: Op, got: Any, want: Tensor) -> bool:
    """Whether an element is a zero of one sign in ``got`` and of the other in ``want``. For a composite only -0 in
    ``want`` counts, which is an element of an operand: a zero that fills may come from a product with 0.
    """
    if not want.dtype.is_floating_point or not isinstance(got, Tensor) or got.shape != want.shape:
        return False
    got, want = got.double(), want.double()  # PyTorch neither compares nor asks for signs in float8
    other = (got == 0) & (want == 0) & (got.signbit() != want.signbit())
    return bool((other if member.kind == "primitive" else other & want.signbit()).any())


def are_decided(member: Op, op: Any, inputs: Inputs) -> bool:
    """Whether it is, in the results of a call. A primitive says so. A composite keeps the sign if it is made of
    primitives that round nothing and keep it: then its results are elements of its operands.
    """
    if member.kind == "primitive":
        return _keeps(member)
    if member.kind == "opaque" or member.numerics.free_zero_sign:
        return False
    exact, followed = True, False

    def evaluate(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        nonlocal exact, followed
        member = OPSET.get(op)
        if member is not None and member.kind == "composite" and (decompose := decomposition_of(op)) is not None:
            return decompose(*args, **kwargs)
        followed = True
        exact &= member is not None and member.kind == "primitive" and _rounds_nothing(member)
        return follow(op(*tree_map(tuple(args), plain_of), **tree_map(dict(kwargs), plain_of)))

    def follow(tree: Any) -> Any:
        return tree_map(tree, lambda x: tracked(x, evaluate) if isinstance(x, Tensor) else x)

    try:
        evaluate(op, follow(tuple(inputs.args)), follow(dict(inputs.kwargs)))
    except (NotImplementedError, RuntimeError, TypeError, ValueError):  # it is not made of operators that are followed
        return False
    return exact and followed


def _keeps(member: Op) -> bool:
    if member.numerics.free_zero_sign:
        return False
    return bool(member.budget) and all(b.ulps is not None for b in member.budget.values())


def _rounds_nothing(member: Op) -> bool:
    return _keeps(member) and all(b.ulps == 0 for b in member.budget.values())
