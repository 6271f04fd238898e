// Fill, checksum, scatter, gather, pull and busy: device code and its launchers, no policy.

#include "kernels.h"
#include "vectors.cuh"

namespace {

// ---- Fill ---------------------------------------------------------------------------------------

struct Pattern {
    unsigned char bytes[PINLANE_MAX_PATTERN];
    unsigned length;
};

// A vector of the destination is one of `length` vectors: the pattern from one of its phases. They
// are laid out once a block in shared memory, so that every length takes 16-byte stores.
__global__ void __launch_bounds__(BLOCK)
    fill_kernel(unsigned char *dst, uint64_t bytes, const __grid_constant__ Pattern pattern) {
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
__global__ void __launch_bounds__(BLOCK)
    checksum_kernel(const unsigned char *src, uint64_t bytes, Word *out) {
    const Grid grid = {0, bytes};
    const Interior interior(grid, src);
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * BLOCK;
    const uint64_t thread = static_cast<uint64_t>(blockIdx.x) * BLOCK + threadIdx.x;

    Word sum = 0;
    uint64_t index = interior.first + thread;
    // All loads of a round before the first is used, so that they are in flight together.
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

    // The rim, a word a thread.
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

// ---- Scatter and gather -------------------------------------------------------------------------

// A warp's unit of work, in vectors: 4 KiB. Short enough to spread one item of a megabyte over the
// device, long enough to pay for finding it.
constexpr unsigned CHUNK = 256;

struct Part {
    unsigned char *dst;
    const unsigned char *src;
    uint64_t bytes;

    // The grid is the destination's, so that stores are aligned and chunks meet at whole vectors.
    __device__ Grid grid() const { return {misalignment(dst, VECTOR), bytes}; }

    __device__ uint64_t chunks() const {
        return bytes == 0 ? 0 : (grid().vectors() + CHUNK - 1) / CHUNK;
    }
};

// Copies the vectors first .. last, all in the interior, with the lanes side by side.
template <bool Aligned>
__device__ void copy_vectors(unsigned char *to, const unsigned char *from, uint64_t first,
                             uint64_t last, unsigned lane) {
    uint64_t index = first + lane;
    // All loads of a round before its first store, which the compiler must take for a change of
    // what is loaded.
    for (; index + (UNROLL - 1) * WARP < last; index += UNROLL * WARP) {
        Vector vectors[UNROLL];
#pragma unroll
        for (unsigned k = 0; k < UNROLL; ++k) {
            vectors[k] = load<Aligned>(from + (index + k * WARP) * VECTOR);
        }
#pragma unroll
        for (unsigned k = 0; k < UNROLL; ++k) {
            store(to + (index + k * WARP) * VECTOR, vectors[k]);
        }
    }
    for (; index < last; index += WARP) {
        store(to + index * VECTOR, load<Aligned>(from + index * VECTOR));
    }
}

// One warp copies one chunk of a part.
__device__ void copy_chunk(const Part &part, uint64_t chunk, unsigned lane) {
    const Grid grid = part.grid();
    unsigned char *const to = part.dst - grid.lead;
    const unsigned char *const from = part.src - grid.lead;
    const Interior interior(grid, from);
    const uint64_t begin = chunk * CHUNK;
    const uint64_t end = min(begin + CHUNK, grid.vectors());

    const uint64_t first = max(begin, interior.first);
    const uint64_t last = min(end, interior.last);
    if (misalignment(from, VECTOR) == 0) {
        copy_vectors<true>(to, from, first, last, lane);
    } else {
        copy_vectors<false>(to, from, first, last, lane);
    }
    // The rim, a byte a lane.
    for (unsigned n = lane; n < RIM * VECTOR; n += WARP) {
        const uint64_t index = interior.rim(n / VECTOR);
        const unsigned k = n % VECTOR;
        if (index >= begin && index < end && k >= grid.begin(index) && k < grid.end(index)) {
            to[index * VECTOR + k] = from[index * VECTOR + k];
        }
    }
}

// The sum of `value` over this thread and all before it in the block.
__device__ uint64_t block_scan(uint64_t value) {
    __shared__ uint64_t sums[WARPS];
    const unsigned lane = threadIdx.x % WARP;
    const unsigned warp = threadIdx.x / WARP;
    for (unsigned distance = 1; distance < WARP; distance *= 2) {
        const uint64_t before = __shfl_up_sync(ALL_LANES, static_cast<Word>(value), distance);
        if (lane >= distance) {
            value += before;
        }
    }
    if (lane == WARP - 1) {
        sums[warp] = value;
    }
    __syncthreads();
    for (unsigned k = 0; k < warp; ++k) {
        value += sums[k];
    }
    return value;
}

// How many of the BLOCK ascending numbers in `ends` are at most `chunk`: the part that it lies in.
__device__ unsigned find_part(const uint64_t *ends, uint64_t chunk) {
    unsigned found = 0;
    for (unsigned step = BLOCK / 2; step != 0; step /= 2) {
        if (ends[found + step - 1] <= chunk) {
            found += step;
        }
    }
    return found;
}

// Items come in tiles of BLOCK. All blocks with the same blockIdx.x work on the same tiles: each
// numbers the chunks of all parts of a tile through, and their warps take the chunks in turn. So
// the work is even whatever the lengths are: thousands of short parts or one that fills the memory.
template <bool Scatter>
__global__ void __launch_bounds__(BLOCK)
    copy_kernel(unsigned char *packed, const pinlane_item *items, uint64_t count) {
    __shared__ Part parts[BLOCK];
    __shared__ uint64_t ends[BLOCK];
    const unsigned lane = threadIdx.x % WARP;
    const unsigned warp = threadIdx.x / WARP;

    for (uint64_t tile = blockIdx.x; tile * BLOCK < count; tile += gridDim.x) {
        const uint64_t mine = tile * BLOCK + threadIdx.x;
        Part part = {nullptr, nullptr, 0};
        if (mine < count) {
            const pinlane_item item = items[mine];
            unsigned char *const inside = packed + item.offset;
            unsigned char *const apart = reinterpret_cast<unsigned char *>(item.address);
            part.dst = Scatter ? apart : inside;
            part.src = Scatter ? inside : apart;
            part.bytes = item.bytes;
        }
        parts[threadIdx.x] = part;
        ends[threadIdx.x] = block_scan(part.chunks());
        __syncthreads();

        const uint64_t chunks = ends[BLOCK - 1];
        for (uint64_t chunk = static_cast<uint64_t>(blockIdx.y) * WARPS + warp; chunk < chunks;
             chunk += static_cast<uint64_t>(gridDim.y) * WARPS) {
            const unsigned owner = find_part(ends, chunk);
            copy_chunk(parts[owner], chunk - (owner == 0 ? 0 : ends[owner - 1]), lane);
        }
        // The next tile overwrites what other warps may still read.
        __syncthreads();
    }
}

// The host knows how many parts there are, but not how long they are: so always the same number of
// blocks, and never fewer than 16 for a tile.
dim3 copy_grid(uint64_t count) {
    constexpr unsigned BLOCKS = 512;
    constexpr unsigned MAX_TILES = 32;
    const uint64_t tiles = count / BLOCK + 1;
    const unsigned x = tiles < MAX_TILES ? static_cast<unsigned>(tiles) : MAX_TILES;
    return dim3(x, BLOCKS / x);
}

// ---- Pull ---------------------------------------------------------------------------------------

// Reads over the bus are few and late: what counts is how many are under way, and that no byte is
// read twice. So the grid here is the source's: whole aligned vectors are loaded, each once, and it
// is the store to device memory that copes with any alignment.
//
// Each warp works on its own. It takes a span of items, reads their descriptors side by side, lays
// the vectors of all of them end to end, and the lanes take them in turn, PULL_UNROLL at a time.
// Short items thus keep as many loads in flight as long ones. The bytes in front of an item's first
// whole vector and behind its last are laid end to end as well, as bytes.
//
// Where there are fewer items than warps, several warps share each item, and each reads its
// descriptor.
constexpr unsigned PULL_UNROLL = 8;
constexpr unsigned PULL_BLOCKS = 32;
constexpr unsigned PULL_WARPS = PULL_BLOCKS * WARPS;

// What a warp works on. `vectors` and `loose` count those of an item and of all before it in the
// span.
struct Span {
    pinlane_item items[WARP];
    uint64_t vectors[WARP];
    uint64_t loose[WARP];
};

// The bytes of an item that lie in front of its first whole vector.
__device__ uint64_t head_of(const pinlane_item &item) {
    const uint64_t head = -item.offset % VECTOR;
    return head < item.bytes ? head : item.bytes;
}

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

// A vector to an address of any alignment.
__device__ void store_anywhere(unsigned char *to, Vector vector) {
    const unsigned skew = misalignment(to, VECTOR);
    if (skew == 0) {
        store(to, vector);
    } else if (skew % 8 == 0) {
        reinterpret_cast<Word *>(to)[0] = vector.word[0];
        reinterpret_cast<Word *>(to)[1] = vector.word[1];
    } else if (skew % 4 == 0) {
#pragma unroll
        for (unsigned k = 0; k < 4; ++k) {
            reinterpret_cast<unsigned *>(to)[k] =
                static_cast<unsigned>(vector.word[k / 2] >> (32 * (k % 2)));
        }
    } else {
#pragma unroll
        for (unsigned k = 0; k < VECTOR; ++k) {
            to[k] = static_cast<unsigned char>(vector.word[k / 8] >> (8 * (k % 8)));
        }
    }
}

// One unit of a span: a whole vector, or a loose byte.
struct Whole {
    using Value = Vector;
    static __device__ const uint64_t *ends(const Span &span) { return span.vectors; }
    // Where the n-th unit of an item lies, in bytes from the item's start.
    static __device__ uint64_t place(const pinlane_item &item, uint64_t n) {
        return head_of(item) + n * VECTOR;
    }
    static __device__ Value read(const unsigned char *from) { return load<true>(from); }
    static __device__ void write(unsigned char *to, Value value) { store_anywhere(to, value); }
};

struct Loose {
    using Value = unsigned char;
    static __device__ const uint64_t *ends(const Span &span) { return span.loose; }
    static __device__ uint64_t place(const pinlane_item &item, uint64_t n) {
        const uint64_t head = head_of(item);
        return n < head ? n : n + (item.bytes - head) / VECTOR * VECTOR;
    }
    static __device__ Value read(const unsigned char *from) { return *from; }
    static __device__ void write(unsigned char *to, Value value) { *to = value; }
};

// Copies the units of a span, of which this warp is number `mine` of `share`.
template <class Unit>
__device__ void pull_units(const Span &span, uint64_t mine, uint64_t share, unsigned lane) {
    constexpr uint64_t ROUND = PULL_UNROLL * WARP;
    const uint64_t *const ends = Unit::ends(span);
    const uint64_t total = ends[WARP - 1];
    for (uint64_t round = mine * ROUND; round < total; round += share * ROUND) {
        typename Unit::Value values[PULL_UNROLL];
        unsigned char *to[PULL_UNROLL];
        // All loads before the first store, which waits for one.
#pragma unroll
        for (unsigned k = 0; k < PULL_UNROLL; ++k) {
            const uint64_t index = round + k * WARP + lane;
            to[k] = nullptr;
            if (index < total) {
                const unsigned owner = find_item(ends, index);
                const pinlane_item &item = span.items[owner];
                const uint64_t place =
                    Unit::place(item, index - (owner == 0 ? 0 : ends[owner - 1]));
                to[k] = reinterpret_cast<unsigned char *>(item.address + place);
                values[k] =
                    Unit::read(reinterpret_cast<const unsigned char *>(item.offset + place));
            }
        }
#pragma unroll
        for (unsigned k = 0; k < PULL_UNROLL; ++k) {
            if (to[k] != nullptr) {
                Unit::write(to[k], values[k]);
            }
        }
    }
}

// `length` items a span, at most WARP; `share` warps a span.
__global__ void __launch_bounds__(BLOCK)
    pull_kernel(const pinlane_item *items, uint64_t count, unsigned length, unsigned share) {
    __shared__ Span spans[WARPS];
    const unsigned lane = threadIdx.x % WARP;
    const unsigned warp = blockIdx.x * WARPS + threadIdx.x / WARP;
    Span &span = spans[threadIdx.x / WARP];
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * WARPS / share * length;

    if (warp >= gridDim.x * WARPS / share * share) {
        return; // the last few, where `share` does not divide the warps
    }
    for (uint64_t first = static_cast<uint64_t>(warp / share) * length; first < count;
         first += stride) {
        const uint64_t left = count - first;
        const unsigned here = left < length ? static_cast<unsigned>(left) : length;
        // Word by word, with the lanes side by side: a lane that read its own item's three words
        // would fetch each sector of the bus three times.
        constexpr unsigned WORDS = sizeof(pinlane_item) / sizeof(Word);
        const Word *const from = reinterpret_cast<const Word *>(items + first);
        Word *const to = reinterpret_cast<Word *>(span.items);
#pragma unroll
        for (unsigned k = 0; k < WORDS; ++k) {
            const unsigned n = k * WARP + lane;
            to[n] = n < here * WORDS ? from[n] : 0;
        }
        __syncwarp();

        const pinlane_item &mine = span.items[lane];
        const uint64_t head = head_of(mine);
        const uint64_t vectors = (mine.bytes - head) / VECTOR;
        span.vectors[lane] = warp_scan(vectors, lane);
        span.loose[lane] = warp_scan(mine.bytes - vectors * VECTOR, lane);
        __syncwarp();

        pull_units<Whole>(span, warp % share, share, lane);
        pull_units<Loose>(span, warp % share, share, lane);
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

__global__ void busy_kernel(uint64_t nanoseconds) {
    const uint64_t start = device_nanoseconds();
    while (device_nanoseconds() - start < nanoseconds) {
    }
}

// Blocks for a kernel that gives each thread one vector at a time.
dim3 stream_grid(uint64_t bytes) {
    const uint64_t blocks = bytes / (static_cast<uint64_t>(VECTOR) * BLOCK) + 1;
    return dim3(blocks < MAX_BLOCKS ? static_cast<unsigned>(blocks) : MAX_BLOCKS);
}

} // namespace

// ---- Launchers ----------------------------------------------------------------------------------
//
// cudaLaunchKernel rather than <<<>>>: it returns the launch's own error, where <<<>>> leaves it in
// the calling thread's last-error slot, to be fetched together with whatever was there before. The
// variables that `arguments` points to have exactly the types of the kernel's parameters.

extern "C" cudaError_t pinlane_launch_fill(void *dst, uint64_t bytes, const uint8_t *pattern,
                                           uint32_t pattern_bytes, cudaStream_t stream) {
    unsigned char *to = static_cast<unsigned char *>(dst);
    Pattern by_value = {{}, pattern_bytes};
    for (uint32_t k = 0; k < pattern_bytes; ++k) {
        by_value.bytes[k] = pattern[k];
    }
    void *arguments[] = {&to, &bytes, &by_value};
    return cudaLaunchKernel(fill_kernel, stream_grid(bytes), dim3(BLOCK), arguments, 0, stream);
}

extern "C" cudaError_t pinlane_launch_checksum(const void *src, uint64_t bytes, uint64_t *out,
                                               cudaStream_t stream) {
    // The blocks add their sums to `out` in any order, so it has to be 0 before the first one.
    const cudaError_t cleared = cudaMemsetAsync(out, 0, sizeof(*out), stream);
    if (cleared != cudaSuccess) {
        return cleared;
    }
    const unsigned char *from = static_cast<const unsigned char *>(src);
    Word *sum = reinterpret_cast<Word *>(out);
    void *arguments[] = {&from, &bytes, &sum};
    const bool aligned = reinterpret_cast<uintptr_t>(src) % VECTOR == 0;
    return cudaLaunchKernel(aligned ? checksum_kernel<true> : checksum_kernel<false>,
                            stream_grid(bytes), dim3(BLOCK), arguments, 0, stream);
}

template <bool Scatter>
static cudaError_t launch_copy(void *packed, const pinlane_item *items, uint64_t count,
                               cudaStream_t stream) {
    unsigned char *block = static_cast<unsigned char *>(packed);
    void *arguments[] = {&block, &items, &count};
    return cudaLaunchKernel(copy_kernel<Scatter>, copy_grid(count), dim3(BLOCK), arguments, 0,
                            stream);
}

extern "C" cudaError_t pinlane_launch_scatter(const void *packed, const pinlane_item *items,
                                              uint64_t count, cudaStream_t stream) {
    return launch_copy<true>(const_cast<void *>(packed), items, count, stream);
}

extern "C" cudaError_t pinlane_launch_gather(void *packed, const pinlane_item *items,
                                             uint64_t count, cudaStream_t stream) {
    return launch_copy<false>(packed, items, count, stream);
}

extern "C" cudaError_t pinlane_launch_pull(const pinlane_item *items, uint64_t count,
                                           cudaStream_t stream) {
    const uint64_t even = (count + PULL_WARPS - 1) / PULL_WARPS;
    unsigned length = even < WARP ? static_cast<unsigned>(even) : WARP;
    unsigned share =
        count == 0 || count > PULL_WARPS ? 1 : static_cast<unsigned>(PULL_WARPS / count);
    void *arguments[] = {&items, &count, &length, &share};
    return cudaLaunchKernel(pull_kernel, dim3(PULL_BLOCKS), dim3(BLOCK), arguments, 0, stream);
}

extern "C" cudaError_t pinlane_launch_busy(uint64_t nanoseconds, cudaStream_t stream) {
    void *arguments[] = {&nanoseconds};
    return cudaLaunchKernel(busy_kernel, dim3(1), dim3(1), arguments, 0, stream);
}
