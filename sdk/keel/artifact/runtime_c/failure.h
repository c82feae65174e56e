// What is thrown inside the runtime. No exception leaves it: api.cpp turns each into a status and a text.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "keel_runtime.h"

namespace keel {

class Failure : public std::exception {
  public:
    Failure(keel_status status, std::string text) : status(status), text(std::move(text)) {}
    const char *what() const noexcept override { return text.c_str(); }

    const keel_status status;
    const std::string text;
};

// Text as printf makes it.
inline std::string words(const char *format, ...) __attribute__((format(printf, 1, 2)));
inline std::string words(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

[[noreturn]] inline void bad_package(const std::string &why) { throw Failure(KEEL_BAD_PACKAGE, why); }
[[noreturn]] inline void bad_input(const std::string &why) { throw Failure(KEEL_BAD_INPUT, why); }
[[noreturn]] inline void failed(const std::string &why) { throw Failure(KEEL_FAILED, why); }

}  // namespace keel
