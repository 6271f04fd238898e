// Which bytes of memory a tensor is: the ranges and rows that the race checker gets.
#pragma once

#include "dropin.hpp"

#include <ATen/core/Tensor.h>
#include <algorithm>
#include <vector>

namespace pinlane {

using Uses = std::vector<pinlane_use>;

struct Level {
  int64_t size, stride;  // in bytes
};
using Levels = c10::SmallVector<Level, 8>;

/// More uses than this of one tensor become rows that enclose them.
constexpr int64_t MOST_PIECES = 1024;

/// Adds all pieces of `block` bytes at `start` plus any sum of multiples of the levels' strides.
inline void add_levels(Uses& uses, const char* start, int64_t block, Levels levels, bool writes) {
  std::sort(levels.begin(), levels.end(),
            [](const Level& a, const Level& b) { return a.stride < b.stride; });
  int64_t rows = 1, stride = 0;
  Levels outer;
  for (const Level& level : levels) {
    const int64_t more = level.size - 1;
    if (rows == 1 && level.stride <= block) {
      block += level.stride * more;
    } else if (rows == 1) {
      rows = level.size;
      stride = level.stride;
    } else if (outer.empty() && level.stride % stride == 0 && level.stride / stride <= rows) {
      rows += level.stride / stride * more;
    } else {
      outer.push_back(level);
    }
  }
  int64_t pieces = 1;
  for (const Level& level : outer) pieces = std::min(pieces * level.size, MOST_PIECES + 1);
  if (pieces > MOST_PIECES) {
    return add_levels(uses, start, block + stride * (rows - 1), std::move(outer), writes);
  }
  for (int64_t piece = 0; piece < pieces; ++piece) {
    int64_t offset = 0, rest = piece;
    for (const Level& level : outer) {
      offset += rest % level.size * level.stride;
      rest /= level.size;
    }
    uses.push_back({start + offset, static_cast<size_t>(block), static_cast<size_t>(rows),
                    static_cast<size_t>(stride), writes});
  }
}

/// A dimension of length 1 or stride 0 adds nothing.
inline void add_level(Levels& levels, int64_t size, int64_t stride) {
  if (size > 1 && stride != 0) levels.push_back({size, stride});
}

/// Adds a tensor as if it began at `start`.
inline void add_tensor_at(Uses& uses, const char* start, const at::Tensor& t, bool writes) {
  if (!t.defined() || t.numel() == 0) return;
  if (t.is_contiguous()) {
    uses.push_back({start, t.nbytes(), 1, 0, writes});
    return;
  }
  const auto item = static_cast<int64_t>(t.element_size());
  Levels levels;
  for (int64_t d = 0; d < t.dim(); ++d) add_level(levels, t.size(d), t.stride(d) * item);
  add_levels(uses, start, item, std::move(levels), writes);
}

/// Adds the range of a tensor whose elements the work will tell, of those that it uses.
inline void add_later(Uses& uses, const at::Tensor& t, bool writes) {
  const auto item = static_cast<int64_t>(t.element_size());
  int64_t bytes = item;
  for (int64_t d = 0; d < t.dim(); ++d) bytes += (t.size(d) - 1) * t.stride(d) * item;
  uses.push_back({t.const_data_ptr(), static_cast<size_t>(bytes), 1, 0, LATER | int{writes}});
}

inline void add_tensor(Uses& uses, const at::Tensor& t, bool writes) {
  if (t.defined()) add_tensor_at(uses, static_cast<const char*>(t.const_data_ptr()), t, writes);
}

}  // namespace pinlane
