#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <cstdio>
#include <numeric>

int main() try {
  pinlane::device device = pinlane::device::open_or_emulated();
  pinlane::pinned_pool pool(device);
  pinlane::stream stream(device);

  auto host = pool.alloc<float>(1 << 20); // page-locked: nanoseconds from the pool
  auto in = host.write();                 // waits first, if the device still uses the block
  std::fill(in.begin(), in.end(), 0.5f);
  auto gpu = device.alloc<float>(1 << 20);
  stream.upload(host, gpu);   // returns at once
  stream.download(gpu, host); // returns at once
  auto out = host.read();     // waits for that copy, not for the stream
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  std::printf("%s: the sum is %g\n", device.name().c_str(), sum);
} catch (const pinlane::error &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
