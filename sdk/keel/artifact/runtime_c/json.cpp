#include "json.h"

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>

#include "failure.h"

namespace keel {

namespace {

constexpr int DEEPEST = 100;  // a program nests about ten levels

[[noreturn]] void other(const char *wanted) { bad_package(words("A value in the package is not %s.", wanted)); }

}  // namespace

class JsonReader {
  public:
    explicit JsonReader(std::string_view text) : text_(text) {}

    Json all() {
        Json value = read(0);
        blank();
        if (at_ != text_.size()) wrong("has text behind its end");
        return value;
    }

  private:
    [[noreturn]] void wrong(const char *what) const {
        bad_package(words("The JSON in the package %s, at character %zu.", what, at_));
    }

    void blank() {
        while (at_ < text_.size() && strchr(" \t\r\n", text_[at_]) && text_[at_]) at_++;
    }

    char peek() {
        blank();
        if (at_ == text_.size()) wrong("ends early");
        return text_[at_];
    }

    void expect(char mark) {
        if (peek() != mark) wrong("is malformed");
        at_++;
    }

    bool skip(const char *word) {
        size_t length = strlen(word);
        if (text_.compare(at_, length, word) != 0) return false;
        at_ += length;
        return true;
    }

    Json read(int depth) {
        if (depth > DEEPEST) wrong("is nested too deeply");
        Json value;
        char first = peek();
        if (first == '{') {
            record(value, depth);
        } else if (first == '[') {
            list(value, depth);
        } else if (first == '"') {
            value.kind_ = Json::Kind::Text;
            value.text_ = string();
        } else if (skip("null")) {
            value.kind_ = Json::Kind::Null;
        } else if (skip("true")) {
            value.kind_ = Json::Kind::Bool;
            value.flag_ = true;
        } else if (skip("false")) {
            value.kind_ = Json::Kind::Bool;
        } else {
            number(value);
        }
        return value;
    }

    void record(Json &value, int depth) {
        value.kind_ = Json::Kind::Record;
        at_++;
        if (peek() == '}') {
            at_++;
            return;
        }
        for (;;) {
            if (peek() != '"') wrong("has a key that is not text");
            value.keys_.push_back(string());
            expect(':');
            value.list_.push_back(read(depth + 1));
            if (peek() == '}') break;
            expect(',');
        }
        at_++;
    }

    void list(Json &value, int depth) {
        value.kind_ = Json::Kind::List;
        at_++;
        if (peek() == ']') {
            at_++;
            return;
        }
        for (;;) {
            value.list_.push_back(read(depth + 1));
            if (peek() == ']') break;
            expect(',');
        }
        at_++;
    }

    void number(Json &value) {
        size_t end = at_;
        bool whole = true;
        for (; end < text_.size() && text_[end] && strchr("+-.0123456789eE", text_[end]); end++)
            if (strchr(".eE", text_[end])) whole = false;
        std::string digits(text_.substr(at_, end - at_));
        char *rest = nullptr;
        errno = 0;
        if (whole) {
            value.kind_ = Json::Kind::Int;
            value.integer_ = strtoll(digits.c_str(), &rest, 10);
        } else {
            value.kind_ = Json::Kind::Float;
            value.real_ = strtod(digits.c_str(), &rest);
        }
        if (digits.empty() || *rest != 0 || (whole && errno == ERANGE)) wrong("has a malformed number");
        at_ = end;
    }

    std::string string() {
        std::string made;
        for (at_++;;) {
            if (at_ >= text_.size()) wrong("ends early");
            unsigned char c = static_cast<unsigned char>(text_[at_++]);
            if (c == '"') return made;
            if (c < 0x20) wrong("has a control character in a text");
            if (c == '\\')
                escape(made);
            else
                made.push_back(static_cast<char>(c));
        }
    }

    void escape(std::string &made) {
        if (at_ >= text_.size()) wrong("ends early");
        char c = text_[at_++];
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *place = c ? strchr(from, c) : nullptr;
        if (place != nullptr) {
            made.push_back(to[place - from]);
        } else if (c == 'u') {
            uint32_t code = unit();
            if (code >= 0xD800 && code < 0xDC00 && skip("\\u")) {
                uint32_t low = unit();
                if (low < 0xDC00 || low > 0xDFFF) wrong("has a malformed escape");
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            }
            encode(made, code);
        } else {
            wrong("has a malformed escape");
        }
    }

    uint32_t unit() {
        uint32_t code = 0;
        for (int k = 0; k < 4; k++, at_++) {
            const char *digits = "0123456789abcdef";
            char c = at_ < text_.size() ? static_cast<char>(text_[at_] | 0x20) : 0;
            const char *place = c ? strchr(digits, c) : nullptr;
            if (place == nullptr) wrong("has a malformed escape");
            code = code * 16 + static_cast<uint32_t>(place - digits);
        }
        return code;
    }

    static void encode(std::string &made, uint32_t code) {
        auto add = [&made](uint32_t byte) { made.push_back(static_cast<char>(byte)); };
        if (code < 0x80) {
            add(code);
        } else if (code < 0x800) {
            add(0xC0 | code >> 6);
            add(0x80 | (code & 0x3F));
        } else if (code < 0x10000) {
            add(0xE0 | code >> 12);
            add(0x80 | (code >> 6 & 0x3F));
            add(0x80 | (code & 0x3F));
        } else {
            add(0xF0 | code >> 18);
            add(0x80 | (code >> 12 & 0x3F));
            add(0x80 | (code >> 6 & 0x3F));
            add(0x80 | (code & 0x3F));
        }
    }

    std::string_view text_;
    size_t at_ = 0;
};

Json Json::parse(std::string_view text) { return JsonReader(text).all(); }

bool Json::flag() const {
    if (kind_ != Kind::Bool) other("true or false");
    return flag_;
}

int64_t Json::integer() const {
    if (kind_ != Kind::Int) other("an integer");
    return integer_;
}

int64_t Json::integer(int64_t low, int64_t high) const {
    int64_t value = integer();
    if (value < low || value > high)
        bad_package(words("The number %lld in the package is out of range.", (long long)value));
    return value;
}

uint32_t Json::index(size_t count) const {
    int64_t value = integer();
    if (value < 0 || static_cast<uint64_t>(value) >= count || value >= UINT32_MAX)
        bad_package(words("The package names entry %lld of a table of %zu.", (long long)value, count));
    return static_cast<uint32_t>(value);
}

double Json::real() const {
    if (kind_ == Kind::Int) return static_cast<double>(integer_);
    if (kind_ != Kind::Float) other("a number");
    return real_;
}

const std::string &Json::text() const {
    if (kind_ != Kind::Text) other("text");
    return text_;
}

const std::vector<Json> &Json::list() const {
    if (kind_ != Kind::List) other("a list");
    return list_;
}

const std::vector<Json> &Json::list(size_t count) const {
    if (list().size() != count)
        bad_package(words("A list in the package has %zu entries, not %zu.", list_.size(), count));
    return list_;
}

const Json &Json::at(size_t position) const {
    if (position >= list().size()) bad_package("A list in the package is too short.");
    return list_[position];
}

const Json *Json::find(const char *key) const {
    if (kind_ != Kind::Record) other("a record");
    for (size_t k = 0; k < keys_.size(); k++)
        if (keys_[k] == key) return &list_[k];
    return nullptr;
}

const Json &Json::operator[](const char *key) const {
    const Json *value = find(key);
    if (value == nullptr) bad_package(words("A record in the package has no %s.", key));
    return *value;
}

}  // namespace keel
