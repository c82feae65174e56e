#include "model.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "cpu.h"
#include "failure.h"
#include "library_call.h"
#include "run.h"

namespace keel {

namespace {

constexpr size_t MOST_FRAMES = 8;  // that are retained for sizes other than those of the latest calls
constexpr const char *WEIGHTS = "weights/";
constexpr int64_t FORMAT = 1, LARGEST = int64_t{1} << 48;

std::string folder_of(const std::string &path) {
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// Turns gradients off for a call.
class NoGradients {
  public:
    explicit NoGradients(const Libtorch *torch) : torch_(torch), before_(torch && torch->grad_enabled()) {
        if (before_) torch_->set_grad_enabled(false);
    }
    ~NoGradients() {
        if (before_) torch_->set_grad_enabled(true);
    }

  private:
    const Libtorch *torch_;
    bool before_;
};

// Sets the stream of a device on which libtorch works in a call.
class OnStream {
  public:
    OnStream(const Libtorch *torch, void *stream) : torch_(torch) {
        if (!torch_ || !torch_->get_stream || !torch_->set_stream) return;
        torch_->check(torch_->get_stream(0, &before_), "Asking for the stream");
        changed_ = before_ != stream;
        if (changed_) torch_->check(torch_->set_stream(stream, 0), "Setting the stream");
    }
    ~OnStream() {
        if (changed_) torch_->set_stream(before_, 0);
    }

  private:
    const Libtorch *torch_;
    void *before_ = nullptr;
    bool changed_ = false;
};

// Sets the number of threads for a call. OpenMP has one for each thread that calls.
class Threads {
  public:
    Threads(const OpenMp &openmp, const Libtorch *torch, int threads) : openmp_(openmp) {
        if (threads <= 0) return;
        if (openmp.set_threads && openmp.get_threads) {
            before_ = openmp.get_threads();
            if (before_ != threads) openmp.set_threads(threads);
        }
        if (torch && torch->set_threads && before_ != threads) torch->set_threads(threads);
    }
    ~Threads() {
        if (before_ > 0) openmp_.set_threads(before_);
    }

  private:
    const OpenMp &openmp_;
    int before_ = 0;
};

}  // namespace

Model::Model(const std::string &path, const Options &options) : package_(path), threads_(options.threads) {
    package_.check_all_but(WEIGHTS);  // those are checked one by one, or not at all
    Json manifest = Json::parse(package_.member("package.json", false));
    if (manifest["format"].integer() != FORMAT)
        bad_package(words("%s is of version %lld of the format, and this runtime reads version %lld.", path.c_str(),
                          (long long)manifest["format"].integer(), (long long)FORMAT));
    const Json &variant = choose(manifest["variants"], options);
    variant_ = variant["name"].text();
    program_ = read_program(Json::parse(package_.member(variant["program"].text(), false)));
    load_weights(manifest, folder_of(path), options.check_weights);
    if (program_.uses_device()) load_device();
    if (program_.calls_libraries()) {
        const char *place = getenv("KEEL_LIBTORCH");
        torch_ = std::make_shared<Libtorch>(!options.libtorch.empty() ? options.libtorch
                                            : place                   ? place
                                                                      : "",
                                            program_.uses_device() ? "cuda" : "cpu");
        for (Step &step : program_.steps)
            if (step.kind == Step::Kind::Library) prepare(step.call, *torch_);
        for (Packed &packed : program_.packed) {
            for (Call &call : packed.recipe) prepare(call, *torch_);
            if (!packed.then.empty()) prepare(packed.then_call, *torch_);
            packed_.push_back(std::make_unique<PackedCall>(packed, torch_, blocks_));
        }
    }
    load_code();
    for (const keel_part_library_v1 *library : options.part_libraries) parts_.add(library);
    for (const std::string &file : options.part_files) parts_.open(file);
    for (const PartUse &part : program_.parts) parts_.load(part.backend, package_.member(part.member, false));
}

bool Model::has(const Options &options, const std::string &kind, const std::string &feature) {
    if (kind == "cuda") {
        if (!cuda_) cuda_ = std::make_shared<Cuda>();
        return cuda_->has(feature);
    }
    if (kind != "cpu") return false;
    if (options.asks_cpu) return cpu_has(feature);
    return std::find(options.cpu_features.begin(), options.cpu_features.end(), feature) != options.cpu_features.end();
}

// What a variant needs and this machine lacks, as words; "" if it can run here.
std::string Model::lacking(const Json &variant, const Options &options) {
    if (variant["program"].is_null()) {
        const Json *why = variant.find("why_no_program");
        return why && why->is_text() && !why->text().empty() ? "it runs in Python alone: " + why->text()
                                                             : "it runs in Python alone";
    }
    for (const Json &need : variant["needs"].list()) {
        const std::string &kind = need.list(2)[0].text(), &feature = need.at(1).text();
        if (!has(options, kind, feature))
            return kind == "cpu" ? "this CPU has no " + feature
                                 : "it needs " + kind + " " + feature + ", which this runtime does not have";
    }
    return "";
}

const Json &Model::choose(const Json &variants, const Options &options) {
    std::string why;
    for (const Json &variant : variants.list()) {
        const std::string &name = variant["name"].text();
        if (!options.variant.empty() && name != options.variant) continue;
        std::string lacks = lacking(variant, options);
        if (lacks.empty()) return variant;
        why += (why.empty() ? "" : "; ") + ("the variant " + name) + ": " + lacks;
    }
    if (why.empty())
        throw Failure(KEEL_NOT_HERE, options.variant.empty() ? "The package has no variants."
                                                             : "The package has no variant " + options.variant + ".");
    throw Failure(KEEL_NOT_HERE, "The package cannot run here. " + why + ".");
}

// -- weights --------------------------------------------------------------------------------------------------------

void Model::load_weights(const Json &manifest, const std::string &folder, bool checked) {
    const Json *file = manifest.find("weights_file");
    if (file && file->is_text()) {
        if (file->text().empty() || file->text().find('/') != std::string::npos)
            bad_package("The package names a file of weights that is not beside it.");
        weights_file_ = std::make_unique<Package>(folder + file->text());
    }
    std::map<std::string, const WeightUse *> used;
    for (const WeightUse &use : program_.weights)
        if (!used.emplace(use.name, &use).second)
            bad_package("The program of the package has two weights of the name " + use.name + ".");
    std::map<int64_t, uint32_t> by_tensor;
    std::map<std::string, uint32_t> by_name;
    int64_t alone = -1;
    for (const Json &row : manifest["weights"].list()) {
        const std::string &name = row["name"].text();
        const Json *tensor = row.find("tensor");
        auto [place, is_new] =
            by_tensor.emplace(tensor ? tensor->integer(0, LARGEST) : alone--, static_cast<uint32_t>(weights_.size()));
        if (!is_new) {
            weights_[place->second].names.push_back(name);
            by_name.emplace(name, place->second);
        } else if (used.count(name) || tensor != nullptr) {
            weights_.push_back(read_weight(row, checked));
            by_name.emplace(name, place->second);
        } else {
            by_tensor.erase(place);
        }
    }
    weight_of_slot_.assign(program_.slots, NOTHING);
    Values values(program_.expressions);
    for (const WeightUse &use : program_.weights) {
        auto found = by_name.find(use.name);
        if (found == by_name.end()) bad_package("The package has no weight " + use.name + ".");
        Weight &weight = weights_[found->second];
        const Type &type = program_.types[use.type];
        std::vector<int64_t> dims;
        for (const auto *list : {&type.shape, &type.strides})
            for (uint32_t dim : *list) dims.push_back(values.integer(dim));
        if (type.dtype != weight.dtype || dims != weight.dims)
            bad_package("The weight " + use.name + " of the package is not of the type that the program has.");
        weight.is_written = weight.is_written || use.written;
        weight_of_use_.push_back(found->second);
        weight_of_slot_[use.slot] = found->second;
    }
    for (Weight &weight : weights_) {
        for (const std::string &name : weight.names) weight_names_.push_back(name);
        if (!weight.is_written || weight.holder.get() != nullptr) continue;
        Tensor mapped;
        mapped.data = weight.data;
        mapped.sizes = weight.dims.data();
        mapped.strides = weight.dims.data() + weight.rank();
        mapped.rank = weight.rank();
        mapped.dtype = weight.dtype;
        own_memory(weight, mapped);
    }
}

Weight Model::read_weight(const Json &row, bool checked) {
    Weight weight;
    weight.names.push_back(row["name"].text());
    weight.dtype = dtype_named(row["dtype"].text());
    if (weight.dtype == nullptr) bad_package("The weight " + weight.names[0] + " is of an unknown dtype.");
    std::vector<int64_t> plain;
    for (const Json &each : row["shape"].list()) weight.dims.push_back(each.integer(0, LARGEST));
    uint32_t rank = static_cast<uint32_t>(weight.dims.size());
    for (const Json &each : row["strides"].list(rank)) weight.dims.push_back(each.integer(0, LARGEST));
    if (rank > 64) bad_package("The weight " + weight.names[0] + " has too many dimensions.");
    plain.assign(rank, 1);
    for (size_t d = rank; d-- > 1;)
        if (__builtin_mul_overflow(plain[d], weight.dims[d] ? weight.dims[d] : 1, &plain[d - 1]))
            bad_package("A weight has too many elements.");
    const std::string &member = row["member"].text();
    const Package &holder = weights_file_ && !package_.has(member) ? *weights_file_ : package_;
    std::string_view bytes = holder.member(member, checked);
    int64_t count = count_of(weight.dims.data(), rank);
    if (count > LARGEST || bytes.size() != static_cast<uint64_t>(count) * weight.dtype->bytes)
        bad_package("The weight " + weight.names[0] + " has another number of bytes than its sizes say.");
    weight.data =
        const_cast<char *>(bytes.data());  // nothing writes to it: a weight that is written has its own memory
    weight.bytes = static_cast<int64_t>(bytes.size());
    if (const Json *replaceable = row.find("replaceable")) weight.replaceable = replaceable->flag();
    Tensor mapped;
    mapped.data = weight.data;
    mapped.sizes = weight.dims.data();
    mapped.strides = plain.data();
    mapped.rank = rank;
    mapped.dtype = weight.dtype;
    if (count > 0 && !lies_as(weight.dims.data(), plain.data(), weight.dims.data() + rank, rank))
        own_memory(weight, mapped);
    return weight;
}

// Copies a tensor into memory of the weight's own, in the weight's strides.
void Model::own_memory(Weight &weight, const Tensor &from) {
    uint32_t rank = weight.rank();
    int64_t bytes = extent_of(weight.dims.data(), weight.dims.data() + rank, rank) * weight.dtype->bytes;
    char *data = nullptr;
    Held holder = blocks_->allocate(static_cast<size_t>(bytes), data);
    copy(from, data, weight.dims.data() + rank);
    weight.data = data;
    weight.bytes = bytes;
    weight.holder = std::move(holder);
}

void Model::replace(const std::string &name, const DLTensor &value) {
    std::unique_lock<std::shared_mutex> guard(weights_lock_);
    for (Weight &weight : weights_) {
        if (std::find(weight.names.begin(), weight.names.end(), name) == weight.names.end()) continue;
        if (!weight.replaceable)
            failed("The weight " + name +
                   " cannot be replaced: something was computed from its value when the package was made.");
        if (value.device.device_type != kDLCPU) bad_input("The new value of " + name + " is not on the host.");
        if (dtype_of(value.dtype) != weight.dtype)
            bad_input("The new value of " + name + " is not of the dtype " + weight.dtype->name + ".");
        if (value.ndim != static_cast<int32_t>(weight.rank()) ||
            !std::equal(value.shape, value.shape + value.ndim, weight.dims.data()))
            bad_input("The new value of " + name + " is not of the sizes " + shown(weight.dims.data(), weight.rank()) +
                      ".");
        std::vector<int64_t> plain(weight.rank(), 1);
        for (size_t d = plain.size(); d-- > 1;) plain[d - 1] = plain[d] * (value.shape[d] ? value.shape[d] : 1);
        Tensor from;
        from.data = static_cast<char *>(value.data) + value.byte_offset;
        from.sizes = value.shape;
        from.strides = value.strides ? value.strides : plain.data();
        from.rank = weight.rank();
        from.dtype = weight.dtype;
        own_memory(weight, from);
        if (weight.on_device) {
            cuda_->enter();
            upload(weight);
        }
        weight.version++;
        weights_version_++;
        return;
    }
    bad_input("The model has no weight " + name + ".");
}

void Model::use_weights(Frame &frame) {
    if (frame.weights_version == weights_version_) return;
    for (size_t k = 0; k < program_.weights.size(); k++) {
        const WeightUse &use = program_.weights[k];
        const Weight &weight = weights_[weight_of_use_[k]];
        frame.slots[use.slot] = frame.tensor(use.type, weight.data, weight.bytes, weight.holder);
        if (torch_) frame.forget_handle(use.slot);
    }
    frame.weights_version = weights_version_;
}

// -- code -----------------------------------------------------------------------------------------------------------

void Model::load_code() {
    openmp_ = share_libraries(torch_ ? torch_->address() : nullptr);
    std::vector<void *> modules;
    for (const CodeMember &each : program_.code) {
        std::string_view content = package_.member(each.member, false);
        bool on_device = each.kind == "cubin";
        code_.push_back(on_device ? nullptr : std::make_unique<SharedObject>(content, each.member));
        if (on_device && !cuda_) bad_package("The package has code of a device, and no tensors on it.");
        modules.push_back(on_device ? cuda_->module(content) : nullptr);
    }
    for (const KernelUse &use : program_.functions) {
        Loaded loaded;
        if (!use.on_device) {
            loaded.call = kernel_call(use.buffers + use.symbols);
            loaded.function = code_[use.code]->function(use.name);
        }
        for (const DeviceLaunch &each : use.launches)
            loaded.launches.push_back(cuda_->function(modules[each.code], each.name, each.shared));
        functions_.push_back(std::move(loaded));
    }
}

void Model::load_device() {
    if (!cuda_) cuda_ = std::make_shared<Cuda>();
    cuda_->enter();
    for (const WeightUse &use : program_.weights)
        if (program_.types[use.type].on_device) weights_[weight_of_slot_[use.slot]].on_device = true;
    for (Weight &weight : weights_)
        if (weight.on_device) upload(weight);
    for (const Record &record : program_.records) {
        records_.push_back(std::make_unique<Recorded>());
        records_.back()->memory = cuda_->host_memory(record.sites.size() * sizeof(int64_t), records_.back()->data);
    }
}

void Model::upload(Weight &weight) {
    char *data = nullptr;
    Held holder = cuda_->allocate(static_cast<size_t>(weight.bytes), nullptr, data);
    cuda_->to_device(data, weight.data, static_cast<size_t>(weight.bytes));
    weight.data = data;
    weight.holder = std::move(holder);
}

// -- calls ----------------------------------------------------------------------------------------------------------

void Model::run(void *stream, const DLManagedTensor *const *inputs, size_t input_count, DLManagedTensor **outputs,
                size_t output_count) {
    if (input_count != program_.inputs.size())
        bad_input(words("The model takes %zu inputs, not %zu.", program_.inputs.size(), input_count));
    if (output_count != program_.outputs.size())
        bad_input(words("The model returns %zu outputs, not %zu.", program_.outputs.size(), output_count));
    std::vector<int64_t> key;
    for (size_t k = 0; k < input_count; k++)
        if (inputs[k] && inputs[k]->dl_tensor.ndim > 0)
            key.insert(key.end(), inputs[k]->dl_tensor.shape, inputs[k]->dl_tensor.shape + inputs[k]->dl_tensor.ndim);
    std::shared_lock<std::shared_mutex> reading(weights_lock_, std::defer_lock);
    std::unique_lock<std::shared_mutex> writing(weights_lock_, std::defer_lock);
    program_.writes_weights() ? writing.lock() : reading.lock();
    NoGradients off(torch_.get());
    if (cuda_) cuda_->enter();
    OnStream on(cuda_ ? torch_.get() : nullptr, stream);
    Threads threads(openmp_, torch_.get(), threads_);
    std::unique_ptr<Frame> frame = take_frame(std::move(key));
    std::vector<DLManagedTensor *> results;
    try {
        use_weights(*frame);
        Run run(*this, *frame, stream);
        run.all(inputs);
        results = run.results();
    } catch (...) {
        frame->clear();
        give_frame(std::move(frame));
        throw;
    }
    frame->clear();
    give_frame(std::move(frame));
    std::copy(results.begin(), results.end(), outputs);
}

std::unique_ptr<Frame> Model::take_frame(std::vector<int64_t> key) {
    {
        std::lock_guard<std::mutex> guard(frames_lock_);
        for (size_t k = frames_.size(); k-- > 0;) {
            if (frames_[k]->key != key && !(k == 0 && frames_.size() >= MOST_FRAMES)) continue;
            std::unique_ptr<Frame> frame = std::move(frames_[k]);
            frames_.erase(frames_.begin() + static_cast<ptrdiff_t>(k));
            frame->key = std::move(key);
            return frame;
        }
    }
    auto frame = std::make_unique<Frame>(program_, torch_);
    frame->key = std::move(key);
    return frame;
}

void Model::give_frame(std::unique_ptr<Frame> frame) {
    std::lock_guard<std::mutex> guard(frames_lock_);
    frames_.push_back(std::move(frame));
}

size_t Model::held_bytes() {
    size_t bytes = blocks_->retained();
    std::lock_guard<std::mutex> guard(frames_lock_);
    for (const auto &frame : frames_) bytes += frame->held_bytes();
    return bytes;
}

}  // namespace keel
