// The device's operators. Its compute unit is the host's processor, with an address space of its own: a kernel of the
// device is a kernel of ATen that runs on the memory of the device, at the addresses that only kernels may use.
#include "device.h"
#include "graph.h"

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
  const auto index = is_here(to) ? to.device().index() : from.device().index();
  const auto& host = is_here(to) ? from : to;
  const bool blocks = !is_here(host) && !(non_blocking && is_pinned(host.unsafeGetTensorImpl()->data()));
  if (blocks) refuse_in_capture(index, "a copy that blocks");
  if (is_here(from) && is_here(to)) {
    counters().on_device++;
    launch(index, [to = in_kernel(to), from = in_kernel(from)] { to.copy_(from); });
  } else if (is_here(to)) {
    counters().to_device++;
    if (blocks) counters().synchronizations++;
    launch(index, [to = in_kernel(to), from = from.detach(), index] {
      deliver(current_stream(index));  // an earlier copy to the host may go to the memory that is read here
      to.copy_(from);
    });
  } else if (blocks) {
    counters().to_host++;
    counters().synchronizations++;
    deliver(current_stream(index));
    to.copy_(in_kernel(from));
  } else {
    counters().to_host++;
    launch(index, [to = to.detach(), from = in_kernel(from), index] {
      deliver_later(current_stream(index), [to, now = from.clone()] { to.copy_(now); });
    });
  }
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const Tensor& t) {
  refuse_in_capture(t.device().index(), "a value that the host reads");
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

using Values = std::vector<c10::IValue>;

Values in_kernel(const Values& arguments, const c10::OperatorHandle& op, c10::Device device) {
  Values inside;
  for (size_t i = 0; i < arguments.size(); ++i) {
    inside.push_back(in_kernel(arguments[i], op.schema().arguments()[i], device));
  }
  return inside;
}

// The argument that an operator returns as result `r`, if it writes to that; else none.
const c10::IValue* written(const c10::OperatorHandle& op, const Values& arguments, size_t r) {
  const auto* alias = op.schema().returns()[r].alias_info();
  if (alias == nullptr || !alias->isWrite()) return nullptr;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* of_argument = op.schema().arguments()[i].alias_info();
    if (of_argument != nullptr && *of_argument == *alias) return &arguments[i];
  }
  return nullptr;
}

// A tensor without memory that has the type of a tensor of the device.
Tensor without_memory(const Tensor& t) {
  return is_here(t) ? at::empty_strided(t.sizes(), t.strides(), t.options().device(c10::kMeta)) : t;
}

c10::IValue without_memory(const c10::IValue& value) {
  if (value.isTensor()) return without_memory(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> all;
    for (const Tensor& each : value.toTensorVector()) all.push_back(without_memory(each));
    return all;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> all;
    for (const std::optional<Tensor>& each : value.toOptionalTensorVector()) {
      all.push_back(each.has_value() ? std::optional(without_memory(*each)) : std::nullopt);
    }
    return all;
  }
  return value.isGenerator() ? c10::IValue() : value;
}

// Whether the host has to know values of tensors to tell what results there are. An index tells its size, a mask does not.
bool depends_on_values(const c10::OperatorHandle& op, const Values& arguments) {
  if (op.hasTag(at::Tag::data_dependent_output)) return true;
  if (!op.hasTag(at::Tag::dynamic_output_shape)) return false;
  bool has_lists = false, has_masks = false;
  for (const auto& value : arguments) {
    if (!value.isOptionalTensorList()) continue;
    has_lists = true;
    for (const std::optional<Tensor>& each : value.toOptionalTensorVector()) {
      has_masks |= each.has_value() && (each->scalar_type() == at::kBool || each->scalar_type() == at::kByte);
    }
  }
  return !has_lists || has_masks;
}

// Records the host's kernel of an operator, to run on memory of the device in each replay. Nothing is computed now, so
// the kernel of meta tensors says what types the results have.
void record_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Values& arguments,
                      c10::Device device) {
  const auto name = toString(op.schema().operator_name());
  if (depends_on_values(op, arguments)) refuse_in_capture(device.index(), name + ", whose result depends on values");
  torch::jit::Stack types;
  for (const auto& each : arguments) types.push_back(without_memory(each));
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &types);
  Values results;
  for (size_t r = 0; r < types.size(); ++r) {
    TORCH_CHECK(types[r].isTensor(), "example: a graph cannot record ", name, ", which returns no tensor");
    const Tensor type = types[r].toTensor();
    if (const auto* argument = written(op, arguments, r)) {
      if (argument->toTensor().numel() == 0) argument->toTensor().resize_(type.sizes());
      results.push_back(*argument);
    } else {
      results.push_back(
          type.defined() ? empty_strided(type.sizes(), type.strides(), type.scalar_type(), {}, device, {}) : Tensor());
    }
  }
  std::vector<Tensor> to_fill;
  for (size_t r = 0; r < results.size(); ++r) {
    to_fill.push_back(written(op, arguments, r) != nullptr ? Tensor() : in_kernel(results[r].toTensor()));
  }
  launch(device.index(), [op, inside = in_kernel(arguments, op, device), to_fill] {
    torch::jit::Stack stack = inside;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    for (size_t r = 0; r < to_fill.size(); ++r) {
      if (to_fill[r].defined() && to_fill[r].numel() != 0) to_fill[r].copy_(stack[r].toTensor());
    }
  });
  torch::jit::drop(*stack, arguments.size());
  stack->insert(stack->end(), results.begin(), results.end());
}

// Runs the host's kernel of an operator on memory of the device. Results that the operator's schema says are written
// are the arguments themselves; other results become new tensors of the device.
void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size(), begin = stack->size() - count;
  const auto device = device_of(*stack, begin).value_or(c10::Device(kType, current_device()));
  const Values arguments(stack->begin() + begin, stack->end());
  if (is_capturing(device.index())) return record_on_device(op, stack, arguments, device);
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
    if (const auto* argument = written(op, arguments, r)) {
      value = *argument;
    } else if (value.isTensor() && value.toTensor().defined()) {
      value = to_device(value.toTensor(), device);
    }
  }
}

// An operator without a kernel of the device: its arguments are copied to the host, and its results back.
void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_in_capture(current_device(), toString(op.schema().operator_name()) + ", which the host computes");
  count_fallback(toString(op.schema().operator_name()));
  at::native::cpu_fallback(op, stack);
}

// -- operators that ATen asks each device to write -----------------------------------------------------------

Tensor new_tensor(IntArrayRef size, const Tensor& like, std::optional<at::ScalarType> type = std::nullopt) {
  return empty(size, type.value_or(like.scalar_type()), {}, like.device(), {}, std::nullopt);
}

std::optional<Tensor> in_kernel(const std::optional<Tensor>& t) {
  return t.has_value() && t->defined() ? std::optional(in_kernel(*t)) : std::nullopt;
}

// Copies the results of a kernel to memory of the device.
void write_to(const Tensor& t, const Tensor& result) {
  if (t.defined()) t.copy_(result);
}

// PyTorch promises row-major results of these two.

Tensor convolution(
    const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, SymIntArrayRef stride,
    SymIntArrayRef padding, SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding,
    c10::SymInt groups) {
  auto run = [=, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
              output_padding = output_padding.vec()](const Tensor& x, const Tensor& w, const std::optional<Tensor>& b) {
    return at::convolution_symint(x, w, b, stride, padding, dilation, transposed, output_padding, groups);
  };
  auto result = new_tensor(run(without_memory(x), without_memory(weight), std::nullopt).sizes(), x);
  launch(x.device().index(), [=, to = in_kernel(result), x = in_kernel(x), w = in_kernel(weight), b = in_kernel(bias)] {
    to.copy_(run(x, w, b));
  });
  return result;
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& x, const Tensor& weight, SymIntArrayRef stride, SymIntArrayRef padding,
    SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding, c10::SymInt groups,
    std::array<bool, 3> mask) {
  c10::SymInt channels = weight.sym_size(transposed ? 1 : 0) * (transposed ? groups : c10::SymInt(1));
  auto of_x = mask[0] ? new_tensor(x.sizes(), x) : Tensor();
  auto of_weight = mask[1] ? new_tensor(weight.sizes(), weight) : Tensor();
  auto of_bias = mask[2] ? new_tensor({channels.expect_int()}, weight) : Tensor();
  launch(x.device().index(), [=, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                              output_padding = output_padding.vec(), to_x = in_kernel(of_x),
                              to_weight = in_kernel(of_weight), to_bias = in_kernel(of_bias),
                              gradient = in_kernel(gradient), x = in_kernel(x), weight = in_kernel(weight)] {
    auto [of_x, of_weight, of_bias] = at::convolution_backward_symint(
        gradient, x, weight, c10::SymIntArrayRef(&channels, 1), stride, padding, dilation, transposed, output_padding,
        groups, mask);
    write_to(to_x, of_x);
    write_to(to_weight, of_weight);
    write_to(to_bias, of_bias);
  });
  return {of_x, of_weight, of_bias};
}

// The statistics of 16-bit rows are in float32 on every device but the host, and gradients are rounded once.

at::ScalarType wide(const Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16 ? at::kFloat : x.scalar_type();
}

std::optional<Tensor> to(at::ScalarType type, const std::optional<Tensor>& t) {
  return t.has_value() ? std::optional(t->to(type)) : std::nullopt;
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(
    const Tensor& x, SymIntArrayRef shape, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    double eps) {
  const auto type = wide(x);
  auto rows = x.sizes().vec();
  std::fill(rows.end() - shape.size(), rows.end(), 1);
  auto result = new_tensor(x.sizes(), x), mean = new_tensor(rows, x, type), rstd = new_tensor(rows, x, type);
  launch(x.device().index(), [=, shape = shape.vec(), to_result = in_kernel(result), to_mean = in_kernel(mean),
                              to_rstd = in_kernel(rstd), x = in_kernel(x), weight = in_kernel(weight),
                              bias = in_kernel(bias)] {
    auto [result, mean, rstd] =
        at::native_layer_norm_symint(x.to(type), shape, to(type, weight), to(type, bias), eps);
    write_to(to_result, result);
    write_to(to_mean, mean);
    write_to(to_rstd, rstd);
  });
  return {result, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(
    const Tensor& gradient, const Tensor& x, SymIntArrayRef shape, const Tensor& mean, const Tensor& rstd,
    const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, std::array<bool, 3> mask) {
  const auto type = wide(x);
  auto like = [&](const std::optional<Tensor>& t, bool is_asked) {
    return is_asked && t.has_value() && t->defined() ? new_tensor(t->sizes(), x) : Tensor();
  };
  auto of_x = like(x, mask[0]), of_weight = like(weight, mask[1]), of_bias = like(bias, mask[2]);
  launch(x.device().index(), [=, shape = shape.vec(), to_x = in_kernel(of_x), to_weight = in_kernel(of_weight),
                              to_bias = in_kernel(of_bias), gradient = in_kernel(gradient), x = in_kernel(x),
                              mean = in_kernel(mean), rstd = in_kernel(rstd), weight = in_kernel(weight),
                              bias = in_kernel(bias)] {
    auto [of_x, of_weight, of_bias] = at::native_layer_norm_backward_symint(
        gradient.to(type), x.to(type), shape, mean.to(type), rstd.to(type), to(type, weight), to(type, bias), mask);
    write_to(to_x, of_x);
    write_to(to_weight, of_weight);
    write_to(to_bias, of_bias);
  });
  return {of_x, of_weight, of_bias};
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
  if (stride.size() == size.size()) {
    impl->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
  } else {  // without strides, elements follow each other
    impl->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
  }
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

// Calls a function of Python, which the host's interpreter is not held for while a graph is replayed.
void launch_python(const py::function& function) {
  auto release = [](py::function* f) {
    py::gil_scoped_acquire acquired;
    delete f;
  };
  std::shared_ptr<py::function> kernel(new py::function(function), release);
  launch(current_device(), [kernel] {
    py::gil_scoped_acquire acquired;
    (*kernel)();
  });
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Graph, std::shared_ptr<Graph>>(m, "Graph")
      .def(py::init<>())
      .def("capture_begin", &Graph::capture_begin)
      .def("capture_end", &Graph::capture_end)
      .def("replay", &Graph::replay, py::call_guard<py::gil_scoped_release>())
      .def("reset", &Graph::reset)
      .def("pool", &Graph::pool);
  m.def("launch", &launch_python);
  m.def("is_capturing", [] { return is_capturing(current_device()); });
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
        {"synchronizations", all.synchronizations}, {"replays", all.replays}};
  });
  m.def("fallbacks", &fallbacks);
  m.def("reset_counters", &reset_counters);
}

}  // namespace
}  // namespace example
