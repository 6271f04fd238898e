/* The plugin of two_copies.c: it uses the shared library of pinlane. */

#include <pinlane/pinlane.h>

void *plugins_version(void) { return (void *)pinlane_version; }
