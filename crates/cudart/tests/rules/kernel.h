// Two kernels. nvcc compiles them for the GPU. Any other compiler makes what nvcc's constructors
// make, for the emulated device: a registered name, and a function of the host that stands in.
#pragma once

#include "rules.h"

// Adds 1 to each of `count` bytes.
void launch_increment(char* bytes, int count, cudaStream_t stream);

// Does something that costs the device: every call fails from then on.
void lose_device();
