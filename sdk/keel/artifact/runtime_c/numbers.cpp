#include "numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "failure.h"
#include "functions.h"

namespace keel {

namespace {

constexpr uint32_t DEEPEST = 2000;  // functions within functions, each of which takes a frame of the stack

}  // namespace

bool Number::operator==(const Number &other) const {
    return kind == other.kind && integer == other.integer && memcmp(&real, &other.real, sizeof real) == 0;
}

std::string Number::text() const {
    if (kind == Kind::Bool) return integer ? "True" : "False";
    return is_float() ? words("%.17g", real) : std::to_string(integer);
}

int64_t divided(int64_t value, int64_t rest, int64_t by) {
    Number over;
    if (__builtin_sub_overflow(value, rest, &over.integer)) failed("A size has more than 64 bits.");
    Number arguments[2] = {over, Number::of(by)};
    return applied(Function::FloorDiv, arguments, 2).integer;
}

Expressions::Expressions(const Json &table, const Json &symbols) {
    for (const Json &name : symbols.list()) names_.push_back(name.text());
    users_.resize(names_.size());
    for (const Json &row : table.list()) {
        uint32_t id = static_cast<uint32_t>(entries_.size());
        const std::string &name = row.at(0).text();
        depth_.push_back(0);
        entries_.push_back(name.size() == 1 ? literal(name, row, id) : applied(name, row, id));
    }
}

Expressions::Entry Expressions::literal(const std::string &kind, const Json &row, uint32_t id) {
    const Json &value = row.list(2)[1];
    Entry entry;
    entry.function = Function::Literal;
    if (kind == "i") {
        entry.literal = Number::of(value.integer());
    } else if (kind == "b") {
        entry.literal = Number::of_bool(value.integer(0, 1) != 0);
    } else if (kind == "f") {
        char *rest = nullptr;
        entry.literal = Number::of_float(strtod(value.text().c_str(), &rest));
        if (value.text().empty() || *rest != 0) bad_package("A float in the package is malformed.");
    } else if (kind == "s") {
        entry.function = Function::Symbol;
        entry.is_static = false;
        entry.first = value.index(names_.size());
        users_[entry.first].push_back(id);
    } else {
        bad_package("The package has an unknown kind of number: " + kind + ".");
    }
    return entry;
}

Expressions::Entry Expressions::applied(const std::string &name, const Json &row, uint32_t id) {
    const Signature *known = function_named(name);
    size_t count = row.list().size() - 1;
    if (known == nullptr) bad_package("The package has an unknown function of sizes: " + name + ".");
    if (count < known->fewest || count > known->most || (known->function == Function::Cases && count % 2 != 0))
        bad_package("The package has a wrong number of arguments of " + name + ".");
    Entry entry;
    entry.function = known->function;
    entry.first = static_cast<uint32_t>(arguments_.size());
    entry.count = static_cast<uint32_t>(count);
    for (size_t k = 1; k <= count; k++) {
        uint32_t argument = row.at(k).index(id);
        arguments_.push_back(argument);
        entry.is_static = entry.is_static && entries_[argument].is_static;
        depth_[id] = std::max(depth_[id], depth_[argument] + 1);
    }
    if (depth_[id] > DEEPEST) bad_package("A number in the package is nested too deeply.");
    for (size_t k = entry.first; k < arguments_.size(); k++)
        for (uint32_t symbol : symbols_of(arguments_[k]))
            if (users_[symbol].back() != id) users_[symbol].push_back(id);
    return entry;
}

std::vector<uint32_t> Expressions::symbols_of(uint32_t id) const {
    std::vector<uint32_t> found;
    if (entries_[id].is_static) return found;
    for (uint32_t symbol = 0; symbol < users_.size(); symbol++)
        if (std::binary_search(users_[symbol].begin(), users_[symbol].end(), id)) found.push_back(symbol);
    return found;
}

Values::Values(const Expressions &expressions)
    : expressions_(&expressions),
      values_(expressions.size()),
      symbols_(expressions.symbols()),
      ready_(expressions.size()),
      bound_(expressions.symbols()) {}

bool Values::set(uint32_t symbol, Number value) {
    if (bound_[symbol] && symbols_[symbol] == value) return false;
    symbols_[symbol] = value;
    bound_[symbol] = 1;
    for (uint32_t user : expressions_->users(symbol)) ready_[user] = 0;
    return true;
}

void Values::evaluate(uint32_t id) {
    const Expressions::Entry &entry = expressions_->entries_[id];
    const uint32_t *arguments = expressions_->arguments_.data() + entry.first;
    Number few[8], *passed = few;
    std::vector<Number> many;
    switch (entry.function) {
        case Function::Literal: values_[id] = entry.literal; break;
        case Function::Symbol: values_[id] = symbols_[entry.first]; break;
        case Function::Where:  // the other branch may fail
            values_[id] = of(arguments[of(arguments[0]).truth() ? 1 : 2]);
            break;
        case Function::Cases:
            values_[id] = Number::of_float(NAN);
            for (uint32_t k = 0; k < entry.count; k += 2)
                if (of(arguments[k + 1]).truth()) {
                    values_[id] = of(arguments[k]);
                    break;
                }
            break;
        default:
            if (entry.count > 8) {
                many.resize(entry.count);
                passed = many.data();
            }
            for (uint32_t k = 0; k < entry.count; k++) passed[k] = of(arguments[k]);
            values_[id] = keel::applied(entry.function, passed, entry.count);
    }
    ready_[id] = 1;
}

}  // namespace keel
