// Captures and graphs. The model knows which buffers a launch writes, but not what.

#pragma once

#include "copies.hpp"

inline pinlane_status capture_begin(frame& f) {
  const argument device = f.any(kind::device);
  return pinlane_capture_begin(device, f.made<pinlane_capture>(kind::capture));
}

/// Mostly of a stream that is not being captured, which the call must refuse.
inline pinlane_status capture_join(frame& f) {
  const argument stream = f.any(kind::stream);
  f.may_refuse = true;
  return pinlane_capture_join(stream, f.made<pinlane_capture>(kind::capture));
}

/// Records that the work of a capture writes a buffer.
inline void will_write(frame& f, pinlane_status status, const void* capture, kind which,
                       const void* buffer) {
  const std::lock_guard<std::mutex> guard(f.w.lock);
  object* const found = f.w.find(kind::capture, capture);
  if (found != nullptr && (status == PINLANE_STATUS_OK || f.w.faulty)) {
    found->writes.emplace_back(which, buffer);
  }
}

/// A capture that has failed refuses everything.
inline argument some_capture(frame& f) {
  f.may_refuse = f.w.captured;
  return f.any(kind::capture);
}

inline pinlane_status capture_upload(frame& f) {
  const argument capture = some_capture(f), from = f.any(kind::buffer), to = f.any(kind::gpu);
  const part p = f.some_part(f.w.size_of(kind::buffer, from), f.w.size_of(kind::gpu, to));
  const pinlane_status status = pinlane_capture_upload(capture, from, p.from, to, p.to, p.bytes);
  will_write(f, status, capture, kind::gpu, to);
  return status;
}

inline pinlane_status capture_download(frame& f) {
  const argument capture = some_capture(f), from = f.any(kind::gpu), to = f.any(kind::buffer);
  const part p = f.some_part(f.w.size_of(kind::gpu, from), f.w.size_of(kind::buffer, to));
  const pinlane_status status = pinlane_capture_download(capture, from, p.from, to, p.to, p.bytes);
  will_write(f, status, capture, kind::buffer, to);
  return status;
}

inline pinlane_status capture_copy(frame& f) {
  const argument capture = some_capture(f), from = f.any(kind::gpu), to = f.any(kind::gpu);
  const part p = f.some_part(f.w.size_of(kind::gpu, from), f.w.size_of(kind::gpu, to));
  f.may_refuse = true; // the two may overlap, as parts of one memory
  const pinlane_status status = pinlane_capture_copy(capture, from, p.from, to, p.to, p.bytes);
  will_write(f, status, capture, kind::gpu, to);
  return status;
}

inline pinlane_status capture_fill(frame& f) {
  const argument capture = some_capture(f), to = f.any(kind::gpu);
  const std::size_t length = 1 + f.in.below(65);
  const std::vector<std::uint8_t> pattern(66, f.in.byte());
  const std::uint8_t* const given = f.in.rarely(8) ? nullptr : f.array(pattern);
  f.must_fail |= given == nullptr;
  const part p = f.some_part(f.w.size_of(kind::gpu, to));
  f.must_fail |= p.bytes > 0 && (length > 64 || p.bytes % length != 0);
  const pinlane_status status = pinlane_capture_fill(capture, to, p.to, p.bytes, given, length);
  will_write(f, status, capture, kind::gpu, to);
  return status;
}

/// Of a capture of other code it is refused.
inline pinlane_status capture_branch(frame& f) {
  const argument capture = some_capture(f);
  f.may_refuse = true;
  return pinlane_capture_branch(capture, f.in.below(4));
}

/// No work is enqueued.
inline pinlane_status capture_foreign(frame& f) {
  const argument capture = some_capture(f);
  std::vector<pinlane_use> uses(f.in.below(4));
  for (pinlane_use& use : uses) {
    use = {};
    use.access = f.in.byte() % 2;
    if (f.in.byte() % 2 == 0) {
      use.buffer = f.or_null(kind::buffer);
      f.must_fail |= use.buffer == nullptr;
    } else {
      use.device_buffer = f.or_null(kind::gpu);
      f.must_fail |= use.device_buffer == nullptr;
    }
    use.flags = f.in.rarely(16) ? 1 : 0;
    f.must_fail |= use.flags != 0;
  }
  const pinlane_use* const given = f.array(uses);
  return pinlane_capture_foreign(capture, given, uses.size(), f.out<void*>());
}

inline pinlane_status capture_finish(frame& f) {
  const argument capture = some_capture(f);
  auto** const graph = f.made<pinlane_graph>(kind::graph);
  const bool goes_on = f.must_fail;
  const pinlane_status status = pinlane_capture_finish(capture, graph);
  if (!goes_on && status != PINLANE_STATUS_BUSY && status != PINLANE_STATUS_INVALID_HANDLE) {
    object about;
    about.writes = f.w.remove(kind::capture, capture.value).writes;
    f.made_as(std::move(about));
  }
  return status;
}

/// Forgets the contents of what a launch writes.
inline void launched(frame& f, pinlane_status status, const void* graph) {
  if (f.w.threaded || (status != PINLANE_STATUS_OK && !f.w.faulty)) {
    return;
  }
  const object* const found = f.w.find(kind::graph, graph);
  for (const auto& [which, buffer] : found == nullptr ? object().writes : found->writes) {
    if (object* const written = f.w.find(which, buffer)) {
      std::fill(written->bytes.begin(), written->bytes.end(), unknown);
    }
  }
}

inline pinlane_status graph_launch(frame& f) {
  const argument graph = f.any(kind::graph), stream = f.any(kind::stream);
  f.may_refuse = true; // a buffer that was lent may have been freed
  auto** const ticket = f.ticket();
  const pinlane_status status = pinlane_graph_launch(graph, stream, ticket);
  launched(f, status, graph);
  return status;
}

inline pinlane_status graph_foreign_begin(frame& f) {
  const argument graph = f.any(kind::graph), stream = f.any(kind::stream);
  f.may_refuse = true;
  {
    // As in foreign_begin: on such a stream only its thread can end it.
    const std::lock_guard<std::mutex> guard(f.w.lock);
    const object* const found = f.w.find(kind::stream, stream);
    if (f.w.calm && found != nullptr && found->is_of_one_thread) {
      f.must_fail = false;
      return PINLANE_STATUS_OK;
    }
  }
  auto** const foreign = f.made<pinlane_foreign>(kind::foreign);
  const pinlane_status status = pinlane_graph_foreign_begin(graph, stream, foreign);
  launched(f, status, graph);
  return status;
}

inline pinlane_status graph_lend_buffer(frame& f) {
  const argument graph = f.any(kind::graph), buffer = f.any(kind::buffer);
  f.may_refuse = true; // the graph may not name it
  return pinlane_graph_lend_buffer(graph, buffer);
}

inline pinlane_status graph_lend_device_buffer(frame& f) {
  const argument graph = f.any(kind::graph), buffer = f.any(kind::gpu);
  f.may_refuse = true;
  return pinlane_graph_lend_device_buffer(graph, buffer);
}

template <class Buffer>
pinlane_status graph_rebind(frame& f, kind which,
                            pinlane_status (*rebind)(pinlane_graph*, Buffer*, Buffer*)) {
  const argument graph = f.any(kind::graph), old = f.any(which), replacement = f.any(which);
  f.may_refuse = true;
  const pinlane_status status = rebind(graph, old, replacement);
  const std::lock_guard<std::mutex> guard(f.w.lock);
  object* const found = f.w.find(kind::graph, graph);
  if (found != nullptr && (status == PINLANE_STATUS_OK || f.w.faulty)) {
    found->writes.emplace_back(which, replacement.value);
  }
  return status;
}

inline pinlane_status graph_rebind_buffer(frame& f) {
  return graph_rebind<pinlane_buffer>(f, kind::buffer, pinlane_graph_rebind_buffer);
}

inline pinlane_status graph_rebind_device_buffer(frame& f) {
  return graph_rebind<pinlane_device_buffer>(f, kind::gpu, pinlane_graph_rebind_device_buffer);
}
