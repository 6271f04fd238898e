// Uploads, kernels and downloads at the same time, each on its own stream.
//
//   up       | chunk 0 | chunk 1 | chunk 2 | ...
//   kernels            | chunk 0 | chunk 1 | chunk 2 | ...
//   down                         | chunk 0 | chunk 1 | ...
//
// Nothing here waits for a stream: the buffers order the work. It prints what
// examples/03_overlap.rs prints.

#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <vector>

int main() try {
  constexpr std::size_t chunk = 1 << 18, half = chunk / 2; // elements
  constexpr std::uint32_t chunks = 32;
  const pinlane::device device = pinlane::device::open_or_emulated();
  const pinlane::pinned_pool pool(device);
  auto source = pool.alloc<std::uint32_t>(chunks * chunk);
  std::fill_n(source.write().begin(), chunks * chunk, 7u);
  auto target = pool.alloc<std::uint32_t>(chunks * chunk);
  std::vector<pinlane::device_buffer<std::uint32_t>> ring; // one for each stage, and one to spare
  std::generate_n(std::back_inserter(ring), 4, [&] { return device.alloc<std::uint32_t>(chunk); });

  const pinlane::stream a(device), b(device), c(device);
  const auto run = [&](const char* name, const auto& up, const auto& kernels, const auto& down) {
    std::fill_n(target.write().begin(), chunks * chunk, 0u);
    const auto start = std::chrono::steady_clock::now();
    for (std::uint32_t index = 0; index < chunks; ++index) {
      auto& gpu = ring[index % 4];
      up.upload(source.slice(index * chunk, chunk), gpu);
      kernels.fill(gpu.slice(0, half), index); // your kernel here
      down.download(gpu, target.slice(index * chunk, chunk));
    } // all calls return at once
    down.synchronize();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    int right = 0;
    auto at = target.read().begin();
    for (std::uint32_t index = 0; index < chunks; ++index, at += chunk) {
      right += std::count(at, at + half, index) == half &&
               std::count(at + half, at + chunk, 7u) == half;
    }
    std::printf("%-14s %d of %u chunks are right, %.3f ms\n", name, right, chunks, time.count());
  };
  run("first:", a, a, a);
  run("one stream:", a, a, a);
  run("three streams:", a, b, c);
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
