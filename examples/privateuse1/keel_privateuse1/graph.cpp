// Graphs: the kernels that are launched on a stream between two moments, which can be run again, and their memory.
#include "graph.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)  // PyTorch has the interface from 2.13 on
#include <ATen/core/GraphImplInterface.h>
#endif

namespace example {
namespace {

// The graph that the calling thread captures. Only work on the captured stream is recorded.
thread_local Graph* capturing = nullptr;

bool is_set(c10::MempoolId_t pool) { return pool != c10::MempoolId_t{0, 0}; }

}  // namespace

Graph::~Graph() { reset(); }

void Graph::capture_begin(c10::MempoolId_t pool) {
  auto stream = current_stream(-1);
  TORCH_CHECK(capturing == nullptr, "example: this thread captures a graph already");
  TORCH_CHECK(stream.id() != 0, "example: the default stream cannot be captured");
  TORCH_CHECK(kernels_.empty() && !is_set(pool_), "example: the graph has been captured; reset() it first");
  pool_ = is_set(pool) ? pool : new_pool();
  hold_pool(pool_);
  stream_ = stream;
  capturing = this;
}

void Graph::capture_end() {
  TORCH_CHECK(capturing == this, "example: this thread does not capture this graph");
  capturing = nullptr;
}

void Graph::replay() {
  TORCH_CHECK(is_set(pool_), "example: the graph has not been captured");
  TORCH_CHECK(capturing == nullptr, "example: a graph cannot be replayed while another one is captured");
  counters().replays++;
  for (const auto& kernel : kernels_) kernel();
}

void Graph::reset() {
  if (capturing == this) capturing = nullptr;
  kernels_.clear();
  if (is_set(pool_)) release_pool(pool_);
  pool_ = {0, 0};
}

bool is_capturing(c10::DeviceIndex device) {
  return capturing != nullptr && capturing->stream() == current_stream(device);
}

void launch(c10::DeviceIndex device, std::function<void()> kernel) {
  if (is_capturing(device)) {
    capturing->record(std::move(kernel));
  } else {
    kernel();
  }
}

void refuse_in_capture(c10::DeviceIndex device, const std::string& what) {
  TORCH_CHECK(!is_capturing(device), "example: a graph cannot record ", what);
}

c10::MempoolId_t current_pool(c10::DeviceIndex device) {
  return is_capturing(device) ? capturing->pool() : c10::MempoolId_t{0, 0};
}

}  // namespace example

#if __has_include(<ATen/core/GraphImplInterface.h>)
namespace at {
namespace {

// What torch.accelerator.Graph uses. PyTorch finds it by the name of the device, in capitals.
struct ExampleGraph final : GraphImplInterface {
  explicit ExampleGraph(const GraphImplArgs&) {}
  void capture_begin(MempoolId_t pool, GraphCaptureMode) override { graph_.capture_begin(pool); }
  void capture_end() override { graph_.capture_end(); }
  void instantiate() override {}
  void replay() override { graph_.replay(); }
  void reset() override { graph_.reset(); }
  MempoolId_t pool() const override { return graph_.pool(); }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override { TORCH_CHECK(false, "example: graphs cannot be dumped"); }

 private:
  example::Graph graph_;
};
REGISTER_GRAPH_IMPL(EXAMPLE, ExampleGraph)

}  // namespace
}  // namespace at
#endif
