// Calls on the state of the process, and calls that only return names.

#pragma once

#include "pools.hpp"

/// Writes the defaults of a struct, which must be those of the macro.
template <class T>
pinlane_status init(frame& f, pinlane_status (*call)(T*, std::size_t), const T& wanted) {
  T* const place = f.out<T>();
  const std::size_t sizes[] = {sizeof(T), 0, sizeof(T) - 1, sizeof(T) + 1, SIZE_MAX, 8};
  const std::size_t size = sizes[f.in.rarely(64) ? f.in.below(6) : 0];
  f.must_fail |= size != sizeof(T);
  const pinlane_status status = call(place, size);
  require(status != PINLANE_STATUS_OK || std::memcmp(place, &wanted, sizeof(T)) == 0,
          "an initialised struct is not what its macro holds");
  return status;
}

inline pinlane_status batch_options_init(frame& f) {
  return init<pinlane_batch_options>(f, pinlane_batch_options_init, PINLANE_BATCH_OPTIONS_INIT);
}

inline pinlane_status copy_team_options_init(frame& f) {
  return init<pinlane_copy_team_options>(f, pinlane_copy_team_options_init,
                                         PINLANE_COPY_TEAM_OPTIONS_INIT);
}

inline pinlane_status dlpack_options_init(frame& f) {
  return init<pinlane_dlpack_options>(f, pinlane_dlpack_options_init, PINLANE_DLPACK_OPTIONS_INIT);
}

inline pinlane_status emulator_options_init(frame& f) {
  return init<pinlane_emulator_options>(f, pinlane_emulator_options_init,
                                        PINLANE_EMULATOR_OPTIONS_INIT);
}

inline pinlane_status emulator_usage_init(frame& f) {
  return init<pinlane_emulator_usage>(f, pinlane_emulator_usage_init, PINLANE_EMULATOR_USAGE_INIT);
}

inline pinlane_status exploration_init(frame& f) {
  return init<pinlane_exploration>(f, pinlane_exploration_init, PINLANE_EXPLORATION_INIT);
}

inline pinlane_status explored_init(frame& f) {
  return init<pinlane_explored>(f, pinlane_explored_init, PINLANE_EXPLORED_INIT);
}

inline pinlane_status indices_init(frame& f) {
  return init<pinlane_indices>(f, pinlane_indices_init, PINLANE_INDICES_INIT);
}

inline pinlane_status pool_options_init(frame& f) {
  return init<pinlane_pool_options>(f, pinlane_pool_options_init, PINLANE_POOL_OPTIONS_INIT);
}

inline pinlane_status pool_stats_init(frame& f) {
  return init<pinlane_pool_stats>(f, pinlane_pool_stats_init, PINLANE_POOL_STATS_INIT);
}

inline pinlane_status prefetch_options_init(frame& f) {
  return init<pinlane_prefetch_options>(f, pinlane_prefetch_options_init,
                                        PINLANE_PREFETCH_OPTIONS_INIT);
}

inline pinlane_status prefetch_progress_init(frame& f) {
  return init<pinlane_prefetch_progress>(f, pinlane_prefetch_progress_init,
                                         PINLANE_PREFETCH_PROGRESS_INIT);
}

inline pinlane_status producer_init(frame& f) {
  return init<pinlane_producer>(f, pinlane_producer_init, PINLANE_PRODUCER_INIT);
}

inline pinlane_status staging_options_init(frame& f) {
  return init<pinlane_staging_options>(f, pinlane_staging_options_init,
                                       PINLANE_STAGING_OPTIONS_INIT);
}

inline pinlane_status stream_options_init(frame& f) {
  return init<pinlane_stream_options>(f, pinlane_stream_options_init, PINLANE_STREAM_OPTIONS_INIT);
}

/// Names of codes, and functions that cannot fail.
inline pinlane_status cuda_error_name(frame& f) {
  const std::int32_t codes[] = {0, 1, 700, 719, 999, -1, INT32_MIN, INT32_MAX};
  const std::int32_t code = f.in.byte() % 2 == 0 ? codes[f.in.below(8)] : f.in.byte();
  require(std::strncmp(pinlane_cuda_error_name(code), "cuda", 4) == 0, "a code without a name");
  return PINLANE_STATUS_OK;
}

inline pinlane_status cuda_error_is_sticky(frame& f) {
  const std::int32_t codes[] = {0, 1, 2, 700, 719, 999, -1, INT32_MIN};
  const std::int32_t code = codes[f.in.below(8)];
  const std::int32_t wanted = code == 700 || code == 719 ? 1 : 0;
  const std::int32_t sticky = pinlane_cuda_error_is_sticky(code);
  require(code == 999 || sticky == wanted, "a code is sticky that is not, or one is not that is");
  return PINLANE_STATUS_OK;
}

inline pinlane_status last_producer_error(frame& f) {
  const auto status = static_cast<pinlane_status>(f.in.byte());
  static_cast<void>(pinlane_set_last_error(status, nullptr));
  require(pinlane_last_producer_error() == 0, "a code of a producer that there was not");
  return PINLANE_STATUS_OK;
}

/// The value of a kind of handles in `pinlane_live_count`.
inline std::int32_t name_of(kind which) {
  switch (which) {
  case kind::device:
    return PINLANE_KIND_DEVICE;
  case kind::pool:
    return PINLANE_KIND_POOL;
  case kind::stream:
    return PINLANE_KIND_STREAM;
  case kind::ticket:
    return PINLANE_KIND_TICKET;
  case kind::buffer:
    return PINLANE_KIND_BUFFER;
  case kind::gpu:
    return PINLANE_KIND_DEVICE_BUFFER;
  case kind::file:
    return PINLANE_KIND_FILE;
  case kind::foreign:
    return PINLANE_KIND_FOREIGN;
  case kind::emulator:
    return PINLANE_KIND_EMULATOR;
  case kind::prefetch:
    return PINLANE_KIND_PREFETCH;
  case kind::request:
    return PINLANE_KIND_REQUEST;
  case kind::pairs:
    return PINLANE_KIND_PAIRS;
  case kind::recording:
    return PINLANE_KIND_RECORDING;
  case kind::capture:
    return PINLANE_KIND_CAPTURE;
  case kind::graph:
    return PINLANE_KIND_GRAPH;
  }
  return 0;
}

inline pinlane_status live_count(frame& f) {
  const auto which = static_cast<kind>(f.in.below(kinds));
  const std::int32_t wrong[] = {0, -1, PINLANE_KIND_GRAPH + 1, INT32_MAX};
  const bool is_wrong = f.in.rarely(24);
  f.must_fail |= is_wrong;
  auto* const count = f.out<std::size_t>();
  const pinlane_status status =
      pinlane_live_count(is_wrong ? wrong[f.in.below(4)] : name_of(which), count);
  require(status != PINLANE_STATUS_OK || f.w.threaded || *count >= f.w.count(which),
          "fewer handles are alive than the program has");
  return status;
}

// -- The log -------------------------------------------------------------------------------------

/// A listener. It is never freed, so that a late call is detected.
struct listener {
  std::atomic<bool> replaced{false};
};
inline std::array<listener, 2> listeners;
inline std::atomic<std::uint64_t> told_of_losses{0};

inline void listen(void* user, std::int32_t event, const char* message) {
  const listener& self = *static_cast<listener*>(user);
  require(!self.replaced, "a listener was called after it was replaced");
  require(event >= PINLANE_LOG_QUARANTINED && event <= PINLANE_LOG_FREE_REFUSED,
          "the log tells of something unknown");
  require(std::strlen(message) > 0, "the log tells of nothing");
  ++told_of_losses;
}

/// The program's own lock orders these calls, so the current listener is known.
inline pinlane_status set_log_callback(frame& f) {
  static std::mutex lock;
  const std::lock_guard<std::mutex> guard(lock);
  const std::size_t chosen = f.in.below(3);
  if (chosen < 2) {
    listeners[chosen].replaced = false;
  }
  const pinlane_status status =
      chosen == 2 ? pinlane_set_log_callback(nullptr, nullptr)
                  : pinlane_set_log_callback(listen, &listeners[chosen]);
  if (status == PINLANE_STATUS_OK) {
    for (std::size_t number = 0; number < 2; ++number) {
      listeners[number].replaced = number != chosen;
    }
  }
  return status;
}
