// A step that is captured once and launched by one call, as often as needed. It prints what
// examples/09_graph.rs prints.

#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <utility>

int main() try {
  constexpr std::size_t n = 1000;
  const pinlane::device device = pinlane::device::open_or_emulated();
  const pinlane::pinned_pool pool(device);
  const pinlane::stream stream(device);
  auto input = pool.alloc<float>(n), output = pool.alloc<float>(n);
  auto gpu = device.alloc<float>(n);

  pinlane::capture capture(device);
  capture.upload(input, gpu); // recorded, not executed
  capture.download(gpu, output);
  pinlane::graph step = capture.finish(); // it holds the three buffers
  std::printf("one launch moves %zu bytes\n", step.bytes());

  const auto fill = [](auto&& elements, int value) {
    std::fill(elements.begin(), elements.end(), static_cast<float>(value));
  };
  std::printf("five launches: [");
  for (int round = 0; round < 5; ++round) {
    fill(step.lend(input).write(), round);                    // waits for the last launch
    step.launch(stream);                                      // returns at once
    const double result = step.lend(output).read()[n - 1];    // waits for this launch
    std::printf("%.1f%s", result, round < 4 ? ", " : "]\n");
  }

  // The program fills one input while the device may still read the other.
  auto spare = pool.alloc<float>(n);
  std::printf("two inputs take turns: [");
  for (int round = 10; round < 13; ++round) {
    fill(spare.write(), round);
    step.rebind(input, spare);
    std::swap(input, spare);
    step.launch(stream);
    const double result = step.lend(output).read()[0];
    std::printf("%.1f%s", result, round < 12 ? ", " : "]\n");
  }

  step.launch(stream);
  step = {};
  input = {}; // the memory is reused when the device is done with it
  std::puts("dropped in the middle of a launch");
  stream.synchronize();
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
