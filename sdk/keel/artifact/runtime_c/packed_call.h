// Library calls whose weight is packed once, again after a weight is replaced, with arithmetic folded into it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "libtorch.h"
#include "memory.h"
#include "numbers.h"
#include "program.h"

namespace keel {

class PackedCall {
  public:
    PackedCall(const Packed &call, std::shared_ptr<const Libtorch> torch, std::shared_ptr<Blocks> blocks);

    // The result, which the caller owns. `versions` are the versions of the parameters, and none if one of them is
    // not a weight, so that nothing can be retained. Handles are borrowed; `other` is null if nothing is added.
    Handle run(Handle image, Handle other, const std::vector<Handle> &parameters, const std::vector<uint64_t> &versions,
               Values &numbers);

  private:
    struct Weights;

    std::shared_ptr<const Weights> packed(Handle image, const std::vector<Handle> &parameters,
                                          const std::vector<uint64_t> &versions, Values &numbers);
    std::shared_ptr<const Weights> made(const std::vector<Handle> &parameters, Values &numbers) const;
    void pack(Weights &weights, const Tensor &weight) const;
    void pack_linear(Weights &weights, const Tensor &weight) const;
    void drop_source(Weights &weights) const;
    Handle form(const Weights &weights, Handle image, Handle other, bool plain) const;
    Handle form_linear(const Weights &weights, Handle rows, Handle other) const;
    Handle applied_after(const Weights &weights, Handle result, Handle other, Values &numbers) const;

    const Packed &call_;
    std::shared_ptr<const Libtorch> torch_;
    std::shared_ptr<Blocks> blocks_;
    std::mutex lock_;
    std::vector<int64_t> image_;  // the sizes of the first image, which decide about the layout of the weight
    std::vector<uint64_t> versions_;
    std::shared_ptr<const Weights> known_;
};

}  // namespace keel
