#include "memory.h"

#include <cstdlib>
#include <new>

#include "failure.h"

namespace keel {

namespace {

constexpr size_t LARGE = 1 << 16;  // bytes from which blocks are retained

}  // namespace

// The head of a block lies in the same memory, in front of the data.
class Block : public Holder {
  public:
    Block(std::shared_ptr<Blocks> blocks, size_t capacity) : blocks_(std::move(blocks)), capacity_(capacity) {}

  protected:
    void destroy() override {
        std::shared_ptr<Blocks> blocks = std::move(blocks_);
        size_t capacity = capacity_;
        this->~Block();
        if (blocks)
            blocks->give(this, capacity);
        else
            free(this);
    }

  private:
    std::shared_ptr<Blocks> blocks_;  // null for a small block
    size_t capacity_;
};

static_assert(sizeof(Block) <= ALIGNMENT, "the head of a block must fit in front of the data");

Blocks::~Blocks() {
    for (const Free &block : free_) free(block.memory);
}

Held Blocks::allocate(size_t bytes, char *&data) {
    size_t capacity = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    if (capacity < bytes) failed("A tensor is too large.");
    void *memory = capacity >= LARGE ? taken(capacity, capacity) : aligned_alloc(ALIGNMENT, capacity);
    if (memory == nullptr) failed(words("There is no memory for a tensor of %zu bytes.", bytes));
    Holder *block = new (memory) Block(capacity >= LARGE ? shared_from_this() : nullptr, capacity);
    data = static_cast<char *>(memory) + ALIGNMENT;
    return Held(block);
}

void *Blocks::taken(size_t bytes, size_t &capacity) {
    std::vector<Free> dropped;  // freed after the lock
    void *memory = nullptr;
    {
        std::lock_guard<std::mutex> guard(lock_);
        size_t best = free_.size();
        for (size_t k = 0; k < free_.size(); k++)
            if (free_[k].bytes >= bytes && free_[k].bytes <= bytes + bytes / 8 &&
                (best == free_.size() || free_[k].bytes <= free_[best].bytes))
                best = k;
        if (best < free_.size()) {
            memory = free_[best].memory;
            capacity = free_[best].bytes;
            retained_ -= capacity;
            free_.erase(free_.begin() + static_cast<ptrdiff_t>(best));
        } else {
            while (!free_.empty() && used_ + retained_ + bytes > most_used_) {  // so that the peak stays as it was
                dropped.push_back(free_.front());
                retained_ -= free_.front().bytes;
                free_.erase(free_.begin());
            }
        }
        used_ += capacity;
        most_used_ = used_ > most_used_ ? used_ : most_used_;
    }
    for (const Free &block : dropped) free(block.memory);
    if (memory == nullptr && (memory = aligned_alloc(ALIGNMENT, bytes)) == nullptr) {
        std::lock_guard<std::mutex> guard(lock_);
        used_ -= capacity;
    }
    return memory;
}

void Blocks::give(void *memory, size_t capacity) {
    try {
        std::lock_guard<std::mutex> guard(lock_);
        used_ -= capacity;
        free_.push_back({memory, capacity});
        retained_ += capacity;
    } catch (const std::bad_alloc &) {
        free(memory);
    }
}

size_t Blocks::retained() {
    std::lock_guard<std::mutex> guard(lock_);
    return retained_;
}

}  // namespace keel
