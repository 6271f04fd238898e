// Calls that make, query and free devices, machines, streams and tickets.

#pragma once

#include "frame.hpp"

/// Frees a handle, which may be NULL. The last one of its kind mostly stays.
template <class T>
pinlane_status free_one(frame& f, kind which, pinlane_status (*free)(T*)) {
  const bool keep = !f.in.rarely(24) && f.w.count(which) < 2;
  const argument handle = keep ? argument{nullptr} : f.or_null(which);
  f.w.before_free(which, handle);
  const pinlane_status status = free(handle);
  f.freed(status, which, handle);
  return status;
}

/// A query of an object with a single number as the result.
template <class T, class R>
pinlane_status ask(frame& f, kind which, pinlane_status (*call)(const T*, R*)) {
  const argument handle = f.any(which);
  return call(handle, f.out<R>());
}

/// The numbers of devices of one machine.
constexpr int devices_of_a_machine = 64;
inline int machine_of(int device) { return device / devices_of_a_machine; }

// -- Devices and machines ------------------------------------------------------------------------

inline pinlane_status device_open(frame& f) {
  const std::int32_t ordinal = f.in.byte() % 2 == 0 ? -1 : 9999; // no GPU has such a number
  f.must_fail = true;
  return pinlane_device_open(ordinal, f.out<pinlane_device*>());
}

inline pinlane_status device_open_or_emulated(frame& f) {
  std::int32_t gpus = 0;
  const pinlane_status status = pinlane_device_count(&gpus);
  if (status != PINLANE_STATUS_OK || gpus > 0) { // do not experiment on a GPU
    return status;
  }
  object about;
  about.device = devices_of_a_machine * f.w.next_unknown_machine++;
  return pinlane_device_open_or_emulated(f.made<pinlane_device>(kind::device, std::move(about)));
}

inline pinlane_status device_clone(frame& f) {
  const argument device = f.any(kind::device);
  object about;
  about.device = f.w.device_of(kind::device, device);
  return pinlane_device_clone(device, f.made<pinlane_device>(kind::device, std::move(about)));
}

inline pinlane_status device_is_same(frame& f) {
  const argument device = f.any(kind::device), other = f.any(kind::device);
  const int one = f.w.device_of(kind::device, device), two = f.w.device_of(kind::device, other);
  auto* const same = f.out<std::int32_t>();
  const pinlane_status status = pinlane_device_is_same(device, other, same);
  require(status != PINLANE_STATUS_OK || f.w.threaded || *same == (one == two ? 1 : 0),
          "devices are taken for one, or one for two");
  return status;
}

inline pinlane_status device_count(frame& f) { return pinlane_device_count(f.out<std::int32_t>()); }

inline pinlane_status device_name(frame& f) {
  const argument device = f.any(kind::device);
  std::size_t capacity = 0;
  char* const text = f.text_out(capacity);
  f.must_fail |= text == nullptr || capacity == 0;
  return pinlane_device_name(device, text, capacity);
}

inline pinlane_status device_memory_info(frame& f) {
  const argument device = f.any(kind::device);
  auto* const free = f.out<std::size_t>();
  auto* const total = f.out<std::size_t>();
  return pinlane_device_memory_info(device, free, total);
}

inline pinlane_status device_set_staging(frame& f) {
  const argument device = f.any(kind::device);
  pinlane_staging_options options = PINLANE_STAGING_OPTIONS_INIT;
  const std::size_t sizes[] = {4096, 8192, 65536, 0, 1024, 1, SIZE_MAX};
  const std::size_t most = f.in.rarely(64) ? 7 : 3;
  options.ring_bytes = sizes[2 + f.in.below(most - 2)];
  options.slot_bytes = sizes[f.in.below(most)];
  options.first_bytes = sizes[f.in.below(most)];
  options.unit_bytes = sizes[f.in.below(most)];
  options.direct_bytes = sizes[f.in.below(most)];
  options.streaming_bytes = sizes[f.in.below(most)];
  options.flags = f.in.byte() % 5;
  options.reserved = f.in.rarely(8) ? 1 : 0;
  f.must_fail |= options.flags > 3 || options.reserved != 0;
  f.may_refuse = true; // the sizes, or after the first copy
  const auto* const given = f.options(options);
  f.must_fail |= given == nullptr;
  return pinlane_device_set_staging(device, given);
}

/// A new machine in the program: with its first device, and its own handle.
inline void add_machine(frame& f, pinlane_device* const* devices, int count) {
  const int number = static_cast<int>(f.w.machines.size());
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    object about;
    about.handle = devices[ordinal];
    about.device = number * devices_of_a_machine + ordinal;
    f.w.adopt(kind::device, std::move(about));
  }
  pinlane_emulator* machine = nullptr;
  require_ok(pinlane_device_emulator(devices[0], &machine), "an emulated device has no machine");
  f.w.machines.push_back(machine);
}

inline pinlane_emulator_options some_machine(frame& f) {
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  options.seed = f.in.byte();
  options.memory_bytes = std::size_t{16} << 20;
  options.execution = f.in.byte() % 5;
  options.flags = f.in.byte() % 4;
  options.page_lock_limit_bytes = f.in.rarely(32) ? 16384 : 0;
  options.host_function_limit_us = options.seed % 2 == 0 ? 0 : 300000000; // none takes so long
  return options;
}

inline pinlane_status emulator_create(frame& f) {
  pinlane_emulator_options options = some_machine(f);
  const bool wrong = f.in.rarely(24);
  if (wrong) {
    options.execution = 5;
    options.flags = f.in.byte() % 8;
  }
  const std::int32_t counts[] = {1, 2, 1, 0, -1, 65};
  const std::int32_t count = counts[f.in.below(6)];
  f.must_fail |= count < 1 || count > 64;
  const auto* const given = f.options(options);
  f.must_fail |= wrong && given != nullptr;
  struct two {
    pinlane_device* devices[2];
  };
  two* const devices = f.out<two>();
  const pinlane_status status = pinlane_emulator_create(
      given, static_cast<pinlane_device**>(static_cast<void*>(devices)), count);
  if (status == PINLANE_STATUS_OK) {
    add_machine(f, devices->devices, count);
  }
  return status;
}

inline pinlane_status device_emulator(frame& f) {
  const argument device = f.any(kind::device);
  object about;
  const int number = f.w.device_of(kind::device, device);
  about.device = devices_of_a_machine * machine_of(number);
  return pinlane_device_emulator(device,
                                 f.made<pinlane_emulator>(kind::emulator, std::move(about)));
}

inline pinlane_status emulator_open(frame& f) {
  const argument emulator = f.any(kind::emulator);
  const std::int32_t ordinal = static_cast<std::int32_t>(f.in.below(3)) - 1;
  f.may_refuse = true; // there may be no such device
  object about;
  about.device = f.w.device_of(kind::emulator, emulator) + ordinal;
  auto** const out = f.made<pinlane_device>(kind::device, std::move(about));
  return pinlane_emulator_open(emulator, ordinal, out);
}

inline const char* some_driver_call(frame& f) {
  static const char* const names[] = {"HostAlloc",
                                      "HostFree",
                                      "HostRegister",
                                      "HostUnregister",
                                      "DeviceAlloc",
                                      "DeviceFree",
                                      "CopyH2D",
                                      "CopyD2H",
                                      "CopyBatch",
                                      "CopyStrided",
                                      "CopyD2D",
                                      "CopyPeer",
                                      "CopyStridedPeer",
                                      "StreamCreate",
                                      "StreamDestroy",
                                      "StreamQuery",
                                      "StreamSynchronize",
                                      "StreamWaitEvent",
                                      "StreamCapture",
                                      "EventCreate",
                                      "EventDestroy",
                                      "EventRecord",
                                      "EventQuery",
                                      "EventSynchronize",
                                      "LaunchHost",
                                      "PeerQuery",
                                      "PeerEnable",
                                      "PoolAccess",
                                      "Attributes",
                                      "MemoryInfo",
                                      "Fill",
                                      "Checksum",
                                      "MoveItems",
                                      "Busy",
                                      "cudaMalloc",
                                      "",
                                      nullptr};
  constexpr std::size_t count = sizeof names / sizeof *names;
  const std::size_t chosen = f.in.below(count);
  f.must_fail |= chosen >= count - 3;
  return names[chosen];
}

inline pinlane_status emulator_inject(frame& f) {
  const argument emulator = f.any(kind::emulator);
  const char* const call = some_driver_call(f);
  const std::int32_t codes[] = {1, 2, 46, 101, 400, 719, 800, 801, 900, 999, 4, 700, 12345, 0, -1};
  const std::int32_t chosen = codes[f.in.below(15)];
  const std::int32_t code = f.w.trouble_allowed ? chosen : 0;
  const std::int32_t repeat = f.in.rarely(8) ? 4 : f.in.byte() % 4;
  f.must_fail |= code <= 0 || repeat == 4;
  if (!f.must_fail) {
    f.w.faulty = true;
    f.w.lossy = f.w.lossy || code == 4 || code == 700 || code == 719;
  }
  return pinlane_emulator_inject(emulator, call, f.in.byte() % 8, code, repeat);
}

inline pinlane_status emulator_clear_faults(frame& f) {
  return pinlane_emulator_clear_faults(f.any(kind::emulator));
}

inline pinlane_status emulator_calls(frame& f) {
  const argument emulator = f.any(kind::emulator);
  const char* const call = some_driver_call(f);
  return pinlane_emulator_calls(emulator, call, f.out<std::uint64_t>());
}

inline pinlane_status emulator_lose_device(frame& f) {
  const argument emulator = f.any(kind::emulator);
  const std::int32_t codes[] = {700, 4, 719, 2, 0};
  const std::int32_t code = codes[f.in.below(5)];
  const bool lose = f.w.trouble_allowed && f.in.rarely(128);
  f.must_fail |= code == 2 || code == 0;
  f.may_refuse = true; // there may be no such device
  if (lose && !f.must_fail) {
    f.w.faulty = f.w.lossy = true;
  }
  return pinlane_emulator_lose_device(emulator, lose ? f.in.byte() % 2 : -1, code);
}

inline pinlane_status emulator_get_usage(frame& f) {
  const argument emulator = f.any(kind::emulator);
  return pinlane_emulator_get_usage(emulator, f.sized_out<pinlane_emulator_usage>());
}

/// One of the two functions that write a finding.
inline pinlane_status emulator_finding(frame& f, decltype(pinlane_emulator_finding)* write) {
  const argument emulator = f.any(kind::emulator);
  f.must_fail = true; // there are none
  std::size_t capacity = 0;
  char* const text = f.text_out(capacity);
  return write(emulator, f.in.below(2), text, capacity, f.optional_out<std::size_t>());
}

inline pinlane_status emulator_replay(frame& f) {
  const argument emulator = f.any(kind::emulator);
  f.must_fail = true; // the machines do not record
  std::size_t capacity = 0;
  char* const text = f.text_out(capacity);
  return pinlane_emulator_replay(emulator, text, capacity, f.optional_out<std::size_t>());
}

/// A program that sometimes succeeds, on machines of its own.
inline pinlane_status explore(frame& f) {
  pinlane_exploration options = PINLANE_EXPLORATION_INIT;
  options.runs = 1 + f.in.below(3);
  options.shrink_runs = f.in.below(3);
  options.flags = PINLANE_EXPLORE_QUIET | (f.in.byte() % 2 == 0 ? PINLANE_EXPLORE_ORDERS : 0);
  const bool wrong = f.in.rarely(8);
  if (wrong) {
    options.devices = 65;
  }
  f.must_fail |= wrong;
  const auto program = [](void* user, pinlane_emulator* machine, char*, std::size_t) {
    pinlane_device* device = nullptr;
    require_ok(pinlane_emulator_open(machine, 0, &device), "no device of a machine");
    require_ok(pinlane_device_free(device), "the device cannot be freed");
    return *static_cast<std::int32_t*>(user);
  };
  std::int32_t status = f.in.byte() % 2;
  std::size_t capacity = 0;
  auto* const explored = f.sized_out<pinlane_explored>();
  char* const text = f.text_out(capacity);
  return pinlane_explore(&options, program, &status, explored, text, capacity,
                         f.optional_out<std::size_t>());
}

// -- Streams and tickets -------------------------------------------------------------------------

inline pinlane_status stream_create(frame& f) {
  const argument device = f.any(kind::device);
  pinlane_stream_options options = PINLANE_STREAM_OPTIONS_INIT;
  options.priority = static_cast<std::int8_t>(f.in.byte());
  options.flags = f.in.rarely(12) ? 2 : f.in.byte() % 2;
  const auto* const given = f.options(options);
  f.must_fail |= given != nullptr && options.flags == 2;
  object about;
  about.device = f.w.device_of(kind::device, device);
  return pinlane_stream_create(device, given,
                               f.made<pinlane_stream>(kind::stream, std::move(about)));
}

inline pinlane_status stream_borrow(frame& f) {
  const argument device = f.any(kind::device);
  object about;
  about.device = f.w.device_of(kind::device, device);
  const std::size_t choice = f.in.below(4);
  void* native = reinterpret_cast<void*>(choice);
  if (choice == 3) { // it is of the first device
    native = about.device == 0 ? f.w.lender_native : nullptr;
  } else if (choice == 2 && f.w.threaded && f.w.calm) {
    native = nullptr; // foreign work on the default stream of a thread that ended cannot end
  }
  about.is_of_one_thread = native == reinterpret_cast<void*>(2);
  return pinlane_stream_borrow(device, native,
                               f.made<pinlane_stream>(kind::stream, std::move(about)));
}

inline pinlane_status stream_wait(frame& f) {
  const argument stream = f.any(kind::stream), ticket = f.any(kind::ticket);
  return pinlane_stream_wait(stream, ticket);
}

inline pinlane_status stream_device_ordinal(frame& f) {
  const argument stream = f.any(kind::stream);
  const int device = f.w.device_of(kind::stream, stream);
  auto* const ordinal = f.out<std::int32_t>();
  const pinlane_status status = pinlane_stream_device_ordinal(stream, ordinal);
  require(status != PINLANE_STATUS_OK || device < 0 || *ordinal == device % devices_of_a_machine,
          "a stream is of another device");
  return status;
}

/// An emulated device has no events for callers, and an invalid event must not be passed.
inline pinlane_status stream_wait_event(frame& f) {
  const argument stream = f.any(kind::stream);
  f.must_fail = true;
  return pinlane_stream_wait_event(stream, nullptr);
}

inline pinlane_status stream_record_event(frame& f) {
  const argument stream = f.any(kind::stream);
  f.must_fail = true;
  return pinlane_stream_record_event(stream, nullptr);
}

inline pinlane_status ticket_wait_timeout(frame& f) {
  const argument ticket = f.any(kind::ticket);
  const std::uint64_t times[] = {0, 1, 300, 20000};
  return pinlane_ticket_wait_timeout(ticket, times[f.in.below(4)]);
}

inline pinlane_status stream_busy(frame& f) {
  const argument stream = f.any(kind::stream);
  const std::uint64_t times[] = {0, 1, 1000, 10000000000, 10000000001, UINT64_MAX};
  const std::size_t chosen = f.in.below(6);
  f.must_fail |= chosen > 3;
  return pinlane_stream_busy(stream, times[chosen], f.ticket());
}

inline pinlane_status stream_record(frame& f) {
  const argument stream = f.any(kind::stream);
  auto** const out = f.ticket();
  f.may_refuse |= out == nullptr; // `ticket` may or may not be needed: the header says
  return pinlane_stream_record(stream, out);
}

inline pinlane_status emulator_stall(frame& f) {
  const argument stream = f.any(kind::stream);
  const pinlane_status status = pinlane_emulator_stall(stream);
  if (status == PINLANE_STATUS_OK) {
    f.w.stalled.push_back(stream);
  }
  return status;
}

inline pinlane_status emulator_slow(frame& f) {
  const argument stream = f.any(kind::stream);
  return pinlane_emulator_slow(stream, f.in.byte() % 20);
}

/// With lower limits, other calls of the program would fail that must succeed.
inline pinlane_status limit(frame& f,
                            pinlane_status (*call)(const pinlane_emulator*, std::size_t)) {
  const argument machine = f.any(kind::emulator);
  return call(machine, SIZE_MAX - f.in.byte() % 2);
}

inline pinlane_status begin_capture(frame& f) {
  const argument stream = f.any(kind::stream);
  if (f.w.calm) { // foreign work on a captured stream cannot end
    f.must_fail = false;
    return PINLANE_STATUS_OK;
  }
  f.w.captured = true;
  return pinlane_emulator_begin_capture(stream);
}

inline pinlane_status end_capture(frame& f) {
  const argument stream = f.any(kind::stream);
  f.may_refuse = true; // most streams are not being captured
  return pinlane_emulator_end_capture(stream, f.out<std::size_t>());
}

inline pinlane_status stream_free(frame& f) {
  if (f.in.rarely(16)) {
    f.w.faulty = f.w.faulty || f.w.captured; // it may be captured until its last user is freed
  } else if (!f.w.threaded) {
    f.w.end_captures();
  }
  return free_one(f, kind::stream, pinlane_stream_free);
}
