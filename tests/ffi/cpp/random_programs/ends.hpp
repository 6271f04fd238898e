// Graphs that end in host functions. Another thread destroys such a graph a little later: until
// then calls with its buffers may return BUSY, and what it names stays page-locked.

#pragma once

#include "captures.hpp"

#include <chrono>
#include <thread>

class ends : protected captures {
protected:
  using captures::captures;

  /// Ends a capture or a graph in a host function, and some of its buffers there, before it or
  /// after it. Then the program unlocks memory: the pool gives some back, and the program's own
  /// comes back.
  void end_inside(std::size_t number) {
    if (!is_alone(m_recorded[number])) {
      return destroy(number);
    }
    std::swap(m_recorded[number], m_recorded.back());
    auto ended = std::make_shared<recorded>(std::move(m_recorded.back()));
    m_recorded.pop_back();
    std::vector<std::shared_ptr<void>> before = lent_memory(*ended), after;
    const auto hosts = those_that_stay(ended->hosts, before, after);
    const auto gpus = those_that_stay(ended->gpus, before, after);
    m_random.one_of(m_streams)
        .stream
        .launch_host([ended = std::move(ended), before = std::move(before),
                      after = std::move(after)]() mutable noexcept {
          before.clear();
          ended->end();
          after.clear();
        })
        .wait();
    if (m_random.below(2) == 0) {
      m_pool.trim();
    }
    for (const auto& host : hosts) {
      get_back(host);
    }
    for (const auto& gpu : gpus) {
      get_back(gpu);
    }
    if (m_random.below(2) == 0) {
      m_pool.trim();
    }
  }

  /// A graph and all that it holds, destroyed in any order on a thread of the runtime.
  void release_on_another_thread(std::size_t number) {
    recorded& of = m_recorded[number];
    const auto is_of_pool = [](const host_slot& each) { return each.it && each.it->is_of_pool; };
    const auto is_held = [](const gpu_slot& each) { return each.it != nullptr; };
    if (!is_alone(of) || !std::all_of(of.hosts.begin(), of.hosts.end(), is_of_pool) ||
        !std::all_of(of.gpus.begin(), of.gpus.end(), is_held)) {
      return;
    }
    std::vector<std::shared_ptr<void>> all;
    for (const host_slot& each : of.hosts) {
      all.push_back(each.it);
    }
    for (const gpu_slot& each : of.gpus) {
      all.push_back(each.it);
    }
    of.hosts.clear();
    of.gpus.clear();
    std::swap(of, m_recorded.back());
    all.push_back(std::make_shared<recorded>(std::move(m_recorded.back())));
    m_recorded.pop_back();
    for (std::size_t at = 1; at < all.size(); ++at) {
      std::swap(all[at], all[m_random.below(at + 1)]);
    }
    m_random.below(2) == 0 ? release_at_once(std::move(all))
                           : release_in_host_function(std::move(all));
  }

private:
  /// Whether no other graph knows the buffers that it holds, and the memory that it lends can go.
  bool is_alone(recorded& of) {
    const auto is_its = [&](const auto& each) {
      return !each.it || (hold_of(each.it, &of) == hold::none && !is_lent(*each.it));
    };
    const auto can_go = [&](const host_slot& each) {
      const auto found = find<host_buffer>(each.name);
      return each.it || found.is_freed() || (found.own && m_hosts[*found.own].is_of_pool);
    };
    return std::all_of(of.hosts.begin(), of.hosts.end(), is_its) &&
           std::all_of(of.gpus.begin(), of.gpus.end(), is_its) &&
           std::all_of(of.hosts.begin(), of.hosts.end(), can_go);
  }

  /// Takes the page-locked memory that the graph lends. No other library may have it before the
  /// graph is destroyed.
  std::vector<std::shared_ptr<void>> lent_memory(const recorded& of) {
    std::vector<std::shared_ptr<void>> taken;
    for (const host_slot& each : of.hosts) {
      if (!each.it && !find<host_buffer>(each.name).is_freed()) {
        taken.push_back(take<host_buffer>(each.name));
      }
    }
    return taken;
  }

  static bool may_end_inside(const host_buffer& host) { return host.is_of_pool; }
  static bool may_end_inside(const gpu_buffer&) { return true; }

  /// Chooses which buffers a host function frees before their graph, and which after it. Gives the
  /// others.
  template <class Buffer>
  std::vector<std::shared_ptr<Buffer>> those_that_stay(std::vector<slot<Buffer>>& slots,
                                                       std::vector<std::shared_ptr<void>>& before,
                                                       std::vector<std::shared_ptr<void>>& after) {
    std::vector<std::shared_ptr<Buffer>> stay;
    for (slot<Buffer>& each : slots) {
      if (each.it && may_end_inside(*each.it) && m_random.below(3) != 0) {
        (m_random.below(2) == 0 ? before : after).push_back(std::move(each.it));
      } else if (each.it) {
        stay.push_back(std::move(each.it));
      }
    }
    slots.clear();
    return stay;
  }

  /// Takes the program's own memory back, or makes the buffer the program's.
  void get_back(const std::shared_ptr<host_buffer>& host) {
    if (host->buffer && host->is_registered && m_random.below(2) == 0) {
      until_it_is_free([&] { return pinlane_buffer_free(host->buffer.get()); });
      static_cast<void>(host->buffer.release());
      return take_back(std::move(*host));
    }
    if (host->buffer) {
      pinlane::span<std::uint8_t> elements;
      until_it_is_free([&] { return host->buffer.write(std::nothrow, elements); });
    }
    let_go(host);
  }

  void get_back(const std::shared_ptr<gpu_buffer>& gpu) {
    if (gpu->buffer) {
      const auto stream = stream_of(gpu->device);
      const auto nothing = gpu->buffer.slice(0, 0);
      until_it_is_free([&] { return status_of([&] { stream.fill(nothing, std::uint8_t{0}); }); });
    }
    let_go(gpu);
  }

  /// Calls until a graph that ends lets go of the buffer.
  template <class Call>
  void until_it_is_free(Call call) {
    pinlane_status status = call();
    for (int tries = 0; status == PINLANE_STATUS_BUSY && tries < 10'000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      status = call();
    }
    expect(status, {}, "a call with a buffer of a graph that has ended");
  }
};
