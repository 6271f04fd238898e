/// @file
/// Timelines of the work of devices and threads.

#ifndef PINLANE_CPP_RECORDING_HPP
#define PINLANE_CPP_RECORDING_HPP

#include "device.hpp"

#include <cstddef>
#include <string>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// Records the work on devices, with the devices' own clocks, and the work of host threads for
/// them, until it is stopped. Destroying it drops its notes. One thread at a time uses it.
///
/// @code
///   pinlane::recording recording(device);
///   stream.upload(host, gpu);
///   recording.stop();
///   recording.write_json("copies.json"); // for ui.perfetto.dev
///   recording.write_svg("copies.svg");
/// @endcode
class recording : public detail::owner<pinlane_recording, pinlane_recording_free> {
public:
  using owner::owner;

  /// A recording of `device`, from now on.
  explicit recording(const device& device) {
    pinlane_recording* handle = nullptr;
    detail::check(pinlane_recording_create(&handle));
    *this = recording(handle);
    add(device);
  }

  /// Also records `device` from now on. A device has one recording at a time.
  void add(const device& device) const {
    detail::check(pinlane_device_record(device.get(), get()));
  }

  /// Ends the recording. Blocks until all recorded work is complete. A second call does nothing.
  void stop() const { detail::check(pinlane_recording_stop(get())); }

  /// The number of recorded spans. This and the following functions need a stopped recording.
  [[nodiscard]] std::size_t spans() const {
    std::size_t spans = 0;
    detail::check(pinlane_recording_counts(get(), &spans, nullptr));
    return spans;
  }

  /// The number of missing spans: operations whose times are unknown, and spans beyond the first
  /// million.
  [[nodiscard]] std::size_t missing() const {
    std::size_t missing = 0;
    detail::check(pinlane_recording_counts(get(), nullptr, &missing));
    return missing;
  }

  /// Writes JSON in Chrome's trace event format, one track for each thread and each stream.
  /// Perfetto (ui.perfetto.dev) and chrome://tracing open it. A launch of a graph has arguments
  /// that say which captured operations it consists of. Replaces an existing file.
  void write_json(const std::string& path) const {
    detail::check(pinlane_recording_write(get(), PINLANE_TRACE_JSON, path.c_str()));
  }

  /// Writes a drawing, one row for each thread and each stream, for light and dark pages.
  void write_svg(const std::string& path) const {
    detail::check(pinlane_recording_write(get(), PINLANE_TRACE_SVG, path.c_str()));
  }
};

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_RECORDING_HPP
