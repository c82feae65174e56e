#include "library_call.h"

#include <cstring>

#include "failure.h"

namespace keel {

namespace {

struct CSignature {
    const char *name;
    CFunction function;
    const char *arguments;  // t: a tensor, s: a tensor or a number in its place, f: a float
    size_t results;
};

constexpr CSignature C_FUNCTIONS[] = {
    {"mm_out", CFunction::Mm, "ttt", 0},          {"bmm_out", CFunction::Bmm, "ttt", 0},
    {"addmm_out", CFunction::Addmm, "ttttff", 0}, {"baddbmm_out", CFunction::Baddbmm, "ttttff", 0},
    {"add_Tensor", CFunction::Add, "tsf", 1},
};

bool is_there(const Libtorch &torch, CFunction function) {
    switch (function) {
        case CFunction::Mm: return torch.mm_out != nullptr;
        case CFunction::Bmm: return torch.bmm_out != nullptr;
        case CFunction::Addmm: return torch.addmm_out != nullptr;
        case CFunction::Baddbmm: return torch.baddbmm_out != nullptr;
        case CFunction::Add: return torch.add_tensor != nullptr;
        default: return true;
    }
}

bool fits(const CSignature &known, const Call &call) {
    size_t count = strlen(known.arguments);
    if (call.arguments.size() != count || call.results.size() != known.results) return false;
    for (size_t k = 0; k < count; k++) {
        const Argument &argument = call.arguments[k];
        bool tensor = argument.kind == Argument::Kind::Tensor;
        bool right = known.arguments[k] == 't'   ? tensor
                     : known.arguments[k] == 's' ? tensor || argument.kind == Argument::Kind::ScalarTensor
                                                 : argument.kind == Argument::Kind::Real;
        if (!right || argument.is_optional) return false;
    }
    return true;
}

void prepare(Argument &argument, const Libtorch &torch) {
    if (argument.kind == Argument::Kind::Word) argument.code = torch.word(argument.type, argument.text);
    if (argument.kind == Argument::Kind::Device) argument.code = torch.device(argument.text == "cuda");
    for (Argument &each : argument.items) prepare(each, torch);
}

}  // namespace

void prepare(Call &call, const Libtorch &torch) {
    for (Argument &each : call.arguments) prepare(each, torch);
    if (call.function.empty()) return;
    for (const CSignature &known : C_FUNCTIONS) {
        if (call.function != "aoti_torch_" + torch.device_name() + "_" + known.name) continue;
        if (!fits(known, call)) bad_package("The package calls " + call.function + " with wrong arguments.");
        if (!is_there(torch, known.function))
            throw Failure(KEEL_NOT_HERE, "This libtorch has no " + call.function + ", which the package calls.");
        call.c_function = known.function;
        return;
    }
    bad_package("The package calls a function that this runtime does not know: " + call.function + ".");
}

StableValue bits_of(double value) {
    StableValue bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

Handle scalar_tensor(const Libtorch &torch, const Argument &argument, Values &numbers) {
    Handle made = nullptr;
    const Number &value = numbers.of(argument.at);
    int32_t error = argument.text == "float"  ? torch.scalar_float64(value.as_double(), &made)
                    : argument.text == "bool" ? torch.scalar_bool(value.truth(), &made)
                                              : torch.scalar_int64(value.integer, &made);
    torch.check(error, "Passing a number to libtorch");
    return made;
}

Stack::~Stack() {
    for (size_t k = 0; k < values_.size(); k++)
        if (is_tensor_[k]) torch_.delete_tensor(reinterpret_cast<Handle>(values_[k]));
}

void Stack::add(StableValue value, bool is_tensor) {
    values_.push_back(value);
    is_tensor_.push_back(is_tensor);
}

StableValue Stack::boxed(StableValue value) const {
    StableValue *box = nullptr;
    if (torch_.new_optional)
        torch_.check(torch_.new_optional(&box), "Passing an argument to libtorch");
    else
        box = new StableValue;
    *box = value;
    return reinterpret_cast<StableValue>(box);
}

StableValue Stack::list(const std::vector<StableValue> &values) const {
    ListHandle made = nullptr;
    torch_.check(torch_.new_list(values.size(), &made), "Passing a list to libtorch");
    for (StableValue each : values) torch_.check(torch_.list_push(made, each), "Passing a list to libtorch");
    return reinterpret_cast<StableValue>(made);
}

Stack &Stack::tensor(Handle handle) {
    add(reinterpret_cast<StableValue>(torch_.duplicate(handle)), true);
    return *this;
}

Stack &Stack::optional_tensor(Handle handle) {
    add(handle ? boxed(reinterpret_cast<StableValue>(torch_.duplicate(handle))) : 0);
    return *this;
}

Stack &Stack::integer(int64_t value) {
    add(static_cast<StableValue>(value));
    return *this;
}

Stack &Stack::integers(const std::vector<int64_t> &values) {
    add(list({values.begin(), values.end()}));
    return *this;
}

Stack &Stack::optional_integers(const std::vector<int64_t> &values) {
    add(boxed(list({values.begin(), values.end()})));
    return *this;
}

Stack &Stack::optional_integer(int64_t value) {
    add(boxed(static_cast<StableValue>(value)));
    return *this;
}

void Stack::call(const std::string &name, const std::string &overload, size_t results) {
    if (values_.size() < results) values_.resize(results);
    is_tensor_.assign(values_.size(), 0);  // the arguments are libtorch's from here on
    torch_.check(torch_.call(name.c_str(), overload.c_str(), values_.data(), torch_.version()), name);
}

Handle Stack::call(const std::string &name, const std::string &overload) {
    call(name, overload, 1);
    Handle made = reinterpret_cast<Handle>(values_[0]);
    clear();
    return made;
}

void take_results(const Libtorch &torch, const Call &call, Stack &stack, std::vector<Handle> &results) {
    std::vector<Handle> made;
    if (call.returns_list) {
        ListHandle list = reinterpret_cast<ListHandle>(stack.result(0));
        size_t size = 0;
        torch.check(torch.list_size(list, &size), call.operator_name);
        for (size_t k = 0; k < size; k++) {
            StableValue item = 0;
            torch.check(torch.list_get(list, k, &item), call.operator_name);
            made.push_back(reinterpret_cast<Handle>(item));
        }
        torch.delete_list(list);
    } else {
        for (size_t k = 0; k < call.returns_tensor.size(); k++)
            made.push_back(call.returns_tensor[k] ? reinterpret_cast<Handle>(stack.result(k)) : nullptr);
    }
    bool fits = made.size() >= call.results.size();
    for (size_t k = 0; k < made.size(); k++) {
        bool wanted = fits && k < call.results.size() && call.results[k] != NOTHING;
        if (made[k] != nullptr && (!wanted || !torch.is_defined(made[k]))) {
            torch.delete_tensor(made[k]);
            made[k] = nullptr;
        }
        if (fits && k < call.results.size()) results.push_back(made[k]);
    }
    if (!fits) failed(call.operator_name + " returned too few results.");
}

}  // namespace keel
