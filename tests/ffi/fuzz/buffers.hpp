// Calls on buffers in page-locked and device memory, one at a time, and on their borrowers.

#pragma once

#include "pools.hpp"

// -- Making and freeing --------------------------------------------------------------------------

/// Allocates with `call(pool, bytes, out)`. Every byte is then `byte`.
template <class Call>
pinlane_status allocate(frame& f, std::int16_t byte, Call call) {
  const argument pool = f.any(kind::pool);
  const std::size_t bytes = f.size();
  f.may_refuse |= bytes > std::size_t{1} << 47; // such a size overflows
  return call(pool, bytes, f.made<pinlane_buffer>(kind::buffer, {}, bytes, byte));
}

inline pinlane_status buffer_alloc(frame& f) { return allocate(f, unknown, pinlane_buffer_alloc); }

inline pinlane_status buffer_alloc_zeroed(frame& f) {
  return allocate(f, 0, pinlane_buffer_alloc_zeroed);
}

inline pinlane_status buffer_try_alloc(frame& f) {
  return allocate(f, unknown, pinlane_buffer_try_alloc);
}

inline pinlane_status buffer_alloc_aligned(frame& f) {
  const std::size_t alignment = some_alignment(f);
  return allocate(
      f, unknown, [&](const pinlane_pool* pool, std::size_t bytes, pinlane_buffer** out) {
        const pinlane_status status = pinlane_buffer_alloc_aligned(pool, bytes, alignment, out);
        void* address = nullptr;
        if (status == PINLANE_STATUS_OK && pinlane_buffer_address(*out, &address) == status) {
          const bool aligned = reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
          require(aligned, "a buffer is misaligned");
        }
        return status;
      });
}

inline pinlane_status buffer_alloc_timeout(frame& f) {
  const std::uint64_t times[] = {0, 1, 300};
  const std::uint64_t time = times[f.in.below(3)];
  return allocate(f, unknown,
                  [&](const pinlane_pool* pool, std::size_t bytes, pinlane_buffer** out) {
                    return pinlane_buffer_alloc_timeout(pool, bytes, time, out);
                  });
}

/// The program's own memory, at any alignment.
inline pinlane_status buffer_register(frame& f) {
  const argument device = f.any(kind::device);
  object about;
  about.lent_at = f.in.below(64);
  const std::size_t bytes = f.in.below(8192);
  about.lent.reset(new std::uint8_t[about.lent_at + bytes]());
  void* memory = about.lent.get() + about.lent_at;
  std::size_t claimed = bytes;
  if (f.in.rarely(8)) {
    claimed = f.impossible_size();
    f.must_fail = true;
  } else if (f.in.rarely(8)) {
    memory = nullptr;
    f.must_fail |= bytes > 0;
  }
  return pinlane_buffer_register(
      device, memory, claimed,
      f.made<pinlane_buffer>(kind::buffer, std::move(about), bytes, memory == nullptr ? -1 : 0));
}

/// Memory that is only read. The buffer goes again at once: no call of the others may write to it.
inline pinlane_status buffer_register_read_only(frame& f) {
  const argument device = f.any(kind::device);
  const std::size_t bytes = f.in.below(8192);
  std::unique_ptr<std::uint8_t[]> memory(new std::uint8_t[bytes]());
  std::size_t claimed = bytes;
  if (f.in.rarely(8)) {
    claimed = f.impossible_size();
    f.must_fail = true;
  }
  auto** const out = f.out<pinlane_buffer*>();
  const pinlane_status status =
      pinlane_buffer_register_read_only(device, memory.get(), claimed, out);
  if (status == PINLANE_STATUS_OK) {
    void* data = nullptr;
    require(pinlane_buffer_write(*out, &data) != PINLANE_STATUS_OK && data == nullptr,
            "memory that is only read is written");
    if (pinlane_buffer_free(*out) != PINLANE_STATUS_OK) {
      memory.release(); // still page-locked
    }
  }
  return status;
}

inline pinlane_status device_buffer_alloc(frame& f) {
  const argument device = f.any(kind::device);
  const std::size_t bytes = f.size();
  object about;
  about.device = f.w.device_of(kind::device, device);
  f.may_refuse |= bytes > std::size_t{1} << 47;
  return pinlane_device_buffer_alloc(
      device, bytes, f.made<pinlane_device_buffer>(kind::gpu, std::move(about), bytes, unknown));
}

// -- Access by the host --------------------------------------------------------------------------

/// Reads a buffer, and compares it with the model.
template <class Call>
pinlane_status read_by(frame& f, Call call) {
  const argument buffer = f.any(kind::buffer);
  auto** const data = f.out<const void*>();
  const pinlane_status status = call(buffer, data);
  const object* const found = f.w.threaded ? nullptr : f.w.find(kind::buffer, buffer.value);
  if (status == PINLANE_STATUS_OK && found != nullptr) {
    f.compare(found->bytes, 0, static_cast<const std::uint8_t*>(*data), found->bytes.size());
  }
  return status;
}

inline pinlane_status buffer_read(frame& f) { return read_by(f, pinlane_buffer_read); }
inline pinlane_status buffer_try_read(frame& f) { return read_by(f, pinlane_buffer_try_read); }

/// Writes a part of a buffer, in memory and in the model.
template <class Call>
pinlane_status write_by(frame& f, Call call) {
  const argument buffer = f.any(kind::buffer);
  auto** const data = f.out<void*>();
  const pinlane_status status = call(buffer, data);
  object* const found = f.w.threaded ? nullptr : f.w.find(kind::buffer, buffer.value);
  if (status == PINLANE_STATUS_OK && found != nullptr) {
    auto* const memory = static_cast<std::uint8_t*>(*data);
    const std::size_t size = found->bytes.size();
    f.compare(found->bytes, 0, memory, size);
    const std::size_t count = f.in.below(size + 1), at = f.in.below(size - count + 1);
    const std::uint8_t byte = f.in.byte();
    for (std::size_t index = at; index < at + count; ++index) {
      memory[index] = static_cast<std::uint8_t>(byte + index * index % 251);
      found->bytes[index] = memory[index];
    }
  }
  return status;
}

inline pinlane_status buffer_write(frame& f) { return write_by(f, pinlane_buffer_write); }
inline pinlane_status buffer_try_write(frame& f) { return write_by(f, pinlane_buffer_try_write); }

template <class Call>
pinlane_status size_by(frame& f, kind which, Call call) {
  const argument buffer = f.any(which);
  const std::size_t size = f.w.size_of(which, buffer);
  auto* const bytes = f.out<std::size_t>();
  const pinlane_status status = call(buffer, bytes);
  require(status != PINLANE_STATUS_OK || *bytes == size || f.w.threaded, "a wrong size");
  return status;
}

inline pinlane_status buffer_size(frame& f) {
  return size_by(f, kind::buffer, pinlane_buffer_size);
}
inline pinlane_status device_buffer_size(frame& f) {
  return size_by(f, kind::gpu, pinlane_device_buffer_size);
}

/// Calls `call(buffer, stream)`.
template <class T>
pinlane_status with_stream(frame& f, kind which,
                           pinlane_status (*call)(T*, const pinlane_stream*)) {
  const argument buffer = f.any(which), stream = f.any(kind::stream);
  return call(buffer, stream);
}

// -- Copies between buffers ----------------------------------------------------------------------

inline pinlane_status device_buffer_upload(frame& f) {
  const argument stream = f.any(kind::stream), from = f.any(kind::buffer), to = f.any(kind::gpu);
  const part p = f.some_part(f.w.size_of(kind::buffer, from), f.w.size_of(kind::gpu, to));
  f.on_one_device(stream, to);
  const contents moved = f.known(kind::buffer, from, p.from, p.bytes);
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_device_buffer_upload(stream, from, p.from, to, p.to, p.bytes, ticket);
  f.wrote(status, kind::gpu, to, p.to, moved);
  return status;
}

inline pinlane_status device_buffer_download(frame& f) {
  const argument stream = f.any(kind::stream), from = f.any(kind::gpu), to = f.any(kind::buffer);
  const part p = f.some_part(f.w.size_of(kind::gpu, from), f.w.size_of(kind::buffer, to));
  f.on_one_device(stream, from);
  const contents moved = f.known(kind::gpu, from, p.from, p.bytes);
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_device_buffer_download(stream, from, p.from, to, p.to, p.bytes, ticket);
  f.wrote(status, kind::buffer, to, p.to, moved);
  return status;
}

inline pinlane_status device_buffer_copy(frame& f) {
  const argument stream = f.any(kind::stream), from = f.any(kind::gpu), to = f.any(kind::gpu);
  const part p = f.some_part(f.w.size_of(kind::gpu, from), f.w.size_of(kind::gpu, to));
  f.must_fail |= from.value == to.value;
  const contents moved = f.known(kind::gpu, from, p.from, p.bytes);
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_device_buffer_copy(stream, from, p.from, to, p.to, p.bytes, ticket);
  f.wrote(status, kind::gpu, to, p.to, moved);
  return status;
}

inline pinlane_status device_buffer_fill(frame& f) {
  const argument stream = f.any(kind::stream), to = f.any(kind::gpu);
  const std::size_t lengths[] = {1, 2, 3, 4, 8, 64, 65, 0};
  const std::size_t length = lengths[f.in.below(8)];
  std::vector<std::uint8_t> pattern(66);
  for (std::uint8_t& each : pattern) {
    each = f.in.byte();
  }
  const std::uint8_t* const given = f.in.rarely(8) ? nullptr : f.array(pattern);
  f.must_fail |= given == nullptr;
  const std::size_t size = f.w.size_of(kind::gpu, to);
  f.on_one_device(stream, to);
  part p = f.some_part(size);
  if (length > 0 && !f.in.rarely(12) && lies_within(p.to, p.bytes, size)) {
    p.bytes -= p.bytes % length;
  }
  // For 0 bytes any pattern is right.
  f.must_fail |= p.bytes > 0 && (length == 0 || length > 64 || p.bytes % length != 0);
  contents filled;
  for (std::size_t index = 0; !f.must_fail && index < p.bytes; ++index) {
    filled.push_back(pattern[index % length]);
  }
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_device_buffer_fill(stream, to, p.to, p.bytes, given, length, ticket);
  f.wrote(status, kind::gpu, to, p.to, filled);
  return status;
}

/// The checksum if all bytes are known; otherwise unknown bytes.
inline contents checksum_of(const contents& bytes) {
  std::vector<std::uint8_t> plain;
  for (const std::int16_t each : bytes) {
    if (each == unknown) {
      return contents(8, unknown);
    }
    plain.push_back(static_cast<std::uint8_t>(each));
  }
  std::uint64_t sum = 0;
  require_ok(pinlane_checksum(plain.data(), plain.size(), &sum), "no checksum");
  contents result;
  for (int byte = 0; byte < 8; ++byte) {
    result.push_back(static_cast<std::uint8_t>(sum >> (8 * byte)));
  }
  return result;
}

inline pinlane_status device_buffer_checksum(frame& f) {
  const argument stream = f.any(kind::stream), from = f.any(kind::gpu), to = f.any(kind::gpu);
  const std::size_t size = f.w.size_of(kind::gpu, from), to_size = f.w.size_of(kind::gpu, to);
  f.on_one_device(stream, from);
  f.on_one_device(stream, to);
  const part p = f.some_part(size);
  const std::size_t at = f.in.rarely(16) ? f.in.byte() : 8 * f.in.below(to_size / 8);
  const bool is_aligned = at % 8 == 0 && f.w.off_of(to) == 0;
  f.must_fail |= from.value == to.value || !is_aligned || !lies_within(at, 8, to_size);
  const contents summed = f.must_fail || f.w.threaded
                              ? contents(8, unknown)
                              : checksum_of(f.known(kind::gpu, from, p.to, p.bytes));
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_device_buffer_checksum(stream, from, p.to, p.bytes, to, at, ticket);
  f.wrote(status, kind::gpu, to, at, summed);
  return status;
}

inline pinlane_status checksum(frame& f) {
  const std::size_t bytes = f.in.below(f.pageable.size());
  const bool none = f.in.rarely(8), impossible = f.in.rarely(8);
  f.must_fail |= impossible || (none && bytes > 0);
  auto* const sum = f.out<std::uint64_t>();
  return pinlane_checksum(none ? nullptr : f.pageable.data(),
                          impossible ? f.impossible_size() : bytes, sum);
}

// -- The caller's own work -----------------------------------------------------------------------

inline pinlane_status foreign_begin(frame& f) {
  const argument stream = f.any(kind::stream);
  std::vector<pinlane_use> uses(f.in.below(4));
  for (pinlane_use& use : uses) {
    use = {};
    const std::uint8_t choice = f.in.byte();
    if (choice < 128 || choice >= 252) {
      use.buffer = f.or_null(kind::buffer);
    }
    if (choice >= 128) {
      use.device_buffer = f.or_null(kind::gpu);
    }
    f.must_fail |= (use.buffer == nullptr) == (use.device_buffer == nullptr);
    use.access = choice % 2;
    if (f.in.rarely(8)) {
      use.access = 2;
      f.must_fail = true;
    } else if (f.in.rarely(8)) {
      use.flags = 1;
      f.must_fail = true;
    }
  }
  const pinlane_use* const given = f.array(uses);
  {
    // Another thread may try to end it, and cannot: its buffers stay borrowed.
    const std::lock_guard<std::mutex> guard(f.w.lock);
    const object* const found = f.w.find(kind::stream, stream);
    if (f.w.calm && found != nullptr && found->is_of_one_thread) {
      f.must_fail = false;
      return PINLANE_STATUS_OK;
    }
  }
  return pinlane_foreign_begin(stream, given, uses.size(), f.made<pinlane_foreign>(kind::foreign));
}

inline pinlane_status foreign_end(frame& f) {
  const argument foreign = f.or_null(kind::foreign);
  const bool wrong = f.must_fail;
  auto** const ticket = f.ticket();
  const bool misaligned = f.must_fail && !wrong;
  if (foreign.value == nullptr) { // nothing to do, whatever the ticket
    f.must_fail = false;
    f.made_nothing();
    return pinlane_foreign_end(nullptr, ticket);
  }
  const pinlane_status status = pinlane_foreign_end(foreign, ticket);
  const bool not_ended = wrong || misaligned || status == PINLANE_STATUS_BUSY ||
                         status == PINLANE_STATUS_INVALID_HANDLE;
  if (!not_ended) {
    // If its uses cannot be recorded, as in a capture, its buffers may stay borrowed forever.
    f.w.faulty = f.w.faulty || status != PINLANE_STATUS_OK;
    f.freed(PINLANE_STATUS_OK, kind::foreign, foreign);
  }
  return status;
}
