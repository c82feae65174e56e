// Runs a package by the C++ runtime on the calls of a folder, and times it.
//
// usage: run_package PACKAGE FOLDER REPEATS THREADS [LIBTORCH]
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

#include "keel_runtime.h"

namespace {

struct Tensor {
    std::vector<char> bytes;
    std::vector<int64_t> sizes;
    DLManagedTensor dl{};

    void point() {
        dl.dl_tensor.data = bytes.data();
        dl.dl_tensor.shape = sizes.data();
        dl.dl_tensor.ndim = static_cast<int32_t>(sizes.size());
        dl.dl_tensor.device = {kDLCPU, 0};
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
    if (argc < 5) return 2;
    const std::string package = argv[1], folder = argv[2];
    const int repeats = std::atoi(argv[3]);
    auto calls = read_calls(folder);

    keel_options options;
    keel_options_init(&options, sizeof options);
    options.threads = std::atoi(argv[4]);
    options.check_weights = 0;
    if (argc > 5) options.libtorch = argv[5];
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
            tensor.point();
            inputs.push_back(&tensor.dl);
        }
        const int count = k == 0 ? repeats : 0;
        for (int n = 0; n <= count; ++n) {
            const double start = now();
            const keel_status status =
                keel_run(model, inputs.data(), inputs.size(), outputs.data(), outputs.size(), &error);
            if (status != KEEL_OK) fail("run", error);
            (n == 0 ? firsts : times).push_back(now() - start);
            for (size_t j = 0; j < outputs.size(); ++j) {
                if (!outputs[j]) continue;
                const DLTensor &t = outputs[j]->dl_tensor;
                if (n == 0) {
                    std::ofstream out(folder + "/out_" + std::to_string(k) + "_" + std::to_string(j) + ".bin",
                                      std::ios::binary);
                    write_dense(t, 0, static_cast<const char *>(t.data) + t.byte_offset, out);
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
