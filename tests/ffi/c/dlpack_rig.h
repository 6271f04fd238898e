/* The structs of DLPack, copied from the specification of DLPack 1.1, not from pinlane; and the
 * helpers of the tests of tensors. */

#ifndef PINLANE_TESTS_DLPACK_RIG_H
#define PINLANE_TESTS_DLPACK_RIG_H

#include "rig.h"

#include <stdint.h>
#include <stdlib.h>

typedef struct {
  uint32_t major, minor;
} version;
typedef struct {
  int32_t device_type, device_id;
} place;
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} data_type;
typedef struct {
  void *data;
  place device;
  int32_t ndim;
  data_type dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;
typedef struct DLManagedTensor {
  dl_tensor tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *);
} legacy;
typedef struct DLManagedTensorVersioned {
  version version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *);
  uint64_t flags;
  dl_tensor tensor;
} managed;

enum { CPU = 1, CUDA_HOST = 3, EXTENSION = 12, READ_ONLY = 1, COPIED = 2, PADDED = 4 };

static inline size_t live(pinlane_pool *pool) {
  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  OK(pinlane_pool_get_stats(pool, &stats));
  return stats.live_bytes;
}

static inline int32_t is_done(pinlane_ticket *ticket) {
  int32_t done = -1;
  OK(pinlane_ticket_is_done(ticket, &done));
  return done;
}

/* A pool with room for one buffer of BYTES. */
static inline pinlane_pool *small_pool(void) {
  pinlane_pool_options options = PINLANE_POOL_OPTIONS_INIT;
  options.max_bytes = BYTES;
  pinlane_pool *pool = NULL;
  OK(pinlane_pool_create(rig.device, &options, &pool));
  return pool;
}

static inline pinlane_buffer *buffer_of(pinlane_pool *pool) {
  pinlane_buffer *buffer = NULL;
  OK(pinlane_buffer_alloc(pool, BYTES, &buffer));
  return buffer;
}

/* A tensor of another library, in host memory. */
struct producer {
  managed managed;
  int64_t shape[4], strides[4];
  char memory[BYTES];
  int deleted;
};

static inline void count_deletion(managed *tensor) {
  ((struct producer *)tensor->manager_ctx)->deleted++;
}

/* 2 x 100 numbers of type float without gaps, behind 256 bytes. */
static inline struct producer *produce(void) {
  struct producer *made = calloc(1, sizeof *made);
  made->managed.version.major = 1;
  made->managed.version.minor = 3;
  made->managed.manager_ctx = made;
  made->managed.deleter = count_deletion;
  made->managed.tensor.data = made->memory;
  made->managed.tensor.device.device_type = CPU;
  made->managed.tensor.ndim = 2;
  made->managed.tensor.dtype.code = 2;
  made->managed.tensor.dtype.bits = 32;
  made->managed.tensor.dtype.lanes = 1;
  made->managed.tensor.shape = made->shape;
  made->managed.tensor.strides = made->strides;
  made->managed.tensor.byte_offset = 256;
  made->shape[0] = 2;
  made->shape[1] = 100;
  made->strides[0] = 100;
  made->strides[1] = 1;
  return made;
}

#endif
