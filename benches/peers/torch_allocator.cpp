// PyTorch's caching host allocator with the workloads of workload.hpp, as an extension module.
#include <ATen/cuda/CachingHostAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <pybind11/pybind11.h>

#include "workload.hpp"

namespace {

using peers::KIB;

// Bytes of the blocks that the allocator owns. Older versions call this statistic reserved_bytes,
// newer ones allocated_bytes, which in older versions means something else.
template <class Stats>
auto owned(const Stats& stats, int) -> decltype(stats.reserved_bytes.current) {
  return stats.reserved_bytes.current;
}
template <class Stats>
auto owned(const Stats& stats, long) -> decltype(stats.allocated_bytes.current) {
  return stats.allocated_bytes.current;
}

class Torch {
public:
  using Block = void*; // the context, which a free needs
  static constexpr const char* RESERVED_METHOD =
      "growth of the allocator's own statistic of owned bytes when its cache is empty, bytes above "
      "those asked for";

  Torch() : deleter_(allocator_->allocate(4 * KIB).get_deleter()) {}

  Block allocate(std::size_t bytes) { return allocator_->allocate(bytes).release_context(); }

  void free(Block block) { deleter_(block); }

  void copy(void* device) {
    auto block = allocator_->allocate(4 * KIB);
    C10_CUDA_CHECK(
        cudaMemcpyAsync(device, block.get(), 4 * KIB, cudaMemcpyHostToDevice, stream_.stream()));
    allocator_->record_event(block.get(), block.get_context(), stream_.unwrap());
  }

  void synchronize() { C10_CUDA_CHECK(cudaStreamSynchronize(stream_.stream())); }

  std::size_t reserved(std::size_t bytes) {
    allocator_->empty_cache();
    const auto before = owned(allocator_->get_stats(), 0);
    const auto block = allocator_->allocate(bytes);
    return static_cast<std::size_t>(owned(allocator_->get_stats(), 0) - before);
  }

private:
  at::HostAllocator* allocator_ = at::getHostAllocator(at::kCUDA);
  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool();
  at::DeleterFnPtr deleter_;
};

constexpr peers::Report REPORT{"torch"};

void all(const std::string& sizes) {
  Torch peer;
  peers::hit(peer, REPORT);
  peers::remote(peer, REPORT);
  peers::single(peer, REPORT);
  void* device = nullptr;
  C10_CUDA_CHECK(cudaMalloc(&device, 4 * KIB));
  peers::copies(peer, device, REPORT);
  C10_CUDA_CHECK(cudaFree(device));
  peers::waste(peer, sizes, REPORT);
}

void grow() {
  Torch peer;
  peers::grow(peer, REPORT);
}

} // namespace

// The calls run without the interpreter's lock, as when PyTorch itself allocates from C++ threads.
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("all", &all, pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("grow", &grow, pybind11::call_guard<pybind11::gil_scoped_release>());
}
