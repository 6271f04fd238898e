/// @file
/// Files whose ranges go to a device or into page-locked memory.

#ifndef PINLANE_CPP_FILE_HPP
#define PINLANE_CPP_FILE_HPP

#include "device.hpp"
#include "sides.hpp"
#include "ticket.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// A file that is open for reading. Elements have the same layout in it as in memory.
class file_reader : public detail::owner<pinlane_file, pinlane_file_free> {
public:
  using owner::owner;

  /// The regular file at `path`, read through the system's page cache.
  [[nodiscard]] static file_reader open(const std::string& path) { return open_with(path, 0); }

  /// The regular file at `path`, read past the page cache (`O_DIRECT`): for files larger than
  /// memory, or read once.
  [[nodiscard]] static file_reader open_direct(const std::string& path) {
    return open_with(path, PINLANE_FILE_DIRECT);
  }

  /// The regular file at `path`, for uploads again and again: it is page-locked where it lies in
  /// the page cache, and no thread of the host copies a byte. Blocks for 50 to 70 ms a GiB.
  /// Destroying it blocks until no upload reads it. See `pinlane_file_open_mapped`.
  [[nodiscard]] static file_reader open_mapped(const device& owner, const std::string& path) {
    pinlane_file* handle = nullptr;
    detail::check(pinlane_file_open_mapped(owner.get(), path.c_str(), &handle));
    return file_reader(handle);
  }

  /// The current size of the file.
  [[nodiscard]] std::uint64_t size_bytes() const {
    std::uint64_t bytes = 0;
    detail::check(pinlane_file_size(get(), &bytes));
    return bytes;
  }

  /// Reads the file from `offset_bytes` on into `destination`, in page-locked memory, until it is
  /// full. Uses several threads. Blocks until no device use of `destination` is pending, and until
  /// everything is read.
  template <class Destination>
  void read(std::uint64_t offset_bytes, Destination&& destination) const {
    const auto to = destination.slice();
    detail::check_writable<decltype(to)>();
    detail::check(
        pinlane_file_read(get(), offset_bytes, to.get(), to.offset_bytes(), to.size_bytes()));
  }

private:
  static file_reader open_with(const std::string& path, std::uint32_t flags) {
    pinlane_file* handle = nullptr;
    detail::check(pinlane_file_open(path.c_str(), flags, &handle));
    return file_reader(handle);
  }
};

/// One range of `stream::upload_file_ranges`. It names memory and does not own it.
struct file_range : pinlane_file_range {
  /// From `offset_bytes` of the file on, to a `device_buffer` or a slice of one, for its whole
  /// size.
  template <class Destination, detail::if_stays<Destination> = 0>
  file_range(std::uint64_t offset_bytes, Destination&& destination) : pinlane_file_range{} {
    const auto to = destination.slice();
    detail::check_writable<decltype(to)>();
    offset = offset_bytes;
    bytes = to.size_bytes();
    device_buffer = to.get();
    device_offset = to.offset_bytes();
  }

  /// Not from temporaries, which are destroyed before the copy is made. See `is_view`.
  template <class Destination, detail::if_goes<Destination> = 0>
  file_range(std::uint64_t offset_bytes, Destination&& destination) = delete;

  /// To `size_bytes` of your own device memory at `destination`.
  file_range(std::uint64_t offset_bytes, void* destination, std::size_t size_bytes) noexcept
      : pinlane_file_range{} {
    offset = offset_bytes;
    bytes = size_bytes;
    dst = destination;
  }
};

static_assert(sizeof(file_range) == sizeof(pinlane_file_range),
              "an array of one is an array of the other");

namespace detail {

/// The file copies of a stream. `Self` is `stream` or `stream_ref`.
template <class Self>
class file_operations {
public:
  /// Copies the bytes of `file` from `offset_bytes` on to `destination`, in device memory, for its
  /// whole size. Blocks until they are read.
  template <class Destination>
  ticket upload_file(const file_reader& file, std::uint64_t offset_bytes,
                     Destination&& destination) const {
    const file_range range(offset_bytes, destination);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_device_buffer_upload_file(self(), file.get(), range.offset,
                                               range.device_buffer, range.device_offset,
                                               range.bytes, out);
    });
  }

  /// Copies `ranges`, a contiguous container of `file_range`, as one job, so the device does not
  /// wait between them. Fastest in the order of the file. Destinations must not overlap. Blocks as
  /// `upload_file`.
  template <class Ranges>
  ticket upload_file_ranges(const file_reader& file, const Ranges& ranges) const {
    static_assert(std::is_same_v<std::remove_const_t<element_of<const Ranges>>, file_range>,
                  "a contiguous container of file_range");
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_upload_file_ranges(self(), file.get(), std::data(ranges), std::size(ranges),
                                        out);
    });
  }

private:
  [[nodiscard]] pinlane_stream* self() const noexcept {
    return static_cast<const Self&>(*this).get();
  }
};

} // namespace detail

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_FILE_HPP
