// Runs a package by the C++ runtime on the calls of a folder, and times it.
//
// usage: run_package PACKAGE FOLDER REPEATS THREADS LIBTORCH cpu|cuda
//
// FOLDER/calls.txt has the line "call" for each call, and after it a line for each argument: the code, the bits, the
// number of dimensions and the sizes of its tensor, and the file with its elements. The results are written to
// FOLDER/out_CALL_RESULT.bin, in row-major order. A line of JSON is printed.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "keel_runtime.h"

namespace {

// The memory of the arguments: the host's, or that of a GPU, by CUDA's driver.
struct Device {
    bool cuda = false;
    int (*alloc)(uint64_t *, size_t) = nullptr;
    int (*to_device)(uint64_t, const void *, size_t) = nullptr;
    int (*to_host)(void *, uint64_t, size_t) = nullptr;
    int (*wait)() = nullptr;

    template <class F>
    static void find(void *library, F &function, const char *name) {
        function = reinterpret_cast<F>(dlsym(library, name));
        if (!function) std::exit((std::fprintf(stderr, "CUDA's driver has no %s\n", name), 1));
    }

    void open() {
        cuda = true;
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        if (!library) std::exit((std::fprintf(stderr, "%s\n", dlerror()), 1));
        int (*init)(unsigned) = nullptr, (*retain)(void **, int) = nullptr, (*use)(void *) = nullptr;
        find(library, init, "cuInit");
        find(library, retain, "cuDevicePrimaryCtxRetain");
        find(library, use, "cuCtxSetCurrent");
        find(library, alloc, "cuMemAlloc_v2");
        find(library, to_device, "cuMemcpyHtoD_v2");
        find(library, to_host, "cuMemcpyDtoH_v2");
        find(library, wait, "cuCtxSynchronize");
        void *context = nullptr;
        if (init(0) || retain(&context, 0) || use(context)) std::exit((std::fprintf(stderr, "no GPU\n"), 1));
    }
};

struct Tensor {
    std::vector<char> bytes;
    std::vector<int64_t> sizes;
    DLManagedTensor dl{};

    void point(const Device &device) {
        dl.dl_tensor.data = bytes.data();
        if (device.cuda && !bytes.empty()) {
            uint64_t place = 0;
            if (device.alloc(&place, bytes.size()) || device.to_device(place, bytes.data(), bytes.size()))
                std::exit((std::fprintf(stderr, "no memory on the GPU\n"), 1));
            dl.dl_tensor.data = reinterpret_cast<void *>(place);
        }
        dl.dl_tensor.shape = sizes.data();
        dl.dl_tensor.ndim = static_cast<int32_t>(sizes.size());
        dl.dl_tensor.device = {device.cuda ? kDLCUDA : kDLCPU, 0};
    }
};

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<char> read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::vector<Tensor>> read_calls(const std::string &folder) {
    std::vector<std::vector<Tensor>> calls;
    std::ifstream file(folder + "/calls.txt");
    for (std::string line; std::getline(file, line);) {
        if (line == "call") {
            calls.emplace_back();
            continue;
        }
        std::istringstream words(line);
        int code = 0, bits = 0, count = 0;
        words >> code >> bits >> count;
        Tensor tensor;
        tensor.dl.dl_tensor.dtype = {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
        tensor.sizes.resize(count);
        for (auto &n : tensor.sizes) words >> n;
        std::string name;
        words >> name;
        tensor.bytes = read(folder + "/" + name);
        calls.back().push_back(std::move(tensor));
    }
    return calls;
}

void write_dense(const DLTensor &t, int dim, const char *from, std::ofstream &out) {
    const int64_t size = t.dtype.bits / 8;
    if (dim == t.ndim) {
        out.write(from, size);
        return;
    }
    int64_t step = 1;
    if (t.strides) step = t.strides[dim];
    else
        for (int d = dim + 1; d < t.ndim; ++d) step *= t.shape[d];
    for (int64_t i = 0; i < t.shape[dim]; ++i) write_dense(t, dim + 1, from + i * step * size, out);
}

// The elements from the first to the last one of a tensor on a GPU; nothing for one on the host.
std::vector<char> on_host(const Device &device, const DLTensor &t) {
    if (!device.cuda) return {};
    int64_t last = 0, dense = 1;
    for (int d = t.ndim - 1; d >= 0; --d) {
        if (t.shape[d] == 0) return {};
        last += (t.shape[d] - 1) * (t.strides ? t.strides[d] : dense);
        dense *= t.shape[d];
    }
    std::vector<char> bytes((last + 1) * (t.dtype.bits / 8));
    device.to_host(bytes.data(), reinterpret_cast<uint64_t>(t.data) + t.byte_offset, bytes.size());
    return bytes;
}

void fail(const char *what, const keel_error &error) {
    std::fprintf(stderr, "%s: %s\n", what, error.text);
    std::exit(1);
}

long peak_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind("VmHWM:", 0) == 0) return std::atol(line.c_str() + 6);
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc < 7) return 2;
    const std::string package = argv[1], folder = argv[2];
    const int repeats = std::atoi(argv[3]);
    auto calls = read_calls(folder);

    keel_options options;
    keel_options_init(&options, sizeof options);
    options.threads = std::atoi(argv[4]);
    options.check_weights = 0;
    options.libtorch = argv[5];
    Device device;
    if (std::string(argv[6]) == "cuda") device.open();
    keel_error error{};
    keel_model *model = nullptr;
    const double began = now();
    if (keel_load(package.c_str(), &options, &model, &error) != KEEL_OK) fail("load", error);
    const double loaded = now() - began;

    std::vector<double> firsts, times;
    std::vector<DLManagedTensor *> outputs(keel_output_count(model));
    for (size_t k = 0; k < calls.size(); ++k) {
        std::vector<const DLManagedTensor *> inputs;
        for (auto &tensor : calls[k]) {
            tensor.point(device);
            inputs.push_back(&tensor.dl);
        }
        const int count = k == 0 ? repeats : 0;
        for (int n = 0; n <= count; ++n) {
            const double start = now();
            const keel_status status =
                keel_run(model, inputs.data(), inputs.size(), outputs.data(), outputs.size(), &error);
            if (status != KEEL_OK) fail("run", error);
            if (device.cuda) device.wait();
            (n == 0 ? firsts : times).push_back(now() - start);
            for (size_t j = 0; j < outputs.size(); ++j) {
                if (!outputs[j]) continue;
                const DLTensor &t = outputs[j]->dl_tensor;
                if (n == 0) {
                    std::ofstream out(folder + "/out_" + std::to_string(k) + "_" + std::to_string(j) + ".bin",
                                      std::ios::binary);
                    const std::vector<char> copy = on_host(device, t);
                    write_dense(t, 0, device.cuda ? copy.data() : static_cast<const char *>(t.data) + t.byte_offset, out);
                }
                outputs[j]->deleter(outputs[j]);
            }
        }
    }
    keel_free(model);
    std::sort(times.begin(), times.end());
    std::printf("{\"load_s\": %.6f, \"call_us\": %.3f, \"peak_kib\": %ld, \"first_s\": [", loaded,
                times.empty() ? 0.0 : 1e6 * times[times.size() / 2], peak_kib());
    for (size_t k = 0; k < firsts.size(); ++k) std::printf("%s%.6f", k ? ", " : "", firsts[k]);
    std::printf("]}\n");
    return 0;
}
