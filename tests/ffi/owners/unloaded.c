/* Loads the library that the argument names, uses a watching machine, and unloads it. Then the
   previous handler of SIGSEGV gets the faults. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "owner.h"

#include <dlfcn.h>
#include <pinlane/pinlane.h>

static void *library;
static int opened;

/* ISO C has no conversion to a pointer to a function. */
#define FUNCTION(name)                                                                             \
  __typeof__(name) *name##_ = NULL;                                                                \
  *(void **)&name##_ = dlsym(library, #name)

/* On a thread that ends, because the linker keeps a library while a thread has thread-local values
 * of it. */
static void *uses(void *unused) {
  (void)unused;
  FUNCTION(pinlane_emulator_create);
  FUNCTION(pinlane_device_free);
  pinlane_emulator_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.memory_bytes = (size_t)1 << 20;
  options.flags = PINLANE_EMULATOR_WATCH_HOST;
  pinlane_device *device = NULL;
  opened = pinlane_emulator_create_(&options, &device, 1) == PINLANE_STATUS_OK &&
           pinlane_device_free_(device) == PINLANE_STATUS_OK;
  return NULL;
}

int main(int count, char **arguments) {
  if (count != 2 || !choose_owner("info")) return 2;
  install_owner();
  library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  pthread_t thread;
  pthread_create(&thread, NULL, uses, NULL);
  pthread_join(thread, NULL);
  dlclose(library);
  const int right = owner_gets_faults();
  printf("%s, %s\n", opened ? "used" : "not used",
         right ? "faults are the owner's" : "faults go astray");
  return opened && right ? 0 : 1;
}
