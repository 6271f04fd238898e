/// @file
/// Runs a program under many schedules of the emulated device.

#ifndef PINLANE_CPP_EXPLORE_HPP
#define PINLANE_CPP_EXPLORE_HPP

#include "emulator.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// Which runs `explore` makes.
struct exploration {
  /// The number of runs; 0: 100, or as many as the time limit allows.
  std::uint64_t runs = 0;
  /// No run starts after this time; 0: no limit.
  std::chrono::milliseconds time{0};
  /// The first seed.
  std::uint64_t seed = 1;
  /// How many more runs may be made to find a smaller one that fails.
  std::uint64_t shrink_runs = 1000;
  /// The options of each run's machine. Their seed, mode and replay are ignored.
  emulator_options machine{};
  /// How many devices it has, 1 to 64.
  int devices = 1;
  /// Whether every order of the operations is tried, instead of modes and seeds. For programs of a
  /// few operations.
  bool orders = false;
  /// Whether nothing is printed.
  bool quiet = false;
};

/// How an exploration ended.
struct explored {
  /// Whether a run failed.
  bool failed = false;
  /// Whether no run failed, and all requested runs were made.
  bool complete = false;
  /// How many runs were made, up to the first that failed.
  std::uint64_t runs = 0;
  /// The seed of the smallest run found that fails.
  std::uint64_t seed = 0;
  /// How many misuses of CUDA that run has.
  std::size_t findings = 0;
  /// How many decisions of that run differ from those of an eager one.
  std::size_t decisions = 0;
  /// Why it fails, and how to repeat it. Empty if no run failed.
  std::string report{};
};

namespace detail {

/// Calls a program that `pinlane_explore` runs. No exception reaches C.
template <class Program>
std::int32_t explored_program(void* user, pinlane_emulator* handle, char* message,
                              std::size_t capacity) noexcept {
  // The caller frees the handle.
  struct lent : emulator {
    using emulator::emulator;
    ~lent() { static_cast<void>(owner::release()); }
  };
  const auto run = [&] {
    lent machine(handle);
    emulator& lent_machine = machine;
    (*static_cast<Program*>(user))(lent_machine);
  };
#if defined(PINLANE_CPP_EXCEPTIONS)
  const auto say = [&](const char* why) { std::strncpy(message, why, capacity - 1); };
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    say(error.what());
  } catch (...) {
    say("it threw something that is no std::exception");
  }
  return 1;
#else
  static_cast<void>(message);
  static_cast<void>(capacity);
  run();
  return 0;
#endif
}

} // namespace detail

/// Runs `program(machine)` under many schedules, on the calling thread, each time on a new emulated
/// machine, an `emulator&`. It opens the devices with `machine.open`.
///
/// A run fails if the program throws, or if its machine has findings, including races. The first
/// run that fails is made as small as possible, and printed on stderr with the text that repeats
/// it: with `PINLANE_REPLAY` in the environment only that run is made. See `pinlane_explore`.
///
/// @code
///   const pinlane::explored result = pinlane::explore({}, [](pinlane::emulator& machine) {
///     const pinlane::device device = machine.open(0);
///     ...
///     if (result != expected) throw std::runtime_error("wrong bytes");
///   });
///   assert(!result.failed);
/// @endcode
template <class Program>
[[nodiscard]] explored explore(const exploration& options, Program&& program) {
  using plain = std::remove_reference_t<Program>;
  const pinlane_emulator_options machine = detail::raw_options(options.machine);
  pinlane_exploration raw = PINLANE_EXPLORATION_INIT;
  detail::check_not_negative(options.time, "exploration::time");
  raw.runs = options.runs;
  raw.time_ms = static_cast<std::uint64_t>(options.time.count());
  raw.seed = options.seed;
  raw.shrink_runs = options.shrink_runs;
  raw.machine = &machine;
  raw.devices = options.devices;
  raw.flags = (options.orders ? PINLANE_EXPLORE_ORDERS : 0u) |
              (options.quiet ? PINLANE_EXPLORE_QUIET : 0u);
  pinlane_explored ended = PINLANE_EXPLORED_INIT;
  std::string report(16384, '\0');
  std::size_t needed = 0;
  // C gets the address of a const program without const; the call restores the const.
  void* const user = const_cast<void*>(static_cast<const volatile void*>(&program));
  detail::check(pinlane_explore(&raw, detail::explored_program<plain>, user, &ended, report.data(),
                                report.size(), &needed));
  report.resize(needed > report.size() ? report.size() - 1 : needed - 1);
  explored result;
  result.failed = ended.failed != 0;
  result.complete = ended.complete != 0;
  result.runs = ended.runs;
  result.seed = ended.seed;
  result.findings = ended.findings;
  result.decisions = ended.decisions;
  result.report = std::move(report);
  return result;
}

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_EXPLORE_HPP
