// Work of the program's own in C++: streams, `foreign`, and threads that end in the middle of it.

#include "check.hpp"

#if defined(__linux__)
#include <pthread.h>
#endif

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <thread>
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
  rig.stream.foreign([&](void* native) { lent = native; }, gpu, host).wait();
  EXPECT(lent == rig.stream.native_handle() && host.address() != nullptr);
  bool caught = false;
  try {
    rig.stream.foreign([&](void*) { throw std::logic_error("on purpose"); }, gpu, host);
  } catch (const std::logic_error&) {
    caught = true;
  }
  EXPECT(caught && !host.try_write());
  rig.stream.synchronize();
  EXPECT(host.try_write().has_value());
}

/// The emulated machine lends nobody its events: here they are only refused.
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
  rig.stream.foreign([&](void*) { elsewhere = std::move(host); }, gpu, host);
  EXPECT(!host && elsewhere && !elsewhere.try_write());
  rig.stream.synchronize();
  EXPECT(elsewhere.try_write().has_value());

  // Until the use is recorded, calls that conflict are refused.
  const auto& shared = elsewhere;
  std::uint32_t* const address = elsewhere.address();
  rig.stream.foreign(
      [&](void*) {
        std::thread([&] {
          pinlane::span<std::uint32_t> written;
          pinlane::span<const std::uint32_t> read;
          EXPECT(elsewhere.write(std::nothrow, written) == PINLANE_STATUS_BUSY);
          EXPECT(shared.try_read(std::nothrow, read) == PINLANE_STATUS_BUSY);
          EXPECT(thrown_by([&] { rig.stream.foreign([](void*) {}, elsewhere); }) ==
                 PINLANE_STATUS_BUSY);
        }).join();
        EXPECT(elsewhere.address() == address); // what kernels need
      },
      gpu, elsewhere);
  EXPECT(!elsewhere.try_write());
  rig.stream.synchronize();

  // Readers share, a buffer may be named twice, and one that is destroyed meanwhile goes at the
  // end.
  rig.stream.foreign(
      [&](void*) {
        rig.stream.foreign([&](void*) { EXPECT(shared.try_read().has_value()); }, shared);
      },
      shared, shared);
  EXPECT(elsewhere.try_read().has_value() && !elsewhere.try_write());
  rig.stream.foreign([&](void*) { gpu = {}; }, gpu, gpu);
  rig.stream.synchronize();
  EXPECT(elsewhere.try_write().has_value());
}

#if defined(__GLIBC__) && defined(__GLIBCXX__)
struct ending {
  rig& all;
  pinlane::pinned_buffer<std::uint32_t>& host;
};

/// What a thread enqueued counts as a use if the thread ends inside `foreign`.
void a_thread_ends_in_foreign_work(rig& rig) {
  auto host = rig.pool.alloc<std::uint32_t>(64);
  ending given{rig, host};
  pthread_t thread;
  const auto work = [](void* data) -> void* {
    auto& mine = *static_cast<ending*>(data);
    mine.all.stream.foreign([](void*) { pthread_exit(nullptr); }, mine.host);
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
  a_thread_ends_in_foreign_work(rig);
  a_thread_is_cancelled_in_a_callback(rig);
  return verdict("foreign work in C++");
}
