/* libcupti.so.13 and libcupti.so.12: every call says that it is not supported, so a profile has no
   events of devices.

   NVIDIA's CUPTI asks the driver for tables that no document describes. Without them it calls
   itself until the stack overflows. libcuda.so.1 loads this library, and the dynamic linker loads
   no other of the same name.

   scripts/build-cudart writes cupti.h: NAME(name) for each name. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_PARAMETER = 1, NOT_SUPPORTED = 27 };

static int refuse(const char *name) {
  static int said;
  const char *quiet = getenv("PINLANE_CUDART_QUIET");
  if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED) && (!quiet || !strcmp(quiet, "0"))) {
    fprintf(stderr, "pinlane-cudart: %s is not there: CUPTI_ERROR_NOT_SUPPORTED. A profile has no"
                    " events of devices\n", name);
  }
  return NOT_SUPPORTED;
}

/* Arguments are left where they are: the caller takes care of them. */
#define NAME(name) \
  int name(void) { return refuse(#name); }
#include "cupti.h"

/* That of CUDA 13.0: JAX refuses to start without. */
int cuptiGetVersion(uint32_t *version) {
  if (!version) return INVALID_PARAMETER;
  *version = 130000;
  return SUCCESS;
}

int cuptiGetResultString(int code, const char **name) {
  if (!name) return INVALID_PARAMETER;
  *name = code == SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR_NOT_SUPPORTED";
  return SUCCESS;
}
