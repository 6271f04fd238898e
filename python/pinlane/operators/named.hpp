// Which elements of an operator's first argument its index names. It runs when the index is known.
#pragma once

#include "operator.hpp"
#include "uses.hpp"

#include <ATen/ops/broadcast_tensors.h>
#include <cstring>
#include <numeric>

namespace pinlane {

/// More ranges than this become fewer, longer ones.
constexpr size_t MOST_RANGES = 4096;

/// Of what runs once for each index: the library is compiled without much inlining.
#define PINLANE_INLINE __attribute__((always_inline))

struct Range {
  int64_t start, end;
};

inline void add_range(std::vector<Range>& ranges, Range range, int64_t gap) {
  if (!ranges.empty() && range.start <= ranges.back().end + gap)
    ranges.back().end = std::max(ranges.back().end, range.end);
  else
    ranges.push_back(range);
}

/// Joins ranges that have at most `gap` between them.
inline std::vector<Range> joined(const std::vector<Range>& ranges, int64_t gap) {
  std::vector<Range> fewer;
  for (const Range& range : ranges) add_range(fewer, range, gap);
  return fewer;
}

/// A set of numbers from 0 to a limit. It ignores others.
///
/// Many numbers are bytes first, then bits: to set a bit takes longer than to set a byte, as it
/// waits for the last one in the same word. Fewer are bits, and few are a list.
class Numbers {
 public:
  Numbers() = default;

  /// At most so many will be added.
  Numbers(int64_t limit, int64_t most) {
    const auto words = static_cast<size_t>(limit / 64 + 1);
    if (limit / 8 <= most)
      bytes.resize(64 * words);
    else if (limit / 64 <= std::max<int64_t>(most, 64))
      bits.resize(words);
    else
      listed.reserve(most);
  }

  /// Calls f with a function, which adds each number that it is called with.
  template <class F>
  void add(F f) {
    if (!bytes.empty()) {
      f([each = bytes.data(), count = bytes.size()](int64_t number) PINLANE_INLINE {
        if (static_cast<uint64_t>(number) < count) each[number] = 1;
      });
    } else if (!bits.empty()) {
      f([words = bits.data(), count = bits.size()](int64_t number) PINLANE_INLINE {
        const uint64_t word = static_cast<uint64_t>(number) / 64;
        if (word < count) words[word] |= uint64_t{1} << (number % 64);
      });
    } else {
      f([this](int64_t number) { listed.push_back(number); });
    }
  }

  /// The ranges of numbers that follow each other. If there are more than `most`, numbers are added
  /// between those that are close to each other.
  std::vector<Range> ranges(size_t most) {
    pack();
    for (int gap = 1; gap < 64 && count() > most; gap *= 2) close(gap);
    std::vector<Range> found;
    std::sort(listed.begin(), listed.end());
    for (int64_t number : listed) add_range(found, {number, number + 1}, 0);
    for (size_t word = 0; word < bits.size(); ++word) {
      const auto base = static_cast<int64_t>(word) * 64;
      uint64_t left = bits[word];
      while (left) {
        const int from = __builtin_ctzll(left);
        const uint64_t ends = ~left & (~uint64_t{0} << from);
        const int to = ends ? __builtin_ctzll(ends) : 64;
        add_range(found, {base + from, base + to}, 0);
        left = ends ? left & (~uint64_t{0} << to) : 0;
      }
    }
    return found;
  }

 private:
  /// Makes bytes bits.
  void pack() {
    if (bytes.empty()) return;
    bits.resize(bytes.size() / 64);
    const uint8_t* from = bytes.data();
    for (uint64_t& word : bits) {
      for (int shift = 0; shift < 64; shift += 8, from += 8) {
        uint64_t eight;
        std::memcpy(&eight, from, 8);
        // Each byte's lowest bit comes to its place in the highest byte of the product.
        word |= (eight * 0x0102040810204080) >> 56 << shift;
      }
    }
    bytes.clear();
  }

  /// How many ranges the bits are.
  size_t count() const {
    size_t starts = 0;
    uint64_t before = 0;
    for (uint64_t word : bits) {
      starts += __builtin_popcountll(word & ~(word << 1 | before));
      before = word >> 63;
    }
    return starts;
  }

  /// Adds what lies between numbers with at most `gap` (1 to 63) others between them: each bit is
  /// spread to the `gap` bits above, and then only those stay with the `gap` bits above them.
  void close(int gap) {
    using Two = unsigned __int128;
    bits.push_back(0);
    uint64_t before = 0;
    for (uint64_t& word : bits) {
      Two two = Two{word} << 64 | before;
      before = word;
      for (int done = 1, more; done <= gap; done += more) {
        more = std::min(done, gap + 1 - done);
        two |= two << more;
      }
      word = static_cast<uint64_t>(two >> 64);
    }
    for (size_t i = 0; i + 1 < bits.size(); ++i) {
      Two two = Two{bits[i + 1]} << 64 | bits[i];
      for (int done = 1, more; done <= gap; done += more) {
        more = std::min(done, gap + 1 - done);
        two &= two >> more;
      }
      bits[i] = static_cast<uint64_t>(two);
    }
    bits.pop_back();
  }

  std::vector<uint8_t> bytes;
  std::vector<uint64_t> bits;
  std::vector<int64_t> listed;
};

/// What an index names: one piece for each number, `unit` bytes from one number to the next. A
/// piece is an element and what the levels add to it.
struct Pieces {
  Numbers numbers;
  int64_t unit = 1;
  int64_t item = 1;  // the size of an element
  Levels levels;
};

inline void add_pieces(Uses& uses, const char* start, Pieces pieces, bool writes) {
  const int64_t item = pieces.item, unit = pieces.unit;
  Uses shape;
  add_levels(shape, nullptr, item, pieces.levels, writes);
  // Whether some pieces side by side take as many uses as one of them.
  const bool together = unit <= item || (shape.size() == 1 && shape[0].rows == 1);
  const size_t most = MOST_RANGES / std::max<size_t>(shape.size(), 1);
  auto runs = pieces.numbers.ranges(together ? most : SIZE_MAX);
  if (!together) {
    std::vector<Range> single;
    for (const Range& run : runs)
      for (int64_t number = run.start; number < run.end; ++number)
        single.push_back({number, number + 1});
    runs = std::move(single);
  }
  for (int64_t gap = 1; runs.size() * shape.size() > MOST_RANGES && runs.size() > 1; gap *= 2)
    runs = joined(runs, gap);
  for (const Range& run : runs) {
    auto levels = pieces.levels;
    const int64_t count = run.end - run.start;
    if (together) add_level(levels, count, unit);
    const int64_t block = together ? item : item + (count - 1) * unit;
    add_levels(uses, start + run.start * unit, block, std::move(levels), writes);
  }
}

inline bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

inline at::Tensor as_numbers(const at::Tensor& index) {
  return index.to(at::kLong).contiguous();
}

/// An index counts from the end if it is negative. One that is out of range names nothing.
PINLANE_INLINE inline bool find(int64_t& index, int64_t size) {
  if (index < 0) index += size;
  return 0 <= index && index < size;
}

/// Makes room for numbers that are sums of an index into each dimension times its stride, which
/// come to be counted in units.
inline void make_room(Pieces& to, c10::IntArrayRef sizes, c10::DimVector& strides, int64_t most) {
  int64_t unit = 0, last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    unit = std::gcd(unit, strides[d]);
    last += (sizes[d] - 1) * strides[d];
  }
  unit = std::max<int64_t>(unit, 1);
  for (int64_t& stride : strides) stride /= unit;
  to.unit = unit * to.item;
  to.numbers = Numbers(last / unit, most);
}

inline void name_along_dimension(Pieces& to, const at::Tensor& self, int64_t dimension,
                                 const at::Tensor& index) {
  const auto numbers = as_numbers(index);
  if (self.dim() == 0) {
    to.numbers = Numbers(0, 1);
    if (index.numel()) to.numbers.add([](auto add) { add(0); });
    return;
  }
  dimension = at::maybe_wrap_dim(dimension, self.dim());
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != dimension) add_level(to.levels, self.size(d), self.stride(d) * to.item);
  c10::DimVector strides{self.stride(dimension)};
  make_room(to, {self.size(dimension)}, strides, numbers.numel());
  const int64_t* at = numbers.const_data_ptr<int64_t>();
  const int64_t count = numbers.numel(), size = self.size(dimension), stride = strides[0];
  to.numbers.add([=](auto add) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t row = at[i];
      if (find(row, size)) add(row * stride);
    }
  });
}

/// Calls f for each position in a tensor of these sizes (one at least), with the sum of position
/// times stride and with the element's number.
template <class F>
PINLANE_INLINE inline void each_offset(c10::IntArrayRef sizes, c10::IntArrayRef strides, F f) {
  const size_t inner = sizes.size() - 1;
  const int64_t size = sizes[inner], stride = strides[inner];
  c10::DimVector position(inner, 0);
  int64_t offset = 0;
  const int64_t count = c10::multiply_integers(sizes);
  for (int64_t first = 0; first < count; first += size) {
    for (int64_t i = 0; i < size; ++i) f(offset + i * stride, first + i);
    for (size_t d = inner; d-- > 0;) {
      offset += strides[d];
      if (++position[d] < sizes[d]) break;
      offset -= strides[d] * sizes[d];
      position[d] = 0;
    }
  }
}

inline void name_by_element(Pieces& to, const at::Tensor& self, int64_t dimension,
                            const at::Tensor& index) {
  if (self.dim() == 0) {
    to.numbers = Numbers(0, 1);
    if (index.numel()) to.numbers.add([](auto add) { add(0); });
    return;
  }
  dimension = at::maybe_wrap_dim(dimension, self.dim());
  const auto numbers = as_numbers(index.dim() == 0 ? index.reshape({1}) : index);
  const int64_t* at = numbers.const_data_ptr<int64_t>();
  c10::DimVector strides(self.strides());
  make_room(to, self.sizes(), strides, numbers.numel());
  const int64_t size = self.size(dimension), stride = std::exchange(strides[dimension], 0);
  to.numbers.add([&](auto add) {
    // Captures by value: to store a byte might change what a reference names.
    each_offset(numbers.sizes(), strides, [=](int64_t offset, int64_t i) PINLANE_INLINE {
      int64_t row = at[i];
      if (find(row, size)) add(offset + row * stride);
    });
  });
}

inline void name_flat(Pieces& to, const at::Tensor& self, const at::Tensor& index) {
  const auto numbers = as_numbers(index);
  c10::DimVector strides(self.strides());
  make_room(to, self.sizes(), strides, numbers.numel());
  const int64_t* at = numbers.const_data_ptr<int64_t>();
  to.numbers.add([&](auto add) {
    for (int64_t i = 0; i < numbers.numel(); ++i) {
      int64_t element = at[i], offset = 0;
      if (!find(element, self.numel())) continue;
      for (int64_t d = self.dim(); d-- > 0; element /= self.size(d))
        offset += element % self.size(d) * strides[d];
      add(offset);
    }
  });
}

inline void name_by_tensors(Pieces& to, const at::Tensor& self,
                            const std::vector<std::optional<at::Tensor>>& indices) {
  std::vector<at::Tensor> given;
  c10::DimVector sizes, strides;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d < static_cast<int64_t>(indices.size()) && indices[d] && indices[d]->defined()) {
      given.push_back(indices[d]->to(at::kLong));
      sizes.push_back(self.size(d));
      strides.push_back(self.stride(d));
    } else {
      add_level(to.levels, self.size(d), self.stride(d) * to.item);
    }
  }
  given = at::broadcast_tensors(given);
  for (auto& index : given) index = index.contiguous();
  make_room(to, sizes, strides, given.at(0).numel());
  to.numbers.add([&](auto add) {
    for (int64_t i = 0; i < given[0].numel(); ++i) {
      int64_t offset = 0;
      bool inside = true;
      for (size_t k = 0; k < given.size(); ++k) {
        int64_t row = given[k].const_data_ptr<int64_t>()[i];
        inside = inside && find(row, sizes[k]);
        offset += row * strides[k];
      }
      if (inside) add(offset);
    }
  });
}

/// The uses of the first argument, which are unknown at the launch; on the device it begins at
/// `start`.
inline Uses named_uses(const Operator& op, const std::vector<IValue>& arguments,
                       const char* start) {
  const at::Tensor& self = arguments[0].toTensor();
  Uses uses;
  if (self.numel() == 0) return uses;
  Pieces pieces;
  pieces.item = static_cast<int64_t>(self.element_size());
  switch (op.named) {
    case Named::No: return uses;
    case Named::AlongDimension:
      if (arguments[1].isInt())
        name_along_dimension(pieces, self, arguments[1].toInt(), arguments[2].toTensor());
      else
        name_along_dimension(pieces, self, 0, arguments[1].toTensor());
      break;
    case Named::ByElement:
      name_by_element(pieces, self, arguments[1].toInt(), arguments[2].toTensor());
      break;
    case Named::Flat: name_flat(pieces, self, arguments[1].toTensor()); break;
    case Named::ByTensors:
      for (const auto& index : arguments[1].toOptionalTensorVector()) {
        if (index && index->defined() && is_mask(*index)) {
          // One that is left is a masked_fill_, which writes to every element.
          add_tensor_at(uses, start, self, op.writes[0]);
          return uses;
        }
      }
      name_by_tensors(pieces, self, arguments[1].toOptionalTensorVector());
      break;
  }
  add_pieces(uses, start, std::move(pieces), op.writes[0]);
  return uses;
}

}  // namespace pinlane
