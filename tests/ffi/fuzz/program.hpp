// A program: an emulated machine with one object of each kind, the calls that an input selects, and
// an end at which nothing may be left.

#pragma once

#include "table.hpp"

#include <chrono>
#include <thread>

constexpr std::size_t call_count = sizeof calls / sizeof *calls;
constexpr std::size_t most_statuses = 32;

/// How often each call returned each status, in this process.
inline std::array<std::array<std::atomic<std::uint64_t>, most_statuses>, call_count> outcomes{};
inline std::atomic<std::uint64_t> calls_made{0};

/// Memory that was lent to a buffer that cannot be freed: a device may write to it forever.
inline std::vector<std::unique_ptr<std::uint8_t[]>> lent_for_ever;
inline std::vector<std::shared_ptr<own_tensor>> tensors_for_ever;

inline std::size_t number_of(const char* name) {
  for (std::size_t number = 0; number < call_count; ++number) {
    if (std::strcmp(calls[number].name, name) == 0) {
      return number;
    }
  }
  violated("a frequent call is not in the table");
}

inline std::size_t chosen_call(std::uint8_t byte) {
  if (byte < call_count) {
    return byte;
  }
  constexpr std::size_t count = sizeof frequent / sizeof *frequent;
  static const std::vector<std::size_t> numbers = [] {
    std::vector<std::size_t> found;
    for (const char* name : frequent) {
      found.push_back(number_of(name));
    }
    return found;
  }();
  return numbers[byte % count];
}

inline void fill_pageable(scratch& memory) {
  for (std::size_t at = 0; at < memory.pageable.size(); ++at) {
    memory.pageable[at] = static_cast<std::uint8_t>(at % 253);
  }
}

/// The thread's memory for calls at this depth of callbacks.
inline scratch& scratch_of(unsigned depth) {
  thread_local std::array<std::unique_ptr<scratch>, 2> all;
  std::unique_ptr<scratch>& memory = all.at(depth);
  if (memory == nullptr) {
    memory.reset(new scratch);
    fill_pageable(*memory);
  }
  return *memory;
}

inline pinlane_status free_handle(kind which, void* handle) {
  const argument all{handle};
  switch (which) {
  case kind::device:
    return pinlane_device_free(all);
  case kind::pool:
    return pinlane_pool_free(all);
  case kind::stream:
    return pinlane_stream_free(all);
  case kind::ticket:
    return pinlane_ticket_free(all);
  case kind::buffer:
    return pinlane_buffer_free(all);
  case kind::gpu:
    return pinlane_device_buffer_free(all);
  case kind::file:
    return pinlane_file_free(all);
  case kind::foreign:
    return pinlane_foreign_end(all, nullptr);
  case kind::emulator:
    return pinlane_emulator_free(all);
  case kind::prefetch:
    return pinlane_prefetch_free(all);
  case kind::request:
    return pinlane_request_free(all);
  case kind::pairs:
    return pinlane_pairs_free(all);
  case kind::recording:
    return pinlane_recording_free(all);
  case kind::capture:
    return pinlane_capture_free(all);
  case kind::graph:
    return pinlane_graph_free(all);
  }
  return PINLANE_STATUS_PANIC;
}

/// The object of a handle was freed: from now on no function of its producer is called.
inline void end_pipeline(kind which, const object& gone) {
  if (which == kind::prefetch && gone.source != nullptr) {
    end_of(*gone.source);
  }
}

/// Keeps the number of handles small, so that calls meet the same ones again.
inline void free_the_oldest(world& w) {
  for (std::size_t number = 0; number < kinds; ++number) {
    const auto which = static_cast<kind>(number);
    void* oldest = nullptr;
    {
      const std::lock_guard<std::mutex> guard(w.lock);
      const std::vector<object>& all = w.live(which);
      oldest = all.size() > world::most_of(which) ? all.front().handle : nullptr;
    }
    if (oldest != nullptr && !(in_producer && which == kind::prefetch)) {
      if (!w.threaded) {
        w.release_streams();
        w.end_captures();
      }
      w.before_free(which, oldest);
      if (free_handle(which, oldest) == PINLANE_STATUS_OK) {
        end_pipeline(which, w.remove(which, oldest));
      }
    }
  }
}

/// Makes one call.
inline void step(world& w, input& in, unsigned depth) {
  const std::size_t number = chosen_call(in.byte());
  const call& chosen = calls[number];
  if ((chosen.traits & alone) != 0 && (w.threaded || depth > 0)) {
    return;
  }
  if ((chosen.traits & for_batches) != 0 && in_producer) {
    return;
  }
  // If the event of work cannot be recorded, the call that enqueued it waits for it.
  if (((chosen.traits & waits) != 0 || w.faulty) && !w.threaded) {
    w.release_streams();
  }
  const char* const outer = current_call;
  current_call = chosen.name;
  frame f(w, in, scratch_of(depth), depth);
  const pinlane_status status = chosen.make(f);
  if (tracing) {
    const bool failed = status != PINLANE_STATUS_OK;
    std::fprintf(stderr, "%*s%s: %s%s%s\n", static_cast<int>(2 * depth), "", chosen.name,
                 pinlane_status_name(status), failed ? ": " : "",
                 failed ? pinlane_last_error() : "");
  }
  f.finish(status);
  calls_made.fetch_add(1, std::memory_order_relaxed);
  outcomes[number][static_cast<std::size_t>(status) % most_statuses].fetch_add(
      1, std::memory_order_relaxed);
  free_the_oldest(w);
  current_call = outer;
}

inline void calls_in_callback(frame& f) {
  if (f.depth == 0) {
    for (std::size_t count = f.in.rarely(64) ? 1 + f.in.below(3) : 0; count > 0; --count) {
      step(f.w, f.in, 1);
    }
  }
}

inline void calls_of_guest(world& w, input& in) {
  for (std::size_t count = 0; !in.is_empty() && count < 8; ++count) {
    step(w, in, 1);
  }
}

inline pinlane_status threads(frame& f) {
  f.w.end_captures();
  f.w.threaded = true;
  f.w.guests.open();
  std::vector<std::thread> running;
  for (std::size_t count = 2 + f.in.below(2); count > 0; --count) {
    running.emplace_back([&w = f.w, in = f.in.split(16 + f.in.below(96))]() mutable {
      while (!in.is_empty()) {
        step(w, in, 0);
      }
    });
  }
  for (std::thread& each : running) {
    each.join();
  }
  f.w.guests.close();
  f.w.threaded = false;
  f.w.forget_contents();
  return PINLANE_STATUS_OK;
}

class program {
public:
  program(const std::uint8_t* data, std::size_t size, bool calm)
      : m_in(data, size), m_world(calm) {}

  void run() {
    count_handles(m_before);
    begin();
    while (!m_in.is_empty()) {
      step(m_world, m_in, 0);
    }
    current_call = "the end";
    end();
  }

private:
  /// Makes one object of each kind.
  void begin() {
    current_call = "the beginning";
    fill_pageable(scratch_of(0));
    frame f(m_world, m_in, scratch_of(0), 0);
    m_world.trouble_allowed = m_in.byte() % 4 == 3 && !m_world.calm;
    const pinlane_emulator_options options = some_machine(f);
    const std::int32_t count = 1 + m_in.byte() % 2;
    pinlane_device* devices[2] = {nullptr, nullptr};
    require_ok(pinlane_emulator_create(&options, devices, count), "no machine");
    add_machine(f, devices, count);
    for (int ordinal = 0; ordinal < count && m_in.byte() % 4 != 0; ++ordinal) {
      pinlane_staging_options staging = PINLANE_STAGING_OPTIONS_INIT;
      staging.ring_bytes = 65536;
      staging.slot_bytes = 8192;
      staging.first_bytes = staging.direct_bytes = 1024;
      require_ok(pinlane_device_set_staging(devices[ordinal], &staging), "no staging");
    }

    require_ok(pinlane_stream_create(devices[0], nullptr, &m_world.lender), "no stream");
    require_ok(pinlane_stream_native(m_world.lender, &m_world.lender_native), "no CUDA stream");
    require_ok(pinlane_device_buffer_alloc(devices[0], raw_bytes, &m_world.raw), "no memory");
    require_ok(pinlane_device_buffer_acquire(m_world.raw, m_world.lender), "no memory");
    require_ok(pinlane_stream_synchronize(m_world.lender), "no memory");
    require_ok(pinlane_device_buffer_address(m_world.raw, &m_world.raw_address), "no address");

    const std::size_t lent_bytes = lent_parts * lent_part_bytes;
    require_ok(pinlane_device_buffer_alloc(devices[0], lent_bytes, &m_world.lent), "no memory");
    require_ok(pinlane_device_buffer_acquire(m_world.lent, m_world.lender), "no memory");
    require_ok(pinlane_stream_synchronize(m_world.lender), "no memory");
    void* lent = nullptr;
    require_ok(pinlane_device_buffer_address(m_world.lent, &lent), "no address");
    m_world.lent_address = static_cast<std::uint8_t*>(lent);

    pinlane_pool_options budget = PINLANE_POOL_OPTIONS_INIT;
    budget.max_bytes = std::size_t{1} << 20;
    pinlane_pool* pool = nullptr;
    require_ok(pinlane_pool_create(devices[0], &budget, &pool), "no pool");
    for (const std::size_t bytes : {5000, 7000, 300}) {
      pinlane_stream* stream = nullptr;
      require_ok(pinlane_stream_create(devices[0], nullptr, &stream), "no stream");
      own(kind::stream, stream, 0);
      pinlane_buffer* buffer = nullptr;
      require_ok(pinlane_buffer_alloc_zeroed(pool, bytes, &buffer), "no buffer");
      own(kind::buffer, buffer, bytes);
      pinlane_device_buffer* gpu = nullptr;
      require_ok(pinlane_device_buffer_alloc(devices[0], bytes, &gpu), "no buffer");
      require_ok(pinlane_device_buffer_fill(stream, gpu, 0, bytes, "", 1, nullptr), "no fill");
      own(kind::gpu, gpu, bytes);
    }
    own(kind::pool, pool, 0);
    pinlane_emulator* machine = nullptr;
    require_ok(pinlane_device_emulator(devices[0], &machine), "no machine");
    own(kind::emulator, machine, 0);
    pinlane_file* file = nullptr;
    require_ok(pinlane_file_open(file_path.c_str(), 0, &file), "no file");
    own(kind::file, file, 0);
  }

  /// A handle of the first device, whose bytes are 0.
  void own(kind which, void* handle, std::size_t bytes) {
    object about;
    about.handle = handle;
    about.bytes.assign(bytes, 0);
    about.device = 0;
    m_world.adopt(which, std::move(about));
  }

  /// Lets all enqueued work run, and checks every buffer against the model. Then frees everything,
  /// in some order, and checks that nothing is left.
  void end() {
    world& w = m_world;
    w.release_streams();
    w.end_captures();
    for (pinlane_emulator* machine : w.machines) {
      require_ok(pinlane_emulator_clear_faults(machine), "faults cannot be cleared");
    }
    for (const kind holder : {kind::foreign, kind::capture, kind::graph}) {
      free_all(holder, false); // they hold buffers
    }
    compare_all();
    for (const raw_memory& each : w.allocated) {
      require_ok(pinlane_pool_deallocate(each.pool, each.address), "memory cannot be given back");
      require_ok(pinlane_pool_free(each.pool), "a pool cannot be freed");
    }
    const std::size_t first = m_in.below(kinds);
    free_everything(first);
    for (const std::shared_ptr<promise>& each : w.promises) {
      require(!each->refused || !each->told, "a callback was called that was refused");
    }
    await_all(first);
    require(!w.calm || !w.faulty, "something failed in a calm program");
    require_ok(pinlane_set_log_callback(nullptr, nullptr), "a listener stays");
    check_host_calls(w);
    const bool raw_stays = w.raw_is_used_for_ever, lent_stays = w.lent_is_used_for_ever;
    require_ok(raw_stays ? PINLANE_STATUS_OK : pinlane_device_buffer_free(w.raw), "memory stays");
    check_tensors(w);
    require_ok(lent_stays ? PINLANE_STATUS_OK : pinlane_device_buffer_free(w.lent), "memory stays");
    require_ok(pinlane_stream_free(w.lender), "a stream cannot be freed");
    const bool may_keep = raw_stays || lent_stays || w.may_keep;
    for (pinlane_emulator* machine : w.machines) {
      check_nothing_left(machine, may_keep);
      require_ok(pinlane_emulator_free(machine), "a machine cannot be freed");
    }
    if (!w.faulty && !may_keep) {
      std::array<std::size_t, kinds> now{};
      count_handles(now);
      for (std::size_t number = 0; number < kinds; ++number) {
        // After an error, remains of former programs may be freed at any time.
        if (now[number] > m_before[number]) {
          std::fprintf(stderr, "of kind %zu: %zu handles, and %zu before\n", number, now[number],
                       m_before[number]);
          violated("a handle is left");
        }
      }
    }
    keep_what_may_be_used();
  }

  static void count_handles(std::array<std::size_t, kinds>& counts) {
    for (std::size_t number = 0; number < kinds; ++number) {
      require_ok(pinlane_live_count(name_of(static_cast<kind>(number)), &counts[number]),
                 "handles cannot be counted");
    }
  }

  void free_everything(std::size_t first) {
    for (std::size_t number = 0; number < kinds; ++number) {
      free_all(static_cast<kind>((first + number) % kinds), number % 2 == 0);
    }
    for (const std::shared_ptr<tensor>& each : m_world.tensors) {
      delete_tensor(m_world, *each);
    }
    m_world.tensors.clear();
  }

  /// Waits for all callbacks. Also frees what they got or made, so that others get memory.
  void await_all(std::size_t first) {
    while (true) {
      const std::shared_ptr<promise> next = next_callback();
      if (next == nullptr) {
        return;
      }
      await(m_world, next);
      free_everything(first);
    }
  }

  /// The first callback that is started and not awaited, or none. If it is not called soon, one
  /// that was called: its memory may be what the first one waits for.
  [[nodiscard]] std::shared_ptr<promise> next_callback() const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (true) {
      std::shared_ptr<promise> first;
      for (const std::shared_ptr<promise>& each : m_world.promises) {
        if (each->refused) {
          continue;
        }
        first = first == nullptr ? each : first;
        if (each != first && std::chrono::steady_clock::now() < patience) {
          break;
        }
        const std::lock_guard<std::mutex> guard(each->lock);
        if (each->told) {
          return each;
        }
      }
      if (first == nullptr || std::chrono::steady_clock::now() > limit) {
        return first;
      }
      std::this_thread::yield();
    }
  }

  /// A lost device may write to memory forever.
  void keep_what_may_be_used() {
    for (const std::shared_ptr<own_tensor>& each : m_world.own_tensors) {
      if (each->is_given && each->deleted == 0) {
        tensors_for_ever.push_back(each);
      }
    }
  }

  void compare_all() {
    world& w = m_world;
    const frame f(w, m_in, scratch_of(0), 0);
    for (const object& each : w.live(kind::buffer)) {
      const void* data = nullptr;
      const pinlane_status status =
          pinlane_buffer_read(static_cast<const pinlane_buffer*>(each.handle), &data);
      require(status == PINLANE_STATUS_OK || w.faulty, "a buffer cannot be read in the end");
      if (status == PINLANE_STATUS_OK) {
        f.compare(each.bytes, 0, static_cast<const std::uint8_t*>(data), each.bytes.size());
      }
    }
    std::vector<std::uint8_t> memory;
    for (const object& each : w.live(kind::gpu)) {
      memory.resize(each.bytes.size());
      const pinlane_status status =
          each.device != 0 ? PINLANE_STATUS_TIMED_OUT
                           : pinlane_device_buffer_download_slice(
                                 w.lender, static_cast<pinlane_device_buffer*>(each.handle), 0,
                                 memory.data(), memory.size());
      require(status == PINLANE_STATUS_OK || w.faulty || each.device != 0 ||
                  status == PINLANE_STATUS_OUT_OF_HOST_MEMORY, // some machines have little
              "a device buffer cannot be read in the end");
      if (status == PINLANE_STATUS_OK) {
        f.compare(each.bytes, 0, memory.data(), memory.size());
      }
    }
  }

  void free_all(kind which, bool from_the_end) {
    world& w = m_world;
    while (!w.live(which).empty()) {
      std::vector<object>& all = w.live(which);
      void* const handle = (from_the_end ? all.back() : all.front()).handle;
      w.before_free(which, handle);
      const pinlane_status status = free_handle(which, handle);
      // Work on the default stream of an ended thread ends without a record of its uses.
      w.faulty = w.faulty || (which == kind::foreign && status == PINLANE_STATUS_WRONG_THREAD);
      require(status == PINLANE_STATUS_OK || w.faulty, "a handle cannot be freed");
      object gone = w.remove(which, handle);
      if (status == PINLANE_STATUS_OK) {
        end_pipeline(which, gone);
      }
      if (gone.lent != nullptr && status != PINLANE_STATUS_OK) {
        lent_for_ever.push_back(std::move(gone.lent));
      } else {
        require(free_handle(which, handle) == PINLANE_STATUS_INVALID_HANDLE,
                "a handle was freed twice");
      }
      if (gone.lent != nullptr) {
        frame(w, m_in, scratch_of(0), 0)
            .compare(gone.bytes, 0, gone.lent.get() + gone.lent_at, gone.bytes.size());
      }
    }
  }

  void check_nothing_left(pinlane_emulator* machine, bool keep_raw) const {
    std::size_t findings = 0;
    require_ok(pinlane_emulator_finding_count(machine, &findings), "no findings");
    if (findings > 0) {
      std::array<char, 1024> text{};
      static_cast<void>(pinlane_emulator_finding(machine, 0, text.data(), text.size(), nullptr));
      std::fprintf(stderr, "finding: %s\n", text.data());
      violated("the machine has seen a misuse of CUDA");
    }
    if (m_world.faulty || keep_raw) {
      return;
    }
    // A thread of the library may be the last to drop something.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (true) {
      pinlane_emulator_usage usage = PINLANE_EMULATOR_USAGE_INIT;
      require_ok(pinlane_emulator_get_usage(machine, &usage), "no usage");
      const std::size_t left = usage.host_blocks + usage.device_blocks + usage.streams +
                               usage.events + usage.quarantined_blocks;
      if (left == 0) {
        return;
      }
      if (std::chrono::steady_clock::now() > limit) {
        std::fprintf(stderr, "left: %zu host blocks, %zu device blocks, %zu streams, %zu events\n",
                     usage.host_blocks, usage.device_blocks, usage.streams, usage.events);
        violated("something is left on the machine");
      }
      std::this_thread::yield();
    }
  }

  input m_in;
  world m_world;
  /// The handles that former programs could not free.
  std::array<std::size_t, kinds> m_before{};
};
