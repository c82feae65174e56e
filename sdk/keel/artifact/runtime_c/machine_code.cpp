#include "machine_code.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "failure.h"
#include "program.h"

namespace keel {

namespace {

bool write_all(int file, std::string_view content) {
    while (!content.empty()) {
        ssize_t written = write(file, content.data(), content.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        content.remove_prefix(static_cast<size_t>(written));
    }
    return true;
}

// The path of an open file that no loaded library has: the dynamic loader takes a path that it knows for the library
// that it has loaded from there, also when the path now leads to another file.
std::string unused_path(std::vector<int> &files) {
    for (;;) {
        std::string path = words("/proc/self/fd/%d", files.back());
        void *known = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
        if (known == nullptr) return path;
        dlclose(known);
        files.push_back(fcntl(files.back(), F_DUPFD_CLOEXEC, 3));
        if (files.back() < 0) return "";
    }
}

void *opened(const std::string &path, std::string &why) {
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char *words = dlerror();
        why = words ? words : "the dynamic loader does not say why";
    }
    return library;
}

// Opens code by a file that exists in memory alone.
void *open_in_memory(std::string_view content, std::string &why) {
    std::vector<int> files = {memfd_create("keel_code", MFD_CLOEXEC)};
    void *library = nullptr;
    if (files[0] < 0 || !write_all(files[0], content)) {
        why = "no file could be made for it: " + std::string(strerror(errno));
    } else if (std::string path = unused_path(files); !path.empty()) {
        library = opened(path, why);
    }
    for (int file : files)
        if (file >= 0) close(file);
    return library;
}

// Opens code by a private file, where the system has no files in memory.
void *open_on_disk(std::string_view content, std::string &why) {
    const char *folder = getenv("TMPDIR");
    std::string path = std::string(folder && *folder ? folder : "/tmp") + "/keel_code_XXXXXX";
    int file = mkstemp(path.data());
    if (file < 0) {
        why += "; no file could be made for it in " + path + ": " + strerror(errno);
        return nullptr;
    }
    void *library = nullptr;
    if (write_all(file, content))
        library = opened(path, why);
    else
        why = "it could not be written to " + path + ": " + strerror(errno);
    close(file);
    unlink(path.c_str());
    return library;
}

template <size_t... N>
void call_with(void *function, const uint64_t *arguments, std::index_sequence<N...>) {
    reinterpret_cast<void (*)(decltype(static_cast<uint64_t>(N))...)>(function)(arguments[N]...);
}

template <size_t count>
void call_kernel(void *function, const uint64_t *arguments) {
    call_with(function, arguments, std::make_index_sequence<count>());
}

template <size_t... N>
constexpr std::array<KernelCall, sizeof...(N)> kernel_calls(std::index_sequence<N...>) {
    return {call_kernel<N>...};
}

constexpr auto CALLS = kernel_calls(std::make_index_sequence<MOST_PARAMETERS + 1>());

int add_path(dl_phdr_info *info, size_t, void *paths) {
    static_cast<std::vector<std::string> *>(paths)->push_back(info->dlpi_name ? info->dlpi_name : "");
    return 0;
}

bool is_openmp(const std::string &path) {
    size_t slash = path.rfind('/');
    std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    return name.rfind("libgomp", 0) == 0 || name.rfind("libiomp5", 0) == 0 || name.rfind("libomp", 0) == 0;
}

void *openmp_library(const void *in_libtorch) {
    std::vector<std::string> paths;
    dl_iterate_phdr(add_path, &paths);
    Dl_info torch{};
    std::string folder;
    if (in_libtorch != nullptr && dladdr(in_libtorch, &torch) != 0 && torch.dli_fname != nullptr) {
        folder = torch.dli_fname;
        folder.resize(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/'));
    }
    auto is_far = [&folder](const std::string &path) {
        return folder.empty() || path.compare(0, folder.size(), folder) != 0;
    };
    std::stable_sort(paths.begin(), paths.end(),
                     [&](const std::string &a, const std::string &b) { return is_far(a) < is_far(b); });
    for (const std::string &path : paths) {
        if (!is_openmp(path)) continue;
        void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (library != nullptr && dlsym(library, "GOMP_parallel") != nullptr) return library;
    }
    return dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);
}

}  // namespace

SharedObject::SharedObject(std::string_view content, const std::string &name) {
    std::string why;
    library_ = open_in_memory(content, why);
    if (library_ == nullptr) library_ = open_on_disk(content, why);
    if (library_ == nullptr)
        throw Failure(KEEL_NOT_HERE, "The machine code " + name + " of the package cannot be loaded: " + why + ".");
}

SharedObject::~SharedObject() { dlclose(library_); }

void *SharedObject::function(const std::string &name) const {
    void *address = dlsym(library_, name.c_str());
    if (address == nullptr) bad_package("The machine code of the package has no function " + name + ".");
    return address;
}

KernelCall kernel_call(uint32_t count) { return CALLS[count]; }

OpenMp share_libraries(const void *in_libtorch) {
    dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL);  // stays open; where the C library contains it, this does nothing
    void *library = RTLD_DEFAULT;
    if (dlsym(RTLD_DEFAULT, "GOMP_parallel") == nullptr && (library = openmp_library(in_libtorch)) == nullptr)
        return {};
    OpenMp found;
    found.set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
    found.get_threads = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_max_threads"));
    return found;
}

}  // namespace keel
