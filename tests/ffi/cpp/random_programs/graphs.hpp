// Captures and graphs: several at a time, with buffers that they share, lend, exchange and outlive.

#pragma once

#include "ends.hpp"

#include <stdexcept>

class graphs : protected ends {
protected:
  using ends::ends;

  void graph_step() {
    if (m_recorded.size() < most_recorded && m_random.below(4) == 0) {
      begin_capture();
    }
    for (std::size_t count = 1 + m_random.below(3); count > 0 && !m_recorded.empty(); --count) {
      const std::size_t number = m_random.below(m_recorded.size());
      if (m_recorded[number].capture) {
        step_of_capture(number);
      } else {
        step_of_graph(number);
      }
      keep_one_of_each();
    }
  }

  /// Destroys all, here or in host functions, or lends what it can, so that all buffers are the
  /// program's own.
  void end_graphs() {
    for (std::size_t number = m_recorded.size(); number-- > 0;) {
      const std::size_t how = m_random.below(4);
      if (how == 0) {
        destroy(number);
      } else if (how == 1 || !m_recorded[number].graph) {
        end_inside(number);
      } else {
        lend_all<host_buffer>(m_recorded[number]);
        lend_all<gpu_buffer>(m_recorded[number]);
      }
    }
    const auto stays = [&](const host_buffer& host) { return is_lent(host); };
    while (std::any_of(m_hosts.begin(), m_hosts.end(), stays)) {
      destroy(0);
    }
  }

private:
  void step_of_capture(std::size_t number) {
    switch (m_random.below(12)) {
    case 0:
      switch (m_random.below(6)) {
      case 0:
        return destroy(number);
      case 1:
        return end_inside(number);
      default:
        return keep_handle(m_recorded[number].capture);
      }
    case 1:
      return use_held(m_recorded[number]);
    case 2:
      return free_held(m_recorded[number]);
    case 3:
    case 4:
    case 5:
      return finish(m_recorded[number]);
    default:
      return capture_some(m_recorded[number]);
    }
  }

  void step_of_graph(std::size_t number) {
    switch (m_random.below(21)) {
    case 20:
      return end_inside(number);
    case 0:
      return destroy(number);
    case 1:
      return release_on_another_thread(number);
    case 2:
      return keep_handle(m_recorded[number].graph);
    case 3:
    case 4:
      return use_held(m_recorded[number]);
    case 5:
      return free_held(m_recorded[number]);
    case 6:
    case 7:
      return rebind<host_buffer>(m_recorded[number]);
    case 8:
    case 9:
      return rebind<gpu_buffer>(m_recorded[number]);
    case 10:
    case 11:
      return lend<host_buffer>(m_recorded[number]);
    case 12:
    case 13:
      return lend<gpu_buffer>(m_recorded[number]);
    default:
      return launch(m_recorded[number]);
    }
  }

  /// Through the C interface and back.
  template <class Owner>
  static void keep_handle(Owner& owner) {
    owner = Owner(owner.release());
  }

  template <class Buffer>
  void add_refusals_of_lent(statuses& wrong, recorded& of) {
    for (const slot<Buffer>& each : of.slots<Buffer>()) {
      if (!each.it) {
        add_refusal<Buffer>(wrong, of, each.name, each.is_written);
      }
    }
  }

  template <class Buffer>
  void take_lent(recorded& of) {
    for (slot<Buffer>& each : of.slots<Buffer>()) {
      if (!each.it) {
        each.it = take<Buffer>(each.name);
      }
    }
  }

  /// On any stream of the device, or on one of another device, which is refused. Then what was lent
  /// still is.
  void launch(recorded& of) {
    const bool elsewhere = m_devices.size() > 1 && m_random.below(12) == 0;
    const auto stream = stream_of(elsewhere ? (of.device + 1) % m_devices.size() : of.device);
    statuses wrong;
    add_refusals_of_lent<host_buffer>(wrong, of);
    add_refusals_of_lent<gpu_buffer>(wrong, of);
    if (elsewhere) {
      wrong.push_back(PINLANE_STATUS_WRONG_DEVICE);
    }
    const bool by_us = !of.is_joined || m_random.below(8) == 0;
    if (by_us && of.is_joined) {
      wrong.push_back(PINLANE_STATUS_UNSUPPORTED);
    }
    if (m_random.below(4) == 0) {
      stream.busy(std::chrono::microseconds(m_random.below(50)));
    }
    std::optional<pinlane::ticket> done;
    const bool is_launched =
        by_us ? launch_ours(of, stream, wrong, done) : launch_theirs(of, stream, wrong);
    if (!wrong.empty()) {
      return;
    }
    take_lent<host_buffer>(of);
    take_lent<gpu_buffer>(of);
    if (is_launched) {
      of.apply();
    }
    if (done && m_random.below(8) == 0) {
      done->wait();
    }
  }

  bool launch_ours(recorded& of, pinlane::stream_ref stream, const statuses& wrong,
                   std::optional<pinlane::ticket>& done) {
    const pinlane_status status = m_random.below(2) == 0
                                      ? of.graph.launch(std::nothrow, stream)
                                      : status_of([&] { done = of.graph.launch(stream); });
    expect(status, wrong, "graph::launch");
    return true;
  }

  /// The launch is other code's, which may throw before it or after it.
  bool launch_theirs(recorded& of, pinlane::stream_ref stream, const statuses& wrong) {
    const std::size_t throws = m_random.below(8);
    bool is_called = false, is_launched = false, has_thrown = false;
    pinlane_status status = PINLANE_STATUS_OK;
    try {
      status = status_of([&] {
        of.graph.launch_foreign(stream, [&](auto) {
          is_called = true;
          if (throws == 0) {
            throw std::runtime_error("before the launch");
          }
          of.others.launch(stream);
          is_launched = true;
          if (throws == 1) {
            throw std::runtime_error("after the launch");
          }
        });
      });
    } catch (const std::runtime_error&) {
      has_thrown = true;
    }
    expect(status, wrong, "graph::launch_foreign");
    require(is_called == wrong.empty() && has_thrown == (is_called && throws < 2),
            "launch_foreign called other code although it was refused, or lost its error");
    return is_launched;
  }

  /// A slot of the graph, or a handle that it may not know. None if no buffer has that handle.
  template <class Buffer>
  Buffer* some_buffer(recorded& of) {
    const auto& slots = of.slots<Buffer>();
    if (slots.empty() || m_random.below(8) == 0) {
      return &m_random.one_of(own<Buffer>());
    }
    const slot<Buffer>& some = slots[m_random.below(slots.size())];
    const auto found = find<Buffer>(some.name);
    return found.own ? &own<Buffer>()[*found.own] : found.held.get();
  }

  /// Lends a buffer to the program, which may use it as any other from now on.
  template <class Buffer>
  void lend(recorded& of) {
    Buffer* const some = some_buffer<Buffer>(of);
    if (some == nullptr) {
      return;
    }
    auto* const name = some->buffer.get();
    const std::size_t at = of.find<Buffer>(name);
    const bool is_named = at < of.slots<Buffer>().size();
    const statuses wrong(is_named ? 0 : 1, PINLANE_STATUS_INVALID_VALUE);
    expect(of.graph.lend(std::nothrow, some->buffer), wrong, "graph::lend");
    if (!is_named) {
      return;
    }
    let_go(std::exchange(of.slots<Buffer>()[at].it, nullptr));
    const auto found = find<Buffer>(name);
    if (found.own && m_random.below(4) != 0) {
      use_lent(own<Buffer>()[*found.own]);
    }
  }

  template <class Buffer>
  void lend_all(recorded& of) {
    for (slot<Buffer>& each : of.slots<Buffer>()) {
      if (each.it && each.it->buffer) {
        of.graph.lend(each.it->buffer);
        let_go(std::exchange(each.it, nullptr));
      }
    }
  }

  /// Gives it other content, or looks at what it has.
  void use_lent(host_buffer& host) {
    switch (m_random.below(4)) {
    case 0:
      return read(host);
    case 1: {
      const gpu_buffer& gpu = m_random.one_of(m_gpus);
      const range part = some_part(gpu.model.size(), host.model.size());
      stream_of(gpu.device)
          .download(gpu.buffer.slice(part.from, part.count),
                    host.buffer.slice(part.to, part.count));
      return move(gpu.model, host.model, part);
    }
    default:
      return write(host);
    }
  }

  void use_lent(gpu_buffer& gpu) {
    const auto stream = stream_of(gpu.device);
    switch (m_random.below(3)) {
    case 0:
      return fill(gpu);
    case 1: {
      const bytes data = some_bytes(gpu.model.size());
      stream.upload(data, gpu.buffer);
      gpu.model = data;
      return;
    }
    default: {
      bytes back(gpu.model.size());
      stream.download(gpu.buffer, back);
      require(back == gpu.model, "a buffer that a graph has lent has wrong bytes");
    }
    }
  }

  /// Exchanges a buffer for another, often a new one of the same size.
  template <class Buffer>
  void rebind(recorded& of) {
    Buffer* const old = some_buffer<Buffer>(of);
    if (old == nullptr) {
      return;
    }
    auto* const old_name = old->buffer.get();
    const auto [device, size] = look_at<Buffer>(old_name);
    const auto another = [&] {
      switch (m_random.below(8)) {
      case 0:
        return some_name<Buffer>(of);
      case 1:
        return m_random.one_of(own<Buffer>()).buffer.get();
      default:
        return new_buffer(slot<Buffer>(), device, size);
      }
    };
    auto* const new_name = another();
    const std::size_t at = of.find<Buffer>(old_name);
    auto& slots = of.slots<Buffer>();
    statuses wrong;
    if (at == slots.size() || of.find<Buffer>(new_name) < slots.size()) {
      wrong.push_back(PINLANE_STATUS_INVALID_VALUE);
    }
    if (at < slots.size()) {
      add_refusal<Buffer>(wrong, of, new_name, slots[at].is_written);
      if (!slots[at].it) {
        add_refusal<Buffer>(wrong, of, old_name, slots[at].is_written);
      }
      if (slots[at].is_fixed) {
        wrong.push_back(PINLANE_STATUS_UNSUPPORTED);
      }
    }
    const auto [new_device, new_size] = look_at<Buffer>(new_name);
    if (new_size != size) {
      wrong.push_back(PINLANE_STATUS_LENGTH_MISMATCH);
    }
    if (new_device != device) {
      wrong.push_back(PINLANE_STATUS_WRONG_DEVICE);
    }
    if (of.is_joined) {
      wrong.push_back(PINLANE_STATUS_UNSUPPORTED);
    }
    expect(rebind_handles(of.graph, old_name, new_name), wrong, "graph::rebind");
    if (!wrong.empty()) {
      return;
    }
    slots[at].name = new_name;
    let_go(std::exchange(slots[at].it, take<Buffer>(new_name)));
  }

  static pinlane_status rebind_handles(pinlane::graph& graph, pinlane_buffer* old,
                                       pinlane_buffer* replacement) {
    return pinlane_graph_rebind_buffer(graph.get(), old, replacement);
  }
  static pinlane_status rebind_handles(pinlane::graph& graph, pinlane_device_buffer* old,
                                       pinlane_device_buffer* replacement) {
    return pinlane_graph_rebind_device_buffer(graph.get(), old, replacement);
  }

  /// Calls with a buffer that is held: those that conflict with the work are refused.
  void use_held(recorded& of) {
    if (!of.hosts.empty() && m_random.below(2) == 0) {
      const auto& it = m_random.one_of(of.hosts).it;
      if (it && it->buffer) {
        use_held(*it, hold_of(it) == hold::alone);
      }
    } else if (!of.gpus.empty()) {
      const auto& it = m_random.one_of(of.gpus).it;
      if (it && it->buffer) {
        use_held(*it, hold_of(it) == hold::alone);
      }
    }
  }

  void use_held(host_buffer& host, bool is_alone) {
    const statuses busy(1, PINLANE_STATUS_BUSY), to_read(is_alone ? 1 : 0, PINLANE_STATUS_BUSY);
    gpu_buffer& gpu = m_random.one_of(m_gpus);
    const range part = some_part(host.model.size(), gpu.model.size());
    const auto stream = stream_of(gpu.device);
    switch (m_random.below(4)) {
    case 0: {
      pinlane::span<const std::uint8_t> elements;
      expect(host.buffer.read(std::nothrow, elements), to_read, "read of a held buffer");
      require(is_alone || std::equal(elements.begin(), elements.end(), host.model.begin(),
                                     host.model.end()),
              "a buffer that a graph reads has wrong bytes");
      return;
    }
    case 1: {
      pinlane::span<std::uint8_t> elements;
      return expect(host.buffer.write(std::nothrow, elements), busy, "write of a held buffer");
    }
    case 2:
      return expect(stream.download(std::nothrow, gpu.buffer.slice(part.to, part.count),
                                    host.buffer.slice(part.from, part.count)),
                    busy, "download to a held buffer");
    default:
      expect(stream.upload(std::nothrow, host.buffer.slice(part.from, part.count),
                           gpu.buffer.slice(part.to, part.count)),
             to_read, "upload of a held buffer");
      if (!is_alone) {
        move(host.model, gpu.model, part);
      }
    }
  }

  void use_held(gpu_buffer& gpu, bool is_alone) {
    const statuses busy(1, PINLANE_STATUS_BUSY), to_read(is_alone ? 1 : 0, PINLANE_STATUS_BUSY);
    host_buffer& host = m_random.one_of(m_hosts);
    const range part = some_part(gpu.model.size(), host.model.size());
    const auto stream = stream_of(gpu.device);
    const auto here = gpu.buffer.slice(part.from, part.count);
    const auto there = host.buffer.slice(part.to, part.count);
    const std::vector<std::size_t> from(1), to(1);
    switch (m_random.below(5)) {
    case 0:
      return expect(status_of([&] { stream.fill(here, std::uint8_t{1}); }), busy,
                    "fill of a held buffer");
    case 1:
      return expect(stream.upload(std::nothrow, there, here), busy, "upload to a held buffer");
    case 2:
      return expect(status_of([&] {
                      stream.upload_parts(there, here, pinlane::parts(from, to, part.count));
                    }),
                    busy, "upload of parts to a held buffer");
    case 3:
      expect(status_of(
                 [&] { stream.download_parts(here, there, pinlane::parts(from, to, part.count)); }),
             to_read, "download of parts of a held buffer");
      break;
    default:
      expect(stream.download(std::nothrow, here, there), to_read, "download of a held buffer");
    }
    if (!is_alone) {
      move(gpu.model, host.model, part);
    }
  }

  /// Destroys a buffer that is held. Its memory stays, and launches use it. The program's own
  /// memory cannot come back before the graph is destroyed.
  void free_held(recorded& of) {
    if (!of.hosts.empty() && m_random.below(2) == 0) {
      const auto& it = m_random.one_of(of.hosts).it;
      if (it && it->buffer && !it->is_registered && !is_lent(*it)) {
        it->buffer = {};
      } else if (it && it->buffer && it->is_registered) {
        expect(pinlane_buffer_free(it->buffer.get()), statuses(1, PINLANE_STATUS_BUSY),
               "the return of held memory");
      }
    } else if (!of.gpus.empty()) {
      const auto& it = m_random.one_of(of.gpus).it;
      if (it) {
        it->buffer = {};
      }
    }
    disturb_pool();
  }

  /// Writes to memory that the pool has: what is used must not be among it.
  void disturb_pool() {
    for (std::size_t count = m_random.below(4); count > 0; --count) {
      auto some = m_pool.alloc<std::uint8_t>(some_size());
      const auto elements = some.write();
      std::fill(elements.begin(), elements.end(), std::uint8_t{0xee});
    }
  }
};
