// A device of CUDA's driver: its memory, and launches of functions of cubins. The driver is opened when a program needs
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "memory.h"
#include "numbers.h"
#include "program.h"

namespace keel {

class Cuda : public std::enable_shared_from_this<Cuda> {
  public:
    // Opens the driver and the first device. Throws KEEL_NOT_HERE.
    Cuda();
    ~Cuda();
    Cuda(const Cuda &) = delete;
    Cuda &operator=(const Cuda &) = delete;

    // True if the device runs code for a feature: "sm_80" for a capability of 8.0 or a higher 8.x, "sm_90a" for 9.0.
    bool has(const std::string &feature) const;

    // Makes the device the current one of this thread.
    void enter() const;

    // Memory of at least `bytes`, which later allocations of this stream use again when it is free. Work on a stream is
    // done in order, so that what is under way has read the old contents.
    Held allocate(size_t bytes, void *stream, char *&data);

    // Memory of the host that kernels write to.
    Held host_memory(size_t bytes, char *&data);

    void to_device(char *to, const char *from, size_t bytes) const;              // waits
    void to_host(char *to, const char *from, size_t bytes, void *stream) const;  // waits
    void on_device(char *to, const char *from, size_t bytes, void *stream) const;
    void wait(void *stream) const;

    // Loads the functions of a cubin's kernel launches.
    void *module(std::string_view cubin);
    void *function(void *module, const std::string &name, uint32_t shared) const;

    // Launches the first function of each step whose conditions hold. `functions` are those of the launches.
    void launch(const KernelUse &use, const std::vector<void *> &functions, char *const *buffers, Values &numbers,
                void *stream) const;

  private:
    friend class DeviceBlock;
    struct Free {
        char *data;
        size_t bytes;
    };
    template <typename F>
    void find(F &function, const char *name);
    void check(int error, const char *what) const;
    void give(char *data, size_t bytes, void *stream);

    int (*name_of_)(int, const char **) = nullptr;
    int (*retain_)(void **, int) = nullptr;
    int (*release_)(int) = nullptr;
    int (*set_current_)(void *) = nullptr;
    int (*allocate_)(unsigned long long *, size_t) = nullptr;
    int (*free_)(unsigned long long) = nullptr;
    int (*host_allocate_)(void **, size_t, unsigned) = nullptr;
    int (*host_free_)(void *) = nullptr;
    int (*to_device_)(unsigned long long, const void *, size_t) = nullptr;
    int (*to_host_)(void *, unsigned long long, size_t, void *) = nullptr;
    int (*on_device_)(unsigned long long, unsigned long long, size_t, void *) = nullptr;
    int (*wait_)(void *) = nullptr;
    int (*load_)(void **, const void *) = nullptr;
    int (*unload_)(void *) = nullptr;
    int (*get_function_)(void **, void *, const char *) = nullptr;
    int (*set_attribute_)(void *, int, int) = nullptr;
    int (*launch_)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                   void **) = nullptr;
    void *driver_ = nullptr, *context_ = nullptr;
    int device_ = 0, major_ = 0, minor_ = 0;
    std::vector<void *> modules_;
    std::mutex lock_;
    std::map<void *, std::vector<Free>> free_blocks_;  // by stream
};

}  // namespace keel
