// Parts that vendors' libraries run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "keel_part.h"

namespace keel {

class Parts {
  public:
    Parts() = default;
    ~Parts();
    Parts(const Parts &) = delete;
    Parts &operator=(const Parts &) = delete;

    // Registers a library, or what a shared library at a path defines. Throws KEEL_NOT_HERE for one of another version.
    void add(const keel_part_library_v1 *library);
    void open(const std::string &path);

    // Loads a part of a backend. Throws KEEL_NOT_HERE if no library runs its parts, or KEEL_FAILED.
    void load(const std::string &backend, std::string_view bytes);

    void run(size_t part, const std::vector<DLTensor> &inputs, const std::vector<DLTensor> &outputs,
             void *stream) const;

  private:
    struct Loaded {
        const keel_part_library_v1 *library;
        void *part;
    };
    std::vector<const keel_part_library_v1 *> libraries_;
    std::vector<Loaded> parts_;
    std::vector<void *> opened_;
};

}  // namespace keel
