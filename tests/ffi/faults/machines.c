/* Linked with a program, to replace the functions that make emulated machines: one call of each
 * machine fails, and at the end the machines report. The linker's option --wrap gives the program
 * these functions.
 *
 *   PINLANE_TEST_FAULT   "CALL NTH CODE REPEAT", as for pinlane_emulator_inject; without it nothing
 *                        fails
 *   PINLANE_TEST_CALLS   the names of all calls, with a space after each
 *   PINLANE_TEST_REPORT  the file for the report, a line each: for each call the most times that
 *                        one machine made it, findings, and bytes that are left
 */

#include <pinlane/pinlane.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MACHINES = 256, OWN_MISTAKE = 77 };

static pinlane_emulator *machines[MACHINES];
static int machine_count = 0;

pinlane_status __real_pinlane_emulator_create(const pinlane_emulator_options *options,
                                              pinlane_device **devices, size_t count);
pinlane_status __real_pinlane_device_open_or_emulated(pinlane_device **device);
pinlane_status __wrap_pinlane_emulator_create(const pinlane_emulator_options *options,
                                              pinlane_device **devices, size_t count);
pinlane_status __wrap_pinlane_device_open_or_emulated(pinlane_device **device);
void __wrap_abort(void);

static void add(const pinlane_device *device) {
  pinlane_emulator *machine = NULL;
  char call[64];
  unsigned long long nth;
  int code, repeat;
  const char *const fault = getenv("PINLANE_TEST_FAULT");
  if (machine_count == MACHINES || pinlane_device_emulator(device, &machine)) {
    return;
  }
  machines[machine_count++] = machine;
  if (fault != NULL && sscanf(fault, "%63s %llu %d %d", call, &nth, &code, &repeat) == 4) {
    pinlane_emulator_inject(machine, call, nth, code, repeat);
  }
}

pinlane_status __wrap_pinlane_emulator_create(const pinlane_emulator_options *options,
                                              pinlane_device **devices, size_t count) {
  const pinlane_status status = __real_pinlane_emulator_create(options, devices, count);
  if (status == PINLANE_STATUS_OK) {
    add(devices[0]);
  }
  return status;
}

pinlane_status __wrap_pinlane_device_open_or_emulated(pinlane_device **device) {
  const pinlane_status status = __real_pinlane_device_open_or_emulated(device);
  if (status == PINLANE_STATUS_OK) {
    add(*device);
  }
  return status;
}

/* Tests abort when they cannot continue. */
void __wrap_abort(void) { _exit(OWN_MISTAKE); }

/* A program that ignores a status uses the NULL of its variable. */
static void on_segv(int number, siginfo_t *info, void *context) {
  (void)context;
  if ((size_t)info->si_addr < 1 << 16) {
    _exit(OWN_MISTAKE);
  }
  signal(number, SIG_DFL);
}

__attribute__((constructor)) static void begin(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_segv;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, NULL);
}

__attribute__((destructor)) static void report(void) {
  const char *const path = getenv("PINLANE_TEST_REPORT");
  const char *calls = getenv("PINLANE_TEST_CALLS");
  FILE *const file = path != NULL ? fopen(path, "w") : NULL;
  if (file == NULL) {
    return;
  }
  while (calls != NULL && *calls != '\0') {
    char call[64];
    const size_t length = strcspn(calls, " ");
    unsigned long long most = 0;
    snprintf(call, sizeof call, "%.*s", (int)length, calls);
    calls += length + 1;
    for (int at = 0; at < machine_count; at++) {
      uint64_t count = 0;
      pinlane_emulator_calls(machines[at], call, &count);
      most = count > most ? count : most;
    }
    fprintf(file, "%s %llu\n", call, most);
  }
  size_t findings = 0, left = 0;
  for (int at = 0; at < machine_count; at++) {
    pinlane_emulator_usage usage = PINLANE_EMULATOR_USAGE_INIT;
    size_t count = 0;
    pinlane_emulator_finding_count(machines[at], &count);
    pinlane_emulator_get_usage(machines[at], &usage);
    findings += count;
    left += usage.host_bytes + usage.device_bytes;
  }
  fprintf(file, "findings %zu\nleft %zu\n", findings, left);
  fclose(file);
}
