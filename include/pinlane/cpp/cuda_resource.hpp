/// @file
/// Pools as memory resources of libcu++ (`cuda::mr`), accessible from host and device. pinlane.hpp
/// does not include it, because it needs headers of CUDA. Empty without libcu++. Before CCCL 3.1,
/// libcu++ has memory resources only if `LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE` is
/// defined.

#ifndef PINLANE_CPP_CUDA_RESOURCE_HPP
#define PINLANE_CPP_CUDA_RESOURCE_HPP

#include "resource.hpp"

#if __has_include(<cuda/memory_resource>) && __has_include(<memory_resource>)

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <cstddef>
#include <cstdint>
#include <memory>

#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error "this libcu++ has memory resources only with LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"
#endif

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// A pool as a stream-ordered memory resource (`cuda::mr::resource`), for containers and libraries
/// that take one: libcu++, RMM.
///
/// @code
///   pinlane::pinned_mr resource(device, pool);
///   void* memory = resource.allocate(stream, bytes); // the host may write to it at once
///   cudaMemcpyAsync(gpu, memory, bytes, cudaMemcpyHostToDevice, stream.get());
///   resource.deallocate(stream, memory, bytes); // reused only when the copy is complete
/// @endcode
///
/// - Copies share the pool and keep it alive; the last one must outlive what was allocated.
///   Resources of one pool are equal: each frees what another one allocated.
/// - `allocate` returns memory that is not in use, on any stream or the host. So it needs no order
///   with the stream. Throws `pinlane::bad_alloc`; with `-fno-exceptions`, prints its message and
///   aborts. Blocks as `pinned_pool::alloc`.
/// - `deallocate` on a stream does not block, unless the use cannot be recorded: then it waits for
///   the stream. If that fails too, or the stream is being captured, the memory stays allocated
///   forever, because a device, or a graph, may still use it. When it has returned, the stream may
///   be destroyed.
/// - The streams belong to `device`. For streams of another device, make a resource of that device
///   and the same pool. On a stream of the wrong device, `deallocate` waits for the stream.
/// - Otherwise it is plain memory, as the memory of `pinned_resource`. Any thread may call any
///   function.
class pinned_mr {
public:
  pinned_mr(const device& device, const pinned_pool& pool)
      : m_shared(std::make_shared<const shared>(device, pool)) {}

  /// The pool that provides the memory.
  [[nodiscard]] const pinned_pool& pool() const noexcept { return m_shared->pool; }

  /// Memory for the host, and for work on any stream.
  [[nodiscard]] void* allocate(::cuda::stream_ref, std::size_t bytes,
                               std::size_t alignment = alignof(std::max_align_t)) {
    return detail::allocate(pool(), bytes, alignment);
  }

  /// Frees `memory` after everything that is on `stream` now.
  void deallocate(::cuda::stream_ref stream, void* memory, std::size_t,
                  std::size_t = alignof(std::max_align_t)) noexcept {
    if (memory != nullptr && used_until_now(memory, stream.get()) == PINLANE_STATUS_OK) {
      detail::deallocate(pool(), memory);
    }
  }

  /// Memory for the host, and for work on any stream.
  [[nodiscard]] void* allocate_sync(std::size_t bytes,
                                    std::size_t alignment = alignof(std::max_align_t)) {
    return detail::allocate(pool(), bytes, alignment);
  }

  /// Frees `memory` at once: it is no longer in use.
  void deallocate_sync(void* memory, std::size_t,
                       std::size_t = alignof(std::max_align_t)) noexcept {
    detail::deallocate(pool(), memory);
  }

#if CCCL_VERSION < 3001000 // The names of older versions of libcu++.
  [[nodiscard]] void* allocate(std::size_t bytes,
                               std::size_t alignment = alignof(std::max_align_t)) {
    return allocate_sync(bytes, alignment);
  }
  void deallocate(void* memory, std::size_t bytes,
                  std::size_t alignment = alignof(std::max_align_t)) noexcept {
    deallocate_sync(memory, bytes, alignment);
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment,
                                     ::cuda::stream_ref stream) {
    return allocate(stream, bytes, alignment);
  }
  void deallocate_async(void* memory, std::size_t bytes, std::size_t alignment,
                        ::cuda::stream_ref stream) noexcept {
    deallocate(stream, memory, bytes, alignment);
  }
#endif

  [[nodiscard]] friend bool operator==(const pinned_mr& a, const pinned_mr& b) noexcept {
    return detail::is_same(a.pool(), b.pool());
  }
  [[nodiscard]] friend bool operator!=(const pinned_mr& a, const pinned_mr& b) noexcept {
    return !(a == b);
  }

private:
  struct shared {
    shared(const pinlane::device& device, const pinned_pool& pool)
        : device(device.clone()), pool(pool.clone()) {}
    pinlane::device device;
    pinned_pool pool;
  };

  /// OK if everything on the stream is now recorded as a use of the memory, or is complete. Handle
  /// 0 counts as the legacy default stream. That is also right for programs that mean the
  /// per-thread default stream by it, because the legacy stream waits for those streams.
  pinlane_status used_until_now(const void* memory, void* cuda_stream) const noexcept {
    pinlane_stream* handle = nullptr;
    const pinlane_status borrowed =
        pinlane_stream_borrow(m_shared->device.get(), cuda_stream, &handle);
    if (borrowed != PINLANE_STATUS_OK) {
      return borrowed;
    }
    const stream used(handle);
    const pinlane_status recorded = pinlane_pool_record_use(pool().get(), memory, used.get());
    if (recorded == PINLANE_STATUS_OK || recorded == PINLANE_STATUS_STREAM_CAPTURING) {
      return recorded;
    }
    return used.synchronize(std::nothrow);
  }

  std::shared_ptr<const shared> m_shared;
};

// libcu++ finds these by the type of the resource. Host and devices use one address for
// page-locked memory.
inline void get_property(const pinned_resource&, ::cuda::mr::host_accessible) noexcept {}
inline void get_property(const pinned_resource&, ::cuda::mr::device_accessible) noexcept {}
inline void get_property(const pinned_mr&, ::cuda::mr::host_accessible) noexcept {}
inline void get_property(const pinned_mr&, ::cuda::mr::device_accessible) noexcept {}

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // __has_include(<cuda/memory_resource>)

#endif // PINLANE_CPP_CUDA_RESOURCE_HPP
