// Reads a package as the C++ runtime does before it loads machine code: its structure, its checksums, its manifest, and
// the program of its first variant.

#include <cstdio>

#include "failure.h"
#include "package.h"
#include "program.h"

// Returns 0 if the program was read and verified, 1 if it was refused, and 2 for an error without a sentence of Keel.
extern "C" int keel_read_program(const char *path, char *text, size_t size) {
    try {
        keel::Package package(path);
        package.check_all_but("");
        keel::Json manifest = keel::Json::parse(package.member("package.json", false));
        const keel::Json &variant = manifest["variants"].at(0);
        keel::read_program(keel::Json::parse(package.member(variant["program"].text(), false)));
        return 0;
    } catch (const keel::Failure &failure) {
        snprintf(text, size, "%s", failure.what());
        return failure.text.empty() ? 2 : 1;
    } catch (const std::exception &raised) {
        snprintf(text, size, "%s", raised.what());
    } catch (...) {
        snprintf(text, size, "It is not an exception.");
    }
    return 2;
}
