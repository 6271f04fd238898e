/* How a program learns which objects are alive and which are lost: counts of handles, and the log.
 * C11, on a lazy emulated device. */

#include "rig.h"

static size_t live(int32_t kind) {
  size_t count = SIZE_MAX;
  OK(pinlane_live_count(kind, &count));
  return count;
}

static size_t all_live(void) {
  size_t count = 0;
  for (int32_t kind = PINLANE_KIND_DEVICE; kind <= PINLANE_KIND_GRAPH; kind++) {
    count += live(kind);
  }
  return count;
}

static void c_rule_18_what_is_alive_is_counted_by_type(void) {
  enum { BUFFERS = 1000 };
  EXPECT(live(PINLANE_KIND_DEVICE) == 2 && live(PINLANE_KIND_STREAM) == 2);
  EXPECT(live(PINLANE_KIND_POOL) == 1 && live(PINLANE_KIND_BUFFER) == 1);
  EXPECT(live(PINLANE_KIND_DEVICE_BUFFER) == 3 && live(PINLANE_KIND_TICKET) == 1);
  EXPECT(all_live() == 10);

  static pinlane_buffer *buffers[BUFFERS];
  for (size_t i = 0; i < BUFFERS; i++) {
    OK(pinlane_buffer_alloc(rig.pool, 64, &buffers[i]));
  }
  EXPECT(live(PINLANE_KIND_BUFFER) == BUFFERS + 1);
  for (size_t i = 0; i < BUFFERS; i += 2) {
    OK(pinlane_buffer_free(buffers[i]));
  }
  EXPECT(live(PINLANE_KIND_BUFFER) == BUFFERS / 2 + 1);
  for (size_t i = 1; i < BUFFERS; i += 2) {
    OK(pinlane_buffer_free(buffers[i]));
  }

  /* A buffer that is freed during the program's own work is no longer alive. */
  pinlane_buffer *buffer = NULL;
  pinlane_foreign *foreign = NULL;
  pinlane_emulator *machine = NULL;
  OK(pinlane_buffer_alloc(rig.pool, 64, &buffer));
  OK(pinlane_device_emulator(rig.device, &machine));
  const pinlane_use use = {.buffer = buffer, .access = PINLANE_ACCESS_WRITE};
  OK(pinlane_foreign_begin(rig.stream, &use, 1, &foreign));
  OK(pinlane_buffer_free(buffer));
  EXPECT(live(PINLANE_KIND_BUFFER) == 1 && live(PINLANE_KIND_FOREIGN) == 1);
  EXPECT(live(PINLANE_KIND_EMULATOR) == 1 && all_live() == 12);
  OK(pinlane_foreign_end(foreign, NULL));
  OK(pinlane_emulator_free(machine));
  EXPECT(all_live() == 10);

  size_t count = 77;
  REFUSED(INVALID_VALUE, pinlane_live_count(0, &count));
  REFUSED(INVALID_VALUE, pinlane_live_count(PINLANE_KIND_GRAPH + 1, &count));
  REFUSED(INVALID_VALUE, pinlane_live_count(PINLANE_KIND_BUFFER, NULL));
  EXPECT(count == 77);
}

/* The messages of the log: their number for each event, and the last one. */
struct told {
  int events[4];
  char message[512];
};

static void note(void *user, int32_t event, const char *message) {
  struct told *told = user;
  if (event >= 0 && event < 4) {
    told->events[event]++;
  }
  snprintf(told->message, sizeof told->message, "%s", message);
}

static void note_once(void *user, int32_t event, const char *message) {
  note(user, event, message);
  if (pinlane_set_log_callback(NULL, NULL) != PINLANE_STATUS_OK) {
    note(user, event, "a listener can remove itself");
  }
}

static void inject(pinlane_emulator *machine, const char *call) {
  OK(pinlane_emulator_inject(machine, call, 0, 999, PINLANE_FAULT_FOREVER));
}

static void c_rule_18_a_log_tells_of_what_no_call_returns(void) {
  struct told told = {0};
  pinlane_emulator *machine = NULL;
  OK(pinlane_device_emulator(rig.device, &machine));
  OK(pinlane_set_log_callback(note, &told));

  /* A free that fails, perhaps in a destructor. */
  pinlane_buffer *buffer = NULL;
  OK(pinlane_buffer_alloc(rig.pool, 64, &buffer));
  OK(pinlane_buffer_free(buffer));
  EXPECT(told.events[PINLANE_LOG_FREE_REFUSED] == 0);
  REFUSED(INVALID_HANDLE, pinlane_buffer_free(buffer));
  EXPECT(told.events[PINLANE_LOG_FREE_REFUSED] == 1);
  EXPECT(strcmp(told.message, pinlane_last_error()) == 0);

  /* Device memory that cannot be freed. */
  pinlane_device_buffer *gpu = NULL;
  OK(pinlane_device_buffer_alloc(rig.device, 12345, &gpu));
  inject(machine, "DeviceFree");
  OK(pinlane_device_buffer_free(gpu));
  OK(pinlane_emulator_clear_faults(machine));
  EXPECT(told.events[PINLANE_LOG_QUARANTINED] == 1 && strstr(told.message, "12345 bytes") != NULL);

  /* A block of a pool whose last use cannot be known. */
  pinlane_pool *pool = NULL;
  pinlane_pool_options options = PINLANE_POOL_OPTIONS_INIT;
  options.max_bytes = BYTES;
  OK(pinlane_pool_create(rig.device, &options, &pool));
  OK(pinlane_buffer_alloc(pool, BYTES, &buffer));
  OK(pinlane_device_buffer_upload(rig.stream, buffer, 0, rig.gpu, 0, BYTES, NULL));
  OK(pinlane_buffer_free(buffer));
  inject(machine, "EventQuery");
  inject(machine, "EventSynchronize");
  inject(machine, "StreamQuery");
  inject(machine, "StreamSynchronize");
  REFUSED(NOT_READY, pinlane_buffer_try_alloc(pool, BYTES, &buffer));
  OK(pinlane_emulator_clear_faults(machine));
  EXPECT(told.events[PINLANE_LOG_QUARANTINED] == 2 && strstr(told.message, "4096 bytes") != NULL);
  OK(pinlane_pool_free(pool));

  /* Memory that the system does not take back. */
  size_t released = 77;
  OK(pinlane_pool_create(rig.device, NULL, &pool));
  OK(pinlane_buffer_alloc(pool, BYTES, &buffer));
  OK(pinlane_buffer_free(buffer));
  inject(machine, "HostUnregister");
  inject(machine, "HostFree");
  OK(pinlane_pool_trim(pool, 0, &released));
  OK(pinlane_emulator_clear_faults(machine));
  EXPECT(told.events[PINLANE_LOG_NOT_RELEASED] == 1 && released == 0);
  OK(pinlane_pool_free(pool));

  /* A replaced listener gets no more messages. A listener can remove itself. */
  struct told other = {0};
  OK(pinlane_set_log_callback(note_once, &other));
  REFUSED(INVALID_HANDLE, pinlane_ticket_free((pinlane_ticket *)rig.pool));
  REFUSED(INVALID_HANDLE, pinlane_stream_free((pinlane_stream *)rig.pool));
  EXPECT(told.events[PINLANE_LOG_FREE_REFUSED] == 1);
  EXPECT(other.events[PINLANE_LOG_FREE_REFUSED] == 1);
  EXPECT(strstr(other.message, "pinlane_ticket_free: ") == other.message);
  OK(pinlane_emulator_free(machine));
}

int main(void) {
  EXPECT(all_live() == 0);
  set_up(BYTES, BYTES);
  c_rule_18_what_is_alive_is_counted_by_type();
  c_rule_18_a_log_tells_of_what_no_call_returns();
  tear_down();
  EXPECT(all_live() == 0);
  return verdict("diagnostics");
}
