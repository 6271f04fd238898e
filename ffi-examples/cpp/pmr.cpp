// Standard containers in page-locked memory: a pool as a std::pmr::memory_resource. The device is
// GPU 0, or an emulated one if there is no GPU.

#include <pinlane/pinlane.hpp>

#include <cstdio>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

namespace {

/// A batch of a data loader: samples of any lengths, one after the other.
struct batch {
  std::pmr::vector<float> samples;
  std::pmr::map<std::pmr::string, std::size_t> offsets;

  explicit batch(std::pmr::memory_resource* memory) : samples(memory), offsets(memory) {}

  void add(const char* name, std::size_t count, float value) {
    offsets.emplace(name, samples.size());
    samples.insert(samples.end(), count, value);
  }
};

} // namespace

int main() try {
  const pinlane::device device = pinlane::device::open_or_emulated();
  pinlane::pool_options options;
  options.max_bytes = std::size_t{64} << 20;
  const pinlane::pinned_pool pool(device, options);
  pinlane::pinned_resource resource(pool);

  std::size_t count = 0;
  {
    batch batch(&resource);
    for (const char* name : {"a cat", "a dog", "a horse whose name is long"}) {
      batch.add(name, 100'000, static_cast<float>(batch.offsets.size()));
    }
    count = batch.samples.size();
    std::printf("%zu samples in %zu bytes of page-locked memory\n", count, pool.stats().live_bytes);

    // The device copies the container's memory directly. With a plain container the call returns
    // when the copy is complete; with a pinned_span it returns at once.
    auto gpu = device.alloc<float>(count);
    const pinlane::stream stream(device);
    stream.upload(batch.samples, gpu);
    std::pmr::vector<float> back(count, &resource);
    const auto copied = stream.download(gpu, pinlane::pinned_span(back)); // returns at once
    copied.wait();
    if (back != batch.samples) {
      return 1;
    }
    stream.upload(pinlane::pinned_span(back), gpu);
  } // both are destroyed, perhaps before the last copy is done: the pool knows

  // The pool keeps freed memory for the next batch, until it is trimmed.
  const auto stats = pool.stats();
  const std::size_t kept = stats.cached_bytes + stats.in_flight_bytes, released = pool.trim();
  std::printf("%zu bytes were kept, %zu went back to the system\n", kept, released);

  try {
    std::pmr::vector<float> too_many(&resource);
    too_many.resize(options.max_bytes);
    return 1;
  } catch (const std::bad_alloc& error) {
    std::printf("as it should be: %s\n", error.what());
  }
  return pool.stats().live_bytes == 0 ? 0 : 1;
} catch (const std::exception& error) { // pinlane's own, and std::bad_alloc of the resource
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
