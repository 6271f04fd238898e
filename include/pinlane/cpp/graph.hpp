/// @file
/// Graphs: work that is captured once, and launched many times at the price of one call.

#ifndef PINLANE_CPP_GRAPH_HPP
#define PINLANE_CPP_GRAPH_HPP

#include "buffer.hpp"
#include "device.hpp"
#include "foreign.hpp"
#include "sides.hpp"
#include "stream.hpp"
#include "ticket.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <new>
#include <type_traits>
#include <utility>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// Captured work that can be launched again and again, as one operation. From `capture::finish`.
///
/// The graph holds the buffers that its work names. Destroying one of them does not free its
/// memory: that stays until the graph is destroyed and its launches are complete. Destroying the
/// graph in the middle of a launch is fine too. So all of them may be destroyed in any order. While
/// the graph holds a buffer, other calls that conflict with the work get `PINLANE_STATUS_BUSY`;
/// buffers that the work only reads can be read. `lend` gives a buffer out until the next launch.
class graph : public detail::owner<pinlane_graph, pinlane_graph_free> {
public:
  using owner::owner;

  /// Launches all captured work on `stream`, any stream of the graph's device: after conflicting
  /// uses of the buffers on any stream, and after earlier launches. Does not block. What was lent
  /// is the graph's again; if it is in use, or was destroyed, nothing is launched.
  ticket launch(stream_ref stream) {
    return detail::with_ticket(
        [&](pinlane_ticket** out) { return pinlane_graph_launch(get(), stream.get(), out); });
  }
  [[nodiscard]] pinlane_status launch(std::nothrow_t, stream_ref stream) noexcept {
    return pinlane_graph_launch(get(), stream.get(), nullptr);
  }

  /// The same for work that was captured into a graph of other code, by `capture::join`: `launch`
  /// gets the `cudaStream_t` of `stream` and launches that graph there, and no other work on the
  /// buffers. If it throws, or its thread ends in it, what it enqueued counts as a launch.
  template <class Launch>
  ticket launch_foreign(stream_ref stream, Launch&& launch) {
    auto* const native = static_cast<CUstream_st*>(stream.native_handle());
    pinlane_foreign* begun = nullptr;
    detail::check(pinlane_graph_foreign_begin(get(), stream.get(), &begun));
    foreign_work work(begun, native);
    std::forward<Launch>(launch)(native);
    return work.finish();
  }

  /// Lends a buffer that the work names to the program, until the next launch: until then it works
  /// as if no graph had it. Returns the buffer. Does not block; `read` and `write` wait for the
  /// launches that use it, and copies come after them.
  ///
  /// @code
  ///   std::copy(data, data + n, step.lend(input).write().begin());
  ///   step.launch(stream);
  ///   float first = step.lend(output).read()[0];
  /// @endcode
  ///
  /// Do not destroy a buffer while it is lent: otherwise all launches to come are refused, and its
  /// memory stays until the graph is destroyed, which has its address. Your own memory
  /// (`device::register_memory`) must not be freed before the graph is destroyed.
  template <class Buffer>
  Buffer& lend(Buffer& buffer) {
    detail::check(lend(std::nothrow, buffer));
    return buffer;
  }
  template <class Buffer>
  [[nodiscard]] pinlane_status lend(std::nothrow_t, Buffer& buffer) noexcept {
    return lend_handle(buffer.get());
  }

  /// Puts `replacement`, of the same length, in the place of `buffer` in all launches to come.
  /// `buffer` is then the program's again. Two buffers that take turns need one graph. Does not
  /// block. Buffers that a fill or your own work names cannot be replaced.
  template <class Buffer>
  void rebind(const Buffer& buffer, const Buffer& replacement) {
    detail::check(rebind(std::nothrow, buffer, replacement));
  }
  template <class Buffer>
  [[nodiscard]] pinlane_status rebind(std::nothrow_t, const Buffer& buffer,
                                      const Buffer& replacement) noexcept {
    return rebind_handle(buffer.get(), replacement.get());
  }

  /// The number of bytes that a launch moves or touches, at most.
  [[nodiscard]] std::size_t bytes() const {
    std::size_t bytes = 0;
    detail::check(pinlane_graph_bytes(get(), &bytes));
    return bytes;
  }

private:
  pinlane_status lend_handle(pinlane_buffer* buffer) noexcept {
    return pinlane_graph_lend_buffer(get(), buffer);
  }
  pinlane_status lend_handle(pinlane_device_buffer* buffer) noexcept {
    return pinlane_graph_lend_device_buffer(get(), buffer);
  }
  pinlane_status rebind_handle(pinlane_buffer* buffer, pinlane_buffer* replacement) noexcept {
    return pinlane_graph_rebind_buffer(get(), buffer, replacement);
  }
  pinlane_status rebind_handle(pinlane_device_buffer* buffer,
                               pinlane_device_buffer* replacement) noexcept {
    return pinlane_graph_rebind_device_buffer(get(), buffer, replacement);
  }
};

/// Work that is being captured: recorded, not executed. Destroying it gives it up.
///
/// @code
///   pinlane::capture capture(device);
///   capture.upload(input, gpu);
///   capture.foreign(pinlane::reading(gpu), pinlane::writing(result), [&](auto native) {
///     kernel<<<grid, block, 0, native>>>(gpu.address(), result.address());
///   });
///   capture.download(result, output);
///   pinlane::graph step = capture.finish();
/// @endcode
///
/// Each call records one operation, on buffers and slices; those of one `branch` run one after the
/// other. The capture takes the buffers that they name, as described at `graph`. If a call is
/// refused before anything is captured, the capture is as before. After an error of CUDA it has
/// failed as a whole: all later calls throw the same, and no graph is made. Pageable memory cannot
/// be captured.
class capture : public detail::owner<pinlane_capture, pinlane_capture_free> {
public:
  using owner::owner;

  /// Begins to capture work of `device`, on a stream of the capture's own. Does not block.
  explicit capture(const device& device) {
    pinlane_capture* handle = nullptr;
    detail::check(pinlane_capture_begin(device.get(), &handle));
    *this = capture(handle);
  }

  /// Joins the capture of `stream` that other code has begun (PyTorch, for example): the work
  /// becomes a part of that code's graph. Call `finish` before that code ends its capture. As long
  /// as its graph can be launched, the `graph` exists, and each launch is made in
  /// `graph::launch_foreign`.
  [[nodiscard]] static capture join(stream_ref stream) {
    pinlane_capture* handle = nullptr;
    detail::check(pinlane_capture_join(stream.get(), &handle));
    return capture(handle);
  }

  /// Captures a copy from page-locked to device memory. Each launch reads `source` anew.
  template <class Source, class Destination>
  void upload(const Source& source, Destination&& destination) {
    record(pinlane_capture_upload, source.slice(), destination.slice());
  }

  /// Captures a copy from device to page-locked memory.
  template <class Source, class Destination>
  void download(const Source& source, Destination&& destination) {
    record(pinlane_capture_download, source.slice(), destination.slice());
  }

  /// Captures a copy within the device. The two may be parts of one buffer that do not overlap.
  template <class Source, class Destination>
  void copy(const Source& source, Destination&& destination) {
    record(pinlane_capture_copy, source.slice(), destination.slice());
  }

  /// Captures a kernel that sets every element of `destination` to `value`, of at most 64 bytes.
  template <class Destination>
  void fill(Destination&& destination, const detail::element_of<Destination>& value) {
    detail::check_writable<decltype(destination.slice())>();
    const auto to = destination.slice();
    detail::check(pinlane_capture_fill(get(), to.get(), to.offset_bytes(), to.size_bytes(), &value,
                                       sizeof(value)));
  }

  /// What is captured from now on goes on that branch; a capture begins on branch 0. A launch runs
  /// all branches at the same time, each in the order of its calls. Work that shares a buffer is
  /// ordered all the same, so any choice of branches gives the same result.
  ///
  /// @code
  ///   capture.upload(next, input);
  ///   capture.branch(1); // beside the upload
  ///   capture.download(result, output);
  /// @endcode
  ///
  /// Your own work must share nothing else with that of other branches, such as a library's
  /// workspace.
  void branch(std::uint32_t number) { detail::check(pinlane_capture_branch(get(), number)); }

  /// Lets `launch` capture your own work (a kernel, cuBLAS, NCCL, ...), which reads and writes the
  /// buffers that `reads` and `writes` name. It gets the `cudaStream_t` that is captured, which is
  /// a `void*` too, and enqueues the work there before it returns. A call that cannot be captured
  /// makes the capture invalid, and `finish` throws.
  template <class Reads, class Writes, class Launch>
  void foreign(const Reads& reads, const Writes& writes, Launch&& launch) {
    static_assert(detail::are_uses<Reads> && detail::are_uses<Writes>,
                  "foreign(reading(a), writing(b), launch): the buffers first");
    foreign(detail::joined(reads, writes), std::forward<Launch>(launch));
  }

  /// The same, with one list of uses.
  template <class Uses, class Launch>
  void foreign(const Uses& uses, Launch&& launch) {
    static_assert(detail::are_uses<Uses>,
                  "foreign(reading(a), writing(b), launch): the buffers first");
    void* native = nullptr;
    detail::check(pinlane_capture_foreign(get(), std::data(uses), std::size(uses), &native));
    std::forward<Launch>(launch)(static_cast<CUstream_st*>(native));
  }

  /// Ends the capture, and returns its graph. This object is then empty, even if this throws, and
  /// after a failure the buffers are the program's again. Waits for nothing.
  [[nodiscard]] graph finish() {
    pinlane_graph* handle = nullptr;
    const pinlane_status status = pinlane_capture_finish(get(), &handle);
    if (status != PINLANE_STATUS_BUSY) {
      static_cast<void>(release()); // freed
    }
    detail::check(status);
    return graph(handle);
  }

private:
  template <class Function, class From, class To>
  void record(Function function, From from, To to) {
    using source_element = std::remove_const_t<typename From::element_type>;
    static_assert(std::is_same_v<source_element, typename To::element_type>,
                  "both sides have elements of one type, and the destination's are not const");
    detail::check_lengths(from.size(), to.size());
    detail::check(function(get(), from.get(), from.offset_bytes(), to.get(), to.offset_bytes(),
                           from.size_bytes()));
  }
};

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_GRAPH_HPP
