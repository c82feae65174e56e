"""Expansions of arithmetic, comparisons, bitwise operations, rounding and integer division."""

from __future__ import annotations

from keel.loops.expansion import Expansion, expansions_of

_FMA = """
a = abs(x)
b = abs(y)
left = where(a > {big}, {down}, where(b > {big}, {up}, 1))
right = where(a > {big}, {up}, where(b > {big}, {down}, 1))
large = (abs(x * y) > {much}) | (abs(z) > {much})
f = x * left * where(large, 0.25, 1)
g = y * right
h = z * where(large, 0.25, 1)
p = f * g
k = f * {split}
f1 = k - (k - f)
f2 = f - f1
m = g * {split}
g1 = m - (m - g)
g2 = g - g1
e = ((f1 * g1 - p) + f1 * g2 + f2 * g1) + f2 * g2
s = p + h
v = s - p
low = ((p - (s - v)) + (h - v)) + e
r = s + low
q = where((r == r) & (low != 0), r, s) * where(large, 4, 1)
where((abs(z) == inf) & (a < inf) & (b < inf), z, q)
"""

_FMA_IN_F64 = """
p = cast(x, f64) * cast(y, f64)
c = cast(z, f64)
s = p + c
v = s - p
e = (p - (s - v)) + (c - v)
r = cast(cast(s, f32), f64)
top = f64(340282366920938463463374607431768211456)
near = where(abs(r) == inf, where(r > 0, top, -top), r)
other = s + (s - near)
tie = (near != other) & (cast(cast(other, f32), f64) == other)
cast(where(tie & (e > 0), maximum(near, other), where(tie & (e < 0), minimum(near, other), s)), f32)
"""

_NEXTAFTER = """
b = bitcast(x, {bits})
moved = where((y > x) == (x > 0), b + 1, b - 1)
least = where(y > 0, {bits}(1), {bits}({negative}))
there = where(x == y, y, bitcast(where(x == 0, least, moved), {dtype}))
where((x != x) | (y != y), nan, there)
"""

_ROUND = """
a = abs(x)
f = floor(a)
d = a - f
h = f * 0.5
up = (d > 0.5) | ((d == 0.5) & (floor(h) != h))
copysign(where(up, f + 1, f), x)
"""

_TRUNC = """
t = cast(cast(x, {bits}), {dtype})
where(abs(x) < {whole}, where(t == 0, x * 0, t), x)
"""

ARITHMETIC: tuple[Expansion, ...] = expansions_of(
    # -- arithmetic, comparison, bits
    ("neg", "float", "x * -1", 0, "exact"),
    ("neg", "int", "0 - x", 0, "exact"),
    ("sub", "number", "x + -y", 0, "exact"),
    ("abs", "float", "where(x < 0, -x, x + 0)", 0, "exact; -0 + 0 is 0"),
    ("abs", "signed", "where(x < 0, -x, x)", 0, "exact"),
    ("abs", "unsigned", "x + 0", 0, "exact"),
    ("sign", "float", "where(x > 0, 1, where(x < 0, -1, 0))", 0, "exact"),
    ("sign", "signed", "where(x > 0, 1, where(x < 0, -1, 0))", 0, "exact"),
    ("sign", "unsigned", "where(x > 0, 1, 0)", 0, "exact"),
    ("minimum", "float", "where((x < y) | (x != x), x, y)", 0, "exact"),
    ("minimum", "int", "where(x < y, x, y)", 0, "exact"),
    ("maximum", "float", "where((x > y) | (x != x), x, y)", 0, "exact"),
    ("maximum", "int", "where(x > y, x, y)", 0, "exact"),
    ("reciprocal", "float", "1 / x", 0.5, "by definition"),
    ("rsqrt", "float", "1 / sqrt(x)", 1.5, "by definition; two roundings"),
    ("isnan", "float", "x != x", 0, "exact"),
    ("isinf", "float", "abs(x) == inf", 0, "exact"),
    ("gt", "any", "y < x", 0, "exact"),
    ("lt", "any", "y > x", 0, "exact"),
    ("le", "any", "(x < y) | (x == y)", 0, "exact"),
    ("ge", "any", "y <= x", 0, "exact"),
    ("ne", "any", "~(x == y)", 0, "exact"),
    ("eq", "any", "~(x != y)", 0, "exact"),
    ("eq", "any", "(x <= y) & (x >= y)", 0, "exact"),
    ("not", "bool", "where(x, false, true)", 0, "exact"),
    ("not", "int", "ones - x", 0, "exact"),
    ("and", "bool", "where(x, y, false)", 0, "exact"),
    ("and", "int", "x + y - (x | y)", 0, "exact; integers wrap"),
    ("or", "bool", "where(x, true, y)", 0, "exact"),
    ("or", "int", "x + y - (x & y)", 0, "exact; integers wrap"),
    ("xor", "bool", "x != y", 0, "exact"),
    ("xor", "int", "(x | y) - (x & y)", 0, "exact"),
    ("copysign", "f32", "bitcast((bitcast(x, i32) & 2147483647) | (bitcast(y, i32) & -2147483648), f32)", 0, "exact"),
    (
        "copysign",
        "f64",
        "bitcast((bitcast(x, i64) & 9223372036854775807) | (bitcast(y, i64) & -9223372036854775808), f64)",
        0,
        "exact",
    ),
    ("copysign", "float", "where((y < 0) | ((y == 0) & (1 / y < 0)), -abs(x), abs(x))", 0, "exact; NaN has no sign"),
    ("nextafter", "f32", _NEXTAFTER.format(bits="i32", dtype="f32", negative=-(2**31) + 1), 0, "exact"),
    ("nextafter", "f64", _NEXTAFTER.format(bits="i64", dtype="f64", negative=-(2**63) + 1), 0, "exact"),
    ("fma", "f32", _FMA_IN_F64, 0, "exact: rounded once; in f64, which the target must have"),
    (
        "fma",
        "f32",
        _FMA.format(split=4097, big=2**60, down=2.0**-40, up=2**40, much=2**120),
        1,
        "Dekker, A floating-point technique for extending the available precision, 1971; not rounded once, "
        "but faithful "
        "while no part underflows, else a product and a sum",
    ),
    ("fma", "f64", _FMA.format(split=134217729, big=2**500, down=2.0**-300, up=2**300, much=2**1000), 1, "as for f32"),
    # -- rounding to whole numbers
    ("trunc", "float", "where(x < 0, ceil(x), floor(x))", 0, "exact"),
    ("trunc", "f32", _TRUNC.format(bits="i32", dtype="f32", whole=2**23), 0, "exact"),
    ("trunc", "f64", _TRUNC.format(bits="i64", dtype="f64", whole=2**52), 0, "exact"),
    ("floor", "float", "-ceil(-x)", 0, "exact"),
    ("floor", "float", "t = trunc(x)\nwhere(x < t, t - 1, t)", 0, "exact"),
    ("floor", "float", "r = round(x)\nwhere(x < r, r - 1, r)", 0, "exact"),
    ("ceil", "float", "-floor(-x)", 0, "exact"),
    ("round", "float", _ROUND, 0, "exact"),
    # -- integer division
    (
        "floordiv",
        "signed",
        "q = truncdiv(x, y)\nr = x - q * y\nwhere((r != 0) & ((r < 0) != (y < 0)), q - 1, q)",
        0,
        "exact",
    ),
    ("floordiv", "unsigned", "truncdiv(x, y)", 0, "exact"),
    ("truncdiv", "signed", "q = floordiv(x, y)\nwhere((q < 0) & (q * y != x), q + 1, q)", 0, "exact"),
    ("truncdiv", "unsigned", "floordiv(x, y)", 0, "exact"),
    ("mod", "int", "x - floordiv(x, y) * y", 0, "exact"),
    ("mod", "float", "r = fmod(x, y)\nwhere((r != 0) & ((r < 0) != (y < 0)), r + y, r)", 0.5, "as PyTorch computes it"),
    ("fmod", "int", "x - truncdiv(x, y) * y", 0, "exact"),
)
