// A thousand tensors by one call, and back by another one that reports each as it arrives. It
// prints what examples/04_batch.rs prints.

#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

int main() try {
  const pinlane::device device = pinlane::device::open_or_emulated();
  const pinlane::pinned_pool pool(device);
  const pinlane::stream stream(device);

  // Pageable memory, of any sizes. The batch picks the fastest way for them.
  std::vector<std::vector<float>> weights, back;
  std::vector<pinlane::device_buffer<float>> gpu;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    weights.emplace_back(i + 1, static_cast<float>(i));
    back.emplace_back(i + 1);
    gpu.push_back(device.alloc<float>(i + 1));
    bytes += gpu.back().size_bytes();
  }
  std::vector<pinlane::upload_item> up;
  std::vector<pinlane::download_item> down;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    up.emplace_back(weights[i], gpu[i]);
    down.emplace_back(gpu[i], back[i]);
  }
  stream.upload_batch(up); // `weights` may be changed now
  std::printf("%zu tensors, %zu bytes\n", weights.size(), bytes);

  int right = 0;
  stream.download_batch_each(down, [&](std::size_t i, pinlane::span<const std::byte> arrived) {
    // The others are still in flight.
    right += std::memcmp(arrived.data(), weights[i].data(), arrived.size()) == 0;
  });
  std::printf("%d arrived as they left\n", right);

  // Page-locked memory is copied directly, and the calls return at once.
  auto last = pool.alloc<float>(1000);
  std::generate_n(last.write().begin(), 1000, [i = 1000.0f]() mutable { return --i; });
  stream.upload_batch(std::vector<pinlane::upload_item>{{last, gpu[999]}});
  stream.download_batch(std::vector<pinlane::download_item>{{gpu[999], last}});
  const auto out = last.read();
  std::printf("the last one again, reversed: %s\n",
              out[0] == 999.0f && out[1] == 998.0f ? "true" : "false");
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
