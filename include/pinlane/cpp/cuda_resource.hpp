/// @file
/// `pinned_resource` as a memory resource of libcu++ (`cuda::mr`), accessible from host and device.
/// pinlane.hpp does not include it, because it needs headers of CUDA. Empty without libcu++. Before
/// CCCL 3.1, libcu++ has memory resources only if
/// `LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE` is defined.

#ifndef PINLANE_CPP_CUDA_RESOURCE_HPP
#define PINLANE_CPP_CUDA_RESOURCE_HPP

#include "resource.hpp"

#if __has_include(<cuda/memory_resource>) && __has_include(<memory_resource>)

#include <cuda/memory_resource>

#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error "this libcu++ has memory resources only with LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"
#endif

namespace pinlane {

// libcu++ finds these by the type of the resource. Host and devices use one address for
// page-locked memory.
inline void get_property(const pinned_resource&, cuda::mr::host_accessible) noexcept {}
inline void get_property(const pinned_resource&, cuda::mr::device_accessible) noexcept {}

} // namespace pinlane

#endif // __has_include(<cuda/memory_resource>)

#endif // PINLANE_CPP_CUDA_RESOURCE_HPP
