// Rows that lie a pitch apart, in C++.

#include "check.hpp"

#include <cstddef>
#include <numeric>
#include <vector>

namespace {

void as_in_the_guide(const pinlane::device& device, const pinlane::pinned_pool& pool,
                     const pinlane::stream& stream) {
  // ANCHOR: strided
  auto image = pool.alloc_zeroed<float>(480 * 640); // 480 lines of 640 numbers
  auto tile = device.alloc<float>(64 * 64);
  // 64 lines of 64 numbers, from line 100 and column 200 on.
  const pinlane::strides lines(64, 64, 640);
  auto part = image.slice(100 * 640 + 200, 64 * 640 - 200);
  stream.upload_strided(part, lines, tile, pinlane::no_gaps);
  stream.download_strided(tile, pinlane::no_gaps, part, lines);
  // ANCHOR_END: strided

  float count = 0;
  for (float& each : image.write()) {
    each = ++count;
  }
  stream.upload_strided(part, lines, tile, pinlane::no_gaps);
  for (float& each : image.write()) {
    each = 0;
  }
  stream.download_strided(tile, pinlane::no_gaps, part, lines).wait();
  bool same = true;
  for (std::size_t at = 0; at < 480 * 640; ++at) {
    const std::size_t line = at / 640, column = at % 640;
    const bool inside = line >= 100 && line < 164 && column >= 200 && column < 264;
    same = same && image.read()[at] == (inside ? static_cast<float>(at + 1) : 0);
  }
  EXPECT(same);
}

void volumes(rig& rig) {
  std::vector<int> source(1000);
  std::iota(source.begin(), source.end(), 1);
  auto gpu = rig.device.alloc<int>(1000), twin = rig.device.alloc<int>(60);
  const pinlane::strides apart = pinlane::strides(5, 3, 20).planes(4, 200);
  rig.stream.fill(gpu, 0);
  const pinlane::stream_ref reference = rig.stream;
  reference.upload_strided(source, apart, gpu.slice(10, 700), apart);
  rig.stream.copy_strided(gpu.slice(10, 700), apart, twin, pinlane::no_gaps);
  std::vector<int> back(60);
  rig.stream.download_strided(twin, pinlane::no_gaps, back, pinlane::strides(60, 1, 0));
  bool same = true;
  for (std::size_t at = 0; at < 60; ++at) {
    const std::size_t plane = at / 15, row = at / 5 % 3, column = at % 5;
    same = same && back[at] == static_cast<int>(plane * 200 + row * 20 + column + 1);
  }
  EXPECT(same);
  std::vector<int> whole(1000);
  rig.stream.download(gpu, whole);
  EXPECT(whole[9] == 0 && whole[10] == 1 && whole[15] == 0 && whole[30] == 21);
}

void refusals(rig& rig) {
  std::vector<double> host(100);
  auto gpu = rig.device.alloc<double>(100);
  const auto up = [&](const pinlane::strides& from, const pinlane::strides& to) {
    return thrown_by([&] { rig.stream.upload_strided(host, from, gpu, to); });
  };
  const pinlane::strides good(5, 4, 20);
  EXPECT(up(good, good) == PINLANE_STATUS_OK);
  EXPECT(up(good, pinlane::strides(5, 3, 20)) == PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(up(good, pinlane::strides(5, 4, 4)) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(up(pinlane::strides(5, 4, 32), good) == PINLANE_STATUS_OUT_OF_RANGE);
  EXPECT(up(pinlane::strides(SIZE_MAX / 2, 4, 32), good) == PINLANE_STATUS_OUT_OF_RANGE);
  EXPECT(up(good.planes(0, 0), good) == PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(up(pinlane::no_gaps, pinlane::no_gaps) == PINLANE_STATUS_OK);
}

} // namespace

int main() {
  rig rig;
  pinlane::pinned_pool large(rig.device);
  as_in_the_guide(rig.device, large, rig.stream);
  volumes(rig);
  refusals(rig);
  return verdict("strided copies in C++");
}
