// The program's own work in C++: streams, `foreign`, and threads that end during it.

#include "check.hpp"

#if defined(__linux__)
#include <pthread.h>
#endif

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

/// A function that takes any stream.
std::uint32_t last_after_download(pinlane::stream_ref stream, const pinlane::pinned_pool& pool,
                                  const pinlane::device_buffer<std::uint32_t>& gpu) {
  auto host = pool.alloc<std::uint32_t>(gpu.size());
  stream.download(gpu, host);
  return host.read()[gpu.size() - 1];
}

void streams_and_foreign_work(rig& rig) {
  auto gpu = rig.device.alloc<std::uint32_t>(64);
  const auto borrowed = pinlane::stream::from_native_handle(rig.device, rig.stream.native_handle());
  EXPECT(borrowed.native_handle() == rig.stream.native_handle());
  borrowed.fill(gpu, 3u);
  EXPECT(last_after_download(rig.stream, rig.pool, gpu) == 3);
  const auto legacy = pinlane::stream::legacy_default(rig.device);
  EXPECT(last_after_download(legacy, rig.pool, gpu) == 3);
  const auto own = pinlane::stream::per_thread_default(rig.device);
  EXPECT(last_after_download(own, rig.pool, gpu) == 3);

  // Work that is enqueued in `foreign` counts as a use, even if an exception ends it.
  auto host = rig.pool.alloc<std::uint32_t>(64);
  void* lent = nullptr;
  rig.stream.foreign(pinlane::writing(gpu, host), [&](void* native) { lent = native; }).wait();
  EXPECT(lent == rig.stream.native_handle() && host.address() != nullptr);
  bool caught = false;
  try {
    rig.stream.foreign(pinlane::reading(gpu), pinlane::writing(host),
                       [&](void*) { throw std::logic_error("on purpose"); });
  } catch (const std::logic_error&) {
    caught = true;
  }
  EXPECT(caught && !host.try_write());
  rig.stream.synchronize();
  EXPECT(host.try_write().has_value());
}

/// The emulated machine has no events for callers, so these calls are refused.
void events_that_are_none(rig& rig) {
  int no_event = 0;
  EXPECT(thrown_by([&] { rig.stream.wait_event(nullptr); }) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { rig.stream.record_event(nullptr); }) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { rig.stream.wait_event(&no_event); }) == PINLANE_STATUS_CUDA);
  EXPECT(thrown_by([&] { rig.stream.record_event(&no_event); }) == PINLANE_STATUS_CUDA);
  const pinlane::device same = rig.device.clone();
  EXPECT(same.name() == rig.device.name() && same.get() != rig.device.get());
}

/// The use is recorded, whatever `launch` and other threads do with the buffer.
void foreign_work_is_never_lost(rig& rig) {
  auto gpu = rig.device.alloc<std::uint32_t>(64);
  auto host = rig.pool.alloc<std::uint32_t>(64);
  pinlane::pinned_buffer<std::uint32_t> elsewhere;
  rig.stream.foreign(pinlane::writing(gpu, host), [&](void*) { elsewhere = std::move(host); });
  EXPECT(!host && elsewhere && !elsewhere.try_write());
  rig.stream.synchronize();
  EXPECT(elsewhere.try_write().has_value());

  // Until the use is recorded, calls that conflict are refused.
  const auto& shared = elsewhere;
  std::uint32_t* const address = elsewhere.address();
  rig.stream.foreign(pinlane::writing(gpu, elsewhere), [&](void*) {
    std::thread([&] {
      pinlane::span<std::uint32_t> written;
      pinlane::span<const std::uint32_t> read;
      EXPECT(elsewhere.write(std::nothrow, written) == PINLANE_STATUS_BUSY);
      EXPECT(shared.try_read(std::nothrow, read) == PINLANE_STATUS_BUSY);
      EXPECT(thrown_by([&] {
               rig.stream.foreign(pinlane::reading(elsewhere), [](void*) {});
             }) == PINLANE_STATUS_BUSY);
    }).join();
    EXPECT(elsewhere.address() == address); // what kernels need
  });
  EXPECT(!elsewhere.try_write());
  rig.stream.synchronize();

  // Readers share, a buffer may be named twice, and a buffer that is destroyed during the work is
  // released at its end.
  rig.stream.foreign(pinlane::reading(shared, elsewhere), [&](void*) {
    rig.stream.foreign(pinlane::reading(shared),
                       [&](void*) { EXPECT(shared.try_read().has_value()); });
  });
  EXPECT(elsewhere.try_read().has_value() && !elsewhere.try_write());
  rig.stream.foreign(pinlane::reading(gpu), pinlane::writing(gpu), [&](void*) { gpu = {}; });
  rig.stream.synchronize();
  EXPECT(elsewhere.try_write().has_value());
}

/// A reader does not exclude other readers.
void readers_share_weights(rig& rig) {
  constexpr int threads = 4, launches = 2000;
  const auto weights = rig.device.alloc<std::uint32_t>(64);
  const auto table = rig.pool.alloc<std::uint32_t>(64);
  rig.stream.synchronize();
  std::atomic<int> busy{0}, launched{0};
  const auto work = [&] {
    const pinlane::stream own(rig.device);
    auto out = rig.device.alloc<std::uint32_t>(64);
    for (int i = 0; i < launches; ++i) {
      const pinlane_status status = thrown_by([&] {
        own.foreign(pinlane::reading(weights, table), pinlane::writing(out),
                    [&](void*) { ++launched; });
      });
      busy += status == PINLANE_STATUS_BUSY;
    }
    own.synchronize();
  };
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back(work);
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  EXPECT(busy == 0 && launched == threads * launches);
}

/// On a lazy machine a wait runs the work that it needs, and other streams advance only by chance.
/// So in some rounds the first reader is still pending after a wait for the second one, unless the
/// second waits for the first.
void readers_overlap_and_a_writer_waits_for_both(rig& rig) {
  using namespace std::chrono_literals;
  auto weights = rig.device.alloc<std::uint32_t>(64);
  auto table = rig.pool.alloc<std::uint32_t>(64);
  rig.stream.fill(weights, 1u).wait();
  const pinlane::stream first(rig.device), second(rig.device), third(rig.device);
  int overlapped = 0;
  for (int round = 0; round < 64; ++round) {
    const auto both = pinlane::reading(weights, table);
    const auto one = first.foreign(both, [&](void*) { first.busy(1ms); });
    const auto other = second.foreign(both, [&](void*) { second.busy(1ms); });
    other.wait();
    overlapped += !one.is_done();
    const auto again = second.foreign(both, [&](void*) { second.busy(1ms); });
    third.foreign(pinlane::writing(table, weights), [](void*) {}).wait();
    EXPECT(one.is_done() && again.is_done());
    const auto last = third.foreign(pinlane::writing(weights), [&](void*) { third.busy(1ms); });
    first.foreign(pinlane::reading(weights), [](void*) {}).wait();
    EXPECT(last.is_done());
  }
  EXPECT(overlapped > 0);
}

/// CUDA's `cudaStream_t`.
using native_stream = CUstream_st*;

native_stream last_given = nullptr;
void take(native_stream given) { last_given = given; }
void take_any(void* given) { last_given = static_cast<native_stream>(given); }

/// The uses may be known at run time only, and anything that takes a stream may launch.
void lists_of_uses_and_launchers(rig& rig) {
  std::vector<pinlane::device_buffer<float>> layers;
  for (int i = 0; i < 5; ++i) {
    layers.push_back(rig.device.alloc<float>(8));
  }
  auto out = rig.device.alloc<float>(8);
  std::vector<pinlane::use> uses{pinlane::writing(out)};
  for (const auto& layer : layers) {
    uses.push_back(pinlane::reading(layer));
  }
  rig.stream.synchronize();
  bool is_run = false;
  const auto refused = [&](auto& buffer) {
    return thrown_by([&] { rig.stream.fill(buffer, 1.0f); }) == PINLANE_STATUS_BUSY;
  };
  const auto check = [&](auto native) {
    static_assert(std::is_same_v<decltype(native), native_stream>);
    EXPECT(native == rig.stream.native_handle());
    EXPECT(refused(layers[4]) && refused(out));
    rig.stream.foreign(pinlane::reading(layers[4]), [](void*) {}); // a reader too
    is_run = true;
  };
  rig.stream.foreign(uses, check);
  EXPECT(is_run && !refused(layers[4]) && !refused(out));

  // Two lists, of which one or both are known at run time only.
  const std::vector<pinlane::use> reads(uses.begin() + 1, uses.end());
  is_run = false;
  rig.stream.foreign(reads, pinlane::writing(out), check);
  EXPECT(is_run);
  is_run = false;
  rig.stream.foreign(reads, std::vector<pinlane::use>{pinlane::writing(out.slice(0, 1))}, check);
  EXPECT(is_run);
  EXPECT(thrown_by([&] {
           rig.stream.foreign(std::vector<pinlane::use>{pinlane::use{}}, check);
         }) == PINLANE_STATUS_INVALID_VALUE);

  rig.stream.foreign(pinlane::reading(), take);
  EXPECT(last_given == rig.stream.native_handle());
  last_given = nullptr;
  rig.stream.foreign(pinlane::reading(layers[0]), pinlane::writing(), &take_any);
  EXPECT(last_given == rig.stream.native_handle());
  const std::function<void(native_stream)> function(take);
  rig.stream.foreign(std::array<pinlane::use, 0>{}, function);
  const pinlane::stream_ref reference(rig.stream);
  last_given = nullptr;
  reference.foreign(pinlane::writing(out), function);
  EXPECT(last_given == rig.stream.native_handle());
}

#if defined(__GLIBC__) && defined(__GLIBCXX__)
struct ending {
  rig& all;
  pinlane::pinned_buffer<std::uint32_t>& host;
};

/// If a thread ends inside `foreign`, its enqueued work counts as a use.
void a_thread_ends_in_foreign_work(rig& rig) {
  auto host = rig.pool.alloc<std::uint32_t>(64);
  ending given{rig, host};
  pthread_t thread;
  const auto work = [](void* data) -> void* {
    auto& mine = *static_cast<ending*>(data);
    mine.all.stream.foreign(pinlane::reading(mine.host), [](void*) { pthread_exit(nullptr); });
    return data; // never
  };
  void* result = &given;
  EXPECT(pthread_create(&thread, nullptr, work, &given) == 0);
  EXPECT(pthread_join(thread, &result) == 0 && result == nullptr);
  EXPECT(!host.try_write());
  rig.stream.synchronize();
  EXPECT(host.try_write().has_value());
}

/// Cancellation is deferred until a callback has returned.
void a_thread_is_cancelled_in_a_callback(rig& rig) {
  auto gpu = rig.device.alloc<std::uint32_t>(4);
  std::vector<std::uint32_t> to(4);
  bool landed = false;
  std::thread([&] {
    int state = -1;
    const std::vector<pinlane::download_item> items{{gpu, to}};
    rig.stream.download_batch_each(items, [&](std::size_t, auto) {
      EXPECT(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) == 0);
      landed = state == PTHREAD_CANCEL_DISABLE;
    });
    EXPECT(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
    EXPECT(state == PTHREAD_CANCEL_ENABLE);
  }).join();
  EXPECT(landed);
}
#else
void a_thread_ends_in_foreign_work(rig&) {}
void a_thread_is_cancelled_in_a_callback(rig&) {}
#endif

} // namespace

int main() {
  rig rig;
  streams_and_foreign_work(rig);
  events_that_are_none(rig);
  foreign_work_is_never_lost(rig);
  readers_share_weights(rig);
  readers_overlap_and_a_writer_waits_for_both(rig);
  lists_of_uses_and_launchers(rig);
  a_thread_ends_in_foreign_work(rig);
  a_thread_is_cancelled_in_a_callback(rig);
  return verdict("foreign work in C++");
}
