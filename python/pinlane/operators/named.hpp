// Which elements of an operator's first argument its index names. It runs when the index is known.
#pragma once

#include "operator.hpp"
#include "uses.hpp"

#include <ATen/ops/broadcast_tensors.h>

namespace pinlane {

/// More ranges than this become fewer, longer ones.
constexpr size_t MOST_RANGES = 4096;

/// Elements by their offsets, and what belongs to each of them.
struct Pieces {
  std::vector<int64_t> offsets;  // in elements
  int64_t item = 1;              // the size of an element
  Levels levels;
};

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

/// The ranges of offsets that follow each other.
inline std::vector<Range> runs_of(std::vector<int64_t>& offsets) {
  std::vector<Range> runs;
  if (offsets.empty()) return runs;
  const auto last = static_cast<size_t>(*std::max_element(offsets.begin(), offsets.end()));
  if (offsets.size() < 64 || last / 64 > offsets.size()) {
    std::sort(offsets.begin(), offsets.end());
    for (int64_t offset : offsets) add_range(runs, {offset, offset + 1}, 0);
    return runs;
  }
  std::vector<uint64_t> seen(last / 64 + 1);
  for (int64_t offset : offsets) seen[offset / 64] |= uint64_t{1} << (offset % 64);
  for (size_t word = 0; word < seen.size(); ++word) {
    const auto base = static_cast<int64_t>(word) * 64;
    if (seen[word] == ~uint64_t{0}) {
      add_range(runs, {base, base + 64}, 0);
      continue;
    }
    for (uint64_t bits = seen[word]; bits; bits &= bits - 1) {
      const int64_t offset = base + __builtin_ctzll(bits);
      add_range(runs, {offset, offset + 1}, 0);
    }
  }
  return runs;
}

inline void add_pieces(Uses& uses, const char* start, Pieces pieces, bool writes) {
  auto runs = runs_of(pieces.offsets);
  const int64_t item = pieces.item;
  Uses shape;
  add_levels(shape, nullptr, item, pieces.levels, writes);
  if (shape.size() == 1 && shape[0].rows == 1) {
    const auto bytes = static_cast<int64_t>(shape[0].bytes);
    std::vector<Range> ranges;
    for (const Range& run : runs)
      add_range(ranges, {run.start * item, (run.end - 1) * item + bytes}, 0);
    for (int64_t gap = bytes; ranges.size() > MOST_RANGES; gap *= 2) ranges = joined(ranges, gap);
    for (const Range& range : ranges) {
      uses.push_back({start + range.start, static_cast<size_t>(range.end - range.start), 1, 0,
                      writes});
    }
    return;
  }
  for (int64_t gap = 1; runs.size() * shape.size() > MOST_RANGES && runs.size() > 1; gap *= 2)
    runs = joined(runs, gap);
  for (const Range& run : runs)
    add_levels(uses, start + run.start * item, (run.end - run.start) * item, pieces.levels, writes);
}

inline bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

inline at::Tensor as_numbers(const at::Tensor& index) {
  return index.to(at::kLong).contiguous();
}

/// An index counts from the end if it is negative. One that is out of range names nothing.
inline bool find(int64_t& index, int64_t size) {
  if (index < 0) index += size;
  return 0 <= index && index < size;
}

inline void name_along_dimension(Pieces& to, const at::Tensor& self, int64_t dimension,
                                 const at::Tensor& index) {
  to.item = static_cast<int64_t>(self.element_size());
  if (self.dim() == 0) {
    if (index.numel()) to.offsets.push_back(0);
    return;
  }
  dimension = at::maybe_wrap_dim(dimension, self.dim());
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != dimension) add_level(to.levels, self.size(d), self.stride(d) * to.item);
  const auto numbers = as_numbers(index);
  const int64_t* at = numbers.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    int64_t row = at[i];
    if (find(row, self.size(dimension))) to.offsets.push_back(row * self.stride(dimension));
  }
}

/// Calls f with the sum of position times stride for each position in a tensor of these sizes (one
/// at least), in the order of the elements.
template <class F>
void each_offset(c10::IntArrayRef sizes, c10::IntArrayRef strides, F f) {
  const size_t inner = sizes.size() - 1;
  c10::DimVector position(inner, 0);
  int64_t offset = 0;
  for (int64_t left = c10::multiply_integers(sizes); left > 0; left -= sizes[inner]) {
    for (int64_t i = 0; i < sizes[inner]; ++i) f(offset + i * strides[inner]);
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
  to.item = static_cast<int64_t>(self.element_size());
  if (self.dim() == 0) {
    to.offsets.push_back(0);
    return;
  }
  dimension = at::maybe_wrap_dim(dimension, self.dim());
  const auto numbers = as_numbers(index.dim() == 0 ? index.reshape({1}) : index);
  const int64_t* at = numbers.const_data_ptr<int64_t>();
  const int64_t size = self.size(dimension), stride = self.stride(dimension);
  c10::DimVector strides(self.strides());
  strides[dimension] = 0;
  to.offsets.reserve(numbers.numel());
  each_offset(numbers.sizes(), strides, [&](int64_t offset) {
    int64_t row = *at++;
    if (find(row, size)) to.offsets.push_back(offset + row * stride);
  });
}

inline void name_flat(Pieces& to, const at::Tensor& self, const at::Tensor& index) {
  to.item = static_cast<int64_t>(self.element_size());
  const auto numbers = as_numbers(index);
  const int64_t* at = numbers.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    int64_t element = at[i], offset = 0;
    if (!find(element, self.numel())) continue;
    for (int64_t d = self.dim(); d-- > 0; element /= self.size(d))
      offset += element % self.size(d) * self.stride(d);
    to.offsets.push_back(offset);
  }
}

inline void name_by_tensors(Pieces& to, const at::Tensor& self,
                            const std::vector<std::optional<at::Tensor>>& indices) {
  to.item = static_cast<int64_t>(self.element_size());
  std::vector<at::Tensor> given;
  std::vector<int64_t> dimensions;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d < static_cast<int64_t>(indices.size()) && indices[d] && indices[d]->defined()) {
      given.push_back(indices[d]->to(at::kLong));
      dimensions.push_back(d);
    } else {
      if (self.size(d) == 0) return;
      add_level(to.levels, self.size(d), self.stride(d) * to.item);
    }
  }
  given = at::broadcast_tensors(given);
  for (auto& index : given) index = index.contiguous();
  for (int64_t i = 0; i < given.at(0).numel(); ++i) {
    int64_t offset = 0;
    bool inside = true;
    for (size_t k = 0; k < given.size(); ++k) {
      int64_t row = given[k].const_data_ptr<int64_t>()[i];
      inside = inside && find(row, self.size(dimensions[k]));
      offset += row * self.stride(dimensions[k]);
    }
    if (inside) to.offsets.push_back(offset);
  }
}

/// The uses of the first argument, which are unknown at the launch.
inline Uses named_uses(const Operator& op, const std::vector<IValue>& arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  Uses uses;
  if (self.numel() == 0) return uses;
  Pieces pieces;
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
          add_tensor(uses, self, op.writes[0]);
          return uses;
        }
      }
      name_by_tensors(pieces, self, arguments[1].toOptionalTensorVector());
      break;
  }
  add_pieces(uses, static_cast<const char*>(self.const_data_ptr()), std::move(pieces),
             op.writes[0]);
  return uses;
}

}  // namespace pinlane
