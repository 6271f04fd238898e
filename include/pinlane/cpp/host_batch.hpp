/// @file
/// Batches in host memory, for a `prefetch`.

#ifndef PINLANE_CPP_HOST_BATCH_HPP
#define PINLANE_CPP_HOST_BATCH_HPP

#include "sides.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// The slices of a batch, each with its own name.
///
/// A batch in host memory is one of these:
///
/// - elements in pageable memory, such as a vector: one slice, named "0";
/// - a tuple or a pair of such: "0", "1", ...;
/// - a map from names to such;
/// - an object that names its slices itself, and may have some of them filled in page-locked
///   memory:
///
/// @code
///   struct samples {
///     std::vector<std::int64_t> labels;
///     void visit(pinlane::batch_slices& slices) {
///       slices.slice("labels", labels);
///       slices.reserve<float>("images", 1000);
///     }
///     void fill(pinlane::fill_block& block) { decode_into(block.slice<float>("images")); }
///   };
/// @endcode
///
/// Several batches are visited and filled at once, each once, by threads of pinlane.
class batch_slices {
public:
  /// A slice of pageable memory, which does not change until the batch is destroyed.
  template <class Elements, detail::if_stays<Elements> = 0>
  void slice(std::string name, Elements&& elements) {
    detail::check_elements<void, Elements>();
    add(std::move(name), std::data(elements), std::size(elements), sizeof(*std::data(elements)));
  }
  /// Not a temporary, which is destroyed before it is copied. See `is_view`.
  template <class Elements, detail::if_goes<Elements> = 0>
  void slice(std::string name, Elements&& elements) = delete;

  /// Page-locked room for `count` elements, which `fill` writes.
  template <class T>
  void reserve(std::string name, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
    add(std::move(name), nullptr, count, sizeof(T));
  }

private:
  friend class fill_block;
  template <class Producer>
  friend class batch_source;

  void add(std::string name, const void* data, std::size_t count, std::size_t element) {
    m_names.push_back(std::move(name));
    m_slices.push_back(
        {m_names.back().c_str(), data, detail::in_bytes(count, element), element, 0});
  }

  std::deque<std::string> m_names; // does not move them
  std::vector<pinlane_host_slice> m_slices;
};

/// The page-locked memory of a batch, while its `fill` writes it.
class fill_block {
public:
  /// The elements that were reserved by this name. Their contents are unspecified at first.
  template <class T>
  [[nodiscard]] span<T> slice(const std::string& name) const {
    for (std::size_t number = 0; number < m_slices.m_slices.size(); ++number) {
      const pinlane_host_slice& slice = m_slices.m_slices[number];
      if (name == slice.name && slice.data == nullptr && slice.element_bytes == sizeof(T)) {
        return {static_cast<T*>(m_room[number]), slice.bytes / sizeof(T)};
      }
    }
    detail::fail(PINLANE_STATUS_INVALID_VALUE,
                 "fill_block::slice: no elements of " + std::to_string(sizeof(T)) +
                     " bytes are reserved as \"" + name + "\": use the name and type of reserve");
  }

private:
  template <class Producer>
  friend class batch_source;
  fill_block(const batch_slices& slices, void* const* room) noexcept
      : m_slices(slices), m_room(room) {}

  const batch_slices& m_slices;
  void* const* m_room;
};

namespace detail {

template <class Batch, class = void>
inline constexpr bool has_visit = false;
template <class Batch>
inline constexpr bool has_visit<
    Batch, std::void_t<decltype(std::declval<Batch&>().visit(std::declval<batch_slices&>()))>> =
    true;

template <class Batch, class = void>
inline constexpr bool has_fill = false;
template <class Batch>
inline constexpr bool has_fill<
    Batch, std::void_t<decltype(std::declval<Batch&>().fill(std::declval<fill_block&>()))>> = true;

template <class Batch, class = void>
inline constexpr bool is_map = false;
template <class Batch>
inline constexpr bool is_map<Batch, std::void_t<typename Batch::mapped_type>> = true;

template <class Batch, std::size_t... Numbers>
void visit_each(Batch& batch, batch_slices& slices, std::index_sequence<Numbers...>) {
  (slices.slice(std::to_string(Numbers), std::get<Numbers>(batch)), ...);
}

template <class Batch>
void visit(Batch& batch, batch_slices& slices) {
  if constexpr (has_visit<Batch>) {
    batch.visit(slices);
  } else if constexpr (is_pageable<Batch>) {
    slices.slice("0", batch);
  } else if constexpr (is_map<Batch>) {
    for (auto& [name, elements] : batch) {
      slices.slice(name, elements);
    }
  } else {
    visit_each(batch, slices, std::make_index_sequence<std::tuple_size_v<Batch>>());
  }
}

/// The exceptions of a producer. Each is kept until the consumer takes its batch.
class producer_failures {
public:
  /// Calls a function of the producer. An exception becomes a code.
  template <class Function>
  std::int32_t guard(Function function) noexcept {
#if defined(PINLANE_CPP_EXCEPTIONS)
    try {
      return function();
    } catch (const std::exception& thrown) {
      static_cast<void>(set_error(PINLANE_STATUS_PRODUCER, thrown.what()));
      return keep(std::current_exception());
    } catch (...) {
      return keep(std::current_exception());
    }
#else
    return function();
#endif
  }

  /// Takes out the exception of a code, if there is one.
  [[nodiscard]] std::exception_ptr take(std::int32_t code) noexcept {
    const std::lock_guard<std::mutex> hold(m_lock);
    const auto found = m_thrown.find(code);
    if (found == m_thrown.end()) {
      return nullptr;
    }
    std::exception_ptr thrown = std::move(found->second);
    m_thrown.erase(found);
    return thrown;
  }

private:
  std::int32_t keep(std::exception_ptr thrown) {
    const std::lock_guard<std::mutex> hold(m_lock);
    const std::int32_t code = --m_last;
    m_thrown.emplace(code, std::move(thrown));
    return code;
  }

  std::mutex m_lock;
  std::map<std::int32_t, std::exception_ptr> m_thrown;
  std::int32_t m_last = 0; // no status is negative
};

} // namespace detail

/// Adapts a C++ producer to the C interface, for `prefetch`.
template <class Producer>
class batch_source {
  using batch = std::decay_t<decltype(*std::declval<Producer&>()())>;

public:
  batch_source(Producer producer, std::shared_ptr<detail::producer_failures> failures)
      : m_producer(std::move(producer)), m_failures(std::move(failures)) {}

  /// Its functions. They refer to this object.
  [[nodiscard]] pinlane_producer functions() noexcept {
    return {sizeof(pinlane_producer),
            this,
            next,
            describe,
            detail::has_fill<batch> ? fill : nullptr,
            release};
  }

private:
  struct item {
    batch held;
    batch_slices slices;
  };

  static std::int32_t next(void* user, void** out) noexcept {
    auto& self = *static_cast<batch_source*>(user);
    return self.m_failures->guard([&]() -> std::int32_t {
      auto given = self.m_producer();
      if (!given) {
        return PINLANE_STATUS_END;
      }
      *out = new item{std::move(*given), {}};
      return PINLANE_STATUS_OK;
    });
  }

  static std::int32_t describe(void* user, void* of, const pinlane_host_slice** slices,
                               std::size_t* count) noexcept {
    auto& batch = *static_cast<item*>(of);
    return static_cast<batch_source*>(user)->m_failures->guard([&]() -> std::int32_t {
      detail::visit(batch.held, batch.slices);
      *slices = batch.slices.m_slices.data();
      *count = batch.slices.m_slices.size();
      return PINLANE_STATUS_OK;
    });
  }

  static std::int32_t fill(void* user, void* of, void* const* room) noexcept {
    return static_cast<batch_source*>(user)->m_failures->guard([&]() -> std::int32_t {
      if constexpr (detail::has_fill<batch>) {
        auto& batch = *static_cast<item*>(of);
        fill_block block(batch.slices, room);
        batch.held.fill(block);
      }
      return PINLANE_STATUS_OK;
    });
  }

  static void release(void*, void* of) noexcept { delete static_cast<item*>(of); }

  Producer m_producer;
  std::shared_ptr<detail::producer_failures> m_failures;
};

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_HOST_BATCH_HPP
