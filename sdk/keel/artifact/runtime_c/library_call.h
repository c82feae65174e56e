// Calls of PyTorch's operators through libtorch's stable C interface.
#pragma once

#include <vector>

#include "libtorch.h"
#include "numbers.h"
#include "program.h"

namespace keel {

// The arguments of an operator, or its results, as the dispatcher of libtorch takes them.
class Stack {
  public:
    explicit Stack(const Libtorch &torch) : torch_(torch) {}
    ~Stack();  // deletes the tensors that were not passed on
    Stack(const Stack &) = delete;
    Stack &operator=(const Stack &) = delete;

    // Tensors are borrowed; null is None.
    Stack &tensor(Handle handle);
    Stack &optional_tensor(Handle handle);
    Stack &integer(int64_t value);
    Stack &integers(const std::vector<int64_t> &values);
    Stack &optional_integers(const std::vector<int64_t> &values);
    Stack &optional_integer(int64_t value);

    // Pushes an argument of a program. `tensors` returns a borrowed handle of a slot.
    template <typename Tensors>
    void push(const Argument &argument, Tensors &&tensors, Values &numbers) {
        values_.push_back(value(argument, tensors, numbers));
        is_tensor_.push_back(argument.kind == Argument::Kind::Tensor && !argument.is_optional);
    }

    // Calls an operator. The results are in the place of the arguments.
    void call(const std::string &name, const std::string &overload, size_t results);

    // Calls an operator with one result, which is a tensor that the caller owns.
    Handle call(const std::string &name, const std::string &overload);

    StableValue result(size_t k) const { return values_[k]; }
    void clear() { values_.clear(), is_tensor_.clear(); }

  private:
    template <typename Tensors>
    StableValue value(const Argument &argument, Tensors &&tensors, Values &numbers);
    void add(StableValue value, bool is_tensor = false);
    StableValue boxed(StableValue value) const;
    StableValue list(const std::vector<StableValue> &values) const;

    const Libtorch &torch_;
    std::vector<StableValue> values_;
    std::vector<uint8_t> is_tensor_;
};

// Looks up what a call names in libtorch. Throws KEEL_NOT_HERE, or KEEL_BAD_PACKAGE for a C function that is called
// with other arguments than it has.
void prepare(Call &call, const Libtorch &torch);

// Calls an operator. Appends a handle for each of the call's results: the caller owns them, and they are null for
// results that are dropped or None. `tensors` returns a borrowed handle of a slot.
template <typename Tensors>
void run_call(const Libtorch &torch, const Call &call, Tensors &&tensors, Values &numbers,
              std::vector<Handle> &results);

// -- templates ------------------------------------------------------------------------------------------------------

Handle scalar_tensor(const Libtorch &torch, const Argument &argument, Values &numbers);
void take_results(const Libtorch &torch, const Call &call, Stack &stack, std::vector<Handle> &results);
StableValue bits_of(double value);

template <typename Tensors>
StableValue Stack::value(const Argument &argument, Tensors &&tensors, Values &numbers) {
    StableValue made = 0;
    switch (argument.kind) {
        case Argument::Kind::None: return 0;
        case Argument::Kind::Tensor:
            made = reinterpret_cast<StableValue>(torch_.duplicate(tensors(argument.at)));
            break;
        case Argument::Kind::ScalarTensor:
            made = reinterpret_cast<StableValue>(scalar_tensor(torch_, argument, numbers));
            break;
        case Argument::Kind::Integer: made = static_cast<StableValue>(numbers.integer(argument.at)); break;
        case Argument::Kind::Real: made = bits_of(numbers.of(argument.at).as_double()); break;
        case Argument::Kind::Truth: made = numbers.of(argument.at).truth(); break;
        case Argument::Kind::Word: made = static_cast<uint32_t>(argument.code); break;
        case Argument::Kind::Device: made = static_cast<StableValue>(static_cast<uint32_t>(argument.code)) << 32; break;
        case Argument::Kind::Text: {
            StringHandle text = nullptr;
            torch_.check(torch_.new_string(argument.text.data(), argument.text.size(), &text),
                         "Passing a text to libtorch");
            made = reinterpret_cast<StableValue>(text);
            break;
        }
        case Argument::Kind::List: {
            std::vector<StableValue> items;
            for (const Argument &each : argument.items) items.push_back(value(each, tensors, numbers));
            made = list(items);
        }
    }
    return argument.is_optional ? boxed(made) : made;
}

template <typename Tensors>
void run_call(const Libtorch &torch, const Call &call, Tensors &&tensors, Values &numbers,
              std::vector<Handle> &results) {
    const std::vector<Argument> &a = call.arguments;
    auto real = [&](size_t k) { return numbers.of(a[k].at).as_double(); };
    auto at = [&](size_t k) { return tensors(a[k].at); };
    int32_t error = 0;
    Handle made = nullptr;
    switch (call.c_function) {
        case CFunction::None: {
            Stack stack(torch);
            for (const Argument &each : a) stack.push(each, tensors, numbers);
            stack.call(call.name, call.overload, call.returns_tensor.size());
            return take_results(torch, call, stack, results);
        }
        case CFunction::Mm: error = torch.mm_out(at(0), at(1), at(2)); break;
        case CFunction::Bmm: error = torch.bmm_out(at(0), at(1), at(2)); break;
        case CFunction::Addmm: error = torch.addmm_out(at(0), at(1), at(2), at(3), real(4), real(5)); break;
        case CFunction::Baddbmm: error = torch.baddbmm_out(at(0), at(1), at(2), at(3), real(4), real(5)); break;
        case CFunction::Add: {
            Handle scalar = a[1].kind == Argument::Kind::ScalarTensor ? scalar_tensor(torch, a[1], numbers) : nullptr;
            error = torch.add_tensor(at(0), scalar ? scalar : at(1), real(2), &made);
            if (scalar) torch.delete_tensor(scalar);
        }
    }
    torch.check(error, call.operator_name);
    if (!call.results.empty()) results.push_back(made);
}

}  // namespace keel
