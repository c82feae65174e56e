"""What an operator's schema says: what it writes, what its results alias, whether it draws random numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, _higher_order_ops

_REGISTERED_BY = {
    "_c10d_functional": "torch.distributed._functional_collectives",
    "_c10d_functional_autograd": "torch.distributed._functional_collectives",
    "higher_order.triton_kernel_wrapper_functional": "torch._higher_order_ops.triton_kernel_wrap",
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torch_attn": "torch.nn.attention.varlen",
    "torch_nn": "torch.nn.modules.linear_cross_entropy",
}
"""What registers a namespace's operators, or their types, or one operator, and is too dear to import before somebody
asks: one of them imports all of Dynamo.
"""

_KINDS = (OpOverload, HigherOrderOperator)  # a union of them would be rebuilt at each call


def is_operator(target: object) -> bool:
    """Whether ``target`` is an operator of ``torch.ops``: an overload, or one of higher order (``cond`` ...)."""
    return isinstance(target, _KINDS)


def is_overload(target: object) -> bool:
    """Whether ``target`` is an overload: an operator that takes tensors and numbers, and has a schema."""
    return isinstance(target, OpOverload)


@dataclass(frozen=True)
class Parameter:
    """A parameter of an overload; ``default`` is None where it is ``required``. ``tensor`` says whether it takes a
    tensor (or None), ``number`` whether a Python number, ``several`` whether a list.
    """

    name: str
    default: Any
    keyword_only: bool
    tensor: bool = False
    number: bool = True
    required: bool = False
    several: bool = False


@cache
def parameters(op: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters of an overload, in order.  Raises TypeError for an operator of higher order, which has none."""
    if not isinstance(op, OpOverload):
        raise TypeError(f"{op} has no schema.")
    lenient = op._schema.name in _NUMBERS_AS_TENSORS
    found = []
    for a in op._schema.arguments:
        tensor = str(a.type) in ("Tensor", "Optional[Tensor]")
        found.append(
            Parameter(
                a.name,
                a.default_value,
                a.kwarg_only,
                tensor,
                not tensor or lenient,
                not a.has_default_value(),
                "List[int]" in str(a.type) and getattr(a, "N", None) is None,
            )
        )
    return tuple(found)


def signature(op: Callable[..., Any]) -> str | None:
    """An overload's schema as PyTorch writes it; None for an operator of higher order, which has none."""
    return str(op._schema) if isinstance(op, OpOverload) else None


def operator_named(name: str) -> Callable[..., Any] | None:
    """The operator of a full name (``aten.add.Tensor``, ``higher_order.cond.default``); None if this PyTorch has none
    of that name."""
    if re.fullmatch(r"\w+\.\w+\.\w+", name) is None:
        return None
    space, packet, overload = name.split(".")
    _register(space)
    _register(f"{space}.{packet}")
    found = getattr(getattr(torch.ops, space), packet, None)
    found = found if space == "higher_order" else getattr(found, overload, None)
    return found if is_operator(found) else None


@cache
def _register(name: str) -> None:
    """Imports what registers a namespace or an operator; some PyTorch lacks it, and then the operator, too."""
    if name in _REGISTERED_BY:
        with suppress(ImportError):
            import_module(_REGISTERED_BY[name])


def registered_names() -> frozenset[str]:
    """The full names of the overloads that the dispatcher knows by now, without importing what registers more."""
    return _full_names(tuple(torch._C._dispatch_get_all_op_names()))


@lru_cache(maxsize=4)
def _full_names(schemas: tuple[str, ...]) -> frozenset[str]:
    plain = (n.replace("::", ".") for n in schemas)
    return frozenset(n if n.count(".") > 1 else f"{n}.default" for n in plain)


def overload_names() -> tuple[str, ...]:
    """The full names of all overloads that the dispatcher knows, and of operators of higher order, sorted."""
    for name in _REGISTERED_BY:
        _register(name)
    return tuple(sorted({*registered_names(), *(f"higher_order.{n}.default" for n in _higher_order_ops)}))


def is_taken_apart(op: Callable[..., Any]) -> bool:
    """Whether PyTorch's dispatcher writes an overload out by itself, so that no captured graph holds it."""
    return isinstance(op, OpOverload) and op._can_decompose()


def gives_tensors(op: Callable[..., Any]) -> bool:
    """Whether an overload returns tensors; what does not asks for a number, or only has an effect."""
    return isinstance(op, OpOverload) and any("Tensor" in str(r.type) for r in op._schema.returns)


_NUMBERS_AS_TENSORS = frozenset({"aten::add", "aten::sub", "aten::mul", "aten::div", "aten::floor_divide"})
"""Operators whose tensor parameters take numbers too (``should_allow_numbers_as_tensors`` of python_arg_parser.cpp)."""


def writes(op: Callable[..., Any]) -> bool:
    """Whether an operator writes to an argument."""
    return isinstance(op, OpOverload) and op._schema.is_mutable


_UNSAID = frozenset({"aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::_unsafe_view"})
"""Views whose schemas keep quiet about it, so that autograd does not follow writes to them."""


@cache
def may_alias(op: Callable[..., Any]) -> Mapping[int, tuple[int, ...]]:
    """For each result that may share memory with arguments: the positions of these.  Empty for most operators.

    A result that is a list counts as result 0.
    """
    if not isinstance(op, OpOverload):
        return MappingProxyType({})
    if op._schema.name in _UNSAID:
        return MappingProxyType({0: (0,)})
    sets = [set(a.alias_info.before_set) if a.alias_info else set() for a in op._schema.arguments]
    found: dict[int, tuple[int, ...]] = {}
    for i, result in enumerate(op._schema.returns):
        if result.alias_info:
            mine = set(result.alias_info.before_set) | set(result.alias_info.after_set)
            # A list of views says only that it aliases something.
            found[i] = tuple(k for k, theirs in enumerate(sets) if theirs and (theirs & mine or not mine - {"*"}))
    return MappingProxyType(found)


@cache
def is_random(op: Callable[..., Any]) -> bool:
    """Whether two equal calls may give different results."""
    tags = getattr(op, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


@cache
def makes_sizes(op: Callable[..., Any]) -> bool:
    """Whether results have sizes, or are numbers, that only the run tells."""
    tags = getattr(op, "tags", ())
    return torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags


@cache
def has_effect(op: Callable[..., Any]) -> bool:
    """Whether a call matters even if nobody uses its result: a check, a write, a random draw, a collective, an operator
    of higher order."""
    if not isinstance(op, OpOverload):
        return isinstance(op, HigherOrderOperator)
    return (
        op._schema.is_mutable or not op._schema.returns or "c10d" in op.namespace or is_random(op) or is_assertion(op)
    )


_ASSERTIONS = frozenset(
    {
        "aten::_assert_async",
        "aten::_assert_scalar",
        "aten::_functional_assert_async",
        "aten::_functional_assert_scalar",
        "aten::sym_constrain_range",
        "aten::sym_constrain_range_for_size",
        "aten::_functional_sym_constrain_range",
        "aten::_functional_sym_constrain_range_for_size",
        "aten::_linalg_check_errors",
    }
)


@cache
def is_assertion(op: Callable[..., Any]) -> bool:
    """True if an operator only raises unless a condition on its arguments holds.  An operator that types alone decide
    (``_assert_tensor_metadata``) does not count.
    """
    return isinstance(op, OpOverload) and op._schema.name in _ASSERTIONS
