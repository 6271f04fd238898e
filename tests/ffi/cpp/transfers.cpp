// Copies in C++: pageable memory, batches, files, and the options of all three.

#include "check.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

void pageable_memory(rig& rig) {
  const pinlane::stream& stream = rig.stream;
  auto gpu = rig.device.alloc<std::uint32_t>(4);
  const std::uint32_t array[] = {1, 2, 3, 4};
  std::array<std::uint32_t, 4> standard{};
  std::vector<std::uint32_t> vector(4);
  stream.upload(array, gpu).wait();
  stream.download(gpu, standard);
  EXPECT(standard[0] == 1 && standard[3] == 4);
  standard[3] = 5;
  stream.upload(standard, gpu);
  stream.download(gpu, vector);
  EXPECT(vector[3] == 5);
  stream.upload(pinlane::span(array, 2), gpu.slice(2, 2)); // a pointer and a size
  EXPECT(stream.download(std::nothrow, gpu.slice(1, 3), pinlane::span(vector.data(), 3)) ==
         PINLANE_STATUS_OK);
  EXPECT(vector == (std::vector<std::uint32_t>{2, 1, 2, 5}));
#ifdef __cpp_lib_span
  stream.download(gpu, std::span(vector));
  EXPECT(vector[3] == 2);
#endif
  void* const address = gpu.address();
  stream.upload_to(array, address);
  stream.download_from(address, vector);
  EXPECT(vector == (std::vector<std::uint32_t>{1, 2, 3, 4}));

  EXPECT(thrown_by([&] { stream.upload(vector, gpu.slice(0, 3)); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(thrown_by([&] { stream.download(gpu.slice(0, 3), vector); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(stream.upload(std::nothrow, vector, gpu.slice(0, 3)) == PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(stream.download(std::nothrow, gpu.slice(0, 3), vector) == PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(stream.upload(std::nothrow, vector, gpu.slice(1, 4)) == PINLANE_STATUS_OUT_OF_RANGE);
  vector.clear();
  stream.upload(vector, gpu.slice(4, 0));
  stream.download(gpu.slice(0, 0), vector);
}

void batches(rig& rig) {
  const pinlane::stream& stream = rig.stream;
  constexpr std::size_t count = 40;
  auto gpu = rig.device.alloc<float>(count), twin = rig.device.alloc<float>(count);
  auto pinned = rig.pool.alloc<float>(count);
  for (std::size_t i = 0; i < count; ++i) {
    pinned.write()[i] = static_cast<float>(i);
  }
  // Two elements each: from page-locked and pageable memory, one to a bare address.
  const std::vector<float> odd = {100, 101}, own = {102, 103};
  std::vector<pinlane::upload_item> up;
  for (std::size_t i = 4; i < count; i += 2) {
    up.emplace_back(pinned.slice(i, 2), gpu.slice(count - i - 2, 2));
  }
  up.emplace_back(odd, gpu.slice(count - 2, 2));
  up.emplace_back(own, static_cast<void*>(gpu.address() + (count - 4)));
  stream.upload_batch(up, pinlane::route::copies).wait();

  std::vector<float> back(count);
  std::array<pinlane::download_item, 2> down = {
      pinlane::download_item(gpu.slice(0, count / 2), pinlane::span(back.data(), count / 2)),
      pinlane::download_item(gpu.slice(count / 2, count / 2), pinned.slice(0, count / 2))};
  stream.download_batch(down);
  EXPECT(back[0] == count - 2 && back[1] == count - 1);
  EXPECT(pinned.read()[count / 2 - 1] == 101 && pinned.read()[count / 2 - 4] == 102);
  EXPECT(pinned.read()[count / 2 - 5] == 5);

  std::size_t calls = 0;
  stream.download_batch_each(down, [&](std::size_t number, pinlane::span<const std::byte> bytes) {
    float first = 0;
    std::memcpy(&first, bytes.data(), sizeof first);
    calls += bytes.size() == count / 2 * sizeof(float) && first == (number == 0 ? count - 2 : 18);
  });
  EXPECT(calls == 2);
  bool caught = false;
  try {
    stream.download_batch_each(down, [&](std::size_t, pinlane::span<const std::byte>) {
      ++calls;
      throw std::logic_error("on purpose");
    });
  } catch (const std::logic_error&) {
    caught = true;
  }
  EXPECT(caught && calls == 3);

  const pinlane::copy_item copies[] = {{gpu.slice(0, 2), twin.slice(4, 2)},
                                       {gpu.slice(0, 2), twin.slice(0, 2)}};
  stream.copy_batch(copies);
  stream.download(twin.slice(0, 2), pinlane::span(back.data() + 8, 2));
  EXPECT(back[8] == count - 2 && back[9] == count - 1);

  const pinlane::copy_item twice[] = {copies[0], copies[0]};
  EXPECT(thrown_by([&] { stream.copy_batch(twice); }) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { (void)pinlane::upload_item(odd, gpu); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(thrown_by([&] { (void)pinlane::download_item(gpu.slice(1, 3), back); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  stream.download_batch(down, pinlane::route::kernel);
  const pinlane::stream legacy = pinlane::stream::legacy_default(rig.device);
  EXPECT(thrown_by([&] { legacy.download_batch(down, pinlane::route::batch_call); }) ==
         PINLANE_STATUS_UNSUPPORTED);
  EXPECT(thrown_by([&] { stream.upload_batch(up, static_cast<pinlane::route>(99)); }) ==
         PINLANE_STATUS_INVALID_VALUE);
}

void files(rig& rig) {
  EXPECT(thrown_by([] { (void)pinlane::file_reader::open("/pinlane/no/such/file"); }) ==
         PINLANE_STATUS_IO);
  EXPECT(thrown_by([] { (void)pinlane::file_reader::open_direct("/"); }) == PINLANE_STATUS_IO);
  EXPECT(thrown_by([] { (void)pinlane::file_reader().size_bytes(); }) ==
         PINLANE_STATUS_INVALID_HANDLE);
  // The program itself serves as the file.
  const auto file = pinlane::file_reader::open("/proc/self/exe");
  const auto mapped = pinlane::file_reader::open_mapped(rig.device, "/proc/self/exe");
  std::ifstream same("/proc/self/exe", std::ios::binary);
  std::vector<char> start(6000);
  same.read(start.data(), 6000);
  EXPECT(file.size_bytes() > 6000);

  auto gpu = rig.device.alloc<char>(6000);
  auto pinned = rig.pool.alloc<char>(6000);
  std::vector<char> back(6000);
  EXPECT(mapped.size_bytes() == file.size_bytes());
  rig.stream.upload_file(mapped, 10, gpu.slice(10, 5000));
  rig.stream.download(gpu, back);
  EXPECT(std::equal(back.begin() + 10, back.begin() + 5010, start.begin() + 10));
  rig.stream.upload_file(file, 1000, gpu.slice(0, 5000));
  file.read(0, pinned);
  rig.stream.download(gpu.slice(0, 5000), pinlane::span(back.data() + 1000, 5000));
  EXPECT(std::equal(back.begin() + 1000, back.end(), start.begin() + 1000));
  EXPECT(std::equal(start.begin(), start.end(), pinned.read().begin()));
  const std::vector<pinlane::file_range> ranges = {{0, gpu.slice(3000, 3000)},
                                                   {3000, gpu.address(), 3000}};
  rig.stream.upload_file_ranges(file, ranges).wait();
  rig.stream.download(gpu, back);
  EXPECT(std::equal(back.begin(), back.begin() + 3000, start.begin() + 3000));
  EXPECT(std::equal(back.begin() + 3000, back.end(), start.begin()));
  EXPECT(thrown_by([&] { rig.stream.upload_file(file, file.size_bytes(), gpu); }) ==
         PINLANE_STATUS_OUT_OF_RANGE);
}

void copy_options() {
  const auto device = std::move(pinlane::device::emulated(1)[0]);
  pinlane::staging_options staging;
  staging.slot_bytes = 1;
  EXPECT(thrown_by([&] { device.set_staging(staging); }) == PINLANE_STATUS_INVALID_VALUE);
  staging.slot_bytes = 8192;
  staging.first_bytes = 4096;
  staging.ring_bytes = 32768;
  staging.direct = staging.streaming = false;
  device.set_staging(staging);
  EXPECT(thrown_by([&] { device.set_staging({}); }) == PINLANE_STATUS_INVALID_VALUE);
  device.warm_up();
  EXPECT(thrown_by([] { pinlane::device().warm_up(); }) == PINLANE_STATUS_INVALID_HANDLE);

  pinlane::copy_team_options team;
  team.threads = 1000;
  EXPECT(thrown_by([&] { pinlane::install_copy_team(team); }) == PINLANE_STATUS_INVALID_VALUE);
  for (const bool help : {false, true}) {
    team.threads = 2;
    team.help = team.spin = help;
    team.cores = {0};
    pinlane::install_copy_team(team);
    const pinlane::stream stream(device);
    auto gpu = device.alloc<std::uint32_t>(100'000);
    std::vector<std::uint32_t> values(100'000, help ? 3u : 4u), back(100'000);
    stream.upload(values, gpu);
    stream.download(gpu, back);
    EXPECT(back == values);
  }
}

} // namespace

int main() {
  rig rig;
  pageable_memory(rig);
  batches(rig);
  files(rig);
  copy_options();
  return verdict("copies in C++");
}
