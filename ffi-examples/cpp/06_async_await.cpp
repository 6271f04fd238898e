// Async/await: a C++20 coroutine awaits allocations, tickets and batches. A helper thread of
// pinlane resumes it; `pinlane::resume_on` passes it to your own executor. It prints what
// examples/06_async_await.rs prints.

#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <coroutine>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <numeric>

namespace {

/// A coroutine that starts at once, and whose result another thread waits for.
struct task {
  struct promise_type {
    std::promise<std::uint32_t> result;
    task get_return_object() { return {result.get_future()}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_value(std::uint32_t value) { result.set_value(value); }
    void unhandled_exception() { result.set_exception(std::current_exception()); }
  };
  std::future<std::uint32_t> result;
};

/// Answers a request: memory, a copy, work on the device, a copy back. It waits without a thread.
task answer(const pinlane::device& device, const pinlane::pinned_pool& pool,
            const pinlane::stream& stream, std::uint32_t number) {
  auto host = co_await pool.alloc_async<std::uint32_t>(100); // waits for room, if there is none
  std::fill_n(host.write().begin(), 100, 0u);
  auto gpu = device.alloc<std::uint32_t>(100);
  stream.upload(host, gpu);
  stream.fill(gpu, number); // your kernels here
  co_await stream.download(gpu, host);
  const auto sums = host.read(); // does not block: the copy is done
  co_return std::accumulate(sums.begin(), sums.end(), 0u);
}

} // namespace

int main() try {
  const pinlane::device device = pinlane::device::open_or_emulated();
  const pinlane::pinned_pool pool(device);
  const pinlane::stream a(device), b(device), c(device);
  task first = answer(device, pool, a, 1), second = answer(device, pool, b, 2),
       third = answer(device, pool, c, 3);
  const std::uint32_t sums[] = {first.result.get(), second.result.get(), third.result.get()};
  std::printf("answers: [%u, %u, %u]\n", sums[0], sums[1], sums[2]);
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
