/* The plugin of two_copies.c: what it has of pinlane is the shared library's. */

#include <pinlane/pinlane.h>

void *plugins_version(void) { return (void *)pinlane_version; }
