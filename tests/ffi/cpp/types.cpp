// The promises of the C++ types: ownership, empty objects, errors and messages, waiting, spans.

#include "check.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace {

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
  EXPECT(pinlane_buffer_free(again) == PINLANE_STATUS_OK); // adopt did not take it

  // Assigning frees the previous object; leaving the scope frees exactly once.
  auto first = rig.device.alloc<float>(4);
  pinlane_device_buffer* const freed = first.get();
  first = rig.device.alloc<float>(8);
  std::size_t bytes = 0;
  EXPECT(pinlane_device_buffer_size(freed, &bytes) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(pinlane_device_buffer_size(first.get(), &bytes) == PINLANE_STATUS_OK && bytes == 32);
}

/// A destructor cannot throw, so the error goes to the log.
void a_destructor_that_fails_tells_the_log(rig& rig) {
  std::string said;
  const auto note = [](void* user, std::int32_t event, const char* message) {
    if (event == PINLANE_LOG_FREE_REFUSED) {
      static_cast<std::string*>(user)->append(message);
    }
  };
  pinlane::set_log(note, &said);
  const std::size_t before = pinlane::live_count(PINLANE_KIND_BUFFER);
  {
    const auto host = rig.pool.alloc<float>(4);
    EXPECT(pinlane::live_count(PINLANE_KIND_BUFFER) == before + 1);
    EXPECT(pinlane_buffer_free(host.get()) == PINLANE_STATUS_OK && said.empty());
  }
  EXPECT(said.rfind("pinlane_buffer_free: ", 0) == 0);
  pinlane::set_log(nullptr);
  EXPECT(pinlane::live_count(PINLANE_KIND_BUFFER) == before);
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
  pinlane::emulator::stall(rig.stream);
  const pinlane::ticket ticket = rig.stream.download(gpu, host);
  EXPECT(!ticket.is_done() && !host.try_read() && !host.try_write());
  pinlane::span<const std::uint32_t> elements;
  EXPECT(host.try_read(std::nothrow, elements) == PINLANE_STATUS_NOT_READY && elements.empty());
  pinlane::emulator::release(rig.stream);
  ticket.wait();
  EXPECT(ticket.is_done() && host.try_read() && host.try_write());
  EXPECT(host.read(std::nothrow, elements) == PINLANE_STATUS_OK && elements[99] == 7);
  EXPECT(!rig.pool.try_alloc<char>(1 << 20));
  host = {}; // its block goes to the pool
  EXPECT(rig.pool.try_alloc<std::uint32_t>(100).has_value());
}

/// A plain function that does not know pinlane.
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

/// The message of the exception for a status that was just returned.
std::string message_of(pinlane_status status) { return pinlane::error(status).what(); }

/// Every form of a function sets the message, so none shows that of an older failure.
void c_rule_16_every_status_sets_the_message(rig& rig) {
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

/// After `main` there is no storage for a message. The message is then the meaning of the status.
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

} // namespace

int main() {
  rig rig;
  ownership(rig);
  a_destructor_that_fails_tells_the_log(rig);
  empty_objects();
  errors(rig);
  waiting(rig);
  spans(rig);
  c_rule_16_every_status_sets_the_message(rig);
  return verdict("the C++ types");
}
