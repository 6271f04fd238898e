// Files, pipelines, releases in host functions, and forks.

#pragma once

#include "graphs.hpp"
#include "processes.hpp"

#include <cstdlib>
#include <thread>

/// A file that all programs of the process read.
struct known_file {
  bytes model;
  pinlane::file_reader reader;

  known_file() {
    splitmix random(1);
    for (std::size_t at = 0; at < 20000; ++at) {
      model.push_back(std::uint8_t(random.next() >> 56));
    }
    char path[] = "/tmp/pinlane-random-XXXXXX";
    const int descriptor = mkstemp(path);
    require(descriptor >= 0 && write(descriptor, model.data(), model.size()) > 0 &&
                close(descriptor) == 0,
            "no file can be written");
    reader = pinlane::file_reader::open(path);
    unlink(path);
  }
};

class others : protected graphs {
protected:
  others(const std::vector<pinlane::device>& devices, std::uint64_t seed)
      : graphs(devices, seed) {}

  void read_file() {
    host_buffer& host = m_random.one_of(m_hosts);
    const range part = some_part(file().model.size(), host.model.size());
    file().reader.read(part.from, host.buffer.slice(part.to, part.count));
    move(file().model, host.model, part);
  }

  void upload_file() {
    gpu_buffer& gpu = m_random.one_of(m_gpus);
    const range part = some_part(file().model.size(), gpu.model.size());
    const auto to = gpu.buffer.slice(part.to, part.count);
    if (m_random.below(2) == 0) {
      stream_of(gpu.device).upload_file(file().reader, part.from, to);
    } else {
      const std::vector<pinlane::file_range> ranges{{part.from, to}};
      stream_of(gpu.device).upload_file_ranges(file().reader, ranges);
    }
    move(file().model, gpu.model, part);
  }

  /// Batches that are released in every way: here, on another thread, in a host function, late.
  void prefetch() {
    if (m_without_threads) {
      return; // a pipeline needs threads
    }
    const std::size_t device = m_random.below(m_devices.size());
    auto given = std::make_shared<std::vector<bytes>>(m_random.below(5));
    std::generate(given->begin(), given->end(),
                  [&] { return some_bytes(m_random.below(2000) + 1); });
    const pinlane::stream_ref stream = stream_of(device);
    pinlane::prefetch_options options;
    options.depth = std::uint32_t(1 + m_random.below(3));
    options.workers = std::uint32_t(1 + m_random.below(2));
    pinlane::prefetch batches(
        m_pool, stream,
        [given, next = std::size_t{0}]() mutable {
          return next < given->size() ? std::optional((*given)[next++]) : std::nullopt;
        },
        options);
    for (const bytes& model : *given) {
      auto batch = batches.next();
      require(batch.has_value(), "a pipeline ended early");
      bytes back(model.size());
      if (m_random.below(2) == 0) {
        stream.download(batch->slice<std::uint8_t>(), back);
        require(back == model, "a batch has wrong bytes");
      }
      switch (m_random.below(4)) {
      case 0:
        release_in_host_function(std::move(*batch));
        break;
      case 1:
        std::thread([gone = std::move(*batch)] {}).join();
        break;
      case 2:
        m_batches.push_back(std::move(*batch));
        break;
      default:
        break;
      }
    }
    if (m_random.below(2) == 0) {
      require(!batches.next(), "a pipeline gives more than it got");
    }
  }

  void release_something() {
    switch (m_random.below(6)) {
    case 0:
      if (m_hosts.size() > 1 && m_hosts.back().is_of_pool && !is_lent(m_hosts.back())) {
        release_in_host_function(std::move(m_hosts.back().buffer));
        m_hosts.pop_back();
      }
      break;
    case 1:
      if (m_gpus.size() > 1 && !is_lent(m_gpus.back())) {
        release_in_host_function(std::move(m_gpus.back().buffer));
        m_gpus.pop_back();
      }
      break;
    case 2:
      if (!m_batches.empty()) {
        release_in_host_function(std::move(m_batches.back()));
        m_batches.pop_back();
      }
      break;
    case 3:
      return give_gpu_to_library();
    case 4:
      return is_lent(m_hosts.back()) ? void() : give_host_to_library();
    default:
      return take_from_library();
    }
  }

  /// A child may write to its copy of our memory: nothing changes here. It has no copy of a pool's
  /// memory.
  void fork_child() {
    const host_buffer& host = m_random.one_of(m_hosts);
    if (m_without_threads || is_sanitized || host.model.empty()) {
      return;
    }
    volatile std::uint8_t* const byte = host.buffer.address() + m_random.below(host.model.size());
    const ending how = in_child(20, [&] {
      *byte = std::uint8_t(~*byte);
      return true;
    });
    require(how == ending::by_a_fault || how == ending::well, "a child did not end as it should");
  }

  std::vector<pinlane::device_batch> m_batches;

private:
  static known_file& file() {
    static known_file only;
    return only;
  }
};
