// What a program has: handles of every kind, live and freed, and what the model knows of them.

#pragma once

#include <pinlane/pinlane.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "input.hpp"

enum class kind : std::size_t {
  device,
  pool,
  stream,
  ticket,
  buffer,
  gpu,
  file,
  foreign,
  emulator,
};
constexpr std::size_t kinds = 9;

/// The bytes of a buffer, as far as the model knows them.
using contents = std::vector<std::int16_t>;
constexpr std::int16_t unknown = -1;

/// A live handle.
struct object {
  void* handle = nullptr;
  /// Of a buffer.
  contents bytes;
  /// The memory of a buffer that is the program's own, and what is left free at its beginning.
  std::unique_ptr<std::uint8_t[]> lent;
  std::size_t lent_at = 0;
  /// Of a device, and of what was made on it: its number, the same for all handles. Of a machine:
  /// the number of its first device.
  int device = -1;
};

/// Memory of `pinlane_pool_allocate`, with a handle of its pool.
struct raw_memory {
  void* address;
  pinlane_pool* pool;
};

/// The call that the thread makes, for messages.
inline thread_local const char* current_call = "the end";
inline bool tracing = false;

[[noreturn]] inline void violated(const char* what) {
  std::fprintf(stderr, "%s: %s\n  the last message: %s\n", current_call, what,
               pinlane_last_error());
  std::abort();
}

inline void require(bool condition, const char* what) {
  if (!condition) {
    violated(what);
  }
}

inline void require_ok(pinlane_status status, const char* what) {
  require(status == PINLANE_STATUS_OK, what);
}

class world {
public:
  explicit world(bool is_calm) : calm(is_calm) {}

  static constexpr std::size_t most = 16; // handles of a kind

  /// Nothing happens for which the library must keep something for ever.
  const bool calm;
  /// Whether calls may be made to fail, and devices be lost.
  bool trouble_allowed = false;
  /// A call may fail without a reason that the model knows.
  std::atomic<bool> faulty{false};
  /// A device may be lost. From then on nothing is known of contents.
  std::atomic<bool> lossy{false};
  /// There was a graph capture, which makes CUDA refuse calls.
  std::atomic<bool> captured{false};
  /// Several threads make calls. The model stands still.
  std::atomic<bool> threaded{false};
  /// Device memory that is named by its address only, and its device.
  pinlane_device_buffer* raw = nullptr;
  void* raw_address = nullptr;
  /// A copy may use that memory, nobody knows how long.
  bool raw_is_used_for_ever = false;
  /// A stream whose CUDA handle is borrowed; it outlives all borrowers.
  pinlane_stream* lender = nullptr;
  void* lender_native = nullptr;
  /// The number of the next machine of which the program has no handle.
  std::atomic<int> next_unknown_machine{1000};
  /// All other machines.
  std::vector<pinlane_emulator*> machines;
  /// Streams that are held up.
  std::vector<pinlane_stream*> stalled;
  std::vector<raw_memory> allocated;

  std::mutex lock;

  std::vector<object>& live(kind which) { return m_live[static_cast<std::size_t>(which)]; }
  std::vector<void*>& stale(kind which) { return m_stale[static_cast<std::size_t>(which)]; }

  /// The live object of that handle. Others may remove it: keep no pointer while they can.
  object* find(kind which, const void* handle) {
    std::vector<object>& all = live(which);
    const auto is_it = [&](const object& each) { return each.handle == handle; };
    const auto found = std::find_if(all.begin(), all.end(), is_it);
    return found == all.end() ? nullptr : &*found;
  }

  /// The size of a buffer, or 0 for what is none.
  std::size_t size_of(kind which, const void* handle) {
    const std::lock_guard<std::mutex> guard(lock);
    const object* const found = find(which, handle);
    return found == nullptr ? 0 : found->bytes.size();
  }

  int device_of(kind which, const void* handle) {
    const std::lock_guard<std::mutex> guard(lock);
    const object* const found = find(which, handle);
    return found == nullptr ? -1 : found->device;
  }

  std::size_t count(kind which) {
    const std::lock_guard<std::mutex> guard(lock);
    return live(which).size();
  }

  void adopt(kind which, object made) {
    const std::lock_guard<std::mutex> guard(lock);
    require(made.handle != nullptr, "a call succeeded and gave no handle");
    for (std::size_t number = 0; number < kinds; ++number) {
      require(find(static_cast<kind>(number), made.handle) == nullptr,
              "a handle was given out while it is live");
      const auto& gone = m_stale[number];
      require(std::find(gone.begin(), gone.end(), made.handle) == gone.end(),
              "a handle was given out again after it was freed");
    }
    live(which).push_back(std::move(made));
  }

  /// The handle was freed. Gives back what it stood for, if another thread did not take it.
  object remove(kind which, void* handle) {
    const std::lock_guard<std::mutex> guard(lock);
    object* const found = find(which, handle);
    if (found == nullptr) {
      return {};
    }
    object gone = std::move(*found);
    live(which).erase(live(which).begin() + (found - live(which).data()));
    std::vector<void*>& old = stale(which);
    if (old.size() == most) {
      old.erase(old.begin());
    }
    old.push_back(gone.handle);
    return gone;
  }

  void forget_contents() {
    for (const kind which : {kind::buffer, kind::gpu}) {
      for (object& each : live(which)) {
        std::fill(each.bytes.begin(), each.bytes.end(), unknown);
      }
    }
  }

  void release_streams() {
    for (pinlane_stream* stream : stalled) {
      require_ok(pinlane_emulator_release(stream), "a stalled stream cannot be released");
    }
    stalled.clear();
  }

  /// Ends graph captures, on the thread that began them. Without a handle nobody could end them.
  void end_captures() {
    std::vector<const pinlane_stream*> streams{lender};
    for (const object& each : live(kind::stream)) {
      streams.push_back(static_cast<const pinlane_stream*>(each.handle));
    }
    for (const pinlane_stream* stream : streams) {
      std::size_t operations = 0;
      static_cast<void>(captured ? pinlane_emulator_end_capture(stream, &operations) : 0);
    }
  }

private:
  std::array<std::vector<object>, kinds> m_live;
  std::array<std::vector<void*>, kinds> m_stale;
};
