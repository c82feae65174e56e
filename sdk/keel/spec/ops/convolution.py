"""Convolution of any number of dimensions, and the overloads that are a convolution by another name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.device_facts import OWN_CONVOLUTIONS
from keel.spec.dtype_groups import COMPLEX, FLOATS
from keel.spec.numerics import Numerics, Results
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.pytorch_kernels import BiasPass, Images, Library, Packed
from keel.spec.rules import Args, LayoutRule, Out, Shape, ShapeRule, like, number, sizes
from keel.spec.rules_windows import (
    channels_last_strides,
    fitting,
    is_channels_last,
    spread,
    transposed_size,
)
from keel.spec.samples import INF, NAN, drawn
from keel.types import TensorType, as_dim, contiguous_strides

aten = torch.ops.aten
family = Family("convolution")
_SUMS = Numerics(results=Results.SUMS)

Tensor = torch.Tensor
Sizes = Sequence[Any]


def _libraries(
    overload: str, images: Images, bias: BiasPass, packed: Packed | None = None, strided_channels: int = 0
) -> tuple[Library, ...]:
    """oneDNN on CPUs, cuDNN on GPUs, which has no bias, and what others have."""
    onednn = Library((overload,), "cpu", channels_last=images, packed=packed, strided_channels=strided_channels)
    return onednn, Library((overload,), "cuda", channels_last=images, bias=bias), Library((overload,))


def _worth_packing(args: Args) -> bool:
    """True for images of more than one pixel: PyTorch has a faster kernel for one pixel."""
    x, weight = args["input"], args["weight"]
    if args["transposed"] or x.rank != 4 or not all(isinstance(n, int) and n for n in weight.shape):
        return False
    batch, _, height, width = _sizes(args)
    return as_dim(batch * height * width) not in (0, 1)


# oneDNN's relu, clamp and hardsigmoid give a number for NaN, and its gelu gives NaN for infinity.
_PACKED = Packed(
    kind="convolution",
    weight=1,
    bias=2,
    worth=_worth_packing,
    then={
        "aten.hardswish.default": "hardswish",
        "aten.silu.default": "swish",
        "aten.sigmoid.default": "sigmoid",
        "aten.tanh.default": "tanh",
    },
)


def _sizes(args: Args) -> Shape:
    x, weight, n = args["input"], args["weight"], args["input"].rank - 2
    stride, padding, dilation = (spread(args[k], n) for k in ("stride", "padding", "dilation"))
    rows = zip(x.shape[2:], weight.shape[2:], padding, stride, dilation, strict=True)
    if not args["transposed"]:
        return (x.shape[0], weight.shape[0], *(fitting(*each) for each in rows))
    more = spread(args["output_padding"], n)
    channels = as_dim(weight.shape[1] * number(args["groups"]))
    return (x.shape[0], channels, *(transposed_size(*each, m) for each, m in zip(rows, more, strict=True)))


def _strides(args: Args, shape: Shape) -> Shape:
    x, weight = args["input"], args["weight"]
    if x.device.type not in OWN_CONVOLUTIONS:
        return contiguous_strides(shape)
    wide = x.dtype == torch.float64 and (len(shape) == 5 or x.device.type != "cpu")
    if len(shape) > 3 and not wide and (is_channels_last(x) or is_channels_last(weight)):
        return channels_last_strides(shape)
    return contiguous_strides(shape)


WINDOWS = ShapeRule(
    "[N, weight.size(0), *floor((size + 2 padding - dilation (kernel - 1) - 1) / stride) + 1]; transposed: [N, "
    "weight.size(1) groups, *(size - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1]",
    _sizes,
)
IMAGE = LayoutRule(
    "channels last if input or weight is and has 4 or 5 dimensions, else row-major; of float64 always "
    "row-major in 5 dimensions, and in 4 but on CPU; on a vendor's device always row-major",
    _strides,
)


def _configurations() -> Iterator[tuple[int, dict[str, Any]]]:
    """(number of dimensions, arguments that are not the default)"""
    for n in (1, 2, 3):
        yield n, {}
        yield n, {"stride": [2] * n, "padding": [1] * n}
        yield n, {"transposed": True, "stride": [2] * n, "output_padding": [1] * n}
    yield 2, {"dilation": [2, 1], "padding": [2, 0], "stride": [1, 3]}
    yield 2, {"groups": 2}
    yield 2, {"groups": 4}
    yield 2, {"transposed": True, "groups": 2, "dilation": [2, 2], "padding": [1, 0]}


def _values(dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor, Tensor | None, dict[str, Any]]]:
    for i, (n, options) in enumerate(_configurations()):
        groups = options.get("groups", 1)
        x = drawn(dtype, 2, 4, *(9, 8, 7)[:n], seed=i)
        shape = (4, 6 // groups) if options.get("transposed") else (8, 4 // groups)
        weight = drawn(dtype, *shape, *(3, 2, 3)[:n], seed=i + 50)
        outs = shape[1] * groups if options.get("transposed") else shape[0]
        yield x, weight, drawn(dtype, outs, seed=i + 90) if i % 2 else None, options
        if n == 2 and dtype != torch.complex64 and dtype != torch.complex128:
            yield x.to(memory_format=torch.channels_last), weight, None, options
            yield x, weight.to(memory_format=torch.channels_last), None, options
        if n == 3 and dtype == torch.float32:
            yield x.to(memory_format=torch.channels_last_3d), weight, None, options
    yield drawn(dtype, 0, 4, 5, 5), drawn(dtype, 8, 4, 3, 3), drawn(dtype, 8), {}
    yield drawn(dtype, 2, 4, 5, 6)[:, :, :, ::2], drawn(dtype, 8, 4, 1, 1), None, {}


def _arguments(x: Tensor, options: dict[str, Any]) -> list[Any]:
    """stride, padding, dilation, transposed, output_padding, groups"""
    n = x.dim() - 2
    return [
        options.get("stride", [1] * n),
        options.get("padding", [0] * n),
        options.get("dilation", [1] * n),
        options.get("transposed", False),
        options.get("output_padding", [0] * n),
        options.get("groups", 1),
    ]


def _forward(dtype: torch.dtype) -> Iterator[Sample]:
    for x, weight, bias, options in _values(dtype):
        yield Sample((x, weight, bias, *_arguments(x, options)))
    if dtype.is_floating_point:
        x = drawn(dtype, 1, 1, 4, 4)
        x[0, 0, 1, 1], x[0, 0, 3, 3] = INF, NAN
        yield Sample((x, torch.ones(1, 1, 2, 2, dtype=dtype), None, *_arguments(x, {"padding": [1, 1]})))


def _backward(dtype: torch.dtype) -> Iterator[Sample]:
    for i, (x, weight, bias, options) in enumerate(_values(dtype)):
        rest = _arguments(x, options)
        shape = _sizes(
            {
                "input": TensorType.dense(dtype, x.shape),
                "weight": TensorType.dense(dtype, weight.shape),
                **dict(
                    zip(("stride", "padding", "dilation", "transposed", "output_padding", "groups"), rest, strict=True)
                ),
            }
        )
        mask = [[True, True, bias is not None], [True, False, False], [False, True, False]][i % 3]
        outs = None if bias is None else [bias.shape[0]]
        yield Sample((drawn(dtype, *map(int, shape), seed=i), x, weight, outs, *rest, mask))


_ADDS = (
    "The order of the sum, and whether products are rounded before it, are the implementation's; 16-bit floats "
    "are summed in float32 or better, and rounded once"
)
_BUDGET = {d: Budget(times=2.0) for d in (*FLOATS, *COMPLEX)}
_REQUIRES = (
    Requires(
        "rank",
        "input has 3, 4 or 5 dimensions, and weight as many.",
        lambda args: args["input"].rank in (3, 4, 5) and args["weight"].rank == args["input"].rank,
    ),
    Requires(
        "same-dtype", "input and weight have the same dtype.", lambda args: args["input"].dtype == args["weight"].dtype
    ),
    Requires(
        "channels",
        "The channels of input are groups times weight.size(1); transposed, weight.size(0).",
        lambda args: (
            as_dim(args["input"].shape[1])
            == (
                args["weight"].shape[0]
                if args["transposed"]
                else as_dim(args["weight"].shape[1] * number(args["groups"]))
            )
        ),
    ),
)

family.primitive(
    "convolution",
    "convolution",
    "convolution_overrideable",
    doc="Cross-correlation with a kernel over the last one to three dimensions, or the transposed map; channels in "
    "dimension 1, in groups.",
    clauses=(
        "An element is bias plus the sum, over the input channels of its group and the kernel, of weight times the "
        "input at out * stride - padding + k * dilation; outside the input is 0.",
        "Transposed, every input element adds weight times itself at in * stride - padding + k * dilation; "
        "output_padding makes the result larger on the right, without moving it.",
        "The kernel is not flipped.",
        Clause(
            "An infinity or NaN under a window makes its result one of these, even multiplied by 0; padding takes no "
            "part, or takes part as 0: 0 times an infinite weight may give NaN or nothing.",
            About.NONFINITE,
        ),
        Clause(f"{_ADDS}, or once more before bias is added.", About.HALF | About.FLOAT32),
    ),
    out=(Out(like("input"), WINDOWS, IMAGE),),
    dtypes=(*FLOATS, *COMPLEX),
    samples=_forward,
    budget=_BUDGET,
    requires=_REQUIRES,
    tags=frozenset({"convolution"}),
    numerics=_SUMS,
    libraries=_libraries("convolution", Images((0,), (0,), (1,)), BiasPass(added=2), _PACKED),
)


def _gradients(args: Args) -> tuple[TensorType | None, ...]:
    """Types of input and weight, both channels last if one of them is (as in convolution), and a vector of bias_sizes;
    None where output_mask is False.
    """
    x, weight, mask = args["input"], args["weight"], args["output_mask"]
    dx, dweight = (TensorType(t.dtype, t.shape, _strides(args, t.shape), t.device) for t in (x, weight))
    grad = args["grad_output"]
    dbias = TensorType.dense(grad.dtype, sizes(args["bias_sizes"] or (grad.shape[1],)), grad.device)
    return dx if mask[0] else None, dweight if mask[1] else None, dbias if mask[2] else None


family.primitive(
    "convolution_backward",
    "convolution_backward",
    "convolution_backward_overrideable",
    doc="The gradients of convolution with respect to input, weight and bias.",
    clauses=(
        "They are those of convolution of the same arguments; the bias's is the sum of grad_output over all but "
        "the channels.",
        "A result whose output_mask is False is None.",
        Clause(f"{_ADDS}.", About.HALF | About.FLOAT32),
    ),
    out=_gradients,
    dtypes=FLOATS,
    samples=_backward,
    budget={d: _BUDGET[d] for d in FLOATS},
    requires=_REQUIRES,
    tags=frozenset({"convolution"}),
    numerics=_SUMS,
    libraries=_libraries(
        "convolution_backward",
        Images((0, 1), (0,), (2,)),
        BiasPass(summed=2, mask=10),
        strided_channels=16,  # which oneDNN takes at a time with AVX-512, and that is the most
    ),
)


# -- other names ------------------------------------------------------------------------------------------------------


@family(
    "conv_tbc",
    clauses=(
        "As convolution of one dimension, with time first, then batch, then channels; so has the "
        "weight: kernel, input channels, output channels.",
    ),
    tags=frozenset({"convolution"}),
)
def conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution over the first dimension."""
    out = aten.convolution.default(
        aten.permute.default(x, [1, 2, 0]),
        aten.permute.default(weight, [2, 1, 0]),
        bias,
        [1],
        [pad],
        [1],
        False,
        [0],
        1,
    )
    return aten.permute.default(out, [2, 0, 1])


def _same(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool = False,
    output_padding: Sizes = (0,),
    groups: Any = 1,
) -> Tensor:
    """Convolution of one sample, or of a batch."""
    lone = x.dim() == weight.dim() - 1
    out = aten.convolution.default(
        aten.unsqueeze.default(x, 0) if lone else x,
        weight,
        bias,
        stride,
        padding,
        dilation,
        transposed,
        list(output_padding) * (weight.dim() - 2 if len(output_padding) == 1 else 1),
        groups,
    )
    return aten.squeeze.dim(out, 0) if lone else out


def _without_dilation(
    x: Tensor, weight: Tensor, kernel_size: Sizes, bias: Tensor | None, stride: Sizes, padding: Sizes
) -> Tensor:
    if weight.dim() == 2:  # kernels as rows
        weight = aten.view.default(weight, [weight.shape[0], -1, *kernel_size])
    return _same(x, weight, bias, stride, padding, [1] * len(stride))


def _transposed(
    x: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    bias: Tensor | None = None,
    stride: Sizes = (),
    padding: Sizes = (),
    output_padding: Sizes = (),
    dilation: Sizes = (),
) -> Tensor:
    n = weight.dim() - 2
    return _same(
        x, weight, bias, stride or [1] * n, padding or [0] * n, dilation or [1] * n, True, output_padding or [0] * n
    )


def _depthwise(
    x: Tensor, weight: Tensor, kernel_size: Sizes, bias: Tensor | None, stride: Sizes, padding: Sizes, dilation: Sizes
) -> Tensor:
    return _same(x, weight, bias, stride, padding, dilation, groups=x.shape[-weight.dim() + 1])


@family(
    "slow_conv_dilated2d",
    "slow_conv_dilated3d",
    "_slow_conv2d_forward",
    "slow_conv3d_forward",
    "slow_conv_transpose2d",
    "slow_conv_transpose3d",
    "_conv_depthwise2d",
    "conv_depthwise3d",
    clauses=("As convolution with the same arguments; depthwise, with as many groups as channels.",),
    forms={
        "aten._slow_conv2d_forward.default": _without_dilation,
        "aten.slow_conv3d_forward.default": _without_dilation,
        "aten.slow_conv_transpose2d.default": _transposed,
        "aten.slow_conv_transpose3d.default": _transposed,
        "aten._conv_depthwise2d.default": _depthwise,
        "aten.conv_depthwise3d.default": _depthwise,
    },
    tags=frozenset({"convolution"}),
)
def direct_convolution(
    x: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    bias: Tensor | None = None,
    stride: Sizes = (),
    padding: Sizes = (),
    dilation: Sizes = (),
) -> Tensor:
    """PyTorch's own convolution kernels, called by name."""
    n = weight.dim() - 2
    return _same(x, weight, bias, stride or [1] * n, padding or [0] * n, dilation or [1] * n)
