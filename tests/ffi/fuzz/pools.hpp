// Calls on pools and files, and on the state of the process.

#pragma once

#include "machines.hpp"

#include <string>

// -- Pools ---------------------------------------------------------------------------------------

inline pinlane_status pool_create(frame& f) {
  const argument device = f.any(kind::device);
  pinlane_pool_options options = PINLANE_POOL_OPTIONS_INIT;
  const std::size_t budgets[] = {65536, 1 << 20, 8192, 4096, 0, 4095, SIZE_MAX};
  options.max_bytes = budgets[f.in.below(7)];
  options.thread_cache_bytes = f.in.byte() % 3 * 4096;
  options.low_watermark_bytes = f.in.byte() % 3 * 8192;
  options.high_watermark_bytes = f.in.byte() % 4 * 8192;
  options.idle_age_us = f.in.rarely(16) ? 100 : 0;
  options.page_locking = f.in.byte() % 2;
  options.growth_threads = f.in.byte() % 3;
  options.flags = f.in.byte() % 8;
  if (f.in.rarely(16)) {
    options.page_locking = 2;
  } else if (f.in.rarely(16)) {
    options.flags |= 8;
  } else if (f.in.rarely(16)) {
    options.reserved = 1;
  }
  const auto* const given = f.options(options);
  f.must_fail |= given != nullptr && (options.page_locking > 1 || options.flags > 7 ||
                                      options.reserved != 0 || options.max_bytes == 4095);
  f.may_refuse = true; // the watermarks
  object about;
  about.device = f.w.device_of(kind::device, device);
  return pinlane_pool_create(device, given, f.made<pinlane_pool>(kind::pool, std::move(about)));
}

inline pinlane_status pool_clone(frame& f) {
  const argument pool = f.any(kind::pool);
  object about;
  about.device = f.w.device_of(kind::pool, pool);
  return pinlane_pool_clone(pool, f.made<pinlane_pool>(kind::pool, std::move(about)));
}

inline pinlane_status pool_is_same(frame& f) {
  const argument pool = f.any(kind::pool), other = f.any(kind::pool);
  auto* const same = f.out<std::int32_t>();
  const pinlane_status status = pinlane_pool_is_same(pool, other, same);
  const bool one = pool.value == other.value;
  require(status != PINLANE_STATUS_OK || !one || *same == 1, "a pool is not the same as itself");
  return status;
}

inline pinlane_status pool_trim(frame& f) {
  const argument pool = f.any(kind::pool);
  const std::size_t keep = f.size();
  return pinlane_pool_trim(pool, keep, f.optional_out<std::size_t>());
}

inline pinlane_status pool_get_stats(frame& f) {
  const argument pool = f.any(kind::pool);
  auto* const stats = f.sized_out<pinlane_pool_stats>();
  const pinlane_status status = pinlane_pool_get_stats(pool, stats);
  if (status == PINLANE_STATUS_OK) {
    require(stats->committed_bytes <= stats->max_bytes, "more is page-locked than the budget");
    const std::size_t parts =
        stats->live_bytes + stats->cached_bytes + stats->in_flight_bytes + stats->quarantined_bytes;
    require(f.w.threaded || parts <= stats->committed_bytes, "the parts are more than the whole");
  }
  return status;
}

inline pinlane_status pool_get_class_stats(frame& f) {
  const argument pool = f.any(kind::pool);
  const std::size_t capacity = f.in.below(3);
  struct two {
    pinlane_class_stats classes[2];
  };
  const bool failed = f.must_fail;
  void* const classes = f.optional_out<two>(); // perhaps misaligned
  f.must_fail = failed || (capacity > 0 && (f.must_fail || classes == nullptr));
  auto* const count = f.out<std::size_t>();
  return pinlane_pool_get_class_stats(pool, static_cast<pinlane_class_stats*>(classes), capacity,
                                      count);
}

inline pinlane_status pool_stats_text(frame& f) {
  const argument pool = f.any(kind::pool);
  const std::int32_t format = static_cast<std::int32_t>(f.in.byte() % 5) - 1;
  f.must_fail |= format < 0 || format > 2;
  const char* const names[] = {"uploads", nullptr, "", "\"\\\n", "\xff\xfe"};
  const char* const name = names[f.in.below(5)];
  std::size_t capacity = 0;
  char* const text = f.text_out(capacity);
  auto* const needed = f.optional_out<std::size_t>();
  const pinlane_status status = pinlane_pool_stats_text(pool, format, name, text, capacity, needed);
  if (status == PINLANE_STATUS_OK && capacity > 0) {
    const std::size_t length = strnlen(text, capacity);
    require(length < capacity, "a text does not end");
    require(needed == nullptr || length + 1 == std::min(capacity, *needed), "a text is too short");
  }
  return status;
}

inline pinlane_status pools_prometheus(frame& f) {
  const std::size_t count = f.in.below(4);
  const char* const texts[] = {"uploads", "downloads", "", "\"\\\n", nullptr};
  std::vector<const pinlane_pool*> pools;
  std::vector<const char*> names;
  for (std::size_t number = 0; number < count; ++number) {
    pools.push_back(f.any(kind::pool));
    names.push_back(texts[f.in.rarely(8) ? f.in.below(5) : number]);
    const auto end = names.end() - 1;
    f.must_fail |= names.back() == nullptr || std::find(names.begin(), end, names.back()) != end;
  }
  const bool arrays = !f.in.rarely(16);
  f.must_fail |= !arrays && count > 0;
  std::size_t capacity = 0;
  char* const text = f.text_out(capacity);
  auto* const needed = f.optional_out<std::size_t>();
  return pinlane_pools_prometheus(arrays ? pools.data() : nullptr, names.data(), count, text,
                                  capacity, needed);
}

/// The pool of a buffer exists unless all its handles were freed, or the memory is lent.
inline pinlane_status buffer_pool(frame& f) {
  const argument buffer = f.any(kind::buffer);
  f.may_refuse = true;
  object about;
  about.device = f.w.device_of(kind::buffer, buffer);
  return pinlane_buffer_pool(buffer, f.made<pinlane_pool>(kind::pool, std::move(about)));
}

inline pinlane_status stream_device(frame& f) {
  const argument stream = f.any(kind::stream);
  object about;
  about.device = f.w.device_of(kind::stream, stream);
  return pinlane_stream_device(stream, f.made<pinlane_device>(kind::device, std::move(about)));
}

/// An alignment for memory of a pool.
inline std::size_t some_alignment(frame& f) {
  const std::size_t right[] = {1, 256, 4096, 65536, 2 << 20}, wrong[] = {0, 3, 4 << 20, SIZE_MAX};
  if (f.in.rarely(24)) {
    f.must_fail = true;
    return wrong[f.in.below(4)];
  }
  return right[f.in.below(5)];
}

inline pinlane_status pool_block_bytes(frame& f) {
  const std::size_t bytes = f.size();
  f.may_refuse = bytes > std::size_t{1} << 47;
  auto* const block = f.out<std::size_t>();
  const pinlane_status status = pinlane_pool_block_bytes(bytes, block);
  require(status != PINLANE_STATUS_OK || *block >= bytes, "a block is too small");
  return status;
}

/// Memory by its address, from `call(pool, bytes, alignment, out)`. The model keeps a handle of its
/// pool, to give it back with.
template <class Call>
pinlane_status allocate_raw(frame& f, Call call) {
  const argument pool = f.any(kind::pool);
  const std::size_t bytes = f.size();
  const std::size_t alignment = some_alignment(f);
  f.may_refuse |= bytes > std::size_t{1} << 47; // such a size overflows
  auto** const out = f.out<void*>();
  pinlane_pool* clone = nullptr;
  const bool cloned = pinlane_pool_clone(pool, &clone) == PINLANE_STATUS_OK;
  f.may_refuse |= !cloned;
  const int device = f.w.device_of(kind::pool, pool);
  const pinlane_status status = call(cloned ? clone : pool, bytes, alignment, out);
  if (status == PINLANE_STATUS_OK) {
    require(reinterpret_cast<std::uintptr_t>(*out) % alignment == 0, "memory is misaligned");
    const std::lock_guard<std::mutex> guard(f.w.lock);
    f.w.allocated.push_back({*out, clone, bytes, device});
  } else if (cloned) {
    require_ok(pinlane_pool_free(clone), "a handle of a pool cannot be freed");
  }
  return status;
}

inline pinlane_status pool_allocate(frame& f) { return allocate_raw(f, pinlane_pool_allocate); }

inline pinlane_status pool_allocate_timeout(frame& f) {
  const std::uint64_t times[] = {0, 1, 300};
  const std::uint64_t time = times[f.in.below(3)];
  return allocate_raw(f, [&](const pinlane_pool* pool, std::size_t bytes, std::size_t alignment,
                             void** memory) {
    return pinlane_pool_allocate_timeout(pool, bytes, alignment, time, memory);
  });
}

/// Memory that was allocated from a pool, or other memory.
inline void* some_raw_memory(frame& f, bool& is_right) {
  is_right = false;
  const std::lock_guard<std::mutex> guard(f.w.lock);
  const std::uint8_t choice = f.in.byte();
  if (f.w.allocated.empty() || choice >= 240) {
    f.must_fail = true;
    return choice % 2 == 0 ? static_cast<void*>(f.pageable.data()) : reinterpret_cast<void*>(64);
  }
  is_right = true;
  return f.w.allocated[choice % f.w.allocated.size()].address;
}

inline pinlane_status pool_deallocate(frame& f) {
  const argument pool = f.any(kind::pool);
  bool is_right = false;
  void* const memory = f.in.rarely(8) ? nullptr : some_raw_memory(f, is_right);
  // Any pool accepts NULL, and its handle is not checked.
  f.must_fail &= memory != nullptr;
  f.may_refuse = true; // it may be of another pool
  const pinlane_status status = pinlane_pool_deallocate(pool, memory);
  if (status == PINLANE_STATUS_OK && memory != nullptr) {
    const std::lock_guard<std::mutex> guard(f.w.lock);
    std::vector<raw_memory>& all = f.w.allocated;
    const auto is_it = [&](const raw_memory& each) { return each.address == memory; };
    const auto found = std::find_if(all.begin(), all.end(), is_it);
    if (found != all.end()) {
      require_ok(pinlane_pool_free(found->pool), "a handle of a pool cannot be freed");
      all.erase(found);
    }
  }
  return status;
}

inline pinlane_status pool_record_use(frame& f) {
  const argument pool = f.any(kind::pool), stream = f.any(kind::stream);
  bool is_right = false;
  void* const memory = some_raw_memory(f, is_right);
  f.may_refuse = true; // it may be of another pool
  return pinlane_pool_record_use(pool, memory, stream);
}

// -- Files, and the process ----------------------------------------------------------------------

/// A file that the program's process has made.
constexpr std::size_t file_bytes = 100000;
inline std::uint8_t byte_of_file(std::size_t at) {
  return static_cast<std::uint8_t>(at * 7 + at / 251);
}
inline std::string file_path;

inline pinlane_status file_open(frame& f) {
  const char* const paths[] = {
      file_path.c_str(), file_path.c_str(), "/dev/null", "/", "/nonexistent/file", "", nullptr};
  const std::size_t chosen = f.in.below(7);
  f.must_fail |= chosen > 1;
  const std::uint32_t flags = f.in.rarely(16) ? 2 : f.in.byte() % 2;
  f.must_fail |= flags == 2;
  return pinlane_file_open(paths[chosen], flags, f.made<pinlane_file>(kind::file));
}

/// The file is closed again at once: while it is mapped, its memory is page-locked.
inline pinlane_status file_open_mapped(frame& f) {
  const argument device = f.any(kind::device);
  const char* const paths[] = {file_path.c_str(), "/dev/null", "", nullptr};
  const std::size_t chosen = f.in.below(4);
  f.must_fail |= chosen > 0;
  auto** const out = f.out<pinlane_file*>();
  const pinlane_status status = pinlane_file_open_mapped(device, paths[chosen], out);
  if (status == PINLANE_STATUS_OK) {
    std::uint64_t bytes = 0;
    require_ok(pinlane_file_size(*out, &bytes), "a mapped file has no size");
    require(bytes == file_bytes, "a mapped file has the wrong size");
    require_ok(pinlane_file_free(*out), "a mapped file is not closed");
  }
  return status;
}

inline pinlane_status file_size(frame& f) {
  const argument file = f.any(kind::file);
  auto* const bytes = f.out<std::uint64_t>();
  const pinlane_status status = pinlane_file_size(file, bytes);
  require(status != PINLANE_STATUS_OK || *bytes == file_bytes, "a file has the wrong size");
  return status;
}

inline pinlane_status copy_team_install(frame& f) {
  static std::atomic<int> installed{0};
  pinlane_copy_team_options options = PINLANE_COPY_TEAM_OPTIONS_INIT;
  options.threads = f.in.byte() % 4;
  options.copying = f.in.byte() % 3;
  options.spin_us = f.in.byte() % 3;
  options.flags = f.in.byte() % 4;
  // Replaced teams keep their threads, so only some calls are valid.
  const bool refused = f.in.rarely(128);
  const std::uint8_t wrong = f.in.byte() % 4;
  if (refused || installed > 3) {
    options.threads = wrong == 0 ? 257 : options.threads;
    options.spin_us = wrong == 1 ? 1000001 : options.spin_us;
    options.flags = wrong == 2 ? 4 : wrong == 3 ? options.flags : 0;
    options.reserved = wrong == 3 ? 1 : 0;
    f.must_fail = true;
  }
  const auto* const given = f.options(options);
  if (given == nullptr) { // a team like any other
    f.must_fail = false;
    return PINLANE_STATUS_OK;
  }
  const pinlane_status status = pinlane_copy_team_install(given);
  installed += status == PINLANE_STATUS_OK;
  return status;
}

/// Functions that cannot fail.
inline pinlane_status texts(frame& f) {
  require(pinlane_version() == PINLANE_VERSION, "another version");
  const auto status = static_cast<pinlane_status>(f.in.byte()) - 100;
  require(std::strlen(pinlane_status_name(status)) > 0, "a status without a name");
  const char* const text = f.in.byte() % 2 == 0 ? nullptr : "a message";
  require(pinlane_set_last_error(status, text) == status, "another status");
  const char* const last = pinlane_last_error();
  require(text == nullptr || std::strcmp(last, text) == 0, "another message");
  require(pinlane_last_cuda_error() == 0, "an error of CUDA that there was not");
  return PINLANE_STATUS_OK;
}
