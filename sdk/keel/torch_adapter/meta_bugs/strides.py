"""Strides that PyTorch's kernels give where its fake kernels, most of them decompositions, promise others.

Source: aten/src/ATen/native; each rule does what the kernel does before it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import compute_elementwise_output_strides

from keel.torch_adapter.meta_bugs.record import ALL, MetaBug, NamedArguments, Size, Strides, ordered, row_major
from keel.torch_adapter.sympy_expressions import expression, hint_of

aten = torch.ops.aten


# -- rules ------------------------------------------------------------------------------------------------------------


def _rows(args: NamedArguments, value: torch.Tensor) -> Sequence[Size]:
    return row_major(value.shape)


def _format_of(name: str) -> Strides:
    """Channels-last where the argument is, else row-major."""

    def strides(args: NamedArguments, value: torch.Tensor) -> Sequence[Size]:
        rank = value.dim()
        last = channels_last(args[name])
        return (
            ordered(value.shape, [0, *range(2, rank), 1])
            if last and args[name].dim() == rank
            else (row_major(value.shape))
        )

    return strides


def channels_last(x: torch.Tensor) -> bool:
    """What ATen's ``suggest_memory_format`` says: is_channels_last_strides_2d and _3d of c10/core/MemoryFormat.h."""
    rank = x.dim()
    if rank not in (4, 5):
        return False
    sizes, strides = ([hint_of(v) or 0 for v in of] for of in (x.shape, x.stride()))
    least = 0
    if strides[1] == 0:
        return False
    for d in (1, *range(rank - 1, 1, -1), 0):
        if sizes[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(sizes[d], 1)
    return True


def _like(name: str) -> Strides:
    """Those of an empty tensor like the argument, which keeps the order of its dimensions."""

    def strides(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
        return torch.empty_like(args[name]).stride() if args[name].dim() == value.dim() else None

    return strides


def _of(*names: str) -> Strides:
    """Those of an operator by elements on these arguments, in this order."""

    def strides(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
        first, second = (args[n] for n in names)
        both = isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
        return aten.eq.Tensor(first, second).stride() if both else None

    return strides


def _no_overlap(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    x = args["self"]
    repeated = any(expression(s) == 0 and expression(n) != 1 for n, s in zip(x.shape, x.stride(), strict=True))
    return torch.empty_like(x).stride() if repeated else None


def _added(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    """The sum passes through one kernel with the outer product, also where it counts for nothing."""
    result: torch.Tensor = aten.addcmul.default(args["self"], args["vec1"].unsqueeze(1), args["vec2"].unsqueeze(0))
    return result.stride()


def _times_powers(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    """Powers of two are made first, row-major: of the number 2. Where the operand has another dtype than that has by
    itself they are those of a tensor, and lie as the exponents do.
    """
    x, exponents = args["self"], args["other"]
    integral = not exponents.is_floating_point() and not exponents.is_complex()
    other = x.is_complex() or (x.is_floating_point() and (x.dtype != torch.float32 or integral))
    powers = torch.empty_like(exponents, memory_format=torch.preserve_format if other else torch.contiguous_format)
    result: torch.Tensor = aten.eq.Tensor(x, powers)
    return result.stride()


def _scaled(*names: str) -> Strides:
    """Where ``alpha`` is given the fake kernel makes a tensor of the operand times it, with an order of its own."""
    strides = _of(*names)
    return lambda args, value: strides(args, value) if "alpha" in args else None


def _drawn_like(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    return None if args.get("memory_format") is not None else torch.empty_like(args["self"]).stride()


def _indexed(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    """Elements are read by a kernel that goes through the operand, with the indexed dimensions replaced by those of the
    indices, and the indices, which all have a say in the order.  Source: AdvancedIndex in TensorAdvancedIndexing.cpp.
    """
    x = args["self"]
    indices = {d: i for d, i in enumerate(args["indices"]) if i is not None}
    sizes = [*x.shape, *x.stride(), *value.shape, *(n for i in indices.values() for n in i.shape)]
    if any(i.dtype in (torch.bool, torch.uint8) for i in indices.values()) or None in map(hint_of, sizes):
        return None  # as many as only the run tells
    if not indices or 0 in map(hint_of, value.shape):
        return None
    dims, first = [*indices], min(indices)
    rest = [s for d, s in enumerate(x.stride()) if d not in indices]
    if dims[-1] - first >= len(dims):  # not side by side: they come first
        first = 0
    read = torch.broadcast_tensors(*indices.values())
    source = torch.empty_strided(value.shape, [*rest[:first], *[0] * read[0].dim(), *rest[first:]], device=value.device)
    alone, after = [1] * first, [1] * (len(rest) - first)
    places = [i.reshape([*alone, *i.shape, *after]) for i in read]
    if value.device.type == "cuda":  # whose kernel wants them all alike
        places = [i if i.stride() == places[0].stride() else i.contiguous() for i in places]
    places = [i.expand(value.shape) for i in places]
    strides: Sequence[Size] = compute_elementwise_output_strides(source, *places)
    return strides


def _chunks(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    """A view's dimension of size one lies next to the second, so that what it is of is not channels-last."""
    return row_major(value.shape) if value.dim() in (4, 5) and hint_of(value.shape[0]) == 1 else None


def _of_no_dims(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    return row_major(value.shape) if args.get("dim") == [] else None


def _angle(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    return row_major(value.shape) if args["self"].is_complex() else None


def _slices(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    """Distinct slices are found along the first dimension, and moved to theirs."""
    dim = args.get("dim")
    if dim is None or not value.dim():
        return None
    dim = dim % value.dim()
    return ordered(value.shape, [dim, *(d for d in range(value.dim()) if d != dim)])


def _rolled(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    """Along each dimension in turn two parts are concatenated, which keeps channels-last where neither is empty; if no
    dimension is said, the flat tensor's parts are.
    """
    x, dims = args["self"], args.get("dims") or []
    sizes = [hint_of(n) or 0 for n in x.shape]
    if 0 in sizes:
        return None
    full_turn = any(shift % sizes[d] == 0 for shift, d in zip(args["shifts"], dims, strict=False))
    return _format_of("self")(args, value) if dims and not full_turn else row_major(x.shape)


def _shuffled(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    """The CPU's kernel keeps channels-last, CUDA's makes rows."""
    if value.device.type == "cuda":
        return _rows(args, value)
    return _format_of("self")(args, value) if value.device.type == "cpu" else None


def _rrelu(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    return (_of("noise", "grad_output") if args["training"] else _of("self", "grad_output"))(args, value)


def _grouped(args: NamedArguments, value: torch.Tensor) -> Sequence[Size]:
    """Groups are rows of their own, as far as they are not copied for it, and made a matrix again."""
    x, size = args["input"], args["group_size"]
    size = x.shape[-1] if size > x.shape[-1] else size
    rows: torch.Tensor = aten.reshape.default(x, [x.numel() // size, size])
    again: torch.Tensor = aten.reshape.default(torch.empty_like(rows), list(x.shape))
    return again.stride()


def _copied(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    return torch.empty_like(args["self"] if "self" in args else args["input"]).stride()


def _moved(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
    return None if args["a"].device == value.device else torch.empty_like(args["a"]).stride()


# -- bugs -------------------------------------------------------------------------------------------------------------


def _bug(
    sentence: str,
    strides: Strides,
    *ops: Callable[..., Any] | str,
    results: tuple[int, ...] | None = (0,),
    device: str | None = None,
) -> MetaBug:
    return MetaBug(ops, ALL, sentence, strides, results, device)


_FORMAT = (
    "Another order of dimensions is promised; eager gives channels-last for a channels-last operand, else row-major."
)
_ROWS = "The operand's order of dimensions is promised; eager's result is row-major."
_FIRST = (
    "Where the operands' orders of dimensions differ, another one's is promised than that of the operand that "
    "eager looks at first."
)
_DRAWN = "The operand's order of dimensions is promised; eager's draws are row-major."
_REPEATED = "The strides of an operand whose elements share memory are promised; eager gives each its own."
_LANCZOS = [getattr(aten, name) for name in ("_upsample_lanczos2d_aa_backward",) if hasattr(aten, name)]
STRIDES: tuple[MetaBug, ...] = (
    _bug(
        _ROWS,
        _rows,
        aten.native_layer_norm_backward.default,
        aten._log_softmax_backward_data.default,
        aten.pow.Scalar,
        aten._upsample_nearest_exact1d.default,
        aten.upsample_nearest1d.default,
    ),
    _bug(
        _ROWS,
        _rows,
        aten.mse_loss_backward.default,
        aten.smooth_l1_loss_backward.default,
        aten.huber_loss_backward.default,
    ),
    _bug(_ROWS, _rows, aten.log_sigmoid_forward.default, results=(0, 1), device="cpu"),
    _bug(_ROWS, _rows, aten._upsample_nearest_exact1d.vec, aten.upsample_nearest1d.vec),
    MetaBug((aten._upsample_nearest_exact3d.vec, aten.upsample_nearest3d.vec), ALL[:1], _FORMAT, _format_of("input")),
    MetaBug(
        (aten._upsample_nearest_exact3d.default, aten.upsample_nearest3d.default), ALL[:1], _FORMAT, _format_of("self")
    ),
    MetaBug(
        (
            aten._upsample_nearest_exact2d.vec,
            aten.upsample_nearest2d.vec,
            aten.upsample_bilinear2d.vec,
            aten.upsample_trilinear3d.vec,
        ),
        ALL[:1],
        _FORMAT,
        _format_of("input"),
        device="cuda",
    ),
    MetaBug(
        (
            aten._upsample_nearest_exact2d.default,
            aten.upsample_nearest2d.default,
            aten.upsample_bilinear2d.default,
            aten.upsample_trilinear3d.default,
        ),
        ALL[:1],
        _FORMAT,
        _format_of("self"),
        device="cuda",
    ),
    MetaBug((aten._fused_rms_norm.default, aten.pixel_unshuffle.default), ALL[:1], _ROWS, _rows, device="cuda"),
    _bug(_ROWS, _rows, aten._foreach_pow.ScalarAndTensor, results=None, device="cpu"),
    _bug(
        "The target's order of dimensions is promised; eager's losses are row-major.",
        _rows,
        aten.nll_loss2d_forward.default,
    ),
    _bug(
        "The operand's order of dimensions is promised; eager's result for complex numbers is row-major.",
        _angle,
        aten.angle.default,
    ),
    _bug(
        "Where no dimension is listed the operand's order is promised; eager's result is row-major.",
        _of_no_dims,
        aten.any.dims,
        aten.all.dims,
    ),
    _bug(
        _FORMAT,
        _format_of("input"),
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit_no_training.default,
        aten._batch_norm_with_update_functional.default,
        aten._batch_norm_no_update.default,
        aten.native_batch_norm_backward.default,
        aten.batch_norm_backward.default,
        device="cpu",
    ),
    _bug(
        _FORMAT,
        _format_of("self"),
        aten.reflection_pad2d_backward.default,
        aten.replication_pad2d_backward.default,
        aten.reflection_pad3d.default,
        aten.replication_pad3d.default,
        aten.reflection_pad3d_backward.default,
        aten.replication_pad3d_backward.default,
        aten.native_channel_shuffle.default,
        device="cpu",
    ),
    MetaBug((aten.max_unpool2d.default,), ALL[:2], _FORMAT, _format_of("self"), device="cpu"),
    _bug(_FORMAT, _shuffled, aten.channel_shuffle.default),
    MetaBug(
        (aten.reflection_pad2d.default, aten.replication_pad2d.default),
        ALL[:1],
        _FORMAT,
        _format_of("self"),
        device="cpu",
    ),
    _bug(
        "The gradient's order of dimensions is promised; eager gives the operand's.",
        _like("self"),
        aten.binary_cross_entropy_backward.default,
        aten.binary_cross_entropy.default,
    ),
    _bug(
        _FIRST,
        _of("self", "other"),
        aten.xlogy.Tensor,
        aten.special_xlog1py.default,
        aten.floor_divide.default,
        aten.logaddexp.default,
        aten.logaddexp2.default,
        aten.logical_and.default,
        aten.logical_or.default,
        aten.logical_xor.default,
    ),
    _bug(
        _FIRST,
        _of("grad_output", "self"),
        aten.softplus_backward.default,
        aten.hardtanh_backward.default,
        aten.hardsigmoid_backward.default,
        aten.hardswish_backward.default,
        aten.logit_backward.default,
    ),
    _bug(_FIRST, _scaled("self", "other"), aten.add.Tensor, aten.sub.Tensor),
    _bug(_FIRST, _scaled("other", "self"), aten.rsub.Tensor),
    _bug(_FIRST, _of("self", "other"), aten.lcm.default),
    _bug(
        "Strides of the operand alone are promised; eager looks at the indices, too.",
        _indexed,
        aten.index.Tensor,
        aten._unsafe_index.Tensor,
    ),
    MetaBug(
        (aten.randint_like.Tensor,), ALL[:1], "Row-major is promised; eager keeps the operand's order.", _drawn_like
    ),
    _bug(_FIRST, _of("self", "values"), aten.heaviside.default),
    _bug(_FIRST, _of("grad_output", "self_or_result"), aten.elu_backward.default),
    _bug(_FIRST, _of("self", "grad_output"), aten.leaky_relu_backward.default),
    _bug(_FIRST, _of("grad_output", "mask"), aten.native_dropout_backward.default),
    _bug(_FIRST, _times_powers, aten.ldexp.Tensor),
    _bug(
        "Where the matrix counts for nothing row-major is promised; eager keeps its order of dimensions.",
        _added,
        aten.addr.default,
    ),
    _bug(_FIRST, _rrelu, aten.rrelu_with_noise_backward.default),
    MetaBug((aten.as_strided_scatter.default,), ALL[:3], _REPEATED, _no_overlap),
    MetaBug((aten.select_scatter.default, aten.diagonal_scatter.default), ALL[:1], _REPEATED, _no_overlap),
    _bug(
        "For a batch of one, the fake kernel promises channels-last, but eager's chunks are row-major.",
        _chunks,
        aten._chunk_cat.default,
    ),
    MetaBug(
        (aten.zero.default,),
        ALL[:1],
        "Row-major is promised; eager's zeros keep the operand's order of dimensions.",
        _like("self"),
    ),
    _bug(
        "The strides of the token are promised; eager gives a dense copy of it.",
        _like("dep_token"),
        aten._functional_assert_async.msg,
        aten._functional_sym_constrain_range.default,
        aten._functional_sym_constrain_range_for_size.default,
    ),
    _bug(
        "Row-major is promised; eager's slices lie one after the other, whatever dimension they are along.",
        _slices,
        aten.unique_dim.default,
        aten.unique_consecutive.default,
        aten.unique_dim_consecutive.default,
    ),
    _bug("Row-major is promised; eager keeps channels-last.", _rolled, aten.roll.default, device="cpu"),
    _bug(
        "The order of dimensions of the direction is promised; eager's weight is row-major.",
        _rows,
        aten._weight_norm_interface.default,
    ),
    *(MetaBug((op.default,), ALL[1:], _ROWS, _rows) for op in _LANCZOS),
    _bug(
        "The operand's order of dimensions is promised; eager's is that of its groups in rows.",
        _grouped,
        "quantized_decomposed.quantize_per_channel_group.default",
    ),
    MetaBug((aten.slice_scatter.default,), ALL[:1], _REPEATED, _no_overlap),
    MetaBug((aten._standard_gamma.default,), ALL[1:], _DRAWN, _rows),
    _bug(_DRAWN, _rows, aten.poisson.default, aten.normal.float_Tensor, aten.normal.Tensor_Tensor),
    _bug(
        "The strides of an operand with gaps, or whose elements share memory, are promised; eager leaves gaps out, and "
        "gives each element its own.",
        _copied,
        aten.uniform.default,
        aten.native_dropout.default,
    ),
    _bug(
        "Where the operands' orders of dimensions differ, the second's is promised and eager gives the first's (of "
        "quotients, of floats rounded down).",
        _of("self", "other"),
        aten.copysign.Tensor,
        aten.div.Tensor_mode,
    ),
    _bug(
        "The operand's gaps are promised on the other device; eager leaves them out.",
        _moved,
        torch.ops.prims.device_put.default,
    ),
)
