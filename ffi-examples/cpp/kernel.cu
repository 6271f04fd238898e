// Uses your own kernel, streams and memory together with pinlane. Needs a GPU.
//
// nvcc links a CUDA runtime into the program. pinlane's static library contains none, so both use
// that one.

#include <pinlane/pinlane.hpp>

#include <cuda_runtime.h>

#include <cstdio>
#include <stdexcept>

namespace {

__global__ void saxpy(float a, const float* x, float* y, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) {
    y[i] = a * x[i] + y[i];
  }
}

constexpr std::size_t count = 1 << 20;
constexpr unsigned threads = 256, blocks = (count + threads - 1) / threads;

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

void fill(pinlane::pinned_buffer<float>& buffer, float first) {
  for (float& element : buffer.write()) {
    element = first++;
  }
}

bool all(pinlane::span<const float> elements, float first, float step) {
  for (const float element : elements) {
    if (element != first) {
      return false;
    }
    first += step;
  }
  return true;
}

/// Your kernel on pinlane's buffers. It needs no synchronisation.
bool own_kernel(const pinlane::device& device, const pinlane::pinned_pool& pool) {
  const pinlane::stream upload(device), compute(device);
  auto host = pool.alloc<float>(count);
  auto x = device.alloc<float>(count), y = device.alloc<float>(count);
  fill(host, 0);
  upload.upload(host, x);
  upload.upload(host, y);
  compute.foreign(pinlane::reading(x), pinlane::writing(y), [&](cudaStream_t native) {
    saxpy<<<blocks, threads, 0, native>>>(2, x.address(), y.address(), count);
    check(cudaGetLastError());
  });
  upload.download(y, host);
  return all(host.read(), 0, 3); // 2 x + x
}

/// pinlane's buffers with your stream, your copies and your device memory.
bool own_stream_and_memory(const pinlane::device& device, const pinlane::pinned_pool& pool) {
  cudaStream_t mine = nullptr;
  float *x = nullptr, *y = nullptr;
  check(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking));
  check(cudaMalloc(&x, count * sizeof(float)));
  check(cudaMalloc(&y, count * sizeof(float)));

  auto host = pool.alloc<float>(count), result = pool.alloc<float>(count);
  fill(host, 0);
  {
    const auto stream = pinlane::stream::from_native_handle(device, mine);
    stream.upload_to(host, x);
    stream.foreign(pinlane::reading(host), [&](cudaStream_t) { // your own copy of a pinned_buffer
      check(cudaMemcpyAsync(y, host.address(), host.size_bytes(), cudaMemcpyHostToDevice, mine));
    });
    saxpy<<<blocks, threads, 0, mine>>>(-2, x, y, count);
    check(cudaGetLastError());
    stream.download_from(y, result);
  }
  const bool right = all(result.read(), 0, -1); // x - 2 x
  check(cudaFree(y));
  check(cudaFree(x));
  check(cudaStreamDestroy(mine));
  return right;
}

} // namespace

int main() try {
  if (pinlane::device::count() == 0) {
    std::fprintf(stderr, "kernel: needs a GPU, and there is none\n");
    return 3;
  }
  const pinlane::device device = pinlane::device::open(0);
  const pinlane::pinned_pool pool(device);
  if (!own_kernel(device, pool) || !own_stream_and_memory(device, pool)) {
    std::fprintf(stderr, "kernel: the results are wrong\n");
    return 1;
  }
  std::printf(
      "kernel: saxpy of %zu elements on %s, own stream and own memory: every element right\n",
      count, device.name().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "kernel: %s\n", error.what());
  return 1;
}
