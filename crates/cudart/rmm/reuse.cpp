// A correct use of RMM's pool: four streams, each of which allocates, works and frees in its own
// order. What the second stream reads must be what it wrote.
//
// Run by scripts/explore-rmm with many seeds. A run that ends with 3 has read the bytes of another
// stream: the pool gave memory away whose last use was not done.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <rmm/cuda_stream.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

namespace {

constexpr std::size_t unit = 1 << 16;
constexpr std::size_t alignment = 256;

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::printf("%s\n", cudaGetErrorName(error));
    std::exit(1);
  }
}

}  // namespace

int main() {
  rmm::cuda_stream a{rmm::cuda_stream::flags::non_blocking};
  rmm::cuda_stream b{rmm::cuda_stream::flags::non_blocking};
  rmm::cuda_stream c{rmm::cuda_stream::flags::non_blocking};
  rmm::cuda_stream d{rmm::cuda_stream::flags::non_blocking};
  char* host;
  check(cudaMallocHost(reinterpret_cast<void**>(&host), unit));

  rmm::mr::cuda_memory_resource upstream;
  rmm::mr::pool_memory_resource pool{upstream, 4 * unit, 4 * unit};
  void* first = pool.allocate(a.view(), unit, alignment);
  void* second = pool.allocate(b.view(), unit, alignment);
  void* kept = pool.allocate(d.view(), unit, alignment);
  void* last = pool.allocate(b.view(), unit, alignment);
  check(cudaMemsetAsync(last, 1, unit, b.value()));
  check(cudaMemcpyAsync(host, last, unit, cudaMemcpyDeviceToHost, b.value()));
  pool.deallocate(a.view(), first, unit, alignment);
  pool.deallocate(b.view(), second, unit, alignment);
  pool.deallocate(b.view(), last, unit, alignment);

  // Has room only in the first two together, so that the free lists of the two streams are merged.
  void* both = pool.allocate(a.view(), 2 * unit, alignment);
  // Is the last one, which is in the list of stream `a` now.
  void* again = pool.allocate(c.view(), unit, alignment);
  check(cudaMemsetAsync(again, 2, unit, c.value()));
  check(cudaStreamSynchronize(c.value()));
  check(cudaStreamSynchronize(b.value()));
  const bool right = std::all_of(host, host + unit, [](char byte) { return byte == 1; });
  std::puts(right ? "right" : "wrong: another stream's bytes");

  pool.deallocate(a.view(), both, 2 * unit, alignment);
  pool.deallocate(c.view(), again, unit, alignment);
  pool.deallocate(d.view(), kept, unit, alignment);
  check(cudaDeviceSynchronize());
  check(cudaFreeHost(host));
  return right ? 0 : 3;
}
