//! The properties of a device. The values are those of no real device. Programs for current GPUs
//! accept them.

use std::ffi::c_int;

use pinlane_driver::DriverResult;
use pinlane_emulator::Emulator;

use crate::abi::Out;
use crate::environment;

/// A property: a field of `cudaDeviceProp` and an attribute, with one value.
struct Row {
    attribute: c_int,
    /// Where the field lies in CUDA 13, and in CUDA 12.
    offsets: [usize; 2],
    width: usize,
    value: u64,
}

const fn row(attribute: c_int, in_13: usize, in_12: usize, width: usize, value: u64) -> Row {
    Row { attribute, offsets: [in_13, in_12], width, value }
}

#[rustfmt::skip]
static ROWS: &[Row] = &[
    row(8, 296, 296, 8, 49152), // sharedMemPerBlock
    row(12, 304, 304, 4, 65536), // regsPerBlock
    row(10, 308, 308, 4, 32), // warpSize
    row(11, 312, 312, 8, 2147483647), // memPitch
    row(1, 320, 320, 4, 1024), // maxThreadsPerBlock
    row(9, 352, 352, 8, 65536), // totalConstMem
    row(75, 360, 360, 4, 9), // major
    row(76, 364, 364, 4, 0), // minor
    row(14, 368, 368, 8, 512), // textureAlignment
    row(51, 376, 376, 8, 32), // texturePitchAlignment
    row(16, 384, 388, 4, 132), // multiProcessorCount
    row(19, 392, 400, 4, 1), // canMapHostMemory
    row(30, 552, 568, 8, 512), // surfaceAlignment
    row(31, 560, 576, 4, 1), // concurrentKernels
    row(50, 576, 592, 4, 0), // pciDomainID
    row(40, 584, 600, 4, 3), // asyncEngineCount
    row(41, 588, 604, 4, 1), // unifiedAddressing
    row(37, 592, 612, 4, 5120), // memoryBusWidth
    row(38, 596, 616, 4, 52428800), // l2CacheSize
    row(39, 604, 624, 4, 2048), // maxThreadsPerMultiProcessor
    row(78, 608, 628, 4, 1), // streamPrioritiesSupported
    row(79, 612, 632, 4, 1), // globalL1CacheSupported
    row(80, 616, 636, 4, 1), // localL1CacheSupported
    row(81, 624, 640, 8, 233472), // sharedMemPerMultiprocessor
    row(82, 632, 648, 4, 65536), // regsPerMultiprocessor
    row(83, 636, 652, 4, 1), // managedMemory
    row(88, 652, 672, 4, 0), // pageableMemoryAccess
    row(89, 656, 676, 4, 1), // concurrentManagedAccess
    row(90, 660, 680, 4, 1), // computePreemptionSupported
    row(91, 664, 684, 4, 1), // canUseHostPointerForRegisteredMem
    row(95, 668, 688, 4, 1), // cooperativeLaunch
    row(97, 672, 696, 8, 232448), // sharedMemPerBlockOptin
    row(106, 688, 712, 4, 32), // maxBlocksPerMultiProcessor
    row(111, 696, 720, 8, 1024), // reservedSharedMemPerBlock
    row(99, 704, 728, 4, 1), // hostRegisterSupported
    row(MEMORY_POOLS, 720, 744, 4, 1), // memoryPoolsSupported
];

/// Attributes that are no field with one value.
static OTHERS: &[(c_int, c_int)] = &[
    (2, 1024),
    (3, 1024),
    (4, 64),
    (5, i32::MAX),
    (6, 65_535),
    (7, 65_535),
    (13, 1_980_000),
    (15, 1),
    (36, 2_619_000),
    // Virtual memory, without handles for other processes.
    (102, 1),
    (112, 0),
    (113, 1),
    // No NUMA node.
    (134, -1),
];

/// Attributes have the numbers from 1 to this one. Those without a value are 0.
const LAST_ATTRIBUTE: c_int = 147;

/// Where the fields lie that are not in `ROWS`, in both versions.
const NAME: usize = 0;
const UUID: usize = 256;
const TOTAL: usize = 288;
const MAX_THREADS: usize = 324;
const MAX_GRID: usize = 336;
const BUS: [usize; 2] = [568, 584];
/// The size of the struct; of that of CUDA 11, which CUDA 12 keeps under its old name; and of a
/// name.
const SIZES: [usize; 2] = [1008, 1032];
const SIZE_OF_OLD: usize = 728;
const NAME_BYTES: usize = 256;
/// `cudaDevAttrMemoryPoolsSupported`
const MEMORY_POOLS: c_int = 115;

/// The value of an attribute; `None` if there is no such attribute.
pub fn attribute(attribute: c_int, device: c_int) -> Option<c_int> {
    if !(1..=LAST_ATTRIBUTE).contains(&attribute) {
        return None;
    }
    match attribute {
        33 => return Some(device + 1),
        MEMORY_POOLS => return Some(c_int::from(environment::has_memory_pools())),
        _ => {}
    }
    let row = ROWS.iter().find(|row| row.attribute == attribute);
    let other = OTHERS.iter().find(|other| other.0 == attribute);
    Some(row.map(|row| row.value as c_int).or(other.map(|other| other.1)).unwrap_or(0))
}

/// What tells devices apart.
pub fn uuid(device: c_int) -> [u8; 16] {
    [device as u8 + 1; 16]
}

/// Writes the struct.
fn describe(gpu: &Emulator, out: Out<u8>, device: c_int, size: usize) -> DriverResult<()> {
    out.check()?;
    gpu.check_device(device)?;
    let version = usize::from(environment::major() == 12);
    let mut bytes = vec![0; SIZES[version]];
    let name = gpu.device_name(device)?;
    let name = &name.as_bytes()[..name.len().min(NAME_BYTES - 1)];
    let (_, total) = gpu.memory_info(device)?;
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(NAME, name);
    put(UUID, &uuid(device));
    put(TOTAL, &total.to_ne_bytes());
    let triples = [(MAX_THREADS, [1024, 1024, 64]), (MAX_GRID, [i32::MAX, 65_535, 65_535])];
    for (at, triple) in triples {
        let of = |(axis, value): (usize, &i32)| (at + 4 * axis, value.to_ne_bytes());
        triple.iter().enumerate().map(of).for_each(|(at, value)| put(at, &value));
    }
    put(BUS[version], &(device + 1).to_ne_bytes());
    for row in ROWS {
        put(row.offsets[version], &row.value.to_ne_bytes()[..row.width]);
    }
    bytes.iter().take(size).enumerate().try_for_each(|(at, &byte)| out.at(at).put(byte))
}

cuda! {
    fn cudaGetDeviceProperties(out: Out<u8>, device: c_int) |gpu| {
        let old = environment::major() == 12;
        describe(gpu, out, device, if old { SIZE_OF_OLD } else { SIZES[0] })
    }

    fn cudaGetDeviceProperties_v2(out: Out<u8>, device: c_int) |gpu| {
        describe(gpu, out, device, SIZES[usize::from(environment::major() == 12)])
    }
}
