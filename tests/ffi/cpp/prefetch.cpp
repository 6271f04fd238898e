// Pipelines in C++: the types of batches, their order, their errors, and the end.

#include "check.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using numbers = std::vector<std::uint32_t>;

static_assert(!std::is_copy_constructible_v<pinlane::prefetch>);
static_assert(std::is_nothrow_move_constructible_v<pinlane::prefetch>);
static_assert(std::is_nothrow_move_assignable_v<pinlane::prefetch>);
static_assert(std::is_nothrow_destructible_v<pinlane::prefetch>);
static_assert(std::is_nothrow_move_constructible_v<pinlane::device_batch>);

numbers filled(std::uint32_t number, std::size_t size) {
  numbers values(size);
  std::iota(values.begin(), values.end(), number * 1000);
  return values;
}

/// Returns a producer of `count` batches of `size` numbers.
auto counting(std::uint32_t count, std::size_t size) {
  return [next = std::uint32_t{0}, count, size]() mutable {
    return next < count ? std::optional(filled(next++, size)) : std::nullopt;
  };
}

template <class T>
std::vector<T> contents(const rig& rig, const pinlane::device_batch& batch,
                        const std::string& name = "0") {
  const auto slice = batch.slice<T>(name);
  std::vector<T> values(slice.size());
  rig.stream.download(slice, values);
  return values;
}

void a_range_of_batches_in_order(rig& rig) {
  std::uint32_t seen = 0;
  pinlane::prefetch batches(rig.pool, rig.stream, counting(20, 5000));
  for (pinlane::device_batch& batch : batches) {
    EXPECT(batch.index() == seen && contents<std::uint32_t>(rig, batch) == filled(seen, 5000));
    ++seen;
  }
  EXPECT(seen == 20 && !batches.next().has_value());
  for (const pinlane::device_batch& batch : batches) {
    EXPECT(!batch); // never: it has ended
  }
  const pinlane::prefetch_progress progress = batches.progress();
  EXPECT(progress.produced == 20 && progress.yielded == 20);
  EXPECT(progress.uploaded == 20 && progress.bytes == 20 * 5000 * 4);
}

/// Names its slices itself; one is filled.
struct samples {
  std::uint32_t number;
  std::vector<std::array<float, 3>> points;

  void visit(pinlane::batch_slices& slices) {
    points.assign(5, {1.0f, 2.0f, static_cast<float>(number)}); // at the same time as other batches
    slices.slice("points", points);
    slices.reserve<std::uint32_t>("image", 1000);
  }

  void fill(pinlane::fill_block& block) const {
    const auto image = block.slice<std::uint32_t>("image");
    std::iota(image.begin(), image.end(), number);
    EXPECT(thrown_by([&] { (void)block.slice<double>("image"); }) == PINLANE_STATUS_INVALID_VALUE);
    EXPECT(thrown_by([&] { (void)block.slice<float>("points"); }) == PINLANE_STATUS_INVALID_VALUE);
  }
};

void what_a_batch_may_be(rig& rig) {
  const auto once = [](auto batch) {
    return [held = std::optional(std::move(batch))]() mutable {
      return std::exchange(held, std::nullopt);
    };
  };
  pinlane::prefetch array(rig.pool, rig.stream, once(std::array<double, 2>{0.5, 1.5}));
  EXPECT(contents<double>(rig, *array.next()) == (std::vector<double>{0.5, 1.5}));

  pinlane::prefetch tuple(rig.pool, rig.stream,
                          once(std::tuple(numbers{1, 2}, std::vector<char>{'a'}, numbers{})));
  const auto parts = tuple.next();
  EXPECT(parts->names() == (std::vector<std::string>{"0", "1", "2"}));
  EXPECT(contents<std::uint32_t>(rig, *parts, "0") == (numbers{1, 2}));
  EXPECT(contents<char>(rig, *parts, "1") == std::vector<char>{'a'});
  EXPECT(contents<std::uint32_t>(rig, *parts, "2").empty());

  std::map<std::string, numbers> named{{"b", {7}}, {"a", {8, 9}}};
  pinlane::prefetch map(rig.pool, rig.stream, once(std::move(named)));
  const auto by_name = map.next();
  EXPECT(by_name->names() == (std::vector<std::string>{"a", "b"}));
  EXPECT(contents<std::uint32_t>(rig, *by_name, "a") == (numbers{8, 9}));

  // A batch may also be a pointer, for types that cannot be moved.
  pinlane::prefetch pointer(rig.pool, rig.stream,
                            [held = std::make_unique<numbers>(filled(3, 3))]() mutable {
                              return std::exchange(held, nullptr);
                            });
  EXPECT(contents<std::uint32_t>(rig, *pointer.next()) == filled(3, 3));

  std::uint32_t next = 0;
  pinlane::prefetch visited(rig.pool, rig.stream,
                            [&]() -> std::optional<samples> {
                              return next < 12 ? std::optional(samples{next++, {}}) : std::nullopt;
                            },
                            {5, 3, false, false});
  std::uint32_t seen = 0;
  for (auto& batch : visited) {
    const auto number = static_cast<std::uint32_t>(batch.index());
    const auto image = contents<std::uint32_t>(rig, batch, "image");
    const auto points = contents<std::array<float, 3>>(rig, batch, "points");
    EXPECT(image.size() == 1000 && image[999] == number + 999);
    EXPECT(points.size() == 5 && points[4][2] == static_cast<float>(number));
    seen |= 1u << number;
  }
  EXPECT(seen == 0xfff);
}

void a_batch_is_device_memory(rig& rig) {
  pinlane::prefetch batches(rig.pool, rig.stream, counting(2, 100));
  auto batch = *batches.next();
  batch.ticket().wait();
  auto gpu = rig.device.alloc<std::uint32_t>(100);
  auto host = rig.pool.alloc<std::uint32_t>(10);
  rig.stream.fill(batch.slice<std::uint32_t>(), 5u);
  rig.stream.copy(batch.slice<std::uint32_t>(), gpu);
  rig.stream.foreign(pinlane::reading(batch),
                     [&](void*) { EXPECT(batch.address<std::uint32_t>() != nullptr); });
  const pinlane::device_batch& shared = batch;
  const std::vector<pinlane::download_item> items{
      {pinlane::device_slice<const std::uint32_t>(batch.get(), 90, 10), host}};
  rig.stream.download_batch(items);
  EXPECT(host.read()[9] == 5 && contents<std::uint32_t>(rig, shared)[0] == 5);
  EXPECT(thrown_by([&] { (void)batch.slice<std::array<char, 7>>(); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { (void)batch.slice<char>("1"); }) == PINLANE_STATUS_INVALID_VALUE);
  batches = {};
  EXPECT(contents<std::uint32_t>(rig, batch)[99] == 5); // stays alive
}

/// The message of the exception of `call`.
template <class Call>
std::string text_of(Call call) {
  try {
    call();
    return "nothing";
  } catch (const std::logic_error& thrown) {
    return thrown.what();
  } catch (int thrown) {
    return std::to_string(thrown);
  }
}

struct fails_when_filled {
  void visit(pinlane::batch_slices& slices) { slices.reserve<int>("x", 1); }
  void fill(pinlane::fill_block&) { throw std::logic_error("in fill"); }
};

void exceptions_take_their_batchs_place(rig& rig) {
  std::uint32_t next = 0;
  const auto producer = [&]() -> std::optional<numbers> {
    switch (next++) {
    case 1:
      throw std::logic_error("number 1");
    case 3:
      throw 42;
    case 4:
      throw std::logic_error("number 4");
    case 6:
      return std::nullopt;
    default:
      return filled(next, 10);
    }
  };
  pinlane::prefetch batches(rig.pool, rig.stream, producer);
  EXPECT(batches.next()->index() == 0);
  EXPECT(text_of([&] { (void)batches.next(); }) == "number 1");
  EXPECT(batches.next()->index() == 2);
  EXPECT(text_of([&] { (void)batches.next_timeout(std::chrono::seconds(20)); }) == "42");
  pinlane::device_batch batch;
  EXPECT(batches.next(std::nothrow, batch) == PINLANE_STATUS_PRODUCER && !batch);
  EXPECT(std::string(pinlane_last_error()).find("number 4") != std::string::npos);
  EXPECT(batches.next(std::nothrow, batch) == PINLANE_STATUS_OK && batch.index() == 5);
  EXPECT(batches.next(std::nothrow, batch) == PINLANE_STATUS_END);
  EXPECT(!batches.next());

  bool ended = false;
  pinlane::prefetch filled_batches(rig.pool, rig.stream, [&] {
    return std::exchange(ended, true) ? std::nullopt : std::optional(fails_when_filled{});
  });
  EXPECT(text_of([&] {
           for (auto& unexpected : filled_batches) {
             EXPECT(!unexpected);
           }
         }) == "in fill");

  EXPECT(thrown_by([&] { pinlane::prefetch(rig.pool, rig.stream, producer, {0}); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { pinlane::prefetch(rig.pool, rig.stream, producer, {1, 999}); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { (void)pinlane::prefetch().next(); }) == PINLANE_STATUS_INVALID_HANDLE);
}

/// Counts its instances.
struct counted {
  std::shared_ptr<int> share;
  numbers values;
  void visit(pinlane::batch_slices& slices) { slices.slice("0", values); }
};

/// Destroyed at any moment, also by a move assignment. The producer may refer to objects that are
/// destroyed afterwards.
void the_destructor_waits_for_the_producer(rig& rig) {
  for (int taken = 0; taken < 4; ++taken) {
    const auto share = std::make_shared<int>(0);
    std::atomic<bool> inside{false};
    {
      pinlane::prefetch batches(rig.pool, rig.stream, [&]() -> std::optional<counted> {
        inside = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        inside = false;
        return counted{share, filled(0, 2000)};
      });
      for (int i = 0; i < taken; ++i) {
        EXPECT(batches.next().has_value());
      }
      pinlane::prefetch moved = std::move(batches);
      EXPECT(!batches && moved);
      EXPECT(moved.next().has_value());
      moved = std::move(batches);
      EXPECT(!inside && !moved);
    }
    EXPECT(!inside && share.use_count() == 1);
  }
}

void waiting_ends_in_time_and_by_callback(rig& rig) {
  std::promise<void> open;
  pinlane::prefetch batches(
      rig.pool, rig.stream,
      [gate = open.get_future().share(), next = 0u]() mutable -> std::optional<numbers> {
        gate.wait();
        return next < 3 ? std::optional(filled(next++, 10)) : std::nullopt;
      });
  EXPECT(thrown_by([&] { (void)batches.next_timeout(std::chrono::milliseconds(1)); }) ==
         PINLANE_STATUS_TIMED_OUT);
  std::promise<pinlane_status> cancelled;
  const pinlane::request request =
      batches.next_async([&](pinlane_status status, pinlane::device_batch batch) {
        EXPECT(!batch);
        cancelled.set_value(status);
      });
  pinlane::device_batch batch;
  EXPECT(batches.next(std::nothrow, batch) == PINLANE_STATUS_BUSY);
  request.cancel();
  EXPECT(cancelled.get_future().get() == PINLANE_STATUS_CANCELLED);

  std::promise<std::uint64_t> index;
  batches.next_async([&](pinlane_status status, pinlane::device_batch given) {
    EXPECT(status == PINLANE_STATUS_OK);
    index.set_value(given.index());
  });
  open.set_value();
  EXPECT(index.get_future().get() == 0);
  EXPECT(batches.next_timeout(std::chrono::seconds(20))->index() == 1);
  EXPECT(batches.next_timeout(std::nothrow, std::chrono::seconds(20), batch) == PINLANE_STATUS_OK);
  EXPECT(!batches.next_timeout(std::chrono::seconds(20)));
}

} // namespace

int main() {
  rig rig;
  a_range_of_batches_in_order(rig);
  what_a_batch_may_be(rig);
  a_batch_is_device_memory(rig);
  exceptions_take_their_batchs_place(rig);
  the_destructor_waits_for_the_producer(rig);
  waiting_ends_in_time_and_by_callback(rig);
  return verdict("prefetch in C++");
}
