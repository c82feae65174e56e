// The functions of libtorch's stable C interface that the runtime calls. They are looked up when a program needs them,
// so that packages without library calls need no libtorch. (torch/csrc/stable/c/shim.h and
// torch/csrc/inductor/aoti_torch/c/shim.h of PyTorch 2.10 and later)
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "memory.h"
#include "tensor.h"

namespace keel {

using Handle = struct TorchTensor *;
using ListHandle = struct TorchList *;
using StringHandle = struct TorchString *;
using StableValue = uint64_t;

class Libtorch {
  public:
    // Opens libtorch_cpu.so at a path, in a folder, or where the dynamic loader finds it (""). Throws KEEL_NOT_HERE.
    // With `device`, which is "cpu" or "cuda", the functions of single operators are those of that device.
    Libtorch(const std::string &place, const std::string &device);

    // Throws KEEL_FAILED with libtorch's words if a function returned an error.
    void check(int32_t error, const std::string &what) const;

    Handle from_memory(const Tensor &tensor, const int64_t *sizes, const int64_t *strides) const;
    Handle duplicate(Handle tensor) const;
    int32_t dtype(const DType &dtype) const { return dtypes_[dtype.number]; }
    int32_t word(const std::string &kind, const std::string &name) const;  // of a dtype, layout or memory format
    const DType *dtype_of(int32_t code) const;

    // False for a result that an operator does not compute, which is None in Python.
    bool is_defined(Handle tensor) const;

    // The address, sizes and strides of a tensor, which live as long as the handle.
    Tensor described(Handle tensor) const;

    int32_t (*call)(const char *, const char *, StableValue *, uint64_t);
    int32_t (*new_optional)(StableValue **);  // null before 2.13, where `new` makes them
    int32_t (*new_list)(size_t, ListHandle *);
    int32_t (*list_size)(ListHandle, size_t *);
    int32_t (*list_get)(ListHandle, size_t, StableValue *);
    int32_t (*list_push)(ListHandle, StableValue);
    int32_t (*delete_list)(ListHandle);
    int32_t (*new_string)(const char *, size_t, StringHandle *);
    int32_t (*delete_tensor)(Handle);
    bool (*grad_enabled)();
    void (*set_grad_enabled)(bool);
    int32_t (*scalar_float64)(double, Handle *);
    int32_t (*scalar_int64)(int64_t, Handle *);
    int32_t (*scalar_bool)(bool, Handle *);
    int32_t (*get_stream)(int32_t, void **);  // null without CUDA
    int32_t (*set_stream)(void *, int32_t);   // null without CUDA
    void (*set_threads)(int);                 // null if this libtorch does not export it

    // Of single operators. Null where this libtorch has none; programs that call one are refused.
    int32_t (*mm_out)(Handle, Handle, Handle);
    int32_t (*bmm_out)(Handle, Handle, Handle);
    int32_t (*addmm_out)(Handle, Handle, Handle, Handle, double, double);
    int32_t (*baddbmm_out)(Handle, Handle, Handle, Handle, double, double);
    int32_t (*add_tensor)(Handle, Handle, double, Handle *);
    int32_t (*convolution)(Handle, Handle, Handle *, const int64_t *, int64_t, const int64_t *, int64_t,
                           const int64_t *, int64_t, int64_t, const char *, const double **, int64_t, const char **,
                           Handle *);
    int32_t (*convolution_add)(Handle, Handle, Handle, Handle *, const int64_t *, int64_t, const int64_t *, int64_t,
                               const int64_t *, int64_t, int64_t, const char *, double *, const char **,
                               const double **, int64_t, const char **, Handle *);
    int32_t (*linear)(Handle, Handle, Handle *, const char *, const double **, int64_t, const char **, Handle *);
    int32_t (*linear_add)(Handle, Handle, Handle, Handle *, const char *, Handle *);

    uint64_t version() const { return version_; }
    int32_t device(bool on_device) const { return on_device ? cuda_ : cpu_; }
    const std::string &device_name() const { return device_; }

    // An address in libtorch, by which its file can be found.
    const void *address() const { return reinterpret_cast<const void *>(call); }

  private:
    template <typename F>
    void find(F &function, const char *name, bool required = true);
    template <typename F>
    void find_of_device(F &function, const std::string &name);
    void open_device(const std::string &path);

    int32_t (*from_blob_)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t,
                          Handle *, int32_t, const uint8_t *, int64_t);
    int32_t (*new_handle_)(Handle, Handle *);
    int32_t (*data_ptr_)(Handle, void **);
    int32_t (*get_sizes_)(Handle, int64_t **);
    int32_t (*get_strides_)(Handle, int64_t **);
    int32_t (*get_dim_)(Handle, int64_t *);
    int32_t (*get_dtype_)(Handle, int32_t *);
    int32_t (*is_defined_)(Handle, bool *);
    const char *(*what_)();
    void *library_ = nullptr;
    uint64_t version_ = 0;
    std::string device_;
    int32_t (*get_device_)(Handle, int32_t *);
    int32_t cpu_ = 0, cuda_ = 0, strided_ = 0, dtypes_[DTYPE_COUNT] = {};
};

// A tensor of libtorch that the runtime owns.
class TorchTensorHolder : public Holder {
  public:
    TorchTensorHolder(std::shared_ptr<const Libtorch> torch, Handle handle, Held base)
        : torch_(std::move(torch)), handle_(handle), base_(std::move(base)) {}
    ~TorchTensorHolder() override { torch_->delete_tensor(handle_); }
    Handle handle() const { return handle_; }

  private:
    std::shared_ptr<const Libtorch> torch_;
    Handle handle_;
    Held base_;  // of a view: what holds the memory that it lies in
};

}  // namespace keel
