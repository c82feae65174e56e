#include "tensor.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "failure.h"

namespace keel {

namespace {

constexpr DType DTYPES[DTYPE_COUNT] = {
    {"float32", {kDLFloat, 32, 1}, 4, 0},
    {"float64", {kDLFloat, 64, 1}, 8, 1},
    {"float16", {kDLFloat, 16, 1}, 2, 2},
    {"bfloat16", {kDLBfloat, 16, 1}, 2, 3},
    {"int64", {kDLInt, 64, 1}, 8, 4},
    {"int32", {kDLInt, 32, 1}, 4, 5},
    {"int16", {kDLInt, 16, 1}, 2, 6},
    {"int8", {kDLInt, 8, 1}, 1, 7},
    {"uint8", {kDLUInt, 8, 1}, 1, 8},
    {"uint16", {kDLUInt, 16, 1}, 2, 9},
    {"uint32", {kDLUInt, 32, 1}, 4, 10},
    {"uint64", {kDLUInt, 64, 1}, 8, 11},
    {"bool", {kDLBool, 8, 1}, 1, 12},
    {"float8_e4m3fn", {kDLFloat8_e4m3fn, 8, 1}, 1, 13},
    {"float8_e4m3fnuz", {kDLFloat8_e4m3fnuz, 8, 1}, 1, 14},
    {"float8_e5m2", {kDLFloat8_e5m2, 8, 1}, 1, 15},
    {"float8_e5m2fnuz", {kDLFloat8_e5m2fnuz, 8, 1}, 1, 16},
};

struct Dim {
    int64_t size, from, to;  // strides in bytes
};

template <size_t bytes>
void copy_row(const char *from, int64_t step, char *to, int64_t to_step, int64_t count) {
    for (int64_t k = 0; k < count; k++) memcpy(to + k * to_step, from + k * step, bytes);
}

void copy_row(const char *from, char *to, const Dim &dim, size_t bytes) {
    if (dim.from == static_cast<int64_t>(bytes) && dim.to == dim.from)
        memcpy(to, from, static_cast<size_t>(dim.size) * bytes);
    else if (bytes == 8)
        copy_row<8>(from, dim.from, to, dim.to, dim.size);
    else if (bytes == 4)
        copy_row<4>(from, dim.from, to, dim.to, dim.size);
    else if (bytes == 2)
        copy_row<2>(from, dim.from, to, dim.to, dim.size);
    else
        copy_row<1>(from, dim.from, to, dim.to, dim.size);
}

// The dimensions from the largest stride of the target to the smallest, neighbors merged where both sides allow it.
std::vector<Dim> dims_of(const Tensor &from, const int64_t *strides) {
    std::vector<Dim> dims, merged;
    int64_t bytes = from.dtype->bytes;
    for (uint32_t d = 0; d < from.rank; d++)
        if (from.sizes[d] != 1 && strides[d] != 0)  // elements in one place: the first one
            dims.push_back({from.sizes[d], from.strides[d] * bytes, strides[d] * bytes});
    std::stable_sort(dims.begin(), dims.end(), [](const Dim &a, const Dim &b) { return a.to > b.to; });
    for (const Dim &dim : dims) {
        if (!merged.empty() && merged.back().from == dim.from * dim.size && merged.back().to == dim.to * dim.size) {
            merged.back() = {merged.back().size * dim.size, dim.from, dim.to};
        } else {
            merged.push_back(dim);
        }
    }
    return merged;
}

void copy_dims(const char *from, char *to, const Dim *dims, size_t count, size_t bytes) {
    if (count == 0) {
        memcpy(to, from, bytes);
    } else if (count == 1) {
        copy_row(from, to, dims[0], bytes);
    } else {
        for (int64_t k = 0; k < dims[0].size; k++)
            copy_dims(from + k * dims[0].from, to + k * dims[0].to, dims + 1, count - 1, bytes);
    }
}

}  // namespace

const DType &dtype_at(size_t number) { return DTYPES[number]; }

const DType *dtype_named(const std::string &name) {
    for (const DType &each : DTYPES)
        if (name == each.name) return &each;
    return nullptr;
}

const DType *dtype_of(DLDataType code) {
    for (const DType &each : DTYPES)
        if (code.code == each.code.code && code.bits == each.code.bits && code.lanes == 1) return &each;
    return nullptr;
}

int64_t Tensor::count() const { return count_of(sizes, rank); }

int64_t count_of(const int64_t *sizes, uint32_t rank) {
    int64_t count = 1;
    bool empty = false;
    for (uint32_t d = 0; d < rank; d++) {
        if (sizes[d] < 0) failed(words("A size is negative: %lld.", (long long)sizes[d]));
        if (sizes[d] == 0)
            empty = true;
        else if (__builtin_mul_overflow(count, sizes[d], &count))
            failed("A tensor has too many elements.");
    }
    return empty ? 0 : count;
}

int64_t extent_of(const int64_t *sizes, const int64_t *strides, uint32_t rank) {
    if (count_of(sizes, rank) == 0) return 0;
    int64_t extent = 1, span;
    for (uint32_t d = 0; d < rank; d++) {
        if (strides[d] < 0) failed(words("A stride is negative: %lld.", (long long)strides[d]));
        if (__builtin_mul_overflow(sizes[d] - 1, strides[d], &span) || __builtin_add_overflow(extent, span, &extent))
            failed("A tensor spans too much memory.");
    }
    if (extent > INT64_MAX / 16) failed("A tensor spans too much memory.");
    return extent;
}

bool lies_as(const int64_t *sizes, const int64_t *have, const int64_t *want, uint32_t rank) {
    for (uint32_t d = 0; d < rank; d++)
        if (sizes[d] > 1 && have[d] != want[d]) return false;
    return true;
}

void copy(const Tensor &from, char *to, const int64_t *strides) {
    if (from.count() == 0) return;
    std::vector<Dim> dims = dims_of(from, strides);
    copy_dims(from.data, to, dims.data(), dims.size(), from.dtype->bytes);
}

bool is_repeated(const Tensor &tensor, uint32_t dim) {
    std::vector<int64_t> at(tensor.rank);
    for (int64_t k = tensor.count(); k > 0; k--) {
        int64_t offset = 0;
        for (uint32_t d = 0; d < tensor.rank; d++) offset += at[d] * tensor.strides[d];
        int64_t first = offset - at[dim] * tensor.strides[dim];
        if (memcmp(tensor.data + offset * tensor.dtype->bytes, tensor.data + first * tensor.dtype->bytes,
                   tensor.dtype->bytes) != 0)
            return false;
        for (uint32_t d = tensor.rank; d-- > 0;) {
            if (++at[d] < tensor.sizes[d]) break;
            at[d] = 0;
        }
    }
    return true;
}

std::string shown(const int64_t *sizes, uint32_t rank) {
    std::string text = "[";
    for (uint32_t d = 0; d < rank; d++) text += (d ? ", " : "") + std::to_string(sizes[d]);
    return text + "]";
}

}  // namespace keel
