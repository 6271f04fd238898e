//! Tensors of DLPack whose members take all values: the bytes that a tensor covers, against a model
//! in arithmetic that does not overflow.

use std::ffi::c_void;
use std::ptr::NonNull;

use pinlane::dlpack::{
    self, DataType, Imported, Layout, LegacyTensor, ManagedTensor, Place, Tensor, Version,
};
use pinlane::memory::HostMemory;
use pinlane::{Device, ErrorKind, PinnedPool};
use proptest::prelude::*;

use crate::common;

/// A member of 64 bits: small, or at an extreme.
fn extreme() -> impl Strategy<Value = i64> {
    let powers = (0u32..63, -2i64..3).prop_map(|(power, beside)| (1i64 << power) + beside);
    prop_oneof![
        8 => 0i64..20,
        2 => powers,
        1 => prop::sample::select(vec![i64::MIN, i64::MIN + 1, -1, i64::MAX - 1, i64::MAX]),
        1 => any::<i64>(),
    ]
}

fn dtype() -> impl Strategy<Value = DataType> {
    let bits =
        prop_oneof![3 => 1u8..=16, 2 => prop::sample::select(vec![32, 64, 128]), 1 => any::<u8>()];
    let lanes = prop_oneof![6 => Just(1u16), 2 => 1u16..5, 1 => any::<u16>()];
    let code = prop_oneof![3 => 0u8..7, 2 => 15u8..18, 1 => any::<u8>()];
    (code, bits, lanes).prop_map(|(code, bits, lanes)| DataType { code, bits, lanes })
}

/// The members of a tensor that its size depends on.
#[derive(Clone, Debug)]
struct Foreign {
    dtype: DataType,
    shape: Vec<i64>,
    strides: Strides,
    flags: u64,
    version: Version,
    byte_offset: u64,
    data: Data,
    /// `Some` if it differs from the number of lengths.
    ndim: Option<i32>,
    shape_at: Array,
}

#[derive(Clone, Debug)]
enum Strides {
    None,
    Tight,
    Given(Vec<i64>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Data {
    Null,
    Somewhere,
    /// This many bytes before the end of the address space.
    AtTheEnd(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Array {
    InPlace,
    Null,
    Misaligned,
}

fn foreign() -> impl Strategy<Value = Foreign> {
    let shape = prop::collection::vec(extreme(), 0..5);
    let strides = prop_oneof![
        2 => Just(Strides::None),
        4 => Just(Strides::Tight),
        1 => prop::collection::vec(extreme(), 5).prop_map(Strides::Given),
    ];
    let flags = prop_oneof![4 => Just(0u64), 3 => Just(4u64), 2 => 0u64..8, 1 => any::<u64>()];
    let major = prop_oneof![12 => Just(1u32), 1 => any::<u32>()];
    let version = (major, 0u32..4).prop_map(|(major, minor)| Version { major, minor });
    let offset = prop_oneof![
        4 => 0u64..100,
        1 => (0u64..100).prop_map(|before| u64::MAX - before),
        1 => any::<u64>(),
    ];
    let data = prop_oneof![
        6 => Just(Data::Somewhere),
        1 => Just(Data::Null),
        1 => (0usize..200).prop_map(Data::AtTheEnd),
    ];
    let ndim = prop_oneof![12 => Just(None), 1 => Just(Some(0)), 1 => (i32::MIN..0).prop_map(Some)];
    let odd = prop_oneof![Just(Array::Null), Just(Array::Misaligned)];
    let array = prop_oneof![6 => Just(Array::InPlace), 1 => odd];
    (dtype(), shape, strides, flags, version, offset, data, ndim, array).prop_map(
        |(dtype, shape, strides, flags, version, byte_offset, data, ndim, shape_at)| Foreign {
            dtype,
            shape,
            strides,
            flags,
            version,
            byte_offset,
            data,
            ndim,
            shape_at,
        },
    )
}

/// The strides of elements without gaps, as far as 128 bits count them.
fn tight(shape: &[i64]) -> Option<Vec<i128>> {
    let mut strides = vec![0; shape.len()];
    let mut stride = 1i128;
    for (length, place) in shape.iter().zip(&mut strides).rev() {
        *place = stride;
        stride = stride.checked_mul(i128::from(*length).max(1))?;
    }
    Some(strides)
}

/// Whether strides of 64 bits can count the elements.
fn is_countable(shape: &[i64]) -> bool {
    let mut lengths = shape.iter().map(|&length| length.max(1));
    lengths.try_fold(1i64, i64::checked_mul).is_some()
}

/// Whether the specification knows the size of the type.
fn is_type(dtype: DataType) -> bool {
    let expected = match dtype.code {
        15 | 16 => 6,
        17 => 4,
        _ => dtype.bits,
    };
    dtype.bits > 0 && dtype.lanes > 0 && dtype.bits == expected
}

/// The bytes of `elements` elements, in one piece.
fn size_of_all(dtype: DataType, elements: u128, padded: bool) -> Option<u128> {
    let bits = u128::from(dtype.bits) * u128::from(dtype.lanes);
    let bits = if padded { bits.div_ceil(8) * 8 } else { bits };
    Some(elements.checked_mul(bits)?.div_ceil(8))
}

/// How many elements a shape has.
fn elements(shape: &[i64]) -> Option<u128> {
    if shape.iter().any(|&length| length < 0) {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u128, |product, &length| product.checked_mul(length as u128))
}

impl Foreign {
    fn rank(&self) -> usize {
        self.ndim.map_or(self.shape.len(), |ndim| usize::try_from(ndim).unwrap_or(0))
    }

    fn address(&self, memory: usize) -> usize {
        match self.data {
            Data::Null => 0,
            Data::Somewhere => memory,
            Data::AtTheEnd(before) => usize::MAX - before,
        }
    }

    /// The start and the number of the bytes; `None` if the tensor must be refused.
    fn bytes(&self, memory: usize) -> Option<(u128, u128)> {
        let shape = &self.shape[..self.rank()];
        let arrays = shape.is_empty() || self.shape_at == Array::InPlace;
        let negative = self.ndim.is_some_and(|ndim| ndim < 0);
        if self.version.major != 1 || self.flags & !6 != 0 || !arrays || negative {
            return None;
        }
        if !is_type(self.dtype) {
            return None;
        }
        let bytes = size_of_all(self.dtype, elements(shape)?, self.flags & 4 != 0)?;
        if bytes == 0 {
            return Some((0, 0));
        }
        let tight = tight(shape).filter(|_| is_countable(shape))?;
        if let Strides::Given(strides) = &self.strides {
            let wrong = |((&length, &stride), &tight): ((&i64, &i64), &i128)| {
                length > 1 && i128::from(stride) != tight
            };
            if shape.iter().zip(strides).zip(&tight).any(wrong) {
                return None;
            }
        }
        let start = self.address(memory) as u128 + u128::from(self.byte_offset);
        let fits = bytes <= isize::MAX as u128 && start + bytes <= usize::MAX as u128;
        (self.data != Data::Null && fits).then_some((start, bytes))
    }

    /// Passes the tensor to `with`. Its arrays have room for a misaligned pointer.
    fn with<R>(&self, memory: usize, with: impl FnOnce(ManagedTensor) -> R) -> R {
        let mut shape = self.shape.clone();
        shape.push(0);
        let given = match &self.strides {
            Strides::None => None,
            Strides::Given(strides) => Some(strides.clone()),
            Strides::Tight => {
                let tight = tight(&self.shape[..self.rank()]);
                let narrow = |stride: i128| i64::try_from(stride).unwrap_or(i64::MAX);
                Some(tight.into_iter().flatten().map(narrow).chain([0; 5]).collect())
            }
        };
        let mut strides: Vec<i64> = given.clone().unwrap_or_default();
        let first = shape.as_mut_ptr();
        let shape_at = match self.shape_at {
            Array::InPlace => first,
            Array::Null => std::ptr::null_mut(),
            Array::Misaligned => first.wrapping_byte_add(4),
        };
        with(ManagedTensor {
            version: self.version,
            manager_ctx: std::ptr::null_mut(),
            deleter: None,
            flags: self.flags,
            tensor: Tensor {
                data: std::ptr::with_exposed_provenance_mut::<c_void>(self.address(memory)),
                device: Place { device_type: Place::CPU, device_id: 0 },
                ndim: self.ndim.unwrap_or(self.shape.len() as i32),
                dtype: self.dtype,
                shape: shape_at,
                strides: if given.is_some() { strides.as_mut_ptr() } else { std::ptr::null_mut() },
                byte_offset: self.byte_offset,
            },
        })
    }
}

fn check_import(case: &Foreign) -> Result<(), TestCaseError> {
    let mut memory = vec![0u8; 1 << 12];
    let (at, len) = (memory.as_mut_ptr().expose_provenance(), memory.len());
    let expected = case.bytes(at);
    case.with(at, |mut managed| {
        let tensor = NonNull::from(&mut managed);
        // SAFETY: live, and owned here. Its arrays are as long as it says, or misaligned.
        let imported = unsafe { Imported::new(tensor) };
        let (mut imported, (start, bytes)) = match (imported, expected) {
            (Err(error), None) => {
                prop_assert_eq!(error.kind(), ErrorKind::InvalidValue);
                return Ok(());
            }
            (Ok(imported), Some(expected)) => (imported, expected),
            (found, expected) => {
                let found = found.map(|_| "taken").map_err(|error| error.to_string());
                return Err(TestCaseError::fail(format!("{found:?}, but expected {expected:?}")));
            }
        };
        // The test reads tensors that lie in its memory, and only returns the others.
        if bytes == 0 || start + bytes <= (at + len) as u128 && start >= at as u128 {
            let found = imported.elements();
            prop_assert_eq!(found.len() as u128, bytes);
            prop_assert!(bytes == 0 || found.as_ptr().addr() as u128 == start);
        }
        prop_assert_eq!(imported.into_raw(), tensor);
        Ok(())
    })
}

/// Whether the export of a buffer of `bytes` bytes must succeed.
fn fits(layout: &Layout<'_>, bytes: usize) -> bool {
    let (dtype, shape) = (layout.dtype, layout.shape);
    let bits = i128::from(dtype.bits) * i128::from(dtype.lanes);
    if !is_type(dtype) || bits % 8 == 0 && layout.offset_bytes as i128 * 8 % bits != 0 {
        return false;
    }
    let (Some(count), Some(tight)) = (elements(shape), tight(shape)) else { return false };
    if !is_countable(shape) {
        return false;
    }
    if count == 0 {
        return true;
    }
    let strides: Vec<i128> = match layout.strides {
        Some(strides) => strides.iter().map(|&stride| stride.into()).collect(),
        None => tight,
    };
    let (mut low, mut high) = (0i128, 0i128);
    for (&length, &stride) in shape.iter().zip(&strides) {
        let last = (i128::from(length) - 1) * stride;
        low = low.saturating_add(last.min(0));
        high = high.saturating_add(last.max(0));
    }
    let bit = |element: i128| {
        element.saturating_mul(bits).saturating_add(layout.offset_bytes as i128 * 8)
    };
    bit(low) >= 0 && bit(high.saturating_add(1)) <= bytes as i128 * 8
}

/// Where the bytes of a tensor's elements lie behind its first one, in the order of the elements.
fn places(shape: &[i64], strides: &[i64], element: usize) -> Vec<i64> {
    let mut places = vec![0];
    for (&length, &stride) in shape.iter().zip(strides) {
        let next = |at: i64| (0..length).map(move |n| at + if length > 1 { n * stride } else { 0 });
        places = places.into_iter().flat_map(next).collect();
    }
    let size = element as i64;
    places.into_iter().flat_map(|at| at * size..(at + 1) * size).collect()
}

/// The same of rows of bytes.
fn places_of_rows(rows: pinlane::Strides) -> Vec<i64> {
    let starts = (0..rows.planes).flat_map(|plane| {
        (0..rows.rows).map(move |row| plane * rows.plane_pitch + row * rows.pitch)
    });
    starts.flat_map(|start| start as i64..(start + rows.row) as i64).collect()
}

/// Whether these must be rows and planes: each dimension spans less than the distance in the next
/// sparser one, and there are three with the row at most.
fn must_be_rows(shape: &[i64], strides: &[i64]) -> bool {
    let lengths = shape.iter().zip(strides).filter(|(length, _)| **length > 1);
    let mut dimensions: Vec<(i64, i64)> =
        lengths.map(|(&length, &stride)| (stride, length)).collect();
    let neighbours_follow = dimensions.last().is_none_or(|innermost| innermost.0 == 1);
    let most = if neighbours_follow { 3 } else { 2 };
    dimensions.sort_unstable();
    let mut span = 1;
    dimensions.len() <= most
        && dimensions.iter().all(|&(stride, length)| {
            let is_apart = stride >= span;
            span += (length - 1) * stride;
            is_apart
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_tensor_covers_what_its_members_say_or_is_refused(case in foreign()) {
        check_import(&case)?;
    }

    #[test]
    fn a_tensor_with_gaps_is_rows_of_the_same_bytes_in_the_same_order(
        (shape, strides) in prop_oneof![
            prop::collection::vec((0i64..6, -2i64..30), 0..5),
            prop::collection::vec((1i64..6, prop::sample::select(vec![1, 2, 6, 7, 36, 80])), 1..4),
            prop::collection::vec((1i64..2, any::<i64>()), 0..4),
        ].prop_map(|dimensions| dimensions.into_iter().unzip::<i64, i64, Vec<_>, Vec<_>>()),
        (bits, lanes, flags) in
            prop::sample::select(vec![(8u8, 1u16, 0u64), (32, 1, 0), (8, 3, 0), (4, 1, 4)]),
    ) {
        let case = Foreign {
            dtype: DataType { code: 1, bits, lanes },
            shape: shape.clone(),
            strides: Strides::Given(strides.clone()),
            flags,
            version: dlpack::VERSION,
            byte_offset: 0,
            data: Data::Somewhere,
            ndim: None,
            shape_at: Array::InPlace,
        };
        let element = usize::from(bits).div_ceil(8) * usize::from(lanes);
        let expected = places(&shape, &strides, element);
        let mut memory = vec![0u8; 1 << 13]; // more than any of these tensors spans
        case.with(memory.as_mut_ptr().expose_provenance(), |mut managed| {
            // SAFETY: live, and owned here; its memory is `memory`, if it is taken.
            match unsafe { Imported::with_strides(NonNull::from(&mut managed)) } {
                Ok((mut imported, rows)) => {
                    prop_assert_eq!(&places_of_rows(rows), &expected, "{:?}", rows);
                    let end = expected.iter().max().map_or(0, |last| last + 1);
                    prop_assert_eq!(imported.elements().len() as i64, end);
                    let mut sorted = expected.clone();
                    sorted.sort_unstable();
                    sorted.dedup();
                    prop_assert_eq!(sorted.len(), expected.len(), "two elements overlap");
                }
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::InvalidValue);
                    prop_assert!(!expected.is_empty(), "{}", error);
                    prop_assert!(!must_be_rows(&shape, &strides), "{}", error);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_older_form_counts_as_packed(case in foreign()) {
        let memory = vec![0u8; 1 << 12];
        let at = memory.as_ptr().expose_provenance();
        case.with(at, |mut managed| {
            let mut legacy = LegacyTensor {
                tensor: managed.tensor,
                manager_ctx: std::ptr::null_mut(),
                deleter: None,
            };
            // SAFETY: live, and owned here.
            let newer = unsafe { dlpack::from_legacy(NonNull::from(&mut legacy)) };
            // SAFETY: as above.
            let found = unsafe { Imported::new(newer) }.map(Imported::into_raw);
            let (flags, version) = (0, Version { major: 1, minor: 0 });
            let expected = Foreign { flags, version, ..case.clone() }.bytes(at);
            prop_assert_eq!(found.is_ok(), expected.is_some());
            // SAFETY: as above; it is not used any more.
            unsafe { dlpack::delete(newer) };
            // The older form has no flags for read-only and padded tensors.
            // SAFETY: as above.
            let older = unsafe { dlpack::to_legacy(NonNull::from(&mut managed)) };
            prop_assert_eq!(older.is_ok(), case.version.major == 1 && case.flags & !2 == 0);
            if let Ok(older) = older {
                // SAFETY: just made, and unused.
                let deleter = unsafe { older.as_ref() }.deleter.expect("it has one");
                // SAFETY: as above.
                unsafe { deleter(older.as_ptr()) };
            }
            Ok(())
        })?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The import of an exported buffer has as many bytes as all its elements.
    #[test]
    fn a_buffer_becomes_each_tensor_that_fits_it(
        dtype in dtype(),
        bytes in 0usize..600,
        shape in prop::collection::vec(extreme(), 0..4),
        strides in prop::option::of(prop::collection::vec(extreme(), 4)),
        offset_bytes in prop_oneof![6 => Just(0usize), 3 => 0usize..64, 1 => any::<usize>()],
    ) {
        let device: Device = common::device();
        let pool = PinnedPool::builder(&device).build().unwrap();
        let strides = strides.as_deref().map(|strides| &strides[..shape.len()]);
        let layout = Layout { shape: &shape, strides, offset_bytes, ..Layout::new(dtype) };
        let buffer = pool.alloc::<u8>(bytes).unwrap();
        let first = buffer.as_ptr().addr();
        let tensor = match buffer.into_dlpack(&layout, None) {
            Ok(tensor) => tensor,
            Err(refused) => {
                prop_assert!(!fits(&layout, bytes), "{}", refused.error);
                return Ok(());
            }
        };
        // SAFETY: live, and owned here.
        let managed = unsafe { tensor.as_ref() };
        prop_assert!(fits(&layout, bytes), "{:?}", managed);
        prop_assert_eq!(managed.flags, 0);
        // Before 1.1 the specification did not say that elements are packed.
        let bits = usize::from(dtype.bits) * usize::from(dtype.lanes);
        prop_assert!(managed.version.minor == 1 || bits.is_multiple_of(8));
        // SAFETY: as above.
        match unsafe { Imported::new(tensor) } {
            Ok(mut imported) => {
                let size = size_of_all(dtype, elements(&shape).unwrap(), false).unwrap();
                let found = imported.elements();
                prop_assert_eq!(found.len() as u128, size);
                prop_assert!(size == 0 || found.as_ptr().addr() == first + offset_bytes);
            }
            Err(_) => {
                prop_assert!(strides.is_some(), "without strides there are no gaps");
                // SAFETY: still owned here, and not used any more.
                unsafe { dlpack::delete(tensor) };
            }
        }
    }
}
