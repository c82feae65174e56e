"""Operators that compute element by element, as nodes of ONNX."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from keel import Call
from keel_onnxruntime.onnx_values import (
    ANY,
    BITS,
    BOOL,
    DOUBLE,
    FLOATS,
    HALVES,
    INDEX,
    INTS,
    NUMBERS,
    REAL,
    SHORT,
    SINGLE,
    Value,
)
from keel_onnxruntime.rows import MADE, Row, row, select

if TYPE_CHECKING:  # a machine without onnx can import this module
    from keel_onnxruntime.onnx_graph import OnnxGraph

ORDER = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
SIGNED = INTS - {torch.uint8}
MIXED: dict[str, Any] = {"one_dtype": False}


def rows() -> Iterator[Row]:
    yield from _unary()
    yield from _transcendental()
    yield from _binary()
    yield from _of_bits()
    yield from _choices()


def _unary() -> Iterator[Row]:
    yield row("abs", NUMBERS, "Abs", REAL | INTS)
    yield row("neg", NUMBERS, "Neg", REAL | SIGNED)
    yield row("sign", INTS, "Sign")
    yield row("sign", FLOATS, _sign, REAL)
    for name in ("floor", "ceil", "round"):
        yield row(name, FLOATS, name.capitalize(), REAL)
        yield row(name, INTS, "Identity")
    yield row("trunc", FLOATS, lambda g, out, x: _truncated(g, x), REAL)
    yield row("trunc", INTS, "Identity")
    yield row("isnan", FLOATS, "IsNaN", REAL)
    yield row("isinf", FLOATS, "IsInf", REAL)
    yield row("isnan isinf", INTS, lambda g, out, x: g.node("Not", g.node("Equal", x, x)))
    yield row("relu", FLOATS, "Relu", REAL)
    yield row("relu", INTS, lambda g, out, x: g.node("Max", x, 0), INTS - {torch.int16})
    yield row("leaky_relu", SHORT, _leaky_relu, SINGLE, optional=("negative_slope",))
    yield row("_to_copy", ANY, lambda g, out, x, **_: g.cast(x, out.dtype), optional=MADE, results=ANY)
    yield row("prims::convert_element_type", ANY, lambda g, out, x, _: g.cast(x, out.dtype), results=ANY)


def _transcendental() -> Iterator[Row]:
    """ONNX Runtime has many kernels for float32 only, and those are as precise as the C library's."""
    for name in ("exp", "log", "sqrt", "reciprocal"):
        yield row(name, FLOATS, name.capitalize(), REAL)
    for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "gelu"):
        yield row(name, SHORT, name.capitalize(), SINGLE)
    yield row("tanh", SHORT, "Tanh", DOUBLE)  # its kernel for float32 is off by up to 28 ulps
    yield row("rsqrt", FLOATS, lambda g, out, x: g.node("Reciprocal", g.node("Sqrt", x)), REAL)
    # ONNX Runtime's own sigmoid is less precise than its exp.
    yield row("sigmoid", FLOATS, lambda g, out, x: _sigmoid(g, x), REAL)
    yield row("exp2", FLOATS, lambda g, out, x: g.node("Pow", g.value(2, torch.float64), x), DOUBLE)
    yield row("log2", FLOATS, lambda g, out, x: g.node("Mul", g.node("Log", x), 1 / math.log(2)), DOUBLE)
    yield row("log10", FLOATS, lambda g, out, x: g.node("Div", g.node("Log", x), math.log(10)), DOUBLE)
    yield row("expm1", SHORT, _expm1, DOUBLE)
    yield row("log1p", FLOATS, _log1p, DOUBLE)
    yield row("pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar", FLOATS, "Pow", REAL)


def _binary() -> Iterator[Row]:
    for name in ("add", "sub", "mul"):
        more: dict[str, Any] = {"optional": () if name == "mul" else ("alpha",)}
        yield row(f"{name}.Tensor {name}.Scalar", NUMBERS, _scaled(name.capitalize()), REAL | INTS, **more)
    yield row("add.Tensor", BOOL, "Or", results=BOOL)
    yield row("mul.Tensor", BOOL, "And", results=BOOL)
    yield row("div.Tensor div.Scalar", FLOATS, "Div", REAL)
    yield row(
        "div.Tensor_mode div.Scalar_mode", NUMBERS, _divided, REAL | INTS, optional=("rounding_mode",), when=_mode
    )
    yield row("fmod.Tensor fmod.Scalar", NUMBERS, _fmod, REAL | INTS)
    yield row("remainder.Tensor remainder.Scalar", NUMBERS, _remainder, REAL | INTS)
    yield row("maximum", NUMBERS, "Max", REAL | INTS - {torch.int16})
    yield row("minimum", NUMBERS, "Min", REAL | INTS - {torch.int16})
    yield row("maximum", BOOL, "Or")
    yield row("minimum", BOOL, "And")
    for name, kind in ORDER.items():
        names = f"{name}.Tensor {name}.Scalar"
        yield row(names, REAL | INTS, kind)
        yield row(names, BOOL, kind, INDEX)  # bools beside any integer
        for half in HALVES:
            yield row(names, frozenset({half}), partial(_compared, kind, half), SINGLE)
    names = "ne.Tensor ne.Scalar"
    yield row(names, REAL | INTS, partial(_unequal, None))
    yield row(names, BOOL, partial(_unequal, None), INDEX)
    for half in HALVES:
        yield row(names, frozenset({half}), partial(_unequal, half), SINGLE)


def _of_bits() -> Iterator[Row]:
    for name in ("and", "or", "xor"):
        names = f"bitwise_{name}.Tensor bitwise_{name}.Scalar"
        yield row(names, INTS, f"Bitwise{name.capitalize()}")
        yield row(names, BOOL, name.capitalize(), results=BOOL)
        yield row(f"logical_{name}", BOOL, name.capitalize())
    yield row("bitwise_not", INTS, "BitwiseNot")
    yield row("bitwise_not logical_not", BOOL, "Not")
    for name in ("left", "right"):
        names = f"bitwise_{name}_shift.Tensor bitwise_{name}_shift.Tensor_Scalar"
        yield row(names, INTS, lambda g, out, x, by, name=name: _shifted(g, x, by, name))
    yield row("copysign.Tensor copysign.Scalar", SINGLE | DOUBLE, _copysign)


def _choices() -> Iterator[Row]:
    yield row("where.self", ANY, lambda g, out, *xs: select(g, *xs), when=_chosen, **MIXED)
    # One rounding: products are exact in the wider dtype. Those of bfloat16 may overflow in float32.
    yield row("addcmul", SINGLE | {torch.bfloat16}, _fma, DOUBLE, optional=("value",))
    yield row("addcmul", frozenset({torch.float16}), _fma, SINGLE, optional=("value",))
    yield row("addcmul", INTS, _fma, optional=("value",))


def _chosen(call: Call) -> str | None:
    condition, *xs = call.args
    types = [x.dtype for x in xs if hasattr(x, "dtype")]
    takes = condition.dtype == torch.bool and len(set(types)) == 1
    return None if takes else f"onnxruntime takes {call.name} of tensors of one dtype, by a bool tensor."


def _mode(call: Call) -> str | None:
    """Keel has the quotients of integers without a mode as those of floats."""
    takes = call.args[0].dtype.is_floating_point or call.kwargs.get("rounding_mode")
    return None if takes else f"onnxruntime takes {call.name} of integers with a rounding mode."


def _sign(g: OnnxGraph, out: Any, x: Any) -> Any:
    """0 of NaN, which ONNX Runtime's own kernel gives NaN of."""
    above, below = (g.cast(g.node(kind, x, 0), g.dtypes[x]) for kind in ("Greater", "Less"))
    return g.node("Sub", above, below)


def _truncated(g: OnnxGraph, x: Any) -> Any:
    return select(g, g.node("Less", x, 0), g.node("Ceil", x), g.node("Floor", x))


def _leaky_relu(g: OnnxGraph, out: Any, x: Any, slope: float = 0.01) -> Any:
    return g.node("LeakyRelu", x, alpha=float(slope))


def _sigmoid(g: OnnxGraph, x: Any) -> Any:
    one = g.value(1, g.dtypes[x])
    return g.node("Div", one, g.node("Add", g.node("Exp", g.node("Neg", x)), one))


def _expm1(g: OnnxGraph, out: Any, x: Any) -> Any:
    """tanh(x / 2) * (exp(x) + 1), which neither cancels nor overflows early."""
    return g.node("Mul", g.node("Tanh", g.node("Mul", x, 0.5)), g.node("Add", g.node("Exp", x), 1))


def _log1p(g: OnnxGraph, out: Any, x: Any) -> Any:
    """log(u) * (x / (u - 1)) with u = 1 + x rounded: the errors of u cancel (Kahan). It is x where u is 1 or inf."""
    u = g.node("Add", x, 1)
    is_x = g.node("Or", g.node("Equal", u, 1), g.node("Equal", u, math.inf))
    return select(g, is_x, x, g.node("Mul", g.node("Log", u), g.node("Div", x, g.node("Sub", u, 1))))


def _operands(g: OnnxGraph, *xs: Any) -> list[Any]:
    """Values, and numbers of the dtype of the first one."""
    dtype = next(g.dtypes[x] for x in xs if isinstance(x, Value))
    return [g.value(x, dtype) for x in xs]


def _in_dtype(dtype: torch.dtype, *xs: Any) -> list[Any]:
    """Values, and numbers rounded to a dtype."""
    is_float = dtype.is_floating_point
    return [torch.tensor(x, dtype=dtype).item() if is_float and not isinstance(x, Value) else x for x in xs]


def _compared(kind: str, dtype: torch.dtype, g: OnnxGraph, out: Any, x: Any, y: Any) -> Any:
    """Numbers are rounded to the dtype that the operands had before they were converted."""
    return g.node(kind, *_operands(g, *_in_dtype(dtype, x, y)))


def _unequal(dtype: torch.dtype | None, g: OnnxGraph, out: Any, x: Any, y: Any) -> Any:
    return g.node("Not", g.node("Equal", *_operands(g, *(_in_dtype(dtype, x, y) if dtype else (x, y)))))


def _scaled(kind: str) -> Any:
    """A node of two operands, the second of which is multiplied by ``alpha``."""

    def emit(g: OnnxGraph, out: Any, x: Any, y: Any, alpha: Any = 1) -> Any:
        x, y = _operands(g, x, y)
        return g.node(kind, x, y if alpha == 1 else g.node("Mul", y, alpha))

    return emit


def _safe(g: OnnxGraph, x: Any, y: Any) -> tuple[Any, Any]:
    """A divisor of integers that ends no process, and where it was -1. Any value is right where it was 0; the least
    integer over -1 traps as well.
    """
    traps = g.node("Equal", y, 0)
    if g.dtypes[x] == torch.uint8:
        return select(g, traps, 1, y), None
    is_minus = g.node("Equal", y, -1)
    return select(g, g.node("Or", traps, is_minus), 1, y), is_minus


def _quotient(g: OnnxGraph, x: Any, y: Any) -> Any:
    """Of integers, rounded towards zero."""
    safe, is_minus = _safe(g, x, y)
    quotient = g.node("Div", x, safe)
    return quotient if is_minus is None else select(g, is_minus, g.node("Neg", x), quotient)


def _divided(g: OnnxGraph, out: Any, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    x, y = _operands(g, *_in_dtype(out.dtype, x, y))
    if g.dtypes[x].is_floating_point:
        quotient = g.node("Div", x, y)
        if rounding_mode == "floor":
            return _rounded_down(g, out, x, y, quotient)
        return _truncated(g, quotient) if rounding_mode else quotient
    quotient = _quotient(g, x, y)
    if rounding_mode == "trunc" or g.dtypes[x] == torch.uint8:
        return quotient
    rest = g.node("Sub", x, g.node("Mul", quotient, y))
    is_lower = g.node("Xor", g.node("Less", rest, 0), g.node("Less", y, 0))
    is_lower = g.node("And", is_lower, g.node("Not", g.node("Equal", rest, 0)))
    return g.node("Sub", quotient, g.cast(is_lower, g.dtypes[x]))


def _rounded_down(g: OnnxGraph, out: Any, x: Any, y: Any, quotient: Any) -> Any:
    """The exact quotient of floats, rounded down, as PyTorch computes it: from the exact remainder."""
    rest = g.node("Mod", x, y, fmod=1)
    exact = g.node("Div", g.node("Sub", x, rest), y)
    lower = g.node("Xor", g.node("Less", y, 0), g.node("Less", rest, 0))
    lower = g.node("And", lower, g.node("Not", g.node("Equal", rest, 0)))
    exact = select(g, lower, g.node("Sub", exact, 1), exact)
    floor = g.node("Floor", exact)
    is_below = g.node("Greater", g.node("Sub", exact, floor), 0.5)
    floor = select(g, is_below, g.node("Add", floor, 1), floor)
    floor = select(g, g.node("Equal", exact, 0), _signed(g, 0.0, quotient), floor)
    return select(g, g.node("Equal", y, 0), quotient, floor)


def _fmod(g: OnnxGraph, out: Any, x: Any, y: Any) -> Any:
    x, y = _operands(g, *_in_dtype(out.dtype, x, y))
    if g.dtypes[x].is_floating_point:
        return g.node("Mod", x, y, fmod=1)
    return g.node("Sub", x, g.node("Mul", _quotient(g, x, y), y))


def _remainder(g: OnnxGraph, out: Any, x: Any, y: Any) -> Any:
    """The result of ``fmod``, and the divisor is added where the signs of both differ."""
    x, y = _operands(g, *_in_dtype(out.dtype, x, y))
    rest = _fmod(g, out, x, y)
    if g.dtypes[x] == torch.uint8:
        return rest
    differ = g.node("Xor", g.node("Less", rest, 0), g.node("Less", y, 0))
    differ = g.node("And", differ, g.node("Not", g.node("Equal", rest, 0)))
    return select(g, differ, g.node("Add", rest, y), rest)


def _shifted(g: OnnxGraph, x: Any, by: Any, name: str) -> Any:
    """Shifts by less than the width of integers; C defines no others. ONNX shifts unsigned integers, and shifts zeros
    in, so negative integers are shifted to the right as their complements.
    """
    x, by = _operands(g, x, by)
    dtype = g.dtypes[x]
    width = torch.iinfo(dtype).bits
    unsigned: torch.dtype = getattr(torch, f"uint{width}")
    outside = g.node("GreaterOrEqual", by, width)
    if dtype != torch.uint8:
        outside = g.node("Or", outside, g.node("Less", by, 0))
    by = g.cast(select(g, outside, 0, by), unsigned, "BitCast")

    def shift(value: Any, direction: str) -> Any:
        bits = g.node("BitShift", g.cast(value, unsigned, "BitCast"), by, direction=direction)
        return g.cast(bits, dtype, "BitCast")

    if name == "left":
        return select(g, outside, 0, shift(x, "LEFT"))
    if dtype == torch.uint8:
        return select(g, outside, 0, shift(x, "RIGHT"))
    is_negative = g.node("Less", x, 0)
    shifted = select(g, outside, 0, shift(select(g, is_negative, g.node("BitwiseNot", x), x), "RIGHT"))
    return select(g, is_negative, g.node("BitwiseNot", shifted), shifted)


def _copysign(g: OnnxGraph, out: Any, x: Any, y: Any) -> Any:
    return _signed(g, *_operands(g, x, y))


def _signed(g: OnnxGraph, x: Any, y: Any) -> Any:
    """The bits of ``x`` with the highest one of ``y``."""
    dtype = g.dtypes[y]
    least = torch.iinfo(BITS[dtype]).min
    x, y = (g.cast(g.value(each, dtype), BITS[dtype], "BitCast") for each in (x, y))
    joined = g.node("BitwiseOr", g.node("BitwiseAnd", x, -1 - least), g.node("BitwiseAnd", y, least))
    return g.cast(joined, dtype, "BitCast")


def _fma(g: OnnxGraph, out: Any, x: Any, y: Any, z: Any, value: Any = 1) -> Any:
    x, y, z = _operands(g, x, y, z)
    y = y if value == 1 else g.node("Mul", y, value)
    return g.node("Add", x, g.node("Mul", y, z))
