/// @file
/// Options for copies of pageable memory: the page-locked slots of a device, and the threads of the
/// process.

#ifndef PINLANE_CPP_STAGING_HPP
#define PINLANE_CPP_STAGING_HPP

#include "error.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// The page-locked memory through which copies of pageable memory go. 0 means the default.
struct staging_options {
  /// The most page-locked memory for large copies. Small copies take up to half as much in
  /// addition.
  std::size_t ring_bytes = 0;
  /// The size of a slot: the largest portion that the copy engine gets at once.
  std::size_t slot_bytes = 0;
  /// The first portion of a short upload. A longer upload begins with 1/32 of its length. Portions
  /// grow to 1/8 of the copy, and to at most a slot.
  std::size_t first_bytes = 0;
  /// How many bytes a thread copies at a time.
  std::size_t unit_bytes = 0;
  /// Copies of at most this many bytes go through one block of page-locked memory, without other
  /// threads.
  std::size_t direct_bytes = 0;
  /// Whether there are such copies at all.
  bool direct = true;
  /// Uploads of at most this many bytes are written to their slots past the cache.
  std::size_t streaming_bytes = 0;
  /// Whether any are.
  bool streaming = true;
};

/// The threads that help callers to copy pageable memory. 0 means the default.
struct copy_team_options {
  /// The number of threads, at most 256. By default one less than the cores, at most 63. They start
  /// when they are first needed.
  std::uint32_t threads = 0;
  /// How many of them help with one copy of memory. The others help copies of other devices, and
  /// read files. By default 7.
  std::uint32_t copying = 0;
  /// Whether there are such threads. If not, every caller copies alone.
  bool help = true;
  /// The cores that the threads are pinned to, in turns. By default the system chooses.
  std::vector<std::uint32_t> cores{};
  /// How long a thread without work spins before it sleeps. By default 200 us.
  std::chrono::microseconds spin_time{0};
  /// Whether it spins at all.
  bool spin = true;
};

namespace detail {

inline pinlane_staging_options raw(const staging_options& options) noexcept {
  pinlane_staging_options raw = PINLANE_STAGING_OPTIONS_INIT;
  raw.ring_bytes = options.ring_bytes;
  raw.slot_bytes = options.slot_bytes;
  raw.first_bytes = options.first_bytes;
  raw.unit_bytes = options.unit_bytes;
  raw.direct_bytes = options.direct_bytes;
  raw.streaming_bytes = options.streaming_bytes;
  raw.flags = (options.direct ? 0u : PINLANE_STAGING_NO_DIRECT) |
              (options.streaming ? 0u : PINLANE_STAGING_NO_STREAMING);
  return raw;
}

} // namespace detail

/// Makes this the copy team of the process, which all devices share. Running copies finish with the
/// former team.
inline void install_copy_team(const copy_team_options& options) {
  pinlane_copy_team_options raw = PINLANE_COPY_TEAM_OPTIONS_INIT;
  raw.cores = options.cores.data();
  raw.core_count = options.cores.size();
  detail::check_not_negative(options.spin_time, "copy_team_options::spin_time");
  raw.spin_us = detail::in_microseconds(options.spin_time);
  raw.threads = options.threads;
  raw.copying = options.copying;
  raw.flags = (options.help ? 0u : PINLANE_COPY_TEAM_ALONE) |
              (options.spin ? 0u : PINLANE_COPY_TEAM_NO_SPIN);
  detail::check(pinlane_copy_team_install(&raw));
}

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_STAGING_HPP
