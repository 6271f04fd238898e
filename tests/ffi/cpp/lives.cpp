// Nothing leaks when a function object throws, or its thread ends in it.

#include "check.hpp"

#if defined(__linux__)
#include <pthread.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

/// The number of live objects of each kind.
std::array<std::size_t, PINLANE_KIND_GRAPH> alive() {
  std::array<std::size_t, PINLANE_KIND_GRAPH> counts{};
  for (std::size_t kind = 0; kind < counts.size(); ++kind) {
    counts[kind] = pinlane::live_count(static_cast<std::int32_t>(kind + 1));
  }
  return counts;
}

struct on_purpose : std::runtime_error {
  on_purpose() : runtime_error("on purpose") {}
};

/// Makes a call that lets `on_purpose` through, and checks that the number of objects is the same
/// as before.
template <class Call>
void leaves_nothing(Call call) {
  const auto before = alive();
  bool thrown = false;
  try {
    call();
  } catch (const on_purpose&) {
    thrown = true;
  }
  EXPECT(thrown);
  EXPECT(alive() == before);
}

void foreign_work_that_throws(rig& rig) {
  auto gpu = rig.device.alloc<float>(8);
  auto host = rig.pool.alloc<float>(8);
  leaves_nothing([&] {
    rig.stream.foreign(pinlane::reading(gpu), pinlane::writing(host),
                       [](void*) { throw on_purpose(); });
  });
  EXPECT(!host.try_write()); // it counts as a use all the same
  leaves_nothing([&] {
    auto work = rig.stream.begin_foreign(pinlane::writing(gpu, host));
    const pinlane::foreign_work moved = std::move(work);
    EXPECT(moved && !work && moved.native_handle() == rig.stream.native_handle());
    throw on_purpose();
  });
  leaves_nothing([&] {
    auto work = rig.stream.begin_foreign(pinlane::writing(gpu), pinlane::reading(host));
    work.finish().wait();
    EXPECT(!work);
    throw on_purpose();
  });
  rig.stream.synchronize();
  EXPECT(host.try_write().has_value());
}

/// Elements of a batch that throws at a chosen place.
struct throwing {
  int where;
  void visit(pinlane::batch_slices& slices) {
    if (where == 1) {
      throw on_purpose();
    }
    slices.reserve<float>("x", 4);
  }
  void fill(pinlane::fill_block&) { throw on_purpose(); }
};

void calls_with_function_objects(rig& rig) {
  auto gpu = rig.device.alloc<float>(8);
  rig.stream.fill(gpu, 1.0f);
  std::vector<float> values(8);
  const std::vector<pinlane::download_item> items{{gpu, values}};
  leaves_nothing([&] {
    rig.stream.download_batch_each(items, [](std::size_t, auto) { throw on_purpose(); });
  });
  for (int where = 0; where < 3; ++where) {
    leaves_nothing([&] {
      pinlane::prefetch batches(rig.pool, rig.stream, [=]() -> std::optional<throwing> {
        return where == 0 ? throw on_purpose() : throwing{where};
      });
      static_cast<void>(batches.next());
    });
  }
  leaves_nothing([&] {
    pinlane::exploration options;
    options.runs = 1;
    options.shrink_runs = 0;
    options.quiet = true;
    const auto result = pinlane::explore(options, [](pinlane::emulator& machine) {
      const pinlane::device device = machine.open(0);
      const pinlane::stream stream(device);
      throw on_purpose();
    });
    EXPECT(result.failed);
    throw on_purpose();
  });
  leaves_nothing([&] {
    std::promise<void> told;
    rig.pool.alloc_async<float>(8, [&](pinlane_status, pinlane::pinned_buffer<float> buffer) {
      buffer = {};
      told.set_value();
    });
    told.get_future().wait();
    throw on_purpose();
  });
}

#if defined(__GLIBC__) && defined(__GLIBCXX__)
/// Runs `work` on a thread that ends inside it.
template <class Work>
void ends_a_thread(Work& work) {
  pthread_t thread;
  const auto run = [](void* data) -> void* {
    (*static_cast<Work*>(data))();
    return data; // never
  };
  void* result = &work;
  EXPECT(pthread_create(&thread, nullptr, run, &work) == 0);
  EXPECT(pthread_join(thread, &result) == 0 && result == nullptr);
}

void threads_that_end(rig& rig) {
  auto host = rig.pool.alloc<float>(8);
  const auto before = alive();
  auto in_foreign = [&] {
    rig.stream.foreign(pinlane::writing(host), [](void*) { pthread_exit(nullptr); });
  };
  ends_a_thread(in_foreign);
  EXPECT(alive() == before);
  auto beside_it = [&] {
    const auto work = rig.stream.begin_foreign(pinlane::writing(host));
    pthread_exit(nullptr);
  };
  ends_a_thread(beside_it);
  EXPECT(alive() == before);
  rig.stream.synchronize();
  EXPECT(host.try_write().has_value());
}
#else
void threads_that_end(rig&) {}
#endif

} // namespace

int main() {
  {
    rig rig;
    foreign_work_that_throws(rig);
    calls_with_function_objects(rig);
    threads_that_end(rig);
  }
  EXPECT((alive() == std::array<std::size_t, PINLANE_KIND_GRAPH>{}));
  return verdict("what stays alive in C++");
}
