// The device's operators. Its compute unit is the host's processor, with an address space of its own: a kernel of the
// device is a kernel of ATen that runs on the memory of the device, at the addresses that only kernels may use.
#include "device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <set>

namespace example {
namespace {

using at::IntArrayRef;
using at::Tensor;
using c10::SymIntArrayRef;

bool is_here(const Tensor& t) { return t.defined() && t.device().type() == kType; }

// A tensor of the host on the memory of a tensor of the device, for kernels of the device only.
Tensor in_kernel(const Tensor& t) {
  if (!is_here(t)) return t;
  auto options = t.options().device(c10::kCPU);
  auto memory = at::from_blob(example::in_kernel(t.unsafeGetTensorImpl()->data()), t.sizes(), t.strides(), options);
  memory._set_conj(t.is_conj());
  memory._set_neg(t.is_neg());
  return memory;
}

Tensor empty_strided(
    IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(c10::device_or_default(device));
  auto keys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, allocator(), keys, c10::dtype_or_default(dtype));
}

Tensor empty(
    IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device,
    std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(c10::device_or_default(device));
  auto keys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, allocator(), keys, c10::dtype_or_default(dtype), format);
}

// -- copies --------------------------------------------------------------------------------------------------

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  auto stream = current_stream(is_here(to) ? to.device().index() : from.device().index());
  if (is_here(from) && is_here(to)) {
    counters().on_device++;
    in_kernel(to).copy_(in_kernel(from));
  } else if (is_here(to)) {
    counters().to_device++;
    deliver(stream);  // an earlier copy to the host may go to the memory that is read here
    if (!non_blocking || !is_pinned(from.unsafeGetTensorImpl()->data())) counters().synchronizations++;
    in_kernel(to).copy_(from);
  } else {
    counters().to_host++;
    if (non_blocking && is_pinned(to.unsafeGetTensorImpl()->data())) {
      auto now = in_kernel(from).clone();
      deliver_later(stream, [to = to.detach(), now] { to.copy_(now); });
    } else {
      counters().synchronizations++;
      deliver(stream);
      to.copy_(in_kernel(from));
    }
  }
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const Tensor& t) {
  counters().synchronizations++;
  counters().to_host++;
  deliver(current_stream(t.device().index()));
  return in_kernel(t).item();
}

// -- kernels of ATen on memory of the device -----------------------------------------------------------------

Tensor to_device(const Tensor& result, c10::Device device) {
  auto out = empty_strided(result.sizes(), result.strides(), result.scalar_type(), std::nullopt, device, std::nullopt);
  if (out.numel() != 0) in_kernel(out).copy_(result);
  return out;
}

// The first device among the arguments. A call has its tensors, its generator or its `device` there.
std::optional<c10::Device> device_of(const torch::jit::Stack& stack, size_t begin) {
  for (size_t i = begin; i < stack.size(); ++i) {
    const auto& value = stack[i];
    if (value.isTensor() && is_here(value.toTensor())) return value.toTensor().device();
    if (value.isGenerator()) return value.toGenerator().device();
    if (value.isTensorList()) {
      for (const Tensor& each : value.toTensorVector()) {
        if (is_here(each)) return each.device();
      }
    }
  }
  return std::nullopt;
}

c10::IValue in_kernel(const c10::IValue& value, const c10::Argument& argument, c10::Device device) {
  if (value.isTensor()) return in_kernel(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> all;
    for (const Tensor& each : value.toTensorVector()) all.push_back(in_kernel(each));
    return all;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> all;
    for (const std::optional<Tensor>& each : value.toOptionalTensorVector()) {
      all.push_back(each.has_value() ? std::optional(in_kernel(*each)) : std::nullopt);
    }
    return all;
  }
  if (argument.type()->str() == "Generator?") {
    return core_of(value.isNone() ? default_generator(device.index()) : value.toGenerator());
  }
  return value;
}

// Runs the host's kernel of an operator on memory of the device. Results that the operator's schema says are written
// are the arguments themselves; other results become new tensors of the device.
void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size(), begin = stack->size() - count;
  const auto device = device_of(*stack, begin).value_or(c10::Device(kType, current_device()));
  const std::vector<c10::IValue> arguments(stack->begin() + begin, stack->end());
  std::vector<std::pair<Tensor, Tensor>> to_fill;
  for (size_t i = 0; i < count; ++i) {
    auto& value = (*stack)[begin + i];
    value = in_kernel(value, schema.arguments()[i], device);
    if (schema.arguments()[i].is_out() && value.isTensor() && value.toTensor().numel() == 0) {
      value = at::empty(value.toTensor().sizes(), value.toTensor().options());  // which the kernel may resize
      to_fill.emplace_back(arguments[i].toTensor(), value.toTensor());
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (const auto& [argument, result] : to_fill) {
    if (argument.sizes() != result.sizes()) argument.resize_(result.sizes());
    if (result.numel() != 0) in_kernel(argument).copy_(result);
  }
  for (size_t r = 0; r < schema.returns().size(); ++r) {
    auto& value = (*stack)[begin + r];
    const auto* alias = schema.returns()[r].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      for (size_t i = 0; i < count; ++i) {
        const auto* written = schema.arguments()[i].alias_info();
        if (written != nullptr && *written == *alias) value = arguments[i];
      }
    } else if (value.isTensor() && value.toTensor().defined()) {
      value = to_device(value.toTensor(), device);
    }
  }
}

// An operator without a kernel of the device: its arguments are copied to the host, and its results back.
void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  count_fallback(toString(op.schema().operator_name()));
  at::native::cpu_fallback(op, stack);
}

// -- operators that ATen asks each device to write -----------------------------------------------------------

// PyTorch promises row-major results of these two.

Tensor convolution(
    const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, SymIntArrayRef stride,
    SymIntArrayRef padding, SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding,
    c10::SymInt groups) {
  auto on_device = bias.has_value() && bias->defined() ? std::optional(in_kernel(*bias)) : std::nullopt;
  auto result = at::convolution_symint(
      in_kernel(x), in_kernel(weight), on_device, stride, padding, dilation, transposed, output_padding, groups);
  return to_device(result.contiguous(), x.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& x, const Tensor& weight, SymIntArrayRef stride, SymIntArrayRef padding,
    SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding, c10::SymInt groups,
    std::array<bool, 3> mask) {
  c10::SymInt channels = weight.sym_size(transposed ? 1 : 0) * (transposed ? groups : c10::SymInt(1));
  auto [of_x, of_weight, of_bias] = at::convolution_backward_symint(
      in_kernel(gradient), in_kernel(x), in_kernel(weight), c10::SymIntArrayRef(&channels, 1), stride, padding,
      dilation, transposed, output_padding, groups, mask);
  auto result = [&](const Tensor& t) { return t.defined() ? to_device(t.contiguous(), x.device()) : Tensor(); };
  return {result(of_x), result(of_weight), result(of_bias)};
}

// The statistics of 16-bit rows are in float32 on every device but the host, and gradients are rounded once.

struct InWideKernel {
  at::ScalarType type;
  explicit InWideKernel(const Tensor& x)
      : type(x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16 ? at::kFloat : x.scalar_type()) {}
  Tensor operator()(const Tensor& t) const { return in_kernel(t).to(type); }
  std::optional<Tensor> operator()(const std::optional<Tensor>& t) const {
    return t.has_value() && t->defined() ? std::optional((*this)(*t)) : std::nullopt;
  }
};

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(
    const Tensor& x, SymIntArrayRef shape, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    double eps) {
  InWideKernel in(x);
  auto [result, mean, rstd] = at::native_layer_norm_symint(in(x), shape, in(weight), in(bias), eps);
  return {to_device(result.to(x.scalar_type()), x.device()), to_device(mean, x.device()), to_device(rstd, x.device())};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(
    const Tensor& gradient, const Tensor& x, SymIntArrayRef shape, const Tensor& mean, const Tensor& rstd,
    const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, std::array<bool, 3> mask) {
  InWideKernel in(x);
  auto [of_x, of_weight, of_bias] = at::native_layer_norm_backward_symint(
      in(gradient), in(x), shape, in(mean), in(rstd), in(weight), in(bias), mask);
  auto result = [&](const Tensor& t) { return t.defined() ? to_device(t.to(x.scalar_type()), x.device()) : Tensor(); };
  return {result(of_x), result(of_weight), result(of_bias)};
}

// The host's kernel draws from the host's generator, so this one draws the mask itself.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& x, double p, std::optional<bool> train) {
  if (x.numel() == 0) return {x, at::empty(x.sizes(), x.options().dtype(at::kBool))};
  if (train.has_value() && !*train) return {x.clone(), at::ones_like(x, x.options().dtype(at::kBool))};
  auto mask = at::empty(x.sizes(), x.options().dtype(at::kBool));
  mask.bernoulli_(1 - p);
  return {x.mul(mask).mul(p == 1 ? 0.0 : 1 / (1 - p)), mask};
}

const Tensor& resize_(const Tensor& t, SymIntArrayRef symbolic_size, std::optional<at::MemoryFormat> format) {
  auto size = C10_AS_INTARRAYREF_SLOW(symbolic_size);
  auto* impl = t.unsafeGetTensorImpl();
  auto bytes = at::detail::computeStorageNbytesContiguous(size, t.itemsize(), t.storage_offset());
  if (bytes > t.storage().nbytes()) at::native::resize_bytes_nocuda(t.storage(), bytes);
  if (t.sizes() != size) impl->set_sizes_contiguous(size);
  if (format.has_value()) impl->empty_tensor_restride(*format);
  return t;
}
Tensor as_strided(const Tensor& t, SymIntArrayRef size, SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  auto start = offset.has_value() ? std::optional(offset->expect_int()) : std::nullopt;
  return at::native::as_strided_tensorimpl(t, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), start);
}
Tensor view(const Tensor& t, SymIntArrayRef size) { return at::native::view(t, C10_AS_INTARRAYREF_SLOW(size)); }
Tensor reshape_alias(const Tensor& t, SymIntArrayRef size, SymIntArrayRef stride) {
  return at::native::_reshape_alias(t, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}
Tensor& set_storage(
    Tensor& t, at::Storage storage, c10::SymInt offset, SymIntArrayRef size, SymIntArrayRef stride) {
  auto* impl = t.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset.expect_int());
  impl->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
  return t;
}
Tensor& set_whole_storage(Tensor& t, at::Storage storage) { return at::native::set_(t, std::move(storage)); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("resize_", resize_);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("native_dropout", native_dropout);
  m.impl("native_layer_norm", native_layer_norm);
  m.impl("native_layer_norm_backward", native_layer_norm_backward);
}

// Copies see the lazy bits of what they read. PyTorch's fallback would resolve them, by a copy that meets them again.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

// Gives the device a kernel of each overload of the named operators for which the host has one.
void add_kernels(const std::set<std::string>& names) {
  constexpr auto kKey = c10::DispatchKey::PrivateUse1;
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    auto op = c10::Dispatcher::singleton().findOp(name);
    if (name.name.rfind("aten::", 0) != 0 || names.count(name.name.substr(6)) == 0) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    auto overload = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library->impl(overload.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
  }
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("add_kernels", &add_kernels);
  m.def("in_kernel", [](const Tensor& t) { return in_kernel(t); });
  m.def("device_count", [] { return int(kDevices); });
  m.def("current_device", [] { return int(current_device()); });
  m.def("set_device", [](int index) { set_current_device(c10::DeviceIndex(index)); });
  m.def("default_generator", [](int index) { return default_generator(c10::DeviceIndex(index)); });
  m.def("counters", [] {
    auto& all = counters();
    return std::map<std::string, int64_t>{
        {"to_device", all.to_device}, {"to_host", all.to_host}, {"on_device", all.on_device},
        {"synchronizations", all.synchronizations}};
  });
  m.def("fallbacks", &fallbacks);
  m.def("reset_counters", &reset_counters);
}

}  // namespace
}  // namespace example
