// Captures: copies, fills and the program's own work, on any branch, and what is refused.

#pragma once

#include "held.hpp"

class captures : protected holders {
protected:
  using holders::holders;

  /// Sometimes other code has begun it.
  void begin_capture() {
    recorded made;
    made.device = m_random.below(m_devices.size());
    const pinlane::device& device = m_devices[made.device];
    if (m_random.below(4) != 0) {
      made.capture = pinlane::capture(device);
    } else {
      made.others_capture = pinlane::capture(device);
      made.others_capture.foreign(std::vector<pinlane::use>(), [&](auto native) {
        const auto captured = pinlane::stream::from_native_handle(device, native);
        made.capture = pinlane::capture::join(captured);
      });
      made.is_joined = true;
    }
    m_recorded.push_back(std::move(made));
    capture_some(m_recorded.back());
  }

  void finish(recorded& of) {
    of.graph = of.capture.finish();
    require(!of.capture, "a capture that was finished is not empty");
    if (of.is_joined) {
      of.others = of.others_capture.finish();
    }
    const auto is_foreign = [](const captured_work& work) {
      return work.what == captured_work::kind::foreign;
    };
    if (std::none_of(of.work.begin(), of.work.end(), is_foreign)) {
      require(of.graph.bytes() == of.moved(), "a graph moves another number of bytes");
    }
  }

  /// A buffer that the capture has, one of the program's own, or one that may be refused. Buffers
  /// of other devices are rare.
  template <class Buffer>
  auto* some_name(recorded& of) {
    using handle = typename slot<Buffer>::handle;
    std::vector<handle*> names;
    for (const slot<Buffer>& each : of.slots<Buffer>()) {
      names.push_back(each.name);
    }
    if (m_random.below(3) == 0 || names.empty()) {
      names.clear();
      for (const Buffer& each : own<Buffer>()) {
        names.push_back(each.buffer.get());
      }
      if (m_random.below(4) == 0) {
        for (recorded& other : m_recorded) {
          for (const slot<Buffer>& each : other.slots<Buffer>()) {
            names.push_back(each.name);
          }
        }
      }
      if constexpr (std::is_same_v<Buffer, gpu_buffer>) {
        const auto is_elsewhere = [&](handle* name) {
          const std::size_t device = look_at<Buffer>(name).first;
          return device != of.device && m_random.below(8) != 0;
        };
        names.erase(std::remove_if(names.begin(), names.end(), is_elsewhere), names.end());
        if (names.empty()) {
          return new_buffer(gpu_slot(), of.device, some_size());
        }
      }
    }
    return m_random.one_of(names);
  }

  /// The device and the size of the buffer of a handle, also of one that was freed.
  template <class Buffer, class Handle>
  std::pair<std::size_t, std::size_t> look_at(const Handle* name) {
    const auto of = [](const Buffer& buffer) {
      if constexpr (std::is_same_v<Buffer, gpu_buffer>) {
        return std::pair(buffer.device, buffer.model.size());
      } else {
        return std::pair(std::size_t{0}, buffer.model.size());
      }
    };
    const auto found = find<Buffer>(name);
    if (found.own) {
      return of(own<Buffer>()[*found.own]);
    }
    return found.held ? of(*found.held) : std::pair(std::size_t{0}, std::size_t{0});
  }

  /// A new buffer of that size, among the program's own.
  pinlane_buffer* new_buffer(const host_slot&, std::size_t, std::size_t size) {
    m_hosts.push_back({{}, m_pool.alloc<std::uint8_t>(size), some_bytes(size), nullptr, true});
    host_buffer& made = m_hosts.back();
    const auto elements = made.buffer.write();
    std::copy(made.model.begin(), made.model.end(), elements.begin());
    return made.buffer.get();
  }

  pinlane_device_buffer* new_buffer(const gpu_slot&, std::size_t device, std::size_t size) {
    gpu_buffer made{m_devices[device].alloc<std::uint8_t>(size), some_bytes(size), device};
    stream_of(device).upload(made.model, made.buffer);
    m_gpus.push_back(std::move(made));
    return m_gpus.back().buffer.get();
  }

  /// Captures some work, on any branch.
  void capture_some(recorded& of) {
    for (std::size_t count = 1 + m_random.below(4); count > 0; --count) {
      if (m_random.below(3) == 0) {
        const auto branch = std::uint32_t(m_random.below(4));
        const statuses wrong(of.is_joined ? 1 : 0, PINLANE_STATUS_UNSUPPORTED);
        expect(status_of([&] { of.capture.branch(branch); }), wrong, "capture::branch");
      }
      switch (m_random.below(10)) {
      case 0:
      case 1:
      case 2:
        capture_across(of, true);
        break;
      case 3:
      case 4:
      case 5:
        capture_across(of, false);
        break;
      case 6:
      case 7:
        capture_copy(of);
        break;
      case 8:
        capture_fill(of);
        break;
      default:
        capture_foreign(of);
      }
      keep_one_of_each();
    }
  }

private:
  /// The slot of a buffer that work has named: a new one if it was not named before.
  template <class Buffer, class Handle>
  std::size_t note(recorded& of, Handle* name, bool writes, bool is_fixed) {
    auto& slots = of.slots<Buffer>();
    const std::size_t at = of.find<Buffer>(name);
    if (at == slots.size()) {
      slots.push_back({name, take<Buffer>(name)});
    }
    slots[at].is_written |= writes;
    slots[at].is_fixed |= is_fixed;
    return at;
  }

  struct sides {
    std::size_t from, from_count, to, to_count;
  };

  /// The two sides of a copy. Sometimes they are wrong; then adds how that is refused.
  sides some_sides(std::size_t from_size, std::size_t to_size, statuses& wrong) {
    const range part = some_part(from_size, to_size);
    sides made{part.from, part.count, part.to, part.count};
    if (m_random.below(12) != 0) {
      return made;
    }
    const std::size_t far = m_random.below(2) == 0 ? SIZE_MAX - m_random.below(9) : SIZE_MAX / 2;
    switch (m_random.below(4)) {
    case 0:
      made.from_count += 1;
      wrong.push_back(PINLANE_STATUS_LENGTH_MISMATCH);
      break;
    case 1:
      made.from = from_size - made.from_count + 1;
      wrong.push_back(PINLANE_STATUS_OUT_OF_RANGE);
      break;
    case 2:
      made.to = m_random.below(2) == 0 ? to_size - made.to_count + 1 : far;
      wrong.push_back(PINLANE_STATUS_OUT_OF_RANGE);
      break;
    default:
      made.from_count = made.to_count = std::max(from_size, to_size) + 1;
      wrong.push_back(PINLANE_STATUS_OUT_OF_RANGE);
    }
    return made;
  }

  void capture_across(recorded& of, bool up) {
    pinlane_buffer* const host = some_name<host_buffer>(of);
    pinlane_device_buffer* const gpu = some_name<gpu_buffer>(of);
    const std::size_t host_size = look_at<host_buffer>(host).second;
    const auto [device, gpu_size] = look_at<gpu_buffer>(gpu);
    statuses wrong;
    add_refusal<host_buffer>(wrong, of, host, !up);
    add_refusal<gpu_buffer>(wrong, of, gpu, up);
    if (device != of.device) {
      wrong.push_back(PINLANE_STATUS_WRONG_DEVICE);
    }
    const sides part =
        up ? some_sides(host_size, gpu_size, wrong) : some_sides(gpu_size, host_size, wrong);
    const range moved{part.from, part.to, part.from_count};
    if (up) {
      const pinlane::pinned_slice<const std::uint8_t> from(host, part.from, part.from_count);
      const pinlane::device_slice<std::uint8_t> to(gpu, part.to, part.to_count);
      expect(status_of([&] { of.capture.upload(from, to); }), wrong, "capture::upload");
    } else {
      const pinlane::device_slice<const std::uint8_t> from(gpu, part.from, part.from_count);
      const pinlane::pinned_slice<std::uint8_t> to(host, part.to, part.to_count);
      expect(status_of([&] { of.capture.download(from, to); }), wrong, "capture::download");
    }
    if (!wrong.empty()) {
      return;
    }
    const std::size_t host_at = note<host_buffer>(of, host, !up, false);
    const std::size_t gpu_at = note<gpu_buffer>(of, gpu, up, false);
    if (up) {
      of.work.push_back({captured_work::kind::upload, host_at, gpu_at, moved, {}});
    } else {
      of.work.push_back({captured_work::kind::download, gpu_at, host_at, moved, {}});
    }
  }

  /// Also within one buffer.
  void capture_copy(recorded& of) {
    pinlane_device_buffer* const source = some_name<gpu_buffer>(of);
    pinlane_device_buffer* const target =
        m_random.below(16) == 0 ? source : some_name<gpu_buffer>(of);
    const auto [source_device, source_size] = look_at<gpu_buffer>(source);
    const auto [target_device, target_size] = look_at<gpu_buffer>(target);
    statuses wrong;
    add_refusal<gpu_buffer>(wrong, of, source, source == target);
    add_refusal<gpu_buffer>(wrong, of, target, true);
    if (source_device != of.device || target_device != of.device) {
      wrong.push_back(PINLANE_STATUS_WRONG_DEVICE);
    }
    const sides part = some_sides(source_size, target_size, wrong);
    const bool is_apart = part.from + part.from_count <= part.to ||
                          part.to + part.to_count <= part.from || part.from_count == 0;
    if (source == target && !is_apart) {
      wrong.push_back(PINLANE_STATUS_INVALID_VALUE);
    }
    const pinlane::device_slice<const std::uint8_t> from(source, part.from, part.from_count);
    const pinlane::device_slice<std::uint8_t> to(target, part.to, part.to_count);
    expect(status_of([&] { of.capture.copy(from, to); }), wrong, "capture::copy");
    if (wrong.empty()) {
      const std::size_t source_at = note<gpu_buffer>(of, source, false, false);
      const std::size_t target_at = note<gpu_buffer>(of, target, true, false);
      const range moved{part.from, part.to, part.from_count};
      of.work.push_back({captured_work::kind::copy, source_at, target_at, moved, {}});
    }
  }

  /// One byte in C++, patterns in C.
  void capture_fill(recorded& of) {
    pinlane_device_buffer* const gpu = some_name<gpu_buffer>(of);
    const auto [device, size] = look_at<gpu_buffer>(gpu);
    const bytes pattern = some_bytes(m_random.below(3) == 0 ? 1 : 1 + m_random.below(65));
    const std::size_t length = pattern.size();
    std::size_t count = length * m_random.below(size / length + 1);
    const std::size_t offset = m_random.below(size - count + 1);
    count += m_random.below(20) == 0 ? 1 : 0;
    statuses wrong;
    add_refusal<gpu_buffer>(wrong, of, gpu, true);
    if (device != of.device) {
      wrong.push_back(PINLANE_STATUS_WRONG_DEVICE);
    }
    if (count > size - offset) {
      wrong.push_back(PINLANE_STATUS_OUT_OF_RANGE);
    }
    if (count % length != 0) {
      wrong.push_back(PINLANE_STATUS_LENGTH_MISMATCH);
    }
    if (count > 0 && length > 64) {
      wrong.push_back(PINLANE_STATUS_UNSUPPORTED);
    }
    const pinlane_status status = status_of([&] {
      if (length == 1) {
        of.capture.fill(pinlane::device_slice<std::uint8_t>(gpu, offset, count), pattern[0]);
      } else {
        pinlane::detail::check(
            pinlane_capture_fill(of.capture.get(), gpu, offset, count, pattern.data(), length));
      }
    });
    expect(status, wrong, "capture::fill");
    if (wrong.empty()) {
      const std::size_t at = note<gpu_buffer>(of, gpu, true, true);
      of.work.push_back({captured_work::kind::fill, 0, at, {0, offset, count}, pattern});
    }
  }

  /// Names buffers. There is no work: the program has no kernels.
  void capture_foreign(recorded& of) {
    pinlane_buffer* const host = some_name<host_buffer>(of);
    pinlane_device_buffer* const gpu = some_name<gpu_buffer>(of);
    const bool writes_host = m_random.below(2) == 0, writes_gpu = m_random.below(2) == 0;
    const auto access = [](bool writes) {
      return writes ? PINLANE_ACCESS_WRITE : PINLANE_ACCESS_READ;
    };
    const std::vector<pinlane::use> uses{pinlane::detail::use_of(host, access(writes_host)),
                                         pinlane::detail::use_of(gpu, access(writes_gpu))};
    statuses wrong;
    add_refusal<host_buffer>(wrong, of, host, writes_host);
    add_refusal<gpu_buffer>(wrong, of, gpu, writes_gpu);
    bool is_called = false;
    const pinlane_status status =
        status_of([&] { of.capture.foreign(uses, [&](auto) { is_called = true; }); });
    expect(status, wrong, "capture::foreign");
    require(is_called == wrong.empty(), "a refused call captured the program's own work");
    if (wrong.empty()) {
      const std::size_t host_at = note<host_buffer>(of, host, writes_host, true);
      const std::size_t gpu_at = note<gpu_buffer>(of, gpu, writes_gpu, true);
      of.work.push_back({captured_work::kind::foreign, host_at, gpu_at, {}, {}});
    }
  }
};
