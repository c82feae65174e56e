#include "frame.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "failure.h"

namespace keel {

Frame::Frame(const Program &program, std::shared_ptr<const Libtorch> torch)
    : slots(program.slots),
      values(program.expressions),
      entered(program.inputs.size()),
      passed_strides(program.inputs.size()),
      program_(program),
      torch_(std::move(torch)),
      layouts_(program.types.size()),
      handles_(torch_ ? program.slots : 0),
      own_(program.slots),
      is_weight_(program.slots),
      arenas_(program.arenas.size()) {
    for (const WeightUse &weight : program.weights) is_weight_[weight.slot] = 1;
    for (size_t k = 0; k < arenas_.size(); k++) arenas_[k].record.resize(program.arenas[k].sites.size());
}

Frame::~Frame() {
    for (const Passed &each : handles_)
        if (each.handle) torch_->delete_tensor(each.handle);
    free(arena_.data);
}

void Frame::set(uint32_t symbol, const Number &value) {
    if (!values.set(symbol, value)) return;
    epoch_++;
    for (uint32_t type : program_.types_of_symbol[symbol]) layouts_[type].is_ready = false;
}

const Layout &Frame::layout(uint32_t number) {
    Layout &layout = layouts_[number];
    if (layout.is_ready) return layout;
    const Type &type = program_.types[number];
    uint32_t rank = static_cast<uint32_t>(type.shape.size());
    layout.dims.resize(2 * rank);
    for (uint32_t d = 0; d < rank; d++) {
        layout.dims[d] = values.integer(type.shape[d]);
        layout.dims[rank + d] = values.integer(type.strides[d]);
    }
    layout.bytes = extent_of(layout.sizes(), layout.strides(), rank) * type.dtype->bytes;
    layout.is_ready = true;
    return layout;
}

Tensor Frame::tensor(uint32_t type, char *data, int64_t bytes, Held holder) {
    const Layout &lies = layout(type);
    if (lies.bytes > bytes)
        failed(
            words("A tensor of %lld bytes does not fit into memory of %lld.", (long long)lies.bytes, (long long)bytes));
    Tensor made;
    made.data = data;
    made.sizes = lies.sizes();
    made.strides = lies.strides();
    made.dtype = program_.types[type].dtype;
    made.rank = static_cast<uint32_t>(program_.types[type].shape.size());
    made.exists = true;
    made.on_device = program_.types[type].on_device;
    made.bytes = bytes;
    made.holder = std::move(holder);
    return made;
}

Handle Frame::handle(uint32_t slot) {
    if (own_[slot]) return own_[slot];
    const Tensor &tensor = slots[slot];
    if (!tensor.exists) failed("A library call gets a result that another library call has left out.");
    Passed &passed = handles_[slot];
    if (passed.handle && passed.data == tensor.data && passed.epoch == epoch_ && tensor.data) return passed.handle;
    if (passed.handle) torch_->delete_tensor(std::exchange(passed.handle, nullptr));
    passed.handle = torch_->from_memory(tensor, tensor.sizes, tensor.strides);
    passed.data = tensor.data;
    passed.epoch = epoch_;
    return passed.handle;
}

void Frame::put(uint32_t slot, Handle made, uint32_t viewed) {
    drop(slot);
    if (made == nullptr) return;
    Held holder(new TorchTensorHolder(torch_, made, viewed == NOTHING ? Held() : slots[viewed].holder));
    slots[slot] = torch_->described(made);
    slots[slot].holder = std::move(holder);
    own_[slot] = made;
}

void Frame::drop(uint32_t slot) {
    slots[slot].exists = false;
    slots[slot].holder = Held();
    own_[slot] = nullptr;
}

void Frame::take_arena(uint32_t number) {
    const Arena &arena = program_.arenas[number];
    Placed &placed = arenas_[number];
    if (placed.epoch != epoch_) place(number);
    if (static_cast<size_t>(placed.size) > arena_.size) grow(static_cast<size_t>(placed.size));
    for (size_t k = 0; k < arena.tensors.size(); k++) {
        const ArenaTensor &each = arena.tensors[k];
        slots[each.slot] = tensor(each.type, arena_.data + placed.offsets[k], layout(each.type).bytes, Held());
    }
    for (const ArenaView &each : arena.views) {
        const Tensor &base = slots[each.base];
        int64_t offset = values.integer(each.offset);
        if (offset < 0 || offset > base.bytes) failed("A view lies outside of its tensor.");
        slots[each.slot] = tensor(each.type, base.data + offset, base.bytes - offset, Held());
    }
    std::fill(placed.record.begin(), placed.record.end(), 0);
    for (const ArenaView &each : arena.places) {
        char *at = reinterpret_cast<char *>(placed.record.data() + each.offset);
        slots[each.slot] =
            tensor(each.type, at, static_cast<int64_t>((placed.record.size() - each.offset) * sizeof(int64_t)), Held());
    }
}

void Frame::place(uint32_t number) {
    const Arena &arena = program_.arenas[number];
    std::vector<int64_t> sizes;
    for (const ArenaTensor &each : arena.tensors) sizes.push_back(layout(each.type).bytes);
    arenas_[number].size = pack(sizes, arena.tensors, arenas_[number].offsets);
    arenas_[number].epoch = epoch_;
}

void Frame::grow(size_t size) {
    free(std::exchange(arena_.data, nullptr));  // nothing in it is used: a call has one arena at a time
    arena_.size = 0;
    size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    arena_.data = static_cast<char *>(aligned_alloc(ALIGNMENT, rounded));
    if (arena_.data == nullptr) failed(words("There is no memory for an arena of %zu bytes.", size));
    arena_.size = rounded;
}

void Frame::clear() {
    for (uint32_t slot = 0; slot < slots.size(); slot++)
        if (!is_weight_[slot]) drop(slot);
    for (Handle handle : results)
        if (handle) torch_->delete_tensor(handle);
    results.clear();
}

int64_t pack(const std::vector<int64_t> &sizes, const std::vector<ArenaTensor> &lives, std::vector<int64_t> &offsets) {
    std::vector<size_t> order(sizes.size()), placed;
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        if (sizes[a] != sizes[b]) return sizes[a] > sizes[b];
        return lives[a].first != lives[b].first ? lives[a].first < lives[b].first : a < b;
    });
    offsets.assign(sizes.size(), 0);
    int64_t total = 0;
    for (size_t k : order) {
        int64_t start = 0;
        for (size_t other : placed) {  // in order of their offsets
            if (lives[other].last < lives[k].first || lives[k].last < lives[other].first) continue;
            if (offsets[other] - start >= sizes[k]) break;
            int64_t end = offsets[other] + sizes[other];
            start = std::max(start, (end + static_cast<int64_t>(ALIGNMENT) - 1) / static_cast<int64_t>(ALIGNMENT) *
                                        static_cast<int64_t>(ALIGNMENT));
        }
        offsets[k] = start;
        if (__builtin_add_overflow(start, sizes[k], &start)) failed("An arena is too large.");
        total = std::max(total, start);
        placed.insert(std::upper_bound(placed.begin(), placed.end(), k,
                                       [&](size_t a, size_t b) { return offsets[a] < offsets[b]; }),
                      k);
    }
    return total;
}

}  // namespace keel
