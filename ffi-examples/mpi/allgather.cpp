// Processes that share the parts that they load: every rank uploads its part of a file to its
// device, and an all-gather on a stream of pinlane copies all parts to all devices.
//
//   cmake -S ffi-examples -B target/cmake && cmake --build target/cmake --target allgather
//   mpirun -n 2 target/cmake/allgather [FILE]      which is written first, and removed at the end
//
//   rank 0   file --upload--> | 0 |   |  --all-gather-->  | 0 | 1 |
//   rank 1   file --upload--> |   | 1 |                   | 0 | 1 |
//
// Built with NCCL, and with a GPU for each rank of a host, `foreign` enqueues ncclAllGather after
// the upload. Otherwise the parts go through page-locked memory and MPI; so the program also runs
// on emulated devices. For comparison the program repeats everything with ordinary memory.

#include <pinlane/pinlane.hpp>

#include <mpi.h>
#ifdef PINLANE_NCCL
#include <cuda_runtime.h>
#include <nccl.h>
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using word = std::uint32_t;
using gpu_memory = pinlane::device_buffer<word>;
constexpr std::size_t part = 8 << 20; // the words of a rank: 32 MiB

word value(std::size_t index) { return static_cast<word>(index * 2654435761u); }

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error(what);
  }
}

/// The rank of this process among all, and among those of its host.
struct process {
  int rank = 0, count = 0, local = 0;

  process() {
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local);
    MPI_Comm_free(&host);
  }
  [[nodiscard]] std::size_t first() const { return static_cast<std::size_t>(rank) * part; }
  [[nodiscard]] std::size_t words() const { return static_cast<std::size_t>(count) * part; }
  [[nodiscard]] bool has_gpu() const {
    int mine = local < pinlane::device::count(), everybody = 0;
    MPI_Allreduce(&mine, &everybody, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return everybody != 0;
  }
};

#ifdef PINLANE_NCCL
void check(ncclResult_t result) { require(result == ncclSuccess, ncclGetErrorString(result)); }
void check(cudaError_t error) { require(error == cudaSuccess, cudaGetErrorString(error)); }

class nccl {
public:
  explicit nccl(const process& self) {
    check(cudaSetDevice(self.local)); // NCCL takes the thread's current device
    ncclUniqueId id{};
    check(self.rank == 0 ? ncclGetUniqueId(&id) : ncclSuccess);
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    check(ncclCommInitRank(&m_all, self.count, id, self.rank));
  }
  ~nccl() { ncclCommDestroy(m_all); }
  nccl(const nccl&) = delete;
  nccl& operator=(const nccl&) = delete;

  /// `foreign` orders it after the upload to `all`, and before the next use.
  void all_gather(const pinlane::stream& stream, gpu_memory& all, std::size_t first) const {
    stream.foreign(pinlane::writing(all), [&](cudaStream_t native) {
      check(ncclAllGather(all.address() + first, all.address(), part, ncclUint32, m_all, native));
    });
  }

private:
  ncclComm_t m_all = nullptr;
};

/// Copies ordinary memory by plain CUDA.
void upload(const std::vector<word>& from, gpu_memory& all, std::size_t first) {
  check(cudaMemcpy(all.address() + first, from.data(), from.size() * sizeof(word),
                   cudaMemcpyHostToDevice));
}
#endif

void gather_by_mpi(word* words) {
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, words, part, MPI_UINT32_T, MPI_COMM_WORLD);
}

/// The time of the slowest rank: the median of five runs, each without parts at its start.
template <class Load, class Gather>
void run(const char* name, const process& self, const pinlane::stream& stream, gpu_memory& all,
         const Load& load, const Gather& gather) {
  std::array<std::vector<double>, 2> times;
  std::vector<word> back(self.words());
  for (int number = 0; number < 6; ++number) { // the first run allocates
    stream.fill(all, word{0});
    std::array<double, 3> at{};
    const auto clock = [&](double& time) {
      stream.synchronize();
      MPI_Barrier(MPI_COMM_WORLD);
      time = MPI_Wtime();
    };
    clock(at[0]);
    load();
    clock(at[1]);
    gather();
    clock(at[2]);
    for (std::size_t phase = 0; phase < 2 && number > 0; ++phase) {
      times[phase].push_back(at[phase + 1] - at[phase]);
    }
    stream.download(all, back);
    for (std::size_t index = 0; index < back.size(); ++index) {
      require(back[index] == value(index), "a rank has other words than were loaded");
    }
  }
  for (auto& of_phase : times) {
    std::sort(of_phase.begin(), of_phase.end());
  }
  if (self.rank == 0) {
    std::printf("%-16s load %7.2f ms   all-gather %7.2f ms   all correct\n", name,
                times[0][2] * 1e3, times[1][2] * 1e3);
  }
}

/// The file with the parts of all ranks.
void write_file(const std::string& path, std::size_t words) {
  std::vector<word> all(words);
  for (std::size_t index = 0; index < words; ++index) {
    all[index] = value(index);
  }
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(all.data()),
             static_cast<std::streamsize>(words * sizeof(word)));
  require(file.good(), "cannot write " + path);
}

void ranks(const std::string& path) {
  const process self;
  const std::size_t first = self.first();
  const bool on_gpu = self.has_gpu();
  const pinlane::device device = on_gpu ? pinlane::device::open(self.local)
                                        : std::move(pinlane::device::emulated(1)[0]);
  const pinlane::pinned_pool pool(device);
  const pinlane::stream stream(device);
  auto all = device.alloc<word>(self.words());
  if (self.rank == 0) {
    write_file(path, self.words());
    std::printf("%d ranks, %s\n", self.count, device.name().c_str());
  }
  MPI_Barrier(MPI_COMM_WORLD);

  const auto file = pinlane::file_reader::open(path);
  const auto load = [&] { stream.upload_file(file, first * sizeof(word), all.slice(first, part)); };

  std::vector<word> own(part);
  const auto read = [&] {
    std::ifstream input(path, std::ios::binary);
    input.seekg(static_cast<std::streamoff>(first * sizeof(word)));
    input.read(reinterpret_cast<char*>(own.data()), part * sizeof(word));
    require(input.good(), "cannot read " + path);
  };

#ifdef PINLANE_NCCL
  if (on_gpu) {
    const nccl others(self);
    const auto gather = [&] { others.all_gather(stream, all, first); };
    run("pinlane, NCCL", self, stream, all, load, gather);
    const auto plain = [&] {
      read();
      upload(own, all, first);
    };
    run("cudaMemcpy, NCCL", self, stream, all, plain, gather);
    return;
  }
#endif
  auto host = pool.alloc<word>(self.words());
  run("page-locked, MPI", self, stream, all, load, [&] {
    stream.download(all.slice(first, part), host.slice(first, part));
    gather_by_mpi(host.write().data()); // `write` waits for the download
    stream.upload(host, all);
  });
  std::vector<word> ordinary(self.words());
  run("ordinary, MPI", self, stream, all,
      [&] {
        read();
        stream.upload(own, all.slice(first, part));
      },
      [&] {
        stream.download(all.slice(first, part), own);
        std::copy(own.begin(), own.end(), ordinary.begin() + static_cast<std::ptrdiff_t>(first));
        gather_by_mpi(ordinary.data());
        stream.upload(ordinary, all);
      });
}

} // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::string path = argc > 1 ? argv[1] : "pinlane-allgather.tmp";
  int status = 0;
  try {
    ranks(path);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  if (status != 0) {
    std::remove(path.c_str());
    MPI_Abort(MPI_COMM_WORLD, status); // the others wait for this rank
  }
  MPI_Barrier(MPI_COMM_WORLD);
  std::remove(path.c_str()); // one of them succeeds
  MPI_Finalize();
}
