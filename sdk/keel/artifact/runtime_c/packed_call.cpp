#include "packed_call.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "failure.h"
#include "library_call.h"

namespace keel {

namespace {

// Between these numbers of rows MKL's packed form is faster, and it is used for the number that it was packed for.
// (keel.torch_adapter.packed_linear)
constexpr int64_t FEWEST = 8, MOST = 512;

// A tensor of libtorch that is deleted at the end of a block, unless it is passed on.
class Owned {
  public:
    Owned(const Libtorch &torch, Handle handle) : torch_(torch), handle_(handle) {}
    ~Owned() {
        if (handle_) torch_.delete_tensor(handle_);
    }
    Owned(const Owned &) = delete;
    Owned &operator=(const Owned &) = delete;
    Handle get() const { return handle_; }
    Handle release() { return std::exchange(handle_, nullptr); }

    struct List {
        explicit List(const Libtorch &torch) : torch(torch) {}
        ~List() {
            for (Handle handle : handles)
                if (handle) torch.delete_tensor(handle);
        }
        const Libtorch &torch;
        std::vector<Handle> handles;
    };

  private:
    const Libtorch &torch_;
    Handle handle_;
};

std::vector<int64_t> row_major(const std::vector<int64_t> &sizes) {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * (sizes[d] ? sizes[d] : 1);
    return strides;
}

std::vector<double> elements(const Tensor &tensor) {  // of float32, in row-major order
    std::vector<int64_t> sizes(tensor.sizes, tensor.sizes + tensor.rank), strides = row_major(sizes);
    std::vector<float> plain(static_cast<size_t>(tensor.count()));
    copy(tensor, reinterpret_cast<char *>(plain.data()), strides.data());
    return {plain.begin(), plain.end()};
}

double combined(char sign, double a, double b) {
    return sign == '+' ? a + b : sign == '-' ? a - b : sign == '*' ? a * b : a / b;
}
float combined(char sign, float a, float b) {
    return sign == '+' ? a + b : sign == '-' ? a - b : sign == '*' ? a * b : a / b;
}

bool all_finite(const std::vector<float> &values) {
    for (float value : values)
        if (!std::isfinite(value)) return false;
    return true;
}

}  // namespace

struct PackedCall::Weights {
    explicit Weights(std::shared_ptr<const Libtorch> torch) : torch(std::move(torch)) {}
    ~Weights() {
        for (Handle handle : {plain, packed, bias, source})
            if (handle) torch->delete_tensor(handle);
    }
    Weights(const Weights &) = delete;
    Weights &operator=(const Weights &) = delete;

    std::shared_ptr<const Libtorch> torch;
    Handle plain = nullptr, packed = nullptr, bias = nullptr;  // `plain` is the matrix that MKL's form needs as well
    Handle source = nullptr;                                   // what `plain` lies in, if the recipe computed it
    int64_t rows = 0;
    std::vector<Held> memory;
    std::vector<std::pair<char, std::vector<double>>> after;  // what could not be folded
};

PackedCall::PackedCall(const Packed &call, std::shared_ptr<const Libtorch> torch, std::shared_ptr<Blocks> blocks)
    : call_(call), torch_(std::move(torch)), blocks_(std::move(blocks)) {
    bool there = call.is_convolution ? torch_->convolution && torch_->convolution_add
                                     : torch_->linear && torch_->linear_add && torch_->add_tensor;
    if (!there) throw Failure(KEEL_NOT_HERE, "This libtorch has no oneDNN, whose packed operators the package calls.");
}

Handle PackedCall::run(Handle image, Handle other, const std::vector<Handle> &parameters,
                       const std::vector<uint64_t> &versions, Values &numbers) {
    std::shared_ptr<const Weights> weights = packed(image, parameters, versions, numbers);
    if (weights->after.empty()) return form(*weights, image, other, false);
    return applied_after(*weights, form(*weights, image, nullptr, true), other, numbers);
}

std::shared_ptr<const PackedCall::Weights> PackedCall::packed(Handle image, const std::vector<Handle> &parameters,
                                                              const std::vector<uint64_t> &versions, Values &numbers) {
    std::lock_guard<std::mutex> guard(lock_);
    if (known_ && !versions.empty() && versions == versions_) return known_;
    if (image_.empty()) {
        Tensor first = torch_->described(image);
        image_.assign(first.sizes, first.sizes + first.rank);
    }
    known_ = nullptr;  // frees the old weight before the new one is made
    std::shared_ptr<const Weights> made = this->made(parameters, numbers);
    if (!versions.empty()) {
        known_ = made;
        versions_ = versions;
    }
    return made;
}

std::shared_ptr<const PackedCall::Weights> PackedCall::made(const std::vector<Handle> &parameters,
                                                            Values &numbers) const {
    auto weights = std::make_shared<Weights>(torch_);
    Owned::List recipe(*torch_);
    std::vector<Handle> values = parameters;
    for (const Call &each : call_.recipe) {
        run_call(*torch_, each, [&values](uint32_t k) { return values[k]; }, numbers, recipe.handles);
        values.push_back(recipe.handles.back());
    }
    uint32_t source = call_.outputs[0].at;
    if (source >= parameters.size()) weights->source = torch_->duplicate(values[source]);
    Tensor weight = torch_->described(values[source]), bias;
    if (call_.outputs[1].kind == Packed::Output::Value) bias = torch_->described(values[call_.outputs[1].at]);
    std::vector<std::vector<double>> operands;
    for (size_t k = 2; k < call_.outputs.size(); k++) {
        const Packed::Computed &from = call_.outputs[k];
        if (from.kind == Packed::Output::Value)
            operands.push_back(elements(torch_->described(values[from.at])));
        else
            operands.push_back({numbers.of(from.at).as_double()});
    }
    if (!call_.folded.empty()) {
        if (weight.dtype != dtype_named("float32") || weight.rank <= call_.channels)
            failed("A packed weight is not of float32.");
        size_t channels = static_cast<size_t>(weight.sizes[call_.channels]);
        for (const auto &operand : operands)
            if (operand.size() != 1 && operand.size() != channels)
                failed("A packed weight has another number of channels than its operands.");
        // In float64, rounded once, as keel.schedule.packed_call does it.
        std::vector<double> scale(channels, 1), shift = bias.exists ? elements(bias) : std::vector<double>(channels, 0);
        for (size_t k = 0; k < operands.size(); k++)
            for (size_t c = 0; c < channels; c++) {
                double value = operands[k][operands[k].size() == 1 ? 0 : c];
                char sign = call_.folded[k];
                if (sign == '*' || sign == '/') scale[c] = combined(sign, scale[c], value);
                shift[c] = combined(sign, shift[c], value);
            }
        std::vector<double> scaled = elements(weight);
        int64_t inner = 1;
        for (uint32_t d = call_.channels + 1; d < weight.rank; d++) inner *= weight.sizes[d];
        size_t row = static_cast<size_t>(inner);
        for (size_t k = 0; k < scaled.size(); k += row)
            for (size_t at = k; at < k + row; at++) scaled[at] *= scale[k / row % channels];
        std::vector<float> folded(scaled.begin(), scaled.end()), added(shift.begin(), shift.end());
        bool finite = all_finite(folded) && all_finite(added);
        for (double value : scale) finite = finite && std::isfinite(value);
        if (finite) {
            std::vector<int64_t> sizes(weight.sizes, weight.sizes + weight.rank),
                strides = row_major(sizes), one = {static_cast<int64_t>(channels)}, step = {1};
            weight.data = reinterpret_cast<char *>(folded.data());
            weight.sizes = sizes.data();
            weight.strides = strides.data();
            pack(*weights, weight);
            bias = weight;
            bias.rank = 1;
            weights->memory.push_back(blocks_->allocate(channels * sizeof(float), bias.data));
            memcpy(bias.data, added.data(), channels * sizeof(float));
            weights->bias = torch_->from_memory(bias, one.data(), step.data());
            return weights;
        }
        for (size_t k = 0; k < operands.size(); k++) weights->after.emplace_back(call_.folded[k], operands[k]);
    }
    pack(*weights, weight);
    if (bias.exists) weights->bias = torch_->duplicate(values[call_.outputs[1].at]);
    return weights;
}

void PackedCall::pack(Weights &weights, const Tensor &weight) const {
    if (!call_.is_convolution) return pack_linear(weights, weight);
    if (weight.rank != 4) failed("The weight of a packed convolution has not four dimensions.");
    const int64_t *n = weight.sizes;
    int64_t strides[4] = {n[1] * n[2] * n[3], 1, n[3] * n[1], n[1]};  // channels last
    Tensor laid = weight;
    laid.holder = blocks_->allocate(static_cast<size_t>(weight.count()) * weight.dtype->bytes, laid.data);
    copy(weight, laid.data, strides);
    Owned handle(*torch_, torch_->from_memory(laid, n, strides));
    Stack stack(*torch_);
    stack.tensor(handle.get())
        .integers(call_.padding)
        .integers(call_.stride)
        .integers(call_.dilation)
        .integer(call_.groups)
        .optional_integers(image_);
    weights.packed = stack.call("mkldnn::_reorder_convolution_weight", "");  // in memory of its own
    drop_source(weights);
}

void PackedCall::drop_source(Weights &weights) const {
    if (weights.source) torch_->delete_tensor(std::exchange(weights.source, nullptr));
}

void PackedCall::pack_linear(Weights &weights, const Tensor &weight) const {
    if (weight.rank != 2 || image_.size() != 2) failed("The weight of a packed product is not a matrix.");
    int64_t sizes[2] = {weight.sizes[1], weight.sizes[0]}, turned[2] = {weight.strides[1], weight.strides[0]},
            strides[2] = {sizes[1] ? sizes[1] : 1, 1};
    Tensor laid = weight;
    laid.sizes = sizes;
    laid.strides = turned;
    bool in_place = call_.folded.empty() && lies_as(sizes, turned, strides, 2);
    if (!in_place) {
        Tensor from = laid;
        weights.memory.push_back(
            blocks_->allocate(static_cast<size_t>(weight.count()) * weight.dtype->bytes, laid.data));
        copy(from, laid.data, strides);
        drop_source(weights);
    }
    weights.rows = image_[0];
    weights.plain = torch_->from_memory(laid, sizes, strides);
    Stack stack(*torch_);
    stack.tensor(weights.plain);
    if (weight.dtype != dtype_named("float32")) {
        weights.packed =
            stack.optional_integer(weights.rows > 1 ? weights.rows : 1).call("mkldnn::_reorder_linear_weight", "");
        torch_->delete_tensor(std::exchange(weights.plain, nullptr));
        weights.memory.clear();
        drop_source(weights);
    } else if (weights.rows >= FEWEST && weights.rows <= MOST) {
        weights.packed = stack.integer(weights.rows).call("mkl::_mkl_reorder_linear_weight", "");
    }
}

Handle PackedCall::form(const Weights &weights, Handle image, Handle other, bool plain) const {
    if (!call_.is_convolution) return form_linear(weights, image, other);
    Handle bias = weights.bias, result = nullptr;
    const char *then = plain || call_.then.empty() ? "none" : call_.then.c_str(), *algorithm = "";
    int32_t error;
    if (other == nullptr) {
        error = torch_->convolution(image, weights.packed, bias ? &bias : nullptr, call_.padding.data(), 2,
                                    call_.stride.data(), 2, call_.dilation.data(), 2, call_.groups, then, nullptr, 0,
                                    &algorithm, &result);
    } else {
        double alpha = 1;
        error = torch_->convolution_add(image, other, weights.packed, bias ? &bias : nullptr, call_.padding.data(), 2,
                                        call_.stride.data(), 2, call_.dilation.data(), 2, call_.groups, "add", &alpha,
                                        nullptr, nullptr, 0, nullptr, &result);
    }
    torch_->check(error, "A packed convolution");
    return result;
}

Handle PackedCall::form_linear(const Weights &weights, Handle rows, Handle other) const {
    Tensor matrix = torch_->described(rows);
    Handle bias = weights.bias, result = nullptr;
    if (matrix.dtype != dtype_named("float32")) {
        const char *algorithm = "";
        int32_t error = other ? torch_->linear_add(rows, other, weights.packed, bias ? &bias : nullptr, "add", &result)
                              : torch_->linear(rows, weights.packed, bias ? &bias : nullptr, "none", nullptr, 0,
                                               &algorithm, &result);
        torch_->check(error, "A packed product");
        return result;
    }
    Stack stack(*torch_);
    stack.tensor(rows);
    if (weights.packed == nullptr || matrix.sizes[0] != weights.rows)
        result = stack.tensor(weights.plain).optional_tensor(bias).call("aten::linear", "");
    else
        result = stack.tensor(weights.packed)
                     .tensor(weights.plain)
                     .optional_tensor(bias)
                     .integer(weights.rows)
                     .call("mkl::_mkl_linear", "");
    if (other == nullptr) return result;
    Owned product(*torch_, result);
    torch_->check(torch_->add_tensor(product.get(), other, 1, &result), "A packed product");
    return result;
}

// Applies what could not be folded to the result, which it takes over. That is in float32, with one rounding for each.
Handle PackedCall::applied_after(const Weights &weights, Handle result, Handle other, Values &numbers) const {
    Owned made(*torch_, result);
    Tensor tensor = torch_->described(result);
    if (tensor.dtype != dtype_named("float32") || tensor.rank < 2)
        failed("The result of a packed call is not of float32.");
    int64_t extent = extent_of(tensor.sizes, tensor.strides, tensor.rank);
    for (const auto &[sign, operand] : weights.after)
        for (int64_t at = 0; at < extent; at++) {  // results are dense, so that each element has one place
            int64_t channel = at / tensor.strides[1] % tensor.sizes[1];
            float value = static_cast<float>(operand[operand.size() == 1 ? 0 : static_cast<size_t>(channel)]), element;
            memcpy(&element, tensor.data + at * 4, 4);
            element = combined(sign, element, value);
            memcpy(tensor.data + at * 4, &element, 4);
        }
    if (other != nullptr) {
        Handle sum = nullptr;
        torch_->check(torch_->add_tensor(made.get(), other, 1, &sum), "A packed call");
        return sum;
    }
    if (call_.then.empty()) return made.release();
    std::vector<Handle> results;
    run_call(*torch_, call_.then_call, [&made](uint32_t) { return made.get(); }, numbers, results);
    return results.back();
}

}  // namespace keel
