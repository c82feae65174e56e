#include "cuda.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "failure.h"

namespace keel {

namespace {

constexpr int MAJOR = 75, MINOR = 76, MOST_SHARED = 8;  // attributes of devices and functions
constexpr unsigned PORTABLE = 1, MAPPED = 2;            // kinds of memory of the host
constexpr size_t PLAIN_SHARED = 48 << 10, GRAIN = 512;

unsigned long long address(const char *data) { return reinterpret_cast<unsigned long long>(data); }

}  // namespace

// Memory of a device that goes back to its stream's blocks.
class DeviceBlock : public Holder {
  public:
    DeviceBlock(std::shared_ptr<Cuda> cuda, char *data, size_t bytes, void *stream)
        : cuda_(std::move(cuda)), data_(data), bytes_(bytes), stream_(stream) {}
    ~DeviceBlock() override { cuda_->give(data_, bytes_, stream_); }

  private:
    std::shared_ptr<Cuda> cuda_;
    char *data_;
    size_t bytes_;
    void *stream_;
};

class HostBlock : public Holder {
  public:
    HostBlock(std::shared_ptr<Cuda> cuda, void *data, int (*release)(void *))
        : cuda_(std::move(cuda)), data_(data), release_(release) {}
    ~HostBlock() override {
        cuda_->enter();
        release_(data_);
    }

  private:
    std::shared_ptr<Cuda> cuda_;
    void *data_;
    int (*release_)(void *);
};

template <typename F>
void Cuda::find(F &function, const char *name) {
    function = reinterpret_cast<F>(dlsym(driver_, name));
    if (function == nullptr) throw Failure(KEEL_NOT_HERE, std::string("The driver of CUDA has no ") + name + ".");
}

Cuda::Cuda() {
    driver_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver_ == nullptr)
        throw Failure(KEEL_NOT_HERE, "The package needs a CUDA device, and there is no driver (libcuda.so.1).");
    int (*init)(unsigned), (*get)(int *, int), (*attribute)(int *, int, int);
    find(init, "cuInit");
    find(get, "cuDeviceGet");
    find(attribute, "cuDeviceGetAttribute");
    find(name_of_, "cuGetErrorString");
    find(retain_, "cuDevicePrimaryCtxRetain");
    find(release_, "cuDevicePrimaryCtxRelease_v2");
    find(set_current_, "cuCtxSetCurrent");
    find(allocate_, "cuMemAlloc_v2");
    find(free_, "cuMemFree_v2");
    find(host_allocate_, "cuMemHostAlloc");
    find(host_free_, "cuMemFreeHost");
    find(to_device_, "cuMemcpyHtoD_v2");
    find(to_host_, "cuMemcpyDtoHAsync_v2");
    find(on_device_, "cuMemcpyDtoDAsync_v2");
    find(wait_, "cuStreamSynchronize");
    find(load_, "cuModuleLoadData");
    find(unload_, "cuModuleUnload");
    find(get_function_, "cuModuleGetFunction");
    find(set_attribute_, "cuFuncSetAttribute");
    find(launch_, "cuLaunchKernel");
    if (init(0) != 0 || get(&device_, 0) != 0)
        throw Failure(KEEL_NOT_HERE, "The package needs a CUDA device, and the driver finds none.");
    check(attribute(&major_, MAJOR, device_), "Asking the device for its capability");
    check(attribute(&minor_, MINOR, device_), "Asking the device for its capability");
    check(retain_(&context_, device_), "Opening the device");
}

Cuda::~Cuda() {
    set_current_(context_);
    for (void *module : modules_) unload_(module);
    for (auto &[stream, blocks] : free_blocks_)
        for (const Free &block : blocks) free_(address(block.data));
    release_(device_);
}

void Cuda::check(int error, const char *what) const {
    if (error == 0) return;
    const char *why = nullptr;
    name_of_(error, &why);
    failed(std::string(what) + " failed: " + (why ? why : "the driver does not say why") + ".");
}

bool Cuda::has(const std::string &feature) const {
    if (feature.rfind("sm_", 0) != 0) return false;
    char *rest = nullptr;
    long number = strtol(feature.c_str() + 3, &rest, 10), here = major_ * 10 + minor_;
    if (strcmp(rest, "a") == 0) return number == here;
    return *rest == 0 && number / 10 == major_ && number <= here;
}

void Cuda::enter() const { check(set_current_(context_), "Using the device"); }

Held Cuda::allocate(size_t bytes, void *stream, char *&data) {
    size_t need = (bytes + GRAIN - 1) / GRAIN * GRAIN + (bytes == 0 ? GRAIN : 0);
    {
        std::lock_guard<std::mutex> guard(lock_);
        std::vector<Free> &blocks = free_blocks_[stream];
        size_t best = blocks.size();
        for (size_t k = 0; k < blocks.size(); k++)
            if (blocks[k].bytes >= need && blocks[k].bytes <= need + need / 8 + GRAIN &&
                (best == blocks.size() || blocks[k].bytes < blocks[best].bytes))
                best = k;
        if (best < blocks.size()) {
            Free block = blocks[best];
            blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(best));
            data = block.data;
            return Held(new DeviceBlock(shared_from_this(), block.data, block.bytes, stream));
        }
    }
    unsigned long long made = 0;
    if (allocate_(&made, need) != 0) {  // free what waits, and try again
        wait(stream);
        std::lock_guard<std::mutex> guard(lock_);
        for (const Free &block : free_blocks_[stream]) free_(address(block.data));
        free_blocks_[stream].clear();
        check(allocate_(&made, need), "Allocating memory of the device");
    }
    data = reinterpret_cast<char *>(made);
    return Held(new DeviceBlock(shared_from_this(), data, need, stream));
}

void Cuda::give(char *data, size_t bytes, void *stream) {
    std::lock_guard<std::mutex> guard(lock_);
    free_blocks_[stream].push_back({data, bytes});
}

Held Cuda::host_memory(size_t bytes, char *&data) {
    void *made = nullptr;
    check(host_allocate_(&made, bytes, PORTABLE | MAPPED), "Allocating memory of the host");
    memset(made, 0, bytes);
    data = static_cast<char *>(made);
    return Held(new HostBlock(shared_from_this(), made, host_free_));
}

void Cuda::to_device(char *to, const char *from, size_t bytes) const {
    if (bytes > 0) check(to_device_(address(to), from, bytes), "Copying to the device");
}

void Cuda::to_host(char *to, const char *from, size_t bytes, void *stream) const {
    if (bytes > 0) check(to_host_(to, address(from), bytes, stream), "Copying from the device");
    wait(stream);
}

void Cuda::on_device(char *to, const char *from, size_t bytes, void *stream) const {
    if (bytes > 0) check(on_device_(address(to), address(from), bytes, stream), "Copying on the device");
}

void Cuda::wait(void *stream) const { check(wait_(stream), "Waiting for the device"); }

void *Cuda::module(std::string_view cubin) {
    std::string content(cubin);  // the driver reads to the end that the file itself tells, so that it is copied
    void *made = nullptr;
    check(load_(&made, content.data()), "Loading code of the device");
    modules_.push_back(made);
    return made;
}

void *Cuda::function(void *module, const std::string &name, uint32_t shared) const {
    void *made = nullptr;
    check(get_function_(&made, module, name.c_str()), "Finding a function of the device");
    if (shared > PLAIN_SHARED)
        check(set_attribute_(made, MOST_SHARED, static_cast<int>(shared)), "Reserving shared memory");
    return made;
}

namespace {

bool fits(const DeviceLaunch &launch, char *const *buffers, Values &numbers) {
    for (const DeviceLaunch::Parameter &each : launch.parameters)
        if (each.kind == DeviceLaunch::Kind::Buffer && address(buffers[each.at]) % launch.alignment != 0) return false;
    for (uint32_t condition : launch.conditions)
        if (!numbers.of(condition).truth()) return false;
    return true;
}

}  // namespace

void Cuda::launch(const KernelUse &use, const std::vector<void *> &functions, char *const *buffers, Values &numbers,
                  void *stream) const {
    uint64_t values[MOST_PARAMETERS];
    void *parameters[MOST_PARAMETERS];
    int64_t done = -1;  // the step that has been launched
    for (size_t k = 0; k < use.launches.size(); k++) {
        const DeviceLaunch &launch = use.launches[k];
        if (launch.step == done || !fits(launch, buffers, numbers)) continue;
        done = launch.step;
        for (size_t p = 0; p < launch.parameters.size(); p++) {
            const DeviceLaunch::Parameter &each = launch.parameters[p];
            parameters[p] = &values[p];
            values[p] = each.kind == DeviceLaunch::Kind::Null     ? 0
                        : each.kind == DeviceLaunch::Kind::Buffer ? address(buffers[each.at])
                                                                  : static_cast<uint64_t>(numbers.integer(each.at));
        }
        int64_t grid[3];
        bool empty = false;
        for (size_t d = 0; d < 3; d++) {
            grid[d] = numbers.integer(launch.grid[d]);
            if (grid[d] < 0 || grid[d] > INT32_MAX) failed("A grid of a kernel is too large.");
            empty = empty || grid[d] == 0;
        }
        if (empty) continue;
        auto size = [](int64_t n) { return static_cast<unsigned>(n); };
        check(launch_(functions[k], size(grid[0]), size(grid[1]), size(grid[2]), launch.block[0], launch.block[1],
                      launch.block[2], launch.shared, stream, parameters, nullptr),
              "Launching a kernel");
    }
}

}  // namespace keel
