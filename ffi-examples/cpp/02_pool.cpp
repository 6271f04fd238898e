// A pool of page-locked memory: it stays within its budget, and a block that is destroyed in the
// middle of a copy is reused only when the device is done with it.
//
// It prints what examples/02_pool.rs prints.

#include <pinlane/pinlane.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>

namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;

const char* text(bool value) { return value ? "true" : "false"; }

} // namespace

int main() try {
  const pinlane::device device = pinlane::device::open_or_emulated();
  pinlane::pool_options options;
  options.max_bytes = 8 * block_bytes;
  const pinlane::pinned_pool pool(device, options);
  const pinlane::stream stream(device);

  auto gpu = device.alloc<std::uint8_t>(block_bytes);
  for (std::size_t number = 0; number < 1000; ++number) {
    auto block = pool.alloc<std::uint8_t>(block_bytes); // nanoseconds, if one is free
    block.write()[number] = 7;
    stream.upload(block, gpu); // returns at once
  } // the block goes back, though the device may still read it
  const pinlane::pool_stats stats = pool.stats(); // memory by state, how often a block was free
  const bool within =
      stats.hits + stats.misses == 1000 && stats.peak_bytes <= options.max_bytes;
  std::printf("1000 blocks were uploaded, never more than 8 MiB page-locked: %s\n", text(within));

  {
    auto back = pool.alloc<std::uint8_t>(block_bytes);
    stream.download(gpu, back);
    std::printf("the last upload arrived: %s\n", text(back.read()[999] == 7));
  }
  pinlane::pinned_buffer<std::uint8_t> none;
  const auto status = pool.alloc(std::nothrow, 9 * block_bytes, none); // without it, this throws
  std::printf("9 MiB are refused: %s\n", text(status == PINLANE_STATUS_BUDGET_EXHAUSTED));

  pool.trim(); // gives unused memory back to the system
  std::printf("page-locked after trim: %zu bytes\n", pool.stats().committed_bytes);
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
