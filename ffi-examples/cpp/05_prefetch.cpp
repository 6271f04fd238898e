// Batches ahead of their use: other threads decode them and copy them to the device, while yours
// works on those that have arrived. It prints what examples/05_prefetch.rs prints.

#include <pinlane/pinlane.hpp>

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <optional>
#include <vector>

namespace {
constexpr std::size_t pixels = 1 << 16;

/// What a data loader yields: labels in pageable memory, and images that a thread of pinlane
/// decodes directly into page-locked memory.
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

  auto load = [next = 0u]() mutable -> std::optional<samples> { // one thread at a time calls it
    const std::uint32_t number = next++;
    const samples batch = {number, std::vector<std::uint32_t>(100, number)};
    return number < 32 ? std::optional(batch) : std::nullopt;
  };
  pinlane::prefetch batches(pool, stream, load, {/*depth*/ 4, /*workers*/ 2});
  auto images = pool.alloc<std::uint32_t>(pixels), labels = pool.alloc<std::uint32_t>(100);
  int right = 0;
  for (pinlane::device_batch& batch : batches) {
    // Your kernels here, on `stream`. This example checks the data instead.
    stream.download(batch.slice<std::uint32_t>("images"), images);
    stream.download(batch.slice<std::uint32_t>("labels"), labels);
    const auto number = static_cast<std::uint32_t>(batch.index());
    right += labels.read()[99] == number && images.read()[pixels - 1] == number + pixels - 1;
  }
  std::printf("%d of 32 batches are right\n", right);
  std::printf("%llu bytes were copied ahead\n",
              static_cast<unsigned long long>(batches.progress().bytes));
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
