// Pairs of host and device memory in C++, copied repeatedly in both directions.

#include "check.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace {

void as_in_the_guide(const pinlane::device& device, const pinlane::pinned_pool& pool,
                     const pinlane::stream& stream) {
  // ANCHOR: pairs
  std::vector<pinlane::pinned_buffer<float>> host;
  std::vector<pinlane::device_buffer<float>> gpu;
  std::vector<pinlane::pair_item> items;
  for (const std::size_t elements : {1000, 500}) {
    host.push_back(pool.alloc_zeroed<float>(elements));
    gpu.push_back(device.alloc<float>(elements));
    items.emplace_back(host.back().slice(), gpu.back().slice());
  }
  const pinlane::pairs state(items);
  stream.upload_pairs(state);
  for (int step = 0; step < 3; ++step) {
    stream.fill(gpu[0], static_cast<float>(step)); // or a kernel
    stream.download_pairs(state);
    for (auto& part : host) {
      for (float& value : part.write()) {
        value += 1;
      }
    }
    stream.upload_pairs(state);
  }
  // ANCHOR_END: pairs
  EXPECT(host[0].read()[999] == 3 && host[1].read()[499] == 3);
}

void parts_of_buffers(rig& rig) {
  auto host = rig.pool.alloc_zeroed<int>(100);
  auto gpu = rig.device.alloc<int>(100);
  rig.stream.fill(gpu, 0);
  host.write()[7] = 7;
  host.write()[91] = 91;
  const pinlane::pair_item items[] = {{host.slice(0, 10), gpu.slice(90, 10)},
                                      {host.slice(90, 10), gpu.slice(0, 10)}};
  for (const auto by : {pinlane::route::copies, pinlane::route::kernel}) {
    const pinlane::pairs list(items, by);
    rig.stream.upload_pairs(list).wait();
    EXPECT(rig.stream.upload_pairs(std::nothrow, list) == PINLANE_STATUS_OK);
    std::vector<int> back(100);
    rig.stream.download(gpu, back);
    EXPECT(back[97] == 7 && back[1] == 91);
    rig.stream.fill(gpu, 5);
    const pinlane::stream_ref reference = rig.stream;
    EXPECT(reference.download_pairs(std::nothrow, list) == PINLANE_STATUS_OK);
    EXPECT(host.read()[7] == 5 && host.read()[91] == 5 && host.read()[50] == 0);
    host.write()[7] = 7;
    host.write()[91] = 91;
  }
}

void refusals(rig& rig) {
  auto host = rig.pool.alloc_zeroed<int>(100);
  auto gpu = rig.device.alloc<int>(100);
  EXPECT(thrown_by([&] { (void)pinlane::pair_item(host.slice(0, 9), gpu); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  const std::vector<pinlane::pair_item> outside = {{host.slice(95, 6), gpu.slice(0, 6)}};
  EXPECT(thrown_by([&] { const pinlane::pairs list(outside); }) == PINLANE_STATUS_OUT_OF_RANGE);
  const std::vector<pinlane::pair_item> all = {{host, gpu}};
  EXPECT(thrown_by([&] { const pinlane::pairs list(all, static_cast<pinlane::route>(99)); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { rig.stream.upload_pairs(pinlane::pairs()); }) ==
         PINLANE_STATUS_INVALID_HANDLE);

  pinlane::pairs list(all);
  const pinlane::pairs moved = std::move(list);
  EXPECT(!list && moved);
  rig.stream.upload_pairs(moved);
  const pinlane::stream other(rig.other);
  EXPECT(thrown_by([&] { other.upload_pairs(moved); }) == PINLANE_STATUS_WRONG_DEVICE);
  gpu = rig.device.alloc<int>(100); // the buffer in the pairs is freed
  EXPECT(thrown_by([&] { rig.stream.download_pairs(moved); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(rig.stream.upload_pairs(std::nothrow, moved) == PINLANE_STATUS_INVALID_HANDLE);
}

} // namespace

int main() try {
  rig rig;
  as_in_the_guide(rig.device, rig.pool, rig.stream);
  parts_of_buffers(rig);
  refusals(rig);
  return verdict("pairs in C++");
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
