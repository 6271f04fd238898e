// What the files of a program say to each other that are compiled in different modes: with and
// without exceptions, and with and without types at run time.

#pragma once

#include <pinlane/pinlane.hpp>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

/// A file, as the others see it.
struct part {
  const char* name;
  bool has_exceptions;
  /// Uses much of the wrapper, in ways that succeed. A device of `machine` is free to use.
  void (*succeed)();
  /// Makes calls that fail. With exceptions, whether every one was caught as what it is; without,
  /// the process aborts.
  bool (*fail)();
  /// A resource of a pool, and one of the file's own.
  std::pmr::memory_resource* (*resource)(pinlane_pool* pool);
  std::pmr::memory_resource* (*other)();
  /// What the file's own code says of two resources.
  bool (*are_equal)(const std::pmr::memory_resource& a, const std::pmr::memory_resource& b);
};

/// Called once by each file before main.
bool add(const part& part);

// Function objects that instantiate the same templates in every file. They throw if `throws` says
// so: only main, which has exceptions, defines how.
struct acts {
  bool throws;
  void act() const;
};
struct producer : acts {
  std::optional<std::vector<float>> operator()() const {
    act();
    return std::nullopt;
  }
};
struct landed : acts {
  template <class Bytes>
  void operator()(std::size_t, Bytes) const {
    act();
  }
};
struct program : acts {
  template <class Machine>
  void operator()(Machine&) const {
    act();
  }
};
/// What they throw.
struct thrown {};

#if defined(PINLANE_CPP_EXCEPTIONS) && defined(PINLANE_CPP_RTTI)
/// Defined in a file of C++17, called in one of C++20.
pinlane::pinned_buffer<float> alloc_elsewhere(const pinlane::pinned_pool& pool);
#endif
