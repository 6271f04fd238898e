// A race, found without a GPU: two streams share memory by its address, and a wait is missing.
// It prints what examples/07_explore_a_race.rs prints, and takes PINLANE_REPLAY as that does.

#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

/// One stream fills memory, and another downloads it. pinlane orders work on its own buffers. Code
/// that borrows an address must order its work itself.
void produce_and_consume(const pinlane::emulator& machine, bool waits) {
  const pinlane::device device = machine.open(0);
  const pinlane::stream producer(device), consumer(device);
  const pinlane::pinned_pool pool(device);
  auto memory = device.alloc<std::uint32_t>(256);
  auto host = pool.alloc<std::uint32_t>(256);
  producer.fill(memory, 0u).wait();
  auto theirs = device.borrow_memory(memory.address(), 256);
  const pinlane::ticket filled = producer.fill(memory, 7u);
  if (waits) {
    consumer.wait(filled);
  }
  consumer.download(theirs, host);
  const auto values = host.read();
  if (std::count(values.begin(), values.end(), 7u) != 256) {
    throw std::runtime_error("wrong bytes");
  }
}

void tell(const char* what, pinlane::exploration runs, bool waits) {
  runs.quiet = true;
  const auto program = [&](pinlane::emulator& machine) { produce_and_consume(machine, waits); };
  const pinlane::explored explored = pinlane::explore(runs, program);
  const std::string good = std::to_string(explored.runs) + " runs went well";
  std::printf("%s\n%s\n", what, (explored.failed ? explored.report : good).c_str());
}

} // namespace

int main() try {
  // One run finds the missing wait from the calls alone, although its bytes happen to be right.
  tell("without the wait", {}, false);
  // Without the search for races: schedules are tried until one gives wrong bytes, and shortened.
  pinlane::exploration blind;
  blind.machine.races = false;
  tell("without the wait, by its bytes", blind, false);
  tell("with the wait", {}, true);
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
