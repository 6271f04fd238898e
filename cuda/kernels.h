/* The C interface of pinlane's device code: the kernels, and their parameters.
 *
 * Addresses may have any alignment and lengths any value, 0 included, unless said otherwise. No
 * kernel reads or writes a byte outside the ranges that it is given. crates/driver/src/reference.rs
 * specifies and tests what each one computes, src/driver/cuda/launch.rs launches them. */
#ifndef PINLANE_KERNELS_H
#define PINLANE_KERNELS_H

#ifndef __CUDACC_RTC__
#include <cuda_runtime_api.h>
#endif
#include <stdint.h>

/* The longest pattern of a fill, in bytes. */
#define PINLANE_MAX_PATTERN 64

/* One copy: `Item` in crates/driver/src/types.rs. */
struct pinlane_item {
    uint64_t src;   /* the address of the first byte */
    uint64_t dst;   /* where it goes */
    uint64_t bytes; /* the length; 0 is allowed */
};

/* A table of each side: `Layer` in crates/driver/src/types.rs. */
struct pinlane_layer {
    uint64_t src; /* the address of the first row */
    uint64_t dst;
};

/* Which rows of its tables a side uses: `RowIndex` in crates/driver/src/types.rs. */
struct pinlane_index {
    uint64_t at;    /* the address of the numbers; 0 for 0, 1, 2, ... */
    uint64_t bytes; /* of a number: 4 or 8, unsigned */
    uint64_t limit; /* the rows of a table; a number that is not below it copies nothing */
    uint64_t pitch; /* from the start of a row to that of the next, in bytes */
};

/* Rows of equal length: row to[i] of each destination gets row from[i] of its source. `RowMove` in
 * crates/driver/src/types.rs. */
struct pinlane_rows {
    uint64_t layers;      /* the address of the layers, aligned to 8 */
    uint64_t layer_count;
    uint64_t count;       /* how many rows of each layer are copied */
    uint64_t bytes;       /* the length of a row */
    struct pinlane_index from;
    struct pinlane_index to;
};

/* The pattern of a fill: 1 to PINLANE_MAX_PATTERN bytes. */
struct pinlane_pattern {
    uint8_t bytes[PINLANE_MAX_PATTERN];
    uint32_t length;
};

/* The kernels, and the parameters of each. The items of `pinlane_kernel_move_*` are an address and
 * a count, each of 8 bytes, those of `pinlane_kernel_rows_*` a struct pinlane_rows and the count of
 * all rows, of 8 bytes. Both are divided into spans of `length` items, at most 32; `share` warps,
 * which divide the number of warps, move a span together. */
enum pinlane_kernel {
    PINLANE_FILL,             /* address, uint64_t bytes, struct pinlane_pattern */
    PINLANE_CHECKSUM,         /* address, uint64_t bytes, address of the sum, aligned to 8 */
    PINLANE_CHECKSUM_ALIGNED, /* the same; the first address is a multiple of 16 */
    PINLANE_MOVE_UP,          /* items, uint32_t length, uint32_t share */
    PINLANE_MOVE_DOWN,
    PINLANE_MOVE_ON_DEVICE,
    PINLANE_ROWS_UP,
    PINLANE_ROWS_DOWN,
    PINLANE_ROWS_ON_DEVICE,
    PINLANE_BUSY,             /* uint64_t nanoseconds, at most 10 s */
};

#ifndef __CUDACC_RTC__
#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues a kernel on `stream`, whose device must be the current device, and returns the result of
 * the launch. If it is `urgent` (1, else 0), it has the device's greatest priority, else that of
 * its stream. `arguments` has the address of each parameter; they are read before the call returns.
 * It does not wait, and does not read the error state of the calling thread. */
cudaError_t pinlane_launch_kernel(enum pinlane_kernel kernel, uint32_t blocks, uint32_t threads,
                                  uint32_t urgent, void **arguments, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

#endif
