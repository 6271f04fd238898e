// An existing CUDA program that moves to pinlane step by step. Each step is a whole program that
// gives the same result, so you can stop at any of them. Needs a GPU.

#include <pinlane/pinlane.hpp>

#include <cuda_runtime.h>

#include <cstdio>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::size_t count = 1 << 20, chunks = 8;
constexpr unsigned threads = 256, blocks = (count + threads - 1) / threads;

__global__ void scale(float* values, float by) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) {
    values[i] *= by;
  }
}

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

/// What chunk number `chunk` holds before the kernel. Afterwards it holds twice that.
float value(std::size_t chunk, std::size_t i) { return static_cast<float>(chunk + i % 1000); }

template <class Elements>
void produce(std::size_t chunk, Elements&& into) {
  for (std::size_t i = 0; i < count; ++i) {
    into[i] = value(chunk, i);
  }
}

template <class Elements>
bool is_right(std::size_t chunk, const Elements& result) {
  for (std::size_t i = 0; i < count; ++i) {
    if (result[i] != 2 * value(chunk, i)) {
      return false;
    }
  }
  return true;
}

/// The original program. Its memory is pageable, so the copies are slow and overlap nothing.
// ANCHOR: before
bool step_0_before() {
  cudaStream_t stream = nullptr;
  float* gpu = nullptr;
  std::vector<float> host(count);
  bool right = true;
  check(cudaStreamCreate(&stream));
  check(cudaMalloc(&gpu, count * sizeof(float)));
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    produce(chunk, host);
    check(cudaMemcpyAsync(gpu, host.data(), count * sizeof(float), cudaMemcpyDefault, stream));
    scale<<<blocks, threads, 0, stream>>>(gpu, 2);
    check(cudaMemcpyAsync(host.data(), gpu, count * sizeof(float), cudaMemcpyDefault, stream));
    check(cudaStreamSynchronize(stream));
    right = right && is_right(chunk, host);
  }
  check(cudaFree(gpu));
  check(cudaStreamDestroy(stream));
  return right;
}
// ANCHOR_END: before

/// One line changes: the vector lives in page-locked memory of a pool.
bool step_1_page_locked_memory(const pinlane::pinned_pool& pool) {
  pinlane::pinned_resource memory(pool);
  cudaStream_t stream = nullptr;
  float* gpu = nullptr;
  std::pmr::vector<float> host(count, &memory);
  bool right = true;
  check(cudaStreamCreate(&stream));
  check(cudaMalloc(&gpu, count * sizeof(float)));
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    produce(chunk, host);
    check(cudaMemcpyAsync(gpu, host.data(), count * sizeof(float), cudaMemcpyDefault, stream));
    scale<<<blocks, threads, 0, stream>>>(gpu, 2);
    check(cudaMemcpyAsync(host.data(), gpu, count * sizeof(float), cudaMemcpyDefault, stream));
    check(cudaStreamSynchronize(stream)); // still yours to remember
    right = right && is_right(chunk, host);
  }
  check(cudaFree(gpu));
  check(cudaStreamDestroy(stream));
  return right;
}

/// pinlane copies, on your stream and to your device memory. Buffers know when the device is done,
/// so there is one for each chunk, and the program waits only when it reads the results.
// ANCHOR: copies
bool step_2_copies(const pinlane::device& device, const pinlane::pinned_pool& pool) {
  cudaStream_t mine = nullptr;
  float* gpu = nullptr;
  check(cudaStreamCreate(&mine));
  check(cudaMalloc(&gpu, count * sizeof(float)));
  bool right = true;
  {
    const auto stream = pinlane::stream::from_native_handle(device, mine);
    std::vector<pinlane::pinned_buffer<float>> hosts;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      auto& host = hosts.emplace_back(pool.alloc<float>(count));
      produce(chunk, host.write());
      stream.upload_to(host, gpu);
      scale<<<blocks, threads, 0, mine>>>(gpu, 2);
      stream.download_from(gpu, host);
    }
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      right = right && is_right(chunk, hosts[chunk].read()); // waits for that chunk
    }
  }
  check(cudaFree(gpu));
  check(cudaStreamDestroy(mine));
  return right;
}
// ANCHOR_END: copies

/// pinlane does everything. Two streams take turns, so that copies overlap the kernel; the order
/// between them follows from the buffers that each operation names.
// ANCHOR: all
bool step_3_all(const pinlane::device& device, const pinlane::pinned_pool& pool) {
  const pinlane::stream streams[2] = {pinlane::stream(device), pinlane::stream(device)};
  std::vector<pinlane::pinned_buffer<float>> hosts;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    const pinlane::stream& stream = streams[chunk % 2];
    auto& host = hosts.emplace_back(pool.alloc<float>(count));
    auto gpu = device.alloc<float>(count); // in stream order, and freed in stream order
    produce(chunk, host.write());
    stream.upload(host, gpu);
    stream.foreign(pinlane::writing(gpu), [&](cudaStream_t native) {
      scale<<<blocks, threads, 0, native>>>(gpu.address(), 2);
      check(cudaGetLastError());
    });
    stream.download(gpu, host);
  }
  bool right = true;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    right = right && is_right(chunk, hosts[chunk].read());
  }
  return right;
}
// ANCHOR_END: all

} // namespace

int main() try {
  if (pinlane::device::count() == 0) {
    std::fprintf(stderr, "migrate: needs a GPU, and there is none\n");
    return 3;
  }
  const pinlane::device device = pinlane::device::open(0);
  const pinlane::pinned_pool pool(device);
  const bool right[] = {step_0_before(), step_1_page_locked_memory(pool),
                        step_2_copies(device, pool), step_3_all(device, pool)};
  int failed = 0;
  for (int step = 0; step < 4; ++step) {
    failed += !right[step];
    std::printf("step %d: %s\n", step, right[step] ? "right" : "WRONG");
  }
  return failed == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "migrate: %s\n", error.what());
  return 1;
}
