/// @file
/// Devices, real and emulated.

#ifndef PINLANE_CPP_DEVICE_HPP
#define PINLANE_CPP_DEVICE_HPP

#include "buffer.hpp"
#include "staging.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// When emulated devices execute enqueued work.
enum class execution : std::int32_t {
  /// As soon as they can.
  eager = PINLANE_EXECUTION_EAGER,
  /// Only when the program waits for it: as late as CUDA allows.
  lazy = PINLANE_EXECUTION_LAZY,
  /// At any call or wait, as the seed decides.
  random = PINLANE_EXECUTION_RANDOM,
  /// The same, and copies and fills land in pieces, with work of other streams in between.
  chunked = PINLANE_EXECUTION_CHUNKED,
  /// By random priorities that change at random points. pinlane.h says what that finds.
  pct = PINLANE_EXECUTION_PCT,
};

/// Options of an emulated machine.
struct emulator_options {
  /// Decides everything that CUDA leaves open. The same seed gives the same run.
  std::uint64_t seed = 0;
  /// Memory of each device.
  std::size_t memory_bytes = std::size_t{1} << 30;
  /// When operations run.
  execution mode = execution::eager;
  /// Whether the driver supports batches of copies, as since CUDA 12.8.
  bool batches = true;
  /// Whether kernels can use page-locked memory at the addresses that the host uses.
  bool host_addresses = true;
  /// Whether the machine looks for races: unordered operations on the same bytes.
  bool races = true;
  /// Whether findings of races name the program's lines; it makes calls a thousand times slower.
  bool sites = false;
  /// Whether in that search each thread knows only the work that it has waited for itself.
  bool threads_apart = false;
  /// Whether findings include the program's own accesses to page-locked memory of the machine and
  /// its pools that come too early, as for `PINLANE_EMULATOR_WATCH_HOST`.
  bool watch_host = false;
  /// The most that one CUDA call page-locks; 0: no limit.
  std::size_t page_lock_limit_bytes = 0;
  /// Whether the machine records its decisions, for `emulator::replay`.
  bool record = false;
  /// A run to repeat: a text of `emulator::replay`. If it is not empty, `seed` and `mode` are
  /// ignored.
  std::string replay{};
  /// The approximate number of operations that the program enqueues, for `execution::pct`; 0: not
  /// known.
  std::uint64_t operations = 0;
  /// For `execution::pct`: how many pairs of steps must come in a certain order for a bug to show.
  std::uint32_t pct_depth = 3;
  /// How long a call may wait for one host function to return; 0: without limit. After that time it
  /// is a finding, `Deadlock`, and the device is lost, so that the program does not hang.
  std::chrono::microseconds host_function_limit{0};
};

namespace detail {

/// The options for C. They refer to the replay of `options`, which must live as long.
inline pinlane_emulator_options raw_options(const emulator_options& options) {
  pinlane_emulator_options raw = PINLANE_EMULATOR_OPTIONS_INIT;
  raw.seed = options.seed;
  raw.memory_bytes = options.memory_bytes;
  raw.execution = static_cast<std::int32_t>(options.mode);
  raw.flags = (options.batches ? 0u : PINLANE_EMULATOR_NO_BATCHES) |
              (options.host_addresses ? 0u : PINLANE_EMULATOR_NO_HOST_ADDRESSES) |
              (options.races ? 0u : PINLANE_EMULATOR_NO_RACES) |
              (options.sites ? PINLANE_EMULATOR_SITES : 0u) |
              (options.threads_apart ? PINLANE_EMULATOR_THREADS_APART : 0u) |
              (options.record ? PINLANE_EMULATOR_RECORD : 0u) |
              (options.watch_host ? PINLANE_EMULATOR_WATCH_HOST : 0u);
  raw.page_lock_limit_bytes = options.page_lock_limit_bytes;
  raw.replay = options.replay.empty() ? nullptr : options.replay.c_str();
  raw.operations = options.operations;
  raw.pct_depth = options.pct_depth;
  detail::check_not_negative(options.host_function_limit, "emulator_options::host_function_limit");
  raw.host_function_limit_us = detail::in_microseconds(options.host_function_limit);
  return raw;
}

} // namespace detail

/// Memory of a device, in bytes.
struct memory_info {
  /// Memory that is not allocated.
  std::size_t free = 0;
  /// All memory.
  std::size_t total = 0;
};

/// A device: a GPU, or an emulated one. Objects made from it stay valid after it is destroyed.
class device : public detail::owner<pinlane_device, pinlane_device_free> {
public:
  using owner::owner;

  /// GPU number `ordinal`, counted from 0. Blocks while CUDA initialises, which can take a second.
  [[nodiscard]] static device open(int ordinal) {
    pinlane_device* handle = nullptr;
    detail::check(pinlane_device_open(ordinal, &handle));
    return device(handle);
  }

  /// GPU 0 if there is one, otherwise an emulated device. Its name shows which.
  [[nodiscard]] static device open_or_emulated() {
    pinlane_device* handle = nullptr;
    detail::check(pinlane_device_open_or_emulated(&handle));
    return device(handle);
  }

  /// The `count` devices, 1 to 64, of a new emulated machine.
  [[nodiscard]] static std::vector<device> emulated(int count,
                                                    const emulator_options& options = {}) {
    const pinlane_emulator_options raw = detail::raw_options(options);
    // Allocate before the handles exist: nothing may throw while they have no owner.
    std::vector<pinlane_device*> handles(count > 0 ? static_cast<std::size_t>(count) : 1);
    std::vector<device> devices;
    devices.reserve(handles.size());
    detail::check(pinlane_emulator_create(&raw, handles.data(), count));
    for (pinlane_device* handle : handles) {
      devices.emplace_back(handle);
    }
    return devices;
  }

  /// The number of GPUs: 0 if there is no driver, or no CUDA in this build.
  [[nodiscard]] static int count() {
    std::int32_t count = 0;
    detail::check(pinlane_device_count(&count));
    return count;
  }

  /// Another owner of the same device.
  [[nodiscard]] device clone() const {
    pinlane_device* handle = nullptr;
    detail::check(pinlane_device_clone(get(), &handle));
    return device(handle);
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

  /// Whether both are the same device.
  [[nodiscard]] friend bool operator==(const device& one, const device& other) {
    std::int32_t same = 0;
    detail::check(pinlane_device_is_same(one.get(), other.get(), &same));
    return same != 0;
  }
  [[nodiscard]] friend bool operator!=(const device& one, const device& other) {
    return !(one == other);
  }

  /// Free and total memory.
  [[nodiscard]] memory_info memory() const {
    memory_info info{};
    detail::check(pinlane_device_memory_info(get(), &info.free, &info.total));
    return info;
  }

  /// How many streams of the device exist that pinlane created.
  [[nodiscard]] std::size_t live_streams() const {
    std::size_t count = 0;
    detail::check(pinlane_device_live_streams(get(), &count));
    return count;
  }

  /// Memory that is never freed because the device failed.
  [[nodiscard]] std::size_t quarantined_bytes() const {
    std::size_t bytes = 0;
    detail::check(pinlane_device_quarantined_bytes(get(), &bytes));
    return bytes;
  }

  /// Sets how copies of pageable memory are staged on this device, for all its handles. Call it
  /// right after the device is opened: after the first such copy it fails.
  void set_staging(staging_options options) const {
    const pinlane_staging_options raw = detail::raw(options);
    detail::check(pinlane_device_set_staging(get(), &raw));
  }

  /// Prepares large copies of pageable memory and of files in advance, on an extra thread:
  /// page-locks the memory of `staging_options`, and starts copy threads. Otherwise the first such
  /// copy waits for that. Returns at once. Call `set_staging` before.
  void warm_up() const { detail::check(pinlane_device_warm_up(get())); }

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

  /// Lends `count` elements of your own device memory, from `elements` on, to a buffer. It works as
  /// a buffer of `alloc`; destroying it does not free the memory. The memory lies in one allocation
  /// on this device, and stays allocated until everything that was enqueued through the buffer is
  /// complete. You order work on it that is enqueued elsewhere, with `stream::foreign` for example.
  template <class T>
  [[nodiscard]] device_buffer<T> borrow_memory(T* elements, std::size_t count) const {
    pinlane_device_buffer* handle = nullptr;
    const std::size_t bytes = detail::in_bytes(count, sizeof(T));
    detail::check(pinlane_device_buffer_borrow(get(), elements, bytes, &handle));
    return device_buffer<T>(handle, count);
  }

  /// Page-locks `count` elements of your own memory, from `elements` on, and lends them to a
  /// buffer. Blocks for about as long as allocating page-locked memory takes. Until the buffer is
  /// destroyed, the memory must stay allocated, and may be accessed only through the buffer.
  /// Destroying the buffer blocks until the device is done. Destroy it while no other call uses it,
  /// and not in a host function: otherwise the memory stays page-locked.
  template <class T>
  [[nodiscard]] pinned_buffer<T> register_memory(T* elements, std::size_t count) const {
    pinned_buffer<T> buffer;
    detail::check(register_memory(std::nothrow, elements, count, buffer));
    return buffer;
  }
  template <class T>
  [[nodiscard]] pinlane_status register_memory(std::nothrow_t, T* elements, std::size_t count,
                                               pinned_buffer<T>& buffer) const noexcept {
    pinlane_buffer* handle = nullptr;
    const pinlane_status status =
        pinlane_buffer_register(get(), elements, detail::in_bytes(count, sizeof(T)), &handle);
    if (status == PINLANE_STATUS_OK) {
      buffer = pinned_buffer<T>(handle, count);
    }
    return status;
  }

  /// Page-locks `count` elements of your own memory, from `elements` on, as a source of uploads:
  /// memory that nothing changes, which may be mapped for reading only, such as a file or a
  /// constant. Each upload takes the bytes from there, and no thread of the host copies them.
  /// Otherwise as `register_memory`. Throws `PINLANE_STATUS_UNSUPPORTED` for memory that is mapped
  /// for reading only, on a device that cannot register it.
  template <class T>
  [[nodiscard]] read_only_buffer<T> register_read_only(const T* elements, std::size_t count) const {
    read_only_buffer<T> buffer;
    detail::check(register_read_only(std::nothrow, elements, count, buffer));
    return buffer;
  }
  template <class T>
  [[nodiscard]] pinlane_status register_read_only(std::nothrow_t, const T* elements,
                                                  std::size_t count,
                                                  read_only_buffer<T>& buffer) const noexcept {
    pinlane_buffer* handle = nullptr;
    const pinlane_status status = pinlane_buffer_register_read_only(
        get(), elements, detail::in_bytes(count, sizeof(T)), &handle);
    if (status == PINLANE_STATUS_OK) {
      buffer = read_only_buffer<T>(handle, count);
    }
    return status;
  }
};

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_DEVICE_HPP
