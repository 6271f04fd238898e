// Synchronization between threads of a program through the library, checked by a thread sanitizer.
// With the argument `races` the program also has a race of its own next to each case.

#include "check.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

bool races;
int unguarded;

/// Two threads meet here, without synchronization between them.
void meet() {
  if (races) ++unguarded;
}

/// A block passes from one thread to another only through the pool.
void a_block_goes_from_thread_to_thread() {
  const rig rig;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&rig] {
      for (int round = 0; round < 100; ++round) {
        auto buffer = rig.pool.alloc<std::uint8_t>(100000);
        const auto bytes = buffer.write();
        std::memset(bytes.data(), round, bytes.size());
        meet();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// The thread that launches a function, the function, and a thread that waits for it.
void a_host_function_is_waited_for() {
  const rig rig;
  int value = 1;
  std::atomic<bool> launched{false};
  pinlane::ticket ticket;
  std::thread waiter([&] {
    while (!launched.load(std::memory_order_acquire)) std::this_thread::yield();
    ticket.wait();
    ++value;
    meet();
  });
  ticket = rig.stream.launch_host([&value] { ++value; });
  launched.store(true, std::memory_order_release);
  meet();
  waiter.join();
  EXPECT(value == 3);
}

/// A callback runs on a thread of the library.
void a_callback_is_told() {
  rig rig;
  std::vector<int> order{1};
  std::atomic<bool> told{false};
  rig.stream.launch_host([&order] { order.push_back(2); }).on_complete([&](pinlane_status) {
    order.push_back(3);
    meet();
    told.store(true, std::memory_order_release);
  });
  meet();
  while (!told.load(std::memory_order_acquire)) std::this_thread::yield();
  EXPECT((order == std::vector<int>{1, 2, 3}));
}

/// Several threads copy in both directions.
void copies_of_many_threads() {
  rig rig;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&rig] {
      const pinlane::stream stream(rig.device);
      auto gpu = rig.device.alloc<std::uint8_t>(50000);
      for (int round = 0; round < 20; ++round) {
        auto from = rig.pool.alloc<std::uint8_t>(50000), to = rig.pool.alloc<std::uint8_t>(50000);
        std::memset(from.write().data(), round, 50000);
        stream.upload(from, gpu);
        stream.download(gpu, to);
        EXPECT(to.read()[49999] == round);
        meet();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

} // namespace

int main(int count, char**) {
  races = count > 1;
  a_block_goes_from_thread_to_thread();
  a_host_function_is_waited_for();
  a_callback_is_told();
  copies_of_many_threads();
  return verdict("the order of threads");
}
