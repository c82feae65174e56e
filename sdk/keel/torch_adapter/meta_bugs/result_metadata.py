"""Results that PyTorch's meta kernels promise on wrong devices, in wrong numbers, or without reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from keel.torch_adapter.meta_bugs.record import ALL, MetaBug, NamedArguments, with_dtype
from keel.torch_adapter.sympy_expressions import expression

aten = torch.ops.aten


def _is_on_cpu(args: Sequence[Any]) -> bool:
    return bool(args[0].device.type == "cpu")


def _state_on_host(value: Any, args: Sequence[Any]) -> Any:
    state = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="cpu") for v in value[2:4]]
    return *value[:2], *state, *value[4:]


def _distinct(position: int | None, value: Any, args: Sequence[Any]) -> Any:
    """The distinct elements, or slices along the dimension that the argument at ``position`` says, the place of each
    among them, and how often each occurs.
    """
    values, places, counts = value
    x: torch.Tensor = args[0]
    if position is not None and len(args) > position and args[position] == -1 and x.dim():
        size = values.shape[x.dim() - 1]
        values = x.new_empty([*x.shape[:-1], size])
        counts = counts.new_empty([0 if expression(counts.shape[0]) == 0 else size])
    return values, with_dtype(places, torch.int64), with_dtype(counts, torch.int64)


def _of_zeros(value: Any, args: Sequence[Any]) -> Any:
    """The distinct elements, as many as only the run tells, and the place of each element among them."""
    values, places = value
    x: Any = args[0]
    if isinstance(values.shape[0], int) and x.dim():
        env: Any = x.fake_mode.shape_env
        with env.ignore_fresh_unbacked_symbols():
            values = x.new_empty([env.create_unbacked_symint()])
    return values, places


def _counted(value: Any, args: Sequence[Any]) -> Any:
    """How often each integer occurs, or the sum of its weights."""
    if len(args) < 2 or args[1] is None:
        return value
    return with_dtype(value, torch.float32 if args[1].dtype == torch.float32 else torch.float64)


def _bags(value: Any, args: Sequence[Any], op: Callable[..., Any] = aten._embedding_bag.default) -> Any:
    """Which bag each index is in is not kept where rows are summed by the fast kernel, which takes bfloat16 as
    float16.
    """
    rows = args[0]
    if rows.dtype != torch.bfloat16 or not _is_on_cpu(args):
        return value
    return value[0], op(with_dtype(rows, torch.float16), *args[1:])[1], *value[2:]


def _kept_elements(value: Any, args: Sequence[Any]) -> Any:
    """The mask of a dropout of no elements has their dtype on the host."""
    empty = _is_on_cpu(args) and any(expression(n) == 0 for n in args[0].shape)
    return (value[0], with_dtype(value[1], args[0].dtype)) if empty else value


def _forward_bags(value: Any, args: Sequence[Any]) -> Any:
    """As above; with include_last_offset the counts and rows of the sum are as many as the offsets on a CPU, those of
    others as the bags.
    """
    if not _is_on_cpu(args):
        return value
    out, bag, counts, rows = _bags(value, args, aten._embedding_bag_forward_only.default)
    offsets, mode = args[2], args[4] if len(args) > 4 else 0
    if len(args) > 7 and args[7]:
        counts = offsets.new_empty([offsets.shape[0] if mode == 0 else out.shape[0]])
        rows = rows if mode == 2 else offsets.new_empty(counts.shape)
    return out, bag, counts, rows


def _input_of(args: NamedArguments) -> tuple[int, ...]:
    return () if args["output_mask"][0] else (0,)


def _weights_of(args: NamedArguments) -> tuple[int, ...]:
    return () if args.get("need_weights", True) else (1,)


def _bug(sentence: str, fix: Callable[..., Any], *ops: Callable[..., Any]) -> MetaBug:
    return MetaBug(ops, ALL, sentence, fix, None, kind="results")


_DISTINCT = "Places and counts are promised in the elements' dtype; eager's are int64."
_DIMENSIONS = f"{_DISTINCT} Along dimension -1 results are promised to have more dimensions than the operand."
RESULTS: tuple[MetaBug, ...] = (
    _bug(
        "The state of random numbers is promised on the device; eager keeps it on the host.",
        _state_on_host,
        aten._scaled_dot_product_efficient_attention.default,
        aten._efficient_attention_forward.default,
    ),
    _bug("The number of distinct elements is promised to be that of zeros.", _of_zeros, aten._unique.default),
    _bug(_DISTINCT, partial(_distinct, None), aten._unique2.default),
    _bug(_DIMENSIONS, partial(_distinct, 3), aten.unique_consecutive.default),
    _bug(_DIMENSIONS, partial(_distinct, 1), aten.unique_dim.default, aten.unique_dim_consecutive.default),
    _bug("Sums of weights are promised as integers; eager's are floats.", _counted, aten.bincount.default),
    _bug(
        "A mask of no elements is promised to be boolean; eager's has their dtype.",
        _kept_elements,
        aten.native_dropout.default,
    ),
    _bug(
        "On a CPU the bag of each index is promised also where the fast kernel for bfloat16 leaves it out.",
        _bags,
        aten._embedding_bag.default,
    ),
    _bug(
        "On a CPU other sizes are promised for the bags and their counts than eager gives.",
        _forward_bags,
        aten._embedding_bag_forward_only.default,
    ),
    MetaBug(
        (aten.native_batch_norm_backward.default, aten.batch_norm_backward.default),
        ALL,
        "A gradient of the input is promised though it is not asked for; eager leaves it out.",
        _input_of,
        kind="absent",
    ),
    MetaBug(
        (aten._native_multi_head_attention.default,),
        ALL,
        "Weights are promised though they are not asked for; eager leaves them out.",
        _weights_of,
        kind="absent",
    ),
)
