/* Loads the library that the argument names, uses a machine that watches, and unloads it. What
   handled SIGSEGV before gets the faults then. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "owner.h"

#include <dlfcn.h>
#include <pinlane/pinlane.h>

/* ISO C has no conversion to a pointer to a function. */
#define FUNCTION(name)                                                                             \
  __typeof__(name) *name##_ = NULL;                                                                \
  *(void **)&name##_ = dlsym(library, #name)

int main(int count, char **arguments) {
  if (count != 2 || !choose_owner("info")) return 2;
  install_owner();
  void *const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  FUNCTION(pinlane_emulator_create);
  FUNCTION(pinlane_pool_create);
  FUNCTION(pinlane_buffer_alloc_zeroed);
  FUNCTION(pinlane_buffer_free);
  FUNCTION(pinlane_pool_free);
  FUNCTION(pinlane_device_free);
  pinlane_emulator_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.memory_bytes = (size_t)1 << 20;
  options.flags = PINLANE_EMULATOR_WATCH_HOST;
  pinlane_device *device = NULL;
  pinlane_pool *pool = NULL;
  pinlane_buffer *buffer = NULL;
  const int opened = pinlane_emulator_create_(&options, &device, 1) == PINLANE_STATUS_OK &&
                     pinlane_pool_create_(device, NULL, &pool) == PINLANE_STATUS_OK &&
                     pinlane_buffer_alloc_zeroed_(pool, PAGE, &buffer) == PINLANE_STATUS_OK &&
                     pinlane_buffer_free_(buffer) == PINLANE_STATUS_OK &&
                     pinlane_pool_free_(pool) == PINLANE_STATUS_OK &&
                     pinlane_device_free_(device) == PINLANE_STATUS_OK;
  dlclose(library);
  const int right = owner_gets_faults();
  printf("%s, %s\n", opened ? "used" : "not used",
         right ? "faults are the owner's" : "faults go astray");
  return opened && right ? 0 : 1;
}
