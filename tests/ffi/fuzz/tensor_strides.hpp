// Tensors with gaps as buffers and rows.

#pragma once

#include "tensor_imports.hpp"

/// Where the bytes of a tensor lie behind its first element, in the order of its elements.
inline std::vector<std::size_t> places_of(const dl_tensor& view, std::size_t element) {
  std::vector<std::size_t> places{0};
  for (std::int32_t number = 0; number < view.ndim; ++number) {
    std::vector<std::size_t> all;
    for (const std::size_t place : places) {
      for (std::int64_t at = 0; at < view.shape[number]; ++at) {
        all.push_back(place + static_cast<std::size_t>(at * view.strides[number]) * element);
      }
    }
    places = std::move(all);
  }
  std::vector<std::size_t> bytes;
  for (const std::size_t place : places) {
    for (std::size_t byte = 0; byte < element; ++byte) {
      bytes.push_back(place + byte);
    }
  }
  return bytes;
}

/// Where the bytes of rows lie, in their order.
inline std::vector<std::size_t> places_of(const pinlane_strided& rows) {
  std::vector<std::size_t> places;
  for (std::size_t plane = 0; plane < rows.planes; ++plane) {
    for (std::size_t row = 0; row < rows.rows; ++row) {
      for (std::size_t byte = 0; byte < rows.row_bytes; ++byte) {
        places.push_back(plane * rows.plane_pitch + row * rows.pitch + byte);
      }
    }
  }
  return places;
}

/// Makes one error in the strides of planes of rows, which the import must refuse.
inline void spoil_strides(frame& f, own_tensor& own) {
  std::vector<std::int64_t>&shape = own.shape, &strides = own.strides;
  switch (f.in.below(5)) {
  case 0: // backwards
    strides[1] = -strides[1];
    f.must_fail |= shape[1] > 1;
    break;
  case 1: // the same plane again
    strides[0] = 0;
    f.must_fail |= shape[0] > 1;
    break;
  case 2: // the same element again
    strides[2] = 0;
    f.must_fail |= shape[2] > 1;
    break;
  case 3: // rows that overlap
    strides[1] = shape[2] - 1;
    f.must_fail |= shape[1] > 1;
    break;
  default: // more dimensions than rows have
    shape = {2, 2, 2, 2};
    strides = {100, 30, 9, 1};
    f.must_fail = true;
    break;
  }
}

/// Lengths and distances, from the outermost dimension on.
struct grid {
  std::vector<std::size_t> shape, strides;
};

/// Planes of rows, most of them with gaps.
inline grid some_rows(frame& f) {
  const std::size_t row = 1 + f.in.below(20), rows = 1 + f.in.below(4), planes = 1 + f.in.below(3);
  const std::size_t gap = f.in.below(5), wide = f.in.below(9);
  std::size_t pitch = row + gap, plane_pitch = pitch * rows + wide;
  if (f.in.byte() % 4 == 3) { // interleaved
    plane_pitch = pitch;
    pitch = pitch * planes + wide;
  }
  return {{planes, rows, row}, {plane_pitch, pitch, 1}};
}

/// Elements that lie apart, in one dimension or in two, of which either may be the denser one.
inline grid some_elements(frame& f) {
  const std::size_t row = 1 + f.in.below(20), rows = 1 + f.in.below(4), gap = f.in.below(5);
  const std::size_t step = 2 + f.in.below(5);
  switch (f.in.byte() % 3) {
  case 0:
    return {{row}, {step}};
  case 1:
    return {{rows, row}, {(row - 1) * step + 1 + gap, step}};
  default: // transposed
    return {{row, rows}, {1, row + gap}};
  }
}

/// Adds dimensions of length 1, whose strides have no meaning, or makes the tensor an empty one,
/// whose strides have none either.
inline void add_odd_dimensions(frame& f, own_tensor& own) {
  const std::int64_t odd[] = {0, 1, 7, -1, INT64_MIN, INT64_MAX};
  while (f.in.byte() % 4 == 3) {
    const auto at = static_cast<std::ptrdiff_t>(f.in.below(own.shape.size() + 1));
    own.shape.insert(own.shape.begin() + at, 1);
    own.strides.insert(own.strides.begin() + at, odd[f.in.below(6)]);
  }
  if (f.in.rarely(16)) {
    own.shape[f.in.below(own.shape.size())] = 0;
    own.strides[f.in.below(own.shape.size())] = odd[f.in.below(6)];
    own.bytes = 0;
    f.must_fail = false;
  }
}

/// Lays a tensor without an error out with gaps, if there is room.
inline void spread(frame& f, own_tensor& own) {
  dl_tensor& view = own.versioned.tensor;
  const bool is_padded = (own.versioned.flags & dl_padded) != 0;
  const bool is_whole = is_padded || element_bits(view.type) % 8 == 0;
  const std::size_t element = bytes_of(view.type, 1, true);
  const grid laid = f.in.byte() % 3 == 2 ? some_elements(f) : some_rows(f);
  std::size_t length = 1, count = 1;
  for (std::size_t at = 0; at < laid.shape.size(); ++at) {
    length += (laid.shape[at] - 1) * laid.strides[at];
    count *= laid.shape[at];
  }
  if (length * element > own.room) {
    return;
  }
  own.shape.assign(laid.shape.begin(), laid.shape.end());
  own.strides.assign(laid.strides.begin(), laid.strides.end());
  own.bytes = is_whole ? length * element : bytes_of(view.type, count, false);
  if (!is_whole) {
    const std::vector<std::int64_t> tight = compact(own.shape);
    for (std::size_t at = 0; at < tight.size(); ++at) {
      f.must_fail |= own.shape[at] > 1 && own.strides[at] != tight[at];
    }
  } else if (own.shape.size() == 3 && f.in.rarely(48)) {
    spoil_strides(f, own);
  }
  add_odd_dimensions(f, own);
  view.ndim = static_cast<std::int32_t>(own.shape.size());
  view.shape = own.shape.data();
  view.strides = own.strides.data();
}

/// A tensor that `make()` makes, mostly as rows if that has made no error in it.
template <class Make>
std::shared_ptr<own_tensor> make_rows(frame& f, Make make) {
  const bool failed = std::exchange(f.must_fail, false);
  const std::shared_ptr<own_tensor> own = make();
  if (!f.must_fail && own->bytes > 0 && f.in.byte() % 4 != 0) {
    spread(f, *own);
  }
  f.must_fail |= failed;
  return own;
}

/// Checks the rows that an import has found.
inline void check_rows(const own_tensor& own, const pinlane_strided& rows) {
  const dl_tensor& view = own.versioned.tensor;
  const bool is_padded = (own.versioned.flags & dl_padded) != 0;
  const bool is_whole = is_padded || element_bits(view.type) % 8 == 0;
  if (own.bytes == 0 || view.strides == nullptr || !is_whole) {
    const bool is_one = rows.row_bytes == own.bytes && rows.rows == 1 && rows.planes == 1;
    require(is_one, "a tensor without gaps is not one row");
    return;
  }
  const std::size_t element = bytes_of(view.type, 1, true);
  require(places_of(rows) == places_of(view, element), "the rows are not those of the tensor");
}

inline pinlane_status buffer_from_dlpack_strided(frame& f) {
  const argument device = f.any(kind::device);
  const auto own = make_rows(f, [&] { return make_host_tensor(f); });
  object about;
  about.was_tensor = true;
  about.made_of = own;
  about.device = f.w.device_of(kind::device, device);
  const std::uint8_t* const first = own->memory.get() + own->at;
  about.bytes.assign(first, first + own->bytes);
  auto** const out = f.made<pinlane_buffer>(kind::buffer);
  auto* const rows = f.out<pinlane_strided>();
  f.made_as(std::move(about));
  const pinlane_status status = give_own(own, [&](own_tensor* given) {
    return pinlane_buffer_from_dlpack_strided(device, &given->versioned, out, rows);
  });
  if (status == PINLANE_STATUS_OK) {
    check_rows(*own, *rows);
  }
  return status;
}

/// A tensor that is only read. The buffer goes again at once.
inline pinlane_status buffer_from_dlpack_read_only_strided(frame& f) {
  const argument device = f.any(kind::device);
  const bool failed = f.must_fail;
  const auto own = make_rows(f, [&] { return make_host_tensor(f); });
  if ((own->versioned.flags & dl_read_only) != 0) {
    f.must_fail = failed; // no error here
  } else if (f.in.byte() % 2 == 0) {
    own->versioned.flags |= dl_read_only;
  }
  auto** const out = f.out<pinlane_buffer*>();
  auto* const rows = f.out<pinlane_strided>();
  const pinlane_status status = give_own(own, [&](own_tensor* given) {
    return pinlane_buffer_from_dlpack_read_only_strided(device, &given->versioned, out, rows);
  });
  if (status == PINLANE_STATUS_OK) {
    check_rows(*own, *rows);
    require(pinlane_buffer_free(*out) == PINLANE_STATUS_OK, "a tensor's buffer is not freed");
  }
  return status;
}

inline pinlane_status device_buffer_from_dlpack_strided(frame& f) {
  const argument stream = f.any(kind::stream);
  auto** const out = f.made<pinlane_device_buffer>(kind::gpu);
  auto* const rows = f.out<pinlane_strided>();
  object about;
  about.device = f.w.device_of(kind::stream, stream);
  about.was_tensor = true;
  std::uint8_t* const memory = about.device == 0 ? part_to_lend(f.w) : nullptr;
  if (memory == nullptr) {
    f.must_fail = true;
    return pinlane_device_buffer_from_dlpack_strided(stream, nullptr, out, rows);
  }
  const std::int32_t place = f.in.rarely(8) ? dl_cuda : dl_extension;
  const std::size_t bytes = f.in.below(lent_part_bytes);
  const auto own = make_rows(f, [&] { return make_tensor(f, memory, bytes, {place, 0}); });
  f.must_fail |= place != dl_extension;
  about.made_of = own;
  about.bytes.assign(own->bytes, unknown);
  f.made_as(std::move(about));
  const pinlane_status status = give_own(own, [&](own_tensor* given) {
    return pinlane_device_buffer_from_dlpack_strided(stream, &given->versioned, out, rows);
  });
  if (status == PINLANE_STATUS_OK) {
    check_rows(*own, *rows);
  }
  return status;
}
