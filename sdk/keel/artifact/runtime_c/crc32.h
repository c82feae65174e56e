// The CRC-32 of zip files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace keel {

// The CRC-32 of `count` bytes that follow bytes of the CRC-32 `crc`, which is 0 for none.
uint32_t crc32(uint32_t crc, const void *bytes, size_t count);

}  // namespace keel
