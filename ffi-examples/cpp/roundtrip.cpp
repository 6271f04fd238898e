// A first copy: data goes to the device and back, in C++17. The objects free themselves. The device
// is GPU 0, or an emulated one where there is no GPU.

#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

int main() try {
  constexpr std::size_t count = 1 << 20;
  const pinlane::device device = pinlane::device::open_or_emulated();
  const pinlane::pinned_pool pool(device);
  const pinlane::stream stream(device);

  std::vector<std::uint32_t> expected(count);
  std::iota(expected.begin(), expected.end(), 1u);

  auto host = pool.alloc<std::uint32_t>(count); // page-locked, from the pool
  auto gpu = device.alloc<std::uint32_t>(count);
  std::copy(expected.begin(), expected.end(), host.write().begin());

  // None of these calls blocks. The device executes them in this order.
  stream.upload(host, gpu);
  stream.fill(gpu.slice(0, 1000), 7u);
  stream.download(gpu, host);
  auto gpu_sum = device.alloc<std::uint64_t>(1);
  auto sum = pool.alloc<std::uint64_t>(1);
  stream.checksum(gpu, gpu_sum);
  stream.download(gpu_sum, sum);

  std::fill_n(expected.begin(), 1000, 7u);
  const auto result = host.read(); // waits for that copy, not for the stream
  if (!std::equal(result.begin(), result.end(), expected.begin())) {
    std::fprintf(stderr, "the elements are wrong\n");
    return 1;
  }
  if (sum.read()[0] != pinlane::checksum(expected)) {
    std::fprintf(stderr, "the checksums of host and device differ\n");
    return 1;
  }
  std::printf("%s: %zu bytes there and back, bit for bit\n", device.name().c_str(),
              result.size_bytes());
  return 0;
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s: %s\n", pinlane_status_name(error.status()), error.what());
  return 1;
}
