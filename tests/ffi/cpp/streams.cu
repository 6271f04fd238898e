// Streams and events of the program's own CUDA runtime, together with pinlane. Linked three ways:
// both use one runtime; each has its own, linked statically; the program's is the shared library.
// Needs a GPU. Each check prints its result.

#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE // cuda::mr, before CCCL 3.1
#include <pinlane/cpp/cuda.hpp>
#include <pinlane/pinlane.hpp>

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <future>
#include <stdexcept>
#include <vector>

namespace {

int failures = 0;

void report(bool holds, const char* what) {
  std::printf("%s: %s\n", holds ? "pass" : "FAIL", what);
  failures += holds ? 0 : 1;
}

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

__global__ void add(std::uint32_t* values, std::uint32_t amount, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) {
    values[i] += amount;
  }
}

constexpr std::size_t count = 1 << 18;
constexpr std::size_t bytes = count * sizeof(std::uint32_t);

void launch_add(std::uint32_t* values, std::uint32_t amount, cudaStream_t stream) {
  add<<<count / 256, 256, 0, stream>>>(values, amount, count);
  check(cudaGetLastError());
}

/// Objects of the program's own runtime.
struct own {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  std::uint32_t* memory = nullptr;

  own() {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    check(cudaMalloc(&memory, bytes));
    check(cudaMemset(memory, 0, bytes));
    check(cudaDeviceSynchronize());
  }
  own(const own&) = delete;
  own& operator=(const own&) = delete;
  ~own() {
    cudaStreamSynchronize(stream);
    cudaFree(memory);
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
  }
};

/// Blocks a stream until it is destroyed.
class gate {
public:
  explicit gate(cudaStream_t stream) : m_stream(stream) {
    check(cudaLaunchHostFunc(m_stream, wait, this));
  }
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  ~gate() {
    m_open.set_value();
    cudaStreamSynchronize(m_stream); // the host function is done with this object
  }

private:
  static void CUDART_CB wait(void* self) { static_cast<gate*>(self)->m_future.wait(); }
  cudaStream_t m_stream;
  std::promise<void> m_open;
  std::future<void> m_future = m_open.get_future();
};

bool all(pinlane::span<const std::uint32_t> values, std::uint32_t expected) {
  for (const std::uint32_t value : values) {
    if (value != expected) {
      return false;
    }
  }
  return true;
}

void the_programs_stream(const pinlane::device& device, const pinlane::pinned_pool& pool) {
  own own;
  const pinlane::stream mine = pinlane::borrow(device, own.stream);
  auto host = pool.alloc<std::uint32_t>(count), back = pool.alloc<std::uint32_t>(count);
  for (std::uint32_t& value : host.write()) {
    value = 40;
  }
  mine.upload_to(host, own.memory);
  launch_add(own.memory, 2, own.stream);
  mine.download_from(own.memory, back);
  report(all(back.read(), 42), "copies on the program's stream are in its order");
}

void pinlanes_stream(const pinlane::device& device, const pinlane::pinned_pool& pool) {
  const pinlane::stream stream(device);
  auto gpu = device.alloc<std::uint32_t>(count);
  auto back = pool.alloc<std::uint32_t>(count);
  stream.fill(gpu, 1u);
  stream.foreign(pinlane::writing(gpu),
                 [&](cudaStream_t native) { launch_add(gpu.address(), 4, native); });
  const pinlane::stream other(device);
  other.download(gpu, back);
  report(all(back.read(), 5), "a kernel of the program runs on pinlane's stream and memory");
}

void events(const pinlane::device& device, const pinlane::pinned_pool& pool) {
  own own;
  const pinlane::stream stream(device);
  auto back = pool.alloc<std::uint32_t>(count);
  {
    const gate closed(own.stream);
    launch_add(own.memory, 7, own.stream);
    check(cudaEventRecord(own.event, own.stream));
    stream.wait_event(own.event);
    stream.download_from(own.memory, back);
    report(!back.try_read(), "pinlane's stream waits for the program's event");
  }
  report(all(back.read(), 7), "behind that event it sees the program's work");

  auto gpu = device.alloc<std::uint32_t>(count);
  {
    const gate closed(static_cast<cudaStream_t>(stream.native_handle()));
    stream.fill(gpu, 11u);
    stream.record_event(own.event);
    report(cudaEventQuery(own.event) == cudaErrorNotReady, "the program's event is pending");
    check(cudaStreamWaitEvent(own.stream, own.event, 0));
    check(cudaMemcpyAsync(own.memory, gpu.address(), bytes, cudaMemcpyDeviceToDevice, own.stream));
  }
  std::vector<std::uint32_t> values(count);
  check(cudaMemcpyAsync(values.data(), own.memory, bytes, cudaMemcpyDeviceToHost, own.stream));
  check(cudaStreamSynchronize(own.stream));
  report(all({values.data(), count}, 11), "behind that event the program sees pinlane's work");

  const pinlane::ticket filled = stream.fill(gpu, 12u);
  pinlane::borrow(device, own.stream).wait(filled);
  check(cudaMemcpyAsync(values.data(), gpu.address(), bytes, cudaMemcpyDeviceToHost, own.stream));
  check(cudaStreamSynchronize(own.stream));
  report(all({values.data(), count}, 12), "the program's stream waits for a ticket");
}

void memory(const pinlane::device& device, const pinlane::pinned_pool& pool) {
  own own;
  pinlane::pinned_mr resource(device, pool);
  void* const block = resource.allocate(own.stream, bytes);
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, block));
  report(attributes.type == cudaMemoryTypeHost && attributes.devicePointer == block,
         "the program's runtime knows the pool's memory as page-locked");
  {
    const gate closed(own.stream);
    check(cudaMemcpyAsync(own.memory, block, bytes, cudaMemcpyHostToDevice, own.stream));
    resource.deallocate(own.stream, block, bytes);
    void* const next = resource.allocate(own.stream, bytes);
    report(next != block && pool.stats().in_flight_bytes >= bytes,
           "memory freed on a stream is not reused before the stream is past it");
    resource.deallocate_sync(next, bytes);
  }
  check(cudaStreamSynchronize(own.stream));
}

void captures(const pinlane::device& device, const pinlane::pinned_pool& pool) {
  own own;
  pinlane::pinned_mr resource(device, pool);
  void* const block = resource.allocate(own.stream, bytes);
  const std::size_t live = pool.stats().live_bytes;
  check(cudaStreamBeginCapture(own.stream, cudaStreamCaptureModeGlobal));
  check(cudaMemcpyAsync(own.memory, block, bytes, cudaMemcpyHostToDevice, own.stream));
  resource.deallocate(own.stream, block, bytes);
  report(pool.stats().live_bytes == live, "memory freed in a capture is kept for the graph");
  cudaGraph_t graph = nullptr;
  report(cudaStreamEndCapture(own.stream, &graph) == cudaSuccess, "the capture continues");
  check(cudaGraphDestroy(graph));
  resource.deallocate_sync(block, bytes);
}

} // namespace

int main() try {
  if (pinlane::device::count() == 0) {
    std::fprintf(stderr, "streams: needs a GPU, and there is none\n");
    return 3;
  }
  const pinlane::device device = pinlane::device::open(0);
  const pinlane::pinned_pool pool(device);
  the_programs_stream(device, pool);
  pinlanes_stream(device, pool);
  events(device, pool);
  memory(device, pool);
  captures(device, pool);
  report(cudaPeekAtLastError() == cudaSuccess, "the program's last-error slot is clean");
  std::printf("streams: %d failed, on %s\n", failures, device.name().c_str());
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "streams: %s\n", error.what());
  return 1;
}
