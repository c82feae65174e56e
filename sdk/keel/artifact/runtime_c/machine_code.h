// Machine code of kernels: shared objects from the memory of a package, and calls of their functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace keel {

// A shared object that is loaded from memory.
class SharedObject {
  public:
    // Throws KEEL_NOT_HERE if the dynamic loader refuses it.
    SharedObject(std::string_view content, const std::string &name);
    ~SharedObject();
    SharedObject(const SharedObject &) = delete;
    SharedObject &operator=(const SharedObject &) = delete;

    // The address of a function. Throws KEEL_BAD_PACKAGE.
    void *function(const std::string &name) const;

  private:
    void *library_;
};

// Calls a C function of `count` parameters, which are addresses or 64-bit integers: both are passed in the same places.
using KernelCall = void (*)(void *function, const uint64_t *arguments);

// What calls functions of so many parameters, at most MOST_PARAMETERS.
KernelCall kernel_call(uint32_t count);

// Makes the mathematical library and an OpenMP runtime visible to kernels, which are linked without them. The OpenMP
// runtime is the one of libtorch, if an address in libtorch is passed, so that the process has only one set of threads.
// Returns omp_set_num_threads and omp_get_max_threads, or nulls if there is no runtime.
struct OpenMp {
    void (*set_threads)(int) = nullptr;
    int (*get_threads)() = nullptr;
};
OpenMp share_libraries(const void *in_libtorch);

}  // namespace keel
