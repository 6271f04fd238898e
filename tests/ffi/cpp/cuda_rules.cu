// pinlane in a program that uses CUDA itself: it does not change the last error, the current device
// or stream captures. Needs a GPU. Each check prints its result.

#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE // cuda::mr, before CCCL 3.1
#include <pinlane/cpp/cuda_resource.hpp>
#include <pinlane/pinlane.hpp>

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <future>
#include <memory_resource>
#include <stdexcept>
#include <thread>
#include <vector>

// A pool's memory is a resource of libcu++ too. The concept's name depends on the version.
#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::synchronous_resource_with<
              pinlane::pinned_resource, cuda::mr::host_accessible, cuda::mr::device_accessible>);
#else
static_assert(cuda::mr::resource_with<pinlane::pinned_resource, cuda::mr::host_accessible,
                                      cuda::mr::device_accessible>);
#endif

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

constexpr std::size_t count = 1 << 16;
constexpr std::size_t too_much = std::size_t{1} << 50;

/// The objects that the checks use.
struct rig {
  pinlane::device device = pinlane::device::open(0);
  pinlane::pinned_pool pool{device};
  pinlane::pinned_pool huge_pool{device, {2 * too_much}};
  pinlane::stream stream{device};
  pinlane::pinned_buffer<float> host = pool.alloc<float>(count);
  pinlane::device_buffer<float> gpu = device.alloc<float>(count);
};

/// Blocks a stream until it is destroyed. Until then only poll: other calls of CUDA may wait for
/// the device.
class gate {
public:
  explicit gate(const pinlane::stream& stream)
      : m_stream(static_cast<cudaStream_t>(stream.native_handle())) {
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

/// Calls that succeed, that fail in the CUDA runtime, and that pinlane itself refuses.
void use(rig& rig) {
  rig.stream.upload(rig.host, rig.gpu).wait();
  rig.stream.fill(rig.gpu, 1.0f);
  auto sum = rig.device.alloc<std::uint64_t>(1);
  rig.stream.checksum(rig.gpu, sum);
  rig.stream.download(rig.gpu, rig.host);
  static_cast<void>(rig.host.read());
  static_cast<void>(rig.pool.alloc<float>(3 * count)); // page-locks, and frees to the pool

  pinlane::device_buffer<char> no_gpu;
  pinlane::pinned_buffer<char> no_host;
  pinlane_device* no_device = nullptr;
  report(rig.device.alloc(std::nothrow, too_much, no_gpu) == PINLANE_STATUS_OUT_OF_DEVICE_MEMORY,
         "  (too much device memory is refused)");
  report(rig.huge_pool.alloc(std::nothrow, too_much, no_host) == PINLANE_STATUS_OUT_OF_HOST_MEMORY,
         "  (too much page-locked memory is refused)");
  report(pinlane_device_open(9999, &no_device) == PINLANE_STATUS_NO_DEVICE,
         "  (device 9999 is refused)");
  report(rig.stream.upload(std::nothrow, rig.host.slice(1, count), rig.gpu) ==
             PINLANE_STATUS_OUT_OF_RANGE,
         "  (a range outside of a buffer is refused)");
}

/// Polls while work is pending.
void poll_while_pending(rig& rig) {
  const gate closed(rig.stream);
  const pinlane::ticket ticket = rig.stream.download(rig.gpu, rig.host);
  report(!ticket.is_done() && !rig.host.try_read() && !rig.host.try_write(),
         "  (polls find the copy pending)");
}

/// pinlane neither sets the last error nor clears it.
void last_error_slot(rig& rig) {
  use(rig); // CUDA loads modules at first use
  check(cudaGetLastError());
  use(rig);
  poll_while_pending(rig);
  report(cudaPeekAtLastError() == cudaSuccess, "rule 15: a clean last-error slot stays clean");

  void* memory = nullptr;
  const cudaError_t provoked = cudaMalloc(&memory, too_much);
  report(provoked != cudaSuccess && cudaPeekAtLastError() == provoked,
         "  (an error is in the slot)");
  use(rig);
  poll_while_pending(rig);
  report(cudaGetLastError() == provoked, "rule 15: the caller's error stays in the slot");
}

/// The caller's current device stays current, whatever device a call uses.
void current_device() {
  const int devices = pinlane::device::count();
  bool kept = true;
  for (int mine = 0; mine < devices; ++mine) {
    for (int ordinal = 0; ordinal < devices; ++ordinal) {
      check(cudaSetDevice(mine));
      {
        const auto device = pinlane::device::open(ordinal);
        const pinlane::pinned_pool pool(device);
        const pinlane::stream stream(device);
        auto host = pool.alloc<float>(count);
        auto gpu = device.alloc<float>(count);
        static_cast<void>(device.memory());
        stream.fill(gpu, 1.0f);
        stream.download(gpu, host);
        kept = host.read()[count - 1] == 1.0f && kept;
      }
      int now = -1;
      check(cudaGetDevice(&now));
      kept = now == mine && kept;
    }
  }
  check(cudaSetDevice(0));
  std::printf("%d GPU(s):\n", devices);
  report(kept, "rule 12: the current device stays the caller's");
}

/// A copy on a capturing stream is refused. Neither the refusal nor work on other streams
/// invalidates the capture.
void stream_capture(rig& rig) {
  cudaStream_t mine = nullptr;
  check(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking));
  const auto borrowed = pinlane::stream::from_native_handle(rig.device, mine);
  const auto capturing = [&] {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(mine, &status));
    return status == cudaStreamCaptureStatusActive;
  };
  const auto elsewhere = [&] {
    const pinlane::stream stream(rig.device);
    auto host = rig.pool.alloc<float>(5 * count);
    auto gpu = rig.device.alloc<float>(5 * count);
    const pinlane::ticket ticket = stream.upload(host, gpu);
    static_cast<void>(ticket.is_done());
    static_cast<void>(host.try_write());
    ticket.wait();
  };

  check(cudaStreamBeginCapture(mine, cudaStreamCaptureModeGlobal));
  const bool refused =
      borrowed.upload(std::nothrow, rig.host, rig.gpu) == PINLANE_STATUS_STREAM_CAPTURING &&
      borrowed.download(std::nothrow, rig.gpu, rig.host) == PINLANE_STATUS_STREAM_CAPTURING &&
      pinlane_buffer_record_use(rig.host.get(), borrowed.get()) == PINLANE_STATUS_STREAM_CAPTURING;
  report(refused, "rule 11: a copy on a capturing stream is refused");
  report(capturing(), "rule 11: the capture continues after the refusal");
  elsewhere();
  report(capturing(), "rule 11: work on this thread leaves the capture valid");
  std::thread(elsewhere).join();
  report(capturing(), "rule 11: work on another thread leaves the capture valid");

  check(cudaMemsetAsync(rig.gpu.address(), 0, rig.gpu.size_bytes(), mine));
  cudaGraph_t graph = nullptr;
  std::size_t nodes = 0;
  report(cudaStreamEndCapture(mine, &graph) == cudaSuccess &&
             cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess && nodes == 1,
         "rule 11: the graph holds what the caller captured, and no more");
  check(cudaGraphDestroy(graph));
  borrowed.upload(rig.host, rig.gpu).wait();
  check(cudaStreamDestroy(mine));
}

/// The caller's own work on memory of a pool, recorded with the pool.
void containers(rig& rig) {
  pinlane::pinned_resource resource(rig.pool);
  std::pmr::vector<float> samples(count, 7.0f, &resource);
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, samples.data()));
  report(attributes.type == cudaMemoryTypeHost, "a container of the pool is in page-locked memory");
  const void* const memory = samples.data();
  {
    const gate gate(rig.stream);
    const auto native = static_cast<cudaStream_t>(rig.stream.native_handle());
    check(cudaMemcpyAsync(rig.gpu.address(), memory, rig.gpu.size_bytes(), cudaMemcpyHostToDevice,
                          native));
    resource.record_use(memory, rig.stream);
    samples = std::pmr::vector<float>(&resource);
    const auto other = rig.pool.try_alloc<float>(count);
    report(rig.pool.stats().in_flight_bytes >= rig.gpu.size_bytes() &&
               (!other || other->address() != memory),
           "a container's memory is not used again while a recorded copy may read it");
  }
  rig.stream.download(rig.gpu, rig.host);
  report(rig.host.read()[count - 1] == 7.0f, "the copy from a container has arrived");
}

} // namespace

int main() try {
  if (pinlane::device::count() == 0) {
    std::fprintf(stderr, "cuda_rules: needs a GPU, and there is none\n");
    return 3;
  }
  rig rig;
  last_error_slot(rig);
  current_device();
  stream_capture(rig);
  containers(rig);
  std::printf("cuda_rules: %d failed, on %s\n", failures, rig.device.name().c_str());
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "cuda_rules: %s\n", error.what());
  return 1;
}
