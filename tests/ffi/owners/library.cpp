// The same program in C++.
#include "library.c"
