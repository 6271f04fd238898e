// Exploring a program in C++: exceptions are failures, and nothing is thrown into C.

#include "check.hpp"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

namespace {

/// Fills on one stream, and copies on another that does not wait for it unless `ordered`.
void program(const pinlane::emulator& machine, bool ordered) {
  const pinlane::device device = machine.open(0);
  const pinlane::pinned_pool pool(device);
  const pinlane::stream first(device), second(device);
  pinlane::device_buffer<char> memory = device.alloc<char>(64);
  first.fill(memory, '1');
  first.synchronize();
  pinlane::pinned_buffer<char> host = pool.alloc<char>(64);
  first.fill(memory, '2');
  if (ordered) {
    first.synchronize();
  }
  pinlane::device_buffer<char> borrowed =
      device.borrow_memory<char>(memory.address(), memory.size());
  second.download(borrowed, host);
  const auto seen = host.read();
  const std::string text(seen.begin(), seen.end());
  first.synchronize();
  if (text != std::string(64, '2')) {
    throw std::runtime_error("wrong: " + text.substr(0, 8));
  }
}

bool has(const pinlane::explored& result, const char* text) {
  return result.report.find(text) != std::string::npos;
}

void races_and_wrong_bytes() {
  pinlane::exploration options;
  options.quiet = true;
  const auto racing = [](pinlane::emulator& machine) { program(machine, false); };
  pinlane::explored result = pinlane::explore(options, racing);
  EXPECT(result.failed && !result.complete && result.runs == 1 && result.findings == 1);
  EXPECT(has(result, "Race: ") && has(result, "PINLANE_REPLAY=1:eager"));
  options.machine.races = false;
  result = pinlane::explore(options, racing);
  EXPECT(result.failed && result.runs > 1 && result.findings == 0 && result.decisions == 1);
  EXPECT(has(result, "it returned an error: wrong: ") && has(result, "smallest run: 1 decision"));
  options.orders = true;
  result = pinlane::explore(options, racing);
  EXPECT(result.failed && result.decisions == 1);
}

void correct_programs() {
  pinlane::exploration options;
  options.runs = 30;
  std::size_t runs = 0;
  const pinlane::explored result = pinlane::explore(options, [&](pinlane::emulator& machine) {
    ++runs;
    program(machine, true);
  });
  EXPECT(!result.failed && result.complete && runs == 30 && result.runs == 30);
  EXPECT(result.report.empty());
  options.runs = 0;
  options.time = std::chrono::milliseconds(1);
  const auto nothing = [](pinlane::emulator&) {};
  EXPECT(pinlane::explore(options, nothing).runs >= 1);
}

/// Where 0 means "no limit" or "the default", a negative time would silently mean the same.
void negative_times() {
  using namespace std::chrono_literals;
  const auto nothing = [](pinlane::emulator&) {};
  const auto is_refused = [](auto&& call) {
    return thrown_by(call) == PINLANE_STATUS_INVALID_VALUE &&
           std::strstr(pinlane_last_error(), " is negative: pass at least 0") != nullptr;
  };
  pinlane::exploration options;
  options.time = -1ms;
  EXPECT(is_refused([&] { (void)pinlane::explore(options, nothing); }));
  pinlane::emulator_options machine;
  machine.host_function_limit = -1us;
  EXPECT(is_refused([&] { (void)pinlane::device::emulated(1, machine); }));
  pinlane::pool_options of_pool;
  of_pool.idle_age = -1us;
  const pinlane::device device = pinlane::device::open_or_emulated();
  EXPECT(is_refused([&] { (void)pinlane::pinned_pool(device, of_pool); }));
  pinlane::copy_team_options team;
  team.spin_time = -1us;
  EXPECT(is_refused([&] { pinlane::install_copy_team(team); }));
}

void what_is_thrown() {
  pinlane::exploration options;
  options.quiet = true;
  const auto number = [](pinlane::emulator&) { throw 7; };
  EXPECT(has(pinlane::explore(options, number), "something that is no std::exception"));
  const auto ours = [](pinlane::emulator& machine) { (void)machine.open(9); };
  EXPECT(has(pinlane::explore(options, ours), "it returned an error: "));
  // It must not keep its machine's handle after the run, and must not free it.
  const auto moves = [](pinlane::emulator& machine) { const auto mine = std::move(machine); };
  EXPECT(has(pinlane::explore(options, moves), "it freed its machine"));
  options.devices = 0;
  const auto nothing = [](pinlane::emulator&) {};
  EXPECT(thrown_by([&] { (void)pinlane::explore(options, nothing); }) ==
         PINLANE_STATUS_INVALID_VALUE);
}

} // namespace

int main() {
  races_and_wrong_bytes();
  correct_programs();
  negative_times();
  what_is_thrown();
  return verdict("exploring in C++");
}
