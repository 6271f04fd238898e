// The interface between the files of a program that are compiled in different modes: with and
// without exceptions, and with and without run-time type information.

#pragma once

#include <pinlane/pinlane.hpp>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

/// The interface of a file.
struct part {
  const char* name;
  bool has_exceptions;
  /// Uses much of the wrapper, with calls that succeed. It may use any device of `machine`.
  void (*succeed)();
  /// Makes calls that fail. With exceptions, returns whether each one was caught with its type.
  /// Without, the process aborts.
  bool (*fail)();
  /// A resource of a pool, and one of the file's own.
  std::pmr::memory_resource* (*resource)(pinlane_pool* pool);
  std::pmr::memory_resource* (*other)(pinlane_pool* pool);
  /// The result of the file's own comparison of two resources.
  bool (*are_equal)(const std::pmr::memory_resource& a, const std::pmr::memory_resource& b);
};

/// Called once by each file before main.
bool add(const part& part);

// Function objects that instantiate the same templates in every file. They throw if `throws` is
// set. Only main, which has exceptions, defines the throw.
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
/// The type that they throw.
struct thrown {};

#if defined(PINLANE_CPP_EXCEPTIONS) && defined(PINLANE_CPP_RTTI)
/// Defined in a file of C++17, called in one of C++20.
pinlane::pinned_buffer<float> alloc_elsewhere(const pinlane::pinned_pool& pool);
#endif
