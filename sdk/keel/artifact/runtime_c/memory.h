// Memory of tensors: who holds it, and blocks that calls use again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace keel {

// Something that keeps memory alive, and is destroyed when nobody holds it any more.
class Holder {
  public:
    virtual ~Holder() = default;
    void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
    void let_go() {
        if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
    }

  protected:
    virtual void destroy() { delete this; }

  private:
    std::atomic<uint32_t> holders_{0};
};

// Holds a Holder; null if the memory is borrowed, or belongs to the model.
class Held {
  public:
    Held() = default;
    explicit Held(Holder *holder) : holder_(holder) {
        if (holder_) holder_->hold();
    }
    Held(const Held &other) : Held(other.holder_) {}
    Held(Held &&other) noexcept : holder_(std::exchange(other.holder_, nullptr)) {}
    Held &operator=(Held other) noexcept {
        std::swap(holder_, other.holder_);
        return *this;
    }
    ~Held() {
        if (holder_) holder_->let_go();
    }
    Holder *get() const { return holder_; }

  private:
    Holder *holder_ = nullptr;
};

// Blocks of memory, aligned to cache lines. Large ones that are freed serve later allocations of nearly their size: to
// get memory from the system takes longer than many kernels. At most as much is retained as was in use at once.
class Blocks : public std::enable_shared_from_this<Blocks> {
  public:
    ~Blocks();

    // Memory of at least `bytes`. Throws KEEL_FAILED.
    Held allocate(size_t bytes, char *&data);

    size_t retained();

  private:
    friend class Block;
    struct Free {
        void *memory;
        size_t bytes;
    };
    void *taken(size_t bytes, size_t &capacity);
    void give(void *memory, size_t capacity);

    std::mutex lock_;
    std::vector<Free> free_;  // the longest free first
    size_t retained_ = 0, used_ = 0, most_used_ = 0;
};

constexpr size_t ALIGNMENT = 64;

}  // namespace keel
