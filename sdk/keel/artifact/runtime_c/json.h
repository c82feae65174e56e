// JSON, as the manifest and the programs of a package are written: values that are read once and not changed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {

class Json {
  public:
    enum class Kind : uint8_t { Null, Bool, Int, Float, Text, List, Record };

    // Throws KEEL_BAD_PACKAGE for what is not JSON, is nested too deeply, or has numbers beyond int64.
    static Json parse(std::string_view text);

    Kind kind() const { return kind_; }
    bool is_null() const { return kind_ == Kind::Null; }
    bool is_text() const { return kind_ == Kind::Text; }
    bool is_list() const { return kind_ == Kind::List; }
    bool is_record() const { return kind_ == Kind::Record; }
    bool is_int() const { return kind_ == Kind::Int; }

    // Each throws KEEL_BAD_PACKAGE if the value is of another kind, or not in the range.
    bool flag() const;
    int64_t integer() const;
    int64_t integer(int64_t low, int64_t high) const;  // both inclusive
    uint32_t index(size_t count) const;                // less than `count`
    double real() const;
    const std::string &text() const;
    const std::vector<Json> &list() const;
    const std::vector<Json> &list(size_t count) const;  // of this length
    const Json &at(size_t position) const;              // of a list
    const Json &operator[](const char *key) const;      // of a record, which must have it
    const Json *find(const char *key) const;            // of a record; null if it does not have it

  private:
    friend class JsonReader;
    Kind kind_ = Kind::Null;
    bool flag_ = false;
    int64_t integer_ = 0;
    double real_ = 0;
    std::string text_;
    std::vector<Json> list_;  // of a record: its values
    std::vector<std::string> keys_;
};

}  // namespace keel
