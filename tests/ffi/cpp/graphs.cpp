// Graphs in C++: a step that is captured once, whatever is destroyed first, and the work of other
// code in it.

#include "check.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>

namespace {

constexpr std::size_t n = 1000;

/// An upload, a copy of a part, and a download, which is on another branch.
struct step {
  pinlane::pinned_buffer<float> input, output;
  pinlane::device_buffer<float> gpu;
  pinlane::graph graph;

  explicit step(rig& rig)
      : input(rig.pool.alloc<float>(n)), output(rig.pool.alloc<float>(n)),
        gpu(rig.device.alloc<float>(n)) {
    pinlane::capture capture(rig.device);
    capture.upload(input, gpu);
    capture.copy(gpu.slice(0, 10), gpu.slice(20, 10));
    capture.branch(1);
    capture.download(gpu, output);
    graph = capture.finish();
    EXPECT(!capture && graph);
  }

  void write(float value) {
    auto elements = graph.lend(input).write();
    std::fill(elements.begin(), elements.end(), value);
  }

  bool has(float value) { return graph.lend(output).read()[n - 1] == value; }
};

void as_in_the_guide(const pinlane::device& device, const pinlane::pinned_pool& pool,
                     const pinlane::stream& stream) {
  // ANCHOR: graph
  auto input = pool.alloc<float>(1000);
  auto gpu = device.alloc<float>(1000);
  auto output = pool.alloc<float>(1000);
  pinlane::capture capture(device);
  capture.upload(input, gpu);
  capture.download(gpu, output);
  pinlane::graph step = capture.finish(); // it holds the three buffers

  for (int round = 0; round < 3; ++round) {
    auto values = step.lend(input).write(); // waits for the last launch
    std::fill(values.begin(), values.end(), static_cast<float>(round));
    step.launch(stream); // returns at once
    EXPECT(step.lend(output).read()[999] == static_cast<float>(round)); // waits for this launch
  }
  // ANCHOR_END: graph
  EXPECT(step.bytes() == 2 * 1000 * sizeof(float));
}

void launches_on_two_streams(rig& rig) {
  const pinlane::stream second(rig.device);
  step step(rig);
  for (int round = 0; round < 8; ++round) {
    const auto value = static_cast<float>(round);
    step.write(value);
    const pinlane::stream_ref stream = round % 2 == 0 ? rig.stream : second;
    const pinlane::ticket ticket = step.graph.launch(stream);
    EXPECT(step.graph.launch(std::nothrow, second) == PINLANE_STATUS_OK);
    EXPECT(step.has(value));
    EXPECT(ticket.is_done());
  }
}

/// Members are destroyed in every order, in the middle of a launch.
void destroyed_in_every_order(rig& rig) {
  int order[] = {0, 1, 2, 3};
  do {
    step one(rig);
    one.write(1);
    one.graph.launch(rig.stream);
    for (const int which : order) {
      switch (which) {
      case 0:
        one.graph = {};
        break;
      case 1:
        one.input = {};
        break;
      case 2:
        one.output = {};
        break;
      default:
        one.gpu = {};
      }
    }
  } while (std::next_permutation(std::begin(order), std::end(order)));
  EXPECT(pinlane::live_count(PINLANE_KIND_GRAPH) == 0);
  EXPECT(rig.pool.stats().live_bytes == 0);
}

void buffers_take_turns(rig& rig) {
  step step(rig);
  auto other = rig.pool.alloc<float>(n);
  auto other_gpu = rig.device.alloc<float>(n);
  std::fill(other.write().begin(), other.write().end(), 5.0f);
  step.graph.rebind(step.input, other);
  EXPECT(step.graph.rebind(std::nothrow, step.gpu, other_gpu) == PINLANE_STATUS_OK);
  step.graph.launch(rig.stream);
  EXPECT(step.has(5));
  step.input.write()[0] = 1; // the program's again
  const auto shorter = rig.pool.alloc<float>(n - 1);
  EXPECT(thrown_by([&] { step.graph.rebind(other, shorter); }) == PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(step.graph.lend(std::nothrow, step.input) == PINLANE_STATUS_INVALID_VALUE);
}

void refusals(rig& rig) {
  step one(rig);
  EXPECT(thrown_by([&] { (void)one.input.write(); }) == PINLANE_STATUS_BUSY);
  EXPECT(one.input.read().size() == n); // the work only reads it
  EXPECT(thrown_by([&] { rig.stream.fill(one.gpu, 1.0f); }) == PINLANE_STATUS_BUSY);
  const pinlane::stream elsewhere(rig.other);
  EXPECT(thrown_by([&] { one.graph.launch(elsewhere); }) == PINLANE_STATUS_WRONG_DEVICE);
  one.graph.lend(one.gpu);
  one.gpu = rig.device.alloc<float>(n);
  EXPECT(thrown_by([&] { one.graph.launch(rig.stream); }) == PINLANE_STATUS_INVALID_HANDLE);

  pinlane::capture capture(rig.device);
  EXPECT(thrown_by([&] { capture.upload(one.output.slice(0, 3), one.gpu.slice(0, 2)); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(thrown_by([&] { capture.fill(one.gpu.slice(n, 1), 1.0f); }) ==
         PINLANE_STATUS_OUT_OF_RANGE);
  rig.stream.fill(one.gpu, 2.0f); // not in the capture
  capture.fill(one.gpu, 3.0f);
  EXPECT(thrown_by([&] { rig.stream.fill(one.gpu, 2.0f); }) == PINLANE_STATUS_BUSY);
  const pinlane::capture moved = std::move(capture);
  EXPECT(thrown_by([&] { capture.fill(one.gpu, 1.0f); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(thrown_by([&] { (void)capture.finish(); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(thrown_by([&] { (void)pinlane::capture::join(rig.stream); }) ==
         PINLANE_STATUS_INVALID_VALUE);
}

/// This graph is what other code captures. Work of ours joins it.
void the_graph_of_other_code(rig& rig) {
  auto input = rig.pool.alloc<float>(n);
  auto gpu = rig.device.alloc<float>(n);
  auto own = rig.device.alloc<float>(n);
  std::fill(input.write().begin(), input.write().end(), 4.0f);
  pinlane::capture theirs(rig.device);
  std::optional<pinlane::graph> ours;
  theirs.foreign(pinlane::reading(input), pinlane::writing(own), [&](auto native) {
    const auto captured = pinlane::stream::from_native_handle(rig.device, native);
    auto joined = pinlane::capture::join(captured);
    joined.upload(input, gpu);
    ours = joined.finish();
  });
  auto graph = theirs.finish();
  EXPECT(thrown_by([&] { ours->launch(rig.stream); }) == PINLANE_STATUS_UNSUPPORTED);
  ours->launch_foreign(rig.stream, [&](auto native) {
    EXPECT(native == rig.stream.native_handle());
    graph.launch(rig.stream);
  });
  auto back = rig.pool.alloc<float>(n);
  rig.stream.download(ours->lend(gpu), back);
  EXPECT(back.read()[n - 1] == 4);

  // It throws: what it enqueued so far counts.
  rig.stream.fill(gpu, 0.0f);
  try {
    ours->launch_foreign(rig.stream, [&](void*) {
      graph.launch(rig.stream);
      throw std::runtime_error("on purpose");
    });
    EXPECT(!"it throws");
  } catch (const std::runtime_error&) {
  }
  rig.stream.download(ours->lend(gpu), back);
  EXPECT(back.read()[0] == 4);
}

} // namespace

int main() try {
  rig rig;
  as_in_the_guide(rig.device, rig.pool, rig.stream);
  launches_on_two_streams(rig);
  destroyed_in_every_order(rig);
  buffers_take_turns(rig);
  refusals(rig);
  the_graph_of_other_code(rig);
  return verdict("graphs in C++");
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
