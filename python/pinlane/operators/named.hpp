// Which elements of an operator's first argument its index names. It runs when the index is known.
#pragma once

#include "operator.hpp"
#include "uses.hpp"

#include <ATen/ops/broadcast_tensors.h>

namespace pinlane {

/// More ranges than this become fewer, longer ones.
constexpr size_t MOST_RANGES = 4096;

/// Offsets in bytes, and the memory that belongs to each of them.
struct Pieces {
  std::vector<int64_t> offsets;
  int64_t block = 0;
  Levels levels;
};

/// A range of bytes.
struct Range {
  int64_t start, end;
};

inline std::vector<Range> joined(const std::vector<Range>& ranges, int64_t gap) {
  std::vector<Range> fewer;
  for (const Range& range : ranges) {
    if (!fewer.empty() && range.start <= fewer.back().end + gap)
      fewer.back().end = std::max(fewer.back().end, range.end);
    else
      fewer.push_back(range);
  }
  return fewer;
}

inline void add_pieces(Uses& uses, const char* start, Pieces pieces, bool writes) {
  std::sort(pieces.offsets.begin(), pieces.offsets.end());
  pieces.offsets.erase(std::unique(pieces.offsets.begin(), pieces.offsets.end()),
                       pieces.offsets.end());
  Uses shape;
  add_levels(shape, nullptr, pieces.block, pieces.levels, writes);
  if (shape.size() == 1 && shape[0].rows == 1) {
    const auto bytes = static_cast<int64_t>(shape[0].bytes);
    std::vector<Range> ranges;
    for (int64_t offset : pieces.offsets) ranges.push_back({offset, offset + bytes});
    ranges = joined(ranges, 0);
    for (int64_t gap = bytes; ranges.size() > MOST_RANGES; gap *= 2) ranges = joined(ranges, gap);
    for (const Range& range : ranges) {
      uses.push_back({start + range.start, static_cast<size_t>(range.end - range.start), 1, 0,
                      writes});
    }
    return;
  }
  for (int64_t offset : pieces.offsets) {
    for (pinlane_use use : shape) {
      use.start = start + offset + reinterpret_cast<intptr_t>(use.start);
      uses.push_back(use);
    }
  }
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
  const auto item = static_cast<int64_t>(self.element_size());
  to.block = item;
  if (self.dim() == 0) {
    if (index.numel()) to.offsets.push_back(0);
    return;
  }
  dimension = at::maybe_wrap_dim(dimension, self.dim());
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != dimension) add_level(to.levels, self.size(d), self.stride(d) * item);
  const auto numbers = as_numbers(index);
  const int64_t* at = numbers.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    int64_t row = at[i];
    if (find(row, self.size(dimension)))
      to.offsets.push_back(row * self.stride(dimension) * item);
  }
}

/// Calls f with each position in a tensor of these sizes, in the order of the elements.
template <class F>
void each_position(c10::IntArrayRef sizes, F f) {
  c10::DimVector position(sizes.size(), 0);
  for (int64_t left = c10::multiply_integers(sizes); left > 0; --left) {
    f(position);
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++position[d] < sizes[d]) break;
      position[d] = 0;
    }
  }
}

inline void name_by_element(Pieces& to, const at::Tensor& self, int64_t dimension,
                            const at::Tensor& index) {
  const auto item = static_cast<int64_t>(self.element_size());
  to.block = item;
  if (self.dim() == 0) {
    to.offsets.push_back(0);
    return;
  }
  dimension = at::maybe_wrap_dim(dimension, self.dim());
  const auto numbers = as_numbers(index.dim() == 0 ? index.reshape({1}) : index);
  const int64_t* at = numbers.const_data_ptr<int64_t>();
  each_position(numbers.sizes(), [&](const c10::DimVector& position) {
    int64_t row = *at++;
    if (!find(row, self.size(dimension))) return;
    int64_t offset = 0;
    for (size_t d = 0; d < position.size(); ++d)
      offset += (static_cast<int64_t>(d) == dimension ? row : position[d]) * self.stride(d);
    to.offsets.push_back(offset * item);
  });
}

inline void name_flat(Pieces& to, const at::Tensor& self, const at::Tensor& index) {
  const auto item = static_cast<int64_t>(self.element_size());
  to.block = item;
  const auto numbers = as_numbers(index);
  const int64_t* at = numbers.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    int64_t element = at[i], offset = 0;
    if (!find(element, self.numel())) continue;
    for (int64_t d = self.dim(); d-- > 0; element /= self.size(d))
      offset += element % self.size(d) * self.stride(d);
    to.offsets.push_back(offset * item);
  }
}

inline void name_by_tensors(Pieces& to, const at::Tensor& self,
                            const std::vector<std::optional<at::Tensor>>& indices) {
  const auto item = static_cast<int64_t>(self.element_size());
  to.block = item;
  std::vector<at::Tensor> given;
  std::vector<int64_t> dimensions;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d < static_cast<int64_t>(indices.size()) && indices[d] && indices[d]->defined()) {
      given.push_back(indices[d]->to(at::kLong));
      dimensions.push_back(d);
    } else {
      if (self.size(d) == 0) return;
      add_level(to.levels, self.size(d), self.stride(d) * item);
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
    if (inside) to.offsets.push_back(offset * item);
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
      name_by_tensors(pieces, self, arguments[1].toOptionalTensorVector());
      break;
  }
  add_pieces(uses, static_cast<const char*>(self.const_data_ptr()), std::move(pieces),
             op.writes[0]);
  return uses;
}

}  // namespace pinlane
