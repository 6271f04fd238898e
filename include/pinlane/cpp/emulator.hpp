/// @file
/// Emulated machines: make calls fail, and find misuse and leaks.

#ifndef PINLANE_CPP_EMULATOR_HPP
#define PINLANE_CPP_EMULATOR_HPP

#include "device.hpp"
#include "stream.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// What is allocated and pending on an emulated machine. pinlane.h documents the members.
using emulator_usage = pinlane_emulator_usage;

/// How a call fails.
enum class fault : std::int32_t {
  /// One call fails.
  once = PINLANE_FAULT_ONCE,
  /// That call and every later one of its name fail.
  forever = PINLANE_FAULT_FOREVER,
  /// One call takes effect, and then fails.
  once_late = PINLANE_FAULT_ONCE_LATE,
  /// That call and every later one of its name take effect, and then fail.
  forever_late = PINLANE_FAULT_FOREVER_LATE,
};

/// An emulated machine with all of its devices, for tests. It may outlive them: it then shows what
/// is still alive.
///
/// @code
///   pinlane::emulator machine(device);
///   machine.inject("HostAlloc", 2); // the next cudaHostAlloc: cudaErrorMemoryAllocation
///   ...
///   assert(machine.findings().empty());
/// @endcode
class emulator : public detail::owner<pinlane_emulator, pinlane_emulator_free> {
public:
  using owner::owner;

  /// The machine that an emulated device belongs to.
  explicit emulator(const device& device) {
    pinlane_emulator* handle = nullptr;
    detail::check(pinlane_device_emulator(device.get(), &handle));
    *this = emulator(handle);
  }

  /// Opens a device of the machine, again or after it was destroyed.
  [[nodiscard]] device open(int ordinal) const {
    pinlane_device* handle = nullptr;
    detail::check(pinlane_emulator_open(get(), ordinal, &handle));
    return device(handle);
  }

  /// Makes a call of the machine's driver fail with `cuda_error`: the `nth` with that name from now
  /// on; 1 is the next. `pinlane_emulator_inject` lists the names.
  void inject(const char* call, int cuda_error, std::uint64_t nth = 1,
              fault repeat = fault::once) const {
    detail::check(
        pinlane_emulator_inject(get(), call, nth, cuda_error, static_cast<std::int32_t>(repeat)));
  }

  /// Removes all faults: those that have not happened yet, and those that repeat.
  void clear_faults() const { detail::check(pinlane_emulator_clear_faults(get())); }

  /// How many calls with that name the machine's driver has had.
  [[nodiscard]] std::uint64_t calls(const char* call) const {
    std::uint64_t count = 0;
    detail::check(pinlane_emulator_calls(get(), call, &count));
    return count;
  }

  /// Loses a device with a sticky error, such as 700; with 4, all devices.
  void lose_device(int ordinal, int cuda_error) const {
    detail::check(pinlane_emulator_lose_device(get(), ordinal, cuda_error));
  }

  /// The misuses of CUDA that the machine has seen, at most 1000. A correct program has none.
  [[nodiscard]] std::vector<std::string> findings() const {
    return findings_by(pinlane_emulator_finding);
  }

  /// The same, each as a JSON object on one line, with both operations of a race.
  /// `pinlane_emulator_finding_json` lists the members.
  [[nodiscard]] std::vector<std::string> findings_json() const {
    return findings_by(pinlane_emulator_finding_json);
  }

  /// The decisions of the machine so far, as a text such as `12:B#3`, if its option `record` is
  /// set. The option `replay` of another machine repeats them. See pinlane.h for what is promised.
  [[nodiscard]] std::string replay() const {
    return detail::text_of([&](char* buffer, std::size_t capacity, std::size_t* needed) {
      return pinlane_emulator_replay(get(), buffer, capacity, needed);
    });
  }

  /// What is allocated and pending now.
  [[nodiscard]] emulator_usage usage() const {
    emulator_usage usage = PINLANE_EMULATOR_USAGE_INIT;
    detail::check(pinlane_emulator_get_usage(get(), &usage));
    return usage;
  }

  /// Stalls a stream until it is released or freed. Calls that wait for its work block until then.
  static void stall(stream_ref stream) { detail::check(pinlane_emulator_stall(stream.get())); }

  /// Resumes a stalled stream.
  static void release(stream_ref stream) { detail::check(pinlane_emulator_release(stream.get())); }

  /// Makes a stream slow: each of its operations takes this many more steps. A step is a call that
  /// any thread makes on the machine. 0 restores the normal speed.
  static void slow(stream_ref stream, std::uint32_t steps) {
    detail::check(pinlane_emulator_slow(stream.get(), steps));
  }

  /// Limits how many bytes may be page-locked at a time; `SIZE_MAX` lifts the limit.
  void limit_page_locked(std::size_t bytes) const {
    detail::check(pinlane_emulator_limit_page_locked(get(), bytes));
  }

  /// Changes how many bytes each device has; existing memory stays.
  void limit_device_memory(std::size_t bytes) const {
    detail::check(pinlane_emulator_limit_device_memory(get(), bytes));
  }

  /// Begins a graph capture of a stream, in global mode. Until it ends, pinlane refuses to enqueue
  /// on the stream.
  static void begin_capture(stream_ref stream) {
    detail::check(pinlane_emulator_begin_capture(stream.get()));
  }

  /// Ends a graph capture, on the thread that began it. Returns how many operations it recorded.
  static std::size_t end_capture(stream_ref stream) {
    std::size_t operations = 0;
    detail::check(pinlane_emulator_end_capture(stream.get(), &operations));
    return operations;
  }

private:
  [[nodiscard]] std::vector<std::string>
  findings_by(decltype(pinlane_emulator_finding)* write) const {
    std::size_t count = 0;
    detail::check(pinlane_emulator_finding_count(get(), &count));
    std::vector<std::string> texts;
    texts.reserve(count);
    for (std::size_t index = 0; index < count; ++index) {
      texts.push_back(detail::text_of([&](char* buffer, std::size_t capacity, std::size_t* needed) {
        return write(get(), index, buffer, capacity, needed);
      }));
    }
    return texts;
  }
};

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_EMULATOR_HPP
