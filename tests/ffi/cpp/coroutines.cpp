// Coroutines that await tickets, memory and batches. C++20.

#include "check.hpp"

#if defined(PINLANE_CPP_COROUTINES)

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// A coroutine that starts at once, and whose result another thread may wait for.
template <class T>
struct task {
  struct promise_type {
    std::promise<T> result;
    task get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this), result.get_future()};
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_value(T value) { result.set_value(std::move(value)); }
    void unhandled_exception() { result.set_exception(std::current_exception()); }
  };
  std::coroutine_handle<promise_type> coroutine; // destroyed when there is a result
  std::future<T> result;
};

/// Resumes coroutines on the thread that runs it.
class loop {
public:
  void operator()(std::coroutine_handle<> coroutine) {
    const std::lock_guard<std::mutex> hold(m_lock);
    m_ready.push_back(coroutine);
    m_changed.notify_one();
  }

  template <class T>
  T run(task<T> task) {
    while (task.result.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      std::unique_lock<std::mutex> hold(m_lock);
      m_changed.wait(hold, [this] { return !m_ready.empty(); });
      const std::coroutine_handle<> next = m_ready.front();
      m_ready.pop_front();
      hold.unlock();
      next.resume();
    }
    return task.result.get();
  }

private:
  std::mutex m_lock;
  std::condition_variable m_changed;
  std::deque<std::coroutine_handle<>> m_ready;
};

task<std::thread::id> copy(rig& rig, std::vector<std::uint32_t>& values) {
  auto host = rig.pool.alloc<std::uint32_t>(values.size());
  auto gpu = rig.device.alloc<std::uint32_t>(values.size());
  co_await rig.stream.fill(gpu, 7u);
  const pinlane::ticket ticket = rig.stream.download(gpu, host);
  co_await ticket;
  EXPECT(ticket.is_done());
  co_await ticket; // complete already: continues at once
  const auto elements = *host.try_read();
  values.assign(elements.begin(), elements.end());
  co_return std::this_thread::get_id();
}

void a_helper_resumes(rig& rig) {
  std::vector<std::uint32_t> values(1000);
  EXPECT(copy(rig, values).result.get() != std::this_thread::get_id());
  EXPECT(values[999] == 7);
}

task<bool> stay_on(loop& loop, rig& rig) {
  auto gpu = rig.device.alloc<std::uint32_t>(10);
  const std::thread::id here = std::this_thread::get_id();
  auto resume = [&loop](std::coroutine_handle<> coroutine) { loop(coroutine); };
  bool same = true;
  for (int i = 0; i < 20; ++i) {
    co_await pinlane::resume_on(resume, rig.stream.fill(gpu, 7u));
    same = same && std::this_thread::get_id() == here;
    const auto host = co_await pinlane::resume_on(resume, rig.pool.alloc_async<float>(100));
    same = same && std::this_thread::get_id() == here && host.size() == 100;
  }
  co_return same;
}

void an_executor_resumes(rig& rig) {
  loop here;
  EXPECT(here.run(stay_on(here, rig)));
}

task<int> fails(rig& rig, bool in_allocation) {
  if (in_allocation) {
    (void)co_await rig.pool.alloc_async<char>(SIZE_MAX);
  } else {
    co_await pinlane::ticket();
  }
  co_return 0;
}

void errors_are_thrown_in_the_coroutine(rig& rig) {
  EXPECT(thrown_by([&] { fails(rig, true).result.get(); }) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { fails(rig, false).result.get(); }) == PINLANE_STATUS_INVALID_HANDLE);
}

task<std::size_t> consume(pinlane::prefetch& batches, std::atomic<int>& thrown) {
  std::size_t seen = 0;
  for (;;) {
    std::optional<pinlane::device_batch> batch;
    try {
      batch = co_await batches.next_async();
    } catch (const std::logic_error&) {
      ++thrown;
      continue;
    }
    if (!batch) {
      co_return seen;
    }
    EXPECT(batch->slice<int>().size() == 100);
    ++seen;
  }
}

void batches_are_awaited(rig& rig) {
  std::atomic<int> thrown{0};
  pinlane::prefetch batches(
      rig.pool, rig.stream, [next = 0]() mutable -> std::optional<std::vector<int>> {
        if (next == 5) {
          ++next;
          throw std::logic_error("on purpose");
        }
        return next < 20 ? std::optional(std::vector<int>(100, next++)) : std::nullopt;
      });
  EXPECT(consume(batches, thrown).result.get() == 19 && thrown == 1);
}

task<int> hold_one(const pinlane::pinned_pool& pool, std::atomic<int>& alive) {
  struct count {
    std::atomic<int>& of;
    explicit count(std::atomic<int>& alive) : of(alive) { ++of; }
    ~count() { --of; }
  } const counted(alive);
  const auto buffer = co_await pool.alloc_async<char>(4096);
  EXPECT(buffer.size() == 4096);
  co_return 1;
}

/// Eight threads await memory of a pool that has room for two. Each coroutine frees its memory.
void many_coroutines_share_a_tight_budget(rig& rig) {
  pinlane::pool_options options;
  options.max_bytes = 2 * 4096;
  const pinlane::pinned_pool pool(rig.device, options);
  std::atomic<int> alive{0}, got{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      std::vector<task<int>> tasks;
      for (int j = 0; j < 50; ++j) {
        tasks.push_back(hold_one(pool, alive));
      }
      for (auto& waits : tasks) {
        got += waits.result.get();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT(got == 400 && pool.stats().peak_bytes <= 2 * 4096);
  for (int i = 0; alive > 0 && i < 10000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT(alive == 0);
}

/// A waiting coroutine is destroyed: its request is withdrawn, and it is not resumed.
void a_destroyed_coroutine_is_not_resumed(rig& rig) {
  pinlane::pool_options options;
  options.max_bytes = 4096;
  const pinlane::pinned_pool pool(rig.device, options);
  auto all = pool.alloc<char>(4096);
  std::atomic<int> alive{0};
  std::vector<task<int>> tasks;
  for (int i = 0; i < 10; ++i) {
    tasks.push_back(hold_one(pool, alive));
  }
  EXPECT(alive == 10);
  for (int i = 0; i < 10; i += 2) {
    tasks[static_cast<std::size_t>(i)].coroutine.destroy();
  }
  EXPECT(alive == 5);
  all = {};
  for (int i = 1; i < 10; i += 2) {
    EXPECT(tasks[static_cast<std::size_t>(i)].result.get() == 1);
  }
  EXPECT(pool.alloc_timeout<char>(4096, std::chrono::seconds(20)).size() == 4096); // none is lost
}

/// The buffers stay borrowed while the coroutine waits in the middle of its work. The thread that
/// ends it gives them back.
task<int> works_in_two_parts(rig& rig, pinlane::device_buffer<std::uint32_t>& gpu, bool& was_busy) {
  auto other = rig.device.alloc<std::uint32_t>(8);
  auto work = rig.stream.begin_foreign(pinlane::reading(other), pinlane::writing(gpu));
  const std::thread::id here = std::this_thread::get_id();
  const pinlane::stream second(rig.device);
  co_await second.busy(std::chrono::microseconds(10));
  was_busy =
      thrown_by([&] { rig.stream.fill(gpu, 7u); }) == PINLANE_STATUS_BUSY && work.native_handle();
  co_await work.finish();
  co_return here != std::this_thread::get_id();
}

void foreign_work_survives_waiting(rig& rig) {
  auto gpu = rig.device.alloc<std::uint32_t>(8);
  bool was_busy = false;
  EXPECT(works_in_two_parts(rig, gpu, was_busy).result.get() == 1 && was_busy);
  rig.stream.fill(gpu, 7u);

  const pinlane::stream stalled(rig.other);
  pinlane::emulator::stall(stalled);
  auto waits = [](pinlane::stream_ref stream, pinlane::ticket never,
                  pinlane::device_buffer<std::uint32_t>& buffer) -> task<int> {
    const auto work = stream.begin_foreign(pinlane::writing(buffer));
    co_await never;
    co_return 0;
  };
  auto task = waits(rig.stream, stalled.record(), gpu);
  EXPECT(thrown_by([&] { rig.stream.fill(gpu, 7u); }) == PINLANE_STATUS_BUSY);
  task.coroutine.destroy();
  rig.stream.fill(gpu, 7u).wait();
  pinlane::emulator::release(stalled);
}

} // namespace

int main() {
  rig rig;
  foreign_work_survives_waiting(rig);
  a_helper_resumes(rig);
  an_executor_resumes(rig);
  errors_are_thrown_in_the_coroutine(rig);
  batches_are_awaited(rig);
  many_coroutines_share_a_tight_budget(rig);
  a_destroyed_coroutine_is_not_resumed(rig);
  return verdict("coroutines");
}

#else

int main() { return verdict("coroutines, which this compiler does not have"); }

#endif
