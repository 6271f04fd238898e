// Tensors, the program's own and those of the library: their contents and their owners. The structs
// are copied from the specification of DLPack 1.1, not from pinlane.

#pragma once

#include "pinned.hpp"

#include <chrono>
#include <thread>

struct dl_version {
  std::uint32_t major, minor;
};
struct dl_place {
  std::int32_t type, number;
};
struct dl_type {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct dl_tensor {
  void* data;
  dl_place place;
  std::int32_t ndim;
  dl_type type;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  dl_tensor tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  dl_version version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  dl_tensor tensor;
};

enum : std::int32_t { dl_cpu = 1, dl_cuda = 2, dl_cuda_host = 3, dl_extension = 12 };

/// A tensor that the program has made, of its own memory. It stays until the program's end.
struct own_tensor {
  DLManagedTensorVersioned versioned{};
  DLManagedTensor legacy{};
  std::vector<std::int64_t> shape, strides;
  /// Its memory, if that is on the host.
  std::unique_ptr<std::uint8_t[]> memory;
  /// Where the elements begin there, the bytes of all together, and those that there are room for.
  std::size_t at = 0, bytes = 0, room = 0;
  /// The library has it: it calls the deleter once.
  std::atomic<bool> is_given{false};
  std::atomic<int> deleted{0};
};

inline void delete_own(own_tensor& own) {
  require(own.is_given, "the deleter of a tensor was called that the library does not have");
  require(own.deleted++ == 0, "a deleter was called twice");
}

/// A tensor that the library has made, and the program owns. One of the two is set.
struct tensor {
  DLManagedTensorVersioned* versioned = nullptr;
  DLManagedTensor* legacy = nullptr;
  /// The bytes of its elements, if they have no gaps.
  contents bytes;
  bool has_gaps = false, is_read_only = false, is_on_host = true;
  int device = -1;
  /// The stream that the library was given: only this one is ordered after earlier work.
  const void* consumer = nullptr;
  /// For device memory: the offset of the first element from a multiple of 8.
  std::size_t off = 0;
  /// The tensor that the buffer was made of.
  std::shared_ptr<own_tensor> made_of;
  /// Complete when device memory is usable on the consumer's stream.
  pinlane_ticket* ready = nullptr;

  tensor() = default;
  tensor(const tensor&) = delete;
  ~tensor() { static_cast<void>(pinlane_ticket_free(ready)); }

  [[nodiscard]] const dl_tensor& view() const {
    return versioned != nullptr ? versioned->tensor : legacy->tensor;
  }
};

inline void delete_tensor(world& w, const tensor& gone) {
  // Memory is kept if the stream that uses it cannot be queried.
  w.may_keep = w.may_keep || w.captured;
  if (gone.versioned != nullptr) {
    gone.versioned->deleter(gone.versioned);
  } else {
    gone.legacy->deleter(gone.legacy);
  }
}

// -- Elements ------------------------------------------------------------------------------------

constexpr std::uint64_t dl_read_only = 1, dl_copied = 2, dl_padded = 4;

inline std::size_t element_bits(dl_type type) { return std::size_t{type.bits} * type.lanes; }

/// The bytes of elements without gaps.
inline std::size_t bytes_of(dl_type type, std::size_t count, bool is_padded) {
  const std::size_t bits = element_bits(type);
  return is_padded ? (bits + 7) / 8 * count : (bits * count + 7) / 8;
}

/// Whether the specification knows its size.
inline bool is_type(dl_type type) {
  const int expected = type.code == 17 ? 4 : type.code == 15 || type.code == 16 ? 6 : type.bits;
  return element_bits(type) > 0 && type.bits == expected;
}

/// A type of any width.
inline dl_type some_type(frame& f) {
  const dl_type types[] = {{1, 8, 1},  {2, 32, 1}, {0, 64, 1}, {1, 4, 1},  {0, 1, 1},
                           {15, 6, 1}, {17, 4, 1}, {1, 4, 3},  {1, 12, 1}, {1, 3, 2}};
  return types[f.in.below(f.in.byte() % 2 == 0 ? 3 : 10)];
}

/// The strides of elements without gaps.
inline std::vector<std::int64_t> compact(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::uint64_t stride = 1; // for an invalid shape it may overflow
  for (std::size_t number = shape.size(); number > 0; --number) {
    strides[number - 1] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(std::max<std::int64_t>(shape[number - 1], 1));
  }
  return strides;
}

// -- Those that the program owns -----------------------------------------------------------------

/// Takes one of the program's tensors, so that no other thread uses it.
template <class Wanted>
std::shared_ptr<tensor> take_tensor(frame& f, Wanted is_wanted) {
  const std::uint8_t choice = f.in.byte();
  const std::lock_guard<std::mutex> guard(f.w.lock);
  std::vector<std::shared_ptr<tensor>>& all = f.w.tensors;
  for (std::size_t number = 0; number < all.size(); ++number) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>((choice + number) % all.size());
    if (is_wanted(**at)) {
      const std::shared_ptr<tensor> taken = *at;
      all.erase(at);
      return taken;
    }
  }
  return nullptr;
}

inline void put_tensor(frame& f, const std::shared_ptr<tensor>& back) {
  const std::lock_guard<std::mutex> guard(f.w.lock);
  f.w.tensors.push_back(back);
}

inline pinlane_status tensor_delete(frame& f) {
  const auto gone = take_tensor(f, [](const tensor&) { return true; });
  if (gone != nullptr) {
    delete_tensor(f.w, *gone);
  }
  return PINLANE_STATUS_OK;
}

/// Checks at the end that the library has given everything back.
inline void check_tensors(const world& w) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (const std::shared_ptr<own_tensor>& each : w.own_tensors) {
    while (each->is_given && each->deleted == 0 && !w.faulty && !w.may_keep) {
      require(std::chrono::steady_clock::now() < limit, "a tensor was not given back");
      std::this_thread::yield();
    }
  }
}
