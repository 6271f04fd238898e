/* The units, names and remedies in messages. C11, on a lazy emulated device. */

#include "rig.h"

static int says(const char *words) {
  const int found = strstr(pinlane_last_error(), words) != NULL;
  if (!found) {
    fprintf(stderr, "  %s\n", pinlane_last_error());
  }
  return found;
}

/* C counts in bytes, whatever the type of the elements. */
static void bytes_are_called_bytes(void) {
  pinlane_ticket **const none = NULL;
  const char pattern[80] = {0};
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload(rig.stream, rig.buffer, BYTES - 8, rig.gpu, 0,
                                                     100, none));
  EXPECT(says("the range 4088 .. 4188 does not lie in 4096 bytes;"));
  REFUSED(OUT_OF_RANGE,
          pinlane_device_buffer_fill(rig.stream, rig.gpu, 40, 8000, pattern, 1, none));
  EXPECT(says("the range 40 .. 8040 does not lie in 4096 bytes;"));
  REFUSED(UNSUPPORTED,
          pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 80, pattern, sizeof pattern, none));
  EXPECT(says("a pattern of more than 64 bytes; fill with at most 64 bytes that repeat"));
  pinlane_buffer *buffer = NULL;
  REFUSED(INVALID_VALUE, pinlane_buffer_alloc(rig.pool, SIZE_MAX, &buffer));
  EXPECT(says(" bytes do not fit in an address space; ask for less"));
  EXPECT(strstr(pinlane_last_error(), "element") == NULL);
}

static void a_null_pointer_is_named_with_what_it_must_be(void) {
  pinlane_file *file = NULL;
  char name[8];
  REFUSED(INVALID_VALUE, pinlane_stream_create(rig.device, NULL, NULL));
  EXPECT(says("stream is NULL; pass the address of a variable"));
  REFUSED(INVALID_VALUE, pinlane_file_open(NULL, 0, &file));
  EXPECT(says("path is NULL; pass a string that ends in a NUL"));
  REFUSED(INVALID_VALUE, pinlane_ticket_on_complete(rig.ticket, NULL, NULL, NULL));
  EXPECT(says("completed is NULL; pass a function"));
  REFUSED(INVALID_VALUE, pinlane_stream_launch_host(rig.stream, NULL, NULL, NULL));
  EXPECT(says("function is NULL; pass a function"));
  REFUSED(INVALID_VALUE, pinlane_upload_slice(rig.stream, name, NULL, sizeof name, NULL));
  EXPECT(says("device_pointer is NULL; pass an address in the memory of the device"));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 8, NULL, 4, NULL));
  EXPECT(says("pattern is NULL; pass the address of the first element"));
  REFUSED(INVALID_VALUE, pinlane_stream_wait_event(rig.stream, NULL));
  EXPECT(says("cuda_event is NULL; pass what the other library has made"));
  REFUSED(INVALID_VALUE, pinlane_device_name(rig.device, name, 0));
  EXPECT(says("buffer is NULL, or its capacity is 0;"));
}

/* A function that counts GPUs does not count the devices of an emulated machine. */
static void a_device_that_a_machine_has_not_is_no_matter_of_gpus(void) {
  pinlane_emulator *machine = NULL;
  pinlane_device *device = NULL;
  OK(pinlane_device_emulator(rig.device, &machine));
  REFUSED(NO_DEVICE, pinlane_emulator_lose_device(machine, 2, 700));
  EXPECT(says("there is no device 2: the machine has 2: "));
  EXPECT(says("; name one from 0 on, or give pinlane_emulator_create a larger number of devices"));
  EXPECT(pinlane_last_cuda_error() == 101);
  REFUSED(NO_DEVICE, pinlane_emulator_open(machine, -1, &device));
  EXPECT(says("there is no device -1: the machine has 2: "));
  OK(pinlane_emulator_free(machine));
}

static void codes_have_names(void) {
  EXPECT(strcmp(pinlane_cuda_error_name(304), "cudaErrorOperatingSystem") == 0);
  EXPECT(strcmp(pinlane_cuda_error_name(401), "cudaErrorIllegalState") == 0);
  EXPECT(strcmp(pinlane_cuda_error_name(908), "cudaErrorStreamCaptureWrongThread") == 0);
  EXPECT(strcmp(pinlane_cuda_error_name(12345), "cudaErrorUnknownCode") == 0);
}

static int32_t next(void *user, void **item) {
  int *const given = user;
  *item = given;
  return (*given)++ == 0 ? PINLANE_STATUS_OK : PINLANE_STATUS_END;
}

/* A NULL array of one slice. */
static int32_t describe(void *user, void *item, const pinlane_host_slice **slices, size_t *count) {
  (void)user, (void)item, (void)slices;
  *count = 1;
  return PINLANE_STATUS_OK;
}

static int32_t describe_room(void *user, void *item, const pinlane_host_slice **slices,
                             size_t *count) {
  static const pinlane_host_slice room = {.bytes = 8};
  (void)user, (void)item;
  *slices = &room;
  *count = 1;
  return PINLANE_STATUS_OK;
}

static void a_wrong_description_is_the_producers(void) {
  int given = 0;
  pinlane_producer producer = PINLANE_PRODUCER_INIT;
  producer.user = &given;
  producer.next = next;
  producer.describe = describe;
  for (int room = 0; room < 2; room++) {
    pinlane_prefetch *prefetch = NULL;
    pinlane_device_buffer *batch = NULL;
    OK(pinlane_prefetch_create(rig.pool, rig.stream, &producer, NULL, &prefetch));
    REFUSED(PRODUCER, pinlane_prefetch_next(prefetch, &batch));
    EXPECT(says(room ? "batch 0: the producer's describe: slice 0 has no data"
                     : "batch 0: the producer's describe: slices is NULL"));
    OK(pinlane_prefetch_free(prefetch));
    given = 0;
    producer.describe = describe_room;
  }
}

int main(void) {
  set_up(BYTES, BYTES);
  bytes_are_called_bytes();
  a_null_pointer_is_named_with_what_it_must_be();
  a_device_that_a_machine_has_not_is_no_matter_of_gpus();
  codes_have_names();
  a_wrong_description_is_the_producers();
  tear_down();
  return verdict("messages");
}
