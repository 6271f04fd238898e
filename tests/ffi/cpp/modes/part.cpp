// One file of a program whose files are compiled in different modes. PART is its name.

#include "modes.hpp"

#include <cstdlib>
#include <exception>
#include <memory>
#include <typeinfo>
#include <utility>

namespace {

struct rig {
  pinlane::device device = std::move(pinlane::device::emulated(1).front());
  pinlane::pinned_pool pool{device};
  pinlane::stream stream{device};
};

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void succeed() {
  const rig rig;
  auto host = rig.pool.alloc<float>(8);
  auto gpu = rig.device.alloc<float>(8);
  host.write()[0] = 1;
  rig.stream.upload(host, gpu).wait();
  std::vector<float> values(8);
  rig.stream.download(gpu, values);
  require(values[0] == 1);
  std::vector<pinlane::download_item> items;
  items.emplace_back(gpu, values);
  rig.stream.download_batch_each(items, landed{{false}});
  pinlane::prefetch batches(rig.pool, rig.stream, producer{{false}});
  require(!batches.next());
  pinlane::exploration options;
  options.runs = 2;
  require(!pinlane::explore(options, program{{false}}).failed);
  pinlane::pinned_resource resource(rig.pool);
  const std::pmr::vector<int> container(3, &resource);
  const pinlane::error error(PINLANE_STATUS_BUSY, "made, not thrown");
  require(error.status() == PINLANE_STATUS_BUSY);
#if __cplusplus >= 202002L && defined(PINLANE_CPP_EXCEPTIONS) && defined(PINLANE_CPP_RTTI)
  require(alloc_elsewhere(rig.pool).size() == 3);
#endif
}

#if defined(PINLANE_CPP_EXCEPTIONS)

/// Whether a call throws this.
template <class Exception, class Call>
bool throws(Call call) {
  try {
    call();
  } catch (const Exception&) {
    return true;
  }
  return false;
}

bool fail() {
  const rig rig;
  auto gpu = rig.device.alloc<float>(8);
  std::vector<float> values(8);
  std::vector<pinlane::download_item> items;
  items.emplace_back(gpu, values);
  pinlane::pinned_resource resource(rig.pool);
  bool right = throws<pinlane::error>([&] { static_cast<void>(rig.pool.alloc<float>(SIZE_MAX)); });
  right &= throws<pinlane::error>([&] { rig.stream.upload(std::vector<float>(3), gpu); });
  right &= throws<pinlane::bad_alloc>([&] { static_cast<void>(resource.allocate(SIZE_MAX / 2)); });
  right &= throws<thrown>([&] { rig.stream.download_batch_each(items, landed{{true}}); });
  right &= throws<thrown>([&] {
    pinlane::prefetch batches(rig.pool, rig.stream, producer{{true}});
    static_cast<void>(batches.next());
  });
  pinlane::exploration options;
  options.runs = 1;
  options.shrink_runs = 0;
  options.quiet = true;
  right &= pinlane::explore(options, program{{true}}).failed;
#if defined(PINLANE_CPP_RTTI)
  try {
    static_cast<void>(rig.pool.alloc<float>(SIZE_MAX));
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const pinlane::error*>(&error);
    right &= known != nullptr && typeid(error) == typeid(pinlane::error);
  }
#endif
  return right;
}

#else

bool fail() {
  const rig rig;
  static_cast<void>(rig.pool.alloc<float>(SIZE_MAX));
  return false;
}

#endif

std::pmr::memory_resource* resource(pinlane_pool* pool) {
  pinlane_pool* owned = nullptr;
  pinlane::detail::check(pinlane_pool_clone(pool, &owned));
  static std::vector<std::unique_ptr<pinlane::pinned_resource>> all;
  all.push_back(std::make_unique<pinlane::pinned_resource>(pinlane::pinned_pool(owned)));
  return all.back().get();
}

/// A resource that is not pinlane's, and has a pool where pinlane's have theirs.
class foreign : public std::pmr::memory_resource {
public:
  explicit foreign(pinlane_pool* pool) : m_pool(pool) {}

private:
  void* do_allocate(std::size_t, std::size_t) override { return m_pool; }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  pinlane_pool* m_pool;
};

std::pmr::memory_resource* other(pinlane_pool* pool) {
  static std::vector<std::unique_ptr<foreign>> all;
  all.push_back(std::make_unique<foreign>(pool));
  return all.back().get();
}

bool are_equal(const std::pmr::memory_resource& a, const std::pmr::memory_resource& b) {
  return a == b;
}

#if defined(PINLANE_CPP_EXCEPTIONS)
constexpr bool has_exceptions = true;
#else
constexpr bool has_exceptions = false;
#endif

const bool added = add({PART, has_exceptions, succeed, fail, resource, other, are_equal});

} // namespace
