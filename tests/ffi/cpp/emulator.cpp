// Emulated machines and the report of a pool, with the C++ types.

#include "check.hpp"

#include <chrono>
#include <future>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace {

static_assert(std::is_nothrow_move_constructible_v<pinlane::emulator>);
static_assert(!std::is_copy_constructible_v<pinlane::emulator>);
static_assert(!std::is_convertible_v<pinlane::device, pinlane::emulator>);

void faults(rig& rig) {
  const pinlane::emulator machine(rig.device);
  const auto calls = machine.calls("DeviceAlloc");
  machine.inject("DeviceAlloc", 2);
  try {
    (void)rig.device.alloc<int>(8);
    EXPECT(!"the call fails");
  } catch (const pinlane::error& error) {
    EXPECT(error.status() == PINLANE_STATUS_OUT_OF_DEVICE_MEMORY && error.cuda_error() == 2);
  }
  machine.inject("DeviceAlloc", 2, 2, pinlane::fault::forever);
  const auto alloc = [&] { (void)rig.device.alloc<int>(8); };
  EXPECT(thrown_by(alloc) == PINLANE_STATUS_OK);
  EXPECT(thrown_by(alloc) == PINLANE_STATUS_OUT_OF_DEVICE_MEMORY);
  EXPECT(thrown_by(alloc) == PINLANE_STATUS_OUT_OF_DEVICE_MEMORY);
  machine.clear_faults();
  EXPECT(thrown_by(alloc) == PINLANE_STATUS_OK && machine.calls("DeviceAlloc") == calls + 5);
  EXPECT(thrown_by([&] { machine.inject("nothing", 2); }) == PINLANE_STATUS_INVALID_VALUE);

  auto host = rig.pool.alloc<int>(8);
  auto gpu = rig.device.alloc<int>(8);
  for (const auto how : {pinlane::fault::once_late, pinlane::fault::forever_late}) {
    const int value = static_cast<int>(how);
    machine.inject("Fill", 999, 1, how);
    EXPECT(thrown_by([&] { rig.stream.fill(gpu, value); }) == PINLANE_STATUS_CUDA);
    rig.stream.download(gpu, host);
    EXPECT(host.read()[7] == value);
  }
  machine.clear_faults();
}

void streams(rig& rig) {
  auto host = rig.pool.alloc<int>(8);
  auto gpu = rig.device.alloc<int>(8);
  pinlane::emulator::stall(rig.stream);
  rig.stream.fill(gpu, 5);
  rig.stream.download(gpu, host);
  for (int i = 0; i < 20; ++i) {
    EXPECT(!host.try_read());
  }
  pinlane::emulator::release(rig.stream);
  EXPECT(host.read()[7] == 5);

  pinlane::emulator::slow(rig.stream, 40);
  const pinlane::ticket slow = rig.stream.fill(gpu, 7);
  EXPECT(!slow.is_done());
  slow.wait();
  pinlane::emulator::slow(rig.stream, 0);

  const pinlane::emulator machine(rig.device);
  machine.limit_page_locked(SIZE_MAX);
  machine.limit_device_memory(0);
  EXPECT(thrown_by([&] { (void)rig.device.alloc<int>(8); }) ==
         PINLANE_STATUS_OUT_OF_DEVICE_MEMORY);
  machine.limit_device_memory(std::size_t{1} << 30);

  pinlane::emulator::begin_capture(rig.stream);
  EXPECT(thrown_by([&] { rig.stream.fill(gpu, 6); }) == PINLANE_STATUS_STREAM_CAPTURING);
  EXPECT(pinlane::emulator::end_capture(rig.stream) == 0);
}

void lost_devices_and_findings() {
  auto devices = pinlane::device::emulated(2);
  const pinlane::emulator machine(devices[0]);
  const pinlane::stream stream(devices[1]);
  EXPECT(machine.findings().empty());
  const std::vector<int> values(8);
  (void)thrown_by([&] { stream.upload_to(values, reinterpret_cast<void*>(4096)); });
  EXPECT(thrown_by([&] { stream.synchronize(); }) == PINLANE_STATUS_DEVICE_LOST);
  const std::vector<std::string> findings = machine.findings();
  EXPECT(!findings.empty() && findings[0].rfind("IllegalAddress: ", 0) == 0);
  EXPECT(findings[0].find("seed 0") != std::string::npos);

  EXPECT(machine.open(0).ordinal() == 0);
  machine.lose_device(0, 700);
  EXPECT(thrown_by([&] { (void)devices[0].memory(); }) == PINLANE_STATUS_DEVICE_LOST);
  EXPECT(thrown_by([&] { machine.lose_device(2, 700); }) == PINLANE_STATUS_NO_DEVICE);
}

void races() {
  for (const bool races : {true, false}) {
    pinlane::emulator_options options;
    options.races = races;
    options.sites = options.threads_apart = options.watch_host = true;
    auto devices = pinlane::device::emulated(1, options);
    const pinlane::emulator machine(devices[0]);
    const pinlane::stream first(devices[0]);
    const pinlane::stream second(devices[0]);
    auto memory = devices[0].alloc<int>(8);
    first.fill(memory, 1);
    first.synchronize();
    auto one = devices[0].borrow_memory(memory.address(), 8);
    auto other = devices[0].borrow_memory(memory.address(), 8);
    first.fill(one, 2);
    second.fill(other, 3);
    const std::vector<std::string> findings = machine.findings();
    EXPECT(findings.size() == (races ? 1u : 0u));
    EXPECT(!races || findings[0].rfind("Race: write after write, device 0, ", 0) == 0);
    const std::vector<std::string> lines = machine.findings_json();
    EXPECT(lines.size() == findings.size());
    EXPECT(!races || lines[0].rfind("{\"kind\":\"Race\",", 0) == 0);
    first.synchronize();
    second.synchronize();
  }
}

// A store to a buffer of a default pool, through its address, while a copy may still read it.
void stores_in_flight(bool waits) {
  pinlane::emulator_options options;
  options.watch_host = true;
  auto devices = pinlane::device::emulated(1, options);
  const pinlane::emulator machine(devices[0]);
  const pinlane::pinned_pool pool(devices[0]);
  const pinlane::stream stream(devices[0]);
  auto memory = devices[0].alloc<char>(5000);
  auto host = pool.alloc_zeroed<char>(5000);
  stream.upload(host, memory);
  if (waits) {
    stream.synchronize();
  }
  *static_cast<volatile char*>(host.address() + 4999) = 'x';
  const std::vector<std::string> findings = machine.findings();
  EXPECT(findings.size() == (waits ? 0u : 1u));
  EXPECT(waits || findings[0].rfind("Race: write after read, page-locked memory, ", 0) == 0);
  stream.synchronize();
}

// A host function that waits for the next action of the thread that waits for it.
void deadlocks() {
  pinlane::emulator_options options;
  options.host_function_limit = std::chrono::milliseconds(20);
  auto devices = pinlane::device::emulated(1, options);
  const pinlane::emulator machine(devices[0]);
  std::promise<void> gate;
  {
    const pinlane::stream stream(devices[0]);
    stream.launch_host([open = gate.get_future().share()] { open.wait(); });
    EXPECT(thrown_by([&] { stream.synchronize(); }) == PINLANE_STATUS_DEVICE_LOST);
    EXPECT(machine.findings().at(0).rfind("Deadlock: ", 0) == 0);
    gate.set_value();
  }
}

void usage() {
  pinlane::emulator machine;
  EXPECT(thrown_by([&] { (void)machine.usage(); }) == PINLANE_STATUS_INVALID_HANDLE);
  {
    pinlane::emulator_options options;
    options.batches = options.host_addresses = false;
    options.page_lock_limit_bytes = 4096;
    auto devices = pinlane::device::emulated(1, options);
    machine = pinlane::emulator(devices[0]);
    const auto gpu = devices[0].alloc<int>(8);
    EXPECT(machine.usage().device_bytes == 32 && machine.usage().streams > 0);
    std::vector<char> memory(8192);
    EXPECT(thrown_by([&] { (void)devices[0].register_memory(memory.data(), memory.size()); }) ==
           PINLANE_STATUS_OUT_OF_HOST_MEMORY);
    EXPECT(devices[0].quarantined_bytes() == 0);
  }
  EXPECT(machine.usage().device_bytes == 0 && machine.usage().streams == 0);
}

void reports_of_a_pool(rig& rig) {
  const auto buffer = rig.pool.alloc<char>(100);
  EXPECT(rig.pool.stats_text().find(" page-locked (peak ") != std::string::npos);
  const std::string json = rig.pool.stats_json();
  EXPECT(json.front() == '{' && json.back() == '}');
  const auto live = std::to_string(rig.pool.stats().live_bytes);
  EXPECT(json.find("\"live_bytes\":" + live + ",") != std::string::npos);
  const std::string metrics = rig.pool.stats_prometheus("up\"loads");
  EXPECT(metrics.find("\npinlane_pool_live_bytes{pool=\"up\\\"loads\"} " + live + "\n") !=
         std::string::npos);
  EXPECT(metrics.back() == '\n');
}

// Copies from two buffers that do not know of each other, in a mode; the bytes that arrive.
std::string copied(const pinlane::emulator_options& options, std::string* replay) {
  const std::vector<pinlane::device> devices = pinlane::device::emulated(1, options);
  const pinlane::emulator machine(devices[0]);
  const pinlane::pinned_pool pool(devices[0]);
  const pinlane::stream first(devices[0]), second(devices[0]);
  pinlane::device_buffer<char> memory = devices[0].alloc<char>(64);
  first.fill(memory, '1');
  first.synchronize();
  pinlane::pinned_buffer<char> host = pool.alloc<char>(64);
  first.fill(memory, '2');
  pinlane::device_buffer<char> borrowed = devices[0].borrow_memory(memory.address(), memory.size());
  second.download(borrowed, host);
  const auto seen = host.read();
  std::string text(seen.begin(), seen.end());
  first.synchronize();
  if (replay != nullptr) {
    *replay = machine.replay();
  }
  return text;
}

void modes_and_replay() {
  const auto modes = {pinlane::execution::lazy, pinlane::execution::random,
                      pinlane::execution::chunked, pinlane::execution::pct};
  for (const pinlane::execution mode : modes) {
    std::set<std::string> seen;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      pinlane::emulator_options options;
      options.mode = mode;
      options.seed = seed;
      options.record = true;
      pinlane::emulator_options again;
      const std::string text = copied(options, &again.replay);
      EXPECT(copied(again, nullptr) == text);
      seen.insert(text);
    }
    EXPECT(seen.size() >= 2);
    EXPECT((seen.size() > 2) == (mode == pinlane::execution::chunked));
  }
}

} // namespace

int main() {
  rig rig;
  faults(rig);
  streams(rig);
  reports_of_a_pool(rig);
  EXPECT(pinlane::emulator(rig.device).findings().empty());
  lost_devices_and_findings();
  races();
  stores_in_flight(false);
  stores_in_flight(true);
  deadlocks();
  modes_and_replay();
  usage();
  return verdict("emulated machines in C++");
}
