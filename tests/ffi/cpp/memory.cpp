// Page-locked memory in C++: pools and their options, registered memory, standard containers.

#include "check.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {

void pools(rig& rig) {
  using namespace std::chrono_literals;
  pinlane::pool_options options;
  options.max_bytes = 4096;
  options.thread_caches = false;
  options.idle_age = 1h;
  options.locking = pinlane::page_locking::allocated;
  options.growth_threads = 2;
  options.mapped = options.write_combined = true;
  const pinlane::pinned_pool pool(rig.device, options);
  EXPECT(pool.stats().max_bytes == 4096 && pool.classes().empty());
  auto host = pool.alloc_aligned<float>(1024, 4096);
  EXPECT(reinterpret_cast<std::uintptr_t>(host.address()) % 4096 == 0);
  EXPECT(thrown_by([&] { (void)pool.alloc_timeout<float>(1024, 1ms); }) ==
         PINLANE_STATUS_TIMED_OUT);
  EXPECT(thrown_by([&] { (void)pool.alloc_timeout<float>(1024, -1h); }) ==
         PINLANE_STATUS_TIMED_OUT);
  pinlane::pinned_buffer<float> other;
  EXPECT(pool.alloc_timeout(std::nothrow, 1025, std::chrono::hours::max(), other) ==
         PINLANE_STATUS_BUDGET_EXHAUSTED);
  EXPECT(thrown_by([&] { (void)pool.alloc_aligned<float>(1, 3); }) == PINLANE_STATUS_INVALID_VALUE);
  const auto classes = pool.classes();
  EXPECT(classes.size() == 1 && classes[0].block_bytes == 4096 && classes[0].live == 1);
  EXPECT(pinlane::pinned_pool::block_bytes(4000) == 4096);
  host = {};
  host = pool.alloc_timeout<float>(1024, 0.5s);
  EXPECT(host.size() == 1024 && pool.stats().hits == 1 && pool.stats().thread_hits == 0);
  host = {};
  EXPECT(pool.trim(4096) == 0 && pool.trim() == 4096 && pool.stats().committed_bytes == 0);

  options.low_watermark_bytes = 2;
  options.high_watermark_bytes = 1;
  EXPECT(thrown_by([&] { pinlane::pinned_pool(rig.device, options); }) ==
         PINLANE_STATUS_INVALID_VALUE);

  // A clone is the same pool, and keeps it.
  pinlane::pinned_pool first(rig.device);
  const pinlane::pinned_pool second = first.clone();
  host = first.alloc<float>(8);
  first = {};
  EXPECT(second.stats().live_bytes == 256);
}

void memory_of_ones_own(rig& rig) {
  const pinlane::stream stream(rig.device); // nothing has waited for it
  std::vector<std::uint32_t> values(100, 5);
  auto gpu = rig.device.alloc<std::uint32_t>(100);
  stream.fill(gpu, 7u);
  {
    auto lent = rig.device.register_memory(values.data(), values.size());
    EXPECT(lent.size() == 100 && lent.address() == values.data());
    EXPECT(thrown_by([&] { (void)rig.device.register_memory(values.data() + 1, 1); }) ==
           PINLANE_STATUS_INVALID_VALUE);
    stream.download(gpu, lent);
    EXPECT(!lent.try_read());
    auto moved = std::move(lent);
    EXPECT(!lent && moved.size() == 100);
  } // waits for the copy
  EXPECT(values == std::vector<std::uint32_t>(100, 7));

  pinlane::pinned_buffer<std::uint32_t> lent;
  EXPECT(rig.device.register_memory(std::nothrow, values.data(), SIZE_MAX, lent) ==
             PINLANE_STATUS_INVALID_VALUE &&
         !lent);
  EXPECT(rig.device.register_memory(std::nothrow, values.data(), 100, lent) == PINLANE_STATUS_OK);
  EXPECT(lent.read()[99] == 7);
}

void memory_to_read_only(rig& rig) {
  static const std::uint32_t table[100] = {1, 2, 3};
  const pinlane::stream stream(rig.device);
  auto gpu = rig.device.alloc<std::uint32_t>(100);
  std::vector<std::uint32_t> values(100);
  {
    const auto weights = rig.device.register_read_only(table, 100);
    EXPECT(weights.size() == 100 && weights.read().data() == table);
    stream.upload(weights, gpu);
    stream.upload(weights.slice(1, 2), gpu.slice(98, 2));
    stream.download(gpu, values);
    EXPECT(values[0] == 1 && values[98] == 2 && values[99] == 3);
    EXPECT(thrown_by([&] { (void)rig.device.register_read_only(table + 1, 1); }) ==
           PINLANE_STATUS_INVALID_VALUE);
    using part = decltype(std::declval<pinlane::read_only_buffer<std::uint32_t>&>().slice());
    static_assert(std::is_const_v<typename part::element_type>, "a source only");
  } // waits for the copies
  pinlane::read_only_buffer<std::uint32_t> none;
  EXPECT(rig.device.register_read_only(std::nothrow, table, SIZE_MAX, none) ==
             PINLANE_STATUS_INVALID_VALUE &&
         !none);
}

void containers(rig& rig) {
  pinlane::pool_options options;
  options.max_bytes = std::size_t{1} << 20;
  const pinlane::pinned_pool pool(rig.device, options);
  pinlane::pinned_resource resource(pool), twin(pool.clone()), stranger(rig.pool);
  EXPECT(resource == twin && resource != stranger && resource != *std::pmr::new_delete_resource());
  {
    std::pmr::vector<float> samples(&resource), moved(&twin);
    for (int i = 0; i < 1000; ++i) {
      samples.push_back(static_cast<float>(i));
    }
    EXPECT(pool.stats().live_bytes >= 4000);
    const float* const data = samples.data();
    moved = std::move(samples); // equal resources: no element moves
    EXPECT(moved.data() == data && moved[999] == 999.0f);
    std::pmr::vector<float> copied(&stranger);
    copied = std::move(moved);
    EXPECT(copied.data() != data && copied[999] == 999.0f);
  }
  EXPECT(pool.stats().live_bytes == 0);

  try {
    const std::pmr::vector<char> bytes(options.max_bytes + 1, &resource);
    EXPECT(!"more memory than there is");
  } catch (const std::bad_alloc& error) {
    const auto* const ours = dynamic_cast<const pinlane::bad_alloc*>(&error);
    EXPECT(ours != nullptr && ours->cause().status() == PINLANE_STATUS_BUDGET_EXHAUSTED);
    EXPECT(std::strcmp(error.what(), ours->cause().what()) == 0);
  }
  bool refused = false;
  try {
    (void)resource.allocate(1, std::size_t{4} << 20);
  } catch (const pinlane::bad_alloc& error) {
    refused = error.cause().status() == PINLANE_STATUS_INVALID_VALUE;
  }
  EXPECT(refused);

  // Freed with a pending use, the memory is reused only after that use.
  void* const memory = resource.allocate(std::size_t{1} << 20);
  rig.stream.busy(std::chrono::microseconds(1));
  resource.record_use(static_cast<char*>(memory) + 5, rig.stream);
  resource.deallocate(memory, std::size_t{1} << 20);
  EXPECT(pool.stats().in_flight_bytes == std::size_t{1} << 20);
  EXPECT(!pool.try_alloc<char>(std::size_t{1} << 20));
  EXPECT(resource.allocate_sync(std::size_t{1} << 20) == memory);
  resource.deallocate_sync(memory, std::size_t{1} << 20);
  EXPECT(thrown_by([&] { resource.record_use(memory, rig.stream); }) ==
         PINLANE_STATUS_INVALID_HANDLE);

  // Containers keep the pool by their resource.
  auto own = std::make_unique<pinlane::pinned_pool>(rig.device);
  pinlane::pinned_resource keeper(*own);
  own.reset();
  const std::pmr::string text("longer than what a string keeps within itself", &keeper);
  EXPECT(text.size() == 45 && keeper.pool().stats().live_bytes == 256);
}

/// A handler of each of these types catches it.
template <class Expected>
bool is_caught_as(std::pmr::memory_resource& resource, std::size_t bytes) {
  try {
    resource.deallocate(resource.allocate(bytes), bytes);
  } catch (const Expected& error) {
    return std::strlen(error.what()) > 0;
  }
  return false;
}

/// An allocation may wait for room, up to a timeout.
void deadlines(rig& rig) {
  using namespace std::chrono_literals;
  constexpr std::size_t budget = 4096;
  pinlane::pool_options options;
  options.max_bytes = budget;
  const pinlane::pinned_pool pool(rig.device, options);
  pinlane::pinned_resource patient(pool, 2ms), plain(pool), endless(pool, 1h), hasty(pool, -1s);
  EXPECT(patient == plain && patient == endless);
  void* const all = endless.allocate(budget, 4096); // not in 2 ms: it grows
  const auto status = [](pinlane::pinned_resource& resource, std::size_t bytes) {
    try {
      resource.deallocate(resource.allocate(bytes), bytes);
    } catch (const pinlane::bad_alloc& error) {
      return error.cause().status();
    }
    return PINLANE_STATUS_OK;
  };
  EXPECT(status(patient, 1) == PINLANE_STATUS_TIMED_OUT);
  EXPECT(status(hasty, 1) == PINLANE_STATUS_TIMED_OUT);
  EXPECT(status(plain, 1) == PINLANE_STATUS_BUDGET_EXHAUSTED);
  EXPECT(status(endless, budget + 1) == PINLANE_STATUS_BUDGET_EXHAUSTED);
  EXPECT(is_caught_as<std::bad_alloc>(patient, 1) && is_caught_as<std::exception>(patient, 1));
  EXPECT(is_caught_as<pinlane::bad_alloc>(plain, 1) && is_caught_as<std::exception>(plain, 1));

  // Another thread makes room in the meantime.
  std::thread giver([&] { plain.deallocate(all, budget); });
  EXPECT(status(endless, budget) == PINLANE_STATUS_OK);
  giver.join();
}

/// A copy of a container returns when the device is done with its memory, unless the program
/// chooses to wait for the ticket.
void copies_of_containers(rig& rig) {
  constexpr std::size_t count = 50'000; // more than a small copy
  const pinlane::pinned_pool pool(rig.device);
  pinlane::pinned_resource resource(pool);
  std::pmr::vector<std::uint32_t> source(count, 3, &resource), target(count, 0, &resource);
  auto gpu = rig.device.alloc<std::uint32_t>(count);
  rig.stream.upload(source, gpu);
  std::fill(source.begin(), source.end(), 4);
  rig.stream.download(gpu, target);
  EXPECT(target.front() == 3 && target.back() == 3);
  const std::vector<pinlane::upload_item> ups{{source, gpu}};
  rig.stream.upload_batch(ups);
  std::fill(source.begin(), source.end(), 5);
  const std::vector<pinlane::download_item> downs{{gpu, target}};
  rig.stream.download_batch(downs);
  EXPECT(target.front() == 4 && target.back() == 4);

  // If these calls waited, nothing would ever be pending. (A query may make progress on a lazy
  // machine.)
  const pinlane::pinned_span from(source), part(source.data() + 1, 7);
  int pending[4] = {0, 0, 0, 0};
  for (int round = 0; round < 16; ++round) {
    target.assign(count, 0);
    const auto up = rig.stream.upload(from, gpu);
    pending[0] += !up.is_done();
    const auto down = rig.stream.download(gpu, pinlane::pinned_span(target));
    pending[1] += !down.is_done();
    down.wait();
    EXPECT(up.is_done() && target == source);
    // Also copies between it and the program's own device memory.
    target.assign(count, 0);
    const auto own = rig.stream.upload_to(from, gpu.address());
    pending[2] += !own.is_done();
    const auto back = rig.stream.download_from(gpu.address(), pinlane::pinned_span(target));
    pending[3] += !back.is_done();
    back.wait();
    EXPECT(own.is_done() && target == source);
  }
  EXPECT(pending[0] > 0 && pending[1] > 0 && pending[2] > 0 && pending[3] > 0);
  EXPECT(rig.stream.upload(std::nothrow, part, gpu.slice(9, 7)) == PINLANE_STATUS_OK);
  EXPECT(rig.stream.download(std::nothrow, gpu.slice(9, 7), pinlane::pinned_span(target)) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(rig.stream.upload(std::nothrow, part, gpu) == PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(thrown_by([&] { rig.stream.upload(part, gpu); }) == PINLANE_STATUS_LENGTH_MISMATCH);
  rig.stream.synchronize();
  const std::vector<std::uint32_t> pageable(7);
  EXPECT(thrown_by([&] { rig.stream.upload(pinlane::pinned_span(pageable), gpu.slice(0, 7)); }) ==
         PINLANE_STATUS_INVALID_VALUE);

  // If a container is destroyed during its copy, the pool keeps its memory until the device is
  // done.
  const std::size_t held = pool.stats().live_bytes;
  {
    std::pmr::vector<std::uint32_t> gone(count, 9, &resource);
    rig.stream.upload(pinlane::pinned_span(gone), gpu);
  }
  EXPECT(pool.stats().live_bytes == held && pool.stats().in_flight_bytes >= count * 4);
  const std::pmr::vector<std::uint32_t> next(count, 8, &resource); // other memory
  rig.stream.download(gpu, target);
  EXPECT(target.front() == 9 && target.back() == 9);
}

/// Containers in a batch, in a list of pairs, and in rows.
void containers_in_lists(rig& rig) {
  constexpr std::size_t count = 50'000;
  using pinlane::pinned_span;
  using numbers = std::pmr::vector<std::uint32_t>;
  const pinlane::pinned_pool pool(rig.device);
  pinlane::pinned_resource resource(pool);
  const numbers source(count, 3, &resource);
  numbers target(count, 0, &resource);
  auto gpu = rig.device.alloc<std::uint32_t>(count);
  const std::array<std::uint32_t, 2> swapped = {1, 0};
  const auto gpu_half = gpu.slice(0, count / 2);
  // Both directions, repeatedly. None of the calls waits.
  const auto both = [&](auto&& up, auto&& down) {
    int pending[2] = {0, 0};
    for (int round = 0; round < 16; ++round) {
      target.assign(count, 0);
      const auto sent = up();
      pending[0] += !sent.is_done();
      const auto back = down();
      pending[1] += !back.is_done();
      back.wait();
      EXPECT(sent.is_done() && target == source);
    }
    EXPECT(pending[0] > 0 && pending[1] > 0);
  };
  both(
      [&] {
        const std::vector<pinlane::upload_item> items{{pinned_span(source), gpu}};
        return rig.stream.upload_batch(items);
      },
      [&] {
        const std::vector<pinlane::download_item> items{{gpu.address(), pinned_span(target)}};
        return rig.stream.download_batch(items);
      });
  both(
      [&] { return rig.stream.upload_rows(pinned_span(source), swapped, gpu); },
      [&] { return rig.stream.download_rows(gpu, swapped, pinned_span(target)); });
  both(
      [&] {
        std::vector<pinlane::upload_layer<std::uint32_t>> layers;
        layers.emplace_back(pinned_span(source), gpu);
        return rig.stream.upload_blocks(layers, count / 2, swapped, swapped);
      },
      [&] {
        std::vector<pinlane::download_layer<std::uint32_t>> layers;
        layers.emplace_back(gpu, pinned_span(target));
        return rig.stream.download_blocks(layers, count / 2, swapped, swapped);
      });
  numbers state(count, 3, &resource);
  const pinned_span from(state.data(), count / 2), rest(state.data() + count / 2, count / 2);
  const std::vector<pinlane::pair_item> items{{from, gpu_half},
                                              {rest, gpu.slice(count / 2, count / 2)}};
  const pinlane::pairs pairs(items);
  for (std::uint32_t step = 4; step < 8; ++step) {
    std::fill(state.begin(), state.end(), step);
    rig.stream.upload_pairs(pairs).wait();
    std::fill(state.begin(), state.end(), 0);
    rig.stream.download_pairs(pairs).wait();
    EXPECT(state.front() == step && state.back() == step);
  }

  // Destroyed in the middle of its copy.
  const std::size_t held = pool.stats().live_bytes;
  {
    numbers gone(count, 9, &resource);
    const std::vector<pinlane::upload_item> last{{pinned_span(gone), gpu}};
    rig.stream.upload_batch(last);
  }
  EXPECT(pool.stats().live_bytes == held && pool.stats().in_flight_bytes >= count * 4);
  const numbers next(count, 8, &resource); // other memory
  rig.stream.download(gpu, target);
  EXPECT(target.front() == 9 && target.back() == 9);

  std::vector<std::uint32_t> pageable(count);
  const auto refuses = [](auto&& call) {
    EXPECT(thrown_by(call) == PINLANE_STATUS_INVALID_VALUE);
  };
  refuses([&] {
    rig.stream.upload_batch(std::vector<pinlane::upload_item>{{pinned_span(pageable), gpu}});
  });
  refuses([&] { rig.stream.download_rows(gpu, swapped, pinned_span(pageable)); });
  refuses([&] {
    const pinlane::pairs none(std::vector<pinlane::pair_item>{{pinned_span(pageable), gpu}});
  });
  EXPECT(thrown_by([&] { const pinlane::upload_item item(from, gpu); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
}

} // namespace

int main() {
  rig rig;
  pools(rig);
  memory_of_ones_own(rig);
  memory_to_read_only(rig);
  containers(rig);
  deadlines(rig);
  copies_of_containers(rig);
  containers_in_lists(rig);
  return verdict("page-locked memory in C++");
}
