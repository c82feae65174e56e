// A program: what one call does, step by step. It is read once, checked, and not changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "json.h"
#include "numbers.h"
#include "tensor.h"

namespace keel {

constexpr uint32_t NOTHING = UINT32_MAX;

struct Type {
    const DType *dtype = nullptr;
    std::vector<uint32_t> shape, strides;  // expressions
    bool is_static = true, on_device = false;
};

struct Input {
    std::string name;
    const DType *dtype = nullptr;  // of a number: int64, float64 or bool
    bool is_number = false, on_device = false;
    uint32_t symbol = 0;                   // of a number
    uint32_t slot = 0;                     // of a tensor, as the caller passes it
    std::vector<uint32_t> shape, strides;  // expressions, or NOTHING where any value is right
    std::vector<int64_t> sizes;            // for the user: -1 where not static
};

struct Output {
    enum class Kind : uint8_t { Tensor, Number, None };
    std::string name;
    Kind kind = Kind::None;
    uint32_t at = 0;  // the slot, or the expression
    const DType *dtype = nullptr;
};

struct WeightUse {
    std::string name;
    uint32_t type, slot;
    bool written;
};

struct CodeMember {
    std::string kind, member;
};

// A launch of a function of a device. Of those of one step, the first whose conditions hold is launched.
struct DeviceLaunch {
    enum class Kind : uint8_t { Buffer, Int32, Int64, Null };
    struct Parameter {
        Kind kind;
        uint32_t at = 0;  // the buffer, or the expression
    };
    uint32_t code = 0, step = 0, rank = 0, alignment = 1, shared = 0;
    std::string name;
    std::vector<uint32_t> conditions, grid, block;
    std::vector<Parameter> parameters;
};

struct KernelUse {
    uint32_t code = 0;
    std::string name;
    uint32_t buffers = 0, symbols = 0;
    std::vector<DeviceLaunch> launches;  // of a device, by step and rank; a C function has none
    bool on_device = false;
};

// An argument of a library call.
struct Argument {
    enum class Kind : uint8_t { None, Tensor, Integer, Real, Truth, Word, Device, Text, List, ScalarTensor };
    Kind kind = Kind::None;
    bool is_optional = false;
    uint32_t at = 0;         // the slot or the expression
    int32_t code = 0;        // of a word, in libtorch
    std::string type, text;  // of a word: its kind and name
    std::vector<Argument> items;
};

enum class CFunction : uint8_t { None, Mm, Bmm, Addmm, Baddbmm, Add };

struct Call {
    CFunction c_function = CFunction::None;  // what `function` names
    std::string operator_name, name, overload;
    std::string function;  // a C function instead of the operator; "" for none
    std::vector<Argument> arguments;
    std::vector<uint32_t> results;  // slots, or NOTHING
    std::vector<uint8_t> returns_tensor;
    bool returns_list = false;
};

struct ArenaTensor {
    uint32_t slot, type, first, last;
};

struct ArenaView {
    uint32_t slot, type, base, offset;
};

struct CheckSite {
    std::string operator_name, line, bound_text;
    uint32_t bound = NOTHING;
    bool wraps = false;
};

struct Arena {
    std::vector<ArenaTensor> tensors;
    std::vector<ArenaView> views;
    std::vector<CheckSite> sites;
    std::vector<ArenaView> places;  // of check memory; `offset` is the number of the first site, `base` is not used
};

// Memory of the host in which kernels of a device record wrong indices.
struct Record {
    std::vector<CheckSite> sites;
    std::vector<ArenaView> places;
};

// A library call whose weight is packed once, with what is computed from parameters folded into it.
struct Packed {
    enum class Output : uint8_t { None, Value, Number };
    struct Computed {
        Output kind = Output::None;
        uint32_t at = 0;  // a value of the recipe, or an expression
    };
    bool is_convolution = false, adds = false;
    uint32_t channels = 0, parameters = 0;
    std::vector<Call> recipe;
    std::vector<Computed> outputs;
    std::vector<char> folded;  // + - * /
    std::string then;          // the form's name of an operator on the result; "" for none
    Call then_call;
    std::vector<int64_t> stride, padding, dilation;
    int64_t groups = 1;
};

struct PartUse {
    std::string backend, member;
};

struct PartArgument {
    bool is_number = false;
    uint32_t at = 0;
    const DType *dtype = nullptr;  // of a number
};

struct Step {
    enum class Kind : uint8_t {
        Bind,
        Compute,
        Enter,
        Range,
        Guard,
        TakeArena,
        GiveArena,
        Allocate,
        Reuse,
        View,
        Launch,
        Library,
        Packed,
        LayOut,
        Check,
        Assert,
        Free,
        Copy,
        Clone,
        Part,
        Read,
        Record,
        Settle
    };
    enum class Source : uint8_t { Number, Size, Stride };
    Kind kind;
    Source source = Source::Number;
    uint32_t a = 0, b = 0, c = 0, d = 0, e = 0;  // what they are is in the comments of ProgramReader
    std::vector<uint32_t> slots, numbers;
    bool has_low = false, has_high = false;
    int64_t low = 0, high = 0;
    std::string text;
    Call call;
    std::vector<PartArgument> passed;
};

struct Program {
    Expressions expressions;
    std::vector<Type> types;
    uint32_t slots = 0;
    std::vector<Input> inputs;
    std::vector<Output> outputs;
    std::vector<WeightUse> weights;
    std::vector<CodeMember> code;
    std::vector<KernelUse> functions;
    std::vector<Arena> arenas;
    std::vector<Record> records;
    std::vector<Packed> packed;
    std::vector<PartUse> parts;
    std::vector<Step> steps;
    std::vector<std::vector<uint32_t>> types_of_symbol;  // the types that a symbol occurs in

    bool calls_libraries() const;
    bool writes_weights() const;
    bool uses_device() const;
};

constexpr uint32_t MOST_PARAMETERS = 128;  // of a kernel

// Reads a program. Throws KEEL_BAD_PACKAGE if it is of another version, if a name in it does not exist, or if a step
// uses a value that no earlier step defines.
Program read_program(const Json &data);

}  // namespace keel
