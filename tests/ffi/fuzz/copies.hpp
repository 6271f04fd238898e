// Calls on pageable memory, batches, files, and device memory by its address.

#pragma once

#include "buffers.hpp"

/// A part of the thread's pageable memory.
inline std::uint8_t* pageable_at(frame& f, std::size_t bytes) {
  return f.pageable.data() + f.in.below(f.pageable.size() - bytes + 1);
}

inline contents bytes_at(const std::uint8_t* memory, std::size_t bytes) {
  return contents(memory, memory + bytes);
}

/// The two sides of a copy of pageable memory: a part of a device buffer, and the same number of
/// bytes on the host.
struct slice {
  part p;
  std::uint8_t* host;
  std::size_t claimed;
};

inline slice some_slice(frame& f, const void* stream, const void* gpu) {
  f.on_one_device(stream, gpu);
  slice chosen{};
  chosen.p = f.any_part(f.pageable.size(), f.w.size_of(kind::gpu, gpu));
  const bool fits = lies_within(0, chosen.p.bytes, f.pageable.size());
  // The call assumes that there are this many bytes: either there are, or no memory is that long.
  chosen.claimed = fits ? chosen.p.bytes : f.impossible_size();
  f.must_fail |= !fits;
  chosen.p.bytes = fits ? chosen.p.bytes : 0;
  f.must_fail |= !lies_within(chosen.p.to, chosen.claimed, f.w.size_of(kind::gpu, gpu));
  chosen.host = pageable_at(f, chosen.p.bytes);
  if (f.in.rarely(8)) {
    chosen.host = nullptr;
    f.must_fail |= chosen.claimed > 0;
  }
  return chosen;
}

inline pinlane_status device_buffer_upload_slice(frame& f) {
  const argument stream = f.any(kind::stream), to = f.any(kind::gpu);
  const slice s = some_slice(f, stream, to);
  const contents moved = s.host == nullptr ? contents() : bytes_at(s.host, s.p.bytes);
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_device_buffer_upload_slice(stream, s.host, to, s.p.to, s.claimed, ticket);
  f.wrote(status, kind::gpu, to, s.p.to, moved);
  return status;
}

inline pinlane_status device_buffer_download_slice(frame& f) {
  const argument stream = f.any(kind::stream), from = f.any(kind::gpu);
  const slice s = some_slice(f, stream, from);
  const contents wanted = f.known(kind::gpu, from, s.p.to, s.p.bytes);
  const pinlane_status status =
      pinlane_device_buffer_download_slice(stream, from, s.p.to, s.host, s.claimed);
  if (status == PINLANE_STATUS_OK && s.p.bytes > 0) {
    f.compare(wanted, 0, s.host, s.p.bytes);
  }
  return status;
}

// -- Device memory that is named by its address --------------------------------------------------

constexpr std::size_t raw_bytes = 8192;

/// A part of the program's own device memory that only this call may use.
struct raw_part {
  void* address;
  std::unique_lock<std::mutex> alone;
};

/// The part that a call on `stream` may use, or NULL. The program orders its own memory: the stream
/// waits for all its previous uses.
inline raw_part some_address(frame& f, argument stream, std::size_t bytes) {
  raw_part part{nullptr, std::unique_lock<std::mutex>(f.w.raw_lock, std::try_to_lock)};
  if (f.w.device_of(kind::stream, stream) != 0 || bytes > raw_bytes || f.in.rarely(8)) {
    f.must_fail |= bytes > 0;
    return part;
  }
  const std::size_t at = f.in.below(raw_bytes - bytes + 1);
  if (!part.alone || f.w.raw_is_used_for_ever ||
      pinlane_device_buffer_acquire(f.w.raw, stream) != PINLANE_STATUS_OK) {
    f.must_fail |= bytes > 0;
    return part;
  }
  part.address = static_cast<std::uint8_t*>(f.w.raw_address) + at;
  return part;
}

/// Records that the stream uses the program's own memory up to here.
inline pinlane_status used_address(frame& f, argument stream, pinlane_status status) {
  if (!f.must_fail && (status == PINLANE_STATUS_OK || f.w.faulty)) {
    const pinlane_status recorded = pinlane_device_buffer_record_use(f.w.raw, stream);
    f.w.raw_is_used_for_ever |= recorded != PINLANE_STATUS_OK;
    if (status != PINLANE_STATUS_OK) {
      f.made_nothing();
      return PINLANE_STATUS_OK; // the message may be that of the second call
    }
  }
  return status;
}

inline pinlane_status upload(frame& f) {
  const argument stream = f.any(kind::stream), from = f.any(kind::buffer);
  const std::size_t size = f.w.size_of(kind::buffer, from);
  const part p = f.any_part(size, raw_bytes);
  f.must_fail |= !lies_within(p.from, p.bytes, size);
  const raw_part raw = some_address(f, stream, p.bytes);
  auto** const ticket = f.ticket();
  return used_address(f, stream,
                      pinlane_upload(stream, from, p.from, raw.address, p.bytes, ticket));
}

inline pinlane_status download(frame& f) {
  const argument stream = f.any(kind::stream), to = f.any(kind::buffer);
  const std::size_t size = f.w.size_of(kind::buffer, to);
  const part p = f.any_part(raw_bytes, size);
  f.must_fail |= !lies_within(p.to, p.bytes, size);
  const raw_part raw = some_address(f, stream, p.bytes);
  auto** const ticket = f.ticket();
  const pinlane_status status = pinlane_download(stream, raw.address, to, p.to, p.bytes, ticket);
  if (lies_within(0, p.bytes, raw_bytes)) {
    f.wrote(status, kind::buffer, to, p.to, contents(p.bytes, unknown));
  }
  return used_address(f, stream, status);
}

inline pinlane_status upload_slice(frame& f) {
  const argument stream = f.any(kind::stream);
  const std::size_t bytes = f.in.below(raw_bytes);
  const raw_part raw = some_address(f, stream, bytes);
  auto* const source = pageable_at(f, bytes);
  auto** const ticket = f.ticket();
  return used_address(f, stream,
                      pinlane_upload_slice(stream, source, raw.address, bytes, ticket));
}

inline pinlane_status download_slice(frame& f) {
  const argument stream = f.any(kind::stream);
  const std::size_t bytes = f.in.below(raw_bytes);
  const raw_part raw = some_address(f, stream, bytes);
  auto* const destination = pageable_at(f, bytes);
  return used_address(f, stream,
                      pinlane_download_slice(stream, raw.address, destination, bytes));
}

inline pinlane_status upload_file(frame& f) {
  const argument stream = f.any(kind::stream), file = f.any(kind::file);
  const std::size_t bytes = f.in.below(raw_bytes), at = f.in.below(2 * file_bytes);
  f.must_fail |= !lies_within(at, bytes, file_bytes);
  const raw_part raw = some_address(f, stream, bytes);
  auto** const ticket = f.ticket();
  return used_address(f, stream,
                      pinlane_upload_file(stream, file, at, raw.address, bytes, ticket));
}

// -- Files ---------------------------------------------------------------------------------------

inline contents bytes_of_file(std::size_t at, std::size_t bytes) {
  contents result;
  for (std::size_t index = at; lies_within(at, bytes, file_bytes) && index < at + bytes; ++index) {
    result.push_back(byte_of_file(index));
  }
  return result;
}

inline pinlane_status file_read(frame& f) {
  const argument file = f.any(kind::file), to = f.any(kind::buffer);
  const part p = f.some_part(file_bytes, f.w.size_of(kind::buffer, to));
  const pinlane_status status = pinlane_file_read(file, p.from, to, p.to, p.bytes);
  f.wrote(status, kind::buffer, to, p.to, bytes_of_file(p.from, p.bytes));
  return status;
}

inline pinlane_status device_buffer_upload_file(frame& f) {
  const argument stream = f.any(kind::stream), file = f.any(kind::file), to = f.any(kind::gpu);
  const part p = f.some_part(file_bytes, f.w.size_of(kind::gpu, to));
  f.on_one_device(stream, to);
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_device_buffer_upload_file(stream, file, p.from, to, p.to, p.bytes, ticket);
  f.wrote(status, kind::gpu, to, p.to, bytes_of_file(p.from, p.bytes));
  return status;
}

// -- Batches -------------------------------------------------------------------------------------

/// One destination of a batch, and its expected contents.
struct arrival {
  const void* handle; // NULL: pageable memory
  std::size_t at;
  std::uint8_t* memory;
  contents bytes;
  bool is_late = false; // the call does not wait for it
};

/// Whether two destinations overlap. Then the batch must be refused.
inline bool overlap(const std::vector<arrival>& all) {
  for (std::size_t one = 0; one < all.size(); ++one) {
    for (std::size_t two = 0; two < one; ++two) {
      const arrival &a = all[one], &b = all[two];
      const bool same = a.handle == b.handle && !a.bytes.empty() && !b.bytes.empty();
      const auto a_at = a.memory == nullptr ? a.at : reinterpret_cast<std::uintptr_t>(a.memory);
      const auto b_at = b.memory == nullptr ? b.at : reinterpret_cast<std::uintptr_t>(b.memory);
      if (same && a_at < b_at + b.bytes.size() && b_at < a_at + a.bytes.size()) {
        return true;
      }
    }
  }
  return false;
}

inline const pinlane_batch_options* some_route(frame& f) {
  pinlane_batch_options options = PINLANE_BATCH_OPTIONS_INIT;
  options.route = f.in.rarely(12) ? 4 : f.in.byte() % 4;
  options.flags = f.in.rarely(8) ? 1 : 0;
  const auto* const given = f.options(options);
  f.must_fail |= given != nullptr && (options.route == 4 || options.flags == 1);
  return given;
}

inline std::uint8_t* some_pinned(frame& f, const void* stream, std::size_t bytes);

/// A copy of memory of a pool by its address. Its contents are unknown.
inline void choose_pinned(frame& f, const void* stream, argument gpu, bool up, pinlane_copy& copy,
                          std::vector<arrival>& arrivals) {
  const std::size_t gpu_size = f.w.size_of(kind::gpu, gpu);
  const part p = f.any_part(600, gpu_size);
  const bool fits = lies_within(p.to, p.bytes, gpu_size);
  f.must_fail |= gpu.value == nullptr ? p.bytes > 0 : !fits;
  std::uint8_t* const memory = some_pinned(f, stream, p.bytes);
  copy.pinned = memory;
  copy.bytes = p.bytes;
  copy.device_buffer = gpu;
  copy.device_offset = p.to;
  contents bytes(fits ? p.bytes : 0, unknown);
  arrivals.push_back(up ? arrival{gpu.value, p.to, nullptr, std::move(bytes)}
                        : arrival{nullptr, 0, memory, std::move(bytes), true});
}

/// The copies of a batch between host and device. `up` is the direction.
inline std::vector<pinlane_copy> some_copies(frame& f, const void* stream, bool up,
                                             std::vector<arrival>& arrivals) {
  std::vector<pinlane_copy> copies(f.in.below(7));
  for (pinlane_copy& copy : copies) {
    copy = {};
    const argument gpu = f.or_null(kind::gpu);
    const std::uint8_t way = f.in.byte() % 3;
    if (way == 2) {
      f.on_one_device(stream, gpu);
      choose_pinned(f, stream, gpu, up, copy, arrivals);
      continue;
    }
    const bool pinned = way == 0;
    const argument buffer = pinned ? f.or_null(kind::buffer) : argument{nullptr};
    const std::size_t host_size = pinned ? f.w.size_of(kind::buffer, buffer) : f.pageable.size();
    f.on_one_device(stream, gpu);
    const std::size_t gpu_size = f.w.size_of(kind::gpu, gpu);
    part p = f.any_part(host_size, gpu_size);
    std::uint8_t* memory = nullptr;
    if (!pinned) { // the memory must be as long as the copy says
      p.bytes = lies_within(p.from, p.bytes, host_size) ? p.bytes : f.impossible_size();
      memory = f.pageable.data() + (lies_within(p.from, p.bytes, host_size) ? p.from : 0);
    }
    // A copy of 0 bytes may have no source and no destination.
    const bool nowhere = gpu.value == nullptr || (pinned && buffer.value == nullptr);
    f.must_fail |= nowhere && p.bytes > 0;
    f.must_fail |= gpu.value != nullptr && !lies_within(p.to, p.bytes, gpu_size);
    f.must_fail |=
        (buffer.value != nullptr || p.bytes > 0) && !lies_within(p.from, p.bytes, host_size);
    (up ? const_cast<void*&>(copy.src) : copy.dst) = memory;
    copy.bytes = p.bytes;
    copy.buffer = buffer;
    copy.buffer_offset = pinned ? p.from : 0;
    copy.device_buffer = gpu;
    copy.device_offset = p.to;
    const bool fits = lies_within(p.from, p.bytes, host_size);
    if (up) {
      contents bytes = pinned ? f.known(kind::buffer, buffer, p.from, p.bytes)
                              : bytes_at(memory, fits ? p.bytes : 0);
      arrivals.push_back({gpu.value, p.to, nullptr, std::move(bytes)});
    } else {
      contents bytes = f.known(kind::gpu, gpu, p.to, p.bytes);
      arrivals.push_back({buffer.value, p.from, memory, std::move(bytes)});
    }
  }
  f.must_fail |= overlap(arrivals);
  return copies;
}

/// Records in the model, or checks in pageable memory, what a batch has written.
inline void arrived(frame& f, pinlane_status status, kind which,
                    const std::vector<arrival>& arrivals) {
  for (const arrival& each : arrivals) {
    if (status == PINLANE_STATUS_OUT_OF_HOST_MEMORY) { // of page-locked memory, some have arrived
      f.wrote(PINLANE_STATUS_OK, which, each.handle, each.at, contents(each.bytes.size(), unknown));
    } else if (each.memory == nullptr) {
      f.wrote(status, which, each.handle, each.at, each.bytes);
    } else if (status == PINLANE_STATUS_OK && !each.is_late) {
      f.compare(each.bytes, 0, each.memory, each.bytes.size());
    }
  }
}

inline pinlane_status upload_batch(frame& f) {
  const argument stream = f.any(kind::stream);
  std::vector<arrival> arrivals;
  const std::vector<pinlane_copy> copies = some_copies(f, stream, true, arrivals);
  const auto* const options = some_route(f);
  const auto* const given = f.array(copies);
  auto** const ticket = f.ticket();
  const pinlane_status status = pinlane_upload_batch(stream, given, copies.size(), options, ticket);
  arrived(f, status, kind::gpu, arrivals);
  return status;
}

inline pinlane_status download_batch(frame& f) {
  const argument stream = f.any(kind::stream);
  std::vector<arrival> arrivals;
  const std::vector<pinlane_copy> copies = some_copies(f, stream, false, arrivals);
  const auto* const options = some_route(f);
  const auto* const given = f.array(copies);
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_download_batch(stream, given, copies.size(), options, ticket);
  arrived(f, status, kind::buffer, arrivals);
  return status;
}

/// Makes one or two calls of a program in a callback.
void calls_in_callback(frame& f);

/// The argument of `landed`.
struct landing {
  frame& f;
  const std::vector<pinlane_copy>& copies;
  const std::vector<arrival>& arrivals;
  std::vector<bool> seen;
  bool wanted;
};

inline std::int32_t landed(void* user, std::size_t number, const void* data, std::size_t bytes) {
  landing& l = *static_cast<landing*>(user);
  require(l.wanted, "landed was called again after it asked not to be");
  require(number < l.copies.size() && !l.seen[number], "landed was called for a wrong copy");
  require(bytes == l.copies[number].bytes, "landed was called with a wrong length");
  l.seen[number] = true;
  l.f.compare(l.arrivals[number].bytes, 0, static_cast<const std::uint8_t*>(data), bytes);
  calls_in_callback(l.f);
  l.wanted = !l.f.in.rarely(32);
  return l.wanted ? 0 : 1;
}

inline pinlane_status download_batch_each(frame& f) {
  const argument stream = f.any(kind::stream);
  std::vector<arrival> arrivals;
  const std::vector<pinlane_copy> copies = some_copies(f, stream, false, arrivals);
  const auto* const given = f.array(copies);
  const bool called = !f.in.rarely(8);
  f.must_fail |= !called;
  landing l{f, copies, arrivals, std::vector<bool>(copies.size()), true};
  const pinlane_status status =
      pinlane_download_batch_each(stream, given, copies.size(), called ? landed : nullptr, &l);
  const bool all = std::count(l.seen.begin(), l.seen.end(), true) == std::ptrdiff_t(copies.size());
  require(status != PINLANE_STATUS_OK || !l.wanted || all, "landed was not called for every copy");
  arrived(f, status, kind::buffer, arrivals);
  return status;
}

inline pinlane_status copy_batch(frame& f) {
  const argument stream = f.any(kind::stream);
  std::vector<arrival> arrivals;
  std::vector<pinlane_device_copy> copies(f.in.below(5));
  std::vector<const void*> sources;
  for (pinlane_device_copy& copy : copies) {
    copy = {};
    const argument from = f.or_null(kind::gpu), to = f.or_null(kind::gpu);
    const std::size_t from_size = f.w.size_of(kind::gpu, from),
                      to_size = f.w.size_of(kind::gpu, to);
    const part p = f.any_part(from_size, to_size);
    f.must_fail |= (from.value == nullptr || to.value == nullptr) && p.bytes > 0;
    f.must_fail |= from.value != nullptr && !lies_within(p.from, p.bytes, from_size);
    f.must_fail |= to.value != nullptr && !lies_within(p.to, p.bytes, to_size);
    copy.bytes = p.bytes;
    copy.src_buffer = from;
    copy.src_offset = p.from;
    copy.dst_buffer = to;
    copy.dst_offset = p.to;
    sources.push_back(from.value);
    // All on one machine. The stream belongs to at least one side.
    const int device = f.w.device_of(kind::stream, stream);
    const int source = f.w.device_of(kind::gpu, from), destination = f.w.device_of(kind::gpu, to);
    if (p.bytes > 0 && device >= 0 && source >= 0 && destination >= 0) {
      f.must_fail |= device != source && device != destination;
      f.must_fail |= machine_of(device) != machine_of(source);
      f.must_fail |= machine_of(device) != machine_of(destination);
    }
    arrivals.push_back({to.value, p.to, nullptr, f.known(kind::gpu, from, p.from, p.bytes)});
  }
  for (const arrival& each : arrivals) {
    const bool is_source = std::find(sources.begin(), sources.end(), each.handle) != sources.end();
    f.must_fail |= each.handle != nullptr && is_source;
  }
  f.must_fail |= overlap(arrivals);
  const auto* const given = f.array(copies);
  auto** const ticket = f.ticket();
  const pinlane_status status = pinlane_copy_batch(stream, given, copies.size(), ticket);
  arrived(f, status, kind::gpu, arrivals);
  return status;
}

inline pinlane_status upload_file_ranges(frame& f) {
  const argument stream = f.any(kind::stream), file = f.any(kind::file);
  std::vector<arrival> arrivals;
  std::vector<pinlane_file_range> ranges(f.in.below(4));
  for (pinlane_file_range& range : ranges) {
    range = {};
    const argument to = f.or_null(kind::gpu);
    f.on_one_device(stream, to);
    const std::size_t to_size = f.w.size_of(kind::gpu, to);
    const part p = f.any_part(file_bytes, to_size);
    f.must_fail |= to.value == nullptr && p.bytes > 0;
    f.must_fail |= to.value != nullptr && !lies_within(p.to, p.bytes, to_size);
    f.must_fail |= !lies_within(p.from, p.bytes, file_bytes);
    range.offset = p.from;
    range.bytes = p.bytes;
    range.device_buffer = to;
    range.device_offset = p.to;
    arrivals.push_back({to.value, p.to, nullptr, bytes_of_file(p.from, p.bytes)});
  }
  f.must_fail |= overlap(arrivals);
  const auto* const given = f.array(ranges);
  auto** const ticket = f.ticket();
  const pinlane_status status =
      pinlane_upload_file_ranges(stream, file, given, ranges.size(), ticket);
  arrived(f, status, kind::gpu, arrivals);
  return status;
}
