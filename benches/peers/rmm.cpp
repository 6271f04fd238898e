// RMM's pool over page-locked memory, with the workloads of workload.hpp.
//
// Usage: `rmm all SIZES` or `rmm grow`.
#include <cuda_runtime_api.h>

#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include "workload.hpp"

namespace {

using peers::GIB;
using peers::KIB;
using peers::MIB;

void check(cudaError_t status) {
  if (status != cudaSuccess)
    throw std::runtime_error(cudaGetErrorString(status));
}

cudaStream_t stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

class Rmm {
public:
  struct Block {
    void* pointer;
    std::size_t bytes;
  };
  static constexpr const char* RESERVED_METHOD =
      "distance to the block that follows in a fresh pool, bytes above those asked for";

  Rmm(std::size_t initial, std::size_t maximum)
      : pool_(rmm::mr::pinned_host_memory_resource{}, initial, maximum) {}

  Block allocate(std::size_t bytes) { return {pool_.allocate(view_, bytes, ALIGNMENT), bytes}; }

  void free(Block block) { pool_.deallocate(view_, block.pointer, block.bytes, ALIGNMENT); }

  void copy(void* device) {
    const Block block = allocate(4 * KIB);
    check(cudaMemcpyAsync(device, block.pointer, block.bytes, cudaMemcpyHostToDevice, stream_));
    free(block); // ordered on the stream, so no use has to be recorded
  }

  void synchronize() { check(cudaStreamSynchronize(stream_)); }

  std::size_t reserved(std::size_t bytes) {
    const Block block = allocate(bytes), next = allocate(1);
    const auto distance = static_cast<char*>(next.pointer) - static_cast<char*>(block.pointer);
    free(next);
    free(block);
    if (distance < static_cast<std::ptrdiff_t>(bytes))
      throw std::runtime_error("the pool placed blocks out of order");
    return static_cast<std::size_t>(distance);
  }

private:
  static constexpr std::size_t ALIGNMENT = 256;
  cudaStream_t stream_ = stream();
  cuda::stream_ref view_{stream_};
  rmm::mr::pool_memory_resource pool_;
};

constexpr peers::Report REPORT{"rmm"};

void all(const char* sizes) {
  {
    Rmm peer(256 * MIB, GIB);
    peers::hit(peer, REPORT);
    peers::remote(peer, REPORT);
    peers::single(peer, REPORT);
    void* device = nullptr;
    check(cudaMalloc(&device, 4 * KIB));
    peers::copies(peer, device, REPORT);
    check(cudaFree(device));
  }
  Rmm fresh(GIB + 256 * MIB, GIB + 256 * MIB);
  peers::waste(fresh, sizes, REPORT);
}

} // namespace

int main(int count, char** arguments) try {
  const std::string job = count > 1 ? arguments[1] : "";
  check(cudaFree(nullptr));
  if (job == "all" && count == 3) {
    all(arguments[2]);
  } else if (job == "grow" && count == 2) {
    Rmm peer(0, GIB);
    peers::grow(peer, REPORT);
  } else {
    std::fprintf(stderr, "usage: rmm all SIZES | rmm grow\n");
    return 2;
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "rmm: %s\n", error.what());
  return 1;
}
