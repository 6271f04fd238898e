// The tensors of a small checkpoint go from their file to the device and back, in C++17.
//
//   file --one call, many ranges--> device --one batch--> pageable memory
//   file --one read--> page-locked memory --one batch--> a second copy on the device
//
// A callback checks each tensor as soon as it has arrived. The device is GPU 0, or an emulated one
// if there is no GPU.

#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

namespace {

constexpr std::size_t tensors = 300;
constexpr std::size_t header_bytes = 64;

/// Mostly small, as biases and norms are, and a few large ones.
std::size_t elements_of(std::size_t tensor) { return tensor % 50 == 0 ? 100'000 : 16 + tensor; }

/// One element of a tensor.
float element(std::size_t tensor, std::size_t index) {
  return static_cast<float>(tensor) + static_cast<float>(index % 1000) / 1000.0f;
}

std::vector<float> elements(std::size_t tensor) {
  std::vector<float> values(elements_of(tensor));
  for (std::size_t index = 0; index < values.size(); ++index) {
    values[index] = element(tensor, index);
  }
  return values;
}

/// The file. Its destructor removes it.
struct checkpoint {
  std::string path;

  explicit checkpoint(std::string name) : path(std::move(name)) {
    std::ofstream file(path, std::ios::binary);
    file << std::string(header_bytes, 'h');
    for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
      const auto values = elements(tensor);
      file.write(reinterpret_cast<const char*>(values.data()),
                 static_cast<std::streamsize>(values.size() * sizeof(float)));
    }
  }
  ~checkpoint() { std::remove(path.c_str()); }
  checkpoint(const checkpoint&) = delete;
  checkpoint& operator=(const checkpoint&) = delete;
};

} // namespace

int main(int argc, char** argv) try {
  const checkpoint saved(argc > 1 ? argv[1] : "pinlane-checkpoint-cpp.tmp");
  const pinlane::device device = pinlane::device::open_or_emulated();
  const pinlane::pinned_pool pool(device);
  const pinlane::stream stream(device);
  const auto file = pinlane::file_reader::open(saved.path);

  // From the file to the device. Each tensor has its own buffer.
  std::vector<pinlane::device_buffer<float>> weights;
  std::vector<pinlane::file_range> ranges;
  std::uint64_t offset = header_bytes;
  for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
    weights.push_back(device.alloc<float>(elements_of(tensor)));
    ranges.emplace_back(offset, weights.back());
    offset += weights.back().size_bytes();
  }
  stream.upload_file_ranges(file, ranges);

  // Back to pageable memory. Each tensor is checked as soon as it has arrived.
  std::vector<std::vector<float>> back(tensors);
  std::vector<pinlane::download_item> down;
  for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
    back[tensor].resize(elements_of(tensor));
    down.emplace_back(weights[tensor], back[tensor]);
  }
  std::size_t right = 0;
  stream.download_batch_each(down, [&](std::size_t tensor, pinlane::span<const std::byte> bytes) {
    right +=
        bytes.size() == back[tensor].size() * sizeof(float) && back[tensor] == elements(tensor);
  });

  // A second copy: one read of the whole file but its header, into page-locked memory, and one
  // batch from there.
  const std::size_t total =
      (static_cast<std::size_t>(file.size_bytes()) - header_bytes) / sizeof(float);
  auto host = pool.alloc<float>(total);
  file.read(header_bytes, host);
  auto twin = device.alloc<float>(total);
  std::vector<pinlane::upload_item> up;
  std::size_t start = 0;
  for (std::size_t tensor = 0; tensor < tensors; start += elements_of(tensor++)) {
    const std::size_t size = elements_of(tensor);
    up.emplace_back(host.slice(start, size), twin.slice(total - start - size, size));
  }
  stream.upload_batch(up); // returns at once

  // Copies from and to anything with data() and size().
  std::vector<float> last(elements_of(tensors - 1));
  stream.download(twin.slice(0, last.size()), last);
  right += last == elements(tensors - 1);
  std::reverse(last.begin(), last.end());
  stream.upload(last, weights.front().slice(0, last.size()));
  std::vector<float> reversed(last.size());
  stream.download(weights.front().slice(0, last.size()), reversed);
  right += reversed == last;

  if (right != tensors + 2) {
    std::fprintf(stderr, "%zu of %zu are right\n", right, tensors + 2);
    return 1;
  }
  std::printf("%s: %zu tensors, %zu bytes, from a file and back, bit for bit\n",
              device.name().c_str(), tensors, total * sizeof(float));
  return 0;
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s: %s\n", pinlane_status_name(error.status()), error.what());
  return 1;
}
