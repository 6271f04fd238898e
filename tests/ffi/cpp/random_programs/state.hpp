// The state of a random program: buffers and streams, and how it chooses among them.

#pragma once

#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "basics.hpp"

struct own_tensor;

/// A buffer, and what it must hold when the device is done.
struct host_buffer {
  /// The memory of a registered buffer, which outlives the buffer.
  bytes lent;
  pinlane::pinned_buffer<std::uint8_t> buffer;
  bytes model;
  /// The tensor that the buffer was made of, if it was the program's own.
  std::shared_ptr<own_tensor> tensor = nullptr;
  /// Whether the buffer and its memory come from a pool.
  bool is_of_pool = false;
  /// Whether the memory is lent to it. Such memory may be empty.
  bool is_registered = false;
};

struct gpu_buffer {
  pinlane::device_buffer<std::uint8_t> buffer;
  bytes model;
  std::size_t device;
};

struct device_stream {
  pinlane::stream stream;
  std::size_t device;
};

/// Parts of two buffers, of equal length.
struct range {
  std::size_t from, to, count;
};

/// How a call may end that is wrong in several ways. It must succeed if there are none.
using statuses = std::vector<pinlane_status>;

/// How a call ends that may throw.
template <class Call>
pinlane_status status_of(Call call) {
  try {
    call();
    return PINLANE_STATUS_OK;
  } catch (const pinlane::error& error) {
    return error.status();
  }
}

class state {
protected:
  state(const std::vector<pinlane::device>& devices, std::uint64_t seed)
      : m_random(seed), m_devices(devices), m_pool(devices.front(), pool_options(m_random)),
        m_resource(m_pool), m_patient(m_pool, std::chrono::minutes(1)), m_bytes(&m_resource) {
    for (std::size_t count = 1 + m_random.below(6); m_streams.size() < count;) {
      const std::size_t device = m_random.below(m_devices.size());
      m_streams.push_back({some_stream(device), device});
    }
    new_host_buffer();
    new_gpu_buffer();
  }

  static constexpr std::size_t most_buffers = 6;

  /// A small budget, so that the pool must wait for blocks in flight, and reuses them at once.
  static pinlane::pool_options pool_options(splitmix& random) {
    pinlane::pool_options options;
    options.max_bytes = 512 * 1024;
    options.locking = random.below(2) == 0 ? pinlane::page_locking::allocated
                                           : pinlane::page_locking::registered;
    return options;
  }

  /// Mostly small, sometimes 0, sometimes several pages.
  std::size_t some_size() { return m_random.below(std::size_t{1} << m_random.below(14)); }

  bytes some_bytes(std::size_t size) {
    bytes result(size);
    const auto byte = [&] { return std::uint8_t(m_random.next() >> 56); };
    std::generate(result.begin(), result.end(), byte);
    return result;
  }

  range some_part(std::size_t from_size, std::size_t to_size) {
    const std::size_t count = m_random.below(std::min(from_size, to_size) + 1);
    return {m_random.below(from_size - count + 1), m_random.below(to_size - count + 1), count};
  }

  static void move(const bytes& from, bytes& to, range part) {
    std::copy_n(from.begin() + std::ptrdiff_t(part.from), part.count,
                to.begin() + std::ptrdiff_t(part.to));
  }

  /// A stream of any kind. A default stream is the same one each time.
  pinlane::stream some_stream(std::size_t number) {
    const pinlane::device& device = m_devices[number];
    pinlane::stream_options blocking;
    blocking.blocking = true;
    switch (m_random.below(7)) {
    case 0:
      return pinlane::stream::legacy_default(device);
    case 1:
      return pinlane::stream::per_thread_default(device);
    case 2:
      return pinlane::stream(device, blocking);
    default:
      return pinlane::stream(device);
    }
  }

  /// One of the streams of that device. Makes one if there is none.
  pinlane::stream_ref stream_of(std::size_t device) {
    std::vector<const pinlane::stream*> candidates;
    for (const device_stream& each : m_streams) {
      if (each.device == device) {
        candidates.push_back(&each.stream);
      }
    }
    if (candidates.empty()) {
      m_streams.push_back({some_stream(device), device});
      return m_streams.back().stream;
    }
    return *m_random.one_of(candidates);
  }

  /// A buffer from the pool, or of the program's own memory at any address.
  void new_host_buffer() {
    if (m_hosts.size() >= most_buffers) {
      return;
    }
    const std::size_t size = some_size();
    if (m_random.below(4) != 0) {
      auto buffer = m_pool.alloc_zeroed<std::uint8_t>(size);
      m_hosts.push_back({{}, std::move(buffer), bytes(size), nullptr, true});
      return;
    }
    const std::size_t around = m_random.below(64);
    bytes lent = some_bytes(around + size);
    const bytes model(lent.begin() + std::ptrdiff_t(around), lent.end());
    auto buffer = m_random.one_of(m_devices).register_memory(lent.data() + around, size);
    m_hosts.push_back({std::move(lent), std::move(buffer), model, nullptr, false, true});
  }

  void new_gpu_buffer() {
    if (m_gpus.size() >= most_buffers) {
      return;
    }
    const std::size_t size = some_size(), device = m_random.below(m_devices.size());
    auto buffer = m_devices[device].alloc<std::uint8_t>(size);
    stream_of(device).fill(buffer, std::uint8_t{0});
    m_gpus.push_back({std::move(buffer), bytes(size), device});
  }

  /// Frees a buffer in the middle of its uses, if it may go. One of each kind stays.
  template <class Buffers, class Predicate>
  void free_one(Buffers& buffers, Predicate may_go) {
    if (buffers.size() > 1) {
      std::swap(m_random.one_of(buffers), buffers.back());
      if (!may_go(buffers.back())) {
        return;
      }
      auto gone = std::move(buffers.back());
      buffers.pop_back();
      take_back(std::move(gone));
    }
  }

  static void take_back(const gpu_buffer&) {}

  /// Takes lent memory back: it holds what the device has written, and is the program's from now
  /// on.
  void take_back(host_buffer gone) {
    gone.buffer = {};
    if (gone.tensor) {
      m_tensors.emplace_back(std::move(gone.tensor), std::move(gone.model));
    }
    if (!gone.lent.empty()) {
      require(std::equal(gone.model.rbegin(), gone.model.rend(), gone.lent.rbegin()),
              "memory that came back has wrong bytes");
      const bytes painted = some_bytes(gone.lent.size());
      std::copy(painted.begin(), painted.end(), gone.lent.begin());
      m_returned.emplace_back(std::move(gone.lent), painted);
    }
  }

  /// Checks that no device wrote to memory that has come back.
  void check_returned() const {
    for (const auto& [memory, painted] : m_returned) {
      require(memory == painted, "memory changed after it came back");
    }
  }

  /// Requires that a call has been refused as it must be, or succeeded if nothing is `wrong`.
  void expect(pinlane_status status, const statuses& wrong, const char* call) const {
    const bool is_right = wrong.empty()
                              ? status == PINLANE_STATUS_OK
                              : std::find(wrong.begin(), wrong.end(), status) != wrong.end();
    if (is_right) {
      return;
    }
    const std::string message = status == PINLANE_STATUS_OK ? "" : pinlane_last_error();
    if (m_without_threads && status != PINLANE_STATUS_OK) {
      throw pinlane::error(status); // it may have needed one
    }
    std::fprintf(stderr, "%s: %s, not %s: %s\n", call, pinlane_status_name(status),
                 pinlane_status_name(wrong.empty() ? PINLANE_STATUS_OK : wrong.front()),
                 message.c_str());
    throw mismatch{"a call ended in a wrong way"};
  }

  bool m_without_threads = false;
  splitmix m_random;
  const std::vector<pinlane::device>& m_devices;
  pinlane::pinned_pool m_pool;
  pinlane::pinned_resource m_resource, m_patient;
  std::pmr::vector<std::uint8_t> m_bytes;
  bytes m_bytes_model;
  std::vector<device_stream> m_streams;
  std::vector<host_buffer> m_hosts;
  std::vector<gpu_buffer> m_gpus;
  /// Tensors whose buffers were freed, and their contents at that time.
  std::vector<std::pair<std::shared_ptr<own_tensor>, bytes>> m_tensors;
  /// Memory that came back, and its expected contents.
  std::vector<std::pair<bytes, bytes>> m_returned;
};

/// GPUs 0 and 1, if they exist, or two emulated devices with small slots, so that copies take
/// several.
inline std::vector<pinlane::device> open_devices(const std::string& mode, std::uint64_t seed) {
  if (mode == "cuda") {
    std::vector<pinlane::device> devices;
    devices.push_back(pinlane::device::open(0));
    if (pinlane::device::count() > 1) {
      devices.push_back(pinlane::device::open(1));
    }
    return devices;
  }
  pinlane::emulator_options options;
  options.seed = seed;
  options.memory_bytes = std::size_t{16} << 20;
  options.mode = mode == "lazy" ? pinlane::execution::lazy : pinlane::execution::eager;
  options.watch_host = seed % 4 == 1;
  auto devices = pinlane::device::emulated(2, options);
  for (const pinlane::device& device : devices) {
    pinlane::staging_options staging;
    staging.ring_bytes = 64 * 1024;
    staging.slot_bytes = 8 * 1024;
    staging.first_bytes = 1024;
    staging.direct_bytes = 1024;
    device.set_staging(staging);
  }
  return devices;
}
