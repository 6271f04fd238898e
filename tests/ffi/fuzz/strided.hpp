// Copies of rows that lie a pitch apart.

#pragma once

#include "rows.hpp"

/// The rows of one side, in the call's form and in the model's.
struct side_rows {
  /// NULL: all bytes of the side.
  const pinlane_strided* given = nullptr;
  pinlane_strided raw{};
  /// Where the bytes lie in the side, in the order of the copy. Only if they lie there.
  std::vector<std::size_t> places;

  [[nodiscard]] bool is_empty() const {
    return raw.row_bytes == 0 || raw.rows == 0 || raw.planes == 0;
  }
  [[nodiscard]] bool is_dense() const {
    return (raw.rows == 1 || raw.pitch == raw.row_bytes) &&
           (raw.planes == 1 || raw.plane_pitch == raw.row_bytes * raw.rows);
  }
  [[nodiscard]] bool has_shape_of(const side_rows& other) const {
    return raw.row_bytes == other.raw.row_bytes && raw.rows == other.raw.rows &&
           raw.planes == other.raw.planes;
  }
};

/// Rows of this shape, mostly, in a side of `bytes` bytes, which the call must refuse if they do
/// not lie there or overlap.
inline side_rows some_side(frame& f, pinlane_strided shape, std::size_t bytes) {
  side_rows chosen;
  if (f.in.rarely(40)) {
    chosen.raw = {bytes, 1, 0, 1, 0};
    for (std::size_t at = 0; at < bytes; ++at) {
      chosen.places.push_back(at);
    }
    return chosen;
  }
  if (f.in.rarely(10)) {
    std::size_t* const members[] = {&shape.row_bytes, &shape.rows, &shape.planes};
    *members[f.in.below(3)] = f.in.below(4);
  }
  const std::size_t gap = f.in.byte() % 2 == 0 ? 0 : f.in.below(9), wide = f.in.below(17);
  shape.pitch = shape.row_bytes + gap;
  shape.plane_pitch = shape.pitch * shape.rows + (f.in.byte() % 2 == 0 ? 0 : wide);
  if (f.in.rarely(30)) { // interleaved
    shape.plane_pitch = shape.pitch;
    shape.pitch = shape.pitch * shape.planes + wide;
  }
  if (f.in.rarely(10)) {
    const std::size_t odd[] = {0, 1, SIZE_MAX, SIZE_MAX / 2};
    (f.in.byte() % 2 == 0 ? shape.pitch : shape.plane_pitch) = odd[f.in.below(4)];
  }
  chosen.raw = shape;
  chosen.given = f.array(std::vector<pinlane_strided>{shape});
  chosen.raw.planes = std::max<std::size_t>(shape.planes, 1); // 0 means 1
  const pinlane_strided& rows = chosen.raw;
  std::vector<bool> taken(bytes);
  for (std::size_t plane = 0; plane < rows.planes && !chosen.is_empty(); ++plane) {
    for (std::size_t row = 0; row < rows.rows; ++row) {
      for (std::size_t byte = 0; byte < rows.row_bytes; ++byte) {
        const bool far = (plane > 0 && rows.plane_pitch > bytes) || (row > 0 && rows.pitch > bytes);
        const std::size_t at = far ? bytes
                                   : (plane > 0 ? plane * rows.plane_pitch : 0) +
                                         (row > 0 ? row * rows.pitch : 0) + byte;
        if (at >= bytes || taken[at]) {
          f.must_fail = true;
          chosen.places.clear();
          return chosen;
        }
        taken[at] = true;
        chosen.places.push_back(at);
      }
    }
  }
  return chosen;
}

/// A shape of a few rows.
inline pinlane_strided some_shape(frame& f) {
  pinlane_strided shape{};
  shape.row_bytes = 1 + f.in.below(24);
  shape.rows = 1 + f.in.below(5);
  shape.planes = 1 + f.in.below(3);
  return shape;
}

/// The rows of both sides, which the call must refuse if they do not match.
struct both_rows {
  side_rows from, to;
};

inline both_rows some_strides(frame& f, std::size_t from_bytes, std::size_t to_bytes) {
  const pinlane_strided shape = some_shape(f);
  both_rows rows{some_side(f, shape, from_bytes), some_side(f, shape, to_bytes)};
  const side_rows &from = rows.from, &to = rows.to;
  if (from.is_empty() && to.is_empty()) {
    return rows;
  }
  const bool as_many = from.places.size() == to.places.size();
  const bool match = !from.is_empty() && !to.is_empty() &&
                     (from.has_shape_of(to) || (as_many && (from.is_dense() || to.is_dense())));
  f.must_fail |= !match;
  return rows;
}

/// The destination after the copy. A refused call needs only its length.
inline contents moved_rows(const frame& f, const both_rows& rows, const contents& source,
                           contents destination) {
  const std::size_t count =
      f.must_fail ? 0 : std::min(rows.from.places.size(), rows.to.places.size());
  for (std::size_t at = 0; at < count; ++at) {
    if (rows.from.places[at] < source.size() && rows.to.places[at] < destination.size()) {
      destination[rows.to.places[at]] = source[rows.from.places[at]];
    }
  }
  return destination;
}

inline pinlane_status some_strided_copy(frame& f, bool up) {
  const argument stream = f.any(kind::stream);
  const chosen_tables tables = some_tables(f, stream, 1);
  const two_tables& side = tables.layers.front();
  const both_rows rows =
      some_strides(f, up ? side.host_bytes : side.gpu_bytes, up ? side.gpu_bytes : side.host_bytes);
  const pinlane_layer* const given = layers_of(f, tables, up);
  const contents on_host = side.memory != nullptr
                               ? bytes_at(side.memory, side.host_bytes)
                               : f.known(kind::buffer, side.buffer, side.host_at, side.host_bytes);
  const contents on_device = f.known(kind::gpu, side.gpu, side.gpu_at, side.gpu_bytes);
  const contents &source = up ? on_host : on_device, &before = up ? on_device : on_host;
  contents bytes = moved_rows(f, rows, source, before);
  std::vector<arrival> arrivals;
  if (up) {
    arrivals.push_back({side.gpu.value, side.gpu_at, nullptr, std::move(bytes)});
  } else {
    arrivals.push_back({side.buffer.value, side.host_at, side.memory, std::move(bytes)});
  }
  auto** const ticket = f.ticket();
  const auto call = up ? pinlane_upload_strided : pinlane_download_strided;
  const pinlane_status status = call(stream, given, rows.from.given, rows.to.given, ticket);
  arrived(f, status, up ? kind::gpu : kind::buffer, arrivals);
  return status;
}

inline pinlane_status upload_strided(frame& f) { return some_strided_copy(f, true); }
inline pinlane_status download_strided(frame& f) { return some_strided_copy(f, false); }

inline pinlane_status device_buffer_copy_strided(frame& f) {
  const argument stream = f.any(kind::stream), from = f.any(kind::gpu), to = f.any(kind::gpu);
  const std::size_t from_size = f.w.size_of(kind::gpu, from), to_size = f.w.size_of(kind::gpu, to);
  const std::size_t from_at = f.in.below(std::min<std::size_t>(from_size, 200) + 1);
  const std::size_t to_at = f.in.below(std::min<std::size_t>(to_size, 200) + 1);
  const std::size_t from_bytes = std::min<std::size_t>(from_size - from_at, 2000);
  const std::size_t to_bytes = std::min<std::size_t>(to_size - to_at, 2000);
  f.must_fail |= from.value == to.value;
  const both_rows rows = some_strides(f, from_bytes, to_bytes);
  const contents source = f.known(kind::gpu, from, from_at, from_bytes);
  const contents before = f.known(kind::gpu, to, to_at, to_bytes);
  const contents bytes = moved_rows(f, rows, source, before);
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_device_buffer_copy_strided(stream, from, from_at, from_bytes, rows.from.given, to,
                                         to_at, to_bytes, rows.to.given, ticket);
  f.wrote(status, kind::gpu, to, to_at, bytes);
  return status;
}
