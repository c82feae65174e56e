// What one call uses at a time: the values of its slots, sizes and numbers, and its arena. Frames outlive calls, so
// that what depends on sizes alone is computed once for each set of sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "libtorch.h"
#include "memory.h"
#include "numbers.h"
#include "program.h"
#include "tensor.h"

namespace keel {

// The sizes and strides of a type, in numbers.
struct Layout {
    std::vector<int64_t> dims;  // the sizes, then the strides
    int64_t bytes = 0;          // from the first element to the last
    bool is_ready = false;

    const int64_t *sizes() const { return dims.data(); }
    const int64_t *strides() const { return dims.data() + dims.size() / 2; }
};

class Frame {
  public:
    Frame(const Program &program, std::shared_ptr<const Libtorch> torch);
    ~Frame();
    Frame(const Frame &) = delete;
    Frame &operator=(const Frame &) = delete;

    // Sets a symbol, and forgets what was computed with another value.
    void set(uint32_t symbol, const Number &value);

    const Layout &layout(uint32_t type);

    // A tensor of a type in memory. Throws KEEL_FAILED if it does not fit into `bytes`.
    Tensor tensor(uint32_t type, char *data, int64_t bytes, Held holder);

    // The tensor in a slot, for libtorch. It is borrowed until the slot changes.
    Handle handle(uint32_t slot);

    // Puts a tensor that libtorch made into a slot; a view of the slot `viewed`, unless that is NOTHING. Null is None.
    void put(uint32_t slot, Handle made, uint32_t viewed);

    void drop(uint32_t slot);

    // Forgets the handle of a slot, whose tensor has changed its sizes or strides.
    void forget_handle(uint32_t slot) { handles_[slot].data = nullptr; }

    // Places the tensors of an arena, and clears its record of wrong indices.
    void take_arena(uint32_t number);
    const int64_t *record(uint32_t arena) const { return arenas_[arena].record.data(); }

    // Frees what the slots hold, but for weights.
    void clear();

    size_t held_bytes() const { return arena_.size; }

    std::vector<Tensor> slots;
    Values values;
    std::vector<int64_t> key;                          // the sizes of the inputs that it was used for
    std::vector<std::vector<int64_t>> entered;         // of each input: its sizes and strides as the graph takes it
    std::vector<std::vector<int64_t>> passed_strides;  // of each input that is passed without
    std::vector<Handle> results;                       // room for library calls
    uint64_t weights_version = 0;

  private:
    struct Passed {
        Handle handle = nullptr;
        char *data = nullptr;
        uint64_t epoch = 0;
    };
    struct Placed {
        uint64_t epoch = 0;
        std::vector<int64_t> offsets;
        int64_t size = 0;
        std::vector<int64_t> record;
    };
    struct Memory {
        char *data = nullptr;
        size_t size = 0;
    };

    void place(uint32_t number);
    void grow(size_t size);

    const Program &program_;
    std::shared_ptr<const Libtorch> torch_;
    std::vector<Layout> layouts_;
    std::vector<Passed> handles_;  // of slots in the runtime's memory
    std::vector<Handle> own_;      // of slots that libtorch made
    std::vector<uint8_t> is_weight_;
    std::vector<Placed> arenas_;
    Memory arena_;
    uint64_t epoch_ = 1;  // counts the changes of symbols
};

// The places of tensors in an arena, each of which has a size and lives from its first to its last step, inclusive:
// best fit by decreasing size, as keel.schedule.memory_plan. Returns the size of the arena.
int64_t pack(const std::vector<int64_t> &sizes, const std::vector<ArenaTensor> &lives, std::vector<int64_t> &offsets);

}  // namespace keel
