// Parts by arrays of offsets, in C++.

#include "check.hpp"

#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

namespace {

using numbers = std::vector<std::size_t>;

void as_in_the_guide(const pinlane::device& device, const pinlane::pinned_pool& pool,
                     const pinlane::stream& stream) {
  auto host = pool.alloc_zeroed<float>(1000);
  auto gpu = device.alloc<float>(1000);
  stream.fill(gpu, 1.0F);
  // ANCHOR: parts
  // 30 numbers from 0 to 700, 20 from 500 to 100, and 50 from 900 to 300.
  const std::vector<std::size_t> from{0, 500, 900}, to{700, 100, 300}, lengths{30, 20, 50};
  stream.download_parts(gpu, host, pinlane::parts(from, to, lengths));
  stream.upload_parts(host, gpu, pinlane::parts(from, to, 10));
  // ANCHOR_END: parts
  const auto found = host.read();
  EXPECT(std::accumulate(found.begin(), found.end(), 0.0F) == 100.0F);
  EXPECT(found[699] == 0 && found[700] == 1 && found[729] == 1 && found[730] == 0);
}

void every_memory(rig& rig) {
  const numbers from{5, 100, 40}, to{0, 30, 90}, lengths{20, 9, 10};
  std::vector<int> source(200), expected(110, -1);
  std::iota(source.begin(), source.end(), 1);
  for (std::size_t part = 0; part < 3; ++part) {
    for (std::size_t at = 0; at < lengths[part]; ++at) {
      expected[to[part] + at] = source[from[part] + at];
    }
  }
  auto gpu = rig.device.alloc<int>(110), whole = rig.device.alloc<int>(200);
  const pinlane::stream_ref stream = rig.stream;
  const pinlane::parts parts(from, to, lengths);
  for (const auto by : {pinlane::route::automatic, pinlane::route::copies,
                        pinlane::route::batch_call, pinlane::route::kernel}) {
    std::vector<int> back(110, -1);
    stream.upload(back, gpu);
    stream.upload_parts(source, gpu, parts, by);
    stream.download(gpu, back);
    EXPECT(back == expected);
    back.assign(110, -1);
    stream.upload(source, whole);
    stream.download_parts(whole, back, parts, by);
    EXPECT(back == expected);
  }
  const std::array<std::size_t, 3> fixed{5, 100, 40};
  const pinlane::span<const std::size_t> view(to.data(), to.size());
  std::vector<int> back(110, -1);
  stream.download_parts(whole.slice(0, 110), back, pinlane::parts(fixed, view, 10));
  EXPECT(back[0] == 6 && back[10] == -1 && back[30] == 101 && back[90] == 41 && back[100] == -1);
}

void refusals(rig& rig) {
  std::vector<double> host(100);
  auto gpu = rig.device.alloc<double>(100);
  const numbers from{0, 50}, to{90, 0}, lengths{10, 20}, long_ones{11, 20}, one{1};
  const auto up = [&](const pinlane::parts& parts) {
    return thrown_by([&] { rig.stream.upload_parts(host, gpu, parts); });
  };
  EXPECT(up(pinlane::parts(from, to, lengths)) == PINLANE_STATUS_OK);
  EXPECT(up(pinlane::parts(from, to, long_ones)) == PINLANE_STATUS_OUT_OF_RANGE);
  EXPECT(up(pinlane::parts(from, from, 51)) == PINLANE_STATUS_OUT_OF_RANGE);
  const numbers close{0, 9};
  EXPECT(up(pinlane::parts(from, close, 10)) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(up(pinlane::parts(from, close, 9)) == PINLANE_STATUS_OK);
  const auto mismatched = PINLANE_STATUS_LENGTH_MISMATCH;
  EXPECT(thrown_by([&] { static_cast<void>(pinlane::parts(from, one, 1)); }) == mismatched);
  EXPECT(thrown_by([&] { static_cast<void>(pinlane::parts(from, to, one)); }) == mismatched);
}

} // namespace

int main() {
  rig rig;
  pinlane::pinned_pool large(rig.device);
  as_in_the_guide(rig.device, large, rig.stream);
  every_memory(rig);
  refusals(rig);
  return verdict("copies of parts in C++");
}
