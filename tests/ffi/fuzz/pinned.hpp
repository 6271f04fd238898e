// Copies of memory of a pool that is known by its address only, and device memory that is lent.

#pragma once

#include "copies.hpp"

/// Memory of a pool, or other memory, which the call must refuse unless there are 0 bytes. Memory
/// that is page-locked on another machine is not page-locked on the stream's.
inline std::uint8_t* some_pinned(frame& f, const void* stream, std::size_t bytes) {
  const int device = f.w.device_of(kind::stream, stream);
  const std::lock_guard<std::mutex> guard(f.w.lock);
  const std::uint8_t choice = f.in.byte();
  const std::size_t count = f.w.allocated.size();
  if (count == 0 || choice >= 232) {
    f.must_fail |= bytes > 0;
    void* const wrong[] = {nullptr, f.pageable.data(), f.w.raw_address};
    return static_cast<std::uint8_t*>(wrong[choice % 3]);
  }
  const raw_memory& chosen = f.w.allocated[choice % count];
  // A block may be larger than the request.
  const bool fits = bytes <= chosen.bytes;
  f.must_fail |= bytes > 0 && device >= 0 && chosen.device >= 0 &&
                 machine_of(device) != machine_of(chosen.device);
  f.may_refuse |= !fits;
  f.must_fail |= bytes > std::size_t{1} << 40;
  return static_cast<std::uint8_t*>(chosen.address) +
         f.in.below(fits ? chosen.bytes - bytes + 1 : 1);
}

/// A number of bytes: sometimes larger than any allocation.
inline std::size_t some_length(frame& f, std::size_t most) {
  return f.in.rarely(12) ? f.impossible_size() : f.in.below(most + 1);
}

inline pinlane_status upload_pinned(frame& f) {
  const argument stream = f.any(kind::stream);
  const std::size_t bytes = some_length(f, 600);
  std::uint8_t* const from = some_pinned(f, stream, bytes);
  const raw_part raw = some_address(f, stream, bytes);
  auto** const ticket = f.ticket();
  return used_address(f, stream,
                      pinlane_upload_pinned(stream, from, raw.address, bytes, ticket));
}

inline pinlane_status download_pinned(frame& f) {
  const argument stream = f.any(kind::stream);
  const std::size_t bytes = some_length(f, 600);
  std::uint8_t* const to = some_pinned(f, stream, bytes);
  const raw_part raw = some_address(f, stream, bytes);
  auto** const ticket = f.ticket();
  return used_address(f, stream,
                      pinlane_download_pinned(stream, raw.address, to, bytes, ticket));
}

inline pinlane_status device_buffer_upload_pinned(frame& f) {
  const argument stream = f.any(kind::stream), to = f.any(kind::gpu);
  const part p = f.some_part(f.w.size_of(kind::gpu, to));
  f.on_one_device(stream, to);
  std::uint8_t* const from = some_pinned(f, stream, p.bytes);
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_device_buffer_upload_pinned(stream, from, to, p.to, p.bytes, ticket);
  const bool fits = lies_within(p.to, p.bytes, f.w.size_of(kind::gpu, to));
  f.wrote(status, kind::gpu, to, p.to, contents(fits ? p.bytes : 0, unknown));
  return status;
}

inline pinlane_status device_buffer_download_pinned(frame& f) {
  const argument stream = f.any(kind::stream), from = f.any(kind::gpu);
  const part p = f.some_part(f.w.size_of(kind::gpu, from));
  f.on_one_device(stream, from);
  std::uint8_t* const to = some_pinned(f, stream, p.bytes);
  auto** const ticket = f.ticket();
  return pinlane_device_buffer_download_pinned(stream, from, p.to, to, p.bytes, ticket);
}

// -- Device memory that is lent ------------------------------------------------------------------

constexpr std::size_t lent_parts = 16, lent_part_bytes = 512;

/// An unused part of the memory that the program lends. NULL if there is none left.
inline std::uint8_t* part_to_lend(world& w) {
  const std::lock_guard<std::mutex> guard(w.lock);
  return w.parts_lent == lent_parts ? nullptr
                                    : w.lent_address + lent_part_bytes * w.parts_lent++;
}

inline pinlane_status device_buffer_borrow(frame& f) {
  const argument device = f.any(kind::device);
  object about;
  about.device = f.w.device_of(kind::device, device);
  about.is_borrowed = true;
  std::size_t bytes = f.in.below(lent_part_bytes + 1);
  std::uint8_t* const memory = about.device == 0 ? part_to_lend(f.w) : nullptr;
  f.must_fail |= memory == nullptr && bytes > 0;
  if (f.in.rarely(12)) {
    bytes = f.impossible_size();
    f.must_fail = true;
  }
  auto** const out =
      f.made<pinlane_device_buffer>(kind::gpu, std::move(about), f.must_fail ? 0 : bytes, unknown);
  return pinlane_device_buffer_borrow(device, memory, bytes, out);
}
