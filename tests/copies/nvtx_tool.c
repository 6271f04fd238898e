/* A tool that listens by NVTX. It prints what it gets, one line each, on standard error. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef void (*function)(void);

struct attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const char *message;
};

struct callbacks {
  size_t size;
  int (*table)(int module, function ***table, unsigned *size);
};

static __thread int depth;

static void *create(const char *name) {
  fprintf(stderr, "nvtx: domain %s\n", name);
  return (void *)name;
}

static void name_category(void *domain, uint32_t category, const char *name) {
  fprintf(stderr, "nvtx: %s category %u %s\n", (char *)domain, category, name);
}

static int push(void *domain, const struct attributes *range) {
  fprintf(stderr, "nvtx: %s push %u %s %llu, %u %u %d %d\n", (char *)domain, range->category,
          range->message, (unsigned long long)range->payload, range->version, range->size,
          range->payload_type, range->message_type);
  return depth++;
}

static int pop(void *domain) {
  fprintf(stderr, "nvtx: %s pop to %d\n", (char *)domain, depth - 1);
  return --depth;
}

int InitializeInjectionNvtx2(const void *(*exported)(uint32_t)) {
  const struct callbacks *callbacks = exported(1);
  function **table = NULL;
  unsigned size = 0;
  if (callbacks == NULL || callbacks->size < sizeof *callbacks || exported(2) != NULL ||
      callbacks->table(0, &table, &size) || callbacks->table(7, &table, &size) ||
      !callbacks->table(5, &table, &size) || size != 16 || table[0] != NULL || table[16] != NULL) {
    fprintf(stderr, "nvtx: wrong tables\n");
    return 0;
  }
  *table[4] = (function)push;
  *table[5] = (function)pop;
  *table[8] = (function)name_category;
  *table[12] = (function)create;
  return 1;
}
