// The state of a program: handles of every kind, live and freed, and the model's knowledge of them.

#pragma once

#include <pinlane/pinlane.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
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
  prefetch,
  request,
  pairs,
  recording,
  capture,
  graph,
};
constexpr std::size_t kinds = 15;

/// The bytes of a buffer, as far as the model knows them.
using contents = std::vector<std::int16_t>;
constexpr std::int16_t unknown = -1;

/// The source of batches; see prefetch.hpp.
struct producer;
/// A call whose outcome a callback gets; see requests.hpp.
struct promise;
/// A tensor that the program has made; see tensors.hpp.
struct own_tensor;
/// A tensor that the program owns; see tensors.hpp.
struct tensor;

/// A pair of a list, as the program named it.
struct chosen_pair {
  const void *host, *gpu;
  std::size_t host_at, gpu_at, bytes;
};

/// From this number on, the program has no handle of a machine, only devices.
constexpr int first_unknown_machine = 1000;

/// A live handle.
struct object {
  void* handle = nullptr;
  /// Of a buffer.
  contents bytes;
  /// The program's own memory of a buffer, with the unused bytes at its beginning.
  std::unique_ptr<std::uint8_t[]> lent;
  std::size_t lent_at = 0;
  /// Of a device and of objects on it: the device's number, the same for all handles. Of a machine:
  /// the number of its first device.
  int device = -1;
  /// Of a stream: only the thread that opened it may use it.
  bool is_of_one_thread = false;
  /// Of a pipeline and its batches: their producer.
  std::shared_ptr<producer> source;
  /// Of a batch: its number.
  std::uint64_t index = 0;
  /// Of a request: the call.
  std::shared_ptr<promise> told;
  /// Of a buffer: the tensor that it was made of.
  std::shared_ptr<own_tensor> made_of;
  /// Of a device buffer that was a tensor: the offset of its address from a multiple of 8.
  std::size_t off = 0;
  /// Of a recording.
  bool is_stopped = false;
  /// Of a list of pairs.
  std::vector<chosen_pair> pairs{};
  /// Of a capture or a graph: the buffers that its work may write.
  std::vector<std::pair<kind, const void*>> writes{};
  /// Of a buffer: it is borrowed memory, or was a tensor. Freeing the latter waits.
  bool is_borrowed = false, was_tensor = false;
};

/// Memory of `pinlane_pool_allocate`, with a handle of its pool.
struct raw_memory {
  void* address;
  pinlane_pool* pool;
  std::size_t bytes;
  /// The pool's device.
  int device;
};

/// The call that the thread makes, for messages.
inline thread_local const char* current_call = "the end";
inline bool tracing = false;

/// Calls that threads of the library make while the program's own threads make theirs.
class visits {
public:
  /// Whether the thread may make calls now. If so it must `leave`.
  bool enter() {
    const std::lock_guard<std::mutex> guard(m_lock);
    m_inside += m_open ? 1 : 0;
    return m_open;
  }
  void leave() {
    const std::lock_guard<std::mutex> guard(m_lock);
    --m_inside;
    m_left.notify_all();
  }
  void open() {
    const std::lock_guard<std::mutex> guard(m_lock);
    m_open = true;
  }
  /// Waits until all have left.
  void close() {
    std::unique_lock<std::mutex> guard(m_lock);
    m_open = false;
    m_left.wait(guard, [&] { return m_inside == 0; });
  }

private:
  std::mutex m_lock;
  std::condition_variable m_left;
  bool m_open = false;
  int m_inside = 0;
};

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

  /// The most handles of a kind; pipelines have threads, and graphs hold buffers.
  static constexpr std::size_t most_of(kind which) {
    const bool few = which == kind::prefetch || which == kind::capture || which == kind::graph;
    return few ? 2 : 16;
  }

  /// Nothing happens after which the library must keep memory forever.
  const bool calm;
  /// Whether calls may be made to fail, and devices be lost.
  bool trouble_allowed = false;
  /// A call may fail without a reason that the model knows.
  std::atomic<bool> faulty{false};
  /// A device may be lost. From then on no contents are known.
  std::atomic<bool> lossy{false};
  /// There was a graph capture, which makes CUDA refuse calls.
  std::atomic<bool> captured{false};
  /// Several threads make calls. The model is not updated.
  std::atomic<bool> threaded{false};
  /// Device memory that is named by its address only, and its device.
  pinlane_device_buffer* raw = nullptr;
  void* raw_address = nullptr;
  /// Locked from before a use of such memory until the use is recorded.
  std::mutex raw_lock;
  /// A copy may use that memory for an unknown time.
  bool raw_is_used_for_ever = false;
  /// Device memory that is lent in parts, each once, and how many parts have been lent.
  pinlane_device_buffer* lent = nullptr;
  std::uint8_t* lent_address = nullptr;
  std::size_t parts_lent = 0;
  std::atomic<bool> lent_is_used_for_ever{false};
  /// The library may keep memory forever, because it cannot know its uses.
  std::atomic<bool> may_keep{false};
  /// A stream whose CUDA handle is borrowed; it outlives all borrowers.
  pinlane_stream* lender = nullptr;
  void* lender_native = nullptr;
  /// The number of the next machine without a handle of the program.
  std::atomic<int> next_unknown_machine{first_unknown_machine};
  /// All other machines.
  std::vector<pinlane_emulator*> machines;
  /// Stalled streams.
  std::vector<pinlane_stream*> stalled;
  std::vector<raw_memory> allocated;
  /// The arguments (`user`) of the functions that the library calls.
  std::vector<std::shared_ptr<promise>> promises;
  std::vector<std::shared_ptr<producer>> producers;
  std::vector<std::shared_ptr<own_tensor>> own_tensors;
  std::vector<std::shared_ptr<tensor>> tensors;
  visits guests;

  std::mutex lock;

  std::vector<object>& live(kind which) { return m_live[static_cast<std::size_t>(which)]; }
  std::vector<void*>& stale(kind which) { return m_stale[static_cast<std::size_t>(which)]; }

  /// The live object of this handle. Other threads may remove it, so do not keep the pointer while
  /// they can.
  object* find(kind which, const void* handle) {
    std::vector<object>& all = live(which);
    const auto is_it = [&](const object& each) { return each.handle == handle; };
    const auto found = std::find_if(all.begin(), all.end(), is_it);
    return found == all.end() ? nullptr : &*found;
  }

  /// The size of a buffer, or 0 if it is not one.
  std::size_t size_of(kind which, const void* handle) {
    const std::lock_guard<std::mutex> guard(lock);
    const object* const found = find(which, handle);
    return found == nullptr ? 0 : found->bytes.size();
  }

  /// The offset of the address of a device buffer from a multiple of 8.
  std::size_t off_of(const void* handle) {
    const std::lock_guard<std::mutex> guard(lock);
    const object* const found = find(kind::gpu, handle);
    return found == nullptr ? 0 : found->off;
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

  /// Records that the handle was freed. Returns its object, unless another thread took it.
  object remove(kind which, void* handle) {
    const std::lock_guard<std::mutex> guard(lock);
    object* const found = find(which, handle);
    if (found == nullptr) {
      return {};
    }
    object gone = std::move(*found);
    live(which).erase(live(which).begin() + (found - live(which).data()));
    std::vector<void*>& old = stale(which);
    if (old.size() == most_stale) {
      old.erase(old.begin());
    }
    old.push_back(gone.handle);
    return gone;
  }

  /// Called before a handle is freed. If it is a device buffer whose memory is lent, the owner of
  /// that memory must wait for the buffer's uses. The memory of a batch, or of a tensor of pinlane,
  /// is kept forever if its stream is being captured.
  void before_free(kind which, void* handle) {
    bool is_lent = false, waits = false;
    {
      const std::lock_guard<std::mutex> guard(lock);
      const bool is_buffer = which == kind::gpu || which == kind::buffer;
      const object* const found = is_buffer ? find(which, handle) : nullptr;
      const bool of_others = found != nullptr && (found->source != nullptr || found->was_tensor);
      may_keep = may_keep || (captured && of_others);
      is_lent = found != nullptr && found->is_borrowed;
      waits = found != nullptr && found->was_tensor;
    }
    if (waits && !threaded) {
      release_streams();
    }
    if (is_lent) {
      const bool ordered =
          !threaded &&
          pinlane_device_buffer_acquire(static_cast<pinlane_device_buffer*>(handle), lender) == 0 &&
          pinlane_device_buffer_record_use(lent, lender) == 0;
      lent_is_used_for_ever = lent_is_used_for_ever || !ordered;
    }
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

  /// Ends graph captures, on the thread that began them. Without a handle they could not be ended.
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
  static constexpr std::size_t most_stale = 16;

  std::array<std::vector<object>, kinds> m_live;
  std::array<std::vector<void*>, kinds> m_stale;
};
