// Shared by the tests in C++: the check macros, and a lazy machine to run on.

#pragma once

#include <pinlane/pinlane.hpp>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

/// Callbacks check too.
inline std::atomic<int> checks{0}, failures{0};

inline void expect(bool condition, const char* text, const char* file, int line) {
  ++checks;
  if (!condition) {
    ++failures;
    std::fprintf(stderr, "%s:%d: %s\n", file, line, text);
  }
}
#define EXPECT(...) expect((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)

/// The exit status of main.
inline int verdict(const char* of_what) {
  std::printf("%d checks of %s, %d failed\n", checks.load(), of_what, failures.load());
  return failures == 0 ? 0 : 1;
}

/// The status that `call` throws; OK if it throws none.
template <class Call>
pinlane_status thrown_by(Call call) {
  try {
    call();
    return PINLANE_STATUS_OK;
  } catch (const pinlane::error& error) {
    EXPECT(std::strlen(error.what()) > 0);
    return error.status();
  }
}

/// Two devices of a lazy machine: enqueued work runs only when something waits for it.
struct rig {
  pinlane::device device, other;
  pinlane::pinned_pool pool;
  pinlane::stream stream;

  rig() {
    pinlane::emulator_options options;
    options.mode = pinlane::execution::lazy;
    options.memory_bytes = 1 << 20;
    auto devices = pinlane::device::emulated(2, options);
    device = std::move(devices[0]);
    other = std::move(devices[1]);
    pool = pinlane::pinned_pool(device);
    stream = pinlane::stream(device);
  }
};
