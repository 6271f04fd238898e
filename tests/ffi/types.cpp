// What the C++ types promise beyond the examples: ownership, emptiness, errors, spans, foreign
// work, transfers.

#include <pinlane/pinlane.hpp>

#if defined(__linux__)
#include <pthread.h>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

int checks = 0, failures = 0;

void expect(bool condition, const char* text, int line) {
  ++checks;
  if (!condition) {
    ++failures;
    std::fprintf(stderr, "types.cpp:%d: %s\n", line, text);
  }
}
#define EXPECT(...) expect((__VA_ARGS__), #__VA_ARGS__, __LINE__)

/// The status that `call` throws; OK if it does not.
template <class Call>
pinlane_status thrown_by(Call call) {
  try {
    call();
    return PINLANE_STATUS_OK;
  } catch (const pinlane::error& error) {
    EXPECT(std::strlen(error.what()) > 0);
    return error.status();
  }
}

template <class T>
constexpr bool moves_only =
    std::is_nothrow_default_constructible_v<T>&& std::is_nothrow_move_constructible_v<T>&&
        std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
    std::is_nothrow_destructible_v<T>;
static_assert(moves_only<pinlane::device>);
static_assert(moves_only<pinlane::pinned_pool>);
static_assert(moves_only<pinlane::stream>);
static_assert(moves_only<pinlane::ticket>);
static_assert(moves_only<pinlane::pinned_buffer<float>>);
static_assert(moves_only<pinlane::device_buffer<float>>);
static_assert(moves_only<pinlane::file_reader>);
static_assert(std::is_trivially_copyable_v<pinlane::upload_item>);
static_assert(std::is_trivially_copyable_v<pinlane::stream_ref>);
static_assert(!std::is_convertible_v<pinlane_stream*, pinlane::stream>);
static_assert(!std::is_copy_constructible_v<pinlane::pinned_resource>);
static_assert(!std::is_convertible_v<pinlane::pinned_pool, pinlane::pinned_resource>);

struct pixel {
  std::uint8_t red, green, blue;
};

struct rig {
  pinlane::device device, other;
  pinlane::pinned_pool pool;
  pinlane::stream stream;

  rig() {
    pinlane::emulator_options options;
    options.mode = pinlane::execution::lazy;
    options.memory_bytes = 1 << 20;
    auto devices = pinlane::device::emulated(2, options);
    device = std::move(devices[0]);
    other = std::move(devices[1]);
    pool = pinlane::pinned_pool(device);
    stream = pinlane::stream(device);
  }
};

void ownership(rig& rig) {
  auto host = rig.pool.alloc<pixel>(10);
  EXPECT(host && host.size() == 10 && host.size_bytes() == 30 && !host.empty());
  auto moved = std::move(host);
  EXPECT(!host && host.get() == nullptr && host.size() == 0 && host.empty());
  EXPECT(moved && moved.size() == 10);

  pinlane_buffer* const handle = moved.release();
  EXPECT(!moved && moved.size() == 0);
  auto adopted = pinlane::pinned_buffer<pixel>::adopt(handle);
  EXPECT(adopted.get() == handle && adopted.size() == 10);
  pinlane_buffer* const again = adopted.release();
  EXPECT(thrown_by([&] { (void)pinlane::pinned_buffer<std::uint64_t>::adopt(again); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(pinlane_buffer_free(again) == PINLANE_STATUS_OK); // still the caller's

  // Assigning frees what was there; going out of scope frees exactly once.
  auto first = rig.device.alloc<float>(4);
  pinlane_device_buffer* const freed = first.get();
  first = rig.device.alloc<float>(8);
  std::size_t bytes = 0;
  EXPECT(pinlane_device_buffer_size(freed, &bytes) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(pinlane_device_buffer_size(first.get(), &bytes) == PINLANE_STATUS_OK && bytes == 32);
}

void empty_objects() {
  const pinlane::stream stream;
  const pinlane::ticket ticket;
  pinlane::pinned_buffer<int> host;
  pinlane::device_buffer<int> gpu;
  EXPECT(thrown_by([&] { stream.synchronize(); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(thrown_by([&] { stream.upload(host, gpu); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(thrown_by([&] { (void)host.read(); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(thrown_by([&] { (void)host.try_write(); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(thrown_by([&] { (void)gpu.address(); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(thrown_by([&] { (void)pinlane::device().name(); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(ticket.wait(std::nothrow) == PINLANE_STATUS_INVALID_HANDLE);
}

void errors(rig& rig) {
  auto host = rig.pool.alloc<std::uint32_t>(8);
  auto gpu = rig.device.alloc<std::uint32_t>(8), other = rig.other.alloc<std::uint32_t>(8);
  const pinlane::stream& stream = rig.stream;
  EXPECT(thrown_by([&] { stream.upload(host.slice(0, 4), gpu); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(stream.upload(std::nothrow, host.slice(0, 4), gpu) == PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(thrown_by([&] { stream.upload(host.slice(1, 8), gpu); }) == PINLANE_STATUS_OUT_OF_RANGE);
  EXPECT(thrown_by([&] { stream.upload(host, other); }) == PINLANE_STATUS_WRONG_DEVICE);

  // Sizes that overflow when counted in bytes: 2^62 elements of 4 bytes are 0 modulo 2^64.
  const std::size_t overflow = std::size_t{1} << 62;
  EXPECT(thrown_by([&] { stream.upload(host.slice(overflow, 1), gpu.slice(0, 1)); }) ==
         PINLANE_STATUS_OUT_OF_RANGE);
  EXPECT(thrown_by([&] { stream.fill(gpu.slice(0, overflow), 1u); }) != PINLANE_STATUS_OK);
  EXPECT(thrown_by([&] { (void)rig.pool.alloc<std::uint32_t>(overflow); }) != PINLANE_STATUS_OK);
  EXPECT(thrown_by([&] { (void)rig.device.alloc<std::uint32_t>(overflow); }) != PINLANE_STATUS_OK);

  try {
    (void)rig.device.alloc<char>(1 << 30);
    EXPECT(!"more memory than there is");
  } catch (const pinlane::error& error) {
    EXPECT(error.status() == PINLANE_STATUS_OUT_OF_DEVICE_MEMORY);
    EXPECT(error.cuda_error() == 2); // cudaErrorMemoryAllocation
  }
}

void waiting(rig& rig) {
  auto host = rig.pool.alloc<std::uint32_t>(100);
  auto gpu = rig.device.alloc<std::uint32_t>(100);
  rig.stream.fill(gpu, 7u);
  const pinlane::ticket ticket = rig.stream.download(gpu, host);
  EXPECT(!ticket.is_done() && !host.try_read() && !host.try_write());
  pinlane::span<const std::uint32_t> elements;
  EXPECT(host.try_read(std::nothrow, elements) == PINLANE_STATUS_NOT_READY && elements.empty());
  ticket.wait();
  EXPECT(ticket.is_done() && host.try_read() && host.try_write());
  EXPECT(host.read(std::nothrow, elements) == PINLANE_STATUS_OK && elements[99] == 7);
  EXPECT(!rig.pool.try_alloc<char>(1 << 20));
  host = {}; // its block goes to the pool
  EXPECT(rig.pool.try_alloc<std::uint32_t>(100).has_value());
}

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
  const pinlane::stream stream(rig.device); // nobody has asked it anything
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
    moved = std::move(samples); // between equal resources it moves no element
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

  // Freed with a use pending, the memory is used again only behind it.
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

/// Sums through a plain function that knows nothing of pinlane.
std::uint32_t sum(const std::uint32_t* data, std::size_t size) {
  std::uint32_t result = 0;
  while (size-- > 0) {
    result += data[size];
  }
  return result;
}

void spans(rig& rig) {
  auto host = rig.pool.alloc_zeroed<std::uint32_t>(4);
  const pinlane::span<std::uint32_t> writable = host.write();
  writable[3] = 5;
  const pinlane::span<const std::uint32_t> readable = writable;
  EXPECT(sum(readable.data(), readable.size()) == 5 && readable.size_bytes() == 16);
  EXPECT(pinlane::checksum(readable) == pinlane::checksum(std::vector<std::uint32_t>{0, 0, 0, 5}));
#ifdef __cpp_lib_span
  const std::span<std::uint32_t> standard = host.write();
  const std::span<const std::uint32_t> read_only = host.read();
  EXPECT(standard.data() == writable.data() && read_only.size() == 4 && read_only.back() == 5);
#endif
}

/// A stream of the caller's, here one that pinlane made, lent as a raw handle.
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

  // Work that is enqueued in `foreign` counts as a use, also if it ends by an exception.
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

/// A use is recorded whatever `launch` does with the buffer, and whatever other threads do
/// meanwhile.
void foreign_work_is_never_lost(rig& rig) {
  auto gpu = rig.device.alloc<std::uint32_t>(64);
  auto host = rig.pool.alloc<std::uint32_t>(64);
  pinlane::pinned_buffer<std::uint32_t> elsewhere;
  rig.stream.foreign([&](void*) { elsewhere = std::move(host); }, gpu, host);
  EXPECT(!host && elsewhere && !elsewhere.try_write());
  rig.stream.synchronize();
  EXPECT(elsewhere.try_write().has_value());

  // Calls that conflict are refused before anything is enqueued, and until the use is recorded.
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

/// A thread may end inside `foreign`: what it enqueued counts as a use.
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

/// Cancellation waits until a callback has returned.
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

/// What a `pinlane_status` that was just returned is thrown as.
std::string message_of(pinlane_status status) { return pinlane::error(status).what(); }

/// No form of a function leaves the message of an older failure.
void every_status_sets_the_message(rig& rig) {
  auto host = rig.pool.alloc<std::uint32_t>(4);
  auto gpu = rig.device.alloc<std::uint32_t>(8);
  std::vector<std::uint32_t> vector(4);
  const pinlane::stream& stream = rig.stream;
  const auto older = [] { return pinlane_stream_synchronize(nullptr); };
  const auto fits = [&](pinlane_status status) {
    EXPECT(status == PINLANE_STATUS_LENGTH_MISMATCH);
    EXPECT(message_of(status).find("elements do not fit") != std::string::npos);
    EXPECT(older() == PINLANE_STATUS_INVALID_HANDLE);
  };
  fits((older(), stream.upload(std::nothrow, host, gpu)));
  fits(stream.upload(std::nothrow, vector, gpu));
  fits(stream.download(std::nothrow, gpu, host));
  fits(stream.download(std::nothrow, gpu, vector));
  fits(stream.copy(std::nothrow, gpu.slice(0, 3), gpu));
  auto none = rig.pool.alloc<std::uint32_t>(4);
  stream.download(gpu.slice(0, 4), none);
  pinlane::span<std::uint32_t> elements;
  const pinlane_status status = none.try_write(std::nothrow, elements);
  EXPECT(message_of(status).find("the device still uses bytes 0 .. 16") != std::string::npos);
  EXPECT(std::strcmp(pinlane_last_error(), message_of(status).c_str()) == 0);
  EXPECT(thrown_by([&] { stream.busy(std::chrono::nanoseconds(-1)); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  EXPECT(std::strstr(pinlane_last_error(), "negative") != nullptr);
  EXPECT(message_of(pinlane_set_last_error(PINLANE_STATUS_BUSY, nullptr))
             .rfind("PINLANE_STATUS_BUSY: ", 0) == 0);
  stream.synchronize();
}

/// After `main` the thread has no place for a message; then the status says what it means.
struct after_main {
  ~after_main() {
    std::size_t bytes = 0;
    const pinlane_status status = pinlane_buffer_size(nullptr, &bytes);
    const char* const text = pinlane_last_error();
    if (status != PINLANE_STATUS_INVALID_HANDLE ||
        std::strstr(text, "PINLANE_STATUS_INVALID_HANDLE: ") != text) {
      std::fprintf(stderr, "after main: status %d, \"%s\"\n", static_cast<int>(status), text);
      std::_Exit(1);
    }
  }
} says_what_it_means;

void ordinary_memory(rig& rig) {
  const pinlane::stream& stream = rig.stream;
  auto gpu = rig.device.alloc<std::uint32_t>(4);
  const std::uint32_t array[] = {1, 2, 3, 4};
  std::array<std::uint32_t, 4> standard{};
  std::vector<std::uint32_t> vector(4);
  stream.upload(array, gpu).wait();
  stream.download(gpu, standard);
  EXPECT(standard[0] == 1 && standard[3] == 4);
  standard[3] = 5;
  stream.upload(standard, gpu);
  stream.download(gpu, vector);
  EXPECT(vector[3] == 5);
  stream.upload(pinlane::span(array, 2), gpu.slice(2, 2)); // a pointer and a size
  EXPECT(stream.download(std::nothrow, gpu.slice(1, 3), pinlane::span(vector.data(), 3)) ==
         PINLANE_STATUS_OK);
  EXPECT(vector == (std::vector<std::uint32_t>{2, 1, 2, 5}));
#ifdef __cpp_lib_span
  stream.download(gpu, std::span(vector));
  EXPECT(vector[3] == 2);
#endif
  void* const address = gpu.address();
  stream.upload_to(array, address);
  stream.download_from(address, vector);
  EXPECT(vector == (std::vector<std::uint32_t>{1, 2, 3, 4}));

  EXPECT(thrown_by([&] { stream.upload(vector, gpu.slice(0, 3)); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(thrown_by([&] { stream.download(gpu.slice(0, 3), vector); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(stream.upload(std::nothrow, vector, gpu.slice(0, 3)) == PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(stream.download(std::nothrow, gpu.slice(0, 3), vector) == PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(stream.upload(std::nothrow, vector, gpu.slice(1, 4)) == PINLANE_STATUS_OUT_OF_RANGE);
  vector.clear();
  stream.upload(vector, gpu.slice(4, 0));
  stream.download(gpu.slice(0, 0), vector);
}

void batches(rig& rig) {
  const pinlane::stream& stream = rig.stream;
  constexpr std::size_t count = 40;
  auto gpu = rig.device.alloc<float>(count), twin = rig.device.alloc<float>(count);
  auto pinned = rig.pool.alloc<float>(count);
  for (std::size_t i = 0; i < count; ++i) {
    pinned.write()[i] = static_cast<float>(i);
  }
  // Two elements each: of page-locked memory, of ordinary memory, to the program's own address.
  const std::vector<float> odd = {100, 101}, own = {102, 103};
  std::vector<pinlane::upload_item> up;
  for (std::size_t i = 4; i < count; i += 2) {
    up.emplace_back(pinned.slice(i, 2), gpu.slice(count - i - 2, 2));
  }
  up.emplace_back(odd, gpu.slice(count - 2, 2));
  up.emplace_back(own, static_cast<void*>(gpu.address() + (count - 4)));
  const pinlane::plan plan = stream.plan_upload(up);
  EXPECT(plan.ordinary.copies == 2 && plan.ordinary.bytes == 16 &&
         plan.direct.copies == count / 2 - 2);
  EXPECT(plan.ordinary.by != pinlane::path::none && plan.direct.predicted.count() > 0);
  EXPECT(plan.text.find("ordinary memory") == 0 && plan.text.find("direct") != std::string::npos);
  EXPECT(stream.plan_download(std::vector<pinlane::download_item>()).direct.by ==
         pinlane::path::none);
  stream.upload_batch(up, pinlane::path::copies).wait();

  std::vector<float> back(count);
  std::array<pinlane::download_item, 2> down = {
      pinlane::download_item(gpu.slice(0, count / 2), pinlane::span(back.data(), count / 2)),
      pinlane::download_item(gpu.slice(count / 2, count / 2), pinned.slice(0, count / 2))};
  stream.download_batch(down);
  EXPECT(back[0] == count - 2 && back[1] == count - 1);
  EXPECT(pinned.read()[count / 2 - 1] == 101 && pinned.read()[count / 2 - 4] == 102);
  EXPECT(pinned.read()[count / 2 - 5] == 5);

  std::size_t calls = 0;
  stream.download_batch_each(down, [&](std::size_t number, pinlane::span<const std::byte> bytes) {
    float first = 0;
    std::memcpy(&first, bytes.data(), sizeof first);
    calls += bytes.size() == count / 2 * sizeof(float) && first == (number == 0 ? count - 2 : 18);
  });
  EXPECT(calls == 2);
  bool caught = false;
  try {
    stream.download_batch_each(down, [&](std::size_t, pinlane::span<const std::byte>) {
      ++calls;
      throw std::logic_error("on purpose");
    });
  } catch (const std::logic_error&) {
    caught = true;
  }
  EXPECT(caught && calls == 3);

  const pinlane::copy_item copies[] = {{gpu.slice(0, 2), twin.slice(4, 2)},
                                       {gpu.slice(0, 2), twin.slice(0, 2)}};
  stream.copy_batch(copies);
  stream.download(twin.slice(0, 2), pinlane::span(back.data() + 8, 2));
  EXPECT(back[8] == count - 2 && back[9] == count - 1);

  const pinlane::copy_item twice[] = {copies[0], copies[0]};
  EXPECT(thrown_by([&] { stream.copy_batch(twice); }) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { (void)pinlane::upload_item(odd, gpu); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(thrown_by([&] { (void)pinlane::download_item(gpu.slice(1, 3), back); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(thrown_by([&] { stream.download_batch(down, pinlane::path::pull); }) ==
         PINLANE_STATUS_UNSUPPORTED);
  EXPECT(thrown_by([&] { stream.upload_batch(up, static_cast<pinlane::path>(99)); }) ==
         PINLANE_STATUS_INVALID_VALUE);
}

void files(rig& rig) {
  EXPECT(thrown_by([] { (void)pinlane::file_reader::open("/pinlane/no/such/file"); }) ==
         PINLANE_STATUS_IO);
  EXPECT(thrown_by([] { (void)pinlane::file_reader::open_direct("/"); }) == PINLANE_STATUS_IO);
  EXPECT(thrown_by([] { (void)pinlane::file_reader().size_bytes(); }) ==
         PINLANE_STATUS_INVALID_HANDLE);
  // This program itself is a file of some size.
  const auto file = pinlane::file_reader::open("/proc/self/exe");
  std::ifstream same("/proc/self/exe", std::ios::binary);
  std::vector<char> start(6000);
  same.read(start.data(), 6000);
  EXPECT(file.size_bytes() > 6000);

  auto gpu = rig.device.alloc<char>(6000);
  auto pinned = rig.pool.alloc<char>(6000);
  std::vector<char> back(6000);
  rig.stream.upload_file(file, 1000, gpu.slice(0, 5000));
  file.read(0, pinned);
  rig.stream.download(gpu.slice(0, 5000), pinlane::span(back.data() + 1000, 5000));
  EXPECT(std::equal(back.begin() + 1000, back.end(), start.begin() + 1000));
  EXPECT(std::equal(start.begin(), start.end(), pinned.read().begin()));
  const std::vector<pinlane::file_range> ranges = {{0, gpu.slice(3000, 3000)},
                                                   {3000, gpu.address(), 3000}};
  rig.stream.upload_file_ranges(file, ranges).wait();
  rig.stream.download(gpu, back);
  EXPECT(std::equal(back.begin(), back.begin() + 3000, start.begin() + 3000));
  EXPECT(std::equal(back.begin() + 3000, back.end(), start.begin()));
  EXPECT(thrown_by([&] { rig.stream.upload_file(file, file.size_bytes(), gpu); }) ==
         PINLANE_STATUS_OUT_OF_RANGE);
}

void copy_options() {
  const auto device = std::move(pinlane::device::emulated(1)[0]);
  pinlane::staging_options staging;
  staging.slot_bytes = 1;
  EXPECT(thrown_by([&] { device.set_staging(staging); }) == PINLANE_STATUS_INVALID_VALUE);
  staging.slot_bytes = 8192;
  staging.first_bytes = 4096;
  staging.ring_bytes = 32768;
  staging.direct = staging.streaming = false;
  device.set_staging(staging);
  EXPECT(thrown_by([&] { device.set_staging({}); }) == PINLANE_STATUS_INVALID_VALUE);

  pinlane::copy_team_options team;
  team.threads = 1000;
  EXPECT(thrown_by([&] { pinlane::install_copy_team(team); }) == PINLANE_STATUS_INVALID_VALUE);
  for (const bool help : {false, true}) {
    team.threads = 2;
    team.help = team.spin = help;
    team.cores = {0};
    pinlane::install_copy_team(team);
    const pinlane::stream stream(device);
    auto gpu = device.alloc<std::uint32_t>(100'000);
    std::vector<std::uint32_t> values(100'000, help ? 3u : 4u), back(100'000);
    stream.upload(values, gpu);
    stream.download(gpu, back);
    EXPECT(back == values);
  }
}

} // namespace

int main() {
  rig rig;
  ownership(rig);
  empty_objects();
  errors(rig);
  waiting(rig);
  pools(rig);
  memory_of_ones_own(rig);
  containers(rig);
  spans(rig);
  streams_and_foreign_work(rig);
  foreign_work_is_never_lost(rig);
  a_thread_ends_in_foreign_work(rig);
  a_thread_is_cancelled_in_a_callback(rig);
  every_status_sets_the_message(rig);
  ordinary_memory(rig);
  batches(rig);
  files(rig);
  copy_options();
  std::printf("%d checks of the C++ types, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
