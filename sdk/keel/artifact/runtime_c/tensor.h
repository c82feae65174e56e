// Tensors of a call: an address, sizes and strides, and what keeps the memory alive.
#pragma once

#include <cstdint>
#include <string>

#include "keel_runtime.h"
#include "memory.h"

namespace keel {

struct DType {
    const char *name;  // PyTorch's, without "torch."
    DLDataType code;
    uint8_t bytes;
    uint8_t number;  // its place among the dtypes
};

constexpr size_t DTYPE_COUNT = 17;
const DType &dtype_at(size_t number);

// The dtype of a name or of DLPack's code; null if the runtime does not know it.
const DType *dtype_named(const std::string &name);
const DType *dtype_of(DLDataType code);

struct Tensor {
    char *data = nullptr;
    const int64_t *sizes = nullptr, *strides = nullptr;  // strides in elements
    const DType *dtype = nullptr;
    uint32_t rank = 0;
    bool exists = false, on_device = false;
    int64_t bytes = 0;  // of memory from `data` on
    Held holder;        // null if the memory is borrowed from the caller or belongs to the model

    int64_t count() const;
};

// The number of elements, and of those from the first to the last in memory. Throw KEEL_FAILED for too many.
int64_t count_of(const int64_t *sizes, uint32_t rank);
int64_t extent_of(const int64_t *sizes, const int64_t *strides, uint32_t rank);

// True if a tensor lies as these strides say; those of dimensions of one element do not count.
bool lies_as(const int64_t *sizes, const int64_t *have, const int64_t *want, uint32_t rank);

// Copies all elements of `from` to `to`, which has the same sizes and dtype, and is in other memory. Where a stride is
// 0, the first element is copied.
void copy(const Tensor &from, char *to, const int64_t *strides);

// True if all elements along a dimension have the same bits.
bool is_repeated(const Tensor &tensor, uint32_t dim);

// The sizes as text: [2, 3].
std::string shown(const int64_t *sizes, uint32_t rank);

}  // namespace keel
