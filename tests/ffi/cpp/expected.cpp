// What programs in C++ expect of any library: error codes, time points, spans, accessors of
// parents.

#include "check.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__cpp_lib_span)
#include <span>
#endif

namespace {

using namespace std::chrono_literals;

void errors_are_error_codes(rig& rig) {
  std::error_code code = pinlane::errc::busy;
  EXPECT(code == pinlane::errc::busy && code != pinlane::errc::timed_out);
  EXPECT(code.value() == PINLANE_STATUS_BUSY && code.message() == "PINLANE_STATUS_BUSY");
  EXPECT(std::string(code.category().name()) == "pinlane");
  EXPECT(code == std::errc::device_or_resource_busy && code != std::errc::timed_out);
  EXPECT(pinlane::code_of(PINLANE_STATUS_TIMED_OUT) == std::errc::timed_out);
  EXPECT(!pinlane::code_of(PINLANE_STATUS_OK));
  EXPECT(pinlane::code_of(-7).category() == pinlane::status_category());
  bool caught = false;
  try {
    static_cast<void>(rig.pool.alloc<float>(SIZE_MAX));
  } catch (const std::system_error& error) {
    caught = error.code() == pinlane::errc::invalid_value &&
             error.code() == std::errc::invalid_argument;
    EXPECT(std::string(error.what()).find("PINLANE_STATUS") == std::string::npos);
  }
  EXPECT(caught);
  const pinlane::error made(PINLANE_STATUS_IO, "a message");
  const pinlane::error copy = made;
  EXPECT(copy.what() == std::string("a message") && copy.status() == PINLANE_STATUS_IO);
  static_assert(std::is_nothrow_copy_constructible_v<pinlane::error>);
  // Every status of the header has an enumerator.
  for (int status = 1; status < 1000; ++status) {
    const std::string name = pinlane::status_name(status);
    const bool has_one = status <= static_cast<int>(pinlane::errc::cancelled);
    EXPECT(has_one || name == "PINLANE_STATUS_UNKNOWN");
  }
}

/// A clock that is set back once.
struct moody_clock {
  using duration = std::chrono::microseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<moody_clock>;
  [[maybe_unused]] static constexpr bool is_steady = false;
  static inline int asked = 0;
  static time_point now() { return time_point(++asked == 1 ? 10us : asked == 2 ? 5us : 1000us); }
};

void calls_wait_until_a_point_in_time(rig& rig) {
  const pinlane::stream stream(rig.device);
  pinlane::emulator::stall(stream);
  const pinlane::ticket pending = stream.busy(1us);
  EXPECT(!pending.wait_until(std::chrono::steady_clock::now() + 1ms));
  EXPECT(!pending.wait_until(std::chrono::system_clock::now() - 1h));
  EXPECT(!pending.wait_until(std::chrono::steady_clock::time_point::min()));
  EXPECT(!pending.wait_until(moody_clock::time_point(20us)) && moody_clock::asked >= 3);
  EXPECT(pending.wait_until(std::nothrow, std::chrono::steady_clock::now()) ==
         PINLANE_STATUS_TIMED_OUT);
  pinlane::emulator::release(stream);
  EXPECT(pending.wait_until(std::chrono::steady_clock::time_point::max()));

  pinlane::pool_options options;
  options.max_bytes = 4096;
  const pinlane::pinned_pool pool(rig.device, options);
  auto all = pool.alloc_until<char>(4096, std::chrono::system_clock::now() + 20s);
  EXPECT(thrown_by([&] {
           static_cast<void>(pool.alloc_until<char>(1, std::chrono::steady_clock::now()));
         }) == PINLANE_STATUS_TIMED_OUT);
  pinlane::pinned_buffer<char> other;
  EXPECT(pool.alloc_until(std::nothrow, 1, std::chrono::steady_clock::now() + 1ms, other) ==
         PINLANE_STATUS_TIMED_OUT);
  all = {};
  EXPECT(pool.alloc_until<char>(1, std::chrono::steady_clock::now() + 20s).size() == 1);

  pinlane::prefetch batches(rig.pool, rig.stream, [left = 2]() mutable {
    return left-- > 0 ? std::optional(std::vector<float>(3)) : std::nullopt;
  });
  EXPECT(batches.next_until(std::chrono::steady_clock::now() + 20s).has_value());
  EXPECT(batches.next_until(std::chrono::system_clock::now() + 20s).has_value());
  EXPECT(!batches.next_until(std::chrono::steady_clock::now() + 20s).has_value());
}

void all_tickets_are_waited_for(rig& rig) {
  auto gpu = rig.device.alloc<std::uint32_t>(8);
  const pinlane::stream second(rig.device);
  std::vector<pinlane::ticket> tickets;
  for (int i = 0; i < 5; ++i) {
    tickets.push_back(second.busy(1us));
    tickets.push_back(rig.stream.fill(gpu, 7u));
  }
  pinlane::wait_all(tickets);
  const auto one = second.busy(1us), other = rig.stream.fill(gpu, 8u);
  pinlane::wait_all(one, other, tickets[0]);
  EXPECT(one.is_done() && other.is_done());
  pinlane::wait_all(std::vector<pinlane::ticket>());

  // A ticket that fails does not end the wait for the others.
  tickets.clear();
  tickets.emplace_back();
  tickets.push_back(second.busy(1us));
  EXPECT(thrown_by([&] { pinlane::wait_all(tickets); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(tickets[1].is_done());
}

void things_know_what_they_were_made_from(rig& rig) {
  const pinlane::stream stream(rig.other);
  EXPECT(stream.device() == rig.other && stream.device() != rig.device);
  const pinlane::stream_ref reference(stream);
  EXPECT(reference.device().ordinal() == 1);
  pinlane::pinned_pool pool(rig.device);
  auto buffer = pool.alloc<float>(3);
  EXPECT(buffer.pool().alloc<float>(1).size() == 1);
  EXPECT(buffer.pool().stats().live_bytes == pool.stats().live_bytes);
  pool = {};
  EXPECT(thrown_by([&] { static_cast<void>(buffer.pool()); }) == PINLANE_STATUS_INVALID_VALUE);
}

void one_response_has_several_pools(rig& rig) {
  const pinlane::pinned_pool other(rig.device);
  const std::string text = pinlane::prometheus({{"uploads", rig.pool}, {"downloads", other}});
  const std::string type = "# TYPE pinlane_pool_live_bytes gauge\n";
  EXPECT(text.find(type) != std::string::npos && text.find(type) == text.rfind(type));
  EXPECT(text.find("pinlane_pool_live_bytes{pool=\"uploads\"}") != std::string::npos);
  EXPECT(text.find("pinlane_pool_live_bytes{pool=\"downloads\"}") != std::string::npos);
  EXPECT(thrown_by([&] {
           static_cast<void>(pinlane::prometheus({{"a", other}, {"a", other}}));
         }) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(pinlane::prometheus({}).empty());
}

float sum(pinlane::span<const float> elements) {
  float all = 0;
  for (const float each : elements) {
    all += each;
  }
  return all;
}

void spans_are_made_of_containers() {
  std::vector<float> values{1, 2, 3};
  const std::vector<float> constants{4, 5};
  std::array<float, 2> some{6, 7};
  pinlane::span<float> all(values);
  all[0] = 10;
  EXPECT(values[0] == 10 && all.size() == 3);
  EXPECT(sum(values) == 15 && sum(constants) == 9 && sum(some) == 13 && sum(all) == 15);
  EXPECT(sum(std::vector<float>{1, 1}) == 2); // for the duration of the call, like std::span
  static_assert(std::is_same_v<decltype(pinlane::span(constants)), pinlane::span<const float>>);
  static_assert(std::is_same_v<decltype(pinlane::span(some)), pinlane::span<float>>);
  static_assert(!std::is_constructible_v<pinlane::span<float>, std::vector<float>>);
  static_assert(!std::is_constructible_v<pinlane::span<float>, const std::vector<float>&>);
  static_assert(!std::is_constructible_v<pinlane::span<float>, std::vector<int>&>);
#if defined(__cpp_lib_span)
  const std::span<float> standard(values);
  pinlane::span<float> ours(standard);
  ours = std::span<float>(some);
  EXPECT(ours.data() == some.data() && sum(standard) == 15);
  EXPECT(std::span<float>(ours).data() == some.data());
  static_assert(!std::is_constructible_v<pinlane::span<float>, std::span<const float>>);
#endif
}

} // namespace

int main() {
  rig rig;
  errors_are_error_codes(rig);
  calls_wait_until_a_point_in_time(rig);
  all_tickets_are_waited_for(rig);
  things_know_what_they_were_made_from(rig);
  one_response_has_several_pools(rig);
  spans_are_made_of_containers();
  return verdict("what programs in C++ expect");
}
