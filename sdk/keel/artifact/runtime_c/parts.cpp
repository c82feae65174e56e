#include "parts.h"

#include <dlfcn.h>

#include <cstring>

#include "failure.h"

namespace keel {

Parts::~Parts() {
    for (const Loaded &each : parts_) each.library->unload(each.library->context, each.part);
    for (void *library : opened_) dlclose(library);
}

void Parts::add(const keel_part_library_v1 *library) {
    if (library == nullptr || library->version != KEEL_PART_VERSION || !library->backend || !library->load ||
        !library->run || !library->unload)
        throw Failure(KEEL_NOT_HERE, "A library for parts has another version than this runtime, or lacks a function.");
    libraries_.push_back(library);
}

void Parts::open(const std::string &path) {
    void *opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
        const char *why = dlerror();
        throw Failure(KEEL_NOT_HERE, "The library for parts " + path +
                                         " cannot be opened: " + (why ? why : "no reason is known") + ".");
    }
    opened_.push_back(opened);
    auto entry = reinterpret_cast<const keel_part_library_v1 *(*)(uint32_t)>(dlsym(opened, "keel_part_library"));
    if (entry == nullptr) throw Failure(KEEL_NOT_HERE, "The library " + path + " defines no keel_part_library.");
    add(entry(KEEL_PART_VERSION));
}

void Parts::load(const std::string &backend, std::string_view bytes) {
    for (const keel_part_library_v1 *library : libraries_) {
        if (backend != library->backend) continue;
        char text[1024] = "";
        void *part = nullptr;
        if (library->load(library->context, bytes.data(), bytes.size(), &part, text, sizeof text) != 0)
            failed("The library of " + backend +
                   " cannot load a part: " + std::string(text, strnlen(text, sizeof text)));
        parts_.push_back({library, part});
        return;
    }
    throw Failure(KEEL_NOT_HERE, "The package has a part of the backend " + backend +
                                     ", and no library that runs its parts is registered. Pass it in the options.");
}

void Parts::run(size_t part, const std::vector<DLTensor> &inputs, const std::vector<DLTensor> &outputs,
                void *stream) const {
    const Loaded &loaded = parts_[part];
    char text[1024] = "";
    if (loaded.library->run(loaded.library->context, loaded.part, inputs.data(), inputs.size(), outputs.data(),
                            outputs.size(), stream, text, sizeof text) != 0)
        failed("A part of the backend " + std::string(loaded.library->backend) +
               " failed: " + std::string(text, strnlen(text, sizeof text)));
}

}  // namespace keel
