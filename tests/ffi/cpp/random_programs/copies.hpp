// Copies of every kind, each also done at once on plain vectors.

#pragma once

#include "state.hpp"

class copies : protected state {
protected:
  using state::state;

  void write(host_buffer& host) {
    const range part = some_part(host.model.size(), host.model.size());
    const bytes data = some_bytes(part.count);
    std::copy(data.begin(), data.end(), host.buffer.write().begin() + part.to);
    move(data, host.model, {0, part.to, part.count});
  }

  static void read(const host_buffer& host) {
    const auto elements = host.buffer.read();
    require(std::equal(elements.begin(), elements.end(), host.model.begin(), host.model.end()),
            "read gave wrong bytes");
  }

  static void try_read(const host_buffer& host) {
    if (const auto elements = host.buffer.try_read()) {
      require(std::equal(elements->begin(), elements->end(), host.model.begin(), host.model.end()),
              "try_read gave wrong bytes");
    }
  }

  void upload() {
    const host_buffer& host = m_random.one_of(m_hosts);
    gpu_buffer& gpu = m_random.one_of(m_gpus);
    const range part = some_part(host.model.size(), gpu.model.size());
    stream_of(gpu.device)
        .upload(host.buffer.slice(part.from, part.count), gpu.buffer.slice(part.to, part.count));
    move(host.model, gpu.model, part);
  }

  void download() {
    const gpu_buffer& gpu = m_random.one_of(m_gpus);
    host_buffer& host = m_random.one_of(m_hosts);
    const range part = some_part(gpu.model.size(), host.model.size());
    stream_of(gpu.device)
        .download(gpu.buffer.slice(part.from, part.count), host.buffer.slice(part.to, part.count));
    move(gpu.model, host.model, part);
  }

  /// A part of a buffer on a device.
  struct piece {
    gpu_buffer* gpu;
    std::size_t at, count;
  };

  /// Some pieces of all buffers of one device, which do not overlap.
  std::vector<piece> some_pieces(std::size_t device) {
    std::vector<piece> pieces;
    for (gpu_buffer& gpu : m_gpus) {
      std::size_t at = m_random.below(64);
      while (gpu.device == device && at < gpu.model.size()) {
        const std::size_t count = std::min(m_random.below(500), gpu.model.size() - at);
        pieces.push_back({&gpu, at, count});
        at += count + (m_random.below(2) == 0 ? 0 : m_random.below(200));
      }
    }
    return pieces;
  }

  pinlane::route some_route() {
    const pinlane::route routes[] = {pinlane::route::automatic, pinlane::route::copies,
                                     pinlane::route::kernel};
    return routes[m_random.below(3)];
  }

  /// From page-locked memory, and from pageable memory that is freed right after the call.
  void upload_batch() {
    const std::size_t device = m_random.one_of(m_gpus).device;
    const std::vector<piece> pieces = some_pieces(device);
    std::vector<bytes> pageable(pieces.size());
    std::vector<pinlane::upload_item> items;
    for (std::size_t index = 0; index < pieces.size(); ++index) {
      const auto [gpu, at, count] = pieces[index];
      const auto destination = gpu->buffer.slice(at, count);
      const host_buffer& host = m_random.one_of(m_hosts);
      if (host.model.size() >= count && m_random.below(2) == 0) {
        const std::size_t from = m_random.below(host.model.size() - count + 1);
        items.emplace_back(host.buffer.slice(from, count), destination);
        move(host.model, gpu->model, {from, at, count});
      } else {
        pageable[index] = some_bytes(count);
        items.emplace_back(pageable[index], destination);
        move(pageable[index], gpu->model, {0, at, count});
      }
    }
    stream_of(device).upload_batch(items, some_route());
  }

  /// To page-locked memory, front to back in each buffer, and to pageable memory, which is complete
  /// when the call returns.
  void download_batch() {
    const std::size_t device = m_random.one_of(m_gpus).device;
    const std::vector<piece> pieces = some_pieces(device);
    std::vector<bytes> pageable(pieces.size()), expected(pieces.size());
    std::vector<std::size_t> used(m_hosts.size());
    std::vector<pinlane::download_item> items;
    for (std::size_t index = 0; index < pieces.size(); ++index) {
      const auto [gpu, at, count] = pieces[index];
      const auto source = gpu->buffer.slice(at, count);
      const std::size_t chosen = m_random.below(m_hosts.size());
      host_buffer& host = m_hosts[chosen];
      if (host.model.size() - used[chosen] >= count && m_random.below(2) == 0) {
        items.emplace_back(source, host.buffer.slice(used[chosen], count));
        move(gpu->model, host.model, {at, used[chosen], count});
        used[chosen] += count;
      } else {
        pageable[index].resize(count);
        expected[index].resize(count);
        items.emplace_back(source, pageable[index]);
        move(gpu->model, expected[index], {at, 0, count});
      }
    }
    if (m_random.below(2) == 0) {
      stream_of(device).download_batch(items, some_route());
    } else {
      std::size_t told = 0;
      stream_of(device).download_batch_each(
          items, [&](std::size_t, pinlane::span<const std::byte>) { ++told; });
      require(told == items.size(), "landed was not called for every copy");
    }
    require(pageable == expected, "a batch gave wrong bytes");
  }

  /// Pageable memory to the device, and back on another stream.
  void slices() {
    gpu_buffer& gpu = m_random.one_of(m_gpus);
    const range part = some_part(gpu.model.size(), gpu.model.size());
    const bytes data = some_bytes(part.count);
    stream_of(gpu.device).upload(data, gpu.buffer.slice(part.to, part.count));
    move(data, gpu.model, {0, part.to, part.count});
    bytes back(gpu.model.size());
    stream_of(gpu.device).download(gpu.buffer, back);
    require(back == gpu.model, "a slice has wrong bytes");
  }

  /// A container in memory of the pool, to the device and back: it is the program's again at once.
  void copy_container() {
    gpu_buffer& gpu = m_random.one_of(m_gpus);
    const range part = some_part(m_bytes.size(), gpu.model.size());
    const pinlane::span<std::uint8_t> some(m_bytes.data() + part.from, part.count);
    const auto there = gpu.buffer.slice(part.to, part.count);
    if (m_random.below(2) == 0) {
      stream_of(gpu.device).upload(some, there);
    } else {
      stream_of(gpu.device).upload_batch(std::vector<pinlane::upload_item>{{some, there}});
    }
    move(m_bytes_model, gpu.model, part);
    std::fill(some.begin(), some.end(), std::uint8_t{0xee});
    if (m_random.below(2) == 0) {
      stream_of(gpu.device).download(there, some);
    } else {
      stream_of(gpu.device).download_batch(std::vector<pinlane::download_item>{{there, some}});
    }
    require(std::equal(m_bytes.begin(), m_bytes.end(), m_bytes_model.begin(), m_bytes_model.end()),
            "a container has wrong bytes after a copy");
  }

  /// Containers that are destroyed before the device is done with them, alone and in lists.
  void copy_container_at_once() {
    gpu_buffer& gpu = m_random.one_of(m_gpus);
    const range part = some_part(gpu.model.size(), gpu.model.size());
    const bytes data = some_bytes(part.count);
    {
      std::pmr::vector<std::uint8_t> source(data.begin(), data.end(), &m_patient);
      const pinlane::pinned_span from(source);
      const auto to = gpu.buffer.slice(part.to, part.count);
      const auto stream = stream_of(gpu.device);
      switch (m_random.below(3)) {
      case 0:
        stream.upload(from, to);
        break;
      case 1:
        stream.upload_batch(std::vector<pinlane::upload_item>{{from, to}});
        break;
      default:
        stream.upload_pairs(pinlane::pairs(std::vector<pinlane::pair_item>{{from, to}}));
      }
      move(data, gpu.model, {0, part.to, part.count});
    }
    std::pmr::vector<std::uint8_t> target(gpu.model.size(), 0xee, &m_patient);
    const std::vector<pinlane::download_item> items{{gpu.buffer, pinlane::pinned_span(target)}};
    const auto stream = stream_of(gpu.device);
    const auto copied = m_random.below(2) == 0
                            ? stream.download(gpu.buffer, pinlane::pinned_span(target))
                            : stream.download_batch(items);
    if (m_random.below(2) == 0) {
      copied.wait();
      require(std::equal(target.begin(), target.end(), gpu.model.begin(), gpu.model.end()),
              "a container has wrong bytes");
    }
  }

  /// A copy on a stream of either device.
  void copy() {
    gpu_buffer &from = m_random.one_of(m_gpus), &to = m_random.one_of(m_gpus);
    if (&from == &to) {
      return;
    }
    const range part = some_part(from.model.size(), to.model.size());
    stream_of(m_random.below(2) == 0 ? from.device : to.device)
        .copy(from.buffer.slice(part.from, part.count), to.buffer.slice(part.to, part.count));
    move(from.model, to.model, part);
  }

  /// Patterns of any allowed length. Only the C interface has them.
  void fill(gpu_buffer& gpu) {
    const bytes pattern = some_bytes(1 + m_random.below(64));
    const std::size_t size = gpu.model.size();
    const std::size_t count = pattern.size() * m_random.below(size / pattern.size() + 1);
    const std::size_t offset = m_random.below(size - count + 1);
    pinlane::detail::check(pinlane_device_buffer_fill(stream_of(gpu.device).get(), gpu.buffer.get(),
                                                      offset, count, pattern.data(), pattern.size(),
                                                      nullptr));
    for (std::size_t index = 0; index < count; ++index) {
      gpu.model[offset + index] = pattern[index % pattern.size()];
    }
  }

  void checksum() {
    const gpu_buffer& gpu = m_random.one_of(m_gpus);
    const range part = some_part(gpu.model.size(), gpu.model.size());
    auto gpu_sum = m_devices[gpu.device].alloc<std::uint64_t>(3);
    auto sum = m_pool.alloc<std::uint64_t>(2);
    stream_of(gpu.device).checksum(gpu.buffer.slice(part.from, part.count), gpu_sum.slice(2, 1));
    stream_of(gpu.device).download(gpu_sum.slice(2, 1), sum.slice(1, 1));
    bytes summed(part.count);
    move(gpu.model, summed, {part.from, 0, part.count});
    require(sum.read()[1] == pinlane::checksum(summed), "the device's checksum is wrong");
  }

  /// A range that ends outside its buffer is refused, wherever it begins.
  void be_refused() {
    const host_buffer& host = m_random.one_of(m_hosts);
    gpu_buffer& gpu = m_random.one_of(m_gpus);
    const bool huge = m_random.below(4) == 0;
    const std::size_t size = std::max(host.model.size(), gpu.model.size());
    const std::size_t offset = huge ? SIZE_MAX - m_random.below(9) : m_random.below(size + 2);
    const std::size_t count = size + 1 + m_random.below(9);
    const pinlane_status status = stream_of(gpu.device)
                                      .upload(std::nothrow, host.buffer.slice(offset, count),
                                              gpu.buffer.slice(offset, count));
    require(status == PINLANE_STATUS_OUT_OF_RANGE, "a range outside its buffer was accepted");
  }
};
