#include "libtorch.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include "failure.h"

namespace keel {

namespace {

constexpr const char *FILE_NAME = "libtorch_cpu.so";
constexpr uint64_t VERSION_2_10 = uint64_t{2} << 56 | uint64_t{10} << 48,
                   VERSION_2_13 = uint64_t{2} << 56 | uint64_t{13} << 48;

}  // namespace

template <typename F>
void Libtorch::find(F &function, const char *name, bool required) {
    function = reinterpret_cast<F>(dlsym(library_, name));
    if (function == nullptr && required)
        throw Failure(
            KEEL_NOT_HERE,
            words("The package calls operators of PyTorch, and this libtorch has no %s: it is older than 2.10.", name));
}

template <typename F>
void Libtorch::find_of_device(F &function, const std::string &name) {
    find(function, ("aoti_torch_" + device_ + "_" + name).c_str(), false);
}

// The kernels of a device are in a library of their own, beside the one of the host.
void Libtorch::open_device(const std::string &path) {
    std::string file = path, from = "_cpu.so";
    size_t place = file.rfind(from);
    if (place != std::string::npos) file.replace(place, from.size(), "_" + device_ + ".so");
    void *library = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
        const char *why = dlerror();
        throw Failure(KEEL_NOT_HERE, "The package calls operators of PyTorch on " + device_ +
                                         ", and this libtorch has none: " + std::string(why ? why : file));
    }
    library_ = library;  // what it depends on is found through it, too
}

Libtorch::Libtorch(const std::string &place, const std::string &device) : device_(device) {
    std::string path = place.empty() ? FILE_NAME : place;
    struct stat info;
    if (!place.empty() && stat(place.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) path = place + "/" + FILE_NAME;
    library_ = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library_ == nullptr) {
        const char *why = dlerror();
        throw Failure(
            KEEL_NOT_HERE,
            "The package calls operators of PyTorch, and libtorch cannot be opened: " + std::string(why ? why : path) +
                ". Set the option libtorch, or KEEL_LIBTORCH, to the folder of libtorch_cpu.so.");
    }
    if (device != "cpu") open_device(path);
    find(call, "torch_call_dispatcher");
    find(new_optional, "torch_new_stable_ivalue", false);
    find(new_list, "torch_new_list_reserve_size");
    find(list_size, "torch_list_size");
    find(list_get, "torch_list_get_item");
    find(list_push, "torch_list_push_back");
    find(delete_list, "torch_delete_list");
    find(new_string, "torch_new_string_handle");
    find(delete_tensor, "aoti_torch_delete_tensor_object");
    find(grad_enabled, "aoti_torch_grad_mode_is_enabled");
    find(set_grad_enabled, "aoti_torch_grad_mode_set_enabled");
    find(scalar_float64, "aoti_torch_scalar_to_tensor_float64");
    find(scalar_int64, "aoti_torch_scalar_to_tensor_int64");
    find(scalar_bool, "aoti_torch_scalar_to_tensor_bool");
    find(set_threads, "_ZN2at15set_num_threadsEi", false);
    find_of_device(mm_out, "mm_out");
    find_of_device(bmm_out, "bmm_out");
    find_of_device(addmm_out, "addmm_out");
    find_of_device(baddbmm_out, "baddbmm_out");
    find_of_device(add_tensor, "add_Tensor");
    find(convolution, "aoti_torch_cpu_mkldnn__convolution_pointwise", false);
    find(convolution_add, "aoti_torch_cpu_mkldnn__convolution_pointwise_binary", false);
    find(linear, "aoti_torch_cpu__linear_pointwise", false);
    find(linear_add, "aoti_torch_cpu__linear_pointwise_binary", false);
    find(from_blob_, "aoti_torch_create_tensor_from_blob_v2");
    find(new_handle_, "aoti_torch_new_tensor_handle");
    find(data_ptr_, "aoti_torch_get_data_ptr");
    find(get_sizes_, "aoti_torch_get_sizes");
    find(get_strides_, "aoti_torch_get_strides");
    find(get_dim_, "aoti_torch_get_dim");
    find(get_dtype_, "aoti_torch_get_dtype");
    find(get_device_, "aoti_torch_get_device_type");
    find(get_stream, "aoti_torch_get_current_cuda_stream", false);
    find(set_stream, "torch_set_current_cuda_stream", false);
    find(is_defined_, "aoti_torch_is_defined");
    find(what_, "torch_exception_get_what_without_backtrace", false);
    int32_t (*code)();
    find(code, "aoti_torch_device_type_cpu");
    cpu_ = code();
    find(code, "aoti_torch_device_type_cuda");
    cuda_ = code();
    find(code, "aoti_torch_layout_strided");
    strided_ = code();
    for (size_t k = 0; k < DTYPE_COUNT; k++) dtypes_[k] = word("ScalarType", dtype_at(k).name);
    version_ = new_optional ? VERSION_2_13 : VERSION_2_10;
}

void Libtorch::check(int32_t error, const std::string &what) const {
    if (error == 0) return;
    const char *why = what_ ? what_() : nullptr;
    failed(why && *why ? what + " failed: " + why : what + " failed; libtorch has written why to the standard error.");
}

int32_t Libtorch::word(const std::string &kind, const std::string &name) const {
    const char *prefix = kind == "ScalarType" ? "aoti_torch_dtype_"
                         : kind == "Layout"   ? "aoti_torch_layout_"
                                              : "aoti_torch_memory_format_";
    auto code = reinterpret_cast<int32_t (*)()>(dlsym(library_, (prefix + name).c_str()));
    if (code == nullptr) throw Failure(KEEL_NOT_HERE, "This libtorch has no " + kind + " " + name + ".");
    return code();
}

const DType *Libtorch::dtype_of(int32_t code) const {
    for (size_t k = 0; k < DTYPE_COUNT; k++)
        if (dtypes_[k] == code) return &dtype_at(k);
    return nullptr;
}

Handle Libtorch::from_memory(const Tensor &tensor, const int64_t *sizes, const int64_t *strides) const {
    Handle made = nullptr;
    check(from_blob_(tensor.data, tensor.rank, sizes, strides, 0, dtype(*tensor.dtype), device(tensor.on_device), 0,
                     &made, strided_, nullptr, 0),
          "Passing a tensor to libtorch");
    return made;
}

Handle Libtorch::duplicate(Handle tensor) const {
    Handle made = nullptr;
    check(new_handle_(tensor, &made), "Passing a tensor to libtorch");
    return made;
}

bool Libtorch::is_defined(Handle tensor) const {
    bool defined = false;
    check(is_defined_(tensor, &defined), "Reading a result of libtorch");
    return defined;
}

Tensor Libtorch::described(Handle tensor) const {
    Tensor made;
    void *data = nullptr;
    int64_t *sizes = nullptr, *strides = nullptr, rank = 0;
    int32_t code = 0, device = 0;
    int32_t error = get_dim_(tensor, &rank) | get_sizes_(tensor, &sizes) | get_strides_(tensor, &strides) |
                    get_dtype_(tensor, &code);
    check(error | data_ptr_(tensor, &data), "Reading a result of libtorch");
    made.data = static_cast<char *>(data);
    made.sizes = sizes;
    made.strides = strides;
    made.rank = static_cast<uint32_t>(rank);
    made.dtype = dtype_of(code);
    if (made.dtype == nullptr) failed("A library returned a tensor of a dtype that the runtime does not know.");
    made.exists = true;
    made.on_device = device != cpu_;
    made.bytes = extent_of(made.sizes, made.strides, made.rank) * made.dtype->bytes;
    return made;
}

}  // namespace keel
