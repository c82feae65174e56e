"""Facts from operators' schemas: the arguments that an operator writes to, what its results alias, whether it is
random.
"""

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
"""The modules that register the operators of a namespace, their types, or one operator. They are slow to import (one
imports all of Dynamo), so they are imported when they are needed.
"""

_KINDS = (OpOverload, HigherOrderOperator)  # a union of them would be rebuilt at each call


def is_operator(target: object) -> bool:
    """True if ``target`` is an operator of ``torch.ops``: an overload, or a higher-order operator (``cond`` ...)."""
    return isinstance(target, _KINDS)


def is_overload(target: object) -> bool:
    """True if ``target`` is an overload: an operator that takes tensors and numbers, and has a schema."""
    return isinstance(target, OpOverload)


@dataclass(frozen=True)
class Parameter:
    """A parameter of an overload. ``default`` is None if it is ``required``. ``tensor`` is True if it takes a tensor
    (or None), ``number`` if it takes a Python number, ``several`` if it takes a list.
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
    """The parameters of an overload, in order. Raises TypeError for a higher-order operator, which has none."""
    if not isinstance(op, OpOverload):
        raise TypeError(f"{op} has no schema.")
    lenient = op._schema.name in _NUMBERS_AS_TENSORS
    result = []
    for a in op._schema.arguments:
        tensor = str(a.type) in ("Tensor", "Optional[Tensor]")
        result.append(
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
    return tuple(result)


def signature(op: Callable[..., Any]) -> str | None:
    """An overload's schema as PyTorch prints it; None for a higher-order operator, which has none."""
    return str(op._schema) if isinstance(op, OpOverload) else None


def operator_named(name: str) -> Callable[..., Any] | None:
    """The operator with a full name (``aten.add.Tensor``, ``higher_order.cond.default``); None if this PyTorch does not
    have it.
    """
    if re.fullmatch(r"\w+\.\w+\.\w+", name) is None:
        return None
    space, packet, overload = name.split(".")
    _register(space)
    _register(f"{space}.{packet}")
    operator = getattr(getattr(torch.ops, space), packet, None)
    operator = operator if space == "higher_order" else getattr(operator, overload, None)
    return operator if is_operator(operator) else None


@cache
def _register(name: str) -> None:
    """Imports the module that registers a namespace or an operator. A PyTorch without the module lacks the operator
    too.
    """
    if name in _REGISTERED_BY:
        with suppress(ImportError):
            import_module(_REGISTERED_BY[name])


def registered_names() -> frozenset[str]:
    """The full names of the overloads that are registered so far. Imports nothing."""
    return _full_names(tuple(torch._C._dispatch_get_all_op_names()))


@lru_cache(maxsize=4)
def _full_names(schemas: tuple[str, ...]) -> frozenset[str]:
    plain = (n.replace("::", ".") for n in schemas)
    return frozenset(n if n.count(".") > 1 else f"{n}.default" for n in plain)


def overload_names() -> tuple[str, ...]:
    """The sorted full names of all registered overloads and higher-order operators."""
    for name in _REGISTERED_BY:
        _register(name)
    return tuple(sorted({*registered_names(), *(f"higher_order.{n}.default" for n in _higher_order_ops)}))


def is_taken_apart(op: Callable[..., Any]) -> bool:
    """True if PyTorch's dispatcher decomposes an overload, so that captured graphs never contain it."""
    return isinstance(op, OpOverload) and op._can_decompose()


def gives_tensors(op: Callable[..., Any]) -> bool:
    """True if an overload returns tensors. Others return a number, or only have an effect."""
    return isinstance(op, OpOverload) and any("Tensor" in str(r.type) for r in op._schema.returns)


_NUMBERS_AS_TENSORS = frozenset({"aten::add", "aten::sub", "aten::mul", "aten::div", "aten::floor_divide"})
"""Operators whose tensor parameters take numbers too (``should_allow_numbers_as_tensors`` of python_arg_parser.cpp)."""


def writes(op: Callable[..., Any]) -> bool:
    """True if an operator writes to an argument."""
    return isinstance(op, OpOverload) and op._schema.is_mutable


_UNSAID = frozenset({"aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::_unsafe_view"})
"""Views whose schemas do not declare the alias, so that autograd does not track writes to them."""


def hides_alias(op: Callable[..., Any]) -> bool:
    """True if an operator returns views of its first argument though its schema declares fresh memory."""
    return isinstance(op, OpOverload) and op._schema.name in _UNSAID


@cache
def may_alias(op: Callable[..., Any]) -> Mapping[int, tuple[int, ...]]:
    """Maps each result that may share memory with arguments to the positions of these arguments. Empty for most
    operators. A result that is a list counts as result 0.
    """
    if not isinstance(op, OpOverload):
        return MappingProxyType({})
    if hides_alias(op):
        return MappingProxyType({0: (0,)})
    sets = [set(a.alias_info.before_set) if a.alias_info else set() for a in op._schema.arguments]
    aliases: dict[int, tuple[int, ...]] = {}
    for i, result in enumerate(op._schema.returns):
        if result.alias_info:
            alias_set = set(result.alias_info.before_set) | set(result.alias_info.after_set)
            # The schema of a list of views does not say which argument it aliases.
            aliases[i] = tuple(
                k for k, theirs in enumerate(sets) if theirs and (theirs & alias_set or not alias_set - {"*"})
            )
    return MappingProxyType(aliases)


@cache
def is_random(op: Callable[..., Any]) -> bool:
    """True if two equal calls may return different results."""
    tags = getattr(op, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


@cache
def makes_sizes(op: Callable[..., Any]) -> bool:
    """True if results are data-dependent numbers or have data-dependent sizes."""
    tags = getattr(op, "tags", ())
    return torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags


@cache
def has_effect(op: Callable[..., Any]) -> bool:
    """True if a call must stay even if its result is unused: a check, a write, a random draw, a collective, a
    higher-order operator.
    """
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
    """True if an operator only raises unless a condition on its arguments holds. An operator whose condition depends
    only on types (``_assert_tensor_metadata``) does not count.
    """
    return isinstance(op, OpOverload) and op._schema.name in _ASSERTIONS
