"""Conversion between dtypes, placement on devices, quantization."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL, FLOAT8, FLOATS
from keel.spec.numerics import Numerics
from keel.spec.op import Budget, Family, Sample
from keel.spec.rules import Args, DtypeRule, LayoutRule, Out, Shape, ShapeRule, is_dense, preserved
from keel.spec.rules import like as dtype_of
from keel.spec.samples import drawn, layouts, specials, unary
from keel.spec.unspecified import converted
from keel.types import Dim, TensorType, contiguous_strides

aten = torch.ops.aten
family = Family("conversion and placement")
quantized = Family("quantization", "quantized")

Tensor = torch.Tensor


# -- conversion ---------------------------------------------------------------------------------------


def _operand(args: Args) -> TensorType:
    """ATen names the operand self, prims name it a."""
    return next(args[n] for n in ("self", "a") if n in args)


def _converted_strides(args: Args, shape: Shape) -> Sequence[Dim]:
    match args.get("memory_format"):
        case torch.contiguous_format:
            return contiguous_strides(shape)
        case torch.channels_last | torch.channels_last_3d:
            packed = contiguous_strides((shape[0], *shape[2:], shape[1]))
            return (packed[0], packed[-1], *packed[1:-1])
    operand = _operand(args)
    return operand.strides if is_dense(operand) else preserved("self").of({"self": operand}, shape)


def _conversions(dtype: torch.dtype) -> Iterator[Sample]:
    """To every dtype, in range; special values between floats."""
    for to in (*ALL, *FLOAT8):
        if dtype in FLOAT8 and to in FLOAT8:
            continue
        yield Sample((_small(dtype),), {"dtype": to})
        if dtype in FLOATS and to in FLOATS:
            yield Sample((specials(dtype),), {"dtype": to})
    for x in layouts(torch.float32):
        yield Sample((x.to(dtype),), {"dtype": torch.float32 if dtype != torch.float32 else torch.float64})
        yield Sample((x.to(dtype),), {"memory_format": torch.contiguous_format})
        if x.dim() == 4:
            yield Sample((x.to(dtype),), {"memory_format": torch.channels_last})


def _small(dtype: torch.dtype) -> Tensor:
    values = torch.tensor([0.0, 1.0, 2.0, 5.5, 100.25, 0.625])
    return values.to(dtype)


family.primitive(
    "convert",
    "_to_copy",
    "prims::convert_element_type",
    doc="The elements in another dtype, on another device, or in another layout.",
    clauses=(
        Clause(
            "Floats to floats: the nearest, ties to even; NaN stays NaN, infinities and the signs of zeros stay.",
            About.NONFINITE | About.HALFWAY,
        ),
        Clause(
            "What is beyond the largest finite number of float16, bfloat16, float32 and float8_e5m2 by half an ulp "
            "or more becomes the infinity of its sign.",
            About.NONFINITE,
        ),
        Clause("float8_e4m3fn has no infinities: what is beyond 448 becomes 448 of its sign, or NaN.", About.NONFINITE),
        Clause(
            "float8_e4m3fnuz and float8_e5m2fnuz have neither infinities nor -0: what is beyond the largest "
            "becomes NaN, and a zero +0.",
            About.NONFINITE | About.ZERO,
        ),
        Clause(
            "Floats to integers: towards zero; what the integer dtype cannot hold, NaN and infinities are not "
            "specified.",
            About.NONFINITE | About.INTEGER,
        ),
        Clause("Integers to smaller integers keep the low bits.", About.INTEGER),
        Clause("Integers to floats: the nearest, ties to even.", About.INTEGER),
        Clause(
            "To bool: 0 of either sign is false, all else true, NaN too. Bool becomes 0 or 1.",
            About.NONFINITE | About.ZERO | About.BOOL,
        ),
        Clause(
            "Complex to real keeps the real part; real to complex has an imaginary part of +0.",
            About.ZERO | About.COMPLEX,
        ),
        "Float8 is converted to other dtypes by way of float32.",
        "The result has memory of its own; dense operands keep their strides unless memory_format says otherwise.",
    ),
    out=(
        Out(
            DtypeRule("dtype or dtype(self)", lambda args: args.get("dtype") or _operand(args).dtype),
            ShapeRule("shape(self)", lambda args: _operand(args).shape),
            LayoutRule("preserve(self) or memory_format", _converted_strides),
        ),
    ),
    dtypes=(*ALL, *FLOAT8),
    samples=_conversions,
    budget={d: Budget(ulps=0) for d in (*ALL, *FLOAT8)},
    tags=frozenset({"pointwise"}),
    numerics=Numerics(converts=True),
    unspecified=converted,
)


def _put_strides(args: Args, shape: Shape) -> Sequence[Dim]:
    x = args["a"]
    return x.strides if torch.device(args["device"]) == x.device else preserved("a").of(args, shape)


family.primitive(
    "device_put",
    "prims::device_put",
    doc="The elements on another device.",
    no_loops="It copies between devices.",
    clauses=(
        "Every element keeps its bits.",
        Clause(
            "With non_blocking the host may go on before the copy is done; what follows on the device may not.",
            parameters=("non_blocking",),
        ),
    ),
    out=(
        Out(
            dtype_of("a"),
            ShapeRule("shape(a)", lambda args: args["a"].shape),
            LayoutRule("strides(a); preserve(a) on another device", _put_strides),
        ),
    ),
    dtypes=ALL,
    samples=lambda dtype: (Sample((*s.args, torch.device("cpu"))) for s in unary(dtype)),
    budget={d: Budget(ulps=0) for d in ALL},
    tags=frozenset({"pointwise"}),
)


# -- quantization -------------------------------------------------------------------------------------

_ROUND = (
    Clause(
        "Elements are round(x * (1 / scale)) + zero_point, ties to even, brought into [quant_min, quant_max].",
        About.HALFWAY,
    ),
    "1 / scale is rounded to float32 before it multiplies.",
    Clause("NaN is not specified.", About.NONFINITE | About.UNSPECIFIED),
)
_WIDEN = ("Elements are (x - zero_point) * scale, the difference taken in the dtype of the result.",)
_TAGS = frozenset({"pointwise"})


def _rounded(x: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """Quantized values, as floats, within no bounds yet."""
    inverse = aten.reciprocal.default(scale) if isinstance(scale, torch.Tensor) else 1.0 / scale
    return aten.round.default(x * inverse) + zero_point


def _steps(x: Tensor, scale: Any, zero_point: Any, low: Any, high: Any) -> Tensor:
    """Quantized values, as floats."""
    return aten.clamp.default(_rounded(x, scale, zero_point), low, high)


def _along(values: Tensor, x: Tensor, axis: int) -> Tensor:
    """One value per index of ``axis``, to broadcast over ``x``."""
    return aten.view.default(values, [x.shape[d] if d == axis % x.dim() else 1 for d in range(x.dim())])


def _float(x: Tensor) -> Tensor:
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def _quantizations(dtype: torch.dtype) -> Iterator[Sample]:
    for shape in ((), (0,), (40,), (3, 5)):
        x = drawn(dtype, *shape, seed=len(shape), low=-20, high=20)
        yield Sample((x, 0.1, 3, -128, 127, torch.int8))
        yield Sample((x, 0.25, 128, 0, 255, torch.uint8))


def _dequantizations(dtype: torch.dtype) -> Iterator[Sample]:
    info = torch.iinfo(dtype)
    for shape in ((), (0,), (40,), (3, 5)):
        x = drawn(dtype, *shape, seed=len(shape), low=max(info.min, -100), high=100)
        yield Sample((x, 0.1, 3, max(info.min, -128), min(info.max, 255), dtype))


@quantized(
    "quantized_decomposed::quantize_per_tensor",
    "quantized_decomposed::quantize_per_tensor.tensor",
    "quantized_decomposed::quantize_per_tensor.tensor2",
    clauses=_ROUND,
    samples=_quantizations,
    dtypes=(torch.float32,),
    tags=_TAGS,
)
def quantize_per_tensor(
    x: Tensor, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: torch.dtype
) -> Tensor:
    """Numbers as small integers, by one scale and zero point."""
    if not isinstance(quant_min, torch.Tensor):
        return _steps(_float(x), scale, zero_point, quant_min, quant_max).to(dtype)
    steps = _rounded(_float(x), scale, zero_point)
    low, high = (b.to(steps.dtype) for b in (quant_min, quant_max))
    return aten.minimum.default(aten.maximum.default(steps, low), high).to(dtype)


@quantized(
    "quantized_decomposed::dequantize_per_tensor",
    "quantized_decomposed::dequantize_per_tensor.tensor",
    "quantized_decomposed::dequantize_per_tensor.tensor2",
    clauses=_WIDEN,
    samples=_dequantizations,
    dtypes=(torch.int8, torch.uint8, torch.int16, torch.int32),
    tags=_TAGS,
)
def dequantize_per_tensor(
    x: Tensor,
    scale: Any,
    zero_point: Any,
    quant_min: Any,
    quant_max: Any,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Small integers as numbers, by one scale and zero point."""
    return (x.to(out_dtype or torch.float32) - zero_point) * scale


@quantized(
    "quantized_decomposed::quantize_per_channel",
    clauses=(*_ROUND, "Each index of axis has its own scale."),
    dtypes=(torch.float32,),
    tags=_TAGS,
    broadcasts=False,
)
def quantize_per_channel(
    x: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """Numbers as small integers, by a scale and zero point per index of a dimension."""
    value = _float(x)
    return _steps(value, _along(scales, x, axis), _along(zero_points, x, axis), quant_min, quant_max).to(dtype)


@quantized(
    "quantized_decomposed::dequantize_per_channel",
    clauses=(*_WIDEN, "Each index of axis has its own scale.", "Without zero_points they are 0."),
    dtypes=(torch.int8,),
    tags=_TAGS,
    broadcasts=False,
)
def dequantize_per_channel(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Small integers as numbers, by a scale and zero point per index of a dimension."""
    value = x.to(out_dtype or torch.float32)
    if zero_points is not None:
        value = value - _along(zero_points, x, axis)
    return value * _along(scales, x, axis)


# -- quantization as training sees it -----------------------------------------------------------------

_FAKE = (
    "The result is quantized as quantize_per_tensor does, and dequantized.",
    "The mask is true where the rounded number is within [quant_min, quant_max] before it is brought there.",
)


def _fake(x: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> tuple[Tensor, Tensor]:
    steps = _rounded(_float(x), scale, zero_point)
    mask = aten.bitwise_and.Tensor(aten.ge.Scalar(steps, low), aten.le.Scalar(steps, high))
    return ((aten.clamp.default(steps, low, high) - zero_point) * scale).to(x.dtype), mask


def _fakes(dtype: torch.dtype) -> Iterator[Sample]:
    for sample in _quantizations(dtype):
        yield Sample((*sample.args[:3], *((-128, 127) if sample.args[3] else (0, 255))))


@quantized(
    "fake_quantize_per_tensor_affine_cachemask", clauses=_FAKE, samples=_fakes, dtypes=(torch.float32,), tags=_TAGS
)
def fake_quantize_per_tensor(
    x: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Numbers rounded to what small integers of one scale can hold, and where the gradient passes."""
    return _fake(x, scale, zero_point, quant_min, quant_max)


@quantized(
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    clauses=(*_FAKE, "Where fake_quant_enabled is 0 the result is the operand, and the mask true."),
    dtypes=(torch.float32,),
    tags=_TAGS,
)
def fake_quantize_by_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """As fake_quantize_per_tensor, with the scale, zero point and switch in tensors of one element."""
    on = aten.ne.Scalar(aten.view.default(fake_quant_enabled, []), 0)
    out, mask = _fake(x, aten.view.default(scale, []), aten.view.default(zero_point, []), quant_min, quant_max)
    return aten.where.self(on, out, x), aten.bitwise_or.Tensor(mask, aten.bitwise_not.default(on))


@quantized(
    "fake_quantize_per_channel_affine_cachemask",
    clauses=(*_FAKE, "Each index of axis has its own scale."),
    dtypes=(torch.float32,),
    tags=_TAGS,
    broadcasts=False,
)
def fake_quantize_per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """As fake_quantize_per_tensor, with a scale and zero point per index of a dimension."""
    return _fake(x, _along(scale, x, axis), _along(zero_point, x, axis), quant_min, quant_max)
