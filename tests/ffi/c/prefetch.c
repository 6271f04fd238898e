/* Pipelines: threads of pinlane call a producer in C and copy its batches in advance. C11, on a
 * lazy emulated device. */

#define _POSIX_C_SOURCE 200809L /* semaphores, beside strict C */

#include "rig.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { IMAGE = 1000, LABELS = 5000, OWN_CODE = 77 };

/* A batch of one slice that is filled and one of pageable memory. */
struct item {
  size_t number;
  unsigned char labels[LABELS];
  pinlane_host_slice slices[2];
};

/* The producer's batches, and its observations. */
struct source {
  size_t batches, begun;
  size_t next_fails, describe_fails, fill_fails; /* numbers of batches; 0: none */
  size_t last_labels;                            /* the bytes of the last batch's second slice */
  atomic_size_t filled, released;
};

static unsigned char pattern(size_t number, size_t at) {
  return (unsigned char)(number * 31 + at * 7 + at / 251);
}

static int32_t next(void *user, void **item) {
  struct source *source = user;
  const size_t number = source->begun;
  if (number == source->batches) {
    return PINLANE_STATUS_END;
  }
  source->begun++;
  if (number != 0 && number == source->next_fails) {
    pinlane_set_last_error(PINLANE_STATUS_IO, "the disk is gone");
    return OWN_CODE;
  }
  struct item *made = calloc(1, sizeof *made);
  if (made == NULL) {
    abort();
  }
  made->number = number;
  for (size_t i = 0; i < LABELS; i++) {
    made->labels[i] = pattern(number, i);
  }
  *item = made;
  return PINLANE_STATUS_OK;
}

static int32_t describe(void *user, void *item, const pinlane_host_slice **slices, size_t *count) {
  struct source *source = user;
  struct item *made = item;
  const int is_last = made->number + 1 == source->batches;
  made->slices[0] = (pinlane_host_slice){.name = "image", .bytes = IMAGE, .element_bytes = 8};
  made->slices[1] = (pinlane_host_slice){.data = made->labels, .bytes = LABELS};
  if (is_last && source->last_labels != 0) {
    made->slices[1].bytes = source->last_labels;
  }
  *slices = made->slices;
  *count = 2;
  return made->number != 0 && made->number == source->describe_fails ? -1 : PINLANE_STATUS_OK;
}

static int32_t fill(void *user, void *item, void *const *room) {
  struct source *source = user;
  const struct item *made = item;
  atomic_fetch_add(&source->filled, 1);
  for (size_t i = 0; i < IMAGE; i++) {
    ((unsigned char *)room[0])[i] = pattern(made->number + 1, i);
  }
  if (made->number != 0 && made->number == source->fill_fails) {
    /* A call that fails in the producer: its message reaches the consumer. */
    return pinlane_stream_synchronize(NULL);
  }
  return room[1] == NULL ? PINLANE_STATUS_OK : 1;
}

static void release(void *user, void *item) {
  struct source *source = user;
  atomic_fetch_add(&source->released, 1);
  free(item);
}

static pinlane_producer producer_of(struct source *source) {
  pinlane_producer producer = PINLANE_PRODUCER_INIT;
  producer.user = source;
  producer.next = next;
  producer.describe = describe;
  producer.fill = fill;
  producer.release = release;
  return producer;
}

static pinlane_prefetch *started(struct source *source, const pinlane_prefetch_options *options) {
  const pinlane_producer producer = producer_of(source);
  pinlane_prefetch *prefetch = NULL;
  OK(pinlane_prefetch_create(rig.pool, rig.stream, &producer, options, &prefetch));
  return prefetch;
}

/* Whether a slice on the device holds the pattern of `number`. */
static int holds(pinlane_device_buffer *batch, const char *name, size_t number, size_t wanted) {
  unsigned char bytes[LABELS];
  size_t offset = 0, size = 0;
  OK(pinlane_device_batch_slice(batch, name, &offset, &size));
  if (size != wanted || offset % 256 != 0) {
    return 0;
  }
  OK(pinlane_device_buffer_download_slice(rig.stream, batch, offset, bytes, size));
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] != pattern(number, i)) {
      return 0;
    }
  }
  return 1;
}

static void batches_come_in_order(void) {
  enum { BATCHES = 40 };
  struct source source = {.batches = BATCHES};
  pinlane_prefetch *prefetch = started(&source, NULL);
  pinlane_device_buffer *batch = NULL;
  pinlane_status status;
  uint64_t number = 0;
  while ((status = pinlane_prefetch_next(prefetch, &batch)) == PINLANE_STATUS_OK) {
    uint64_t index = 77;
    OK(pinlane_device_batch_index(batch, &index));
    EXPECT(index == number);
    EXPECT(holds(batch, "image", number + 1, IMAGE) && holds(batch, "1", number, LABELS));
    OK(pinlane_device_buffer_free(batch));
    number++;
  }
  EXPECT(status == PINLANE_STATUS_END && number == BATCHES);
  REFUSED(END, pinlane_prefetch_next(prefetch, &batch)); /* and stays so */
  pinlane_prefetch_progress progress = PINLANE_PREFETCH_PROGRESS_INIT;
  OK(pinlane_prefetch_get_progress(prefetch, &progress));
  EXPECT(progress.produced == BATCHES && progress.uploaded == BATCHES);
  EXPECT(progress.yielded == BATCHES && progress.bytes == BATCHES * (IMAGE + LABELS));
  OK(pinlane_prefetch_free(prefetch));
  EXPECT(source.begun == BATCHES && source.filled == BATCHES && source.released == BATCHES);
  REFUSED(INVALID_HANDLE, pinlane_prefetch_free(prefetch));
  REFUSED(INVALID_HANDLE, pinlane_prefetch_next(prefetch, &batch));
}

/* A batch is a device buffer, which stays alive without its prefetch. */
static void a_batch_is_a_device_buffer(void) {
  struct source source = {.batches = 2};
  pinlane_prefetch *prefetch = started(&source, NULL);
  pinlane_device_buffer *batch = NULL;
  OK(pinlane_prefetch_next(prefetch, &batch));
  OK(pinlane_prefetch_free(prefetch));
  pinlane_ticket *ticket = NULL;
  size_t count = 0, offset = 0, size = 0;
  char name[4] = "xxx";
  OK(pinlane_device_batch_ticket(batch, &ticket));
  OK(pinlane_ticket_wait(ticket));
  OK(pinlane_ticket_free(ticket));
  OK(pinlane_device_batch_count(batch, &count));
  OK(pinlane_device_batch_name(batch, 0, name, sizeof name, &size));
  EXPECT(count == 2 && strcmp(name, "ima") == 0 && size == sizeof "image");
  OK(pinlane_device_batch_name(batch, 1, name, sizeof name, NULL));
  EXPECT(strcmp(name, "1") == 0);
  OK(pinlane_device_batch_name(batch, 1, NULL, 0, &size));
  EXPECT(size == sizeof "1");
  REFUSED(OUT_OF_RANGE, pinlane_device_batch_name(batch, 2, name, sizeof name, NULL));
  REFUSED(INVALID_VALUE, pinlane_device_batch_name(batch, 0, NULL, 1, NULL));
  REFUSED(INVALID_VALUE, pinlane_device_batch_slice(batch, "labels", &offset, &size));
  REFUSED(INVALID_VALUE, pinlane_device_batch_slice(batch, NULL, &offset, &size));
  REFUSED(INVALID_VALUE, pinlane_device_batch_slice(batch, "image", &offset, NULL));
  uint64_t index = 77;
  REFUSED(INVALID_VALUE, pinlane_device_batch_index(rig.gpu, &index)); /* no batch */
  struct DLManagedTensorVersioned *tensor = NULL;
  pinlane_dlpack_options exported = PINLANE_DLPACK_OPTIONS_INIT;
  exported.stream = rig.stream; /* the memory of a batch serves later batches */
  REFUSED(INVALID_VALUE, pinlane_device_buffer_into_dlpack(batch, &exported, &tensor));
  EXPECT(index == 77);

  OK(pinlane_device_batch_slice(batch, "image", &offset, &size));
  pinlane_use use = {.device_buffer = batch, .access = PINLANE_ACCESS_READ};
  pinlane_foreign *work = NULL;
  OK(pinlane_foreign_begin(rig.stream, &use, 1, &work));
  REFUSED(BUSY, pinlane_device_buffer_fill(rig.stream, batch, offset, size, "x", 1, NULL));
  OK(pinlane_foreign_end(work, NULL));
  OK(pinlane_device_buffer_copy(rig.stream, batch, offset, rig.gpu, 0, size, NULL));
  pinlane_copy copy = {.device_buffer = batch, .device_offset = offset, .bytes = size};
  copy.buffer = rig.buffer;
  OK(pinlane_download_batch(rig.stream, &copy, 1, NULL, NULL));
  OK(pinlane_device_buffer_free(batch));
  const void *data = NULL;
  OK(pinlane_buffer_read(rig.buffer, &data));
  EXPECT(((const unsigned char *)data)[IMAGE - 1] == pattern(1, IMAGE - 1));
}

/* An error takes its batch's place, with the code that the producer returned. */
static void errors_take_their_batchs_place(void) {
  struct source source = {.batches = 12, .next_fails = 3, .describe_fails = 5, .fill_fails = 9};
  pinlane_prefetch *prefetch = started(&source, NULL);
  for (size_t number = 0; number < source.batches; number++) {
    pinlane_device_buffer *batch = NULL;
    if (number == 3 || number == 5 || number == 9) {
      REFUSED(PRODUCER, pinlane_prefetch_next(prefetch, &batch));
      const char *const message = pinlane_last_error();
      const int32_t code = pinlane_last_producer_error();
      EXPECT(batch == NULL && strstr(message, "pinlane_last_producer_error") != NULL);
      if (number == 3) {
        EXPECT(code == OWN_CODE && strstr(message, "next returned 77: the disk is gone") != NULL);
      } else if (number == 5) {
        EXPECT(code == -1 && strstr(message, "describe returned -1;") != NULL);
      } else {
        EXPECT(code == PINLANE_STATUS_INVALID_HANDLE);
        EXPECT(strstr(message, "fill returned 16: pinlane_stream_synchronize: the") != NULL);
      }
    } else {
      OK(pinlane_prefetch_next(prefetch, &batch));
      EXPECT(holds(batch, "image", number + 1, IMAGE));
      OK(pinlane_device_buffer_free(batch));
    }
  }
  pinlane_device_buffer *batch = NULL;
  REFUSED(END, pinlane_prefetch_next(prefetch, &batch));
  EXPECT(pinlane_last_producer_error() == 0);
  OK(pinlane_prefetch_free(prefetch));
  EXPECT(source.released == 11); /* all that were begun */
}

/* The slices of describe are checked, and an error is the batch's. */
static const pinlane_host_slice *wrong;
static size_t wrong_count;

static int32_t next_wrong(void *user, void **item) {
  (void)item;
  size_t *const begun = user;
  return (*begun)++ == 0 ? PINLANE_STATUS_OK : PINLANE_STATUS_END;
}

static int32_t describe_wrong(void *user, void *item, const pinlane_host_slice **slices,
                              size_t *count) {
  (void)user;
  (void)item;
  *slices = wrong;
  *count = wrong_count;
  return PINLANE_STATUS_OK;
}

static pinlane_status first_of(const pinlane_host_slice *slices, size_t count) {
  size_t begun = 0;
  pinlane_producer producer = PINLANE_PRODUCER_INIT;
  producer.user = &begun;
  producer.next = next_wrong;
  producer.describe = describe_wrong;
  wrong = slices;
  wrong_count = count;
  pinlane_prefetch *prefetch = NULL;
  pinlane_device_buffer *batch = NULL;
  OK(pinlane_prefetch_create(rig.pool, rig.stream, &producer, NULL, &prefetch));
  const pinlane_status status = pinlane_prefetch_next(prefetch, &batch);
  EXPECT(status == PINLANE_STATUS_OK || pinlane_last_producer_error() == 0);
  OK(pinlane_device_buffer_free(batch));
  OK(pinlane_prefetch_free(prefetch));
  return status;
}

static void wrong_descriptions_are_errors(void) {
  const pinlane_host_slice room = {.bytes = 8};
  const pinlane_host_slice reserved = {.reserved = 1};
  const pinlane_host_slice endless = {.data = &room, .bytes = SIZE_MAX};
  const pinlane_host_slice twins[2] = {{.name = "a"}, {.name = "a"}};
  const pinlane_host_slice empty = {.name = "nothing"};
  EXPECT(first_of(&room, 1) == PINLANE_STATUS_PRODUCER); /* no data, and not reserved */
  EXPECT(first_of(&reserved, 1) == PINLANE_STATUS_PRODUCER);
  EXPECT(first_of(&endless, 1) == PINLANE_STATUS_PRODUCER);
  EXPECT(first_of(NULL, 1) == PINLANE_STATUS_PRODUCER);
  EXPECT(first_of(twins, 2) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(first_of(&empty, 1) == PINLANE_STATUS_OK);
  EXPECT(first_of(NULL, 0) == PINLANE_STATUS_OK);
}

static void options_do_what_they_say(void) {
  struct source source = {.batches = 9, .last_labels = 1};
  pinlane_prefetch_options options = PINLANE_PREFETCH_OPTIONS_INIT;
  options.depth = 2;
  options.workers = 4;
  options.flags = PINLANE_PREFETCH_UNORDERED | PINLANE_PREFETCH_DROP_LAST;
  pinlane_prefetch *prefetch = started(&source, &options);
  unsigned seen = 0;
  pinlane_device_buffer *batch = NULL;
  while (pinlane_prefetch_next(prefetch, &batch) == PINLANE_STATUS_OK) {
    uint64_t index = 0;
    OK(pinlane_device_batch_index(batch, &index));
    EXPECT(holds(batch, "image", index + 1, IMAGE));
    seen |= 1u << index;
    OK(pinlane_device_buffer_free(batch));
  }
  EXPECT(seen == 0xff); /* the last one, which is smaller, was dropped */
  OK(pinlane_prefetch_free(prefetch));
  EXPECT(source.released == 9);
}

static void sleep_ms(long ms) {
  const struct timespec time = {0, ms * 1000000};
  nanosleep(&time, NULL);
}

/* A producer that waits in `next` until it is released. */
struct gate {
  sem_t inside, open;
  atomic_int returned;
};

static int32_t next_at_gate(void *user, void **item) {
  struct gate *gate = user;
  (void)item;
  sem_post(&gate->inside);
  sem_wait(&gate->open);
  sleep_ms(20); /* a free that does not wait for this would return first */
  gate->returned = 1;
  return PINLANE_STATUS_END;
}

static void *consume(void *prefetch) {
  static pinlane_status status;
  pinlane_device_buffer *batch = NULL;
  do { /* the other thread may be asking at this moment */
    status = pinlane_prefetch_next(prefetch, &batch);
  } while (status == PINLANE_STATUS_BUSY);
  return &status;
}

static void *open_later(void *gate) {
  sleep_ms(20);
  sem_post(&((struct gate *)gate)->open);
  return NULL;
}

/* Freed while the producer is inside a function and another thread waits for a batch. */
static void freeing_ends_all_calls(void) {
  struct gate gate = {.returned = 0};
  sem_init(&gate.inside, 0, 0);
  sem_init(&gate.open, 0, 0);
  pinlane_producer producer = PINLANE_PRODUCER_INIT;
  producer.user = &gate;
  producer.next = next_at_gate;
  producer.describe = describe_wrong;
  pinlane_prefetch *prefetch = NULL;
  pinlane_device_buffer *batch = NULL;
  OK(pinlane_prefetch_create(rig.pool, rig.stream, &producer, NULL, &prefetch));
  sem_wait(&gate.inside);
  REFUSED(TIMED_OUT, pinlane_prefetch_next_timeout(prefetch, 1000, &batch));
  pthread_t consumer, opener;
  void *status = NULL;
  EXPECT(pthread_create(&consumer, NULL, consume, prefetch) == 0);
  while (pinlane_prefetch_next_timeout(prefetch, 0, &batch) == PINLANE_STATUS_TIMED_OUT) {
    sleep_ms(1); /* until the consumer is inside */
  }
  REFUSED(BUSY, pinlane_prefetch_next(prefetch, &batch));
  EXPECT(pthread_create(&opener, NULL, open_later, &gate) == 0);
  OK(pinlane_prefetch_free(prefetch));
  EXPECT(gate.returned == 1 && batch == NULL);
  pthread_join(consumer, &status);
  pthread_join(opener, NULL);
  EXPECT(*(pinlane_status *)status == PINLANE_STATUS_CANCELLED);
  sem_destroy(&gate.inside);
  sem_destroy(&gate.open);
}

/* Freed at any moment: batches are ready, in preparation, or held by the consumer. */
static void freeing_early_releases_everything(void) {
  for (size_t taken = 0; taken < 6; taken++) {
    struct source source = {.batches = 1000};
    pinlane_prefetch *prefetch = started(&source, NULL);
    pinlane_device_buffer *held[6] = {NULL};
    for (size_t i = 0; i < taken; i++) {
      OK(pinlane_prefetch_next(prefetch, &held[i]));
    }
    OK(pinlane_prefetch_free(prefetch));
    EXPECT(source.begun == source.released && source.begun < 1000);
    for (size_t i = 0; i < taken; i++) {
      EXPECT(holds(held[i], "1", i, LABELS));
      OK(pinlane_device_buffer_free(held[i]));
    }
  }
}

/* The producer calls pinlane, also for its own pipeline. */
static struct {
  pinlane_prefetch *prefetch;
  sem_t known;
  int wrong;
} own;

static int32_t next_that_calls(void *user, void **item) {
  if (((struct source *)user)->begun == 0) {
    sem_wait(&own.known);
  }
  pinlane_prefetch_progress progress = PINLANE_PREFETCH_PROGRESS_INIT;
  pinlane_buffer *buffer = NULL;
  void *data = NULL;
  own.wrong += pinlane_prefetch_free(own.prefetch) != PINLANE_STATUS_UNSUPPORTED;
  own.wrong += pinlane_prefetch_get_progress(own.prefetch, &progress) != PINLANE_STATUS_OK;
  own.wrong += pinlane_buffer_alloc(rig.pool, BYTES, &buffer) != PINLANE_STATUS_OK;
  own.wrong += pinlane_buffer_write(buffer, &data) != PINLANE_STATUS_OK;
  own.wrong += pinlane_buffer_free(buffer) != PINLANE_STATUS_OK;
  return next(user, item);
}

static void a_producer_may_call_pinlane(void) {
  struct source source = {.batches = 20};
  pinlane_producer producer = producer_of(&source);
  producer.next = next_that_calls;
  pinlane_prefetch_options options = PINLANE_PREFETCH_OPTIONS_INIT;
  options.depth = options.workers = 1;
  pinlane_device_buffer *batch = NULL;
  sem_init(&own.known, 0, 0);
  OK(pinlane_prefetch_create(rig.pool, rig.stream, &producer, &options, &own.prefetch));
  sem_post(&own.known);
  for (int i = 0; i < 20; i++) {
    OK(pinlane_prefetch_next(own.prefetch, &batch));
    OK(pinlane_device_buffer_free(batch));
  }
  OK(pinlane_prefetch_free(own.prefetch));
  EXPECT(own.wrong == 0 && source.released == 20);
}

/* A consumer that is called with each batch, and asks for the next one from there. */
struct consumer {
  pinlane_prefetch *prefetch;
  sem_t end;
  uint64_t next;
  int wrong;
  pinlane_status last;
};

static void consumed(void *user, pinlane_status status, pinlane_device_buffer *batch) {
  struct consumer *consumer = user;
  uint64_t index = 77;
  if (status != PINLANE_STATUS_OK) {
    consumer->wrong += batch != NULL || strstr(pinlane_last_error(), "pinlane_prefetch_") == NULL;
    consumer->last = status;
    sem_post(&consumer->end);
    return;
  }
  consumer->wrong += pinlane_device_batch_index(batch, &index) != PINLANE_STATUS_OK;
  consumer->wrong += index != consumer->next++;
  consumer->wrong += pinlane_device_buffer_free(batch) != PINLANE_STATUS_OK;
  /* If it succeeds, another thread may run this function already. */
  if (pinlane_prefetch_next_async(consumer->prefetch, consumed, user, NULL)) {
    consumer->wrong++;
    sem_post(&consumer->end);
  }
}

static void ask_inside(void *user) {
  struct consumer *consumer = user;
  consumer->last = pinlane_prefetch_next_async(consumer->prefetch, consumed, user, NULL);
}

static void batches_come_by_callback(void) {
  struct source source = {.batches = 30};
  struct consumer consumer = {.prefetch = started(&source, NULL)};
  sem_init(&consumer.end, 0, 0);
  /* It is refused in a host function, without an effect. */
  OK(pinlane_stream_launch_host(rig.stream, ask_inside, &consumer, NULL));
  OK(pinlane_stream_synchronize(rig.stream));
  EXPECT(consumer.last == PINLANE_STATUS_UNSUPPORTED && consumer.next == 0);
  OK(pinlane_prefetch_next_async(consumer.prefetch, consumed, &consumer, NULL));
  sem_wait(&consumer.end);
  EXPECT(consumer.last == PINLANE_STATUS_END && consumer.next == 30 && consumer.wrong == 0);
  REFUSED(INVALID_VALUE, pinlane_prefetch_next_async(consumer.prefetch, NULL, NULL, NULL));
  OK(pinlane_prefetch_free(consumer.prefetch));
}

/* A request that is withdrawn leaves the batch. The callback of a request of a freed prefetch is
 * called. */
static void requests_for_batches_end(void) {
  struct gate gate = {.returned = 0};
  sem_init(&gate.inside, 0, 0);
  sem_init(&gate.open, 0, 0);
  pinlane_producer producer = PINLANE_PRODUCER_INIT;
  producer.user = &gate;
  producer.next = next_at_gate;
  producer.describe = describe_wrong;
  struct consumer consumer = {.next = 0};
  sem_init(&consumer.end, 0, 0);
  pinlane_device_buffer *batch = NULL;
  OK(pinlane_prefetch_create(rig.pool, rig.stream, &producer, NULL, &consumer.prefetch));
  sem_wait(&gate.inside);
  pinlane_request *request = NULL;
  OK(pinlane_prefetch_next_async(consumer.prefetch, consumed, &consumer, &request));
  REFUSED(BUSY, pinlane_prefetch_next(consumer.prefetch, &batch));
  OK(pinlane_request_cancel(request));
  OK(pinlane_request_cancel(request));
  OK(pinlane_request_free(request));
  REFUSED(INVALID_HANDLE, pinlane_request_cancel(request));
  sem_wait(&consumer.end);
  EXPECT(consumer.last == PINLANE_STATUS_CANCELLED && consumer.wrong == 0);
  consumer.last = PINLANE_STATUS_OK;
  OK(pinlane_prefetch_next_async(consumer.prefetch, consumed, &consumer, NULL));
  sem_post(&gate.open);
  OK(pinlane_prefetch_free(consumer.prefetch));
  sem_wait(&consumer.end);
  EXPECT(consumer.last == PINLANE_STATUS_CANCELLED || consumer.last == PINLANE_STATUS_END);
  EXPECT(consumer.wrong == 0 && gate.returned);
  sem_destroy(&consumer.end);
}

static void bad_arguments(void) {
  struct source source = {.batches = 5};
  pinlane_producer producer = producer_of(&source);
  pinlane_prefetch_options options = PINLANE_PREFETCH_OPTIONS_INIT;
  pinlane_prefetch *prefetch = NULL;
  pinlane_pool *p = rig.pool;
  pinlane_stream *s = rig.stream;
  REFUSED(INVALID_HANDLE, pinlane_prefetch_create(NULL, s, &producer, NULL, &prefetch));
  REFUSED(INVALID_HANDLE, pinlane_prefetch_create(p, NULL, &producer, NULL, &prefetch));
  REFUSED(INVALID_VALUE, pinlane_prefetch_create(p, s, NULL, NULL, &prefetch));
  REFUSED(INVALID_VALUE, pinlane_prefetch_create(p, s, &producer, NULL, NULL));
  options.depth = 65537;
  REFUSED(INVALID_VALUE, pinlane_prefetch_create(p, s, &producer, &options, &prefetch));
  options.depth = 1;
  options.workers = 257;
  REFUSED(INVALID_VALUE, pinlane_prefetch_create(p, s, &producer, &options, &prefetch));
  options.workers = 1;
  options.flags = 4;
  REFUSED(INVALID_VALUE, pinlane_prefetch_create(p, s, &producer, &options, &prefetch));
  options.flags = 0;
  options.size--;
  REFUSED(INVALID_VALUE, pinlane_prefetch_create(p, s, &producer, &options, &prefetch));
  producer.next = NULL;
  REFUSED(INVALID_VALUE, pinlane_prefetch_create(p, s, &producer, NULL, &prefetch));
  producer.size = 0;
  REFUSED(INVALID_VALUE, pinlane_prefetch_create(p, s, &producer, NULL, &prefetch));
  EXPECT(prefetch == NULL && source.begun == 0);

  pinlane_device_buffer *batch = NULL;
  pinlane_prefetch_progress progress = PINLANE_PREFETCH_PROGRESS_INIT;
  REFUSED(INVALID_HANDLE, pinlane_prefetch_next(NULL, &batch));
  REFUSED(INVALID_HANDLE, pinlane_prefetch_next_timeout((void *)rig.gpu, 1, &batch));
  REFUSED(INVALID_HANDLE, pinlane_prefetch_next_async(NULL, consumed, NULL, NULL));
  REFUSED(INVALID_HANDLE, pinlane_prefetch_get_progress(NULL, &progress));
  REFUSED(INVALID_HANDLE, pinlane_device_batch_index(NULL, &progress.bytes));
  REFUSED(INVALID_HANDLE, pinlane_request_cancel(NULL));
  prefetch = started(&source, NULL);
  progress.size++;
  REFUSED(INVALID_VALUE, pinlane_prefetch_get_progress(prefetch, &progress));
  REFUSED(INVALID_VALUE, pinlane_prefetch_next(prefetch, NULL));
  OK(pinlane_prefetch_next(prefetch, &batch)); /* that lost none */
  EXPECT(holds(batch, "image", 1, IMAGE));
  OK(pinlane_device_buffer_free(batch));
  OK(pinlane_prefetch_free(prefetch));
  OK(pinlane_prefetch_free(NULL));
  OK(pinlane_request_free(NULL));
}

int main(void) {
  set_up(BYTES, BYTES);
  batches_come_in_order();
  a_batch_is_a_device_buffer();
  errors_take_their_batchs_place();
  wrong_descriptions_are_errors();
  options_do_what_they_say();
  freeing_ends_all_calls();
  freeing_early_releases_everything();
  a_producer_may_call_pinlane();
  batches_come_by_callback();
  requests_for_batches_end();
  bad_arguments();
  tear_down();
  return verdict("prefetch");
}
