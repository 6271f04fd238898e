// The bytes that decide what a program does.

#pragma once

#include <cstddef>
#include <cstdint>

/// Reads choices from bytes. At the end all choices are 0.
class input {
public:
  input(const std::uint8_t *data, std::size_t size) : m_next(data), m_end(data + size) {}

  [[nodiscard]] bool is_empty() const { return m_next == m_end; }

  std::uint8_t byte() { return m_next == m_end ? std::uint8_t{0} : *m_next++; }

  /// One of `0 .. bound`; 0 if that is empty. Takes one byte, or two for more than 256 choices.
  std::size_t below(std::size_t bound) {
    std::size_t value = byte();
    if (bound > 256) {
      value = value << 8 | byte();
    }
    return bound == 0 ? 0 : value % bound;
  }

  std::uint64_t word() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) {
      value = value << 8 | byte();
    }
    return value;
  }

  /// True for `count` of 256 bytes, but not for 0, which the end of the input reads as.
  bool rarely(unsigned count) { return byte() >= 256 - count; }

  /// The next `size` bytes, or all that are left, as an input of their own.
  input split(std::size_t size) {
    const auto left = static_cast<std::size_t>(m_end - m_next);
    const input part(m_next, size < left ? size : left);
    m_next = part.m_end;
    return part;
  }

private:
  const std::uint8_t *m_next, *m_end;
};
