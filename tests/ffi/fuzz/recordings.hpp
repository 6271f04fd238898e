// Recordings, which must not change the behaviour of the program.

#pragma once

#include "copies.hpp"

inline pinlane_status recording_create(frame& f) {
  auto** const recording = f.made<pinlane_recording>(kind::recording);
  return pinlane_recording_create(recording);
}

/// The call must fail unless the recording has the state that it `wants`: stopped or not.
inline void want_stopped(frame& f, const void* recording, bool wants) {
  const std::lock_guard<std::mutex> guard(f.w.lock);
  const object* const found = f.w.find(kind::recording, recording);
  f.must_fail |= !f.w.threaded && found != nullptr && found->is_stopped != wants;
}

inline pinlane_status device_record(frame& f) {
  const argument device = f.any(kind::device), recording = f.any(kind::recording);
  want_stopped(f, recording, false);
  f.may_refuse = true; // another recording may note the device
  return pinlane_device_record(device, recording);
}

inline pinlane_status recording_stop(frame& f) {
  const argument recording = f.any(kind::recording);
  const pinlane_status status = pinlane_recording_stop(recording);
  if (status == PINLANE_STATUS_OK) {
    const std::lock_guard<std::mutex> guard(f.w.lock);
    if (object* const found = f.w.find(kind::recording, recording)) {
      found->is_stopped = true;
    }
  }
  return status;
}

inline pinlane_status recording_counts(frame& f) {
  const argument recording = f.any(kind::recording);
  want_stopped(f, recording, true);
  f.may_refuse |= f.w.threaded; // it may be running
  auto* const spans = f.optional_out<std::size_t>();
  auto* const missing = f.optional_out<std::size_t>();
  return pinlane_recording_counts(recording, spans, missing);
}

/// Mostly writes to a place that does not exist.
inline pinlane_status recording_write(frame& f) {
  const argument recording = f.any(kind::recording);
  want_stopped(f, recording, true);
  f.may_refuse |= f.w.threaded;
  const std::int32_t format = f.in.rarely(16) ? 2 : f.in.byte() % 2;
  const char* const paths[] = {nullptr, "", "/pinlane/no/such/folder/file", "/"};
  const bool is_wrong = f.in.rarely(32);
  const char* const path = is_wrong ? paths[f.in.below(4)] : "/dev/null";
  f.must_fail |= is_wrong || format == 2;
  return pinlane_recording_write(recording, format, path);
}
