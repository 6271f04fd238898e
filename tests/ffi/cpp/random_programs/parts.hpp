// Parts by arrays of offsets: in order, scattered, of elements of any size, and wrong ones.

#pragma once

#include "copies.hpp"

#include <memory_resource>
#include <optional>

class part_copies : protected copies {
protected:
  using copies::copies;

  /// To the device or from there. The host side is a buffer, a container in memory of the pool, or
  /// pageable memory.
  void copy_parts() {
    gpu_buffer& gpu = m_random.one_of(m_gpus);
    host_buffer& host = m_random.one_of(m_hosts);
    const bool up = m_random.below(2) == 0;
    const range on_host = some_side(host.model.size()), on_gpu = some_side(gpu.model.size());
    const std::vector<std::size_t> units{1, 1, 1, 2, 3, 8};
    const std::size_t unit = m_random.one_of(units);
    arrays some =
        some_arrays((up ? on_host : on_gpu).count / unit, (up ? on_gpu : on_host).count / unit);
    some.unit = unit;
    switch (m_random.below(4)) {
    case 0:
      return with_pageable(up, some, on_host.count, gpu, on_gpu);
    case 1:
      return with_container(up, some, on_host.count, gpu, on_gpu);
    default:
      return with_buffer(up, some, host, on_host, gpu, on_gpu);
    }
  }

private:
  /// The arrays of a copy. All numbers count elements of `unit` bytes.
  struct arrays {
    std::vector<std::size_t> from, to, lengths;
    /// All parts have this length, and `lengths` is empty.
    std::optional<std::size_t> equal;
    /// The elements of the two sides.
    std::size_t source, destination, unit = 1;

    [[nodiscard]] std::size_t length(std::size_t part) const {
      return equal ? *equal : lengths[part];
    }

    /// How the copy must end: each part lies in both sides, and those of the destination are apart.
    [[nodiscard]] pinlane_status expected() const {
      if (from.size() != to.size() || (!equal && from.size() != lengths.size())) {
        return PINLANE_STATUS_LENGTH_MISMATCH;
      }
      for (std::size_t part = 0; part < from.size(); ++part) {
        if (!lies_in(from[part], length(part), source) ||
            !lies_in(to[part], length(part), destination)) {
          return PINLANE_STATUS_OUT_OF_RANGE;
        }
      }
      std::vector<bool> is_taken(destination);
      for (std::size_t part = 0; part < from.size(); ++part) {
        for (std::size_t at = to[part]; at < to[part] + length(part); ++at) {
          if (is_taken[at]) {
            return PINLANE_STATUS_INVALID_VALUE;
          }
          is_taken[at] = true;
        }
      }
      return PINLANE_STATUS_OK;
    }

    static bool lies_in(std::size_t at, std::size_t count, std::size_t size) {
      return at <= size && count <= size - at;
    }

    /// The copy, on sides that begin at these bytes.
    void move(const bytes& source_model, std::size_t source_at, bytes& destination_model,
              std::size_t destination_at) const {
      for (std::size_t part = 0; part < from.size(); ++part) {
        state::move(
            source_model, destination_model,
            {source_at + from[part] * unit, destination_at + to[part] * unit, length(part) * unit});
      }
    }
  };

  /// All of a buffer or a part of it, which begins at `to`.
  range some_side(std::size_t size) {
    if (m_random.below(2) == 0) {
      return {0, 0, size};
    }
    return some_part(size, size);
  }

  /// Parts that follow each other in the destination, with gaps or without. Often they do in the
  /// source too.
  arrays some_arrays(std::size_t source, std::size_t destination) {
    arrays made{{}, {}, {}, {}, source, destination};
    const std::size_t most = std::min(source, destination) / (1 + m_random.below(8));
    if (m_random.below(3) == 0) {
      made.equal = m_random.below(most + 1);
    }
    const std::size_t count = m_random.below(m_random.below(8) == 0 ? 80 : 12);
    std::size_t at = 0, next = 0;
    while (made.from.size() < count) {
      const std::size_t length = made.equal ? *made.equal : m_random.below(most + 1);
      at += m_random.below(2) == 0 ? 0 : m_random.below(1 + destination / 8);
      if (!arrays::lies_in(at, length, destination)) {
        break;
      }
      const bool follows = m_random.below(2) == 0 && arrays::lies_in(next, length, source);
      made.from.push_back(follows ? next : m_random.below(source - length + 1));
      made.to.push_back(at);
      if (!made.equal) {
        made.lengths.push_back(length);
      }
      at += length;
      next = made.from.back() + length;
    }
    reorder(made);
    if (m_random.below(6) == 0) {
      spoil(made);
    }
    return made;
  }

  /// Leaves the parts in order, or reverses, rotates or shuffles them.
  void reorder(arrays& made) {
    const auto swap = [&](std::size_t one, std::size_t other) {
      std::swap(made.from[one], made.from[other]);
      std::swap(made.to[one], made.to[other]);
      if (!made.equal) {
        std::swap(made.lengths[one], made.lengths[other]);
      }
    };
    const std::size_t count = made.from.size();
    switch (m_random.below(4)) {
    case 0:
      for (std::size_t part = 0; part < count / 2; ++part) {
        swap(part, count - 1 - part);
      }
      break;
    case 1:
      for (std::size_t part = 1; part < count; ++part) {
        swap(part, m_random.below(part + 1));
      }
      break;
    case 2:
      for (std::size_t part = 1; part < count; ++part) {
        swap(part - 1, part); // the first part is the last one now
      }
      break;
    default:
      break;
    }
  }

  /// Makes a mistake in the arrays, which may turn out to be none.
  void spoil(arrays& made) {
    if (made.from.empty()) {
      return;
    }
    const std::size_t part = m_random.below(made.from.size());
    const std::size_t far =
        m_random.below(2) == 0 ? SIZE_MAX - m_random.below(9) : m_random.below(1 + made.source * 2);
    switch (m_random.below(6)) {
    case 0:
      made.from[part] = far;
      break;
    case 1:
      made.to[part] = far;
      break;
    case 2:
      (made.equal ? *made.equal : made.lengths[part]) += 1 + m_random.below(2) * (SIZE_MAX / 2);
      break;
    case 3:
      made.to[part] = m_random.one_of(made.to);
      break;
    case 4:
      made.to[part] -= std::min<std::size_t>(made.to[part], 1);
      break;
    default:
      (m_random.below(2) == 0 ? made.from : made.to).pop_back();
    }
  }

  /// Makes the call, in C++, or in C, which has units. Returns the ticket of the copy. None if it
  /// was refused, as it must be if something is wrong.
  template <class Host, class Device>
  std::optional<pinlane::ticket> enqueue(bool up, const arrays& some, std::size_t device,
                                         Host&& host, const Device& gpu) {
    const bool elsewhere = m_devices.size() > 1 && m_random.below(20) == 0;
    const auto stream = stream_of(elsewhere ? (device + 1) % m_devices.size() : device);
    const auto route = m_random.below(4) == 0 ? pinlane::route::batch_call : some_route();
    pinlane::ticket done;
    const pinlane_status status = status_of([&] {
      const auto parts = some.equal ? pinlane::parts(some.from, some.to, *some.equal)
                                    : pinlane::parts(some.from, some.to, some.lengths);
      if (some.unit == 1) {
        done = up ? stream.upload_parts(host, gpu, parts, route)
                  : stream.download_parts(gpu, host, parts, route);
        return;
      }
      const pinlane_parts raw = parts.of_size(some.unit);
      const pinlane_batch_options options = pinlane::detail::forced(route);
      done = pinlane::detail::with_ticket([&](pinlane_ticket** out) {
        if (up) {
          const pinlane::upload_layer<std::uint8_t> layer(host, gpu);
          return pinlane_upload_parts(stream.get(), &layer, &raw, &options, out);
        }
        const pinlane::download_layer<std::uint8_t> layer(gpu, host);
        return pinlane_download_parts(stream.get(), &layer, &raw, &options, out);
      });
    });
    statuses wrong;
    if (some.expected() != PINLANE_STATUS_OK) {
      wrong.push_back(some.expected());
    }
    if (elsewhere) {
      wrong.push_back(PINLANE_STATUS_WRONG_DEVICE);
    }
    const bool may_lack = route == pinlane::route::batch_call && wrong.empty();
    if (may_lack && status == PINLANE_STATUS_UNSUPPORTED) {
      return std::nullopt; // some streams do not have it, nor do old drivers
    }
    expect(status, wrong, "a copy of parts");
    return wrong.empty() ? std::optional(std::move(done)) : std::nullopt;
  }

  void with_buffer(bool up, const arrays& some, host_buffer& host, range on_host, gpu_buffer& gpu,
                   range on_gpu) {
    const auto to = gpu.buffer.slice(on_gpu.to, on_gpu.count);
    if (!enqueue(up, some, gpu.device, host.buffer.slice(on_host.to, on_host.count), to)) {
      return;
    }
    if (up) {
      some.move(host.model, on_host.to, gpu.model, on_gpu.to);
    } else {
      some.move(gpu.model, on_gpu.to, host.model, on_host.to);
    }
  }

  /// The memory is the program's own when the call returns. What lies between the parts is left
  /// alone.
  void with_pageable(bool up, const arrays& some, std::size_t size, gpu_buffer& gpu, range on_gpu) {
    const bytes before = some_bytes(size);
    bytes memory = before, expected = before;
    if (enqueue(up, some, gpu.device, memory, gpu.buffer.slice(on_gpu.to, on_gpu.count))) {
      up ? some.move(before, 0, gpu.model, on_gpu.to)
         : some.move(gpu.model, on_gpu.to, expected, 0);
    }
    require(memory == expected, "parts gave pageable memory wrong bytes");
    std::fill(memory.begin(), memory.end(), std::uint8_t{0xee});
  }

  /// The container is destroyed before the device is done with it, or read when it is.
  void with_container(bool up, const arrays& some, std::size_t size, gpu_buffer& gpu,
                      range on_gpu) {
    const bytes before = some_bytes(size);
    bytes expected = before;
    std::pmr::vector<std::uint8_t> memory(before.begin(), before.end(), &m_patient);
    const auto to = gpu.buffer.slice(on_gpu.to, on_gpu.count);
    const auto done = enqueue(up, some, gpu.device, pinlane::pinned_span(memory), to);
    if (done) {
      up ? some.move(before, 0, gpu.model, on_gpu.to)
         : some.move(gpu.model, on_gpu.to, expected, 0);
      if (m_random.below(2) == 0) {
        return;
      }
      done->wait();
    }
    require(std::equal(memory.begin(), memory.end(), expected.begin(), expected.end()),
            "parts gave a container wrong bytes");
  }
};
