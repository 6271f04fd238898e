/// @file
/// Devices, real and emulated, and pools of page-locked memory: what buffers come from.

#ifndef PINLANE_CPP_DEVICE_HPP
#define PINLANE_CPP_DEVICE_HPP

#include "buffer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pinlane {

/// How emulated devices execute what is enqueued.
enum class execution : std::int32_t {
  /// As soon as they can.
  eager = PINLANE_EXECUTION_EAGER,
  /// Only when somebody waits: the latest that CUDA allows.
  lazy = PINLANE_EXECUTION_LAZY,
};

/// Options of an emulated machine.
struct emulator_options {
  /// Decides all that CUDA leaves open; the same seed gives the same run.
  std::uint64_t seed = 0;
  /// Memory of each device.
  std::size_t memory_bytes = std::size_t{1} << 30;
  /// When operations run.
  execution mode = execution::eager;
};

/// Memory of a device, in bytes.
struct memory_info {
  /// Not allocated by anybody.
  std::size_t free;
  /// In all.
  std::size_t total;
};

/// A device: a GPU, or an emulated one. Destroying it does not end what was made from it.
class device : public detail::owner<pinlane_device, pinlane_device_free> {
public:
  using owner::owner;

  /// GPU number `ordinal`, counted from 0. Blocks while CUDA initialises, which can take a second.
  [[nodiscard]] static device open(int ordinal) {
    pinlane_device* handle = nullptr;
    detail::check(pinlane_device_open(ordinal, &handle));
    return device(handle);
  }

  /// GPU 0 where there is one, an emulated device where there is none; its name tells which.
  [[nodiscard]] static device open_or_emulated() {
    pinlane_device* handle = nullptr;
    detail::check(pinlane_device_open_or_emulated(&handle));
    return device(handle);
  }

  /// The `count` devices, 1 to 64, of a new emulated machine.
  [[nodiscard]] static std::vector<device> emulated(int count, emulator_options options = {}) {
    pinlane_emulator_options raw = PINLANE_EMULATOR_OPTIONS_INIT;
    raw.seed = options.seed;
    raw.memory_bytes = options.memory_bytes;
    raw.execution = static_cast<std::int32_t>(options.mode);
    // What allocates comes before the handles, so that nothing can throw while they have no owner.
    std::vector<pinlane_device*> handles(count > 0 ? static_cast<std::size_t>(count) : 1);
    std::vector<device> devices;
    devices.reserve(handles.size());
    detail::check(pinlane_emulator_create(&raw, handles.data(), count));
    for (pinlane_device* handle : handles) {
      devices.emplace_back(handle);
    }
    return devices;
  }

  /// How many GPUs there are: 0 where there is no driver, or no CUDA in this build.
  [[nodiscard]] static int count() {
    std::int32_t count = 0;
    detail::check(pinlane_device_count(&count));
    return count;
  }

  /// The name, as the vendor prints it.
  [[nodiscard]] std::string name() const {
    std::array<char, 256> text{};
    detail::check(pinlane_device_name(get(), text.data(), text.size()));
    return text.data();
  }

  /// The device's number.
  [[nodiscard]] int ordinal() const {
    std::int32_t ordinal = 0;
    detail::check(pinlane_device_ordinal(get(), &ordinal));
    return ordinal;
  }

  /// Free and total memory.
  [[nodiscard]] memory_info memory() const {
    memory_info info{};
    detail::check(pinlane_device_memory_info(get(), &info.free, &info.total));
    return info;
  }

  /// Device memory for `count` elements, of unspecified contents. Does not wait for the device.
  template <class T>
  [[nodiscard]] device_buffer<T> alloc(std::size_t count) const {
    device_buffer<T> buffer;
    detail::check(alloc(std::nothrow, count, buffer));
    return buffer;
  }
  template <class T>
  [[nodiscard]] pinlane_status alloc(std::nothrow_t, std::size_t count,
                                     device_buffer<T>& buffer) const noexcept {
    pinlane_device_buffer* handle = nullptr;
    const pinlane_status status =
        pinlane_device_buffer_alloc(get(), detail::in_bytes(count, sizeof(T)), &handle);
    if (status == PINLANE_STATUS_OK) {
      buffer = device_buffer<T>(handle, count);
    }
    return status;
  }
};

/// What a pool holds and has done; the members are documented in pinlane.h.
using pool_stats = pinlane_pool_stats;

/// Options of a pool.
struct pool_options {
  /// The most that the pool may page-lock at a time.
  std::size_t max_bytes = std::size_t{1} << 30;
};

/// A pool of page-locked host memory. Destroying it does not end its buffers; whoever goes last, the pool
/// or a buffer, waits for the device and gives the memory back.
class pinned_pool : public detail::owner<pinlane_pool, pinlane_pool_free> {
public:
  using owner::owner;

  /// A pool for copies from and to `device`. Page-locks nothing yet.
  explicit pinned_pool(const device& device, pool_options options = {}) {
    pinlane_pool_options raw = PINLANE_POOL_OPTIONS_INIT;
    raw.max_bytes = options.max_bytes;
    pinlane_pool* handle = nullptr;
    detail::check(pinlane_pool_create(device.get(), &raw, &handle));
    *this = pinned_pool(handle);
  }

  /// Page-locked memory for `count` elements, of unspecified contents. Blocks while it page-locks new
  /// memory, and, when the budget is spent, until the device is done with a freed buffer.
  template <class T>
  [[nodiscard]] pinned_buffer<T> alloc(std::size_t count) const {
    pinned_buffer<T> buffer;
    detail::check(alloc(std::nothrow, count, buffer));
    return buffer;
  }
  template <class T>
  [[nodiscard]] pinlane_status alloc(std::nothrow_t, std::size_t count,
                                     pinned_buffer<T>& buffer) const noexcept {
    return alloc_by(pinlane_buffer_alloc, count, buffer);
  }

  /// As `alloc`, with all bytes zero.
  template <class T>
  [[nodiscard]] pinned_buffer<T> alloc_zeroed(std::size_t count) const {
    pinned_buffer<T> buffer;
    detail::check(alloc_by(pinlane_buffer_alloc_zeroed, count, buffer));
    return buffer;
  }

  /// As `alloc`, but only from memory that is page-locked already: neither grows nor waits. No value if
  /// there is none of that size.
  template <class T>
  [[nodiscard]] std::optional<pinned_buffer<T>> try_alloc(std::size_t count) const {
    pinned_buffer<T> buffer;
    const bool found = detail::ready(alloc_by(pinlane_buffer_try_alloc, count, buffer));
    return found ? std::optional(std::move(buffer)) : std::nullopt;
  }

  /// What the pool holds and has done.
  [[nodiscard]] pool_stats stats() const {
    pool_stats stats = PINLANE_POOL_STATS_INIT;
    detail::check(pinlane_pool_get_stats(get(), &stats));
    return stats;
  }

private:
  template <class Alloc, class T>
  pinlane_status alloc_by(Alloc function, std::size_t count, pinned_buffer<T>& buffer) const noexcept {
    pinlane_buffer* handle = nullptr;
    const pinlane_status status = function(get(), detail::in_bytes(count, sizeof(T)), &handle);
    if (status == PINLANE_STATUS_OK) {
      buffer = pinned_buffer<T>(handle, count);
    }
    return status;
  }
};

} // namespace pinlane

#endif // PINLANE_CPP_DEVICE_HPP
