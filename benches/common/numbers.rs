//! Rows at random places.

/// Different numbers below `limit`, without a pattern.
pub fn scattered(count: usize, limit: usize) -> Vec<u32> {
    // A step without a common divisor with `limit`, which is a power of two.
    assert!(limit.is_power_of_two() && count <= limit);
    let step = (limit as f64 * 0.618_034) as usize | 1;
    (0..count).map(|n| (n * step % limit) as u32).collect()
}

/// `count` numbers below `limit`, at random; some are repeated. The same `seed` gives the same
/// numbers.
pub fn drawn(seed: u64, count: usize, limit: usize) -> Vec<u32> {
    assert!(limit <= 1 << 32);
    let mut x = 0x9e37_79b9_7f4a_7c15 ^ (seed + 1); // not 0
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (((x >> 32) as usize * limit) >> 32) as u32
    };
    (0..count).map(|_| next()).collect()
}
