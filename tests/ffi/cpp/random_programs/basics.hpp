// The random numbers of random programs, and how a program reports wrong bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

using bytes = std::vector<std::uint8_t>;

/// SplitMix64: small, and the same on every platform.
class splitmix {
public:
  explicit splitmix(std::uint64_t seed) : m_state(seed) {}

  std::uint64_t next() {
    std::uint64_t z = m_state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// One of `0 .. bound`.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

  template <class Container>
  auto& one_of(Container& container) {
    return container[below(container.size())];
  }

private:
  std::uint64_t m_state;
};

struct mismatch {
  const char* what;
};

void require(bool condition, const char* what) {
  if (!condition) {
    throw mismatch{what};
  }
}
