// Serves a packaged BERT without Python: reads token ids from standard input, a line per request, and prints the first
// numbers of the pooled result.

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "keel_runtime.h"

int main(int argc, char **argv) {
    keel_model *model = nullptr;
    keel_options options;
    keel_error error;
    keel_options_init(&options, sizeof options);
    if (argc < 2 || keel_load(argv[1], &options, &model, &error) != KEEL_OK) {
        std::fprintf(stderr, "%s\n", argc < 2 ? "usage: serve PACKAGE" : error.text);
        return 1;
    }
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::vector<int64_t> tokens;
        for (int64_t token; words >> token;) tokens.push_back(token);
        int64_t shape[] = {1, static_cast<int64_t>(tokens.size())};
        DLManagedTensor input{};
        input.dl_tensor = {tokens.data(), {kDLCPU, 0}, 2, {kDLInt, 64, 1}, shape, nullptr, 0};
        const DLManagedTensor *inputs[] = {&input};
        std::vector<DLManagedTensor *> outputs(keel_output_count(model));
        if (keel_run(model, inputs, 1, outputs.data(), outputs.size(), &error) != KEEL_OK) {
            std::printf("error: %s\n", error.text);
            continue;
        }
        const DLTensor &pooled = outputs.back()->dl_tensor;
        const float *numbers = reinterpret_cast<const float *>(static_cast<char *>(pooled.data) + pooled.byte_offset);
        std::printf("%.6f %.6f %.6f\n", numbers[0], numbers[1], numbers[2]);
        for (DLManagedTensor *output : outputs) output->deleter(output);
    }
    keel_free(model);
}
