/* Pageable memory and files, and the options of both. C11, on a lazy emulated device: copies run
 * only when the program waits. */

#define _POSIX_C_SOURCE 200809L /* fileno and ftruncate, beside strict C */

#include "copy_rig.h"

#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(pinlane_file_range) == 48, "pinlane_file_range");
MEMBER(pinlane_file_range, bytes, 8);
MEMBER(pinlane_file_range, device_buffer, 24);
MEMBER(pinlane_file_range, device_offset, 32);
MEMBER(pinlane_file_range, reserved, 40);
_Static_assert(sizeof(pinlane_staging_options) == 64, "pinlane_staging_options");
MEMBER(pinlane_staging_options, streaming_bytes, 48);
MEMBER(pinlane_staging_options, flags, 56);
_Static_assert(sizeof(pinlane_copy_team_options) == 48, "pinlane_copy_team_options");
MEMBER(pinlane_copy_team_options, spin_us, 24);
MEMBER(pinlane_copy_team_options, threads, 32);

/* Staging can be set only before the first copy of pageable memory. */
static void options(void) {
  pinlane_staging_options ring = PINLANE_STAGING_OPTIONS_INIT;
  REFUSED(INVALID_HANDLE, pinlane_device_set_staging(NULL, &ring));
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, NULL));
  ring.size--;
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, &ring));
  ring.size++;
  ring.flags = 4;
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, &ring));
  ring.flags = PINLANE_STAGING_NO_STREAMING;
  ring.reserved = 1;
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, &ring));
  ring.reserved = 0;
  ring.slot_bytes = 100;
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, &ring));
  ring.slot_bytes = 64 << 10;
  ring.first_bytes = 4096;
  ring.ring_bytes = 256 << 10;
  OK(pinlane_device_set_staging(rig.device, &ring));
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, &ring));

  pinlane_copy_team_options team = PINLANE_COPY_TEAM_OPTIONS_INIT;
  team.size = 0;
  REFUSED(INVALID_VALUE, pinlane_copy_team_install(&team));
  team.size = sizeof team;
  team.flags = 4;
  REFUSED(INVALID_VALUE, pinlane_copy_team_install(&team));
  team.flags = PINLANE_COPY_TEAM_NO_SPIN;
  team.copying = 1;
  team.threads = 257;
  REFUSED(INVALID_VALUE, pinlane_copy_team_install(&team));
  team.threads = 2;
  team.core_count = 1;
  REFUSED(INVALID_VALUE, pinlane_copy_team_install(&team)); /* `cores` is NULL */
  const uint32_t nowhere = UINT32_MAX, first = 0;
  team.cores = &nowhere;
  REFUSED(INVALID_VALUE, pinlane_copy_team_install(&team));
  OK(pinlane_copy_team_install(NULL));
  team.cores = &first;
  OK(pinlane_copy_team_install(&team));
}

static uint64_t page_locked(const pinlane_emulator *machine) {
  uint64_t allocated = 0, registered = 0;
  OK(pinlane_emulator_calls(machine, "HostAlloc", &allocated));
  OK(pinlane_emulator_calls(machine, "HostRegister", &registered));
  return allocated + registered;
}

/* The first large copy finds its slots, and page-locks nothing. */
static void warm_up(void) {
  enum { RING = 256 << 10 };
  REFUSED(INVALID_HANDLE, pinlane_device_warm_up(NULL));
  pinlane_staging_options staging = PINLANE_STAGING_OPTIONS_INIT;
  staging.ring_bytes = RING;
  staging.slot_bytes = 64 << 10;
  staging.first_bytes = 4096;
  pinlane_device *device = NULL;
  pinlane_emulator *machine = NULL;
  pinlane_stream *stream = NULL;
  pinlane_device_buffer *gpu = NULL;
  OK(pinlane_emulator_create(NULL, &device, 1));
  OK(pinlane_device_emulator(device, &machine));
  OK(pinlane_device_set_staging(device, &staging));
  OK(pinlane_stream_create(device, NULL, &stream));
  OK(pinlane_device_buffer_alloc(device, LARGE, &gpu));
  OK(pinlane_device_warm_up(device));
  OK(pinlane_device_warm_up(device));
  pinlane_emulator_usage usage = PINLANE_EMULATOR_USAGE_INIT;
  for (int tries = 0; usage.host_bytes < RING && tries < 3000; tries++) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    OK(pinlane_emulator_get_usage(machine, &usage));
  }
  EXPECT(usage.host_bytes >= RING);
  const uint64_t before = page_locked(machine);
  OK(pinlane_device_buffer_upload_slice(stream, rig.host, gpu, 0, LARGE, NULL));
  OK(pinlane_device_buffer_download_slice(stream, gpu, 0, rig.back, LARGE));
  EXPECT(memcmp(rig.host, rig.back, LARGE) == 0 && page_locked(machine) == before);
  OK(pinlane_device_buffer_free(gpu));
  OK(pinlane_stream_free(stream));
  OK(pinlane_device_free(device));
  OK(pinlane_emulator_free(machine));
  REFUSED(INVALID_HANDLE, pinlane_device_warm_up(device));
}

static void slices(void) {
  pinlane_stream *s = rig.stream;
  const size_t sizes[] = {0, 1, 4096, 65536, 65537, LARGE};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const size_t bytes = sizes[i];
    pinlane_ticket *ticket = NULL;
    memset(rig.back, 0, LARGE);
    OK(pinlane_upload_slice(s, rig.host, rig.raw, bytes, &ticket));
    OK(pinlane_download_slice(s, rig.raw, rig.back, bytes));
    EXPECT(memcmp(rig.host, rig.back, bytes) == 0 && (bytes == LARGE || rig.back[bytes] == 0));
    OK(pinlane_ticket_wait(ticket));
    OK(pinlane_ticket_free(ticket));

    const size_t at = LARGE - bytes;
    memset(rig.back, 0, LARGE);
    OK(pinlane_device_buffer_upload_slice(s, rig.host, rig.gpu, at, bytes, NULL));
    OK(pinlane_device_buffer_download_slice(s, rig.gpu, at, rig.back, bytes));
    EXPECT(memcmp(rig.host, rig.back, bytes) == 0 && (bytes == LARGE || rig.back[bytes] == 0));
  }

  pinlane_ticket *ticket = NULL, **t = &ticket;
  REFUSED(INVALID_HANDLE, pinlane_upload_slice(NULL, rig.host, rig.raw, 8, t));
  REFUSED(INVALID_VALUE, pinlane_upload_slice(s, NULL, rig.raw, 8, t));
  REFUSED(INVALID_VALUE, pinlane_upload_slice(s, rig.host, NULL, 8, t));
  REFUSED(INVALID_VALUE, pinlane_upload_slice(s, rig.host, rig.raw, SIZE_MAX, t));
  REFUSED(INVALID_VALUE, pinlane_upload_slice(s, rig.host, rig.raw, 8, (void *)((char *)t + 1)));
  REFUSED(INVALID_HANDLE, pinlane_download_slice(NULL, rig.raw, rig.back, 8));
  REFUSED(INVALID_VALUE, pinlane_download_slice(s, NULL, rig.back, 8));
  REFUSED(INVALID_VALUE, pinlane_download_slice(s, rig.raw, NULL, 8));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_upload_slice(s, NULL, rig.gpu, 0, 8, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload_slice(s, rig.host, rig.gpu, LARGE, 1, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload_slice(s, rig.host, rig.gpu, SIZE_MAX, 2, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_upload_slice(s, rig.host, rig.other_gpu, 0, 8, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_download_slice(s, rig.gpu, 1, rig.back, LARGE));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_download_slice(s, rig.gpu, 0, NULL, 1));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_download_slice(s, rig.other_gpu, 0, rig.back, 8));
  EXPECT(ticket == NULL);
  OK(pinlane_upload_slice(s, NULL, NULL, 0, NULL));
  OK(pinlane_download_slice(s, NULL, NULL, 0));
}

static void files(void) {
  FILE *const temporary = tmpfile();
  if (temporary == NULL || fwrite(rig.host, LARGE, 1, temporary) != 1 || fflush(temporary) != 0) {
    abort();
  }
  char path[32]; /* the file has no other name */
  snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(temporary));
  pinlane_file *file = NULL;
  uint64_t size = 0;
  REFUSED(INVALID_VALUE, pinlane_file_open(NULL, 0, &file));
  REFUSED(INVALID_VALUE, pinlane_file_open(path, 0, NULL));
  REFUSED(INVALID_VALUE, pinlane_file_open(path, 2, &file));
  REFUSED(IO, pinlane_file_open("/", 0, &file));
  REFUSED(IO, pinlane_file_open("/pinlane/no/such/file", PINLANE_FILE_DIRECT, &file));
  EXPECT(file == NULL && strstr(pinlane_last_error(), "/pinlane/no/such/file") != NULL);
  REFUSED(INVALID_VALUE, pinlane_file_open_mapped(rig.device, NULL, &file));
  REFUSED(INVALID_VALUE, pinlane_file_open_mapped(rig.device, path, NULL));
  REFUSED(IO, pinlane_file_open_mapped(rig.device, "/", &file));
  OK(pinlane_file_open_mapped(rig.device, path, &file));
  OK(pinlane_device_buffer_upload_file(rig.stream, file, 100, rig.gpu, 0, 3000, NULL));
  OK(pinlane_file_free(file)); /* waits for the copy */
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 0, rig.back, 3000));
  EXPECT(memcmp(rig.back, rig.host + 100, 3000) == 0);
  file = NULL;

  OK(pinlane_file_open(path, 0, &file));
  OK(pinlane_file_size(file, &size));
  EXPECT(size == LARGE);

  pinlane_stream *s = rig.stream;
  OK(pinlane_upload_file(s, file, 1, rig.raw, LARGE - 1, NULL));
  OK(pinlane_download_slice(s, rig.raw, rig.back, LARGE - 1));
  EXPECT(memcmp(rig.back, rig.host + 1, LARGE - 1) == 0);
  const pinlane_file_range ranges[] = {
      {.offset = 100, .bytes = 200000, .device_buffer = rig.gpu, .device_offset = 300000},
      {.offset = 5, .bytes = 0, .device_buffer = rig.gpu, .device_offset = 300001},
      {.offset = 7, .bytes = 100000, .device_buffer = rig.gpu, .device_offset = 200000},
      {.offset = LARGE - 9, .bytes = 9, .dst = rig.raw},
  };
  OK(pinlane_upload_file_ranges(s, file, ranges, 4, NULL));
  OK(pinlane_device_buffer_download_slice(s, rig.gpu, 200000, rig.back, 300000));
  EXPECT(memcmp(rig.back, rig.host + 7, 100000) == 0);
  EXPECT(memcmp(rig.back + 100000, rig.host + 100, 200000) == 0);
  OK(pinlane_download_slice(s, rig.raw, rig.back, 9));
  EXPECT(memcmp(rig.back, rig.host + LARGE - 9, 9) == 0);
  OK(pinlane_device_buffer_upload_file(s, file, 3, rig.gpu2, 5, 1000, NULL));
  OK(pinlane_device_buffer_download_slice(s, rig.gpu2, 5, rig.back, 1000));
  EXPECT(memcmp(rig.back, rig.host + 3, 1000) == 0);
  const void *data = NULL;
  OK(pinlane_file_read(file, 11, rig.buffer, 1, PINNED - 1));
  OK(pinlane_buffer_read(rig.buffer, &data));
  EXPECT(memcmp((const char *)data + 1, rig.host + 11, PINNED - 1) == 0);

  pinlane_ticket *ticket = NULL, **t = &ticket;
  REFUSED(OUT_OF_RANGE, pinlane_upload_file(s, file, 1, rig.raw, LARGE, t));
  REFUSED(OUT_OF_RANGE, pinlane_upload_file(s, file, UINT64_MAX, rig.raw, 2, t));
  REFUSED(INVALID_VALUE, pinlane_upload_file(s, file, 0, NULL, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_upload_file(NULL, file, 0, rig.raw, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_upload_file(s, NULL, 0, rig.raw, 1, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload_file(s, file, 0, rig.gpu, 1, LARGE, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_upload_file(s, file, 0, rig.other_gpu, 0, 1, t));
  REFUSED(OUT_OF_RANGE, pinlane_file_read(file, 0, rig.buffer, 1, PINNED));
  REFUSED(OUT_OF_RANGE, pinlane_file_read(file, LARGE, rig.buffer, 0, 1));
  REFUSED(INVALID_HANDLE, pinlane_file_read(file, 0, NULL, 0, 1));
  REFUSED(INVALID_VALUE, pinlane_upload_file_ranges(s, file, NULL, 1, t));
  REFUSED(INVALID_VALUE,
          pinlane_upload_file_ranges(s, file, (pinlane_file_range[]){ranges[0], ranges[0]}, 2, t));
  const pinlane_file_range newer = {.reserved = 1};
  REFUSED(INVALID_VALUE, pinlane_upload_file_ranges(s, file, &newer, 1, t));
  EXPECT(ticket == NULL);

  /* A file that is truncated after it was opened causes a status, not a signal. */
  EXPECT(ftruncate(fileno(temporary), 10) == 0);
  REFUSED(OUT_OF_RANGE, pinlane_upload_file(s, file, 0, rig.raw, 11, t));
  OK(pinlane_upload_file(s, file, 0, rig.raw, 10, NULL));
  OK(pinlane_file_free(file));
  REFUSED(INVALID_HANDLE, pinlane_file_free(file));
  OK(pinlane_file_free(NULL));

  /* Past the page cache, if the file system supports that. */
  file = NULL;
  const pinlane_status direct = pinlane_file_open(path, PINLANE_FILE_DIRECT, &file);
  EXPECT(direct == PINLANE_STATUS_OK || direct == PINLANE_STATUS_UNSUPPORTED);
  if (direct == PINLANE_STATUS_OK) {
    OK(pinlane_upload_file(s, file, 1, rig.raw, 9, NULL));
    OK(pinlane_download_slice(s, rig.raw, rig.back, 9));
    EXPECT(memcmp(rig.back, rig.host + 1, 9) == 0);
  }
  OK(pinlane_file_free(file));
  fclose(temporary);
}

int main(void) {
  set_up_copies();
  options();
  warm_up();
  slices();
  files();
  pinlane_copy_team_options alone = PINLANE_COPY_TEAM_OPTIONS_INIT;
  alone.flags = PINLANE_COPY_TEAM_ALONE;
  OK(pinlane_copy_team_install(&alone));
  slices();
  tear_down_copies();
  return verdict("slices and files");
}
