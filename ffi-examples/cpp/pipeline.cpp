// A pipeline over four streams and two devices. The buffers order the streams. Several batches are
// in flight at once.
//
//   upload -> copy to the second device -> fill half of it -> download
//
// The devices are emulated if there is no GPU. With one GPU, both devices are that GPU.

#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t batches = 24;
constexpr std::size_t batch_size = 50'000;
constexpr std::size_t depth = 4; // this many batches are in flight at once

/// Element `index` of a batch, before its trip.
std::uint64_t element(std::size_t batch, std::size_t index) { return batch << 32 | index; }

/// All GPUs, or two emulated devices.
std::vector<pinlane::device> open_devices() {
  std::vector<pinlane::device> devices;
  for (int ordinal = 0; ordinal < pinlane::device::count(); ++ordinal) {
    devices.push_back(pinlane::device::open(ordinal));
  }
  return devices.empty() ? pinlane::device::emulated(2) : std::move(devices);
}

/// A batch in flight. When it is back, the second half of `host` is zero.
struct in_flight {
  std::size_t batch;
  pinlane::pinned_buffer<std::uint64_t> host;
};

in_flight send(std::size_t batch, const pinlane::pinned_pool& pool, const pinlane::device& first,
               const pinlane::device& second, pinlane::stream_ref out, pinlane::stream_ref back) {
  auto host = pool.alloc<std::uint64_t>(batch_size);
  std::size_t index = 0;
  for (std::uint64_t& value : host.write()) {
    value = element(batch, index++);
  }
  auto here = first.alloc<std::uint64_t>(batch_size);
  auto there = second.alloc<std::uint64_t>(batch_size);
  constexpr std::size_t half = batch_size / 2;
  out.upload(host, here);
  out.copy(here, there);
  back.fill(there.slice(half, half), 0u); // another stream: it waits, on the device, for the copy
  back.download(there, host);
  return {batch, std::move(host)}; // `here` and `there` are freed after their last use
}

bool arrived(const in_flight& sent) {
  const auto elements = sent.host.read();
  for (std::size_t index = 0; index < elements.size(); ++index) {
    const bool zeroed = index >= elements.size() / 2;
    if (elements[index] != (zeroed ? 0 : element(sent.batch, index))) {
      std::fprintf(stderr, "batch %zu is wrong at %zu\n", sent.batch, index);
      return false;
    }
  }
  return true;
}

} // namespace

int main() try {
  const std::vector<pinlane::device> devices = open_devices();
  const pinlane::device &first = devices.front(), &second = devices.back();
  const pinlane::stream outward[] = {pinlane::stream(first), pinlane::stream(first)};
  const pinlane::stream backward[] = {pinlane::stream(second), pinlane::stream(second)};

  const pinlane::pinned_pool pool(first);

  bool right = true;
  std::deque<in_flight> window;
  for (std::size_t batch = 0; batch < batches; ++batch) {
    if (window.size() == depth) {
      right = arrived(window.front()) && right;
      window.pop_front(); // the next batch gets its block
    }
    window.push_back(send(batch, pool, first, second, outward[batch % 2], backward[batch / 2 % 2]));
  }
  right = std::all_of(window.begin(), window.end(), arrived) && right;

  const pinlane::pool_stats stats = pool.stats();
  std::printf(
      "%zu batches from %s to %s and back: %llu blocks page-locked, %llu times used again\n",
      batches, first.name().c_str(), second.name().c_str(),
      static_cast<unsigned long long>(stats.growths), static_cast<unsigned long long>(stats.hits));
  return right ? 0 : 1;
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s: %s\n", pinlane_status_name(error.status()), error.what());
  return 1;
}
