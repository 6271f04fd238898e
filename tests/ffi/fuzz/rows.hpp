// Copies of rows, by their numbers.

#pragma once

#include "copies.hpp"

// -- Numbers -------------------------------------------------------------------------------------

/// The numbers of one side, in the call's form and in the model's.
struct chosen_rows {
  pinlane_indices raw = PINLANE_INDICES_INIT;
  /// NULL: all rows in their order.
  const pinlane_indices* given = nullptr;
  std::vector<std::uint64_t> rows;
  /// The model does not know the numbers.
  bool are_unknown = false;
  /// The call must refuse them, whatever the tables are.
  bool are_wrong = false;

  [[nodiscard]] std::size_t width() const { return raw.kind < PINLANE_INDEX_U64 ? 4 : 8; }
  [[nodiscard]] bool are_on_device() const { return raw.device_buffer != nullptr; }
  [[nodiscard]] bool are_promised() const { return raw.flags == PINLANE_INDICES_DISTINCT; }
  [[nodiscard]] std::uint64_t at(std::size_t index) const {
    return given == nullptr ? index : rows[index];
  }
  [[nodiscard]] bool come_twice() const {
    std::vector<std::uint64_t> sorted = rows;
    std::sort(sorted.begin(), sorted.end());
    return std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  }
  /// The numbers as bytes, low ones first.
  [[nodiscard]] std::vector<std::uint8_t> encoded() const {
    std::vector<std::uint8_t> bytes(rows.size() * width());
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      bytes[at] = static_cast<std::uint8_t>(rows[at / width()] >> at % width() * 8);
    }
    return bytes;
  }
  void decode(const contents& bytes) {
    are_unknown = std::find(bytes.begin(), bytes.end(), unknown) != bytes.end();
    for (std::size_t index = 0; index < rows.size() && !are_unknown; ++index) {
      std::uint64_t row = 0;
      for (std::size_t byte = width(); byte-- > 0;) {
        row = row << 8 | static_cast<std::uint64_t>(bytes[index * width() + byte]);
      }
      const bool is_negative = raw.kind == PINLANE_INDEX_I32 && row >> 31 != 0;
      rows[index] = is_negative ? row | UINT64_C(0xffffffff) << 32 : row;
    }
  }
};

/// Numbers of rows of a table that has `rows`, mostly.
inline std::vector<std::uint64_t> some_rows(frame& f, std::size_t count, std::size_t rows) {
  std::vector<std::uint64_t> chosen;
  const std::size_t first = f.in.below(rows), step = f.in.byte() % 4 != 0 ? 1 : f.in.below(rows);
  for (std::size_t index = 0; index < count; ++index) {
    chosen.push_back(rows == 0 ? 0 : (first + index * step) % rows);
  }
  if (count > 0 && f.in.rarely(12)) {
    const std::uint64_t outside[] = {rows, UINT64_MAX, UINT64_C(1) << 31};
    chosen[f.in.below(count)] = outside[f.in.below(3)];
  }
  return chosen;
}

/// Puts the numbers into host memory.
inline void put_on_host(frame& f, chosen_rows& chosen) {
  const std::vector<std::uint8_t> bytes = chosen.encoded();
  std::vector<std::uint8_t> room(bytes);
  room.push_back(0);
  const auto* const memory = f.array(room);
  const std::uint8_t strange = f.in.byte();
  chosen.raw.numbers = strange == 255 ? nullptr : memory + (strange == 254 ? 1 : 0);
  chosen.are_wrong |= strange >= 254 && !bytes.empty();
  if (strange == 253) {
    chosen.raw.count = f.impossible_size();
    chosen.are_wrong = true;
  }
  chosen.decode(contents(bytes.begin(), bytes.end()));
}

/// Uses numbers in device memory, mostly valid ones.
inline void put_on_device(frame& f, argument stream, chosen_rows& chosen) {
  const bool failed = std::exchange(f.must_fail, false);
  const argument gpu = f.any(kind::gpu);
  const bool is_wrong = std::exchange(f.must_fail, failed);
  const std::vector<std::uint8_t> bytes = chosen.encoded();
  const std::size_t size = f.w.size_of(kind::gpu, gpu);
  const bool fits = bytes.size() <= size;
  std::size_t at = fits ? f.in.below(size - bytes.size() + 1) : 0;
  at = f.in.rarely(12) ? at : at / 8 * 8;
  chosen.raw.device_buffer = gpu;
  chosen.raw.device_offset = at;
  if (gpu.value == nullptr) { // then they are in host memory, at NULL
    chosen.are_wrong |= !bytes.empty();
    return;
  }
  const std::size_t off = f.w.off_of(gpu) + at;
  chosen.are_wrong |= is_wrong || !fits || at % chosen.width() != 0 || off % chosen.width() != 0;
  if (!chosen.are_wrong && !f.w.threaded && f.depth == 0 && f.in.byte() % 4 != 0) {
    const pinlane_status sent =
        pinlane_device_buffer_upload_slice(stream, bytes.data(), gpu, at, bytes.size(), nullptr);
    f.wrote(sent, kind::gpu, gpu, at, contents(bytes.begin(), bytes.end()));
  }
  chosen.decode(f.known(kind::gpu, gpu, at, bytes.size()));
  if (f.in.rarely(4)) {
    chosen.raw.numbers = f.pageable.data(); // named twice
    chosen.are_wrong = true;
  }
}

/// Mostly `count` numbers of rows of a table that has `rows`.
inline chosen_rows some_numbers(frame& f, argument stream, std::size_t count, std::size_t rows) {
  chosen_rows chosen;
  if (f.in.rarely(24)) {
    return chosen;
  }
  chosen.raw.kind = f.in.rarely(6) ? (f.in.byte() % 2 == 0 ? 4 : -1) : f.in.byte() % 4;
  const std::uint8_t flags = f.in.byte();
  chosen.raw.flags = flags >= 250 ? 2 : flags >= 190 ? PINLANE_INDICES_DISTINCT : 0;
  chosen.are_wrong = chosen.raw.kind < 0 || chosen.raw.kind > 3 || flags >= 250;
  chosen.rows = some_rows(f, count + (f.in.rarely(8) ? 1 : 0), rows);
  chosen.raw.count = chosen.rows.size();
  if (f.in.byte() % 3 == 0) {
    put_on_device(f, stream, chosen);
  } else {
    put_on_host(f, chosen);
  }
  chosen.given = f.options(chosen.raw);
  if (chosen.given == nullptr) {
    return chosen_rows();
  }
  f.must_fail |= chosen.are_wrong;
  return chosen;
}

/// Reads numbers on the device again: those of the other side may have overwritten them.
inline void look_again(frame& f, chosen_rows& chosen) {
  if (chosen.given != nullptr && chosen.are_on_device() && !chosen.are_wrong) {
    const std::size_t bytes = chosen.rows.size() * chosen.width();
    chosen.decode(f.known(kind::gpu, chosen.raw.device_buffer, chosen.raw.device_offset, bytes));
  }
}

// -- Tables --------------------------------------------------------------------------------------

/// The tables of a layer: on the host and on the device.
struct two_tables {
  argument buffer, gpu;
  std::uint8_t* memory; // NULL: in a page-locked buffer
  std::size_t host_at, host_bytes, gpu_at, gpu_bytes;
};

struct chosen_tables {
  std::vector<two_tables> layers;
  std::size_t row = 1, host_rows = 0, gpu_rows = 0;
};

/// Tables of some layers, of equal lengths mostly.
inline chosen_tables some_tables(frame& f, argument stream, std::size_t layers) {
  chosen_tables chosen;
  std::size_t host_most = f.pageable.size(), gpu_most = SIZE_MAX;
  const auto host_size = [&](const two_tables& layer) {
    return layer.memory != nullptr ? f.pageable.size() : f.w.size_of(kind::buffer, layer.buffer);
  };
  for (std::size_t number = 0; number < layers; ++number) {
    two_tables layer{{nullptr}, f.or_null(kind::gpu), nullptr, 0, 0, 0, 0};
    f.on_one_device(stream, layer.gpu);
    if (f.in.byte() % 2 == 0) {
      layer.buffer = f.or_null(kind::buffer);
    } else {
      layer.memory = f.pageable.data();
    }
    host_most = std::min(host_most, host_size(layer));
    gpu_most = std::min(gpu_most, f.w.size_of(kind::gpu, layer.gpu));
    chosen.layers.push_back(layer);
  }
  constexpr std::size_t most_rows = 40, most_bytes = 96;
  const std::size_t least = layers == 0 ? 0 : std::min(host_most, gpu_most);
  chosen.row = 1 + f.in.below(std::min(least, most_bytes));
  chosen.host_rows = f.in.below(std::min(host_most / chosen.row, most_rows) + 1);
  chosen.gpu_rows = layers == 0 ? 0 : f.in.below(std::min(gpu_most / chosen.row, most_rows) + 1);
  for (two_tables& layer : chosen.layers) {
    const std::size_t host = host_size(layer), gpu = f.w.size_of(kind::gpu, layer.gpu);
    layer.host_bytes = f.in.rarely(8) ? f.in.below(host + 1) : chosen.host_rows * chosen.row;
    layer.gpu_bytes = f.in.rarely(8) ? f.in.below(gpu + 1) : chosen.gpu_rows * chosen.row;
    layer.host_at = f.in.below(host - layer.host_bytes + 1);
    layer.gpu_at = f.in.below(gpu - layer.gpu_bytes + 1);
    if (layer.memory != nullptr) {
      layer.memory += layer.host_at;
    } else if (f.in.rarely(6)) {
      layer.host_at = f.in.byte() % 2 == 0 ? SIZE_MAX : host - layer.host_bytes + 1;
    }
    if (f.in.rarely(6)) {
      layer.gpu_at = f.in.byte() % 2 == 0 ? SIZE_MAX : gpu - layer.gpu_bytes + 1;
    }
    const bool is_pinned = layer.memory == nullptr;
    f.must_fail |= is_pinned && layer.buffer.value == nullptr && layer.host_bytes > 0;
    f.must_fail |= is_pinned && layer.buffer.value != nullptr &&
                   !lies_within(layer.host_at, layer.host_bytes, host);
    f.must_fail |= layer.gpu.value == nullptr && layer.gpu_bytes > 0;
    f.must_fail |= layer.gpu.value != nullptr && !lies_within(layer.gpu_at, layer.gpu_bytes, gpu);
  }
  return chosen;
}

/// The layers in the call's form.
inline const pinlane_layer* layers_of(frame& f, const chosen_tables& tables, bool up) {
  std::vector<pinlane_layer> layers;
  for (const two_tables& each : tables.layers) {
    pinlane_layer layer{};
    (up ? const_cast<void*&>(layer.src) : layer.dst) = each.memory;
    (up ? layer.src_bytes : layer.dst_bytes) = each.host_bytes;
    (up ? layer.dst_bytes : layer.src_bytes) = each.gpu_bytes;
    layer.buffer = each.buffer;
    layer.buffer_offset = each.memory == nullptr ? each.host_at : 0;
    layer.device_buffer = each.gpu;
    layer.device_offset = each.gpu_at;
    layer.pinned = f.in.rarely(2) ? f.pageable.data() : nullptr; // named twice, or no pool's
    f.must_fail |= layer.pinned != nullptr && (each.memory != nullptr ||
                                               each.buffer.value != nullptr || each.host_bytes > 0);
    layers.push_back(layer);
  }
  return f.array(layers);
}

// -- What must happen ----------------------------------------------------------------------------

/// One copy of rows, in either direction.
struct row_copy {
  bool up;
  const chosen_tables& tables;
  std::size_t row;
  const chosen_rows &from, &to;

  [[nodiscard]] std::size_t from_bytes(const two_tables& layer) const {
    return up ? layer.host_bytes : layer.gpu_bytes;
  }
  [[nodiscard]] std::size_t to_bytes(const two_tables& layer) const {
    return up ? layer.gpu_bytes : layer.host_bytes;
  }
  [[nodiscard]] std::size_t count() const {
    const chosen_rows& named = from.given != nullptr ? from : to;
    const bool all = named.given == nullptr;
    return all ? from_bytes(tables.layers.front()) / row : named.rows.size();
  }

  /// Whether there is nothing to copy, so that the numbers do not matter.
  [[nodiscard]] bool is_empty() const {
    const auto is_nothing = [](const two_tables& layer) {
      return layer.host_bytes == 0 && layer.gpu_bytes == 0;
    };
    return row == 0 ? std::all_of(tables.layers.begin(), tables.layers.end(), is_nothing)
                    : tables.layers.empty();
  }

  /// Whether the lengths and the numbers in host memory fit.
  [[nodiscard]] bool fits() const {
    if (is_empty() || row == 0) {
      return is_empty();
    }
    const two_tables& first = tables.layers.front();
    for (const two_tables& layer : tables.layers) {
      const bool same = layer.host_bytes == first.host_bytes && layer.gpu_bytes == first.gpu_bytes;
      if (!same || layer.host_bytes % row != 0 || layer.gpu_bytes % row != 0) {
        return false;
      }
    }
    const std::size_t from_rows = from_bytes(first) / row, to_rows = to_bytes(first) / row;
    const auto side_fits = [&](const chosen_rows& side, std::size_t rows) {
      if (side.given == nullptr) {
        return count() <= rows;
      }
      const auto is_outside = [&](std::uint64_t number) { return number >= rows; };
      const bool outside =
          std::find_if(side.rows.begin(), side.rows.end(), is_outside) != side.rows.end();
      return side.rows.size() == count() && (side.are_on_device() || !outside);
    };
    const bool same_count = from.given != nullptr || to.given != nullptr || from_rows == to_rows;
    const bool writes_twice = !to.are_on_device() && !to.are_promised() && to.come_twice();
    return same_count && side_fits(from, from_rows) && side_fits(to, to_rows) && !writes_twice;
  }

  /// The destination of a layer after the copy.
  [[nodiscard]] contents moved(const contents& source, contents destination) const {
    if (from.are_unknown || to.are_unknown) {
      std::fill(destination.begin(), destination.end(), unknown);
      return destination;
    }
    std::vector<bool> written(destination.size() / row);
    for (std::size_t index = 0; index < count(); ++index) {
      const std::uint64_t src = from.at(index), dst = to.at(index);
      if (src >= source.size() / row || dst >= written.size()) {
        continue;
      }
      for (std::size_t byte = 0; byte < row; ++byte) {
        destination[dst * row + byte] = written[dst] ? unknown : source[src * row + byte];
      }
      written[dst] = true;
    }
    return destination;
  }
};

/// What the model expects of a copy of rows.
inline std::vector<arrival> arrivals_of(frame& f, argument stream, const row_copy& copy) {
  f.must_fail |= !copy.fits();
  // The numbers on the device may name a row twice, and so may those of a broken promise.
  f.may_refuse |= copy.to.are_unknown || copy.to.come_twice();
  std::vector<arrival> arrivals;
  for (const two_tables& layer : copy.tables.layers) {
    const contents on_host = layer.memory != nullptr ? bytes_at(layer.memory, layer.host_bytes)
                                                     : f.known(kind::buffer, layer.buffer,
                                                               layer.host_at, layer.host_bytes);
    const contents on_device = f.known(kind::gpu, layer.gpu, layer.gpu_at, layer.gpu_bytes);
    const contents &source = copy.up ? on_host : on_device, &before = copy.up ? on_device : on_host;
    // A refused call needs no expected contents, only a length.
    contents bytes = f.must_fail || copy.is_empty() ? before : copy.moved(source, before);
    if (copy.up) {
      arrivals.push_back({layer.gpu.value, layer.gpu_at, nullptr, std::move(bytes)});
    } else {
      arrivals.push_back({layer.buffer.value, layer.host_at, layer.memory, std::move(bytes)});
    }
    for (const chosen_rows* side : {&copy.from, &copy.to}) {
      const bool same = side->given != nullptr && side->are_on_device() &&
                        side->raw.device_buffer == layer.gpu.value;
      f.must_fail |= copy.up && same;
      if (side->given != nullptr && side->are_on_device() && !copy.is_empty()) {
        f.on_one_device(stream, side->raw.device_buffer);
      }
    }
  }
  f.must_fail |= overlap(arrivals);
  return arrivals;
}

// -- The calls -----------------------------------------------------------------------------------

inline pinlane_status some_row_copy(frame& f, bool up) {
  const argument stream = f.any(kind::stream);
  const chosen_tables tables = some_tables(f, stream, 1);
  const two_tables& layer = tables.layers.front();
  const chosen_rows numbers = some_numbers(f, stream, tables.gpu_rows, tables.host_rows), all;
  f.must_fail |= numbers.given == nullptr;
  const std::size_t count = numbers.rows.size();
  f.must_fail |= count == 0 ? layer.gpu_bytes > 0 : layer.gpu_bytes % count != 0;
  const std::size_t row = count == 0 ? 1 : layer.gpu_bytes / count;
  const row_copy copy{up, tables, row, up ? numbers : all, up ? all : numbers};
  const std::vector<arrival> arrivals = arrivals_of(f, stream, copy);
  const pinlane_layer* const given = layers_of(f, tables, up);
  auto** const ticket = f.ticket();
  const auto call = up ? pinlane_upload_rows : pinlane_download_rows;
  const pinlane_status status = call(stream, given, numbers.given, ticket);
  arrived(f, status, up ? kind::gpu : kind::buffer, arrivals);
  return status;
}

inline pinlane_status upload_rows(frame& f) { return some_row_copy(f, true); }
inline pinlane_status download_rows(frame& f) { return some_row_copy(f, false); }

inline pinlane_status some_block_copy(frame& f, bool up) {
  const argument stream = f.any(kind::stream);
  const chosen_tables tables = some_tables(f, stream, f.in.below(4));
  const std::size_t from_rows = up ? tables.host_rows : tables.gpu_rows;
  const std::size_t to_rows = up ? tables.gpu_rows : tables.host_rows;
  const std::size_t count = f.in.below(from_rows == 0 ? 1 : to_rows + 1);
  chosen_rows from = some_numbers(f, stream, count, from_rows);
  const chosen_rows to = some_numbers(f, stream, count, to_rows);
  look_again(f, from);
  const std::size_t strange[] = {0, SIZE_MAX, tables.row + 1};
  const std::size_t row = f.in.rarely(8) ? strange[f.in.below(3)] : tables.row;
  const std::vector<arrival> arrivals = arrivals_of(f, stream, {up, tables, row, from, to});
  const pinlane_layer* const given = layers_of(f, tables, up);
  auto** const ticket = f.ticket();
  const auto call = up ? pinlane_upload_blocks : pinlane_download_blocks;
  const pinlane_status status =
      call(stream, given, tables.layers.size(), row, from.given, to.given, ticket);
  arrived(f, status, up ? kind::gpu : kind::buffer, arrivals);
  return status;
}

inline pinlane_status upload_blocks(frame& f) { return some_block_copy(f, true); }
inline pinlane_status download_blocks(frame& f) { return some_block_copy(f, false); }
