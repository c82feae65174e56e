// Elementary functions, branch-free so that the vectoriser sees through them.  The float ones hold 1 to 2 ulp over the whole
// line, with NaN, infinities, signed zeros and subnormals as in C; tests sweep all of them.  Coefficients without a source
// are minimax fits (Lawson) for the interval stated beside them.

#ifdef __FMA__
INLINE float fma_(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
INLINE double fma_(double x, double y, double z) { return __builtin_fma(x, y, z); }
#else
INLINE float fma_(float x, float y, float z) { return x * y + z; }
INLINE double fma_(double x, double y, double z) { return x * y + z; }
#endif
INLINE float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
INLINE double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }

// Horner's rule: p(x, c0, c1, ...) = c0 + c1 x + ...
template <class T> INLINE T poly(T, T c) { return c; }
template <class T, class... Rest> INLINE T poly(T x, T c, Rest... rest) { return fma_(poly<T>(x, T(rest)...), x, c); }

extern "C" {
double exp2(double), log2(double), log10(double), log1p(double), expm1(double), sin(double), cos(double), tan(double), asin(double),
    acos(double), atan(double), sinh(double), cosh(double), asinh(double), acosh(double), atanh(double), erf(double), erfc(double), pow(double, double),
    atan2(double, double), fmod(double, double), lgamma_r(double, int*), nextafter(double, double);
float fmodf(float, float), nextafterf(float, float);
}

INLINE float floor(float x) { return __builtin_floorf(x); }
INLINE double floor(double x) { return __builtin_floor(x); }
INLINE float ceil(float x) { return __builtin_ceilf(x); }
INLINE double ceil(double x) { return __builtin_ceil(x); }
INLINE float trunc(float x) { return __builtin_truncf(x); }
INLINE double trunc(double x) { return __builtin_trunc(x); }
INLINE float round(float x) { return __builtin_rintf(x); }
INLINE double round(double x) { return __builtin_rint(x); }
INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
INLINE double sqrt(double x) { return __builtin_sqrt(x); }
INLINE float copysign(float x, float y) { return __builtin_copysignf(x, y); }
INLINE double copysign(double x, double y) { return __builtin_copysign(x, y); }
template <class T> INLINE T rsqrt(T x) { return T(1) / sqrt(x); }

// ---- exponentials -------------------------------------------------------------------------------------------------

INLINE double scale(double p, i64 n) {  // p 2^n in two steps, so that it overflows and underflows gradually
  const i64 h = n >> 1;
  return p * bits<double>(u64(h + 1023) << 52) * bits<double>(u64(n - h + 1023) << 52);
}
template <class T> INLINE T clamp(T x, T low, T high) {  // NaN stays
  x = x > high ? high : x;
  return x < low ? low : x;
}

// x = k ln2 + r with |r| <= ln2 / 2 and k an integer; adding 1.5 2^23 rounds, and leaves k in the low bits of `round`.
struct Reduced { float round, k, r; };
INLINE Reduced reduced(float x) {
  const float t = fma_(x, 1.44269504f, 0x1.8p23f), k = t - 0x1.8p23f;
  return {t, k, fma_(k, -1.42860677e-6f, fma_(k, -0.693145752f, x))};
}
INLINE float power_of_2(float rounded, u32 bias) { return bits<float>((bits<u32>(rounded) + bias) << 23); }
INLINE float reduced_exp(float r) {  // e^r - 1
  return fma_(poly(r, 0.5f, 0.166665152f, 0.0416663773f, 0.00836939365f, 0.00139429222f), r * r, r);
}
// p 2^k in two steps, so that it overflows and underflows gradually; `low`: k < -124.
INLINE float scaled(float p, float rounded, bool low) {
  return p * power_of_2(rounded, low ? 126 + 64 : 126) * (low ? 0x1p-63f : 2.f);
}

INLINE float exp(float x) {
  x = clamp(x, -105.f, 89.f);
  const Reduced at = reduced(x);
  return scaled(reduced_exp(at.r) + 1.f, at.round, x < -86.f);
}
INLINE float exp_inside(float x) {  // |x| <= 86
  const Reduced at = reduced(x);
  return (reduced_exp(at.r) + 1.f) * power_of_2(at.round, 127);
}

INLINE float exp2(float x) {
  x = clamp(x, -151.f, 129.f);
  const float t = x + 0x1.8p23f, r = x - (t - 0x1.8p23f);
  const float q = poly(r, 0.693147182f, 0.240226507f, 0.055503577f, 0.00961805973f, 0.00133920659f, 0.00015464134f);
  return scaled(fma_(q, r, 1.f), t, x < -124.f);
}

INLINE float expm1(float x) {  // 2^k (e^r - 1) + (2^k - 1), halved so that 2^128 is a number
  x = clamp(x, -18.f, 89.f);
  const Reduced at = reduced(x);
  const float r = at.r, s = power_of_2(at.round, 126);
  const float q = poly(r, 0.5f, 0.166666672f, 0.0416664816f, 0.00833320804f, 0.00139335648f, 0.000199442555f);
  const float e = fma_(q, r * r, r);
  return copysign(at.k == 0.f ? e : 2.f * fma_(s, e, s - 0.5f), x);
}

INLINE double reduced_exp(double r) {  // e^r - 1 for |r| <= ln2 / 2, by its series
  return fma_(poly(r, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800, 1. / 39916800,
                   1. / 479001600, 1. / 6227020800), r * r, r);
}
INLINE double exp(double x) {
  x = clamp(x, -746., 710.);
  const double k = round(x * 1.4426950408889634), r = fma_(k, -1.9082149292705877e-10, fma_(k, -0.6931471803691238, x));
  return scale(reduced_exp(r) + 1., i64(k));
}
INLINE double expm1_(double x) {
  x = clamp(x, -40., 710.);
  const double k = round(x * 1.4426950408889634), r = fma_(k, -1.9082149292705877e-10, fma_(k, -0.6931471803691238, x));
  const double s = bits<double>(u64(i64(k) + 1022) << 52);
  const double p = reduced_exp(r);
  return k == 0. ? p : 2. * fma_(s, p, s - 0.5);
}

template <class T> INLINE T sigmoid(T x) {
  const T e = exp(-abs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

INLINE float tanh(float x) {  // beyond 0.8: 1 - 2 / (e^2a + 1) with e^2a = s + s t, never rounded by itself
  const float a = abs(x), w = x * x, z = a > 10.f ? 20.f : 2.f * a;
  const float small = fma_(poly(w, -0.333333313f, 0.133332416f, -0.0539547466f, 0.0217764303f, -0.00851746742f, 0.00286124228f, -0.000575417711f), w * x, x);
  const Reduced at = reduced(z);
  const float s = power_of_2(at.round, 127), large = 1.f - 2.f / fma_(s, reduced_exp(at.r), s + 1.f);
  return copysign(a < 0.8f ? small : large, x);
}
INLINE double tanh(double x) {
  const double a = abs(x), m = expm1_(2. * (a > 22. ? 22. : a));
  return copysign(m / (m + 2.), x);
}

// ---- logarithms ---------------------------------------------------------------------------------------------------

// log(1 + f) = f + log1p_rest(f) for -1/3 <= f <= 1/3, with |f| > |log1p_rest(f)|.
INLINE float log1p_rest(float f) {
  const float q = poly(f, 0.333333373f, -0.249998257f, 0.199993894f, -0.166793585f, 0.143111408f, -0.121985987f, 0.10675966f,
                       -0.128335163f, 0.123127207f);
  const float s = f * f;
  return fma_(q * f, s, -0.5f * s);
}
INLINE float log1p_plus(float f, float k) {  // log((1 + f) 2^k)
  return fma_(k, 0.693145752f, f + fma_(k, 1.42860677e-6f, log1p_rest(f)));
}
struct Split { float mantissa, exponent; };
INLINE Split split(float x) {  // x = mantissa 2^exponent with mantissa in [2/3, 4/3)
  const bool tiny = x < 0x1p-126f;
  const i32 u = bits<i32>(tiny ? x * 0x1p23f : x), e = (u - 0x3f2aaaab) & i32(0xff800000);
  return {bits<float>(u - e), float(e >> 23) - (tiny ? 23.f : 0.f)};
}
template <class T> INLINE T log_ends(T x, T y) {  // y inside the domain, C's values elsewhere
  y = x == T(INF) ? x : y;
  y = x == T(0) ? T(-INF) : y;
  return x >= T(0) ? y : T(NOTANUMBER);
}
INLINE float log(float x) {
  const Split p = split(x);
  return log_ends(x, log1p_plus(p.mantissa - 1.f, p.exponent));
}
INLINE float log_base(float f, float c, float c_low, float k, float k_low) {  // log(1 + f) (c + c_low) + k + k_low
  const float rest = log1p_rest(f), r = f + rest, low = rest - (r - f);
  const float p = r * c, y = k + p, tail = fma_(low, c, fma_(r, c_low, k_low));
  return y + (p - (y - k) + (fma_(r, c, -p) + tail));
}
INLINE float log2(float x) {
  const Split p = split(x);
  return log_ends(x, log_base(p.mantissa - 1.f, 1.44269502f, 1.925963e-8f, p.exponent, 0.f));
}
INLINE float log10(float x) {
  const Split p = split(x);
  return log_ends(x, log_base(p.mantissa - 1.f, 0.434294492f, -1.010305e-8f, p.exponent * 0.301033020f, p.exponent * -3.0243555e-6f));
}
INLINE float log1p(float x) {  // (1 + x) 2^-k - 1 = x 2^-k + (2^-k - 1)
  const float u = 1.f + x;
  const i32 e = (bits<i32>(u) - 0x3f2aaaab) & i32(0xff800000);
  const float s = bits<float>(0x40800000 - e), k = float(e >> 23);  // 4 2^-k, which is normal for every k
  const float y = log1p_plus(0.25f * fma_(x, s, s - 4.f), k);
  return x == 0.f ? x : log_ends(u, y);
}

INLINE double log(double x) {  // fdlibm's e_log.c, the polynomial replaced by the series of atanh
  const bool tiny = x < 0x1p-1022;
  const i64 u = bits<i64>(tiny ? x * 0x1p54 : x), e = (u - 0x3fe6a09e667f3bcd) & i64(0xfff0000000000000);
  const double k = double(e >> 52) - (tiny ? 54. : 0.), f = bits<double>(u - e) - 1., s = f / (2. + f), z = s * s, half = 0.5 * f * f;
  const double q = z * poly(z, 2. / 3, 2. / 5, 2. / 7, 2. / 9, 2. / 11, 2. / 13, 2. / 15, 2. / 17, 2. / 19, 2. / 21);
  return log_ends(x, fma_(k, 0.6931471803691238, f - (half - fma_(s, half + q, k * 1.9082149292705877e-10))));
}

// ---- error function -----------------------------------------------------------------------------------------------

INLINE float erf(float x) {
  const float s = x * x, a = abs(x), t = a > 4.f ? 4.f : a;
  const float small = fma_(poly(s, 0.128379166f, -0.376126289f, 0.112836257f, -0.0268557388f, 0.00519244885f, -0.000805057702f,
                                8.00138369e-05f), x, x);  // |x| <= 0.94
  const float large = 1.f - exp_inside(-fma_(poly(t, 0.12864849f, 0.635151327f, 0.106236845f, -0.0237620194f, 0.0036424296f,
                                           -0.000322794018f, 1.12300122e-05f), t, t));
  return copysign(a < 0.9375f ? small : large, x);
}

INLINE float erfc(float x) {  // erfcx(a) (1 + 2a) over t = (a - 2) / (a + 2)
  const double a = clamp(double(abs(x)), 0., 10.2), t = (a - 2.) / (a + 2.);
  const double y = exp(-a * a) / (1. + 2. * a) *
                   poly(t, 1.2769783818075837, -0.09276382857359032, -0.16603043052675384, 0.1640513560976707, -0.05421928252533544,
                        -0.008034658811271755, 0.008716700697320202, 0.0012720015270284806, -0.001434088556691405,
                        -0.0004445297219586048, 0.00016733269128842702, 0.00011576179258412288, 1.7488501356980768e-05);
  return float(x < 0.f ? 2. - y : y);
}

// ---- powers and circular functions: float by way of double ---------------------------------------------------------

INLINE double log1p_(double x) {
  const double u = 1. + x, y = log(u) + (x - (u - 1.)) / u;
  return u == INF ? u : y;
}

INLINE float pow(float x, float y) {
  const double z = exp(double(y) * log(double(abs(x))));
  const float half = 0.5f * y;
  const bool whole = y == round(y), odd = whole & (half != round(half)), ones = (x == -1.f) & (abs(y) == float(INF));
  const float p = float(copysign(1.f, x) < 0.f & odd ? -z : z);
  const float q = (x < 0.f) & (x > -float(INF)) & !whole ? float(NOTANUMBER) : p;
  return (x == 1.f) | (y == 0.f) | ones ? 1.f : q;
}

// x / 2 pi less its nearest integer, for every float x: each product with 29 bits of 1 / 2 pi is exact, and so is its fraction.
INLINE double fraction(double x) { return x - round(x); }
INLINE double turns(double x) {
  const double far = fraction(x * 0x1.5993c43p-150) + fraction(x * 0x1.2083fcap-179);
  const double mid = fraction(x * 0x1.4fe13abp-61) + (fraction(x * 0x1.d1f534dp-90) + (fraction(x * 0x1.b81b6c5p-119) + far));
  return fraction(fraction(x * 0x1.45f306dp-3) + fraction(x * 0x1.9391054p-32) + mid);
}
struct Quadrant { double number, sine, cosine; };
INLINE Quadrant quadrant(float x) {
  const double f = turns(x), q = round(4. * f), r = (f - 0.25 * q) * 6.283185307179586, s = r * r;
  return {q, fma_(poly(s, -0.1666666664111297, 0.008333329325358994, -0.00019839315126170615, 2.718121802416655e-06), s * r, r),
          fma_(poly(s, -0.5, 0.04166666662192816, -0.0013888883674596912, 2.4799498933206037e-05, -2.7208476605532085e-07), s, 1.)};
}
INLINE float sin(float x) {
  const Quadrant at = quadrant(x);
  const double y = abs(at.number) == 1. ? at.cosine : at.sine;
  return x == 0.f ? x : float((at.number < 0.) | (at.number > 1.) ? -y : y);
}
INLINE float cos(float x) {
  const Quadrant at = quadrant(x);
  const double y = abs(at.number) == 1. ? at.sine : at.cosine;
  return float((at.number > 0.) | (at.number < -1.) ? -y : y);
}
INLINE float tan(float x) {
  const Quadrant at = quadrant(x);
  const bool odd = abs(at.number) == 1.;
  const double y = (odd ? -at.cosine : at.sine) / (odd ? at.sine : at.cosine);
  return x == 0.f ? x : float(y);
}

INLINE double arc(double x) {  // atan for x >= 0
  const bool inverse = x > 1.;
  const double z = inverse ? 1. / x : x, s = z * z;
  const double p = fma_(poly(s, -0.33333333130224824, 0.19999985333491208, -0.1428534334734282, 0.11106369664377824, -0.09054953001390552,
                             0.07515377765898186, -0.06068676636875531, 0.04436678103467555, -0.026745825737589924,
                             0.011910957548864976, -0.0033772072529420754, 0.00044919133402394055), s * z, z);
  return inverse ? 1.5707963267948966 - p : p;
}
INLINE float atan(float x) { return copysign(float(arc(abs(double(x)))), x); }
INLINE float asin(float x) {
  const double a = abs(double(x));
  return copysign(float(arc(a / sqrt((1. - a) * (1. + a)))), x);
}
INLINE float acos(float x) { return float(2. * arc(sqrt((1. - double(x)) / (1. + double(x))))); }
INLINE float atan2(float y, float x) {
  const double v = abs(double(y)), u = abs(double(x)), low = v > u ? u : v, high = v > u ? v : u;
  const double p = arc(low == high ? (low == 0. ? 0. : 1.) : low / high);
  const double q = v > u ? 1.5707963267948966 - p : p;
  return copysign(float(copysign(1.f, x) < 0.f ? 3.141592653589793 - q : q), y);
}

INLINE float sinh(float x) {
  const double m = expm1_(clamp(abs(double(x)), 0., 90.));
  return copysign(float(0.5 * (m + m / (m + 1.))), x);
}
INLINE float cosh(float x) {
  const double e = exp(clamp(abs(double(x)), 0., 90.));
  return float(0.5 * (e + 1. / e));
}
INLINE float asinh(float x) {
  const double a = abs(double(x)), s = a * a;
  return copysign(float(log1p_(a + (a == INF ? a : s / (1. + sqrt(1. + s))))), x);
}
INLINE float acosh(float x) {
  const double t = double(x) - 1.;
  return float(log1p_(t + sqrt(t) * sqrt(t + 2.)));
}
INLINE float atanh(float x) {
  const double a = abs(double(x));
  return copysign(float(0.5 * log1p_(2. * a / (1. - a))), x);
}

// ---- double, and what no loop needs fast: the C library -------------------------------------------------------------

INLINE float fmod(float x, float y) { return fmodf(x, y); }
INLINE float nextafter(float x, float y) { return nextafterf(x, y); }
INLINE double lgamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}
INLINE float lgamma(float x) { return float(lgamma(double(x))); }

static double digamma(double x) {  // recurrence to x >= 10, then the asymptotic series; reflection below 0 (DLMF 5.5.2, 5.5.4, 5.11.2)
  if (x == 0.) return copysign(INF, -x);
  if (x < 0.) {
    if (x == floor(x)) return NOTANUMBER;
    return digamma(1. - x) - 3.141592653589793 / tan(3.141592653589793 * (x - round(x)));
  }
  double shift = 0.;
  for (; x < 10.; x += 1.) shift += 1. / x;
  const double z = 1. / (x * x);
  return log(x) - 0.5 / x - shift -
         z * poly(z, 1. / 12, -1. / 120, 1. / 252, -1. / 240, 1. / 132, -691. / 32760, 1. / 12);
}
INLINE float digamma(float x) { return float(digamma(double(x))); }

static double erfinv(double x) {  // Winitzki's estimate, then Halley's method on erf, or on erfc towards the ends
  const double a = abs(x), rest = 1. - a;
  if (!(rest > 0.)) return rest == 0. ? copysign(INF, x) : NOTANUMBER;
  if (a < 1e-8) return x * 0.8862269254527580;
  const double w = log(rest * (1. + a)), t = 4.330746750799873 + 0.5 * w;
  double y = sqrt(sqrt(t * t - w / 0.147) - t);
  for (int i = 0; i < 3; ++i) {
    const double e = (a < 0.5 ? erf(y) - a : rest - erfc(y)) * 0.8862269254527580 * exp(y * y);
    y -= e / (1. + y * e);
  }
  return copysign(y, x);
}
INLINE float erfinv(float x) { return float(erfinv(double(x))); }

// ---- remainders of any type -----------------------------------------------------------------------------------------

template <class T> INLINE T remainder(T x, T y) {  // with the sign of x
  if constexpr (is_float<T>) return fmod(x, y);
  else return sub(x, mul(truncdiv(x, y), y));
}
template <class T> INLINE T modulo(T x, T y) {  // with the sign of y
  const T r = remainder(x, y);
  if constexpr (is_float<T>) return r != T(0) && (r < T(0)) != (y < T(0)) ? r + y : r;
  else return (r != T(0)) & ((r < T(0)) != (y < T(0))) ? add(r, y) : r;
}
template <class T> INLINE T floordiv(T x, T y) {
  const T q = truncdiv(x, y), r = sub(x, mul(q, y));
  return (r != T(0)) & ((r < T(0)) != (y < T(0))) ? sub(q, T(1)) : q;
}
