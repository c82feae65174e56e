// Runs the runtime under sanitizers. `sanitized run PACKAGE` calls a model from several threads and prints the bytes of
// its first result. `sanitized damage PACKAGE COUNT` loads the package with bytes changed, so many times, and then its
// program with numbers changed. Each has to load or to fail with a Failure.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "keel_runtime.h"
#include "model.h"
#include "package.h"
#include "program.h"

namespace {

std::vector<float> called(keel_model *model) {
    keel_value_info info;
    keel_error error;
    keel_input_info(model, 0, &info);
    int64_t sizes[8], count = 1;
    for (int32_t d = 0; d < info.ndim; d++) count *= sizes[d] = info.shape[d] < 0 ? 4 : info.shape[d];
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t k = 0; k < values.size(); k++) values[k] = static_cast<float>(k % 7) - 3;
    DLManagedTensor input{{values.data(), {kDLCPU, 0}, info.ndim, info.dtype, sizes, nullptr, 0}, nullptr, nullptr};
    const DLManagedTensor *inputs[] = {&input};
    std::vector<DLManagedTensor *> outputs(keel_output_count(model));
    if (keel_run(model, inputs, 1, outputs.data(), outputs.size(), &error) != KEEL_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    const DLTensor &first = outputs[0]->dl_tensor;
    int64_t made = 1;
    for (int32_t d = 0; d < first.ndim; d++) made *= first.shape[d];
    const float *data = static_cast<const float *>(first.data);
    std::vector<float> result(data, data + made);
    for (DLManagedTensor *output : outputs)
        if (output) output->deleter(output);
    return result;
}

int run(const char *path) {
    keel_model *model;
    keel_error error;
    if (keel_load(path, nullptr, &model, &error) != KEEL_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    std::vector<float> want = called(model);
    std::vector<std::thread> threads;
    std::vector<int> wrong(4);
    for (size_t t = 0; t < wrong.size(); t++)
        threads.emplace_back([&, t] {
            for (int k = 0; k < 25; k++) wrong[t] += called(model) != want;
        });
    for (std::thread &thread : threads) thread.join();
    keel_free(model);
    for (float value : want) printf("%a ", static_cast<double>(value));
    for (int count : wrong)
        if (count) return 1;
    return 0;
}

// Counts what loads and what fails with a Failure; anything else ends the process.
template <typename Load>
void tried(int counts[2], Load &&load) {
    try {
        load();
        counts[0]++;
    } catch (const keel::Failure &failure) {
        if (failure.text.empty()) abort();
        counts[1]++;
    }
}

int damage(const char *path, int times) {
    std::ifstream file(path, std::ios::binary);
    std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::mt19937 random(1);
    std::string place = std::string(path) + ".damaged";
    int files[2] = {}, programs[2] = {};
    for (int k = 0; k < times; k++) {
        std::string changed = content;
        if (k % 10 == 0) changed.resize(random() % changed.size());
        for (int n = k % 3; n >= 0 && !changed.empty(); n--)
            changed[random() % changed.size()] = static_cast<char>(random());
        if (changed == content) continue;
        std::ofstream(place, std::ios::binary) << changed;
        tried(files, [&] { keel::Model model(place, {}); });
    }
    std::string program(keel::Package(path).member("variants/0/program.json"));
    for (int k = 0; k < times; k++) {
        std::string changed = program;
        for (int n = k % 3; n >= 0;) {
            char &c = changed[random() % changed.size()];
            if (k % 2 ? c < '0' || c > '9' : c == 0) continue;
            c = k % 2 ? static_cast<char>('0' + random() % 10) : static_cast<char>(' ' + random() % 95);
            n--;
        }
        tried(programs, [&] { keel::read_program(keel::Json::parse(changed)); });
    }
    remove(place.c_str());
    printf("%d %d %d %d", files[0], files[1], programs[0], programs[1]);
    return 0;
}

}  // namespace

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "run") == 0) return run(words[2]);
    if (count == 4 && strcmp(words[1], "damage") == 0) return damage(words[2], atoi(words[3]));
    return 2;
}
