/// @file
/// pinlane for C++17 and later: owning types, elements instead of bytes, exceptions instead of
/// statuses. Header-only, over pinlane.h. Needs no header of CUDA.
///
/// @code
///   pinlane::device device = pinlane::device::open_or_emulated();
///   pinlane::pinned_pool pool(device);
///   pinlane::stream stream(device);
///
///   auto host = pool.alloc<float>(n);                // page-locked
///   std::copy(data, data + n, host.write().begin()); // write() waits if a device uses the block
///   auto gpu = device.alloc<float>(n);
///   stream.upload(host, gpu);                        // returns at once
///   stream.download(gpu.slice(0, 8), host.slice(8, 8));
///   float first = host.read()[8];                    // waits for that copy, not for the stream
///
///   std::vector<float> values(n);                    // pageable memory
///   stream.download(gpu, values);                    // returns when the values have arrived
///   std::vector<pinlane::upload_item> items;         // many copies by one call
///   for (auto& layer : layers) items.emplace_back(layer.weights, layer.gpu);
///   stream.upload_batch(items);
/// @endcode
///
/// - **Ownership.** The owning types are move-only. Their destructors free and never throw; a
///   buffer may be destroyed in the middle of a copy. A destructor blocks only for registered
///   memory, for a `prefetch`, and for the last owner of a pool or of its buffers. Objects keep
///   alive what they were made from, so they may be destroyed in any order. `get()` returns the
///   handle of the C interface, `release()` gives it up, and an explicit constructor takes one
///   over.
/// - **Empty objects.** A default-constructed or moved-from object is empty: `get()` is NULL, and
///   calls on it fail with `PINLANE_STATUS_INVALID_HANDLE`.
/// - **Errors.** A call that fails throws `pinlane::error`, a `std::system_error` with an `errc`.
///   Calls for hot paths have a second form, whose first argument is `std::nothrow`. It returns the
///   status and never throws. With `-fno-exceptions` the throwing form prints its message and
///   aborts. A destructor that fails reports to the program's log: see `set_log`.
/// - **Flags of the compiler.** Files with and without `-fno-exceptions` or `-fno-rtti` may be
///   linked together: each file keeps its behaviour, and has its own types. See cpp/mode.hpp.
/// - **Callbacks** must not throw. Producers of a `prefetch` may.
/// - **Coroutines.** With C++20, `co_await` takes tickets, `alloc_async` and `next_async`; see
///   cpp/request.hpp for the thread that resumes.
/// - **Containers.** `pinned_resource` is a pool as a `std::pmr::memory_resource`. A `pinned_span`
///   of such a container is copied like a buffer.
/// - **CUDA's own types.** cpp/cuda.hpp, which this header does not include, has `cuda::stream_ref`
///   and a resource of `cuda::mr`.
/// - **Threads.** As in pinlane.h: any thread may call any function; one thread at a time uses a
///   buffer.
///
/// Sizes and offsets are in elements unless a name says bytes. pinlane.h lists the statuses of each
/// call, at the C function of the same name.

#ifndef PINLANE_PINLANE_HPP
#define PINLANE_PINLANE_HPP

#include "cpp/batch.hpp"
#include "cpp/buffer.hpp"
#include "cpp/device.hpp"
#include "cpp/diagnostics.hpp"
#include "cpp/dlpack.hpp"
#include "cpp/emulator.hpp"
#include "cpp/explore.hpp"
#include "cpp/error.hpp"
#include "cpp/file.hpp"
#include "cpp/foreign.hpp"
#include "cpp/graph.hpp"
#include "cpp/host_batch.hpp"
#include "cpp/mode.hpp"
#include "cpp/pairs.hpp"
#include "cpp/parts.hpp"
#include "cpp/pool.hpp"
#include "cpp/prefetch.hpp"
#include "cpp/recording.hpp"
#include "cpp/request.hpp"
#include "cpp/resource.hpp"
#include "cpp/rows.hpp"
#include "cpp/sides.hpp"
#include "cpp/staging.hpp"
#include "cpp/stream.hpp"
#include "cpp/strided.hpp"
#include "cpp/ticket.hpp"

#endif // PINLANE_PINLANE_HPP
