/* The C interface of pinlane's device code: one launcher for each kernel.
 *
 * A launcher enqueues one kernel on `stream` and returns the result of the launch. It makes no
 * decisions and no checks, does not wait, and does not read the error state of the calling thread.
 * The stream's device must be the current device.
 *
 * Addresses may have any alignment and lengths any value, 0 included, unless said otherwise. No
 * kernel reads or writes a byte outside the ranges that it is given. crates/driver/src/reference.rs
 * specifies and tests what each one computes. */
#ifndef PINLANE_KERNELS_H
#define PINLANE_KERNELS_H

#include <cuda_runtime_api.h>
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

/* Where the items of one launch lie: `CopyKind` in crates/driver/src/types.rs. */
enum pinlane_mover {
    PINLANE_MOVE_UP,        /* sources in page-locked host memory, destinations in device memory */
    PINLANE_MOVE_DOWN,      /* sources in device memory, destinations in page-locked host memory */
    PINLANE_MOVE_ON_DEVICE, /* both in device memory */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Repeats the pattern over `dst`. The pattern lies in host memory, has 1 to PINLANE_MAX_PATTERN
 * bytes, and is read before the launcher returns. */
cudaError_t pinlane_launch_fill(void *dst, uint64_t bytes, const uint8_t *pattern,
                                uint32_t pattern_bytes, cudaStream_t stream);

/* Writes the checksum of `src` to `out`, aligned to 8. Also enqueues the memset that clears it. */
cudaError_t pinlane_launch_checksum(const void *src, uint64_t bytes, uint64_t *out,
                                    cudaStream_t stream);

/* Copies each item's bytes from `src` to `dst`. The items, aligned to 8, lie in device memory or in
 * host memory that the device reads at the host's addresses. `bytes` is their approximate total,
 * which only decides how the work is divided. An upload reads each byte once, so that it crosses
 * the bus once. */
cudaError_t pinlane_launch_move(enum pinlane_mover mover, const struct pinlane_item *items,
                                uint64_t count, uint64_t bytes, cudaStream_t stream);

/* Copies rows by their numbers, as pinlane_launch_move copies items. The layers and the numbers may
 * lie in the same memory as items; the numbers are aligned to their size. `rows` itself is read
 * before the launcher returns. */
cudaError_t pinlane_launch_move_rows(enum pinlane_mover mover, const struct pinlane_rows *rows,
                                     cudaStream_t stream);

/* Keeps one thread of one block spinning for this long. */
cudaError_t pinlane_launch_busy(uint64_t nanoseconds, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
