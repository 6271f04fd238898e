// A range of bytes of any alignment as a grid of 16-byte vectors: what most kernels are made of.
//
//      vector 0         vector 1         vector 2         vector 3
//   |................|................|................|................|
//          [bytes of the range ................................]
//   |<lead>|
//
// Vectors that the range covers take 16-byte accesses; the few at the rim take single bytes, so
// that nothing outside the range is touched, not even by a load whose other half is dropped. Stores
// are always aligned to the grid. Loads need not be: a vector from an address that is not a
// multiple of 8 is put together from the three aligned words that it overlaps.
//
// The machine is little-endian, as every CUDA device is.
#ifndef PINLANE_VECTORS_CUH
#define PINLANE_VECTORS_CUH

#include <stdint.h>

namespace {

using Word = unsigned long long;

// Sixteen bytes; byte k of a vector is byte k % 8 of its word k / 8.
struct alignas(16) Vector {
    Word word[2];
};

constexpr unsigned VECTOR = sizeof(Vector);
constexpr unsigned WARP = 32;
constexpr unsigned BLOCK = 256;
constexpr unsigned WARPS = BLOCK / WARP;
constexpr unsigned ALL_LANES = 0xffffffff;

// How many vectors a thread of a checksum has in flight.
constexpr unsigned UNROLL = 4;

__device__ unsigned misalignment(const void *address, unsigned alignment) {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(address)) & (alignment - 1);
}

// ---- A range as a grid of vectors ---------------------------------------------------------------

// `lead` bytes of vector 0 lie before the range. The maker of a grid chooses `lead`: for a
// destination it is the misalignment, so that stores are aligned.
struct Grid {
    uint64_t lead;
    uint64_t bytes;

    __device__ uint64_t vectors() const { return (lead + bytes + VECTOR - 1) / VECTOR; }

    // The bytes of vector `index` that lie in the range are begin(index) .. end(index).
    __device__ unsigned begin(uint64_t index) const {
        return index == 0 ? static_cast<unsigned>(lead) : 0;
    }
    __device__ unsigned end(uint64_t index) const {
        const uint64_t left = lead + bytes - index * VECTOR;
        return left < VECTOR ? static_cast<unsigned>(left) : VECTOR;
    }
};

// The vectors first .. last of a grid, for which every aligned word that load reads lies wholly in
// the range. At most RIM vectors are not among them: two before, two after.
struct Interior {
    uint64_t first;
    uint64_t last;

    // `base` is the address of vector 0's first byte.
    __device__ Interior(Grid grid, const unsigned char *base) {
        // A load of 16 bytes reads `before` bytes too early and `after` bytes too late.
        const unsigned before = misalignment(base, sizeof(Word));
        const unsigned after = before == 0 ? 0 : sizeof(Word) - before;
        const uint64_t end = grid.lead + grid.bytes;
        first = (grid.lead + before + VECTOR - 1) / VECTOR;
        last = end < after ? 0 : (end - after) / VECTOR;
        if (last < first) {
            first = last = grid.vectors();
        }
    }

    // The n-th vector of the grid that is not in the interior.
    __device__ uint64_t rim(unsigned n) const { return n < first ? n : last + (n - first); }
};

constexpr unsigned RIM = 4;

// ---- Loads and stores ---------------------------------------------------------------------------

// Sixteen bytes from any address; `Aligned` says that it is a multiple of 16.
template <bool Aligned>
__device__ Vector load(const unsigned char *from) {
    if (Aligned) {
        const ulonglong2 both = *reinterpret_cast<const ulonglong2 *>(from);
        return {{both.x, both.y}};
    }
    const unsigned skew = misalignment(from, sizeof(Word));
    const Word *const words = reinterpret_cast<const Word *>(from - skew);
    const Word low = words[0];
    const Word middle = words[1];
    const Word high = skew == 0 ? 0 : words[2];
    // Shifted left in two steps: a shift by 64, which skew 0 would need, is undefined.
    const unsigned right = 8 * skew;
    const unsigned left = 63 - right;
    return {{(low >> right) | ((middle << 1) << left), (middle >> right) | ((high << 1) << left)}};
}

// Sixteen bytes to an address that is a multiple of 16.
__device__ void store(unsigned char *to, Vector vector) {
    *reinterpret_cast<ulonglong2 *>(to) = make_ulonglong2(vector.word[0], vector.word[1]);
}

// Sixteen bytes to any address, in the largest pieces that it is aligned to.
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

} // namespace

#endif
