// Loads a model: the tensors of a safetensors file, from the file to the device by one call. It
// prints what examples/08_load_a_model.rs prints.
#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  const std::string path = argc > 1 ? argv[1] : "examples/data/digits.safetensors";
  std::ifstream model(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(model), {});
  if (bytes.size() < 8) {
    throw std::runtime_error(path + " cannot be read");
  }
  std::uint64_t header = 0; // its length comes first
  std::memcpy(&header, bytes.data(), 8);
  const std::size_t data = 8 + std::min<std::uint64_t>(header, bytes.size() - 8);
  const pinlane::device device = pinlane::device::open_or_emulated();
  const pinlane::pinned_pool pool(device);
  const pinlane::stream stream(device);

  // The header is JSON. The libraries for Rust and Python always write it in this form.
  const std::regex form(R"re("([^"]+)":\{"dtype":"(\w+)","shape":\[[\d,]*\],)re"
                        R"re("data_offsets":\[(\d+),(\d+)\]\})re");
  const std::vector<std::cmatch> tensors(
      std::cregex_iterator(bytes.data() + 8, bytes.data() + data, form), {});
  // One buffer for each tensor, one job for all. Threads read the file into page-locked memory.
  std::vector<pinlane::device_buffer<char>> gpu;
  std::vector<pinlane::file_range> ranges;
  for (const std::cmatch& tensor : tensors) {
    const std::size_t from = data + std::stoull(tensor[3]), to = data + std::stoull(tensor[4]);
    gpu.push_back(device.alloc<char>(to - from));
    ranges.emplace_back(from, gpu.back());
  }
  stream.upload_file_ranges(pinlane::file_reader::open(path), ranges);
  // The device computes the checksums that the host computes from the file's bytes.
  auto sums = device.alloc<std::uint64_t>(gpu.size());
  auto host = pool.alloc<std::uint64_t>(gpu.size());
  for (std::size_t i = 0; i < gpu.size(); ++i) {
    stream.checksum(gpu[i], sums.slice(i, 1));
  }
  stream.download(sums, host);
  for (std::size_t i = 0; i < gpu.size(); ++i) {
    const auto tensor = bytes.substr(ranges[i].offset, gpu[i].size());
    std::printf("%-16s %s, %zu bytes: %s\n", tensors[i].str(1).c_str(), tensors[i].str(2).c_str(),
                tensor.size(), host.read()[i] == pinlane::checksum(tensor) ? "true" : "false");
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
