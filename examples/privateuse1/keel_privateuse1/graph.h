// A graph of the device: recorded kernels, and the memory pool that they use.
#pragma once

#include "device.h"

#include <optional>
#include <vector>

namespace example {

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  // Records what the calling thread launches on its current stream, which is not the default one, until capture_end.
  // Memory that it allocates there is from `pool`, or from a new pool for {0, 0}.
  void capture_begin(c10::MempoolId_t pool);
  void capture_end();
  void replay();
  void reset();
  c10::MempoolId_t pool() const { return pool_; }

  const std::optional<c10::Stream>& stream() const { return stream_; }
  void record(std::function<void()> kernel) { kernels_.push_back(std::move(kernel)); }

 private:
  std::vector<std::function<void()>> kernels_;
  std::optional<c10::Stream> stream_;
  c10::MempoolId_t pool_{0, 0};
};

}  // namespace example
