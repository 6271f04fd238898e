// Random programs through the C++ and C interfaces, compared with plain vectors.
//
//   random_programs COUNT [SEED [eager|lazy|cuda]]
//
// A program allocates, registers, writes, copies (one by one, in batches, and in parts by arrays of
// offsets), fills, sums, reads and frees buffers, on streams of every kind and two devices. It
// captures graphs of work on several branches, launches them, lends their buffers, exchanges them,
// and destroys all in any order, also in host functions, and then unlocks memory at once; some
// graphs have joined others. It reads files, runs pipelines, passes buffers to other libraries as
// tensors of every width, and takes theirs. It releases objects anywhere, also in host functions,
// and forks. It never orders anything itself. Each operation is also done at once on plain vectors,
// and whatever the program reads must equal them. Calls that are wrong, or that conflict with a
// graph, are refused with their status and change nothing. Registered memory must be the program's
// own again after the buffer is freed, and nothing is left at the end.
//
// Every eighth program also runs in a process of its own, which cannot start threads from some step
// on. Calls that need a thread may fail then, but memory that a device still uses is not freed or
// reused. No other call fails here; in the programs of tests/random_programs and tests/ffi/fuzz
// devices fail too. A mismatch is reported with the seed of its program: `random_programs 1 SEED
// MODE` runs it again.

#include <pinlane/pinlane.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "random_programs/basics.hpp"
#include "random_programs/others.hpp"

namespace {

/// A program ends early.
struct abandoned {};

class program : others {
public:
  program(const std::vector<pinlane::device>& devices, std::uint64_t seed)
      : others(devices, seed) {}

  /// From now on no thread can be started: a call that needs one fails, and ends the program.
  /// Memory that was released before, or is released now, must still not be reused early.
  void be_without_threads() {
    for (int i = 0; i < 6; ++i) {
      step();
    }
    m_without_threads = refuse_threads();
    try {
      for (int i = 0; i < 8; ++i) {
        release_something();
        step();
      }
    } catch (const std::exception&) { // pinlane::error, or std::bad_alloc of a container
    }
    check_given();
    throw abandoned{};
  }

  void step() {
    switch (m_random.below(44)) {
    case 0:
      return new_host_buffer();
    case 1:
      return new_gpu_buffer();
    case 2:
      return free_host();
    case 3:
      return free_gpu();
    case 4:
      return write(m_random.one_of(m_hosts));
    case 5:
      return read(m_random.one_of(m_hosts));
    case 6:
      return try_read(m_random.one_of(m_hosts));
    case 7:
    case 8:
      return upload();
    case 9:
    case 10:
      return download();
    case 11:
      return copy();
    case 12:
      return fill(m_random.one_of(m_gpus));
    case 13:
      return checksum();
    case 14:
      return be_refused();
    case 15:
      return upload_batch();
    case 16:
      return download_batch();
    case 17:
      return slices();
    case 18:
      return copy_container();
    case 19:
      return copy_container_at_once();
    case 20:
      return some_host_as_tensor();
    case 21:
      return gpu_as_tensor();
    case 22:
      return import_own();
    case 23:
      return read_file();
    case 24:
      return upload_file();
    case 25:
      return m_random.below(4) == 0 ? prefetch() : disturb();
    case 26:
    case 27:
      return release_something();
    case 28:
      return m_random.below(4) == 0 ? fork_child() : disturb();
    case 29:
    case 30:
    case 31:
      return copy_parts();
    case 32:
    case 33:
    case 34:
      return disturb();
    default:
      return graph_step();
    }
  }

  /// At the end every buffer equals its vector, in whatever order they are read.
  void finish() {
    end_graphs();
    for (const gpu_buffer& gpu : m_gpus) {
      auto host = m_pool.alloc<std::uint8_t>(gpu.model.size());
      stream_of(gpu.device).download(gpu.buffer, host);
      m_hosts.push_back({{}, std::move(host), gpu.model, nullptr, true});
    }
    std::for_each(m_hosts.rbegin(), m_hosts.rend(), read);
    require(std::equal(m_bytes.begin(), m_bytes.end(), m_bytes_model.begin(), m_bytes_model.end()),
            "a container has wrong bytes in the end");
    while (!m_hosts.empty()) {
      host_buffer gone = std::move(m_hosts.back());
      m_hosts.pop_back();
      take_back(std::move(gone));
    }
    for (const device_stream& each : m_streams) {
      each.stream.synchronize();
    }
    check_given();
    check_returned();
  }

private:
  /// Changes a container in memory of the pool, among blocks that devices use.
  void churn() {
    const std::size_t at = m_random.below(m_bytes.size() + 1);
    if (m_bytes.size() > 8192) {
      m_bytes.erase(m_bytes.begin() + std::ptrdiff_t(at), m_bytes.end());
      m_bytes.shrink_to_fit();
      m_bytes_model.resize(at);
    } else {
      const bytes more = some_bytes(some_size());
      m_bytes.insert(m_bytes.begin() + std::ptrdiff_t(at), more.begin(), more.end());
      m_bytes_model.insert(m_bytes_model.begin() + std::ptrdiff_t(at), more.begin(), more.end());
    }
    require(std::equal(m_bytes.begin(), m_bytes.end(), m_bytes_model.begin(), m_bytes_model.end()),
            "a container has wrong bytes");
  }

  /// Makes calls that must not change any contents.
  void disturb() {
    device_stream& some = m_random.one_of(m_streams);
    const pinlane::stream& other = m_random.one_of(m_streams).stream;
    switch (m_random.below(9)) {
    case 0:
      some.stream.busy(std::chrono::microseconds(m_random.below(50)));
      break;
    case 1:
      some.stream.wait(other.record());
      break;
    case 2:
      some.stream.record().wait();
      break;
    case 3:
      static_cast<void>(some.stream.record().is_done());
      break;
    case 4:
      some.stream.synchronize();
      check_returned();
      break;
    case 5:
      some.stream = some_stream(some.device);
      break;
    case 6:
      m_pool.trim(m_random.below(1 << 17));
      break;
    case 7:
      churn();
      break;
    default: {
      auto& buffer = m_random.one_of(m_hosts).buffer;
      buffer = pinlane::pinned_buffer<std::uint8_t>::adopt(buffer.release());
    }
    }
  }
};

/// Requires that nothing is left on a machine after the program. Threads may still be giving memory
/// back.
void require_nothing_left(const pinlane::emulator& machine) {
  const auto is_empty = [&] {
    const pinlane::emulator_usage usage = machine.usage();
    return usage.host_blocks == 0 && usage.device_blocks == 0 && usage.streams == 0;
  };
  for (int tries = 0; !is_empty() && tries < 5000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  require(is_empty(), "something stays on the machine");
  const auto findings = machine.findings();
  if (!findings.empty()) {
    std::fprintf(stderr, "%s\n", findings.front().c_str());
  }
  require(findings.empty(), "the machine has findings");
}

/// Runs the program of a seed. If `refused`, no thread can be started from some step on, and memory
/// whose release needs one may leak.
bool run(std::vector<pinlane::device>& devices, std::uint64_t seed, const std::string& mode,
         bool refused = false) {
  int step = -1;
  try {
    const int steps = 20 + static_cast<int>(seed % 60);
    std::optional<pinlane::emulator> machine;
    if (mode != "cuda") {
      machine.emplace(devices.front());
    }
    {
      program program(devices, seed);
      while (++step < steps) {
        refused && step == static_cast<int>(seed / 8 % 20) ? program.be_without_threads()
                                                           : program.step();
      }
      program.finish();
    }
    if (machine && !refused) {
      devices.clear();
      require_nothing_left(*machine);
    }
    return true;
  } catch (const abandoned&) {
    return true;
  } catch (const mismatch& mismatch) {
    std::fprintf(stderr, "seed %llu, step %d: %s\n", static_cast<unsigned long long>(seed), step,
                 mismatch.what);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "seed %llu, step %d: %s\n", static_cast<unsigned long long>(seed), step,
                 error.what());
  }
  return false;
}

/// Runs each program in a process of its own, which has not used pinlane before, and in which no
/// thread can be started.
bool run_without_threads(std::uint64_t first, std::uint64_t count, const std::string& mode) {
  for (std::uint64_t seed = first; seed != first + count; ++seed) {
    if (seed % 8 != 0 || mode == "cuda") {
      continue;
    }
    const ending how = in_child(60, [&] {
      auto devices = open_devices(mode, seed);
      return run(devices, seed, mode, true);
    });
    if (how != ending::well) {
      std::fprintf(stderr, "seed %llu without threads: %s\n",
                   static_cast<unsigned long long>(seed),
                   how == ending::late ? "it hangs" : "it ended badly");
      return false;
    }
  }
  return true;
}

} // namespace

int main(int argc, char** argv) try {
  const std::string mode = argc > 3 ? argv[3] : "eager";
  if (argc < 2 || argc > 4 || (mode != "eager" && mode != "lazy" && mode != "cuda")) {
    std::fprintf(stderr, "usage: random_programs COUNT [SEED [eager|lazy|cuda]]\n");
    return 2;
  }
  const std::uint64_t count = std::strtoull(argv[1], nullptr, 0);
  const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 0;

  if (!run_without_threads(first, count, mode)) { // before this process has threads
    return 1;
  }
  std::vector<pinlane::device> devices;
  for (std::uint64_t seed = first; seed != first + count; ++seed) {
    if (devices.empty() || mode != "cuda") {
      devices =
          open_devices(mode, seed); // a new emulated machine for each program, one GPU for all
    }
    if (!run(devices, seed, mode)) {
      return 1;
    }
  }
  std::printf("%llu programs from seed %llu on, %s, on %s: every byte as expected\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
              mode.c_str(), mode == "cuda" ? "GPUs" : "emulated devices");
  return 0;
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s: %s\n", pinlane_status_name(error.status()), error.what());
  return 1;
}
