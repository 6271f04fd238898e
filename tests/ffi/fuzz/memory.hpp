// The memory of a call's arguments, with guards around it.

#pragma once

#include "world.hpp"

#include <cstring>

/// The memory of a thread's calls: small arguments, their values before the call, and pageable
/// memory to copy.
struct scratch {
  static constexpr std::size_t most = std::size_t{1} << 14;
  alignas(16) std::array<std::uint8_t, most> zones;
  alignas(16) std::array<std::uint8_t, most> before;
  std::array<std::uint8_t, 49152> pageable;
};

/// The small arguments of one call. Bytes that the call does not write must not change, and the
/// bytes around an argument must not either.
class zones {
public:
  explicit zones(scratch& memory) : m_memory(memory) {}

  /// Memory for one argument: an output, or an input.
  std::uint8_t* add(std::size_t size, bool is_output) {
    const std::size_t at = m_used, end = at + size + guard_bytes;
    m_used = (end + 15) / 16 * 16;
    require(m_used <= scratch::most, "the memory for arguments is too small");
    std::memset(m_memory.zones.data() + at, 0xa5, m_used - at);
    std::memset(m_memory.before.data() + at, 0xa5, m_used - at);
    m_added.push_back({at, size, is_output});
    return m_memory.zones.data() + at;
  }

  /// Fills an argument before the call.
  void fill(void* place, const void* bytes, std::size_t size) {
    if (size > 0) {
      const auto at = static_cast<std::uint8_t*>(place) - m_memory.zones.data();
      std::memcpy(place, bytes, size);
      std::memcpy(m_memory.before.data() + at, bytes, size);
    }
  }

  /// An input of these bytes, `off` bytes after an aligned address.
  const void* input_of(const void* bytes, std::size_t size, std::size_t off) {
    std::uint8_t* const place = add(size + off, false) + off;
    fill(place, bytes, size);
    return place;
  }

  /// After the call.
  void check(bool succeeded) const {
    for (const zone& each : m_added) {
      const bool may_change = succeeded && each.is_output;
      const std::size_t from = each.at + (may_change ? each.size : 0);
      const std::size_t size = (may_change ? 0 : each.size) + guard_bytes;
      require(std::memcmp(m_memory.zones.data() + from, m_memory.before.data() + from, size) == 0,
              succeeded ? "a call wrote beside its outputs" : "a call that failed wrote something");
    }
  }

private:
  struct zone {
    std::size_t at, size;
    bool is_output;
  };

  static constexpr std::size_t guard_bytes = 16;

  scratch& m_memory;
  std::vector<zone> m_added;
  std::size_t m_used = 0;
};
