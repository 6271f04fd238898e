// Copies of parts by arrays of offsets.

#pragma once

#include "strided.hpp"

/// The arrays in the call's form, and where their bytes lie on both sides.
struct some_parts {
  const pinlane_parts* given = nullptr;
  both_rows bytes;
};

/// Parts, mostly in sides of so many bytes, which the call must refuse if they do not lie there or
/// if they overlap where they are written.
inline some_parts parts_of(frame& f, std::size_t from_bytes, std::size_t to_bytes) {
  some_parts chosen;
  pinlane_parts raw{};
  raw.unit = f.in.below(4);
  raw.count = f.in.below(6);
  const bool equal = f.in.byte() % 2 == 0;
  raw.length = f.in.below(9);
  const std::size_t unit = std::max<std::size_t>(raw.unit, 1);
  std::vector<std::size_t> from, to, lengths;
  std::vector<bool> taken(to_bytes);
  std::size_t next = 0;
  for (std::size_t part = 0; part < raw.count; ++part) {
    const std::size_t length = equal ? raw.length : f.in.below(9);
    from.push_back(f.in.rarely(5) ? SIZE_MAX - f.in.below(9) : f.in.below(from_bytes / unit + 1));
    next += f.in.rarely(10) ? SIZE_MAX : f.in.below(3);
    to.push_back(next);
    lengths.push_back(length);
    next += length;
    const auto lies = [&](std::size_t at, std::size_t bytes) {
      return at <= bytes / unit && length <= bytes / unit - at;
    };
    if (!lies(from.back(), from_bytes) || !lies(to.back(), to_bytes)) {
      f.must_fail = true;
      continue;
    }
    for (std::size_t at = 0; at < length * unit; ++at) {
      const std::size_t place = to.back() * unit + at;
      f.must_fail |= taken[place];
      taken[place] = true;
      chosen.bytes.from.places.push_back(from.back() * unit + at);
      chosen.bytes.to.places.push_back(place);
    }
  }
  raw.from = f.array(from);
  raw.to = f.array(to);
  raw.lengths = equal ? nullptr : f.array(lengths);
  if (!equal && raw.count == 0) {
    raw.length = 0;
  }
  chosen.given = f.array(std::vector<pinlane_parts>{raw});
  return chosen;
}

inline pinlane_status some_copy_of_parts(frame& f, bool up) {
  const argument stream = f.any(kind::stream);
  const chosen_tables tables = some_tables(f, stream, 1);
  const two_tables& side = tables.layers.front();
  const some_parts parts =
      parts_of(f, up ? side.host_bytes : side.gpu_bytes, up ? side.gpu_bytes : side.host_bytes);
  const pinlane_layer* const given = layers_of(f, tables, up);
  const contents on_host = side.memory != nullptr
                               ? bytes_at(side.memory, side.host_bytes)
                               : f.known(kind::buffer, side.buffer, side.host_at, side.host_bytes);
  const contents on_device = f.known(kind::gpu, side.gpu, side.gpu_at, side.gpu_bytes);
  const contents &source = up ? on_host : on_device, &before = up ? on_device : on_host;
  contents bytes = moved_rows(f, parts.bytes, source, before);
  std::vector<arrival> arrivals;
  if (up) {
    arrivals.push_back({side.gpu.value, side.gpu_at, nullptr, std::move(bytes)});
  } else {
    arrivals.push_back({side.buffer.value, side.host_at, side.memory, std::move(bytes)});
  }
  auto** const ticket = f.ticket();
  const auto call = up ? pinlane_upload_parts : pinlane_download_parts;
  const pinlane_status status = call(stream, given, parts.given, nullptr, ticket);
  arrived(f, status, up ? kind::gpu : kind::buffer, arrivals);
  return status;
}

inline pinlane_status upload_parts(frame& f) { return some_copy_of_parts(f, true); }
inline pinlane_status download_parts(frame& f) { return some_copy_of_parts(f, false); }
