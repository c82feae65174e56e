"""Negative controls: backends that compute nothing at all, and must fail whatever has values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from keel_conformance.pytree import tensor_leaves

from .mutant import Mutant, backend_of, reference, sentence, slug
from .rewiring import run

Fill = Callable[[Tensor, Sequence[Tensor]], Tensor]
"""What a result is: a tensor of its type, without values yet, and the tensors that the operator was called with."""


def control(fill: Fill) -> Mutant:
    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            if node.target is operator.getitem:
                return args[0][args[1]]
            arguments = tensor_leaves((args, dict(kwargs)))

            def result(val: Any) -> Any:
                if not isinstance(val, Tensor):
                    return val
                return fill(torch.empty_strided(val.shape, val.stride(), dtype=val.dtype), arguments)

            val = node.meta["val"]
            return (
                type(val)(map(result, val))
                if type(val) in (tuple, list)
                else tuple(map(result, val))
                if isinstance(val, tuple)
                else result(val)
            )

        return lambda *inputs: run(gm, inputs, do)

    name = slug(fill)
    return Mutant(name, "control", (), sentence(fill), reference(fill), backend_of(name, compile, "control"), ("*",))


@control
def zeros(made: Tensor, arguments: Sequence[Tensor]) -> Tensor:
    """Every result is zero."""
    return made.zero_()


@control
def ones(made: Tensor, arguments: Sequence[Tensor]) -> Tensor:
    """Every result is one."""
    return made.fill_(1)


@control
def identity(made: Tensor, arguments: Sequence[Tensor]) -> Tensor:
    """Every result has the elements of the first argument, one after another, as often as it takes."""
    if not arguments or not arguments[0].numel() or not made.numel():
        return made.zero_()
    flat = arguments[0].reshape(-1)
    part = flat[torch.arange(made.numel()) % flat.numel()].reshape(made.shape)
    return made.copy_(part.real if part.is_complex() and not made.is_complex() else part)


@control
def nan(made: Tensor, arguments: Sequence[Tensor]) -> Tensor:
    """Every result is NaN, the least integer, or true."""
    if made.is_floating_point() or made.is_complex():
        return made.fill_(float("nan"))
    return made.fill_(True if made.dtype == torch.bool else torch.iinfo(made.dtype).min)


@control
def uninitialized(made: Tensor, arguments: Sequence[Tensor]) -> Tensor:
    """Results are what their memory held: large numbers, for the memory of a right result may come back as it was."""
    if made.dtype != torch.bool:
        made.untyped_storage().fill_(0x5A)  # type: ignore[attr-defined]  # missing in the stubs
    return made


MEANT: Mapping[str, frozenset[str]] = {
    "zeros": frozenset({"zeros", "zeros_like", "new_zeros", "zero", "zero_tensor", "foreach_zero", "empty"}),
    "ones": frozenset({"ones", "ones_like", "new_ones", "empty"}),
    "identity": frozenset(
        {
            "alias",
            "alias_copy",
            "detach_copy",
            "copy_layout",
            "reshape",
            "view_copy",
            "reshape_copy",
            "reshape_alias",
            "reshape_alias_copy",
            "view_copy_as",
            "squeeze",
            "squeeze_all",
            "squeeze_copy",
            "squeeze_copy_dim",
            "squeeze_copy_dims",
            "unsqueeze",
            "unsqueeze_copy",
            "resize",
            "resize_as",
            "foreach_clone",
            "view_as_real",
            "view_as_complex",
            "view_as_real_copy",
            "view_as_complex_copy",
            "bitcast",
            "assert_async",
            "assert_number_token",
            "constrain_range_token",
            "empty",
            "device_put",
            "conj_copy",
            "constant",
            "convert",
            "convert_unfused",
        }
    ),
    "nan": frozenset({"empty"}),
    "uninitialized": frozenset({"empty"}),
}
"""Members whose right results are those of a control: a constant, uninitialized memory, or the elements of the argument
in order. The elements may have another dtype, because results are converted anyway. No values can show the difference.
"""
