// Numbers that a program computes from sizes: expressions over symbols, evaluated as Python does, on int64 and double.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "json.h"

namespace keel {

struct Number {
    enum class Kind : uint8_t { Int, Float, Bool };

    Kind kind = Kind::Int;
    int64_t integer = 0;  // of a Bool: 0 or 1
    double real = 0;

    static Number of(int64_t value) { return {Kind::Int, value, 0}; }
    static Number of_float(double value) { return {Kind::Float, 0, value}; }
    static Number of_bool(bool value) { return {Kind::Bool, value, 0}; }

    bool is_float() const { return kind == Kind::Float; }
    double as_double() const { return is_float() ? real : static_cast<double>(integer); }
    bool truth() const { return is_float() ? real != 0 : integer != 0; }
    bool operator==(const Number &other) const;  // of the same kind and bits
    std::string text() const;
};

enum class Function : uint8_t;

// The expressions of a program. Each is a literal, a symbol, or a function of earlier ones.
class Expressions {
  public:
    Expressions() = default;

    // Throws KEEL_BAD_PACKAGE for an unknown function, a wrong number of arguments, or a reference that is not earlier.
    Expressions(const Json &table, const Json &symbols);

    size_t size() const { return entries_.size(); }
    size_t symbols() const { return names_.size(); }
    const std::string &name(uint32_t symbol) const { return names_[symbol]; }
    bool is_static(uint32_t id) const { return entries_[id].is_static; }

    // The expressions that a symbol occurs in.
    const std::vector<uint32_t> &users(uint32_t symbol) const { return users_[symbol]; }

    // The symbols in an expression, each once.
    std::vector<uint32_t> symbols_of(uint32_t id) const;

  private:
    friend class Values;
    struct Entry {
        Function function{};
        bool is_static = true;
        uint32_t first = 0, count = 0;  // its arguments in arguments_; of a symbol: its number
        Number literal;
    };

    Entry literal(const std::string &kind, const Json &row, uint32_t id);
    Entry applied(const std::string &name, const Json &row, uint32_t id);

    std::vector<Entry> entries_;
    std::vector<uint32_t> arguments_, depth_;
    std::vector<std::string> names_;
    std::vector<std::vector<uint32_t>> users_;
};

// The values of symbols, and of the expressions that have been evaluated with them. For one thread at a time.
class Values {
  public:
    explicit Values(const Expressions &expressions);

    // Sets a symbol, and forgets what was evaluated with another value. Returns true if it has changed.
    bool set(uint32_t symbol, Number value);

    // The value of an expression. Throws KEEL_FAILED for a number beyond int64, a division by zero and the like.
    const Number &of(uint32_t id) {
        if (!ready_[id]) evaluate(id);
        return values_[id];
    }
    int64_t integer(uint32_t id) { return of(id).integer; }
    const Number &symbol(uint32_t symbol) const { return symbols_[symbol]; }

  private:
    void evaluate(uint32_t id);

    const Expressions *expressions_;
    std::vector<Number> values_, symbols_;
    std::vector<uint8_t> ready_, bound_;
};

// (value - rest) // by, as Python divides. Throws KEEL_FAILED.
int64_t divided(int64_t value, int64_t rest, int64_t by);

}  // namespace keel
