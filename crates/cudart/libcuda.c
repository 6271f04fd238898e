/* libcuda.so.1: names that jump into the runtime's library, which has the driver as well. So a
   program that uses the driver and the runtime has one machine.

   It also loads libcupti.so.13 and .12 of its folder, if they are there: NVIDIA's would ask this
   driver for what it does not have.

   scripts/build-cudart writes names.h: NAME(n, name) for each name. The runtime is that which the
   process has already; else it is libcudart.so.13 beside this file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
#define NAME(n, name) #name,
#include "names.h"
#undef NAME
};
enum { COUNT = sizeof names / sizeof names[0] };

__attribute__((visibility("hidden"))) void *pinlane_targets[COUNT];

#if defined(__x86_64__)
#define JUMP(n) "  jmp *pinlane_targets+8*" #n "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(n)                                         \
  "  adrp x16, pinlane_targets+8*" #n "\n"              \
  "  ldr x16, [x16, #:lo12:pinlane_targets+8*" #n "]\n" \
  "  br x16\n"
#else
#error "no jumps are known for this processor"
#endif

#define NAME(n, name) \
  __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name ":\n" JUMP(n));
#include "names.h"
#undef NAME

static void *beside_this_file(const char *name) {
  Dl_info here;
  char path[PATH_MAX];
  if (!dladdr(&pinlane_targets, &here)) return NULL;
  const char *slash = strrchr(here.dli_fname, '/');
  const int folder = slash ? (int)(slash + 1 - here.dli_fname) : 0;
  if (snprintf(path, sizeof path, "%.*s%s", folder, here.dli_fname, name) >= PATH_MAX) return NULL;
  return dlopen(path, RTLD_NOW);
}

static void *runtime(void) {
  static const char *const known[] = {"libcudart.so.13", "libcudart.so.12"};
  for (int i = 0; i < 2; ++i) {
    void *there = dlopen(known[i], RTLD_NOW | RTLD_NOLOAD);
    if (there && dlsym(there, "cuInit")) return there;
  }
  return beside_this_file(known[0]);
}

__attribute__((constructor)) static void find_targets(void) {
  beside_this_file("libcupti.so.13");
  beside_this_file("libcupti.so.12");
  void *library = runtime();
  for (int i = 0; i < COUNT; ++i) {
    pinlane_targets[i] = library ? dlsym(library, names[i]) : NULL;
    if (!pinlane_targets[i]) {
      fprintf(stderr, "pinlane-cudart: libcuda.so.1 needs the libcudart.so.13 that was built with"
                      " it, in its folder\n");
      _exit(125);
    }
  }
}
