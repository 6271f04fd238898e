// CUDA's own types: streams of libcu++, and a pool as a resource of cuda::mr. Needs a toolkit, and
// runs on the emulated device.

#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE // cuda::mr, before CCCL 3.1
#include <pinlane/cpp/cuda.hpp>

#include "check.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

// The names of the concepts depend on the version.
#if CCCL_VERSION >= 3001000
template <class Resource>
inline constexpr bool is_synchronous =
    cuda::mr::synchronous_resource_with<Resource, cuda::mr::host_accessible,
                                        cuda::mr::device_accessible>;
template <class Resource>
inline constexpr bool is_stream_ordered =
    cuda::mr::resource_with<Resource, cuda::mr::host_accessible, cuda::mr::device_accessible>;
#else
template <class Resource>
inline constexpr bool is_synchronous =
    cuda::mr::resource_with<Resource, cuda::mr::host_accessible, cuda::mr::device_accessible>;
template <class Resource>
inline constexpr bool is_stream_ordered =
    cuda::mr::async_resource_with<Resource, cuda::mr::host_accessible, cuda::mr::device_accessible>;
#endif
static_assert(is_synchronous<pinlane::pinned_resource> && is_synchronous<pinlane::pinned_mr>);
static_assert(is_stream_ordered<pinlane::pinned_mr>);
static_assert(std::is_copy_constructible_v<pinlane::pinned_mr>);
static_assert(std::is_copy_assignable_v<pinlane::pinned_mr>);

namespace {

constexpr std::size_t size = std::size_t{1} << 20;

/// A pool with room for one allocation of `size`.
pinlane::pinned_pool small_pool(const rig& rig) {
  pinlane::pool_options options;
  options.max_bytes = size;
  return pinlane::pinned_pool(rig.device, options);
}

void streams(rig& rig) {
  const cuda::stream_ref native = pinlane::native(rig.stream);
  EXPECT(native.get() == rig.stream.native_handle());
  const pinlane::stream borrowed = pinlane::borrow(rig.device, native);
  EXPECT(pinlane::native(borrowed) == native && borrowed.get() != rig.stream.get());
  const pinlane::stream again = pinlane::borrow(rig.device, native.get()); // a cudaStream_t
  const pinlane::ticket busy = rig.stream.busy(std::chrono::microseconds(1));
  EXPECT(!busy.is_done());
  again.synchronize();
  EXPECT(busy.is_done());
}

void copies_are_equal_and_keep_the_pool(rig& rig) {
  std::optional<pinlane::pinned_pool> pool(small_pool(rig));
  std::optional<pinlane::device> device(rig.device.clone());
  std::optional<pinlane::pinned_mr> first(std::in_place, *device, *pool);
  pinlane::pinned_mr copy = *first;
  const pinlane::pinned_mr twin(*device, *pool), stranger(*device, rig.pool);
  EXPECT(copy == *first && copy == twin && copy != stranger);
  void* const memory = first->allocate_sync(1000);
  pool.reset();
  device.reset();
  first.reset();
  EXPECT(copy.pool().stats().live_bytes == 1024);
  copy.deallocate_sync(memory, 1000);
  EXPECT(copy.pool().stats().live_bytes == 0);
  copy = stranger;
  EXPECT(copy == stranger);
}

void what_cannot_be_allocated_is_thrown(rig& rig) {
  pinlane::pinned_mr resource(rig.device, small_pool(rig));
  const auto native = pinlane::native(rig.stream);
  const auto thrown = [](auto allocate) {
    try {
      static_cast<void>(allocate());
    } catch (const pinlane::bad_alloc& error) {
      return error.cause().status();
    }
    return PINLANE_STATUS_OK;
  };
  EXPECT(thrown([&] { return resource.allocate_sync(size + 1); }) ==
         PINLANE_STATUS_BUDGET_EXHAUSTED);
  EXPECT(thrown([&] { return resource.allocate(native, size + 1); }) ==
         PINLANE_STATUS_BUDGET_EXHAUSTED);
  EXPECT(thrown([&] { return resource.allocate(native, 1, 3); }) == PINLANE_STATUS_INVALID_VALUE);
  void* const none = resource.allocate(native, 0, 4096);
  EXPECT(none != nullptr && reinterpret_cast<std::uintptr_t>(none) % 4096 == 0);
  resource.deallocate(native, none, 0, 4096);
}

// ANCHOR: reuse
void memory_is_reused_when_the_stream_is_past_it(rig& rig) {
  pinlane::pinned_mr resource(rig.device, small_pool(rig));
  const auto native = pinlane::native(rig.stream);
  const auto free_bytes_wait = [&] { return resource.pool().stats().in_flight_bytes; };

  void* memory = resource.allocate(native, size);
  resource.deallocate_sync(memory, size); // it is unused
  EXPECT(free_bytes_wait() == 0 && resource.allocate(native, size) == memory);

  const pinlane::ticket busy = rig.stream.busy(std::chrono::microseconds(1));
  resource.deallocate(native, memory, size);
  EXPECT(free_bytes_wait() == size && !resource.pool().try_alloc<char>(size));
  EXPECT(!busy.is_done());
  // The budget is spent: this waits for the stream.
  EXPECT(resource.allocate(native, size) == memory && busy.is_done());

  // Work that is enqueued after the free does not delay the reuse.
  resource.deallocate(native, memory, size);
  rig.stream.synchronize();
  const pinlane::ticket later = rig.stream.busy(std::chrono::microseconds(1));
  const auto other = resource.pool().try_alloc<char>(size);
  EXPECT(other && other->address() == memory && !later.is_done());

  resource.deallocate(native, nullptr, 0);
  resource.deallocate_sync(nullptr, 0);
}
// ANCHOR_END: reuse

/// The machine of the pool cannot know what such a stream uses.
void memory_freed_on_a_stream_of_another_machine_is_kept(rig& rig) {
  const pinlane::pinned_pool pool = small_pool(rig);
  pinlane::pinned_mr resource(rig.device, pool);
  void* const memory = resource.allocate_sync(size);
  int no_stream = 0;
  resource.deallocate(cuda::stream_ref(reinterpret_cast<cudaStream_t>(&no_stream)), memory, size);
  EXPECT(pool.stats().live_bytes == size && !pool.try_alloc<char>(1));
  resource.deallocate_sync(memory, size);
  EXPECT(pool.stats().live_bytes == 0);
}

template <class Resource>
void type_erased(Resource resource, cuda::stream_ref stream) {
#if CCCL_VERSION >= 3002000
  cuda::mr::any_resource<cuda::mr::host_accessible, cuda::mr::device_accessible> any(resource);
  cuda::mr::resource_ref<cuda::mr::device_accessible> ref(any);
  void* const memory = ref.allocate(stream, 100, 64);
  ref.deallocate(stream, memory, 100, 64);
#elif CCCL_VERSION >= 3001000
  cuda::mr::resource_ref<cuda::mr::device_accessible> ref(resource);
  void* const memory = ref.allocate(stream, 100, 64);
  ref.deallocate(stream, memory, 100, 64);
#else
  cuda::mr::async_resource_ref<cuda::mr::device_accessible> ref(resource);
  void* const memory = ref.allocate_async(100, 64, stream);
  ref.deallocate_async(memory, 100, 64, stream);
#endif
  EXPECT(memory != nullptr && resource.pool().stats().live_bytes == 0);
}

} // namespace

int main() {
  rig rig;
  streams(rig);
  copies_are_equal_and_keep_the_pool(rig);
  what_cannot_be_allocated_is_thrown(rig);
  memory_is_reused_when_the_stream_is_past_it(rig);
  memory_freed_on_a_stream_of_another_machine_is_kept(rig);
  type_erased(pinlane::pinned_mr(rig.device, small_pool(rig)), pinlane::native(rig.stream));
  return verdict("CUDA's own types");
}
