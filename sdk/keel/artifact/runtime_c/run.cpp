#include "run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "failure.h"
#include "library_call.h"

namespace keel {

namespace {

// Strides of a tensor of DLPack that has none: row-major.
void row_major(const DLTensor &value, std::vector<int64_t> &strides) {
    strides.assign(static_cast<size_t>(value.ndim), 1);
    for (size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * (value.shape[d] ? value.shape[d] : 1);
}

DLTensor for_part(const Tensor &tensor) {
    DLTensor made{};
    made.data = tensor.data;
    made.device = {tensor.on_device ? kDLCUDA : kDLCPU, 0};
    made.ndim = static_cast<int32_t>(tensor.rank);
    made.dtype = tensor.dtype->code;
    made.shape = const_cast<int64_t *>(tensor.sizes);
    made.strides = const_cast<int64_t *>(tensor.strides);
    return made;
}

template <typename T>
T first(const Tensor &tensor) {
    T value;
    memcpy(&value, tensor.data, sizeof value);
    return value;
}

// The first element of a tensor as a number.
Number element(const Tensor &tensor) {
    const DLDataType &code = tensor.dtype->code;
    if (code.code == kDLBool) return Number::of_bool(first<uint8_t>(tensor) != 0);
    if (code.code == kDLFloat && code.bits == 64) return Number::of_float(first<double>(tensor));
    if (code.code == kDLFloat && code.bits == 32) return Number::of_float(first<float>(tensor));
    if (code.code == kDLUInt && code.bits == 8) return Number::of(first<uint8_t>(tensor));
    if (code.code == kDLInt && code.bits == 8) return Number::of(first<int8_t>(tensor));
    if (code.code == kDLInt && code.bits == 16) return Number::of(first<int16_t>(tensor));
    if (code.code == kDLInt && code.bits == 32) return Number::of(first<int32_t>(tensor));
    if (code.code == kDLInt && code.bits == 64) return Number::of(first<int64_t>(tensor));
    failed(std::string("A number cannot be read from a tensor of ") + tensor.dtype->name + ".");
}

int64_t bits_of(const Number &number) {
    int64_t bits = number.integer;
    if (number.is_float()) memcpy(&bits, &number.real, sizeof bits);
    return bits;
}

}  // namespace

void Run::all(const DLManagedTensor *const *inputs) {
    for (size_t k = 0; k < program_.inputs.size(); k++) {
        if (inputs[k] == nullptr) bad_input("The input " + program_.inputs[k].name + " is missing.");
        take(program_.inputs[k], inputs[k]->dl_tensor, k);
    }
    for (const Step &each : program_.steps) step(each);
}

void Run::take(const Input &input, const DLTensor &value, size_t number) {
    const std::string &name = input.name;
    if ((value.device.device_type == kDLCPU) == input.on_device ||
        (input.on_device && (value.device.device_type != kDLCUDA || value.device.device_id != 0)))
        bad_input("The input " + name + " is not on " + (input.on_device ? "the first CUDA device." : "the host."));
    const DType *dtype = dtype_of(value.dtype);
    if (dtype != input.dtype)
        bad_input("The input " + name + " is of the dtype " + (dtype ? dtype->name : "unknown") + ", not " +
                  input.dtype->name + ".");
    if (value.ndim != static_cast<int32_t>(input.shape.size()))
        bad_input(words("The input %s has %d dimensions, not %zu.", name.c_str(), value.ndim, input.shape.size()));
    if (input.is_number) return take_number(input, value);
    std::vector<int64_t> &strides = frame_.passed_strides[number];
    if (value.strides == nullptr) row_major(value, strides);
    Tensor &tensor = frame_.slots[input.slot];
    tensor.data = static_cast<char *>(value.data) + value.byte_offset;
    tensor.sizes = value.shape;
    tensor.strides = value.strides ? value.strides : strides.data();
    tensor.dtype = dtype;
    tensor.rank = static_cast<uint32_t>(value.ndim);
    tensor.exists = true;
    tensor.on_device = input.on_device;
    for (uint32_t d = 0; d < tensor.rank; d++)
        if (tensor.sizes[d] < 0) bad_input("The input " + name + " has a negative size.");
    tensor.bytes = extent_of(tensor.sizes, tensor.strides, tensor.rank) * dtype->bytes;
    if (tensor.bytes > 0 && value.data == nullptr) bad_input("The input " + name + " has no data.");
}

void Run::take_number(const Input &input, const DLTensor &value) {
    if (value.data == nullptr) bad_input("The input " + input.name + " has no data.");
    const char *data = static_cast<const char *>(value.data) + value.byte_offset;
    Number number;
    if (input.dtype == dtype_named("float64")) {
        number.kind = Number::Kind::Float;
        memcpy(&number.real, data, 8);
    } else if (input.dtype == dtype_named("int64")) {
        memcpy(&number.integer, data, 8);
    } else {
        number = Number::of_bool(*data != 0);
    }
    frame_.set(input.symbol, number);
}

void Run::step(const Step &step) {
    switch (step.kind) {
        case Step::Kind::Bind: return bind(step);
        case Step::Kind::Compute: return frame_.set(step.a, Number::of(frame_.values.of(step.b).integer));
        case Step::Kind::Enter: return enter(step);
        case Step::Kind::Range: return range(step);
        case Step::Kind::Guard:
            if (!frame_.values.of(step.a).truth())
                bad_input("The program was compiled on a condition on sizes that does not hold: " + step.text + ".");
            return;
        case Step::Kind::Assert:
            if (!frame_.values.of(step.a).truth()) failed(step.text);
            return;
        case Step::Kind::TakeArena: return frame_.take_arena(step.a);
        case Step::Kind::GiveArena: return;
        case Step::Kind::Allocate: frame_.slots[step.a] = allocated(step.b); return;
        case Step::Kind::Reuse: frame_.slots[step.a] = frame_.slots[step.b]; return frame_.drop(step.b);
        case Step::Kind::View: return view(step);
        case Step::Kind::Launch: return launch(step);
        case Step::Kind::Library: return library(step);
        case Step::Kind::Packed: return packed(step);
        case Step::Kind::LayOut: return lay_out(step);
        case Step::Kind::Check: return check(step);
        case Step::Kind::Free: return frame_.drop(step.a);
        case Step::Kind::Copy: return copy_to(step);
        case Step::Kind::Clone: return clone(step);
        case Step::Kind::Part: return part(step);
        case Step::Kind::Read: return read(step);
        case Step::Kind::Record: return record(step);
        case Step::Kind::Settle: return settle(step);
    }
}

const Tensor &Run::existing(uint32_t slot) const {
    const Tensor &tensor = frame_.slots[slot];
    if (!tensor.exists) failed("A step gets a result that a library call has left out.");
    return tensor;
}

Tensor Run::allocated(uint32_t type) {
    const Layout &lies = frame_.layout(type);
    char *data = nullptr;
    size_t bytes = static_cast<size_t>(lies.bytes);
    bool on_device = program_.types[type].on_device;
    Held holder = on_device ? model_.cuda_->allocate(bytes, stream_, data) : model_.blocks_->allocate(bytes, data);
    return frame_.tensor(type, data, lies.bytes, std::move(holder));
}

void Run::bind(const Step &step) {
    if (step.source == Step::Source::Number) {
        const Number &value = frame_.values.of(step.b);
        if (value.is_float()) return frame_.set(step.a, value);
        return frame_.set(
            step.a, Number::of(divided(value.integer, frame_.values.integer(step.e), frame_.values.integer(step.d))));
    }
    const Tensor &tensor = existing(step.b);
    if (step.c >= tensor.rank) failed("A size is read of a tensor with fewer dimensions.");
    int64_t value = (step.source == Step::Source::Size ? tensor.sizes : tensor.strides)[step.c];
    frame_.set(step.a, Number::of(divided(value, frame_.values.integer(step.e), frame_.values.integer(step.d))));
}

void Run::range(const Step &step) {
    int64_t value = frame_.values.symbol(step.a).integer;
    if ((!step.has_low || value >= step.low) && (!step.has_high || value <= step.high)) return;
    std::string low = step.has_low ? std::to_string(step.low) : "-infinity",
                high = step.has_high ? std::to_string(step.high) : "infinity";
    bad_input("The size " + program_.expressions.name(step.a) + " is " + std::to_string(value) + ", not between " +
              low + " and " + high + ".");
}

// An input as the graph takes it: as it is if it has the strides that the graph was traced for, else a copy.
void Run::enter(const Step &step) {
    const Input &input = program_.inputs[step.a];
    const Tensor &passed = frame_.slots[input.slot];
    std::vector<int64_t> &dims = frame_.entered[step.a];
    bool is_new = dims.size() != 2 * passed.rank, fits = true;
    dims.resize(2 * passed.rank);
    for (uint32_t d = 0; d < passed.rank; d++) {
        int64_t size = input.shape[d] == NOTHING ? passed.sizes[d] : frame_.values.integer(input.shape[d]);
        if (size != passed.sizes[d])
            bad_input(words("The input %s has the size %lld in dimension %u, not %lld.", input.name.c_str(),
                            (long long)passed.sizes[d], d, (long long)size));
        int64_t want = input.strides[d] == NOTHING ? passed.strides[d] : frame_.values.integer(input.strides[d]);
        fits = fits && (size <= 1 || want == passed.strides[d]);
        is_new = is_new || dims[d] != size || dims[passed.rank + d] != want;
        dims[d] = size;
        dims[passed.rank + d] = want;
    }
    if (is_new && model_.torch_) frame_.forget_handle(step.b);
    Tensor taken = passed;
    taken.sizes = dims.data();
    taken.strides = dims.data() + passed.rank;
    if (!fits && taken.count() > 0 && taken.on_device)
        bad_input("The input " + input.name + " has other strides than the model was exported for.");
    if (!fits && taken.count() > 0) {
        taken.bytes = extent_of(taken.sizes, taken.strides, taken.rank) * taken.dtype->bytes;
        taken.holder = model_.blocks_->allocate(static_cast<size_t>(taken.bytes), taken.data);
        copy(passed, taken.data, taken.strides);
        for (uint32_t d = 0; d < passed.rank; d++)
            if (passed.sizes[d] > 1 && taken.strides[d] == 0 && passed.strides[d] != 0 && !is_repeated(passed, d))
                bad_input(
                    words("The elements of the input %s differ along dimension %u, along which the example of the "
                          "export was expanded.",
                          input.name.c_str(), d));
    }
    frame_.slots[step.b] = std::move(taken);
}

void Run::view(const Step &step) {
    const Tensor &base = existing(step.c);
    int64_t offset = frame_.values.integer(step.d);
    if (offset < 0 || offset > base.bytes) failed("A view lies outside of its tensor.");
    frame_.slots[step.a] = frame_.tensor(step.b, base.data + offset, base.bytes - offset, base.holder);
}

void Run::launch(const Step &step) {
    const Model::Loaded &loaded = model_.functions_[step.a];
    uint64_t arguments[MOST_PARAMETERS];
    char *buffers[MOST_PARAMETERS];
    size_t count = 0;
    for (uint32_t slot : step.slots) {
        buffers[count] = existing(slot).data;
        arguments[count] = reinterpret_cast<uint64_t>(buffers[count]);
        count++;
    }
    if (loaded.call == nullptr)
        return model_.cuda_->launch(program_.functions[step.a], loaded.launches, buffers, frame_.values, stream_);
    for (uint32_t symbol : step.numbers)
        arguments[count++] = static_cast<uint64_t>(frame_.values.symbol(symbol).integer);
    loaded.call(loaded.function, arguments);
}

// -- memory of a device ---------------------------------------------------------------------------------------------

// Copies a tensor to memory with these strides, on the host or on the device.
void Run::copied(const Tensor &from, char *to, const int64_t *strides) {
    if (!from.on_device) return copy(from, to, strides);
    int64_t count = from.count();
    bool dense =
        lies_as(from.sizes, from.strides, strides, from.rank) && extent_of(from.sizes, strides, from.rank) == count;
    if (count > 0 && !dense) failed("A tensor on the device would have to be copied to other strides.");
    model_.cuda_->on_device(to, from.data, static_cast<size_t>(count) * from.dtype->bytes, stream_);
}

void Run::record(const Step &step) {
    Model::Recorded &recorded = *model_.records_[step.a];
    size_t sites = program_.records[step.a].sites.size();
    for (const ArenaView &each : program_.records[step.a].places) {
        char *at = recorded.data + each.offset * sizeof(int64_t);
        frame_.slots[each.slot] = frame_.tensor(
            each.type, at, static_cast<int64_t>((sites - each.offset) * sizeof(int64_t)), recorded.memory);
    }
}

// Kernels record wrong indices when they run. A call reports what has been recorded by then; the first one waits.
void Run::settle(const Step &step) {
    Model::Recorded &recorded = *model_.records_[step.a];
    if (step.b && recorded.waits.exchange(false)) model_.cuda_->wait(stream_);
    volatile int64_t *record = reinterpret_cast<volatile int64_t *>(recorded.data);
    for (size_t k = 0; k < program_.records[step.a].sites.size(); k++) {
        int64_t value = record[k];
        if (value == 0) continue;
        memset(recorded.data, 0, program_.records[step.a].sites.size() * sizeof(int64_t));
        bad_index(program_.records[step.a].sites[k], value);
    }
}

void Run::library(const Step &step) {
    std::vector<Handle> &made = frame_.results;
    made.clear();
    run_call(*model_.torch_, step.call, [this](uint32_t slot) { return frame_.handle(slot); }, frame_.values, made);
    for (size_t k = 0; k < made.size(); k++)
        if (uint32_t slot = step.call.results[k]; slot != NOTHING)
            frame_.put(slot, std::exchange(made[k], nullptr), step.a);
}

void Run::packed(const Step &step) {
    std::vector<Handle> parameters;
    std::vector<uint64_t> versions;
    bool are_weights = true;
    for (uint32_t slot : step.slots) {
        parameters.push_back(frame_.handle(slot));
        uint32_t weight = model_.weight_of_slot_[slot];
        are_weights = are_weights && weight != NOTHING;
        if (are_weights) versions.push_back(model_.weights_[weight].version);
    }
    if (!are_weights) versions.clear();
    Handle other = step.c == NOTHING ? nullptr : frame_.handle(step.c);
    Handle result = model_.packed_[step.a]->run(frame_.handle(step.b), other, parameters, versions, frame_.values);
    frame_.put(step.d, result, NOTHING);
}

// What a library returned, in the strides of its type: as it is if it has them, else a copy.
void Run::lay_out(const Step &step) {
    Tensor &tensor = frame_.slots[step.a];
    if (!tensor.exists) return;  // a result that nobody asked for
    const Layout &want = frame_.layout(step.b);
    const Type &type = program_.types[step.b];
    uint32_t rank = static_cast<uint32_t>(type.shape.size());
    if (tensor.dtype != type.dtype)
        failed(std::string("A library returned a tensor of ") + tensor.dtype->name + ", not " + type.dtype->name + ".");
    if (tensor.rank != rank || !std::equal(want.sizes(), want.sizes() + rank, tensor.sizes))
        failed("A library returned a tensor of sizes " + shown(tensor.sizes, tensor.rank) + ", not " +
               shown(want.sizes(), rank) + ".");
    bool stays = tensor.count() == 0 || lies_as(tensor.sizes, tensor.strides, want.strides(), rank);
    for (uint32_t slot : step.slots)
        stays = stays && !(frame_.slots[slot].exists && frame_.slots[slot].data == tensor.data);
    if (stays) return;
    Tensor made = allocated(step.b);
    copied(tensor, made.data, made.strides);
    frame_.drop(step.a);
    frame_.slots[step.a] = std::move(made);
}

void Run::check(const Step &step) {
    const int64_t *record = frame_.record(step.a);
    for (size_t k = 0; k < step.slots.size(); k += 2)
        for (uint32_t site = step.slots[k]; site < step.slots[k + 1]; site++)
            if (record[site] != 0) bad_index(program_.arenas[step.a].sites[site], record[site]);
}

void Run::bad_index(const CheckSite &site, int64_t recorded) {
    std::string bound = site.bound == NOTHING ? site.bound_text : frame_.values.of(site.bound).text();
    int64_t value = recorded > 0 ? recorded - 1 : recorded;
    std::string text = site.operator_name + ": index " + std::to_string(value) +
                       " is out of bounds for a dimension of size " + bound + ".";
    text += " Valid indices are at least " + (site.wraps ? "-" + bound : std::string("0")) + " and less than " + bound +
            ".";
    throw Failure(KEEL_BAD_INDEX, site.line.empty() ? text : text + " (" + site.line + ")");
}

void Run::copy_to(const Step &step) {
    const Tensor &to = existing(step.a), &from = existing(step.b);
    if (to.rank != from.rank || to.dtype != from.dtype || !std::equal(to.sizes, to.sizes + to.rank, from.sizes))
        failed("New contents have other sizes than what they are written to.");
    if (to.data != from.data) copied(from, to.data, to.strides);
    if (uint32_t weight = model_.weight_of_slot_[step.a]; weight != NOTHING) model_.weights_[weight].version++;
}

void Run::clone(const Step &step) {
    Tensor made = allocated(step.b);
    const Tensor &from = existing(step.c);
    if (made.rank != from.rank || made.dtype != from.dtype ||
        !std::equal(made.sizes, made.sizes + made.rank, from.sizes))
        failed("A copy has other sizes than what is copied.");
    copied(from, made.data, made.strides);
    frame_.slots[step.a] = std::move(made);
}

void Run::read(const Step &step) {
    const Tensor &tensor = existing(step.b);
    if (tensor.count() != 1)
        failed("A number is read from a tensor of sizes " + shown(tensor.sizes, tensor.rank) + ".");
    char bytes[8] = {};
    Tensor here = tensor;
    if (tensor.on_device) {
        model_.cuda_->to_host(bytes, tensor.data, tensor.dtype->bytes, stream_);
        here.data = bytes;
    }
    frame_.set(step.a, element(here));
}

void Run::part(const Step &step) {
    std::vector<DLTensor> inputs, outputs;
    std::vector<int64_t> numbers(step.passed.size());
    for (size_t k = 0; k < step.passed.size(); k++) {
        const PartArgument &each = step.passed[k];
        if (!each.is_number) {
            inputs.push_back(for_part(existing(each.at)));
            continue;
        }
        const Number &value = frame_.values.of(each.at);
        Tensor number;
        number.dtype = each.dtype;
        number.data = reinterpret_cast<char *>(&numbers[k]);
        numbers[k] = bits_of(value);
        inputs.push_back(for_part(number));
    }
    for (size_t k = 0; k < step.slots.size(); k++) {
        frame_.slots[step.slots[k]] = allocated(step.numbers[k]);
        outputs.push_back(for_part(frame_.slots[step.slots[k]]));
    }
    model_.parts_.run(step.a, inputs, outputs, stream_);
}

// -- results --------------------------------------------------------------------------------------------------------

namespace {

struct Result {
    DLManagedTensor managed;
    Held holder;
    std::vector<int64_t> dims;
};

void delete_result(DLManagedTensor *managed) { delete static_cast<Result *>(managed->manager_ctx); }

DLManagedTensor *managed(const Tensor &tensor) {
    Result *made = new Result{};
    made->holder = tensor.holder;
    made->dims.assign(tensor.sizes, tensor.sizes + tensor.rank);
    made->dims.insert(made->dims.end(), tensor.strides, tensor.strides + tensor.rank);
    DLTensor &shown = made->managed.dl_tensor;
    shown.data = tensor.data;
    shown.device = {tensor.on_device ? kDLCUDA : kDLCPU, 0};
    shown.ndim = static_cast<int32_t>(tensor.rank);
    shown.dtype = tensor.dtype->code;
    shown.shape = made->dims.data();
    shown.strides = made->dims.data() + tensor.rank;
    made->managed.manager_ctx = made;
    made->managed.deleter = delete_result;
    return &made->managed;
}

}  // namespace

std::vector<DLManagedTensor *> Run::results() {
    std::vector<DLManagedTensor *> made;
    try {
        for (const Output &output : program_.outputs) {
            made.reserve(program_.outputs.size());
            made.push_back(result(output));
        }
    } catch (...) {
        for (DLManagedTensor *each : made)
            if (each) each->deleter(each);
        throw;
    }
    return made;
}

DLManagedTensor *Run::result(const Output &output) {
    if (output.kind == Output::Kind::None) return nullptr;
    if (output.kind == Output::Kind::Tensor) {
        const Tensor &tensor = frame_.slots[output.at];
        return tensor.exists ? managed(tensor) : nullptr;
    }
    Tensor number;
    number.dtype = output.dtype;
    number.exists = true;
    number.holder = model_.blocks_->allocate(sizeof(int64_t), number.data);
    const Number &value = frame_.values.of(output.at);
    int64_t bits = bits_of(output.dtype == dtype_named("float64") ? Number::of_float(value.as_double()) : value);
    memcpy(number.data, &bits, output.dtype->bytes);
    return managed(number);
}

}  // namespace keel
