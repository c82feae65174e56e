// The device `example`: what its memory, its streams and its kernels share.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace example {

constexpr c10::DeviceIndex kDevices = 2;
constexpr auto kType = c10::DeviceType::PrivateUse1;

// The size in bytes of the device's address space, of which both devices have a part.
constexpr size_t kSpace = size_t(1) << 36;

// Tensors hold device addresses, in pages that can be neither read nor written: an access by the host is a fault. The
// memory itself is mapped kSpace bytes higher. Only kernels of the device may use that address.
inline void* in_kernel(const void* device_address) {
  return device_address == nullptr ? nullptr : static_cast<char*>(const_cast<void*>(device_address)) + kSpace;
}

c10::Allocator* allocator();
bool is_pinned(const void* address);

c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::Stream current_stream(c10::DeviceIndex index);

// The generator of the host's kernels that draws the numbers of a generator of the device.
at::Generator core_of(const at::Generator& generator);
const at::Generator& default_generator(c10::DeviceIndex index);

// A copy to the host that does not block is delivered when the host waits for its stream or for an event behind it.
void deliver_later(const c10::Stream& stream, std::function<void()> copy);
void deliver(const c10::Stream& stream);

// Runs a kernel on the current stream of a device, or records it if that stream is being captured: then it runs in each
// replay of the graph, and holds addresses of tensors, not the tensors.
void launch(c10::DeviceIndex device, std::function<void()> kernel);
bool is_capturing(c10::DeviceIndex device);
// Raises an error if the current stream is being captured, since `what` is not a kernel.
void refuse_in_capture(c10::DeviceIndex device, const std::string& what);

// Blocks of memory that a capture allocates come from a pool, and go back to it. A graph holds its pool.
c10::MempoolId_t new_pool();
void hold_pool(c10::MempoolId_t pool);
void release_pool(c10::MempoolId_t pool);
// The pool from which the calling thread allocates on a device now; {0, 0} for ordinary memory.
c10::MempoolId_t current_pool(c10::DeviceIndex device);

struct Counters {
  std::atomic<int64_t> to_device{0}, to_host{0}, on_device{0}, synchronizations{0}, replays{0};
};
Counters& counters();
void count_fallback(const std::string& op);
std::map<std::string, int64_t> fallbacks();
void reset_counters();

}  // namespace example
