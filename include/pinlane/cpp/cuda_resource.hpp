/// @file `pinned_resource` as a memory resource of libcu++ (`cuda::mr`), accessible from host and
/// device. Not included by pinlane.hpp, which needs no header of CUDA; empty where there is no
/// libcu++. Before CCCL 3.1, libcu++ has it only with
/// `LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE` defined.

#ifndef PINLANE_CPP_CUDA_RESOURCE_HPP
#define PINLANE_CPP_CUDA_RESOURCE_HPP

#include "resource.hpp"

#if __has_include(<cuda/memory_resource>) && __has_include(<memory_resource>)

#include <cuda/memory_resource>

#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error "this libcu++ has memory resources only with LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"
#endif

namespace pinlane {

// libcu++ finds them by the type of the resource. Page-locked memory has one address on all sides.
inline void get_property(const pinned_resource&, cuda::mr::host_accessible) noexcept {}
inline void get_property(const pinned_resource&, cuda::mr::device_accessible) noexcept {}

} // namespace pinlane

#endif // __has_include(<cuda/memory_resource>)

#endif // PINLANE_CPP_CUDA_RESOURCE_HPP
