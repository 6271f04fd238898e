// The buffers that captures and graphs hold, and what a launch does to their models.
//
// A buffer that is held is not among the program's own: `m_hosts` and `m_gpus` have those that
// every call takes. It moves there when the last one that holds it lends it or is destroyed.

#pragma once

#include "libraries.hpp"

#include <memory>
#include <optional>

/// What a capture or a graph knows of one of its buffers.
template <class Buffer>
struct slot {
  using handle = std::remove_pointer_t<decltype(std::declval<Buffer>().buffer.get())>;

  /// As the buffer was captured. It may have been freed since.
  handle* name;
  /// Empty while it is lent.
  std::shared_ptr<Buffer> it;
  bool is_written = false;
  /// Whether other work than copies names it.
  bool is_fixed = false;
};

using host_slot = slot<host_buffer>;
using gpu_slot = slot<gpu_buffer>;

/// One operation that was captured. Buffers are numbers of slots.
struct captured_work {
  enum class kind { upload, download, copy, fill, foreign } what;
  std::size_t source, destination;
  range part;
  bytes pattern;
};

/// A capture, and later its graph.
struct recorded {
  recorded() = default;
  recorded(recorded&&) = default;
  recorded& operator=(recorded&&) = default;
  ~recorded() { end(); }

  /// The graph of other code cannot be launched any more when ours goes.
  void end() {
    others_capture = {};
    others = {};
    capture = {};
    graph = {};
  }

  std::size_t device = 0;
  std::vector<host_slot> hosts;
  std::vector<gpu_slot> gpus;
  std::vector<captured_work> work;
  pinlane::capture capture;
  pinlane::graph graph;
  /// The capture of other code that this one has joined, and its graph.
  pinlane::capture others_capture;
  pinlane::graph others;
  bool is_joined = false;

  template <class Buffer>
  std::vector<slot<Buffer>>& slots() {
    if constexpr (std::is_same_v<Buffer, host_buffer>) {
      return hosts;
    } else {
      return gpus;
    }
  }

  /// The slot of a handle, or the number of slots.
  template <class Buffer, class Handle>
  std::size_t find(const Handle* name) {
    const auto& all = slots<Buffer>();
    const auto is_it = [&](const auto& each) { return each.name == name; };
    return std::size_t(std::find_if(all.begin(), all.end(), is_it) - all.begin());
  }

  /// What a launch does.
  void apply() {
    using kind = captured_work::kind;
    for (const captured_work& each : work) {
      switch (each.what) {
      case kind::upload:
        move(hosts[each.source].it->model, gpus[each.destination].it->model, each.part);
        break;
      case kind::download:
        move(gpus[each.source].it->model, hosts[each.destination].it->model, each.part);
        break;
      case kind::copy:
        move(gpus[each.source].it->model, gpus[each.destination].it->model, each.part);
        break;
      case kind::fill:
        for (std::size_t at = 0; at < each.part.count; ++at) {
          gpus[each.destination].it->model[each.part.to + at] =
              each.pattern[at % each.pattern.size()];
        }
        break;
      case kind::foreign:
        break; // there is none
      }
    }
  }

  /// What the captured copies and fills move.
  [[nodiscard]] std::size_t moved() const {
    std::size_t sum = 0;
    for (const captured_work& each : work) {
      sum += each.part.count;
    }
    return sum;
  }

private:
  /// Of one buffer too.
  static void move(const bytes& from, bytes& to, range part) {
    std::copy_n(from.begin() + std::ptrdiff_t(part.from), part.count,
                to.begin() + std::ptrdiff_t(part.to));
  }
};

class holders : protected libraries {
protected:
  using libraries::libraries;

  /// How many captures and graphs there are at a time.
  static constexpr std::size_t most_recorded = 4;

  template <class Buffer>
  std::vector<Buffer>& own() {
    if constexpr (std::is_same_v<Buffer, host_buffer>) {
      return m_hosts;
    } else {
      return m_gpus;
    }
  }

  /// One buffer of each kind stays the program's own.
  void keep_one_of_each() {
    if (m_hosts.empty()) {
      new_host_buffer();
    }
    if (m_gpus.empty()) {
      new_gpu_buffer();
    }
  }

  enum class hold { none, shared, alone };

  /// How others than `but` hold a buffer.
  template <class Buffer>
  hold hold_of(const std::shared_ptr<Buffer>& it, const recorded* but = nullptr) {
    hold found = hold::none;
    for (recorded& each : m_recorded) {
      for (const slot<Buffer>& one : each.slots<Buffer>()) {
        if (&each != but && one.it == it) {
          found = one.is_written ? hold::alone : std::max(found, hold::shared);
        }
      }
    }
    return found;
  }

  /// Where the buffer of a handle is: among the program's own, or held, or nowhere if the handle
  /// was freed.
  template <class Buffer>
  struct place {
    std::optional<std::size_t> own;
    std::shared_ptr<Buffer> held;

    [[nodiscard]] bool is_freed() const { return !own && !held; }
  };

  template <class Buffer, class Handle>
  place<Buffer> find(const Handle* name) {
    for (std::size_t at = 0; at < own<Buffer>().size(); ++at) {
      if (own<Buffer>()[at].buffer.get() == name) {
        return {at, nullptr};
      }
    }
    for (recorded& each : m_recorded) {
      for (const slot<Buffer>& one : each.slots<Buffer>()) {
        if (one.it && one.it->buffer.get() == name) {
          return {std::nullopt, one.it};
        }
      }
    }
    return {};
  }

  /// Whether a graph takes the buffer back at its next launch. No other thread may free it then,
  /// because the program would not know when. Page-locked memory may not be freed at all, because
  /// the graph has its address.
  template <class Buffer>
  bool is_lent(const Buffer& buffer) {
    const auto lends = [&](recorded& by) {
      const std::size_t at = by.find<Buffer>(buffer.buffer.get());
      return at < by.slots<Buffer>().size() && !by.slots<Buffer>()[at].it;
    };
    return std::any_of(m_recorded.begin(), m_recorded.end(), lends);
  }

  /// How a capture or a graph that takes the buffer of a handle is refused, if it is.
  template <class Buffer, class Handle>
  void add_refusal(statuses& wrong, const recorded& by, const Handle* name, bool writes) {
    const place<Buffer> found = find<Buffer>(name);
    if (found.is_freed()) {
      wrong.push_back(PINLANE_STATUS_INVALID_HANDLE);
    } else if (found.held) {
      const hold others = hold_of(found.held, &by);
      if (others == hold::alone || (others == hold::shared && writes)) {
        wrong.push_back(PINLANE_STATUS_BUSY);
      }
    }
  }

  /// A buffer that is taken is no longer the program's own.
  template <class Buffer, class Handle>
  std::shared_ptr<Buffer> take(const Handle* name) {
    const place<Buffer> found = find<Buffer>(name);
    if (found.held) {
      return found.held;
    }
    auto& all = own<Buffer>();
    std::swap(all[*found.own], all.back());
    auto taken = std::make_shared<Buffer>(std::move(all.back()));
    all.pop_back();
    return taken;
  }

  /// The program's own again, if nothing else holds it. If its handle was freed, it is gone.
  template <class Buffer>
  void let_go(std::shared_ptr<Buffer> it) {
    if (!it || hold_of(it) != hold::none) {
      return;
    }
    if (it->buffer) {
      own<Buffer>().push_back(std::move(*it));
    } else {
      take_back(std::move(*it));
    }
  }

  /// Destroys a capture or a graph.
  void destroy(std::size_t number) {
    std::swap(m_recorded[number], m_recorded.back());
    recorded gone = std::move(m_recorded.back());
    m_recorded.pop_back();
    std::vector<std::shared_ptr<host_buffer>> hosts;
    std::vector<std::shared_ptr<gpu_buffer>> gpus;
    for (const host_slot& each : gone.hosts) {
      hosts.push_back(each.it);
    }
    for (const gpu_slot& each : gone.gpus) {
      gpus.push_back(each.it);
    }
    gone.end();
    gone.hosts.clear();
    gone.gpus.clear();
    for (auto& each : hosts) {
      let_go(std::move(each));
    }
    for (auto& each : gpus) {
      let_go(std::move(each));
    }
  }

  void free_host() {
    free_one(m_hosts, [&](const host_buffer& host) { return !is_lent(host); });
  }
  void some_host_as_tensor() {
    host_buffer& host = m_random.one_of(m_hosts);
    if (!is_lent(host)) {
      host_as_tensor(host);
    }
  }
  void free_gpu() {
    free_one(m_gpus, [](const gpu_buffer&) { return true; });
  }

  std::vector<recorded> m_recorded;
};
