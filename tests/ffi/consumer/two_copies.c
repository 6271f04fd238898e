/* A program with the static library inside loads a plugin that needs the shared one. The argument
 * is the plugin's file. */

#define _GNU_SOURCE /* dladdr */

#include <dlfcn.h>
#include <stdio.h>

#include <pinlane/pinlane.h>

int main(int count, char **arguments) {
  void *plugin = count == 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
  if (plugin == NULL) {
    fprintf(stderr, "%s\n", count == 2 ? dlerror() : "usage: two_copies PLUGIN");
    return 2;
  }
  void *(*plugins_version)(void) = (void *(*)(void))dlsym(plugin, "plugins_version");
  Dl_info library;
  if (plugins_version == NULL || dladdr(plugins_version(), &library) == 0) {
    return 2;
  }
  printf("the plugin calls %s\n", library.dli_fname);
  if (plugins_version() == (void *)pinlane_version) {
    fprintf(stderr, "the plugin calls the program's copy\n");
    return 1;
  }
  return 0;
}
