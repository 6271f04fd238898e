// Lists of pairs, which are copied several times.

#pragma once

#include "copies.hpp"

inline pinlane_status pairs_create(frame& f) {
  std::vector<pinlane_pair> pairs(f.in.below(6));
  object about;
  for (pinlane_pair& pair : pairs) {
    pair = {};
    const argument buffer = f.or_null(kind::buffer), gpu = f.any(kind::gpu);
    const bool failed = f.must_fail;
    part p = f.some_part(f.w.size_of(kind::buffer, buffer), f.w.size_of(kind::gpu, gpu));
    if (buffer.value == nullptr) { // an empty pair
      p = part{};
      f.must_fail = failed;
    }
    pair.buffer = buffer;
    pair.buffer_offset = p.from;
    pair.device_buffer = gpu;
    pair.device_offset = p.to;
    pair.bytes = p.bytes;
    // The memory is named twice, or is not a pool's. A free of a pool's memory could not be
    // detected.
    pair.pinned = f.in.rarely(4) ? f.pageable.data() : nullptr;
    f.must_fail |= pair.pinned != nullptr && buffer.value != nullptr;
    about.pairs.push_back({buffer.value, gpu.value, p.from, p.to, p.bytes});
  }
  const auto* const options = some_route(f);
  const auto* const given = f.array(pairs);
  auto** const list = f.made<pinlane_pairs>(kind::pairs, std::move(about));
  return pinlane_pairs_create(given, pairs.size(), options, list);
}

/// Copies the pairs of a list. The call must detect freed buffers.
inline pinlane_status some_pairs(frame& f, bool up) {
  const argument stream = f.any(kind::stream), list = f.any(kind::pairs);
  std::vector<chosen_pair> pairs;
  {
    const std::lock_guard<std::mutex> guard(f.w.lock);
    const object* const found = f.w.find(kind::pairs, list);
    pairs = found == nullptr ? pairs : found->pairs;
    for (const chosen_pair& pair : pairs) {
      const bool has_host = pair.host == nullptr || f.w.find(kind::buffer, pair.host) != nullptr;
      const bool are_there = has_host && f.w.find(kind::gpu, pair.gpu) != nullptr;
      f.must_fail |= !are_there && !f.w.threaded;
    }
  }
  std::vector<arrival> arrivals;
  for (const chosen_pair& pair : pairs) {
    f.on_one_device(stream, pair.gpu);
    if (up) {
      contents bytes = f.known(kind::buffer, pair.host, pair.host_at, pair.bytes);
      arrivals.push_back({pair.gpu, pair.gpu_at, nullptr, std::move(bytes)});
    } else {
      contents bytes = f.known(kind::gpu, pair.gpu, pair.gpu_at, pair.bytes);
      arrivals.push_back({pair.host, pair.host_at, nullptr, std::move(bytes)});
    }
  }
  f.must_fail |= overlap(arrivals);
  auto** const ticket = f.ticket();
  const pinlane_status status = up ? pinlane_upload_pairs(stream, list, ticket)
                                   : pinlane_download_pairs(stream, list, ticket);
  arrived(f, status, up ? kind::gpu : kind::buffer, arrivals);
  return status;
}

inline pinlane_status upload_pairs(frame& f) { return some_pairs(f, true); }
inline pinlane_status download_pairs(frame& f) { return some_pairs(f, false); }
