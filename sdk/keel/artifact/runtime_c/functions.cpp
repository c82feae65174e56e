#include "functions.h"

#include <cmath>
#include <cstring>

#include "failure.h"

namespace keel {

namespace {

constexpr size_t MANY = 1 << 16;

constexpr Signature SIGNATURES[] = {
    {"Add", Function::Add, 1, MANY},
    {"Mul", Function::Mul, 1, MANY},
    {"Pow", Function::Pow, 2, 2},
    {"PowByNatural", Function::Pow, 2, 2},
    {"FloatPow", Function::FloatPow, 2, 2},
    {"FloorDiv", Function::FloorDiv, 2, 2},
    {"CeilDiv", Function::CeilDiv, 2, 2},
    {"ModularIndexing", Function::ModularIndexing, 3, 3},
    {"PythonMod", Function::Mod, 2, 2},
    {"IntTrueDiv", Function::TrueDiv, 2, 2},
    {"LShift", Function::LShift, 2, 2},
    {"RShift", Function::RShift, 2, 2},
    {"BitwiseFn_bitwise_and", Function::BitAnd, 1, MANY},
    {"BitwiseFn_bitwise_or", Function::BitOr, 1, MANY},
    {"BitwiseFn_bitwise_xor", Function::BitXor, 1, MANY},
    {"Max", Function::Max, 1, MANY},
    {"Min", Function::Min, 1, MANY},
    {"Abs", Function::Abs, 1, 1},
    {"sign", Function::Sign, 1, 1},
    {"floor", Function::Floor, 1, 1},
    {"ceiling", Function::Ceiling, 1, 1},
    {"TruncToInt", Function::Trunc, 1, 1},
    {"TruncToFloat", Function::TruncToFloat, 1, 1},
    {"frac", Function::Frac, 1, 1},
    {"RoundToInt", Function::Round, 1, 1},
    {"ToFloat", Function::ToFloat, 1, 1},
    {"to_int", Function::ToInt, 1, 1},
    {"to_bool", Function::ToBool, 1, 1},
    {"Identity", Function::Identity, 1, 1},
    {"Where", Function::Where, 3, 3},
    {"Piecewise", Function::Cases, 2, MANY},
    {"Equality", Function::Equal, 2, 2},
    {"Unequality", Function::NotEqual, 2, 2},
    {"StrictLessThan", Function::Less, 2, 2},
    {"LessThan", Function::LessEqual, 2, 2},
    {"StrictGreaterThan", Function::Greater, 2, 2},
    {"GreaterThan", Function::GreaterEqual, 2, 2},
    {"And", Function::And, 1, MANY},
    {"Or", Function::Or, 1, MANY},
    {"Not", Function::Not, 1, 1},
    {"Xor", Function::Xor, 1, MANY},
    {"Implies", Function::Implies, 2, 2},
    {"Equivalent", Function::Equivalent, 1, MANY},
    {"OpaqueUnaryFn_sqrt", Function::Sqrt, 1, 1},
    {"OpaqueUnaryFn_cos", Function::Cos, 1, 1},
    {"OpaqueUnaryFn_cosh", Function::Cosh, 1, 1},
    {"OpaqueUnaryFn_sin", Function::Sin, 1, 1},
    {"OpaqueUnaryFn_sinh", Function::Sinh, 1, 1},
    {"OpaqueUnaryFn_tan", Function::Tan, 1, 1},
    {"OpaqueUnaryFn_tanh", Function::Tanh, 1, 1},
    {"OpaqueUnaryFn_asin", Function::Asin, 1, 1},
    {"OpaqueUnaryFn_acos", Function::Acos, 1, 1},
    {"OpaqueUnaryFn_atan", Function::Atan, 1, 1},
    {"OpaqueUnaryFn_exp", Function::Exp, 1, 1},
    {"OpaqueUnaryFn_log", Function::Log, 1, 1},
    {"OpaqueUnaryFn_asinh", Function::Asinh, 1, 1},
    {"OpaqueUnaryFn_log2", Function::Log2, 1, 1},
    {"OpaqueUnaryFn_acosh", Function::Acosh, 1, 1},
    {"OpaqueUnaryFn_atanh", Function::Atanh, 1, 1},
    {"BitsOfFloat", Function::BitsOfFloat, 1, 1},
    {"FloatOfBits", Function::FloatOfBits, 1, 1},
    {"atan2", Function::Atan2, 2, 2},
};

[[noreturn]] void too_large() { failed("A number that is computed from sizes has more than 64 bits."); }
[[noreturn]] void by_zero() { failed("A number that is computed from sizes is divided by zero."); }
[[noreturn]] void no_domain() { failed("A number that is computed from sizes is outside of a function's domain."); }

int64_t added(int64_t a, int64_t b) {
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) too_large();
    return sum;
}

int64_t multiplied(int64_t a, int64_t b) {
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product)) too_large();
    return product;
}

int64_t negated(int64_t a) { return multiplied(a, -1); }

int64_t floor_divided(int64_t a, int64_t b) {
    if (b == 0) by_zero();
    if (b == -1) return negated(a);
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

int64_t modulo(int64_t a, int64_t b) {
    if (b == 0) by_zero();
    if (b == -1) return 0;
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t power(int64_t base, int64_t exponent) {
    if (exponent < 0) {
        if (base == 0) by_zero();
        if (base != 1 && base != -1) no_domain();  // a fraction, which programs do not have
        return base == 1 || exponent % 2 == 0 ? 1 : -1;
    }
    int64_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) result = multiplied(result, base);
        if (exponent > 1) base = multiplied(base, base);
    }
    return result;
}

// As CPython's float_rem and _float_div_mod (Objects/floatobject.c).
double float_modulo(double a, double b) {
    if (b == 0) by_zero();
    double rest = std::fmod(a, b);
    if (rest != 0) return (b < 0) != (rest < 0) ? rest + b : rest;
    return std::copysign(0.0, b);
}

double float_floor_divided(double a, double b) {
    if (b == 0) by_zero();
    double rest = std::fmod(a, b), ratio = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) ratio -= 1;
    if (ratio == 0) return std::copysign(0.0, a / b);
    double down = std::floor(ratio);
    return ratio - down > 0.5 ? down + 1 : down;
}

// The quotient to 55 bits or more, its last bit set if a rest is left, rounds as the exact one does (round to odd).
double true_divided(int64_t a, int64_t b) {
    if (b == 0) by_zero();
    uint64_t over = a < 0 ? -static_cast<uint64_t>(a) : static_cast<uint64_t>(a);
    uint64_t under = b < 0 ? -static_cast<uint64_t>(b) : static_cast<uint64_t>(b);
    if (over == 0) return static_cast<double>(a) / static_cast<double>(b);
    int bits = 55;
    for (uint64_t n = under; n; n >>= 1) bits++;
    for (uint64_t n = over; n; n >>= 1) bits--;
    int shift = bits > 0 ? bits : 0;
    unsigned __int128 wide = static_cast<unsigned __int128>(over) << shift;
    uint64_t quotient = static_cast<uint64_t>(wide / under);
    if (wide % under) quotient |= 1;
    double result = std::ldexp(static_cast<double>(quotient), -shift);
    return (a < 0) != (b < 0) ? -result : result;
}

Number to_integer(double value) {
    if (!(value >= -0x1p63 && value < 0x1p63)) too_large();
    return Number::of(static_cast<int64_t>(value));
}

// -1, 0 or 1, or 2 if one is NaN. Python compares an integer and a float exactly; a long double holds both.
int compared(const Number &a, const Number &b) {
    if (!a.is_float() && !b.is_float()) return (a.integer > b.integer) - (a.integer < b.integer);
    long double x = a.is_float() ? static_cast<long double>(a.real) : static_cast<long double>(a.integer);
    long double y = b.is_float() ? static_cast<long double>(b.real) : static_cast<long double>(b.integer);
    return std::isnan(x) || std::isnan(y) ? 2 : (x > y) - (x < y);
}

bool any_float(const Number *a, size_t count) {
    for (size_t k = 0; k < count; k++)
        if (a[k].is_float()) return true;
    return false;
}

Number sum_or_product(Function function, const Number *a, size_t count) {
    Number result = a[0].kind == Number::Kind::Bool ? Number::of(a[0].integer) : a[0];
    for (size_t k = 1; k < count; k++) {
        if (result.is_float() || a[k].is_float()) {
            double x = result.as_double(), y = a[k].as_double();
            result = Number::of_float(function == Function::Add ? x + y : x * y);
        } else {
            result.integer = function == Function::Add ? added(result.integer, a[k].integer)
                                                       : multiplied(result.integer, a[k].integer);
        }
    }
    return result;
}

Number extreme(Function function, const Number *a, size_t count) {
    const Number *best = a;
    int sign = function == Function::Max ? 1 : -1;
    for (size_t k = 1; k < count; k++)
        if (compared(a[k], *best) == sign) best = a + k;
    return any_float(a, count) ? Number::of_float(best->as_double()) : *best;
}

Number bitwise(Function function, const Number *a, size_t count) {
    Number result = a[0];
    for (size_t k = 1; k < count; k++) {
        int64_t x = result.integer, y = a[k].integer;
        result.integer = function == Function::BitAnd ? (x & y) : function == Function::BitOr ? (x | y) : (x ^ y);
        if (a[k].kind == Number::Kind::Int) result.kind = Number::Kind::Int;
    }
    return result;
}

Number logic(Function function, const Number *a, size_t count) {
    size_t holding = 0;
    for (size_t k = 0; k < count; k++) holding += a[k].truth();
    switch (function) {
        case Function::And: return Number::of_bool(holding == count);
        case Function::Or: return Number::of_bool(holding > 0);
        case Function::Xor: return Number::of_bool(holding % 2 == 1);
        case Function::Not: return Number::of_bool(holding == 0);
        case Function::Implies: return Number::of_bool(!a[0].truth() || a[1].truth());
        default: return Number::of_bool(holding == 0 || holding == count);  // Equivalent
    }
}

Number relation(Function function, const Number *a) {
    int order = compared(a[0], a[1]);
    switch (function) {
        case Function::Equal: return Number::of_bool(order == 0);
        case Function::NotEqual: return Number::of_bool(order != 0);
        case Function::Less: return Number::of_bool(order == -1);
        case Function::LessEqual: return Number::of_bool(order == -1 || order == 0);
        case Function::Greater: return Number::of_bool(order == 1);
        default: return Number::of_bool(order == 1 || order == 0);
    }
}

Number rounded(Function function, const Number &a) {
    if (!a.is_float()) return Number::of(a.integer);
    switch (function) {
        case Function::Floor: return to_integer(std::floor(a.real));
        case Function::Ceiling: return to_integer(std::ceil(a.real));
        case Function::Round: return to_integer(std::nearbyint(a.real));  // to even, as Python does
        default: return to_integer(std::trunc(a.real));
    }
}

Number divided_by(Function function, const Number *a) {
    bool floats = a[0].is_float() || a[1].is_float();
    double x = a[0].as_double(), y = a[1].as_double();
    switch (function) {
        case Function::FloorDiv:
            return floats ? Number::of_float(float_floor_divided(x, y))
                          : Number::of(floor_divided(a[0].integer, a[1].integer));
        case Function::CeilDiv:
            return floats ? Number::of_float(-float_floor_divided(-x, y))
                          : Number::of(negated(floor_divided(negated(a[0].integer), a[1].integer)));
        case Function::Mod:
            return floats ? Number::of_float(float_modulo(x, y)) : Number::of(modulo(a[0].integer, a[1].integer));
        default:
            if (!floats) return Number::of_float(true_divided(a[0].integer, a[1].integer));
            if (y == 0) by_zero();
            return Number::of_float(x / y);
    }
}

Number raised(Function function, const Number *a) {
    if (function == Function::Pow && !a[0].is_float() && !a[1].is_float())
        return Number::of(power(a[0].integer, a[1].integer));
    double x = a[0].as_double(), y = a[1].as_double();
    if (x == 0 && y < 0) by_zero();
    double result = std::pow(x, y);
    if (std::isnan(result) && !std::isnan(x) && !std::isnan(y)) no_domain();
    if (std::isinf(result) && !std::isinf(x) && !std::isinf(y))
        failed("A float that is computed from sizes is too large.");
    return Number::of_float(result);
}

Number shifted(Function function, const Number *a) {
    int64_t by = a[1].integer;
    if (by < 0) no_domain();
    if (function == Function::RShift) return Number::of(by > 63 ? (a[0].integer < 0 ? -1 : 0) : a[0].integer >> by);
    return Number::of(a[0].integer == 0 ? 0 : by > 62 ? (too_large(), 0) : multiplied(a[0].integer, int64_t{1} << by));
}

Number of_math(Function function, const Number &argument) {
    double x = argument.as_double(), y = 0;
    switch (function) {
        case Function::Sqrt: y = std::sqrt(x); break;
        case Function::Cos: y = std::cos(x); break;
        case Function::Cosh: y = std::cosh(x); break;
        case Function::Sin: y = std::sin(x); break;
        case Function::Sinh: y = std::sinh(x); break;
        case Function::Tan: y = std::tan(x); break;
        case Function::Tanh: y = std::tanh(x); break;
        case Function::Asin: y = std::asin(x); break;
        case Function::Acos: y = std::acos(x); break;
        case Function::Atan: y = std::atan(x); break;
        case Function::Exp: y = std::exp(x); break;
        case Function::Log: y = std::log(x); break;
        case Function::Asinh: y = std::asinh(x); break;
        case Function::Log2: y = std::log2(x); break;
        case Function::Acosh: y = std::acosh(x); break;
        default: y = std::atanh(x); break;
    }
    if (!std::isfinite(y) && std::isfinite(x)) no_domain();
    return Number::of_float(y);
}

Number of_one(Function function, const Number &a) {
    int64_t bits;
    double real;
    switch (function) {
        case Function::Abs:
            return a.is_float() ? Number::of_float(std::fabs(a.real))
                                : Number::of(a.integer < 0 ? negated(a.integer) : a.integer);
        case Function::Sign: return Number::of((a.as_double() > 0) - (a.as_double() < 0));
        case Function::TruncToFloat: return Number::of_float(std::trunc(a.as_double()));
        case Function::Frac: return a.is_float() ? Number::of_float(a.real - std::floor(a.real)) : Number::of(0);
        case Function::ToFloat: return Number::of_float(a.as_double());
        case Function::ToBool: return Number::of_bool(a.truth());
        case Function::Identity: return a;
        case Function::BitsOfFloat:
            real = a.as_double();
            memcpy(&bits, &real, 8);
            return Number::of(bits);
        case Function::FloatOfBits: memcpy(&real, &a.integer, 8); return Number::of_float(real);
        case Function::Floor:
        case Function::Ceiling:
        case Function::Trunc:
        case Function::Round:
        case Function::ToInt: return rounded(function, a);
        default: return of_math(function, a);
    }
}

}  // namespace

const Signature *function_named(const std::string &name) {
    for (const Signature &each : SIGNATURES)
        if (name == each.name) return &each;
    return nullptr;
}

Number applied(Function function, const Number *a, size_t count) {
    switch (function) {
        case Function::Add:
        case Function::Mul: return sum_or_product(function, a, count);
        case Function::Pow:
        case Function::FloatPow: return raised(function, a);
        case Function::FloorDiv:
        case Function::CeilDiv:
        case Function::Mod:
        case Function::TrueDiv: return divided_by(function, a);
        case Function::ModularIndexing:
            return Number::of(modulo(floor_divided(a[0].integer, a[1].integer), a[2].integer));
        case Function::LShift:
        case Function::RShift: return shifted(function, a);
        case Function::BitAnd:
        case Function::BitOr:
        case Function::BitXor: return bitwise(function, a, count);
        case Function::Max:
        case Function::Min: return extreme(function, a, count);
        case Function::And:
        case Function::Or:
        case Function::Not:
        case Function::Xor:
        case Function::Implies:
        case Function::Equivalent: return logic(function, a, count);
        case Function::Equal:
        case Function::NotEqual:
        case Function::Less:
        case Function::LessEqual:
        case Function::Greater:
        case Function::GreaterEqual: return relation(function, a);
        case Function::Atan2: return Number::of_float(std::atan2(a[0].as_double(), a[1].as_double()));
        default: return of_one(function, a[0]);
    }
}

}  // namespace keel
