// The kernels: fill, checksum, move and busy. How they are launched is decided by
// src/driver/cuda/launch.rs. With nvcc there is a launcher, too; NVRTC compiles the kernels alone.

#include "kernels.h"
#include "vectors.cuh"

namespace {

// ---- Fill ---------------------------------------------------------------------------------------

// A vector of the destination is one of `length` vectors: the pattern from one of its phases. Each
// block lays them out once in shared memory, so that every length uses 16-byte stores.
__device__ void fill(unsigned char *dst, uint64_t bytes, const pinlane_pattern &pattern) {
    __shared__ Vector phases[PINLANE_MAX_PATTERN];
    const unsigned length = pattern.length;
    unsigned char *const flat = reinterpret_cast<unsigned char *>(phases);
    for (unsigned k = threadIdx.x; k < length * VECTOR; k += BLOCK) {
        flat[k] = pattern.bytes[(k / VECTOR + k % VECTOR) % length];
    }
    __syncthreads();

    const Grid grid = {misalignment(dst, VECTOR), bytes};
    unsigned char *const base = dst - grid.lead;
    const uint64_t vectors = grid.vectors();
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * BLOCK;
    uint64_t index = static_cast<uint64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    // `length * VECTOR` keeps the difference positive: vector 0 may start before the pattern does.
    unsigned phase = static_cast<unsigned>((index * VECTOR + length * VECTOR - grid.lead) % length);
    const unsigned step = static_cast<unsigned>(stride * VECTOR % length);
    for (; index < vectors; index += stride) {
        unsigned char *const to = base + index * VECTOR;
        const unsigned begin = grid.begin(index);
        const unsigned end = grid.end(index);
        if (begin == 0 && end == VECTOR) {
            store(to, phases[phase]);
        } else {
            for (unsigned k = begin; k < end; ++k) {
                to[k] = flat[phase * VECTOR + k];
            }
        }
        phase += step;
        if (phase >= length) {
            phase -= length;
        }
    }
}

// ---- Checksum -----------------------------------------------------------------------------------

constexpr Word STEP = 0x9e3779b97f4a7c15;
constexpr Word FACTOR = 0xd6e8feb86659fd93;

__device__ Word mix(Word x) {
    x ^= x >> 32;
    x *= FACTOR;
    x ^= x >> 32;
    x *= FACTOR;
    return x ^ (x >> 32);
}

// The term of the word at `position`, counted in words from the start of the range.
__device__ Word term(Word word, uint64_t position) { return mix(word + (position + 1) * STEP); }

__device__ Word terms(Vector vector, uint64_t index) {
    return term(vector.word[0], 2 * index) + term(vector.word[1], 2 * index + 1);
}

// The sum of `value` over the block, in thread 0.
__device__ Word block_sum(Word value) {
    __shared__ Word sums[WARPS];
    const unsigned lane = threadIdx.x % WARP;
    const unsigned warp = threadIdx.x / WARP;
    for (unsigned distance = WARP / 2; distance != 0; distance /= 2) {
        value += __shfl_down_sync(ALL_LANES, value, distance);
    }
    if (lane == 0) {
        sums[warp] = value;
    }
    __syncthreads();
    Word sum = 0;
    if (threadIdx.x == 0) {
        for (unsigned k = 0; k < WARPS; ++k) {
            sum += sums[k];
        }
    }
    return sum;
}

// Here the grid starts at the range, aligned or not: a word's position counts from there.
template <bool Aligned>
__device__ void checksum(const unsigned char *src, uint64_t bytes, Word *out) {
    const Grid grid = {0, bytes};
    const Interior interior(grid, src);
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * BLOCK;
    const uint64_t thread = static_cast<uint64_t>(blockIdx.x) * BLOCK + threadIdx.x;

    Word sum = 0;
    uint64_t index = interior.first + thread;
    // Issues all loads of a round before the first is used, so that they are in flight together.
    for (; index + (UNROLL - 1) * stride < interior.last; index += UNROLL * stride) {
        Vector vectors[UNROLL];
#pragma unroll
        for (unsigned k = 0; k < UNROLL; ++k) {
            vectors[k] = load<Aligned>(src + (index + k * stride) * VECTOR);
        }
#pragma unroll
        for (unsigned k = 0; k < UNROLL; ++k) {
            sum += terms(vectors[k], index + k * stride);
        }
    }
    for (; index < interior.last; index += stride) {
        sum += terms(load<Aligned>(src + index * VECTOR), index);
    }

    // The rim, one word for each thread.
    if (thread < 2 * RIM) {
        const unsigned n = static_cast<unsigned>(thread);
        const uint64_t position = 2 * interior.rim(n / 2) + n % 2;
        if (position * sizeof(Word) < bytes) {
            const unsigned char *const from = src + position * sizeof(Word);
            const uint64_t left = bytes - position * sizeof(Word);
            Word word = 0;
#pragma unroll
            for (unsigned k = 0; k < sizeof(Word); ++k) {
                word |= k < left ? static_cast<Word>(from[k]) << (8 * k) : 0;
            }
            sum += term(word, position);
        }
    }
    if (thread == 0) {
        sum += mix(~static_cast<Word>(bytes));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        atomicAdd(out, sum);
    }
}

// ---- Move ---------------------------------------------------------------------------------------
//
// Each warp works independently. It takes a span of up to 32 items, reads their descriptors in
// parallel, and numbers the vectors of all of them in sequence; the lanes take these in turn,
// IN_FLIGHT at a time. So short items keep as many bytes in flight as long ones. The loose bytes
// before an item's first vector and after its last are numbered in the same way.
//
//   item 0                             item 1                      item 2
//   |head|vector|vector|vector|tail|   |head|vector|vector|tail|   |head|vector|tail|
//
//   vectors:  0 1 2 | 3 4 | 5          loose bytes:  head 0, tail 0 | head 1, tail 1 | head 2, ...
//
// Several warps share a span if the items are long or few. The descriptors of the next span are
// fetched together with the vectors of this one, because they may lie in host memory, microseconds
// away.
//
// The bytes in flight of a warp, and the number of warps, are fixed for each mover by measurements
// on H100s:
//
// * Where a kernel that was launched earlier fills the device, all of its blocks would come first.
//   So these are launched with the greatest priority: beside a product of 8192 x 8192 floats, whose
//   blocks last 1.4 ms, 32 to 34 GB/s instead of 3 to 6, and the product takes 0 to 1% longer.
// * A block may take a whole multiprocessor from a product whose blocks fill one each. So there are
//   few large blocks.
// * Up, loads from the host: 128 warps in 4 blocks fill the bus, 49 to 50 GB/s for items of 256
//   bytes to 16 KiB, and a simultaneous matrix product takes 0 to 2% longer (9% if its blocks fill
//   the multiprocessors). 256 warps in 32 blocks are not faster, and the product takes 6 to 23%
//   longer.
// * Down, stores to the host: 24 warps fill the bus (50 GB/s), or 32 if the items are short, and a
//   simultaneous matrix product takes 0 to 2% longer. A third more warps are 2% faster if the items
//   are long, but the product takes 30% longer: the device's write path is then full.

// How an item is cut into vectors: `head` loose bytes, then `vectors` of them; the rest is loose.
struct Cut {
    uint64_t head;
    uint64_t vectors;
};

// The item's source decides: every load is a whole aligned vector, so that each byte crosses the
// bus once. The stores, to device memory, cope with any alignment.
struct AlignedLoads {
    static __device__ Cut cut(const pinlane_item &item) {
        const uint64_t lead = -item.src % VECTOR;
        const uint64_t head = lead < item.bytes ? lead : item.bytes;
        return {head, (item.bytes - head) / VECTOR};
    }
    static __device__ Vector read(const unsigned char *from) { return load<true>(from); }
    static __device__ void write(unsigned char *to, Vector vector) { store_anywhere(to, vector); }
};

// The item's destination decides: every store is a whole aligned vector. The loads, from device
// memory, cope with any alignment.
struct AlignedStores {
    static __device__ Cut cut(const pinlane_item &item) {
        uint64_t head = -item.dst % VECTOR;
        // A load reads aligned words: `before` bytes before the vector and `after` bytes after it,
        // which must belong to the item.
        const uint64_t before = (item.src + head) % sizeof(Word);
        const uint64_t after = before == 0 ? 0 : sizeof(Word) - before;
        if (head < before) {
            head += VECTOR;
        }
        if (item.bytes < head + after) {
            return {item.bytes, 0};
        }
        return {head, (item.bytes - head - after) / VECTOR};
    }
    static __device__ Vector read(const unsigned char *from) {
        return misalignment(from, VECTOR) == 0 ? load<true>(from) : load<false>(from);
    }
    static __device__ void write(unsigned char *to, Vector vector) { store(to, vector); }
};

// The span of a warp. `vectors` and `loose` count those of an item and of all before it in the
// span.
struct Span {
    pinlane_item items[WARP];
    uint64_t head[WARP];
    uint64_t vectors[WARP];
    uint64_t loose[WARP];

    __device__ uint64_t vectors_before(unsigned item) const {
        return item == 0 ? 0 : vectors[item - 1];
    }
};

// A unit of a span that is a vector.
template <class Side>
struct Whole {
    using Value = Vector;
    static __device__ const uint64_t *ends(const Span &span) { return span.vectors; }
    // The offset of the n-th unit of an item in bytes.
    static __device__ uint64_t place(const Span &span, unsigned item, uint64_t n) {
        return span.head[item] + n * VECTOR;
    }
    static __device__ Value read(const unsigned char *from) { return Side::read(from); }
    static __device__ void write(unsigned char *to, Value value) { Side::write(to, value); }
};

// A unit of a span that is a loose byte.
struct Loose {
    using Value = unsigned char;
    static __device__ const uint64_t *ends(const Span &span) { return span.loose; }
    static __device__ uint64_t place(const Span &span, unsigned item, uint64_t n) {
        const uint64_t vectors = span.vectors[item] - span.vectors_before(item);
        return n < span.head[item] ? n : n + vectors * VECTOR;
    }
    static __device__ Value read(const unsigned char *from) { return *from; }
    static __device__ void write(unsigned char *to, Value value) { *to = value; }
};

// The sum of `value` over this lane and all before it.
__device__ uint64_t warp_scan(uint64_t value, unsigned lane) {
    for (unsigned distance = 1; distance < WARP; distance *= 2) {
        const uint64_t before = __shfl_up_sync(ALL_LANES, static_cast<Word>(value), distance);
        if (lane >= distance) {
            value += before;
        }
    }
    return value;
}

// How many of the WARP ascending numbers in `ends` are at most `index`: the item that it lies in.
__device__ unsigned find_item(const uint64_t *ends, uint64_t index) {
    unsigned found = 0;
    for (unsigned step = WARP / 2; step != 0; step /= 2) {
        if (ends[found + step - 1] <= index) {
            found += step;
        }
    }
    return found;
}

// Copies the units of a span, of which this warp is number `mine` of `share`.
template <class Unit, unsigned IN_FLIGHT>
__device__ void move_units(const Span &span, uint64_t mine, uint64_t share, unsigned lane) {
    constexpr uint64_t ROUND = IN_FLIGHT * WARP;
    const uint64_t *const ends = Unit::ends(span);
    const uint64_t total = ends[WARP - 1];
    unsigned owner = 0;
    for (uint64_t round = mine * ROUND; round < total; round += share * ROUND) {
        typename Unit::Value values[IN_FLIGHT];
        unsigned char *to[IN_FLIGHT];
        // All loads before the first store, because a store waits for its load.
#pragma unroll
        for (unsigned k = 0; k < IN_FLIGHT; ++k) {
            const uint64_t index = round + k * WARP + lane;
            to[k] = nullptr;
            if (index < total) {
                // Usually the item of the previous unit, because a lane's units ascend.
                if (ends[owner] <= index) {
                    owner = find_item(ends, index);
                }
                const pinlane_item &item = span.items[owner];
                const uint64_t place =
                    Unit::place(span, owner, index - (owner == 0 ? 0 : ends[owner - 1]));
                to[k] = reinterpret_cast<unsigned char *>(item.dst + place);
                values[k] = Unit::read(reinterpret_cast<const unsigned char *>(item.src + place));
            }
        }
#pragma unroll
        for (unsigned k = 0; k < IN_FLIGHT; ++k) {
            if (to[k] != nullptr) {
                Unit::write(to[k], values[k]);
            }
        }
    }
}

// The items of a launch from a list. A `Next` is fetched while the previous span is processed.
struct Listed {
    const pinlane_item *items;
    uint64_t count;

    // The descriptors of a span, dealt to the lanes word by word: a lane that read its own item's
    // three words would fetch each sector of the bus three times.
    struct Next {
        static constexpr unsigned WORDS = sizeof(pinlane_item) / sizeof(Word);
        Word words[WORDS];

        // Fetches the descriptors of the items from `first` on, at most `length`; after the last
        // one, empty items.
        __device__ void fetch(const Listed &list, uint64_t first, unsigned length, unsigned lane) {
            const uint64_t left = first < list.count ? list.count - first : 0;
            const unsigned here = left < length ? static_cast<unsigned>(left) : length;
            const Word *const from = reinterpret_cast<const Word *>(list.items + first);
#pragma unroll
            for (unsigned k = 0; k < WORDS; ++k) {
                const unsigned n = k * WARP + lane;
                words[k] = n < here * WORDS ? from[n] : 0;
            }
        }

        __device__ void put(pinlane_item *items, unsigned lane) const {
            Word *const to = reinterpret_cast<Word *>(items);
#pragma unroll
            for (unsigned k = 0; k < WORDS; ++k) {
                to[k * WARP + lane] = words[k];
            }
        }
    };
};

// The number of row `n` in its table. One that is not in the table is ROW_OUTSIDE.
constexpr uint64_t ROW_OUTSIDE = ~static_cast<uint64_t>(0);

__device__ uint64_t row_number(const pinlane_index &index, uint64_t n) {
    uint64_t row = n;
    if (index.at != 0) {
        switch (index.bytes) {
        case 8:
            row = reinterpret_cast<const Word *>(index.at)[n];
            break;
        default:
            row = reinterpret_cast<const unsigned *>(index.at)[n];
            break;
        }
    }
    return row < index.limit ? row : ROW_OUTSIDE;
}

// The items of a launch from tables of rows: each lane makes its own.
struct ByIndex {
    pinlane_rows rows;
    uint64_t count; // of all layers together

    struct Next {
        pinlane_item item;

        __device__ void fetch(const ByIndex &by, uint64_t first, unsigned length, unsigned lane) {
            item = {0, 0, 0};
            const uint64_t number = first + lane;
            if (lane >= length || number >= by.count) {
                return;
            }
            const uint64_t layer = number / by.rows.count;
            const uint64_t n = number - layer * by.rows.count;
            const pinlane_layer tables =
                reinterpret_cast<const pinlane_layer *>(by.rows.layers)[layer];
            const uint64_t from = row_number(by.rows.from, n);
            const uint64_t to = row_number(by.rows.to, n);
            if (from != ROW_OUTSIDE && to != ROW_OUTSIDE) {
                item = {tables.src + from * by.rows.from.pitch, tables.dst + to * by.rows.to.pitch,
                        by.rows.bytes};
            }
        }

        __device__ void put(pinlane_item *items, unsigned lane) const { items[lane] = item; }
    };
};

// `length` items a span, at most WARP; `share` warps a span, which divides the number of warps.
template <class Side, unsigned IN_FLIGHT, unsigned THREADS, class Items>
__device__ void move(const Items &items, unsigned length, unsigned share) {
    constexpr unsigned IN_BLOCK = THREADS / WARP;
    __shared__ Span spans[IN_BLOCK];
    const unsigned lane = threadIdx.x % WARP;
    const unsigned warp = blockIdx.x * IN_BLOCK + threadIdx.x / WARP;
    Span &span = spans[threadIdx.x / WARP];
    const uint64_t stride = static_cast<uint64_t>(gridDim.x * IN_BLOCK / share) * length;

    uint64_t first = static_cast<uint64_t>(warp / share) * length;
    typename Items::Next next;
    next.fetch(items, first, length, lane);
    for (; first < items.count; first += stride) {
        next.put(span.items, lane);
        next.fetch(items, first + stride, length, lane);
        __syncwarp();

        const pinlane_item &mine = span.items[lane];
        const Cut cut = Side::cut(mine);
        span.head[lane] = cut.head;
        span.vectors[lane] = warp_scan(cut.vectors, lane);
        span.loose[lane] = warp_scan(mine.bytes - cut.vectors * VECTOR, lane);
        __syncwarp();

        move_units<Whole<Side>, IN_FLIGHT>(span, warp % share, share, lane);
        move_units<Loose, IN_FLIGHT>(span, warp % share, share, lane);
        // The next span overwrites what other lanes may still read.
        __syncwarp();
    }
}

// ---- Busy ---------------------------------------------------------------------------------------

__device__ uint64_t device_nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

} // namespace

// ---- The kernels --------------------------------------------------------------------------------
//
// `extern "C"`: a driver finds them by these names.

#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

KERNEL(BLOCK)
pinlane_kernel_fill(unsigned char *dst, uint64_t bytes,
                    const __grid_constant__ pinlane_pattern pattern) {
    fill(dst, bytes, pattern);
}

KERNEL(BLOCK) pinlane_kernel_checksum(const unsigned char *src, uint64_t bytes, Word *out) {
    checksum<false>(src, bytes, out);
}

// `src` is a multiple of 16.
KERNEL(BLOCK) pinlane_kernel_checksum_aligned(const unsigned char *src, uint64_t bytes, Word *out) {
    checksum<true>(src, bytes, out);
}

#define MOVE(name, side, in_flight, threads, items_type)                                           \
    KERNEL(threads)                                                                                \
    name(const __grid_constant__ items_type items, unsigned length, unsigned share) {              \
        move<side, in_flight, threads>(items, length, share);                                      \
    }

MOVE(pinlane_kernel_move_up, AlignedLoads, 4, 1024, Listed)
MOVE(pinlane_kernel_move_down, AlignedStores, 4, 256, Listed)
MOVE(pinlane_kernel_move_on_device, AlignedStores, 8, 256, Listed)
MOVE(pinlane_kernel_rows_up, AlignedLoads, 4, 1024, ByIndex)
MOVE(pinlane_kernel_rows_down, AlignedStores, 4, 256, ByIndex)
MOVE(pinlane_kernel_rows_on_device, AlignedStores, 8, 256, ByIndex)

KERNEL(1) pinlane_kernel_busy(uint64_t nanoseconds) {
    const uint64_t start = device_nanoseconds();
    while (device_nanoseconds() - start < nanoseconds) {
    }
}

// ---- The launcher -------------------------------------------------------------------------------

#ifndef __CUDACC_RTC__

// cudaLaunchKernelExC rather than <<<>>>: it returns the launch's own error, while <<<>>> leaves it
// in the calling thread's last-error slot, where it mixes with earlier errors.
extern "C" cudaError_t pinlane_launch_kernel(pinlane_kernel kernel, uint32_t blocks,
                                             uint32_t threads, uint32_t urgent,
                                             void **arguments, cudaStream_t stream) {
    const void *const kernels[] = {
        reinterpret_cast<const void *>(pinlane_kernel_fill),
        reinterpret_cast<const void *>(pinlane_kernel_checksum),
        reinterpret_cast<const void *>(pinlane_kernel_checksum_aligned),
        reinterpret_cast<const void *>(pinlane_kernel_move_up),
        reinterpret_cast<const void *>(pinlane_kernel_move_down),
        reinterpret_cast<const void *>(pinlane_kernel_move_on_device),
        reinterpret_cast<const void *>(pinlane_kernel_rows_up),
        reinterpret_cast<const void *>(pinlane_kernel_rows_down),
        reinterpret_cast<const void *>(pinlane_kernel_rows_on_device),
        reinterpret_cast<const void *>(pinlane_kernel_busy),
    };
    int least = 0;
    int greatest = 0;
    if (urgent && cudaDeviceGetStreamPriorityRange(&least, &greatest) != cudaSuccess) {
        greatest = 0;
    }
    cudaLaunchAttribute priority = {};
    priority.id = cudaLaunchAttributePriority;
    priority.val.priority = greatest;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &priority;
    config.numAttrs = greatest != 0;
    return cudaLaunchKernelExC(&config, kernels[kernel], arguments);
}

#endif
