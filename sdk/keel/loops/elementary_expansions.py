"""Expansions of exponentials, logarithms, trigonometric functions and the error function."""

from __future__ import annotations

from keel.loops.expansion import Expansion, expansions_of

_CHEBYSHEV = "Chebyshev fit"
_FDLIBM = "after fdlibm"
_EXP = """
c = minimum(maximum(x, {low}), {high})
n = floor(c * 1.4426950408889634 + 0.5)
r = (c - n * {ln2}) - n * {rest}
p = 1 + (r + r * r * poly(r, {poly}))
h = floor(n * 0.5)
p * pow2_{dtype}(h) * pow2_{dtype}(n - h)
"""

_LN2_F32 = {"ln2": "0.693359375", "rest": "-2.12194440054690583e-4"}
_LN2_F64 = {"ln2": "0.693145751953125", "rest": "1.42860682030941723212e-6"}
_EXP_BY_EXP2 = """
c = minimum(maximum(x, {low}), {high})
n = floor(c * 1.4426950408889634)
exp2(n) * exp2(((c - n * {ln2}) - n * {rest}) * 1.4426950408889634)
"""

_EXP2_BY_EXP = """
c = minimum(maximum(x, {low}), {high})
n = floor(c)
exp(n * {ln2}) * exp((c - n) * 0.6931471805599453 + n * {rest})
"""

_EXPM1 = "where(abs(x) < 0.5, x * (1 + x * poly(x, {poly})), exp(x) - 1)"
_LOG = """
tiny = x < {smallest}
b = bitcast(where(tiny, x * {scale}, x), {bits})
low = b & {mask}
m = bitcast(low | {one}, {dtype})
e = cast(b - low, {dtype}) * {epsilon} - where(tiny, {biased}, {bias})
big = m > 1.4142135623730951
f = where(big, m * 0.5, m) - 1
k = where(big, e + 1, e)
t = f / (2 + f)
z = t * t
h = 0.5 * f * f
l = k * {ln2} - ((h - (t * (h + z * poly(z, {poly})) + k * {rest})) - f)
where(x > 0, where(x < inf, l, x), where(x == 0, -inf, nan))
"""

_ATAN = """
a = abs(x)
big = a > 1
v = where(big, 1 / a, a)
z = v * v
p = v + v * (z * poly(z, {poly}))
copysign(where(big, ({half} - p) + {rest}, p), x)
"""

_ATAN2 = """
a = abs(x)
b = abs(y)
high = maximum(a, b)
low = minimum(a, b)
p = atan(where(high == 0, 0, where(low == inf, 1, low / high)))
q = where(a > b, ({half} - p) + {half_rest}, p)
copysign(where(copysign(1, y) < 0, ({pi} - q) + {pi_rest}, q), x)
"""

_ERFC = """
a = minimum(abs(x), {top})
c = gauss(a, {split}) * (poly((a - 4) / (a + 4), {poly}) / (1 + 2 * a))
where(x < 0, 2 - c, c)
"""

_GILES = """
w = -log((1 - x) * (1 + x))
s = w - 2.5
t = sqrt(w) - 3
near = poly(s, 1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
            -3.5233877e-06, 3.43273939e-07, 2.81022636e-08)
far = poly(t, 2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322,
           0.000100950558, -0.000200214257)
g = where(w < 5, near, far)
"""

_POW = """
r = cast(exp(cast(y, f64) * log(cast(abs(x), f64))), f32)
whole = floor(y) == y
h = y * 0.5
s = where(whole & (floor(h) != h), copysign(r, x), r)
n = where((x < 0) & (x != -inf) & ~whole, nan, s)
where((y == 0) | (x == 1) | ((abs(x) == 1) & (abs(y) == inf)), 1, n)
"""

ELEMENTARY: tuple[Expansion, ...] = expansions_of(
    # -- exponentials
    ("exp", "f32", _EXP_BY_EXP2.format(low=-104, high=89, **_LN2_F32), 2, "Cody and Waite, 1980"),
    ("exp", "f64", _EXP_BY_EXP2.format(low=-746, high=710, **_LN2_F64), 2, "Cody and Waite, 1980"),
    (
        "exp",
        "f32",
        _EXP.format(
            low=-104,
            high=89,
            dtype="f32",
            **_LN2_F32,
            poly="""
        0.5, 0.16666577, 0.0416665546, 0.00836317763, 0.00139261818""",
        ),
        1,
        f"Cody and Waite, 1980; {_CHEBYSHEV}",
    ),
    (
        "exp",
        "f64",
        _EXP.format(
            low=-746,
            high=710,
            dtype="f64",
            **_LN2_F64,
            poly="""
        0.5, 0.16666666666666671, 0.0416666666666666698, 0.0083333333333261365, 0.00138888888888837493,
        0.000198412698748158331, 0.0000248015873255443191, 2.75572554062850437e-6, 2.75572736474510896e-7,
        2.51052144747514138e-8, 2.0914685161418068e-9""",
        ),
        1,
        f"Cody and Waite, 1980; {_CHEBYSHEV}",
    ),
    ("exp2", "f32", _EXP2_BY_EXP.format(low=-152, high=129, **_LN2_F32), 2.5, "Cody and Waite, 1980"),
    ("exp2", "f64", _EXP2_BY_EXP.format(low=-1080, high=1025, **_LN2_F64), 2.5, "Cody and Waite, 1980"),
    (
        "expm1",
        "f32",
        _EXPM1.format(
            poly="""
        0.500000012, 0.166666668, 0.0416657912, 0.00833323613, 0.0013982186, 0.000199448744"""
        ),
        1.5,
        _CHEBYSHEV,
    ),
    (
        "expm1",
        "f64",
        _EXPM1.format(
            poly="""
        0.5, 0.166666666666666667, 0.0416666666666670617, 0.00833333333333335966, 0.0013888888888704549,
        0.000198412698411469919, 0.0000248015876161454127, 2.75573194336202428e-6, 2.75570766366427235e-7,
        2.50519467097216211e-8, 2.09629558159760757e-9, 1.61164965143715465e-10"""
        ),
        1.5,
        _CHEBYSHEV,
    ),
    ("sigmoid", "float", "1 / (1 + exp(-x))", 2.5, "by definition; 0 below about -88 (f32) and -709 (f64)"),
    ("tanh", "float", "t = expm1(abs(x) * -2)\ncopysign(-t / (2 + t), x)", 3, _FDLIBM),
    (
        "sinh",
        "float",
        """
a = abs(x)
t = expm1(a)
e = exp(0.5 * a)
copysign(where(a < 20, 0.5 * (t + t / (t + 1)), 0.5 * e * e), x)
""",
        2.5,
        _FDLIBM,
    ),
    (
        "cosh",
        "float",
        """
a = abs(x)
t = exp(a)
e = exp(0.5 * a)
where(a < 20, 0.5 * (t + 1 / t), 0.5 * e * e)
""",
        2,
        _FDLIBM,
    ),
    # -- logarithms
    ("log", "float", "log2(x) * 0.6931471805599453", 2, "by definition"),
    (
        "log",
        "f32",
        _LOG.format(
            dtype="f32",
            bits="i32",
            smallest=2.0**-126,
            scale=2**25,
            mask=2**23 - 1,
            one=127 << 23,
            epsilon=2.0**-23,
            biased=152,
            bias=127,
            ln2=6.9313812256e-01,
            rest=9.0580006145e-06,
            poly="0.666666666, 0.400001226, 0.285507308, 0.233329128",
        ),
        1,
        f"{_FDLIBM}; {_CHEBYSHEV}",
    ),
    (
        "log",
        "f64",
        _LOG.format(
            dtype="f64",
            bits="i64",
            smallest=2.0**-1022,
            scale=2**54,
            mask=2**52 - 1,
            one=1023 << 52,
            epsilon=2.0**-52,
            biased=1077,
            bias=1023,
            ln2=6.93147180369123816490e-01,
            rest=1.90821492927058770002e-10,
            poly="""
        0.666666666666666973, 0.399999999998981919, 0.285714286265702036, 0.222222110378165877, 0.181828961834830866,
        0.153314872358657332, 0.146193434535126151""",
        ),
        1,
        f"{_FDLIBM}; {_CHEBYSHEV}",
    ),
    ("log2", "float", "log(x) * 1.4426950408889634", 2, "by definition"),
    ("log10", "float", "log(x) * 0.4342944819032518", 2, "by definition"),
    (
        "log1p",
        "float",
        """
u = 1 + x
l = log(u)
where(u == 1, x, where(u == inf, l, l * (x / (u - 1))))
""",
        3,
        "Hewlett-Packard 15C Advanced Functions Handbook, 1982",
    ),
    (
        "asinh",
        "float",
        """
a = abs(x)
s = a * a
l = where(a > 268435456, log(a) + 0.6931471805599453, log1p(a + s / (1 + sqrt(s + 1))))
copysign(l, x)
""",
        2,
        _FDLIBM,
    ),
    (
        "acosh",
        "float",
        """
t = x - 1
l = where(x > 268435456, log(x) + 0.6931471805599453, log1p(t + sqrt(t * (x + 1))))
where(x < 1, nan, l)
""",
        2,
        _FDLIBM,
    ),
    ("atanh", "float", "a = abs(x)\ncopysign(0.5 * log1p(2 * a / (1 - a)), x)", 2, _FDLIBM),
    ("pow", "f32", _POW, 0.6, "in f64, which the target must have"),
    # -- angles
    ("tan", "float", "sin(x) / cos(x)", 2, "by definition"),
    ("atan", "float", "atan2(x, 1)", 1, "by definition"),
    (
        "atan",
        "f32",
        _ATAN.format(
            half=1.57079637050628662,
            rest=-4.37113900018624283e-8,
            poly="""
        -0.333333317, 0.199997393, -0.142785687, 0.110337641, -0.0865688043, 0.0625016944, -0.035871539,
        0.0135077714, -0.00238699732""",
        ),
        1.5,
        _CHEBYSHEV,
    ),
    (
        "atan",
        "f64",
        _ATAN.format(
            half=1.5707963267948966,
            rest=6.123233995736766e-17,
            poly="""
        -0.333333333333333333, 0.199999999999999193, -0.142857142857012333, 0.111111111102682973,
        -0.0909090906193527995, 0.0769230707882702926, -0.0666665793457376784, 0.0588226441677644883,
        -0.0526249222902567531, 0.0475808008363782062, -0.0433065384306706625, 0.0393868754079863213,
        -0.0352713310668712941, 0.0303307192657905066, -0.0241913458101407186, 0.0171839817221133481,
        -0.0104121532603592415, 0.00514091285674693872, -0.0019612554271685326, 0.000537683929739624472,
        -0.0000937118634505262543, 7.76762433028991855e-6""",
        ),
        1.5,
        _CHEBYSHEV,
    ),
    (
        "atan2",
        "f32",
        _ATAN2.format(
            half=1.57079637050628662,
            half_rest=-4.37113900018624283e-8,
            pi=3.14159274101257324,
            pi_rest=-8.74227800037248566e-8,
        ),
        2,
        "by quadrants",
    ),
    (
        "atan2",
        "f64",
        _ATAN2.format(
            half=1.5707963267948966,
            half_rest=6.123233995736766e-17,
            pi=3.141592653589793,
            pi_rest=1.2246467991473532e-16,
        ),
        2,
        "by quadrants",
    ),
    ("asin", "float", "atan(x / sqrt((1 - x) * (1 + x)))", 2.5, "by definition"),
    ("acos", "float", "2 * atan(sqrt((1 - x) / (1 + x)))", 2.5, "by the half angle"),
    # -- the error function
    (
        "erf",
        "f32",
        """
c = minimum(maximum(x, -4), 4)
z = c * c
over = poly(z, 1.12837909, 0.207126103, 0.0515249965, 0.00399061376, 0.000147287939, -1.94232885e-06, 1.91110559e-08)
under = poly(z, 1, 0.516891977, 0.117971101, 0.0149581464, 0.00102112431)
c * over / under
""",
        5,
        "the rational fit of Eigen and XLA, scaled",
    ),
    (
        "erf",
        "f64",
        """
a = abs(x)
z = x * x
near = x * poly(z, 1.12837916709551257, -0.37612638903183752, 0.112837916709550872, -0.0268661706451184448,
                0.00522397762522219187, -0.000854832700113594614, 0.000120553315452941164, -0.0000149255893838211429,
                1.64603832098581487e-6, -1.63332293434337e-7, 1.44138792890950289e-8, -9.50284089477470516e-10)
where(a < 0.75, near, copysign(1 - erfc(a), x))
""",
        2,
        _CHEBYSHEV,
    ),
    (
        "erfc",
        "f32",
        _ERFC.format(
            top=11,
            split=4097,
            poly="""
        1.23299513, -0.139620807, 0.0153780151, 0.0680840653, -0.101013936, 0.0938933981, -0.0663981082, 0.0363894856,
        -0.0165659041, 0.00628512852, 0.000636044323""",
        ),
        5.5,
        "Shepherd and Laframboise, 1981; " + _CHEBYSHEV,
    ),
    (
        "erfc",
        "f64",
        _ERFC.format(
            top=28,
            split=134217729,
            poly="""
        1.23299511862555251, -0.139621116840562513, 0.0153796521026195222, 0.0680970542546925896, -0.101039066036292659,
        0.0937328349983536086, -0.0663303658124467237, 0.0371675155373778555, -0.0161977340556792813,
        0.0050319699793993848, -0.000757773298363529851, -0.00019925670474788312, 0.000150621694621252367,
        -0.000024399172870686759, -0.000011222015496282597, 5.70962967526191866e-6, 2.93668803067607315e-7,
        -8.25272749335070106e-7, 7.49178913508253751e-8, 1.09939806408404637e-7, -1.81841998069716249e-8,
        -1.40892273096166213e-8, 1.93895659912751764e-9, 1.28681863914842457e-9""",
        ),
        5.5,
        "Shepherd and Laframboise, 1981; " + _CHEBYSHEV,
    ),
    (
        "erfinv",
        "f32",
        _GILES + "where(abs(x) == 1, x * inf, g * x)",
        4,
        "Giles, Approximating the erfinv function, 2011",
    ),
    (
        "erfinv",
        "f64",
        _GILES
        + """
a = abs(x)
v = g * a
f = where(a < 0.5, erf(v) - a, (1 - a) - erfc(v))
u = f * 0.8862269254527580 * exp(v * v)
where(a == 1, x * inf, copysign(v - u / (1 + v * u), x))
""",
        2.5,
        "one step of Halley after Giles, 2011",
    ),
)
