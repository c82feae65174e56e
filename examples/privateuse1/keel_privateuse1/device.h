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

struct Counters {
  std::atomic<int64_t> to_device{0}, to_host{0}, on_device{0}, synchronizations{0};
};
Counters& counters();
void count_fallback(const std::string& op);
std::map<std::string, int64_t> fallbacks();
void reset_counters();

}  // namespace example
