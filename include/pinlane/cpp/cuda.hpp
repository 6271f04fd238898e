/// @file
/// Streams and memory resources as CUDA's own types. pinlane.hpp does not include it, because it
/// needs headers of CUDA. Empty without libcu++.
///
/// @code
///   pinlane::stream mine = pinlane::borrow(device, stream); // of a cudaStream_t, cuda::stream_ref
///   cuda::stream_ref theirs = pinlane::native(mine);        // for kernels, CUB, Thrust, libcu++
///   mine.wait_event(event);                                 // your cudaEvent_t
///   mine.record_event(event);
///   pinlane::borrow(device, stream).wait(ticket);           // your stream waits for a ticket
/// @endcode
///
/// Your program and pinlane may use different CUDA runtimes, because streams and events belong to
/// the driver.

#ifndef PINLANE_CPP_CUDA_HPP
#define PINLANE_CPP_CUDA_HPP

#include "cuda_resource.hpp"
#include "stream.hpp"

#if __has_include(<cuda/stream_ref>)

#include <cuda/stream_ref>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// As `stream::from_native_handle`: your own CUDA stream, a stream of `device`. It must outlive the
/// result and the work that is enqueued through it.
[[nodiscard]] inline stream borrow(const device& device, ::cuda::stream_ref stream) {
  return pinlane::stream::from_native_handle(device, stream.get());
}

/// The CUDA stream of `stream`, with the same lifetime. Enqueue work that uses buffers inside
/// `stream::foreign`.
[[nodiscard]] inline ::cuda::stream_ref native(stream_ref stream) {
  return ::cuda::stream_ref(static_cast<::cudaStream_t>(stream.native_handle()));
}

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // __has_include(<cuda/stream_ref>)

#endif // PINLANE_CPP_CUDA_HPP
