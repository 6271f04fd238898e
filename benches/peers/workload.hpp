// The pool workloads, written once, so that every peer runs the same ones.
//
// A peer is a type with
//   Block allocate(std::size_t bytes);        called by any thread
//   void free(Block block);                   called by any thread, also one that did not allocate
//   void copy(void* device);                  allocates 4 KiB, copies it to the device, frees it
//   void synchronize();                       waits for those copies
//   std::size_t reserved(std::size_t bytes);  the bytes that a block of this size really takes
//
// Each figure goes to standard output as one line of JSON. README.md defines the figures.
#pragma once
#if !defined(__x86_64__)
#error "single operations are timed with the x86 time stamp counter"
#endif
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace peers {

constexpr std::size_t KIB = 1024, MIB = 1024 * KIB, GIB = 1024 * MIB;
constexpr std::size_t TABLE = 1024;
constexpr std::size_t WARM_UP = 2 * TABLE;
constexpr std::size_t OPERATIONS = 200'000;
// Seconds that one timed loop may take; slower peers do fewer operations.
constexpr double LONGEST = 0.5;
using Sizes = std::array<std::size_t, TABLE>;

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Report {
  const char* peer;

  void operator()(const std::string& name, double value, const char* unit,
                  const char* method) const {
    std::printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"peer\": \"%s\", "
                "\"method\": \"%s\"}\n",
                name.c_str(), value, unit, peer, method);
    std::fflush(stdout);
  }
};

inline Sizes same(std::size_t bytes) {
  Sizes sizes;
  sizes.fill(bytes);
  return sizes;
}

// About log-uniform between 256 B and 1 MiB: xorshift64 picks one of 12 doublings, then a size
// within it.
inline Sizes mixed() {
  Sizes sizes;
  std::uint64_t x = 42;
  for (auto& size : sizes) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    const std::uint64_t base = std::uint64_t{256} << (x % 12);
    size = base + (x >> 32) % base;
  }
  return sizes;
}

// Holds every thread until all of them have arrived.
class Gate {
public:
  explicit Gate(int threads) : missing_(threads) {}

  void pass() {
    missing_.fetch_sub(1);
    while (missing_.load() != 0)
      _mm_pause();
  }

private:
  std::atomic<int> missing_;
};

struct Times {
  double mean; // seconds a thread was busy, mean over the threads
  double wall; // seconds from the first start to the last end
};

// Every thread allocates and frees `operations` times, one block at a time.
template <class Peer>
Times hits(Peer& peer, const Sizes& sizes, int threads, std::size_t operations) {
  Gate gate(threads);
  std::vector<double> starts(threads), ends(threads);
  std::vector<std::thread> team;
  for (int t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      const std::size_t first = 64 * static_cast<std::size_t>(t);
      const auto loop = [&](std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
          peer.free(peer.allocate(sizes[(first + i) % TABLE]));
      };
      loop(WARM_UP);
      gate.pass();
      starts[t] = now();
      loop(operations);
      ends[t] = now();
    });
  }
  for (auto& thread : team)
    thread.join();
  double busy = 0;
  for (int t = 0; t < threads; ++t)
    busy += ends[t] - starts[t];
  return {busy / threads, *std::max_element(ends.begin(), ends.end()) -
                              *std::min_element(starts.begin(), starts.end())};
}

// Makes enough blocks for every thread to hold one of every power of two, so that the timed loops
// never grow the pool.
template <class Peer>
void fill(Peer& peer, const Sizes& sizes, std::size_t blocks) {
  std::set<std::size_t> powers;
  for (std::size_t size : sizes) {
    std::size_t power = 1;
    while (power < size)
      power *= 2;
    powers.insert(power);
  }
  std::vector<typename Peer::Block> held;
  for (std::size_t power : powers)
    for (std::size_t i = 0; i < blocks; ++i)
      held.push_back(peer.allocate(power));
  for (auto block : held)
    peer.free(block);
}

template <class Peer>
void hit(Peer& peer, const Report& report) {
  const std::pair<const char*, Sizes> kinds[] = {
      {"4k", same(4 * KIB)}, {"1m", same(MIB)}, {"mix", mixed()}};
  for (const auto& [kind, sizes] : kinds) {
    for (int threads : {1, 2, 4, 8, 16}) {
      fill(peer, sizes, threads);
      const double guess = hits(peer, sizes, threads, WARM_UP).mean / WARM_UP;
      const auto operations =
          std::min(OPERATIONS, std::max(WARM_UP, static_cast<std::size_t>(LONGEST / guess)));
      const Times times = hits(peer, sizes, threads, operations);
      const std::string name = std::string("hit.") + kind + ".t" + std::to_string(threads);
      report(name, times.mean / operations * 1e9, "ns",
             "allocate + free, an operation of a thread, mean over threads");
      report(name + ".total", threads * operations / times.wall / 1e6, "Mop/s",
             "all threads, first start to last end");
    }
  }
}

// A bounded queue for one producer and one consumer; each side keeps a copy of the other's
// position.
template <class Item>
class Ring {
public:
  void push(Item item) {
    while (produced_ - seen_consumed_ == TABLE) {
      seen_consumed_ = head_.load(std::memory_order_acquire);
      if (produced_ - seen_consumed_ == TABLE)
        _mm_pause();
    }
    items_[produced_++ % TABLE] = item;
    tail_.store(produced_, std::memory_order_release);
  }

  Item pop() {
    while (seen_produced_ == consumed_) {
      seen_produced_ = tail_.load(std::memory_order_acquire);
      if (seen_produced_ == consumed_)
        _mm_pause();
    }
    Item item = items_[consumed_++ % TABLE];
    head_.store(consumed_, std::memory_order_release);
    return item;
  }

private:
  alignas(128) std::atomic<std::size_t> tail_{0};
  alignas(128) std::atomic<std::size_t> head_{0};
  alignas(128) std::size_t produced_ = 0, seen_consumed_ = 0;
  alignas(128) std::size_t consumed_ = 0, seen_produced_ = 0;
  alignas(128) std::array<Item, TABLE> items_{};
};

// Seconds to pass `operations` items from one thread to another, from making the first item to
// taking the last.
template <class Item, class Make, class Take>
double handed_over(std::size_t operations, Make make, Take take) {
  Ring<Item> ring;
  Gate gate(2);
  double start = 0, end = 0;
  std::thread taker([&] {
    gate.pass();
    for (std::size_t i = 0; i < operations; ++i)
      take(ring.pop());
    end = now();
  });
  gate.pass();
  start = now();
  for (std::size_t i = 0; i < operations; ++i)
    ring.push(make());
  taker.join();
  return end - start;
}

template <class Peer>
void remote(Peer& peer, const Report& report) {
  using Block = typename Peer::Block;
  fill(peer, same(4 * KIB), TABLE + 2);
  const auto handed = [&](std::size_t operations) {
    return handed_over<Block>(
        operations, [&] { return peer.allocate(4 * KIB); }, [&](Block block) { peer.free(block); });
  };
  const auto operations =
      std::min(OPERATIONS, static_cast<std::size_t>(LONGEST / handed(WARM_UP) * WARM_UP));
  report("remote", handed(operations) / operations * 1e9, "ns",
         "4 KiB allocated by one thread and freed by another, through a ring of 1024");
  const double ring = handed_over<Block>(
      OPERATIONS, [] { return Block{}; }, [](Block) {});
  report("remote.ring", ring / OPERATIONS * 1e9, "ns", "the ring alone, without allocation");
}

inline std::uint64_t tick_before() {
  _mm_lfence();
  const std::uint64_t tick = __rdtsc();
  _mm_lfence();
  return tick;
}

inline std::uint64_t tick_after() {
  unsigned core;
  const std::uint64_t tick = __rdtscp(&core);
  _mm_lfence();
  return tick;
}

inline double ticks_per_nanosecond() {
  const double start = now();
  const std::uint64_t first = __rdtsc();
  while (now() - start < 0.1)
    _mm_pause();
  return static_cast<double>(__rdtsc() - first) / ((now() - start) * 1e9);
}

template <class Work>
std::vector<std::uint64_t> ticks(Work work) {
  for (std::size_t i = 0; i < WARM_UP; ++i)
    work();
  std::vector<std::uint64_t> samples(OPERATIONS);
  for (auto& sample : samples) {
    const std::uint64_t start = tick_before();
    work();
    sample = tick_after() - start;
  }
  std::sort(samples.begin(), samples.end());
  return samples;
}

template <class Peer>
void single(Peer& peer, const Report& report) {
  const double rate = ticks_per_nanosecond();
  const double empty = static_cast<double>(ticks([] {})[OPERATIONS / 2]);
  const auto samples = ticks([&] { peer.free(peer.allocate(4 * KIB)); });
  const std::pair<const char*, double> quantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}};
  for (const auto& [name, quantile] : quantiles) {
    const double sample =
        static_cast<double>(samples[static_cast<std::size_t>(quantile * OPERATIONS)]);
    report(name, std::max(0.0, sample - empty) / rate, "ns",
           "one allocate + free of 4 KiB, 1 thread, rdtsc, less the median of empty pairs");
  }
}

template <class Peer>
void copies(Peer& peer, void* device, const Report& report) {
  constexpr int COPIES = 20'000;
  std::vector<double> rounds;
  for (int round = 0; round < 6; ++round) {
    const double start = now();
    for (int i = 0; i < COPIES; ++i)
      peer.copy(device);
    rounds.push_back(now() - start);
    peer.synchronize();
  }
  rounds.erase(rounds.begin());
  report("copy4k", median(rounds) / COPIES * 1e6, "us",
         "allocate 4 KiB + cudaMemcpyAsync to the device + free after it; median of 5 rounds of "
         "20000");
}

template <class Peer>
void waste(Peer& peer, const std::string& path, const Report& report) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line != "source,name,bytes")
    throw std::runtime_error("no size mix in " + path);
  std::map<std::size_t, std::size_t> known;
  std::map<std::string, std::pair<double, double>> sums; // bytes asked for and taken, by source
  while (std::getline(file, line)) {
    const std::size_t bytes = std::stoull(line.substr(line.rfind(',') + 1));
    const auto [found, fresh] = known.try_emplace(bytes, 0);
    if (fresh)
      found->second = peer.reserved(bytes);
    for (const auto& source : {line.substr(0, line.find(',')), std::string("all")}) {
      sums[source].first += static_cast<double>(bytes);
      sums[source].second += static_cast<double>(found->second);
    }
  }
  for (const auto& [source, sum] : sums)
    report("waste." + source, (sum.second / sum.first - 1) * 100, "%", Peer::RESERVED_METHOD);
}

template <class Peer>
void grow(Peer& peer, const Report& report) {
  const double start = now();
  const auto block = peer.allocate(GIB);
  const double seconds = now() - start;
  peer.free(block);
  report("grow", seconds * 1e3, "ms", "first allocation of 1 GiB in a fresh process");
}

} // namespace peers
