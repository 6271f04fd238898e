/* The controls and results of an emulated machine in C: faults, lost devices, stalled streams,
 * captures, findings, live objects. C11. */

#include "rig.h"

#include <semaphore.h>
#include <stdint.h>

_Static_assert(sizeof(pinlane_emulator_usage) == 72, "pinlane_emulator_usage");
MEMBER(pinlane_emulator_usage, size, 0);
MEMBER(pinlane_emulator_usage, host_bytes, 8);
MEMBER(pinlane_emulator_usage, host_blocks, 16);
MEMBER(pinlane_emulator_usage, quarantined_blocks, 24);
MEMBER(pinlane_emulator_usage, device_bytes, 32);
MEMBER(pinlane_emulator_usage, device_blocks, 40);
MEMBER(pinlane_emulator_usage, streams, 48);
MEMBER(pinlane_emulator_usage, events, 56);
MEMBER(pinlane_emulator_usage, pending_operations, 64);

enum { OUT_OF_MEMORY = 2, UNLOADING = 4 };
enum { ILLEGAL_ADDRESS = 700, LAUNCH_TIMEOUT = 702, LAUNCH_FAILURE = 719 };
static const int32_t once = PINLANE_FAULT_ONCE, forever = PINLANE_FAULT_FOREVER;
static const int32_t once_late = PINLANE_FAULT_ONCE_LATE;

static pinlane_emulator *machine_of(const pinlane_device *device) {
  pinlane_emulator *machine = NULL;
  OK(pinlane_device_emulator(device, &machine));
  return machine;
}

static uint64_t calls(const pinlane_emulator *machine, const char *call) {
  uint64_t count = UINT64_MAX;
  OK(pinlane_emulator_calls(machine, call, &count));
  return count;
}

static size_t findings(const pinlane_emulator *machine) {
  size_t count = SIZE_MAX;
  OK(pinlane_emulator_finding_count(machine, &count));
  return count;
}

static void calls_fail_on_request(void) {
  pinlane_emulator *machine = machine_of(rig.device);
  pinlane_device_buffer *gpu = NULL, *second = NULL;
  const uint64_t before = calls(machine, "DeviceAlloc");
  OK(pinlane_emulator_inject(machine, "DeviceAlloc", 2, OUT_OF_MEMORY, once));
  OK(pinlane_device_buffer_alloc(rig.device, 64, &gpu));
  REFUSED(OUT_OF_DEVICE_MEMORY, pinlane_device_buffer_alloc(rig.device, 64, &second));
  EXPECT(pinlane_last_cuda_error() == OUT_OF_MEMORY && second == NULL);
  OK(pinlane_device_buffer_alloc(rig.device, 64, &second));
  EXPECT(calls(machine, "DeviceAlloc") == before + 3);
  OK(pinlane_device_buffer_free(gpu));
  OK(pinlane_device_buffer_free(second));

  OK(pinlane_emulator_inject(machine, "Fill", 0, 801, forever));
  for (int i = 0; i < 3; i++) {
    REFUSED(UNSUPPORTED, pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 4, "x", 1, NULL));
    EXPECT(pinlane_last_cuda_error() == 801);
  }
  OK(pinlane_emulator_clear_faults(machine));
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 4, "x", 1, NULL));

  REFUSED(INVALID_VALUE, pinlane_emulator_inject(machine, "cudaMalloc", 1, 2, once));
  REFUSED(INVALID_VALUE, pinlane_emulator_inject(machine, NULL, 1, 2, once));
  REFUSED(INVALID_VALUE, pinlane_emulator_inject(machine, "Fill", 1, 0, once));
  REFUSED(INVALID_VALUE, pinlane_emulator_inject(machine, "Fill", 1, -1, once));
  REFUSED(INVALID_VALUE, pinlane_emulator_inject(machine, "Fill", 1, 2, 4));
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 4, "x", 1, NULL));
  OK(pinlane_emulator_free(machine));
}

static void calls_fail_late(void) {
  pinlane_emulator *machine = machine_of(rig.device);
  const void *data = NULL;
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "a", 1, NULL));
  OK(pinlane_emulator_inject(machine, "Fill", 1, 999, PINLANE_FAULT_ONCE));
  REFUSED(CUDA, pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "b", 1, NULL));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, rig.buffer, 0, BYTES, NULL));
  OK(pinlane_buffer_read(rig.buffer, &data));
  EXPECT(((const char *)data)[0] == 'a');
  OK(pinlane_emulator_inject(machine, "Fill", 1, 999, once_late));
  REFUSED(CUDA, pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "b", 1, NULL));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, rig.buffer, 0, BYTES, NULL));
  OK(pinlane_buffer_read(rig.buffer, &data));
  EXPECT(((const char *)data)[0] == 'b');
  for (int i = 0; i < 2; i++) {
    OK(pinlane_emulator_inject(machine, "Fill", 1, 999, PINLANE_FAULT_FOREVER_LATE));
    REFUSED(CUDA, pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "c", 1, NULL));
  }
  OK(pinlane_emulator_clear_faults(machine));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, rig.buffer, 0, BYTES, NULL));
  OK(pinlane_buffer_read(rig.buffer, &data));
  EXPECT(((const char *)data)[BYTES - 1] == 'c');
  OK(pinlane_emulator_free(machine));
}

static void streams_are_held_up(void) {
  const void *data = NULL;
  OK(pinlane_emulator_stall(rig.stream));
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "y", 1, NULL));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, rig.buffer, 0, BYTES, NULL));
  for (int i = 0; i < 20; i++) { /* more often than a lazy machine says no */
    REFUSED(NOT_READY, pinlane_buffer_try_read(rig.buffer, &data));
  }
  OK(pinlane_emulator_release(rig.stream));
  OK(pinlane_buffer_read(rig.buffer, &data));
  EXPECT(((const char *)data)[BYTES - 1] == 'y');
  REFUSED(INVALID_HANDLE, pinlane_emulator_stall((pinlane_stream *)rig.device));
  REFUSED(INVALID_HANDLE, pinlane_emulator_release(NULL));
}

/* There is no handle left to release it with. */
static void a_stalled_stream_that_is_freed_goes_on(void) {
  const void *data = NULL;
  pinlane_stream *stream = NULL;
  OK(pinlane_stream_create(rig.device, NULL, &stream));
  OK(pinlane_emulator_stall(stream));
  OK(pinlane_device_buffer_fill(stream, rig.gpu, 0, BYTES, "z", 1, NULL));
  OK(pinlane_device_buffer_download(stream, rig.gpu, 0, rig.buffer, 0, BYTES, NULL));
  REFUSED(NOT_READY, pinlane_buffer_try_read(rig.buffer, &data));
  OK(pinlane_stream_free(stream));
  OK(pinlane_buffer_read(rig.buffer, &data));
  EXPECT(((const char *)data)[BYTES - 1] == 'z');
}

static void streams_are_slow(void) {
  pinlane_ticket *ticket = NULL;
  int32_t done = 77;
  OK(pinlane_stream_synchronize(rig.stream));
  OK(pinlane_emulator_slow(rig.stream, 40));
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "s", 1, &ticket));
  int polls = 0;
  do {
    OK(pinlane_ticket_is_done(ticket, &done));
    polls++;
  } while (!done && polls < 1000);
  EXPECT(20 <= polls && polls < 400);
  OK(pinlane_ticket_free(ticket));
  OK(pinlane_emulator_slow(rig.stream, 1000000));
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "t", 1, NULL));
  OK(pinlane_stream_synchronize(rig.stream)); /* who waits lets the time pass */
  OK(pinlane_emulator_slow(rig.stream, 0));
  REFUSED(INVALID_HANDLE, pinlane_emulator_slow((pinlane_stream *)rig.device, 1));
  REFUSED(INVALID_HANDLE, pinlane_emulator_slow(NULL, 1));
}

static void memory_is_limited(void) {
  pinlane_emulator *machine = machine_of(rig.device);
  pinlane_emulator_usage usage = PINLANE_EMULATOR_USAGE_INIT;
  pinlane_device_buffer *gpu = NULL;
  static char memory[4096];
  pinlane_buffer *registered = NULL;
  OK(pinlane_emulator_get_usage(machine, &usage));
  OK(pinlane_emulator_limit_page_locked(machine, usage.host_bytes + sizeof memory - 1));
  REFUSED(OUT_OF_HOST_MEMORY,
          pinlane_buffer_register(rig.device, memory, sizeof memory, &registered));
  OK(pinlane_emulator_limit_page_locked(machine, SIZE_MAX));

  OK(pinlane_emulator_limit_device_memory(machine, 0));
  REFUSED(OUT_OF_DEVICE_MEMORY, pinlane_device_buffer_alloc(rig.device, 64, &gpu));
  OK(pinlane_emulator_limit_device_memory(machine, (size_t)1 << 30));
  OK(pinlane_device_buffer_alloc(rig.device, 64, &gpu));
  OK(pinlane_device_buffer_free(gpu));
  OK(pinlane_emulator_free(machine));
}

static void captures_are_respected(void) {
  size_t operations = 77;
  REFUSED(CUDA, pinlane_emulator_end_capture(rig.stream, &operations));
  OK(pinlane_emulator_begin_capture(rig.stream));
  REFUSED(CUDA, pinlane_emulator_begin_capture(rig.stream));
  REFUSED(STREAM_CAPTURING,
          pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "z", 1, NULL));
  REFUSED(INVALID_VALUE, pinlane_emulator_end_capture(rig.stream, NULL));
  EXPECT(operations == 77);
  OK(pinlane_emulator_end_capture(rig.stream, &operations));
  EXPECT(operations == 0);
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "z", 1, NULL));
  REFUSED(INVALID_HANDLE, pinlane_emulator_begin_capture(NULL));
}

static void handles_and_outputs_are_checked(void) {
  void *const untouched = &rig;
  pinlane_emulator *machine = machine_of(rig.device), *same = machine_of(rig.other_device);
  pinlane_emulator *fresh = untouched;
  pinlane_device *device = untouched;
  pinlane_emulator_usage usage = PINLANE_EMULATOR_USAGE_INIT;
  size_t size = 77;
  uint64_t count = 77;
  char text[8] = "as was";
  EXPECT(calls(machine, "EventRecord") == calls(same, "EventRecord"));
  OK(pinlane_emulator_free(same));
  pinlane_emulator *const wrong[] = {NULL, same, (void *)rig.device, (void *)(uintptr_t)12345};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    REFUSED(INVALID_HANDLE, pinlane_emulator_open(wrong[i], 0, &device));
    REFUSED(INVALID_HANDLE, pinlane_emulator_inject(wrong[i], "Fill", 1, 2, once));
    REFUSED(INVALID_HANDLE, pinlane_emulator_clear_faults(wrong[i]));
    REFUSED(INVALID_HANDLE, pinlane_emulator_limit_page_locked(wrong[i], 1));
    REFUSED(INVALID_HANDLE, pinlane_emulator_limit_device_memory(wrong[i], 1));
    REFUSED(INVALID_HANDLE, pinlane_emulator_calls(wrong[i], "Fill", &count));
    REFUSED(INVALID_HANDLE, pinlane_emulator_lose_device(wrong[i], 0, ILLEGAL_ADDRESS));
    REFUSED(INVALID_HANDLE, pinlane_emulator_get_usage(wrong[i], &usage));
    REFUSED(INVALID_HANDLE, pinlane_emulator_finding_count(wrong[i], &size));
    REFUSED(INVALID_HANDLE, pinlane_emulator_finding(wrong[i], 0, text, sizeof text, &size));
    REFUSED(INVALID_HANDLE, pinlane_device_emulator((void *)wrong[i == 2 ? 0 : i], &fresh));
    if (wrong[i] != NULL) {
      REFUSED(INVALID_HANDLE, pinlane_emulator_free(wrong[i]));
    }
  }
  OK(pinlane_emulator_free(NULL));
  REFUSED(INVALID_VALUE, pinlane_device_emulator(rig.device, NULL));
  REFUSED(INVALID_VALUE, pinlane_emulator_open(machine, 0, NULL));
  REFUSED(NO_DEVICE, pinlane_emulator_open(machine, 2, &device));
  REFUSED(NO_DEVICE, pinlane_emulator_lose_device(machine, -1, ILLEGAL_ADDRESS));
  REFUSED(INVALID_VALUE, pinlane_emulator_lose_device(machine, 0, OUT_OF_MEMORY));
  REFUSED(INVALID_VALUE, pinlane_emulator_calls(machine, "Fill", NULL));
  REFUSED(INVALID_VALUE, pinlane_emulator_calls(machine, "fill", &count));
  REFUSED(INVALID_VALUE, pinlane_emulator_finding_count(machine, NULL));
  REFUSED(OUT_OF_RANGE, pinlane_emulator_finding(machine, 0, text, sizeof text, &size));
  REFUSED(INVALID_VALUE, pinlane_emulator_get_usage(machine, NULL));
  usage.size--;
  REFUSED(INVALID_VALUE, pinlane_emulator_get_usage(machine, &usage));
  EXPECT(usage.streams == 0 && size == 77 && count == 77 && strcmp(text, "as was") == 0);
  EXPECT((void *)fresh == untouched && (void *)device == untouched);
  OK(pinlane_emulator_free(machine));
}

/* A copy to device memory that does not exist: on a GPU the device would be lost some time
 * later. */
static void misuse_is_found(void) {
  pinlane_device *device = NULL;
  pinlane_stream *stream = NULL;
  OK(pinlane_emulator_create(NULL, &device, 1));
  OK(pinlane_stream_create(device, NULL, &stream));
  pinlane_emulator *machine = machine_of(device);
  EXPECT(findings(machine) == 0);
  pinlane_upload_slice(stream, "12345678", (void *)(uintptr_t)4096, 8, NULL);
  REFUSED(DEVICE_LOST, pinlane_stream_synchronize(stream));
  EXPECT(findings(machine) > 0);

  size_t needed = 0;
  char text[512] = "", cut[16] = "", none = 'x';
  OK(pinlane_emulator_finding(machine, 0, NULL, 0, &needed));
  EXPECT(needed > sizeof cut && needed < sizeof text);
  OK(pinlane_emulator_finding(machine, 0, text, needed, NULL));
  EXPECT(strlen(text) == needed - 1 && strncmp(text, "IllegalAddress: ", 16) == 0);
  OK(pinlane_emulator_finding(machine, 0, cut, sizeof cut, &needed));
  EXPECT(strlen(cut) == sizeof cut - 1 && strncmp(cut, text, sizeof cut - 1) == 0);
  EXPECT(needed == strlen(text) + 1);
  OK(pinlane_emulator_finding(machine, 0, &none, 1, NULL));
  EXPECT(none == '\0');
  REFUSED(INVALID_VALUE, pinlane_emulator_finding(machine, 0, NULL, 1, &needed));
  OK(pinlane_stream_free(stream));
  OK(pinlane_device_free(device));
  OK(pinlane_emulator_free(machine));
}

static void devices_are_lost(void) {
  pinlane_device *devices[2] = {NULL, NULL}, *again = NULL;
  pinlane_device_buffer *gpu = NULL, *other = NULL;
  pinlane_stream *stream = NULL;
  OK(pinlane_emulator_create(NULL, devices, 2));
  pinlane_emulator *machine = machine_of(devices[1]);
  OK(pinlane_stream_create(devices[1], NULL, &stream));
  OK(pinlane_emulator_lose_device(machine, 0, LAUNCH_FAILURE));
  REFUSED(DEVICE_LOST, pinlane_device_buffer_alloc(devices[0], 64, &gpu));
  EXPECT(pinlane_last_cuda_error() == LAUNCH_FAILURE);
  OK(pinlane_device_buffer_alloc(devices[1], 64, &other));

  /* A sticky fault loses the device that the call names. */
  OK(pinlane_emulator_inject(machine, "Fill", 1, ILLEGAL_ADDRESS, once));
  REFUSED(DEVICE_LOST, pinlane_device_buffer_fill(stream, other, 0, 64, "x", 1, NULL));
  REFUSED(DEVICE_LOST, pinlane_stream_synchronize(stream));
  OK(pinlane_device_buffer_free(other));
  OK(pinlane_stream_free(stream));
  size_t bytes = 0;
  OK(pinlane_device_quarantined_bytes(devices[1], &bytes));
  EXPECT(bytes == 64);
  REFUSED(INVALID_VALUE, pinlane_device_quarantined_bytes(devices[1], NULL));
  OK(pinlane_device_free(devices[0]));
  OK(pinlane_device_free(devices[1]));
  OK(pinlane_emulator_free(machine));

  OK(pinlane_emulator_create(NULL, devices, 2));
  machine = machine_of(devices[0]);
  OK(pinlane_emulator_open(machine, 1, &again));
  OK(pinlane_device_free(again));
  OK(pinlane_emulator_lose_device(machine, 0, UNLOADING));
  REFUSED(CUDA, pinlane_device_buffer_alloc(devices[1], 64, &gpu));
  EXPECT(pinlane_last_cuda_error() == UNLOADING && gpu == NULL);
  REFUSED(CUDA, pinlane_emulator_open(machine, 1, &again));
  OK(pinlane_device_free(devices[0]));
  OK(pinlane_device_free(devices[1]));
  OK(pinlane_emulator_free(machine));
}

static void nothing_is_alive_in_the_end(pinlane_emulator *machine) {
  pinlane_emulator_usage usage = PINLANE_EMULATOR_USAGE_INIT;
  OK(pinlane_emulator_get_usage(machine, &usage));
  EXPECT(usage.host_bytes == 0 && usage.host_blocks == 0 && usage.quarantined_blocks == 0);
  EXPECT(usage.device_bytes == 0 && usage.device_blocks == 0);
  EXPECT(usage.streams == 0 && usage.events == 0);
  EXPECT(findings(machine) == 0);
  pinlane_device *again = NULL;
  OK(pinlane_emulator_open(machine, 1, &again));
  OK(pinlane_emulator_get_usage(machine, &usage));
  EXPECT(usage.streams > 0);
  OK(pinlane_device_free(again));
}

static int begins(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

/* Two buffers that borrow the same memory do not know of each other, and their streams do not
 * either. */
static void races_are_found(uint32_t flags, size_t expected) {
  enum { EACH = 64 };
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  options.flags = flags;
  pinlane_device *device = NULL;
  OK(pinlane_emulator_create(&options, &device, 1));
  pinlane_emulator *machine = machine_of(device);
  pinlane_stream *streams[2] = {NULL, NULL};
  pinlane_device_buffer *memory = NULL, *borrowed[2] = {NULL, NULL};
  void *address = NULL;
  OK(pinlane_stream_create(device, NULL, &streams[0]));
  OK(pinlane_stream_create(device, NULL, &streams[1]));
  OK(pinlane_device_buffer_alloc(device, EACH, &memory));
  OK(pinlane_device_buffer_fill(streams[0], memory, 0, EACH, "m", 1, NULL));
  OK(pinlane_stream_synchronize(streams[0]));
  OK(pinlane_device_buffer_address(memory, &address));
  for (size_t i = 0; i < 2; i++) {
    OK(pinlane_device_buffer_borrow(device, address, EACH, &borrowed[i]));
    OK(pinlane_device_buffer_fill(streams[i], borrowed[i], 0, EACH, "b", 1, NULL));
  }
  EXPECT(findings(machine) == expected);
  char text[2048] = "";
  if (expected == 1) {
    OK(pinlane_emulator_finding(machine, 0, text, sizeof text, NULL));
    EXPECT(strncmp(text, "Race: write after write, device 0, ", 35) == 0);
    EXPECT(strstr(text, "\n  second: Fill(0x62)") && strstr(text, "\n  missing: "));
    size_t needed = 0;
    OK(pinlane_emulator_finding_json(machine, 0, text, sizeof text, &needed));
    EXPECT(needed == strlen(text) + 1 && strchr(text, '\n') == NULL);
    EXPECT(begins(text, "{\"kind\":\"Race\",\"message\":\"write after write, "));
    EXPECT(strstr(text, "\"mode\":\"eager\",\"seed\":0,\"race\":{") != NULL);
    EXPECT(strstr(text, "\"first\":{\"call\":\"Fill\",") != NULL);
    REFUSED(OUT_OF_RANGE, pinlane_emulator_finding_json(machine, 1, text, sizeof text, NULL));
  }
  for (size_t i = 0; i < 2; i++) {
    OK(pinlane_stream_synchronize(streams[i]));
    OK(pinlane_device_buffer_free(borrowed[i]));
    OK(pinlane_stream_free(streams[i]));
  }
  OK(pinlane_device_buffer_free(memory));
  OK(pinlane_device_free(device));
  OK(pinlane_emulator_free(machine));
}

static void wait_at_gate(void *gate) {
  while (sem_wait(gate) != 0) {
  }
}

/* A wait for a host function that waits for the waiting thread is a finding. */
static void a_deadlock_is_a_finding(void) {
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  EXPECT(options.host_function_limit_us == 0);
  options.host_function_limit_us = 20000;
  pinlane_device *device = NULL;
  OK(pinlane_emulator_create(&options, &device, 1));
  pinlane_emulator *machine = machine_of(device);
  pinlane_stream *stream = NULL;
  sem_t gate;
  sem_init(&gate, 0, 0);
  OK(pinlane_stream_create(device, NULL, &stream));
  OK(pinlane_stream_launch_host(stream, wait_at_gate, &gate, NULL));
  REFUSED(DEVICE_LOST, pinlane_stream_synchronize(stream));
  EXPECT(pinlane_last_cuda_error() == LAUNCH_TIMEOUT && findings(machine) == 1);
  char text[2048] = "";
  OK(pinlane_emulator_finding(machine, 0, text, sizeof text, NULL));
  EXPECT(begins(text, "Deadlock: a wait for stream "));
  OK(pinlane_emulator_finding_json(machine, 0, text, sizeof text, NULL));
  EXPECT(begins(text, "{\"kind\":\"Deadlock\",") && strstr(text, ",\"race\":null,"));
  sem_post(&gate);
  OK(pinlane_stream_free(stream));
  OK(pinlane_device_free(device));
  OK(pinlane_emulator_free(machine)); /* it waits for the host function */
  sem_destroy(&gate);
}

/* The fill that a copy sees on another stream, which does not wait for it. */
static char raced(const pinlane_emulator_options *options, char *replay, size_t capacity) {
  enum { EACH = 64 };
  pinlane_device *device = NULL;
  OK(pinlane_emulator_create(options, &device, 1));
  pinlane_emulator *machine = machine_of(device);
  pinlane_pool *pool = NULL;
  pinlane_buffer *buffer = NULL;
  pinlane_stream *streams[2] = {NULL, NULL};
  pinlane_device_buffer *memory = NULL, *borrowed = NULL;
  void *address = NULL;
  const void *seen = NULL;
  OK(pinlane_pool_create(device, NULL, &pool));
  OK(pinlane_buffer_alloc(pool, EACH, &buffer));
  OK(pinlane_stream_create(device, NULL, &streams[0]));
  OK(pinlane_stream_create(device, NULL, &streams[1]));
  OK(pinlane_device_buffer_alloc(device, EACH, &memory));
  OK(pinlane_device_buffer_fill(streams[0], memory, 0, EACH, "1", 1, NULL));
  OK(pinlane_stream_synchronize(streams[0]));
  OK(pinlane_device_buffer_address(memory, &address));
  OK(pinlane_device_buffer_borrow(device, address, EACH, &borrowed));
  OK(pinlane_device_buffer_fill(streams[0], memory, 0, EACH, "2", 1, NULL));
  OK(pinlane_device_buffer_download(streams[1], borrowed, 0, buffer, 0, EACH, NULL));
  OK(pinlane_buffer_read(buffer, &seen));
  const char first = *(const char *)seen;
  OK(pinlane_stream_synchronize(streams[0]));
  if (replay) {
    OK(pinlane_emulator_replay(machine, replay, capacity, NULL));
  } else {
    char text[8];
    REFUSED(UNSUPPORTED, pinlane_emulator_replay(machine, text, sizeof text, NULL));
  }
  OK(pinlane_device_buffer_free(borrowed));
  OK(pinlane_device_buffer_free(memory));
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_stream_free(streams[0]));
  OK(pinlane_stream_free(streams[1]));
  OK(pinlane_pool_free(pool));
  OK(pinlane_device_free(device));
  OK(pinlane_emulator_free(machine));
  return first;
}

static void every_mode_shows_both_orders_and_runs_are_repeated(void) {
  static const int32_t modes[] = {PINLANE_EXECUTION_LAZY, PINLANE_EXECUTION_RANDOM,
                                  PINLANE_EXECUTION_CHUNKED, PINLANE_EXECUTION_PCT};
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  EXPECT(options.pct_depth == 3 && !options.replay && !options.operations && !options.reserved);
  EXPECT(raced(&options, NULL, 0) == '2');
  options.flags = PINLANE_EMULATOR_RECORD;
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    int seen[2] = {0, 0};
    for (options.seed = 0; options.seed < 100; options.seed++) {
      static char replay[4096];
      options.execution = modes[i];
      const char first = raced(&options, replay, sizeof replay);
      EXPECT(first == '1' || first == '2');
      seen[first - '1']++;
      pinlane_emulator_options again = PINLANE_EMULATOR_OPTIONS_INIT;
      again.replay = replay;
      EXPECT(raced(&again, NULL, 0) == first);
    }
    EXPECT(seen[0] > 0 && seen[1] > 0);
  }
  pinlane_device *device = NULL;
  options.replay = "12:B#";
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&options, &device, 1));
  options.replay = NULL;
  options.reserved = 1;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&options, &device, 1));
  options.reserved = 0;
  options.execution = 5;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&options, &device, 1));
}

/* A store through the buffer's address, while a copy may still read it. NULL: the default pool. */
static void stores_in_flight_are_found(uint32_t flags, const pinlane_pool_options *of_pool,
                                       int synchronizes, size_t expected) {
  enum { EACH = 5000 };
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  options.flags = flags;
  pinlane_device *device = NULL;
  OK(pinlane_emulator_create(&options, &device, 1));
  pinlane_emulator *machine = machine_of(device);
  pinlane_pool *pool = NULL;
  pinlane_buffer *buffer = NULL;
  pinlane_device_buffer *gpu = NULL;
  pinlane_stream *stream = NULL;
  void *address = NULL;
  OK(pinlane_pool_create(device, of_pool, &pool));
  OK(pinlane_buffer_alloc_zeroed(pool, EACH, &buffer));
  OK(pinlane_device_buffer_alloc(device, EACH, &gpu));
  OK(pinlane_stream_create(device, NULL, &stream));
  OK(pinlane_buffer_address(buffer, &address));
  OK(pinlane_device_buffer_upload(stream, buffer, 0, gpu, 0, EACH, NULL));
  if (synchronizes) {
    OK(pinlane_stream_synchronize(stream));
  }
  volatile char *bytes = address;
  bytes[EACH - 1] = 'x';
  EXPECT(bytes[EACH - 1] == 'x' && findings(machine) == expected);
  char text[2048] = "";
  if (expected == 1) {
    OK(pinlane_emulator_finding(machine, 0, text, sizeof text, NULL));
    EXPECT(strncmp(text, "Race: write after read, page-locked memory, ", 44) == 0);
    EXPECT(strstr(text, "\n  second: host write") != NULL);
  }
  OK(pinlane_stream_synchronize(stream));
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_device_buffer_free(gpu));
  OK(pinlane_stream_free(stream));
  OK(pinlane_pool_free(pool));
  OK(pinlane_device_free(device));
  OK(pinlane_emulator_free(machine));
}

static void usage_shows_what_is_alive(const pinlane_emulator *machine) {
  pinlane_emulator_usage usage = PINLANE_EMULATOR_USAGE_INIT;
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "u", 1, NULL));
  OK(pinlane_emulator_get_usage(machine, &usage));
  EXPECT(usage.size == sizeof usage);
  EXPECT(usage.device_blocks == 3 && usage.device_bytes == 3 * BYTES);
  EXPECT(usage.host_blocks > 0 && usage.host_bytes >= BYTES);
  EXPECT(usage.streams >= 2 && usage.events > 0 && usage.pending_operations > 0);
}

static void machines_have_options(void) {
  enum { LIMIT = 8192, COPIES = 100, EACH = 16 };
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  options.flags = PINLANE_EMULATOR_NO_BATCHES | PINLANE_EMULATOR_NO_HOST_ADDRESSES;
  options.page_lock_limit_bytes = LIMIT;
  pinlane_device *device = NULL;
  OK(pinlane_emulator_create(&options, &device, 1));
  pinlane_emulator *machine = machine_of(device);
  static char memory[2 * LIMIT];
  pinlane_buffer *buffer = NULL;
  REFUSED(OUT_OF_HOST_MEMORY, pinlane_buffer_register(device, memory, LIMIT + 1, &buffer));
  OK(pinlane_buffer_register(device, memory, LIMIT, &buffer));

  pinlane_stream *stream = NULL;
  pinlane_device_buffer *gpu = NULL;
  OK(pinlane_stream_create(device, NULL, &stream));
  OK(pinlane_device_buffer_alloc(device, LIMIT, &gpu));
  pinlane_copy copies[COPIES];
  memset(copies, 0, sizeof copies);
  for (size_t i = 0; i < COPIES; i++) {
    copies[i].bytes = EACH;
    copies[i].buffer = buffer;
    copies[i].buffer_offset = 2 * i * EACH;
    copies[i].device_buffer = gpu;
    copies[i].device_offset = 2 * i * EACH;
  }
  OK(pinlane_upload_batch(stream, copies, COPIES, NULL, NULL));
  OK(pinlane_stream_synchronize(stream));
  EXPECT(calls(machine, "CopyBatch") == 0 && calls(machine, "CopyH2D") > 0);
  EXPECT(findings(machine) == 0);
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_device_buffer_free(gpu));
  OK(pinlane_stream_free(stream));
  OK(pinlane_device_free(device));
  OK(pinlane_emulator_free(machine));
}

int main(void) {
  set_up(BYTES, BYTES);
  pinlane_emulator *machine = machine_of(rig.device);
  usage_shows_what_is_alive(machine);
  calls_fail_on_request();
  calls_fail_late();
  streams_are_held_up();
  a_stalled_stream_that_is_freed_goes_on();
  streams_are_slow();
  memory_is_limited();
  captures_are_respected();
  handles_and_outputs_are_checked();
  tear_down();
  nothing_is_alive_in_the_end(machine);
  OK(pinlane_emulator_free(machine));
  misuse_is_found();
  races_are_found(0, 1);
  a_deadlock_is_a_finding();
  races_are_found(PINLANE_EMULATOR_SITES | PINLANE_EMULATOR_THREADS_APART, 1);
  races_are_found(PINLANE_EMULATOR_NO_RACES, 0);
  every_mode_shows_both_orders_and_runs_are_repeated();
  pinlane_pool_options allocating = PINLANE_POOL_OPTIONS_INIT;
  allocating.page_locking = PINLANE_PAGE_LOCKING_ALLOCATE;
  stores_in_flight_are_found(0, &allocating, 0, 0);
  stores_in_flight_are_found(0, NULL, 0, 0);
  stores_in_flight_are_found(PINLANE_EMULATOR_WATCH_HOST, &allocating, 0, 1);
  stores_in_flight_are_found(PINLANE_EMULATOR_WATCH_HOST, NULL, 0, 1);
  stores_in_flight_are_found(PINLANE_EMULATOR_WATCH_HOST, NULL, 1, 0);
  devices_are_lost();
  machines_have_options();
  return verdict("emulated machines in C");
}
