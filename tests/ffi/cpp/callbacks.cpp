// Function objects that pinlane calls, lent device memory, and the identity of devices in C++.

#include "check.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

static_assert(!std::is_copy_constructible_v<pinlane::request>);
static_assert(std::is_nothrow_move_constructible_v<pinlane::request>);

/// Owned by a function object, to check that it is destroyed.
using share = std::shared_ptr<int>;

void host_functions(rig& rig) {
  const share owned = std::make_shared<int>(0);
  std::vector<int> order;
  for (int i = 0; i < 20; ++i) {
    rig.stream.launch_host([i, &order, owned] { order.push_back(i); });
  }
  // It is moved in, so it can own an object that cannot be copied.
  rig.stream.launch_host([held = std::make_unique<int>(7), &order] { order.push_back(*held); })
      .wait();
  EXPECT(order.size() == 21 && order[19] == 19 && order[20] == 7 && owned.use_count() == 1);

  const pinlane::stream none;
  EXPECT(thrown_by([&] { none.launch_host([owned] { EXPECT(!"called"); }); }) ==
         PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(owned.use_count() == 1); // refused, so destroyed
}

/// Keeps a stream busy until it is opened.
struct gate {
  std::promise<void> open;
  pinlane::ticket behind;

  explicit gate(rig& rig)
      : behind(rig.stream.launch_host([opened = open.get_future().share()] { opened.wait(); })) {}
};

void waits_end_in_time(rig& rig) {
  gate gate(rig);
  EXPECT(!gate.behind.wait_timeout(std::chrono::milliseconds(5)));
  EXPECT(gate.behind.wait_timeout(std::nothrow, std::chrono::seconds(-1)) ==
         PINLANE_STATUS_TIMED_OUT);
  gate.open.set_value();
  EXPECT(gate.behind.wait_timeout(std::chrono::hours(1000000)));
  EXPECT(thrown_by([] { (void)pinlane::ticket().wait_timeout(std::chrono::seconds(1)); }) ==
         PINLANE_STATUS_INVALID_HANDLE);
}

void tickets_call_back(rig& rig) {
  const share owned = std::make_shared<int>(0);
  gate gate(rig);
  std::promise<std::pair<pinlane_status, std::thread::id>> told;
  gate.behind.on_complete([&told, owned](pinlane_status status) {
    told.set_value({status, std::this_thread::get_id()});
  });
  std::promise<std::string> cancelled;
  const pinlane::request request = gate.behind.on_complete([&](pinlane_status status) {
    EXPECT(status == PINLANE_STATUS_CANCELLED);
    cancelled.set_value(pinlane::error(status).what());
  });
  request.cancel();
  EXPECT(cancelled.get_future().get().find("pinlane_ticket_on_complete: ") == 0);
  gate.open.set_value();
  const auto [status, thread] = told.get_future().get();
  EXPECT(status == PINLANE_STATUS_OK && thread != std::this_thread::get_id());
  for (int i = 0; owned.use_count() > 1 && i < 10000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1)); // it is destroyed after the call
  }
  EXPECT(owned.use_count() == 1);
  EXPECT(thrown_by([&] {
           pinlane::ticket().on_complete([owned](pinlane_status) { EXPECT(!"called"); });
         }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(owned.use_count() == 1);
}

void memory_comes_by_callback(rig& rig) {
  pinlane::pool_options options;
  options.max_bytes = 1 << 14;
  const pinlane::pinned_pool pool(rig.device, options);
  auto all = pool.alloc<float>((1 << 14) / sizeof(float));
  std::promise<pinlane::pinned_buffer<float>> got;
  std::promise<pinlane_status> refused, cancelled;
  pool.alloc_async<float>(1000, [&](pinlane_status status, pinlane::pinned_buffer<float> buffer) {
    EXPECT(status == PINLANE_STATUS_OK);
    got.set_value(std::move(buffer));
  });
  pool.alloc_async<float>(100000, [&](pinlane_status status, auto buffer) {
    EXPECT(!buffer && buffer.size() == 0);
    refused.set_value(status);
  });
  const pinlane::request request = pool.alloc_async<float>(
      1000, [&](pinlane_status status, auto) { cancelled.set_value(status); });
  request.cancel();
  EXPECT(refused.get_future().get() == PINLANE_STATUS_BUDGET_EXHAUSTED);
  EXPECT(cancelled.get_future().get() == PINLANE_STATUS_CANCELLED);
  auto waits = got.get_future();
  EXPECT(waits.wait_for(std::chrono::milliseconds(5)) == std::future_status::timeout);
  all = {};
  auto buffer = waits.get();
  EXPECT(buffer.size() == 1000);
  buffer.write()[999] = 1.0f;
}

void lent_device_memory(rig& rig) {
  auto gpu = rig.device.alloc<std::uint32_t>(100);
  auto host = rig.pool.alloc<std::uint32_t>(50);
  rig.stream.fill(gpu, 0u).wait(); // now the memory exists, like that of cudaMalloc
  auto lent = rig.device.borrow_memory(gpu.address() + 50, 50);
  EXPECT(lent.size() == 50 && lent.address() == gpu.address() + 50);
  rig.stream.fill(lent, 3u);
  const pinlane::stream other(rig.device);
  other.download(lent, host);
  EXPECT(host.read()[49] == 3);
  lent = {};
  rig.stream.download(gpu.slice(50, 50), host);
  EXPECT(host.read()[0] == 3);
  EXPECT(thrown_by([&] { (void)rig.device.borrow_memory<float>(nullptr, 1); }) ==
         PINLANE_STATUS_INVALID_VALUE);
}

void names_and_identity(rig& rig) {
  EXPECT(rig.device == rig.device && rig.device != rig.other);
  EXPECT(pinlane::stream(rig.other).device_ordinal() == 1 && rig.stream.device_ordinal() == 0);
  EXPECT(thrown_by([&] { (void)(rig.device == pinlane::device()); }) ==
         PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(std::strcmp(pinlane::status_name(PINLANE_STATUS_END), "PINLANE_STATUS_END") == 0);
  EXPECT(std::strcmp(pinlane::cuda_error_name(2), "cudaErrorMemoryAllocation") == 0);
  EXPECT(pinlane::cuda_error_is_sticky(719) && !pinlane::cuda_error_is_sticky(2));
}

} // namespace

int main() {
  rig rig;
  host_functions(rig);
  waits_end_in_time(rig);
  tickets_call_back(rig);
  memory_comes_by_callback(rig);
  lent_device_memory(rig);
  names_and_identity(rig);
  return verdict("callbacks in C++");
}
