// Memory, streams, events, generators and the hooks by which PyTorch reaches them.
#include "device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <vector>

namespace example {
namespace {

// -- memory --------------------------------------------------------------------------------------------------

using Pool = c10::MempoolId_t;
constexpr Pool kOrdinary{0, 0};

struct Block {
  size_t bytes;
  c10::DeviceIndex device;
  Pool pool;
};

// Blocks have sizes of powers of two, and free ones are kept by pool and size.
class Memory {
 public:
  void* take(size_t bytes, c10::DeviceIndex device) {
    auto pool = current_pool(device);
    std::lock_guard<std::mutex> lock(mutex_);
    size_t size = 256;
    while (size < bytes) size *= 2;
    auto& spare = spare_[{pool, size}];
    size_t at = top_;
    if (!spare.empty()) {
      at = spare.back();
      spare.pop_back();
    } else {
      TORCH_CHECK(top_ + size <= kSpace, "example: out of memory, ", bytes, " bytes were asked for");
      top_ += size;
    }
    blocks_[at] = {size, device, pool};
    auto& live = live_[device];
    live += size;
    peak_[device] = std::max(peak_[device], live);
    return base() + at;
  }

  void give_back(void* address) {
    if (address == nullptr) return;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = blocks_.find(static_cast<char*>(address) - base());
    TORCH_INTERNAL_ASSERT(found != blocks_.end());
    // NaN as a float, -1 as an integer: a kernel that reads freed memory is seen.
    std::memset(in_kernel(address), 0xff, found->second.bytes);
    live_[found->second.device] -= found->second.bytes;
    spare_[{found->second.pool, found->second.bytes}].push_back(found->first);
    blocks_.erase(found);
  }

  void hold(Pool pool) {
    std::lock_guard<std::mutex> lock(mutex_);
    holders_[pool]++;
  }

  // The memory of a pool becomes ordinary when no graph holds the pool any more: free blocks now, others once freed.
  void release(Pool pool) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--holders_[pool] > 0) return;
    holders_.erase(pool);
    for (auto& [at, block] : blocks_) {
      if (block.pool == pool) block.pool = kOrdinary;
    }
    for (auto each = spare_.begin(); each != spare_.end();) {
      auto& [key, free] = *each;
      if (key.first != pool) {
        ++each;
        continue;
      }
      auto& ordinary = spare_[{kOrdinary, key.second}];
      ordinary.insert(ordinary.end(), free.begin(), free.end());
      each = spare_.erase(each);
    }
  }

  c10::DeviceIndex device_of(void* address) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto above = blocks_.upper_bound(static_cast<char*>(address) - base());
    TORCH_CHECK(above != blocks_.begin(), "example: no memory of the device is at this address");
    return std::prev(above)->second.device;
  }

  c10::CachingDeviceAllocator::DeviceStats stats(c10::DeviceIndex device) {
    std::lock_guard<std::mutex> lock(mutex_);
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* each : {&stats.allocated_bytes, &stats.reserved_bytes}) {
      (*each)[0].current = static_cast<int64_t>(live_[device]);
      (*each)[0].peak = static_cast<int64_t>(peak_[device]);
    }
    return stats;
  }

  void reset_peak(c10::DeviceIndex device) {
    std::lock_guard<std::mutex> lock(mutex_);
    peak_[device] = live_[device];
  }

  size_t free_bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return kSpace - live_[0] - live_[1];
  }

 private:
  static char* base() {
    static char* base = [] {
      void* space = mmap(nullptr, 2 * kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      TORCH_CHECK(space != MAP_FAILED, "example: the address space of the device cannot be reserved");
      TORCH_CHECK(mprotect(in_kernel(space), kSpace, PROT_READ | PROT_WRITE) == 0, "example: mprotect failed");
      return static_cast<char*>(space);
    }();
    return base;
  }

  std::mutex mutex_;
  std::map<size_t, Block> blocks_;
  std::map<std::pair<Pool, size_t>, std::vector<size_t>> spare_;
  std::map<Pool, int> holders_;
  size_t top_ = 0;
  size_t live_[kDevices] = {}, peak_[kDevices] = {};
};

Memory& memory() {
  static auto* memory = new Memory();  // never destroyed: tensors may outlive static objects
  return *memory;
}

thread_local c10::DeviceIndex current = 0;

void give_back(void* address) { memory().give_back(address); }

struct DeviceAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* address = bytes == 0 ? nullptr : memory().take(bytes, current);
    return {address, address, &give_back, c10::Device(kType, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(in_kernel(to), in_kernel(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}  // kernels have run when they are launched
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex i) override { return memory().stats(i); }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex i) override { memory().reset_peak(i); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override { return {memory().free_bytes(), kSpace}; }
};
DeviceAllocator device_allocator;
REGISTER_ALLOCATOR(kType, &device_allocator);

// Pinned memory is ordinary memory of which the device knows the addresses.
std::mutex pinned_mutex;
std::map<const char*, size_t> pinned;

void unpin(void* address) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  pinned.erase(static_cast<char*>(address));
  std::free(address);
}

struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* address = bytes == 0 ? nullptr : std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    std::lock_guard<std::mutex> lock(pinned_mutex);
    if (address != nullptr) pinned[static_cast<char*>(address)] = bytes;
    return {address, address, &unpin, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &unpin; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }  // copies hold the memory that they use
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};
PinnedAllocator pinned_allocator;
REGISTER_HOST_ALLOCATOR(kType, &pinned_allocator);

// -- streams and events --------------------------------------------------------------------------------------

// A kernel runs when it is launched, so only copies to the host can be outstanding. They are numbered.
struct Delivery {
  int64_t number;
  std::function<void()> copy;
};
std::mutex stream_mutex;
std::map<std::pair<c10::DeviceIndex, c10::StreamId>, std::deque<Delivery>> outstanding;
int64_t last_number = 0;
std::atomic<c10::StreamId> last_stream{0};
thread_local c10::StreamId stream_of[kDevices] = {};

struct Event {
  c10::Stream stream;
  int64_t number;
  std::chrono::steady_clock::time_point time;
};

void deliver_up_to(const c10::Stream& stream, int64_t number) {
  std::vector<Delivery> due;
  {
    std::lock_guard<std::mutex> lock(stream_mutex);
    auto& queue = outstanding[{stream.device_index(), stream.id()}];
    while (!queue.empty() && queue.front().number <= number) {
      due.push_back(std::move(queue.front()));
      queue.pop_front();
    }
  }
  for (auto& each : due) each.copy();
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kType;
  c10::DeviceType type() const override { return kType; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device d) const override { set_current_device(d.index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.index() >= 0) current = d.index();
  }
  c10::Device exchangeDevice(c10::Device d) const override {
    auto before = getDevice();
    setDevice(d);
    return before;
  }

  c10::Stream stream(c10::Device d, c10::StreamId id) const {
    return c10::Stream(c10::Stream::UNSAFE, {kType, d.index() < 0 ? current : d.index()}, id);
  }
  c10::Stream getStream(c10::Device d) const override { return current_stream(d.index()); }
  bool isStreamCapturing(const c10::Stream& s) const {  // PyTorch asks from 2.13 on
    return is_capturing(s.device_index()) && s == current_stream(s.device_index());
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream(d, 0); }
  c10::Stream getNewStream(c10::Device d, int) const override { return stream(d, ++last_stream); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return stream(d, ++last_stream); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    auto before = getStream(s.device());
    stream_of[s.device_index()] = s.id();
    return before;
  }
  bool queryStream(const c10::Stream& s) const override {
    deliver(s);
    return true;
  }
  void synchronizeStream(const c10::Stream& s) const override {
    counters().synchronizations++;
    deliver(s);
  }
  void synchronizeDevice(const c10::DeviceIndex i) const override {
    counters().synchronizations++;
    for (c10::StreamId id = 0; id <= last_stream; ++id) deliver(stream({kType, i}, id));
  }

  void record(void** event, const c10::Stream& s, const c10::DeviceIndex, const c10::EventFlag) const override {
    std::lock_guard<std::mutex> lock(stream_mutex);
    delete static_cast<Event*>(*event);
    *event = new Event{s, last_number, std::chrono::steady_clock::now()};
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void block(void* event, const c10::Stream&) const override { wait(event); }
  bool queryEvent(void* event) const override {
    wait(event);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    counters().synchronizations++;
    wait(event);
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    auto taken = static_cast<Event*>(to)->time - static_cast<Event*>(from)->time;
    return std::chrono::duration<double, std::milli>(taken).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

 private:
  static void wait(void* event) {
    if (auto* recorded = static_cast<Event*>(event)) deliver_up_to(recorded->stream, recorded->number);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// -- random numbers ------------------------------------------------------------------------------------------

// A generator with a seed and a state of its own. Its numbers are those of the host's generator with that seed.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index, const at::Generator& core = at::detail::createCPUGenerator())
      : c10::GeneratorImpl({kType, index}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), core(core) {}
  void set_current_seed(uint64_t seed) override { core.set_current_seed(seed); }
  uint64_t current_seed() const override { return core.current_seed(); }
  uint64_t seed() override { return core.seed(); }
  void set_offset(uint64_t offset) override { core.set_offset(offset); }
  uint64_t get_offset() const override { return core.get_offset(); }
  void set_state(const c10::TensorImpl& state) override { core.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return core.unsafeGetGeneratorImpl()->get_state(); }

  mutable at::Generator core;

 private:
  Generator* clone_impl() const override { return new Generator(device_.index(), core.clone()); }
};

// -- hooks ---------------------------------------------------------------------------------------------------

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex i) const override { set_current_device(i); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex i) const override {
    auto before = current;
    set_current_device(i);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex i) const override { return exchangeDevice(i); }
  at::Device getDeviceFromPtr(void* address) const override { return {kType, memory().device_of(address)}; }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex i) const override { return default_generator(i); }
  at::Generator getNewGenerator(c10::DeviceIndex i) const override {
    return at::make_generator<Generator>(i < 0 ? current : i);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::OptionalDeviceGuard guard(storage.device());
    auto data = device_allocator.allocate(bytes);
    if (auto kept = std::min(bytes, storage.nbytes())) device_allocator.copy_data(data.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
};

[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

std::mutex fallback_mutex;
std::map<std::string, int64_t> fallback_counts;

}  // namespace

c10::Allocator* allocator() { return &device_allocator; }

c10::MempoolId_t new_pool() {
  static std::atomic<uint64_t> last{0};
  return {++last, 0};
}
void hold_pool(c10::MempoolId_t pool) { memory().hold(pool); }
void release_pool(c10::MempoolId_t pool) { memory().release(pool); }

bool is_pinned(const void* address) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  auto above = pinned.upper_bound(static_cast<const char*>(address));
  if (above == pinned.begin()) return false;
  auto [start, bytes] = *std::prev(above);
  return static_cast<const char*>(address) < start + bytes;
}

c10::DeviceIndex current_device() { return current; }

void set_current_device(c10::DeviceIndex index) {
  if (index < 0) return;
  TORCH_CHECK(index < kDevices, "example: there is no device ", int(index), ", only ", int(kDevices), " devices");
  current = index;
}

c10::Stream current_stream(c10::DeviceIndex index) {
  auto i = index < 0 ? current : index;
  return c10::Stream(c10::Stream::UNSAFE, {kType, i}, stream_of[i]);
}

at::Generator core_of(const at::Generator& generator) {
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->core;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static std::vector<at::Generator> generators{at::make_generator<Generator>(0), at::make_generator<Generator>(1)};
  return generators.at(index < 0 ? current : index);
}

void deliver_later(const c10::Stream& stream, std::function<void()> copy) {
  std::lock_guard<std::mutex> lock(stream_mutex);
  outstanding[{stream.device_index(), stream.id()}].push_back({++last_number, std::move(copy)});
}

void deliver(const c10::Stream& stream) { deliver_up_to(stream, std::numeric_limits<int64_t>::max()); }

Counters& counters() {
  static Counters counters;
  return counters;
}

void count_fallback(const std::string& op) {
  std::lock_guard<std::mutex> lock(fallback_mutex);
  fallback_counts[op]++;
}

std::map<std::string, int64_t> fallbacks() {
  std::lock_guard<std::mutex> lock(fallback_mutex);
  return fallback_counts;
}

void reset_counters() {
  auto& all = counters();
  for (auto* each : {&all.to_device, &all.to_host, &all.on_device, &all.synchronizations, &all.replays}) *each = 0;
  std::lock_guard<std::mutex> lock(fallback_mutex);
  fallback_counts.clear();
}

}  // namespace example
