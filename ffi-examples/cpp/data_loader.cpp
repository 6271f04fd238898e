// Batches that other threads decode and copy to the device, ahead of their use. The device is GPU
// 0, or an emulated one where there is no GPU.

#include <pinlane/pinlane.hpp>

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t pixels = 64 * 1024;
constexpr std::uint32_t batches = 32;

/// What a data loader yields: labels in pageable memory, and images that are decoded straight into
/// page-locked memory, by a thread of pinlane.
struct samples {
  std::uint32_t number;
  std::vector<std::uint32_t> labels;

  void visit(pinlane::batch_slices& slices) {
    slices.slice("labels", labels);
    slices.reserve<std::uint32_t>("images", pixels);
  }
  void fill(pinlane::fill_block& block) {
    auto images = block.slice<std::uint32_t>("images");
    std::iota(images.begin(), images.end(), number);
  }
};

} // namespace

int main() try {
  const pinlane::device device = pinlane::device::open_or_emulated();
  const pinlane::pinned_pool pool(device);
  const pinlane::stream stream(device);

  std::uint32_t next = 0;
  auto load = [&]() -> std::optional<samples> { // one thread at a time calls it
    if (next == batches) {
      return std::nullopt;
    }
    const std::uint32_t number = next++;
    return samples{number, std::vector<std::uint32_t>(100, number)};
  };
  pinlane::prefetch pipeline(pool, stream, load, {/*depth*/ 4, /*workers*/ 2});

  // Your kernels would go here, on `stream`: it waits for each batch. This checks the data instead.
  auto images = pool.alloc<std::uint32_t>(pixels);
  std::vector<std::uint32_t> labels(100);
  std::uint32_t right = 0;
  for (pinlane::device_batch& batch : pipeline) {
    stream.download(batch.slice<std::uint32_t>("images"), images);
    stream.download(batch.slice<std::uint32_t>("labels"), labels);
    const auto number = static_cast<std::uint32_t>(batch.index());
    right += labels[99] == number && images.read()[pixels - 1] == number + pixels - 1;
  }
  const pinlane::prefetch_progress progress = pipeline.progress();
  std::printf("%u of %u batches are right, %llu bytes\n", right, batches,
              static_cast<unsigned long long>(progress.bytes));
  return right == batches ? 0 : 1;
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
