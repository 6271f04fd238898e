// Rows of tables in C++, by their numbers.

#include "check.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t rows = 20, row = 16;

/// A table whose elements have different values.
std::vector<float> plain_table(float first) {
  std::vector<float> table(rows * row);
  std::iota(table.begin(), table.end(), first);
  return table;
}

/// Whether row `at` of `got` is row `wanted` of `table`.
bool is_row(const float* got, std::size_t at, const std::vector<float>& table, std::size_t wanted) {
  bool same = true;
  for (std::size_t i = 0; i < row; ++i) {
    same = same && got[at * row + i] == table[wanted * row + i];
  }
  return same;
}

/// The same numbers, of every type that there is, on the host and on the device.
template <class Check>
void with_each_kind(rig& rig, const std::vector<std::int64_t>& numbers, const Check& check) {
  const auto as = [&](auto number) {
    const std::vector<decltype(number)> typed(numbers.begin(), numbers.end());
    check(pinlane::indices(typed));
    check(pinlane::indices(typed).distinct());
    auto gpu = rig.device.alloc<decltype(number)>(typed.size() + 3);
    rig.stream.upload(typed, gpu.slice(3, typed.size()));
    check(pinlane::indices(gpu.slice(3, typed.size())));
  };
  as(std::uint32_t{});
  as(std::int32_t{});
  as(std::uint64_t{});
  as(std::int64_t{});
}

void as_in_the_guide(const pinlane::device& device, const pinlane::pinned_pool& pool,
                     const pinlane::stream& stream) {
  // ANCHOR: rows
  auto table = pool.alloc_zeroed<float>(1000 * 64); // 1000 rows of 64 numbers
  auto rows = device.alloc<float>(3 * 64);
  const std::array<std::uint32_t, 3> wanted = {7, 0, 7}, places = {2, 3, 4};
  stream.upload_rows(table, wanted, rows);   // rows[i] = table[wanted[i]]
  stream.download_rows(rows, places, table); // table[places[i]] = rows[i]
  // ANCHOR_END: rows

  for (std::size_t at = 0; at < 64; ++at) {
    table.write()[7 * 64 + at] = 1.5f;
  }
  stream.upload_rows(table, wanted, rows);
  stream.download_rows(rows, places, table);
  EXPECT(table.read()[2 * 64] == 1.5f && table.read()[3 * 64] == 0);
  EXPECT(table.read()[5 * 64 - 1] == 1.5f && table.read()[5 * 64] == 0);
}

void gathers(rig& rig) {
  const std::vector<float> table = plain_table(1);
  auto pinned = rig.pool.alloc<float>(rows * row + 1);
  std::copy(table.begin(), table.end(), pinned.write().begin() + 1);
  const std::vector<std::int64_t> wanted = {7, 0, 7, rows - 1, 5};
  auto gpu = rig.device.alloc<float>(wanted.size() * row);
  std::vector<float> back(gpu.size());
  with_each_kind(rig, wanted, [&](const pinlane::indices& numbers) {
    for (const bool pageable : {false, true}) {
      rig.stream.fill(gpu, 0);
      if (pageable) {
        rig.stream.upload_rows(table, numbers, gpu).wait();
      } else {
        rig.stream.upload_rows(pinned.slice(1, rows * row), numbers, gpu.slice()).wait();
      }
      rig.stream.download(gpu, back);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT(is_row(back.data(), i, table, static_cast<std::size_t>(wanted[i])));
      }
    }
  });
}

void scatters(rig& rig) {
  const std::vector<float> sent = plain_table(1);
  const std::vector<std::int64_t> wanted = {7, 0, 6, rows - 1, 5};
  auto gpu = rig.device.alloc<float>(rows * row);
  rig.stream.upload(sent, gpu);
  auto pinned = rig.pool.alloc<float>(rows * row);
  std::vector<float> pageable(rows * row);
  with_each_kind(rig, wanted, [&](const pinlane::indices& numbers) {
    for (float& each : pinned.write()) {
      each = 0;
    }
    rig.stream.download_rows(gpu.slice(0, wanted.size() * row), numbers, pinned);
    rig.stream.download_rows(gpu.slice(row, wanted.size() * row), numbers, pageable);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto at = static_cast<std::size_t>(wanted[i]);
      EXPECT(is_row(pinned.read().data(), at, sent, i));
      EXPECT(is_row(pageable.data(), at, sent, i + 1));
    }
    EXPECT(pinned.read()[row] == 0 && pageable[8 * row] == 0);
  });
}

void blocks(rig& rig) {
  const std::vector<float> keys = plain_table(1), values = plain_table(1000);
  auto pinned = rig.pool.alloc<float>(rows * row);
  std::copy(keys.begin(), keys.end(), pinned.write().begin());
  auto gpu = rig.device.alloc<float>(2 * 8 * row);
  rig.stream.fill(gpu, 0);

  std::vector<pinlane::upload_layer<float>> up;
  up.emplace_back(pinned, gpu.slice(0, 8 * row));
  up.emplace_back(values, gpu.slice(8 * row, 8 * row));
  const std::array<int, 3> from = {15, 3, 15};
  const std::uint64_t to[] = {0, 5, 2};
  rig.stream.upload_blocks(up, row, from, to).wait();
  std::vector<float> back(gpu.size());
  rig.stream.download(gpu, back);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT(is_row(back.data(), to[i], keys, static_cast<std::size_t>(from[i])));
    EXPECT(is_row(back.data() + 8 * row, to[i], values, static_cast<std::size_t>(from[i])));
  }
  EXPECT(back[row] == 0 && back[9 * row] == 0);

  // All blocks of the device, to some of the host.
  auto twin = rig.pool.alloc_zeroed<float>(rows * row);
  std::vector<float> pageable(rows * row);
  const std::array down = {pinlane::download_layer(gpu.slice(0, 8 * row), twin),
                           pinlane::download_layer(gpu.slice(8 * row, 8 * row), pageable)};
  const std::vector<std::uint32_t> places = {19, 1, 2, 3, 4, 5, 6, 7};
  rig.stream.download_blocks(down, row, pinlane::all_rows, places);
  EXPECT(is_row(twin.read().data(), 19, keys, 15) && is_row(twin.read().data(), 5, keys, 3));
  EXPECT(is_row(pageable.data(), 19, values, 15) && is_row(pageable.data(), 2, values, 15));
  EXPECT(twin.read()[0] == 0 && pageable[0] == 0);

  const pinlane::stream_ref reference = rig.stream;
  rig.stream.fill(gpu, 0);
  reference.upload_blocks(up, row, places, pinlane::all_rows);
  rig.stream.download(gpu, back);
  EXPECT(is_row(back.data(), 0, keys, 19) && is_row(back.data(), 15, values, 7));
}

void refusals(rig& rig) {
  auto pinned = rig.pool.alloc_zeroed<float>(rows * row);
  auto gpu = rig.device.alloc<float>(4 * row);
  const auto up = [&](const pinlane::indices& numbers) {
    return thrown_by([&] { rig.stream.upload_rows(pinned, numbers, gpu); });
  };
  const auto down = [&](const pinlane::indices& numbers) {
    return thrown_by([&] { rig.stream.download_rows(gpu, numbers, pinned); });
  };
  const std::vector<std::int32_t> outside = {0, 1, 2, -1}, twice = {0, 1, 2, 1}, three = {0, 1, 2};
  EXPECT(up(outside) == PINLANE_STATUS_OUT_OF_RANGE);
  EXPECT(down(outside) == PINLANE_STATUS_OUT_OF_RANGE);
  EXPECT(up(three) == PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(down(twice) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(up(twice) == PINLANE_STATUS_OK);
  EXPECT(up(pinlane::all_rows) == PINLANE_STATUS_INVALID_VALUE);
  auto numbers = rig.device.alloc<std::uint32_t>(4);
  EXPECT(up(numbers.slice(1, 4)) == PINLANE_STATUS_OUT_OF_RANGE);
  const std::vector<pinlane::upload_layer<float>> layers = {{pinned, gpu}};
  EXPECT(thrown_by([&] { rig.stream.upload_blocks(layers, SIZE_MAX, three, three); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(thrown_by([&] { rig.stream.upload_blocks(layers, row, three, twice); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  const std::vector<pinlane::download_layer<float>> back = {{gpu, pinned}};
  EXPECT(thrown_by([&] { rig.stream.download_blocks(back, row, twice, twice); }) ==
         PINLANE_STATUS_INVALID_VALUE);
}

} // namespace

int main() {
  rig rig;
  as_in_the_guide(rig.device, rig.pool, rig.stream);
  gathers(rig);
  scatters(rig);
  blocks(rig);
  refusals(rig);
  return verdict("rows in C++");
}
