// Random numbers: the device's generator keeps its seed and offset, and each launch computes with a
// generator of the host that both determine.
#pragma once

#include "uses.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <mutex>

namespace pinlane {

class Random {
 public:
  Random() = default;

  /// Takes its turn of the generator.
  Random(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
    const at::Generator& generator =
        given && given->defined() ? *given : at::cuda::detail::getDefaultCUDAGenerator(device);
    TORCH_CHECK(generator.device().is_cuda(),
                "Expected a 'cuda' device type for generator but found '",
                generator.device().type(), "'");
    auto* own = generator.get<at::CUDAGeneratorImpl>();
    std::lock_guard<std::mutex> guard(own->mutex_);
    state = own->philox_cuda_state(4);
    if (!state.captured_) return;
    seed_in_graph = static_cast<const int64_t*>(drop_in().storage(state.seed_.ptr));
    offset_in_graph = static_cast<const int64_t*>(drop_in().storage(state.offset_.ptr));
  }

  /// In a graph, the seed and the offset are in the device's memory.
  void add_uses(Uses& uses) const {
    if (!state.captured_) return;
    uses.push_back({state.seed_.ptr, sizeof(int64_t), 1, 0, 0});
    uses.push_back({state.offset_.ptr, sizeof(int64_t), 1, 0, 0});
  }

  at::Generator for_host() const {
    uint64_t seed = state.seed_.val, offset = state.offset_.val;
    if (state.captured_) {
      seed = static_cast<uint64_t>(*seed_in_graph);
      offset = static_cast<uint64_t>(*offset_in_graph) + state.offset_intragraph_;
    }
    return at::detail::createCPUGenerator(mix(seed + mix(offset)));
  }

 private:
  /// Maps near numbers to numbers that differ in half of their bits.
  static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  at::PhiloxCudaState state;
  const int64_t *seed_in_graph = nullptr, *offset_in_graph = nullptr;
};

}  // namespace pinlane
