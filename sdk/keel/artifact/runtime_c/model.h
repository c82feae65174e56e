// A loaded package: the chosen variant's program, weights, machine code and parts, and the frames of its calls.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "cuda.h"
#include "frame.h"
#include "keel_runtime.h"
#include "libtorch.h"
#include "machine_code.h"
#include "package.h"
#include "packed_call.h"
#include "parts.h"
#include "program.h"

namespace keel {

// What the caller asks for. The strings are copied.
struct Options {
    std::string libtorch, variant;
    bool asks_cpu = true;
    std::vector<std::string> cpu_features;
    bool check_weights = true;
    int threads = 0;
    std::vector<const keel_part_library_v1 *> part_libraries;
    std::vector<std::string> part_files;
};

// A weight, which several names may share.
struct Weight {
    std::vector<std::string> names;
    const DType *dtype = nullptr;
    std::vector<int64_t> dims;  // sizes, then strides
    char *data = nullptr;       // in the file, or in memory of its own
    int64_t bytes = 0;
    Held holder;
    bool replaceable = false, is_written = false, on_device = false;
    uint64_t version = 0;

    uint32_t rank() const { return static_cast<uint32_t>(dims.size() / 2); }
};

class Model {
  public:
    Model(const std::string &path, const Options &options);

    void run(void *stream, const DLManagedTensor *const *inputs, size_t input_count, DLManagedTensor **outputs,
             size_t output_count);
    void replace(const std::string &name, const DLTensor &value);
    void set_threads(int threads) { threads_ = threads; }
    size_t held_bytes();

    const Program &program() const { return program_; }
    const std::string &variant() const { return variant_; }
    const std::vector<std::string> &weight_names() const { return weight_names_; }

  private:
    friend class Run;

    bool has(const Options &options, const std::string &kind, const std::string &feature);
    std::string lacking(const Json &variant, const Options &options);
    const Json &choose(const Json &variants, const Options &options);
    void load_weights(const Json &manifest, const std::string &folder, bool checked);
    Weight read_weight(const Json &row, bool checked);
    void own_memory(Weight &weight, const Tensor &from);
    void use_weights(Frame &frame);
    void load_code();
    void load_device();
    void upload(Weight &weight);
    std::unique_ptr<Frame> take_frame(std::vector<int64_t> key);
    void give_frame(std::unique_ptr<Frame> frame);

    Package package_;
    std::unique_ptr<Package> weights_file_;
    std::string variant_;
    Program program_;
    std::shared_ptr<Libtorch> torch_;  // null if the program calls no library
    OpenMp openmp_;
    std::vector<std::unique_ptr<SharedObject>> code_;
    std::shared_ptr<Cuda> cuda_;  // null if the program is on the host alone
    struct Loaded {
        KernelCall call = nullptr;
        void *function = nullptr;
        std::vector<void *> launches;  // of a device
    };
    std::vector<Loaded> functions_;
    struct Recorded {
        Held memory;
        char *data = nullptr;
        std::atomic<bool> waits{true};  // the first call waits for the device
    };
    std::vector<std::unique_ptr<Recorded>> records_;
    Parts parts_;
    std::vector<std::unique_ptr<PackedCall>> packed_;
    std::shared_ptr<Blocks> blocks_ = std::make_shared<Blocks>();

    std::vector<Weight> weights_;
    std::vector<uint32_t> weight_of_use_;   // of each WeightUse of the program
    std::vector<uint32_t> weight_of_slot_;  // NOTHING for other slots
    std::vector<std::string> weight_names_;
    uint64_t weights_version_ = 1;
    std::shared_mutex weights_lock_;  // shared by calls, unless the program writes weights

    std::mutex frames_lock_;
    std::vector<std::unique_ptr<Frame>> frames_;  // those that no call uses, the least recently used first
    std::atomic<int> threads_{0};
};

}  // namespace keel
