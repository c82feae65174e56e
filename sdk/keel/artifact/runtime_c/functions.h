// The functions of expressions, by the names of the symbolic language.
#pragma once

#include <cstddef>
#include <string>

#include "numbers.h"

namespace keel {

enum class Function : uint8_t {
    Literal,
    Symbol,
    Add,
    Mul,
    Pow,
    FloatPow,
    FloorDiv,
    CeilDiv,
    ModularIndexing,
    Mod,
    TrueDiv,
    LShift,
    RShift,
    BitAnd,
    BitOr,
    BitXor,
    Max,
    Min,
    Abs,
    Sign,
    Floor,
    Ceiling,
    Trunc,
    TruncToFloat,
    Frac,
    Round,
    ToFloat,
    ToInt,
    ToBool,
    Identity,
    Where,
    Cases,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
    Not,
    Xor,
    Implies,
    Equivalent,
    Sqrt,
    Cos,
    Cosh,
    Sin,
    Sinh,
    Tan,
    Tanh,
    Asin,
    Acos,
    Atan,
    Exp,
    Log,
    Asinh,
    Log2,
    Acosh,
    Atanh,
    BitsOfFloat,
    FloatOfBits,
    Atan2
};

struct Signature {
    const char *name;
    Function function;
    size_t fewest, most;  // numbers of arguments
};

// The function of a name; null if there is none.
const Signature *function_named(const std::string &name);

// The value of a function that evaluates all its arguments. Throws KEEL_FAILED.
Number applied(Function function, const Number *arguments, size_t count);

}  // namespace keel
