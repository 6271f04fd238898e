// Tests of your own copy code without a GPU, with GoogleTest: every test runs on an emulated device
// that executes as late as CUDA allows, and one makes every CUDA call fail in turn.

#include <pinlane/pinlane.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// --- Your code: it feeds chunks to the device by way of two page-locked buffers -----------------

class feeder {
public:
  feeder(const pinlane::device& device, std::size_t chunk)
      : pool_(device), stream_(device), buffers_{pool_.alloc<int>(chunk), pool_.alloc<int>(chunk)} {
  }

  /// Copies `values` to `gpu`. Returns at once, after the last chunk has been enqueued.
  void feed(const std::vector<int>& values, pinlane::device_buffer<int>& gpu) {
    std::size_t next = 0;
    for (std::size_t at = 0; at < values.size(); next = 1 - next) {
      auto& buffer = buffers_[next];
      const std::size_t count = std::min(buffer.size(), values.size() - at);
      // write() waits until the device is done with the chunk before the last one.
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), count, buffer.write().begin());
      stream_.upload(buffer.slice(0, count), gpu.slice(at, count));
      at += count;
    }
  }

  const pinlane::stream& stream() const { return stream_; }

private:
  pinlane::pinned_pool pool_;
  pinlane::stream stream_;
  std::array<pinlane::pinned_buffer<int>, 2> buffers_;
};

/// The same with a bug: it writes through the buffers' addresses, without waiting.
class hasty_feeder {
public:
  hasty_feeder(const pinlane::device& device, std::size_t chunk)
      : pool_(device), stream_(device), buffers_{pool_.alloc<int>(chunk), pool_.alloc<int>(chunk)} {
  }

  void feed(const std::vector<int>& values, pinlane::device_buffer<int>& gpu) {
    std::size_t next = 0;
    for (std::size_t at = 0; at < values.size(); next = 1 - next) {
      auto& buffer = buffers_[next];
      const std::size_t count = std::min(buffer.size(), values.size() - at);
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), count, buffer.address());
      stream_.upload(buffer.slice(0, count), gpu.slice(at, count));
      at += count;
    }
  }

  const pinlane::stream& stream() const { return stream_; }

private:
  pinlane::pinned_pool pool_;
  pinlane::stream stream_;
  std::array<pinlane::pinned_buffer<int>, 2> buffers_;
};

// --- Its tests -----------------------------------------------------------------------------------

namespace {

constexpr std::size_t count = 10'000, chunk = 768;

std::vector<int> numbers() {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

template <class Feeder = feeder>
std::vector<int> fed_and_read_back(const pinlane::device& device) {
  Feeder feeder(device, chunk);
  auto gpu = device.alloc<int>(count);
  feeder.feed(numbers(), gpu);
  std::vector<int> result(count);
  feeder.stream().download(gpu, result);
  return result;
}

pinlane::device machine_of(std::uint64_t seed, pinlane::execution mode) {
  pinlane::emulator_options options;
  options.seed = seed;
  options.mode = mode;
  return std::move(pinlane::device::emulated(1, options).front());
}

/// Eager execution hides what lazy execution shows: a copy reads its source when it runs.
class Schedules : public testing::TestWithParam<pinlane::execution> {};
INSTANTIATE_TEST_SUITE_P(Feeder, Schedules,
                         testing::Values(pinlane::execution::eager, pinlane::execution::lazy));

TEST_P(Schedules, EveryValueArrives) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto device = machine_of(seed, GetParam());
    EXPECT_EQ(fed_and_read_back(device), numbers()) << "seed " << seed;
    EXPECT_TRUE(pinlane::emulator(device).findings().empty()) << "seed " << seed;
  }
}

TEST_P(Schedules, NothingIsLeftBehind) {
  pinlane::emulator machine;
  {
    const auto device = machine_of(0, GetParam());
    machine = pinlane::emulator(device);
    fed_and_read_back(device);
  }
  const auto usage = machine.usage();
  EXPECT_EQ(usage.device_bytes, 0u);
  EXPECT_EQ(usage.host_bytes, 0u);
  EXPECT_EQ(usage.streams, 0u);
}

/// Each kind of CUDA call fails, the first time, the second time, and so on until none is left.
/// Your code may throw, but must not hang or return wrong data.
TEST(Faults, AreErrorsAndNeverWrongData) {
  const std::array<const char*, 5> calls{"HostRegister", "DeviceAlloc", "StreamCreate",
                                         "EventRecord", "CopyH2D"};
  for (const char* call : calls) {
    std::size_t struck = 0;
    for (std::uint64_t nth = 1;; ++nth) {
      const auto device = machine_of(nth, pinlane::execution::lazy);
      const pinlane::emulator machine(device);
      const auto before = machine.calls(call);
      machine.inject(call, 2, nth); // cudaErrorMemoryAllocation
      try {
        EXPECT_EQ(fed_and_read_back(device), numbers()) << call << " number " << nth;
      } catch (const pinlane::error& error) {
        EXPECT_EQ(error.cuda_error(), 2) << error.what();
      }
      if (machine.calls(call) - before < nth) {
        break; // no such call is left
      }
      ++struck;
      machine.clear_faults();
      EXPECT_EQ(fed_and_read_back(device), numbers()) << "after " << call << " number " << nth;
    }
    EXPECT_GT(struck, 0u) << call << " is never called";
  }
}

/// Runs a feeder in all modes, with many seeds.
template <class Feeder> pinlane::explored explored(const pinlane::exploration& options) {
  return pinlane::explore(options, [](pinlane::emulator& machine) {
    if (fed_and_read_back<Feeder>(machine.open(0)) != numbers()) {
      throw std::runtime_error("wrong values");
    }
  });
}

// ANCHOR: feeder
TEST(Explore, FindsNothingWrong) {
  const auto result = explored<feeder>({});
  EXPECT_FALSE(result.failed) << result.report;
}
// ANCHOR_END: feeder

// ANCHOR: hasty
TEST(Explore, FindsAFeederThatDoesNotWait) {
  pinlane::exploration options;
  options.quiet = true;
  const auto result = explored<hasty_feeder>(options);
  EXPECT_TRUE(result.failed);
  EXPECT_NE(result.report.find("SourceChanged"), std::string::npos) << result.report;
}
// ANCHOR_END: hasty

TEST(Faults, ALostDeviceIsReported) {
  const auto device = machine_of(0, pinlane::execution::eager);
  pinlane::emulator(device).lose_device(0, 700); // cudaErrorIllegalAddress
  try {
    fed_and_read_back(device);
    FAIL() << "the device is lost";
  } catch (const pinlane::error& error) {
    EXPECT_EQ(error.status(), PINLANE_STATUS_DEVICE_LOST) << error.what();
  }
}

} // namespace
