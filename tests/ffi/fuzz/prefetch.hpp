// Pipelines, the producers that they pull from, and their batches.
//
// The batches of a producer are decided when its pipeline is made. So the program knows the
// contents of each batch, whichever threads of the library have made it.

#pragma once

#include "requests.hpp"

#include <string>

/// A slice of a batch that a producer makes.
struct planned_slice {
  std::string name;
  bool is_named, is_room;
  std::size_t element;
  std::vector<std::uint8_t> bytes;
};

/// A batch, or its error.
struct planned_batch {
  producer* of = nullptr;
  /// The results of the functions.
  std::int32_t next = 0, describe = 0, fill = 0;
  /// The batch is invalid.
  bool is_wrong = false;
  std::vector<planned_slice> slices;
  std::vector<pinlane_host_slice> described;
  std::atomic<int> begun{0}, describes{0}, fills{0}, released{0};

  [[nodiscard]] bool is_right() const {
    return next == 0 && describe == 0 && fill == 0 && !is_wrong;
  }
  [[nodiscard]] std::size_t total() const {
    std::size_t sum = 0;
    for (const planned_slice& each : slices) {
      sum += each.bytes.size();
    }
    return sum;
  }
};

struct producer {
  explicit producer(world& of) : w(of) {}

  world& w;
  std::vector<planned_batch> batches;
  bool is_ordered = true, drops_last = false, has_fill = true;
  int device = -1;
  std::atomic<pinlane_prefetch*> handle{nullptr};
  /// The functions make calls on the pipeline itself.
  bool meddles = false;
  /// The number of batches that have come, including failed ones, unless they are not counted.
  std::size_t came = 0;
  std::atomic<bool> not_counted{false};
  /// From now on no function may be called.
  std::atomic<bool> over{false};
  std::atomic<bool> pulling{false};
  std::atomic<std::size_t> pulled{0};

  std::mutex lock;
  /// The calls that its functions make.
  input in{nullptr, 0};
};

/// A thread inside a producer does not wait for a producer.
inline thread_local bool in_producer = false;

/// Around each function of a producer.
class inside {
public:
  inside(producer& of, const char* name) : m_outer(std::exchange(current_call, name)) {
    require(!of.over, "a function of a producer was called after the end");
    in_producer = true;
    meddle(of);
    if (of.w.guests.enter()) {
      input in{nullptr, 0};
      {
        const std::lock_guard<std::mutex> guard(of.lock);
        in = of.in.split(12);
      }
      calls_of_guest(of.w, in);
      of.w.guests.leave();
    }
  }
  inside(const inside&) = delete;
  ~inside() {
    in_producer = false;
    current_call = m_outer;
  }

private:
  static void meddle(producer& of) {
    pinlane_prefetch* const own = of.handle;
    if (!of.meddles || own == nullptr) {
      return;
    }
    const pinlane_status freed = pinlane_prefetch_free(own);
    require(freed == PINLANE_STATUS_UNSUPPORTED, "a pipeline was freed by its own producer");
    pinlane_prefetch_progress progress = PINLANE_PREFETCH_PROGRESS_INIT;
    require_ok(pinlane_prefetch_get_progress(own, &progress), "no progress");
    require(progress.yielded <= progress.produced, "more batches were given out than made");
    pinlane_device_buffer* batch = nullptr;
    if (pinlane_prefetch_next_timeout(own, 0, &batch) == PINLANE_STATUS_OK) {
      require_ok(pinlane_device_buffer_free(batch), "a batch cannot be freed");
    }
  }

  const char* m_outer;
};

inline std::int32_t next_batch(void* user, void** item) {
  producer& of = *static_cast<producer*>(user);
  require(!of.pulling.exchange(true), "two threads ask a producer for the next batch");
  const inside guard(of, "next of a producer");
  const std::size_t number = of.pulled++;
  require(number <= of.batches.size(), "a producer was asked for a batch after the last one");
  std::int32_t code = PINLANE_STATUS_END;
  if (number < of.batches.size()) {
    planned_batch& batch = of.batches[number];
    *item = &batch;
    code = batch.next;
    batch.begun = code == 0 ? 1 : 0;
  }
  of.pulling = false;
  return code;
}

inline std::int32_t describe_batch(void*, void* item, const pinlane_host_slice** slices,
                                   std::size_t* count) {
  planned_batch& batch = *static_cast<planned_batch*>(item);
  const inside guard(*batch.of, "describe of a producer");
  require(batch.begun == 1 && batch.describes++ == 0 && batch.released == 0,
          "a batch was described at the wrong time");
  *slices = batch.described.data();
  *count = batch.described.size();
  if (batch.describe != 0) {
    pinlane_set_last_error(PINLANE_STATUS_IO, "the program's own words");
  }
  return batch.describe;
}

inline std::int32_t fill_batch(void*, void* item, void* const* room) {
  planned_batch& batch = *static_cast<planned_batch*>(item);
  const inside guard(*batch.of, "fill of a producer");
  require(batch.describes == 1 && batch.fills++ == 0 && batch.released == 0,
          "a batch was filled at the wrong time");
  for (std::size_t number = 0; number < batch.slices.size(); ++number) {
    const planned_slice& slice = batch.slices[number];
    require((room[number] != nullptr) == (slice.is_room && !slice.bytes.empty()), "a wrong room");
    if (room[number] != nullptr) {
      std::memcpy(room[number], slice.bytes.data(), slice.bytes.size());
    }
  }
  return batch.fill;
}

inline void release_batch(void*, void* item) {
  planned_batch& batch = *static_cast<planned_batch*>(item);
  const inside guard(*batch.of, "release of a producer");
  require(batch.begun == 1 && batch.released++ == 0, "a batch was released at the wrong time");
}

/// From now on the functions of a producer are not called.
inline void end_of(producer& source) {
  source.over = true;
  for (const planned_batch& batch : source.batches) {
    require(batch.released == batch.begun, "a batch was not released");
  }
}

// -- What a producer makes -----------------------------------------------------------------------

inline void plan_slice(frame& f, planned_batch& batch, std::size_t number) {
  static const char* const names[] = {"x", "", "a long name of a slice, longer than most", "0"};
  planned_slice slice;
  const std::uint8_t choice = f.in.byte();
  slice.is_named = choice % 4 == 0;
  slice.name = slice.is_named ? names[choice / 4 % 4] : std::to_string(number);
  slice.is_room = choice % 2 == 0;
  slice.element = choice % 16 == 15 ? 24 : choice % 3;
  slice.bytes.resize(f.in.below(f.in.rarely(32) ? 30000 : 700));
  for (std::size_t at = 0; at < slice.bytes.size(); ++at) {
    slice.bytes[at] = static_cast<std::uint8_t>(choice + at * 13);
  }
  batch.slices.push_back(std::move(slice));
}

/// The producer's array of slices, when they no longer move.
inline void describe_plan(frame& f, planned_batch& batch, bool has_fill) {
  std::vector<std::string> names;
  for (const planned_slice& slice : batch.slices) {
    pinlane_host_slice given = {};
    given.name = slice.is_named ? slice.name.c_str() : nullptr;
    given.data = slice.is_room ? nullptr : slice.bytes.data();
    given.bytes = slice.bytes.size();
    given.element_bytes = slice.element;
    batch.is_wrong |= std::find(names.begin(), names.end(), slice.name) != names.end();
    batch.is_wrong |= slice.is_room && !has_fill && !slice.bytes.empty();
    names.push_back(slice.name);
    batch.described.push_back(given);
  }
  if (batch.described.empty() || !f.in.rarely(16)) {
    return;
  }
  batch.is_wrong = true;
  pinlane_host_slice& last = batch.described.back();
  switch (f.in.byte() % 4) {
  case 0:
    last.reserved = 1;
    break;
  case 1:
    last.bytes = f.impossible_size();
    break;
  case 2: // more than any device has
    last.data = nullptr;
    last.bytes = std::size_t{1} << 46;
    break;
  default:
    last.element_bytes = SIZE_MAX; // no multiple of 256 is one of it
    break;
  }
}

inline std::shared_ptr<producer> some_producer(frame& f) {
  const auto made = std::make_shared<producer>(f.w);
  made->has_fill = !f.in.rarely(24);
  made->meddles = f.in.rarely(24);
  made->batches = std::vector<planned_batch>(f.in.below(7));
  for (std::size_t number = 0; number < made->batches.size(); ++number) {
    planned_batch& batch = made->batches[number];
    batch.of = made.get();
    for (std::size_t slices = f.in.below(4); slices > 0; --slices) {
      plan_slice(f, batch, batch.slices.size());
    }
    describe_plan(f, batch, made->has_fill);
    // A code that identifies its batch.
    const auto code = static_cast<std::int32_t>(1000 + number);
    if (f.in.rarely(24)) {
      const std::uint8_t which = f.in.byte() % 3;
      std::int32_t* const codes[] = {&batch.next, &batch.describe, &batch.fill};
      *codes[which] = code;
    }
    const bool is_filled = std::any_of(batch.slices.begin(), batch.slices.end(), [](const auto& s) {
      return s.is_room && !s.bytes.empty();
    });
    batch.fill = is_filled && made->has_fill ? batch.fill : 0; // otherwise it is not called
  }
  made->in = f.in.split(f.in.rarely(64) ? f.in.below(64) : 0);
  return made;
}

// -- The pipeline --------------------------------------------------------------------------------

inline pinlane_status prefetch_create(frame& f) {
  const argument pool = f.any(kind::pool), stream = f.any(kind::stream);
  const std::shared_ptr<producer> source = some_producer(f);
  source->device = f.w.device_of(kind::stream, stream);
  const int of_pool = f.w.device_of(kind::pool, pool);
  f.must_fail |= of_pool >= 0 && source->device >= 0 &&
                 machine_of(of_pool) != machine_of(source->device);

  pinlane_producer functions = PINLANE_PRODUCER_INIT;
  functions.user = source.get();
  functions.next = f.in.rarely(8) ? nullptr : next_batch;
  functions.describe = f.in.rarely(8) ? nullptr : describe_batch;
  functions.fill = source->has_fill ? fill_batch : nullptr;
  functions.release = release_batch;
  const auto* const given = f.options(functions);
  f.must_fail |= given == nullptr || functions.next == nullptr || functions.describe == nullptr;

  pinlane_prefetch_options options = PINLANE_PREFETCH_OPTIONS_INIT;
  const std::uint32_t depths[] = {0, 1, 2, 5, 65536, 65537, UINT32_MAX};
  options.depth = depths[f.in.below(f.in.rarely(24) ? 7 : 4)];
  options.workers = f.in.rarely(16) ? 257 : f.in.byte() % 4;
  options.flags = f.in.rarely(8) ? 4 : f.in.byte() % 4;
  options.reserved = f.in.rarely(8) ? 1 : 0;
  const auto* const how = f.options(options);
  f.must_fail |= how != nullptr && (options.depth > 65536 || options.workers > 256 ||
                                    options.flags > 3 || options.reserved != 0);
  source->is_ordered = how == nullptr || (options.flags & PINLANE_PREFETCH_UNORDERED) == 0;
  source->drops_last = how != nullptr && (options.flags & PINLANE_PREFETCH_DROP_LAST) != 0;

  {
    // The uses of its batches are unknown if the stream cannot be queried.
    const std::lock_guard<std::mutex> guard(f.w.lock);
    const object* const found = f.w.find(kind::stream, stream);
    if (found != nullptr && found->is_of_one_thread) {
      if (f.w.calm) {
        f.must_fail = false;
        return PINLANE_STATUS_OK;
      }
      f.w.may_keep = true;
    }
  }
  object about;
  about.source = source;
  about.device = source->device;
  auto** const out = f.made<pinlane_prefetch>(kind::prefetch, std::move(about));
  {
    const std::lock_guard<std::mutex> guard(f.w.lock);
    f.w.producers.push_back(source);
  }
  const pinlane_status status = pinlane_prefetch_create(pool, stream, given, how, out);
  if (status == PINLANE_STATUS_OK) {
    source->handle = *out;
  } else {
    end_of(*source);
  }
  return status;
}

/// The producer of a live pipeline, or none.
inline std::shared_ptr<producer> source_of(world& w, kind which, const void* handle) {
  const std::lock_guard<std::mutex> guard(w.lock);
  const object* const found = w.find(which, handle);
  return found == nullptr ? nullptr : found->source;
}

inline object object_of(const std::shared_ptr<producer>& source, pinlane_device_buffer* batch) {
  object about;
  about.source = source;
  about.device = source->device;
  std::size_t bytes = 0;
  require_ok(pinlane_device_buffer_size(batch, &bytes), "a batch without a size");
  require_ok(pinlane_device_batch_index(batch, &about.index), "a batch without a number");
  about.bytes.assign(bytes, unknown);
  require(about.index < source->batches.size(), "a batch that no producer has made");
  const planned_batch& plan = source->batches[about.index];
  require(plan.is_right(), "a batch that is wrong was given out");
  for (const planned_slice& slice : plan.slices) {
    std::size_t at = 0, length = 0;
    require_ok(pinlane_device_batch_slice(batch, slice.name.c_str(), &at, &length), "no slice");
    const bool aligned = at % 256 == 0 && (slice.element == 0 || at % slice.element == 0);
    require(aligned && length == slice.bytes.size() && lies_within(at, length, bytes),
            "a slice lies at the wrong place");
    std::copy(slice.bytes.begin(), slice.bytes.end(),
              about.bytes.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return about;
}

inline void check_outcome(world& w, producer& source, pinlane_status status, std::int32_t code) {
  require(code == 0 || status == PINLANE_STATUS_PRODUCER, "a code of the producer without a cause");
  const auto is_of_code = [&](const planned_batch& batch) {
    return batch.next == code || batch.describe == code || batch.fill == code;
  };
  const auto& all = source.batches;
  require(code == 0 || std::any_of(all.begin(), all.end(), is_of_code),
          "a code that the producer has not given");
  if (w.faulty || w.captured) {
    return;
  }
  const bool some_wrong =
      std::any_of(all.begin(), all.end(), [](const planned_batch& each) { return each.is_wrong; });
  switch (status) {
  case PINLANE_STATUS_OK:
  case PINLANE_STATUS_END:
  case PINLANE_STATUS_BUDGET_EXHAUSTED:
  case PINLANE_STATUS_OUT_OF_HOST_MEMORY:
  case PINLANE_STATUS_OUT_OF_DEVICE_MEMORY:
  case PINLANE_STATUS_CANCELLED:
  case PINLANE_STATUS_WRONG_THREAD:
  case PINLANE_STATUS_UNSUPPORTED: // of too large a batch
    break;
  case PINLANE_STATUS_INVALID_VALUE:
    require(some_wrong, "a right batch was refused");
    break;
  case PINLANE_STATUS_PRODUCER:
    require(code != 0 || some_wrong, "a producer failed that did not");
    break;
  default:
    violated("a batch has a wrong outcome");
  }
}

/// Whether a callback is waiting for a batch of this producer.
inline bool is_asked_by_others(world& w, const producer& source) {
  const std::lock_guard<std::mutex> guard(w.lock);
  return std::any_of(w.promises.begin(), w.promises.end(), [&](const auto& each) {
    return each->source.get() == &source && !each->refused;
  });
}

/// Counts the outcome of a batch. Without asynchronous requests the batches come in order.
inline void came(world& w, producer& source, pinlane_status status, std::int32_t code,
                 const std::uint64_t* index, bool in_turn) {
  const bool none = status == PINLANE_STATUS_TIMED_OUT || status == PINLANE_STATUS_BUSY ||
                    status == PINLANE_STATUS_CANCELLED || status == PINLANE_STATUS_WRONG_THREAD;
  if (w.threaded || w.faulty || w.captured || source.meddles ||
      status == PINLANE_STATUS_UNSUPPORTED) {
    source.not_counted = true;
  }
  if (none || source.not_counted) {
    return;
  }
  const bool others = is_asked_by_others(w, source);
  const std::size_t number = source.came, all = source.batches.size();
  if (status == PINLANE_STATUS_END) {
    require(others || all - number <= (source.drops_last ? 1 : 0), "a pipeline has ended early");
    return;
  }
  ++source.came;
  require(number < all, "more batches came than there are");
  if (!in_turn || others || !source.is_ordered) {
    return;
  }
  const planned_batch& plan = source.batches[number];
  require(index == nullptr || *index == number, "a batch came out of turn");
  const std::int32_t wanted = plan.next != 0       ? plan.next
                              : plan.describe != 0 ? plan.describe
                                                   : plan.fill;
  require(code == 0 || code == wanted, "a failure came out of turn");
}

template <class Call>
pinlane_status next_by(frame& f, Call call) {
  const argument prefetch = f.any(kind::prefetch);
  const std::shared_ptr<producer> source = source_of(f.w, kind::prefetch, prefetch);
  auto** const out = f.made<pinlane_device_buffer>(kind::gpu);
  const bool may_come = !f.must_fail;
  f.may_refuse = true; // `check_outcome` knows better
  f.may_be_busy = source != nullptr && (source->meddles || is_asked_by_others(f.w, *source));
  const pinlane_status status = call(prefetch, out);
  const std::int32_t code = status == PINLANE_STATUS_OK ? 0 : pinlane_last_producer_error();
  if (source == nullptr || !may_come) {
    return status;
  }
  std::uint64_t index = 0;
  if (status == PINLANE_STATUS_OK) {
    object about = object_of(source, *out);
    index = about.index;
    f.made_as(std::move(about));
  }
  const bool answer = status == PINLANE_STATUS_BUSY || status == PINLANE_STATUS_TIMED_OUT ||
                      (status == PINLANE_STATUS_INVALID_HANDLE && f.w.threaded);
  if (!answer) {
    check_outcome(f.w, *source, status, code);
  }
  came(f.w, *source, status, code, status == PINLANE_STATUS_OK ? &index : nullptr, true);
  return status;
}

inline pinlane_status prefetch_next(frame& f) { return next_by(f, pinlane_prefetch_next); }

inline pinlane_status prefetch_next_timeout(frame& f) {
  const std::uint64_t times[] = {0, 1, 1000, 20000};
  const std::uint64_t time = times[f.in.below(4)];
  return next_by(f, [&](const pinlane_prefetch* prefetch, pinlane_device_buffer** batch) {
    return pinlane_prefetch_next_timeout(prefetch, time, batch);
  });
}

inline pinlane_status prefetch_next_async(frame& f) {
  if (is_busy(f)) {
    return PINLANE_STATUS_OK;
  }
  const argument prefetch = f.any(kind::prefetch);
  const auto told = std::make_shared<promise>(f.w, current_call, kind::gpu);
  told->source = source_of(f.w, kind::prefetch, prefetch);
  f.may_be_busy = told->source != nullptr &&
                  (told->source->meddles || is_asked_by_others(f.w, *told->source));
  return start(f, told, [&](bool called, pinlane_request** request) {
    return pinlane_prefetch_next_async(prefetch, called ? prefetched : nullptr, told.get(),
                                       request);
  });
}

inline pinlane_status prefetch_get_progress(frame& f) {
  const argument prefetch = f.any(kind::prefetch);
  const std::shared_ptr<producer> source = source_of(f.w, kind::prefetch, prefetch);
  auto* const progress = f.sized_out<pinlane_prefetch_progress>();
  const pinlane_status status = pinlane_prefetch_get_progress(prefetch, progress);
  if (status == PINLANE_STATUS_OK && source != nullptr) {
    require(progress->yielded <= source->batches.size() &&
                progress->uploaded <= source->batches.size() &&
                progress->produced <= source->batches.size(),
            "more batches than the producer has");
  }
  return status;
}

inline pinlane_status prefetch_free(frame& f) {
  const argument prefetch = f.or_null(kind::prefetch);
  const std::shared_ptr<producer> source = source_of(f.w, kind::prefetch, prefetch);
  const pinlane_status status = pinlane_prefetch_free(prefetch);
  if (status == PINLANE_STATUS_OK && source != nullptr) {
    end_of(*source);
  }
  f.freed(status, kind::prefetch, prefetch);
  return status;
}

// -- Batches -------------------------------------------------------------------------------------

/// A device buffer, mostly a batch. The call must refuse all others.
inline argument some_batch(frame& f, std::shared_ptr<producer>& source, std::uint64_t& index) {
  const std::uint8_t choice = f.in.byte();
  if (choice < 200) {
    const std::lock_guard<std::mutex> guard(f.w.lock);
    std::vector<const object*> batches;
    for (const object& each : f.w.live(kind::gpu)) {
      if (each.source != nullptr) {
        batches.push_back(&each);
      }
    }
    if (!batches.empty()) {
      const object& chosen = *batches[choice % batches.size()];
      source = chosen.source;
      index = chosen.index;
      return {chosen.handle};
    }
  }
  const argument any = f.any(kind::gpu);
  const std::lock_guard<std::mutex> guard(f.w.lock);
  const object* const found = f.w.find(kind::gpu, any);
  source = found == nullptr ? nullptr : found->source;
  index = found == nullptr ? 0 : found->index;
  f.must_fail |= found != nullptr && source == nullptr;
  return any;
}

inline pinlane_status device_batch_index(frame& f) {
  std::shared_ptr<producer> source;
  std::uint64_t index = 0;
  const argument batch = some_batch(f, source, index);
  auto* const out = f.out<std::uint64_t>();
  const pinlane_status status = pinlane_device_batch_index(batch, out);
  require(status != PINLANE_STATUS_OK || source == nullptr || *out == index, "another number");
  return status;
}

inline pinlane_status device_batch_ticket(frame& f) {
  std::shared_ptr<producer> source;
  std::uint64_t index = 0;
  const argument batch = some_batch(f, source, index);
  return pinlane_device_batch_ticket(batch, f.made<pinlane_ticket>(kind::ticket));
}

inline pinlane_status device_batch_count(frame& f) {
  std::shared_ptr<producer> source;
  std::uint64_t index = 0;
  const argument batch = some_batch(f, source, index);
  auto* const count = f.out<std::size_t>();
  const pinlane_status status = pinlane_device_batch_count(batch, count);
  require(status != PINLANE_STATUS_OK || source == nullptr ||
              *count == source->batches[index].slices.size(),
          "a wrong number of slices");
  return status;
}

inline pinlane_status device_batch_name(frame& f) {
  std::shared_ptr<producer> source;
  std::uint64_t index = 0;
  const argument batch = some_batch(f, source, index);
  const std::size_t count = source == nullptr ? 0 : source->batches[index].slices.size();
  const std::size_t number = f.in.rarely(12) ? SIZE_MAX : f.in.below(count + 1);
  f.must_fail |= source != nullptr && number >= count;
  std::size_t capacity = 0;
  char* const text = f.text_out(capacity);
  auto* const needed = f.optional_out<std::size_t>();
  const pinlane_status status = pinlane_device_batch_name(batch, number, text, capacity, needed);
  if (status == PINLANE_STATUS_OK && source != nullptr) {
    const std::string& name = source->batches[index].slices[number].name;
    require(needed == nullptr || *needed == name.size() + 1, "a name has another length");
    require(capacity == 0 || name.substr(0, capacity - 1) == text, "another name");
  }
  return status;
}

inline pinlane_status device_batch_slice(frame& f) {
  std::shared_ptr<producer> source;
  std::uint64_t index = 0;
  const argument batch = some_batch(f, source, index);
  static const char* const wrong[] = {nullptr, "y", "\xff", "9999999999999999999999"};
  const std::size_t count = source == nullptr ? 0 : source->batches[index].slices.size();
  const std::size_t number = f.in.below(count + 1);
  const char* name = wrong[f.in.below(4)];
  if (number < count) {
    name = source->batches[index].slices[number].name.c_str();
  } else {
    f.must_fail = true;
  }
  auto* const at = f.out<std::size_t>();
  auto* const bytes = f.out<std::size_t>();
  const pinlane_status status = pinlane_device_batch_slice(batch, name, at, bytes);
  require(status != PINLANE_STATUS_OK || source == nullptr ||
              *bytes == source->batches[index].slices[number].bytes.size(),
          "a slice has another size");
  return status;
}
