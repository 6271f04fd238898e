// The part of CUDA that the questions use: from the toolkit's headers if they are there, or
// declared here.
#pragma once

#if __has_include(<cuda_runtime_api.h>)
#ifndef WITH_TOOLKIT
#define WITH_TOOLKIT
#endif
#include <cuda.h>
#include <cuda_runtime_api.h>
#else
#include "declarations.h"
#endif
