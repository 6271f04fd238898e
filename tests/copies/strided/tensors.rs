//! Tensors with gaps, as strided views.

use pinlane::dlpack::{self, DataType, Imported, ImportedReadOnly, Layout};
use pinlane::{Device, ErrorKind, PinnedPool, Strided, Strides};

use super::noise;
use crate::common;

/// The shape and strides of tensors of 16-bit elements in a buffer of 4000, and their rows in
/// bytes.
fn tensors() -> [(&'static [i64], &'static [i64], Strides); 10] {
    [
        // One column, as `m[:, 2:3]` and as `m[:, 2]`.
        (&[30, 1], &[100, 1], Strides::new(2, 30, 200)),
        (&[30], &[100], Strides::new(2, 30, 200)),
        // Every third element of every second row, and of all rows.
        (&[15, 20], &[200, 3], Strides::new(2, 20, 6).planes(15, 400)),
        (&[15, 20], &[60, 3], Strides::new(2, 300, 6)),
        // Transposed.
        (&[20, 30], &[1, 100], Strides::new(2, 30, 200).planes(20, 2)),
        // Dimensions of one element, whatever their strides are.
        (&[1, 30, 1], &[-3, 100, i64::MAX], Strides::new(2, 30, 200)),
        (&[30, 20], &[100, 1], Strides::new(40, 30, 200)),
        (&[3, 5, 20], &[1000, 40, 1], Strides::new(40, 5, 80).planes(3, 2000)),
        // Two dimensions that are contiguous, and two that are one.
        (&[4, 2, 3, 5], &[400, 200, 5, 1], Strides::new(30, 8, 400)),
        // Heads and positions exchanged.
        (&[6, 10, 16], &[16, 96, 1], Strides::new(32, 10, 192).planes(6, 32)),
    ]
}

/// The elements of a tensor in their order, out of those of its buffer.
fn elements(shape: &[i64], strides: &[i64], buffer: &[u16]) -> Vec<u16> {
    let mut places = vec![0];
    for (&length, &stride) in shape.iter().zip(strides) {
        let next = |at: i64| (0..length).map(move |n| at + n * stride);
        places = places.into_iter().flat_map(next).collect();
    }
    places.into_iter().map(|at| buffer[at as usize]).collect()
}

#[test]
fn tensors_with_gaps_in_host_memory_are_rows() {
    let device = common::device();
    let (stream, pool) = (device.stream().unwrap(), PinnedPool::builder(&device).build().unwrap());
    let contents = noise(1, 4000);
    for (shape, strides, expected) in tensors() {
        let mut buffer = pool.alloc::<u16>(4000).unwrap();
        buffer.write().unwrap().copy_from_slice(&contents);
        let mut layout = Layout::new(DataType::U16);
        (layout.shape, layout.strides) = (shape, Some(strides));
        layout.page_locked = true; // and so it needs not be page-locked again
        let tensor = buffer.into_dlpack(&layout, None).unwrap();
        // SAFETY: the tensor has one owner, and its memory no other user.
        let refused = unsafe { Imported::new(tensor) }.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::InvalidValue);
        assert!(refused.to_string().contains("strides"), "{refused}");
        // SAFETY: as above.
        let (tensor, rows) = unsafe { Imported::with_strides(tensor) }.unwrap();
        assert_eq!(rows, expected);
        let host = device.register(tensor).map_err(|refused| refused.error).unwrap();
        let elements = elements(shape, strides, &contents);
        let mut gpu = device.alloc::<u8>(2 * elements.len()).unwrap();
        let view = Strided::new(host.as_slice(), rows).unwrap();
        stream.upload_strided(view, &mut gpu).unwrap();
        let mut found = vec![0u16; elements.len()];
        stream.download_slice(&gpu, bytemuck::cast_slice_mut(&mut found)).unwrap();
        assert_eq!(found, elements);
    }
}

#[test]
fn read_only_tensors_with_gaps_are_rows_to_upload() {
    let device = common::device();
    let (stream, pool) = (device.stream().unwrap(), PinnedPool::builder(&device).build().unwrap());
    let contents = noise(1, 4000);
    for (shape, strides, expected) in tensors() {
        let mut buffer = pool.alloc::<u16>(4000).unwrap();
        buffer.write().unwrap().copy_from_slice(&contents);
        let mut layout = Layout::new(DataType::U16);
        (layout.shape, layout.strides) = (shape, Some(strides));
        (layout.page_locked, layout.read_only) = (true, true);
        let tensor = buffer.into_dlpack(&layout, None).unwrap();
        // SAFETY: the tensor has one owner, and its memory no other user.
        let refused = unsafe { Imported::with_strides(tensor) }.err().unwrap();
        assert!(refused.to_string().contains("the tensor is read-only"), "{refused}");
        // SAFETY: as above.
        let refused = unsafe { ImportedReadOnly::new(tensor) }.err().unwrap();
        assert!(refused.to_string().contains("import it with its strides"), "{refused}");
        // SAFETY: as above.
        let (tensor, rows) = unsafe { ImportedReadOnly::with_strides(tensor) }.unwrap();
        assert_eq!(rows, expected);
        let host = device.register_read_only(tensor).map_err(|refused| refused.error).unwrap();
        let elements = elements(shape, strides, &contents);
        let mut gpu = device.alloc::<u8>(2 * elements.len()).unwrap();
        stream.upload_strided(Strided::new(host.as_slice(), rows).unwrap(), &mut gpu).unwrap();
        let mut found = vec![0u16; elements.len()];
        stream.download_slice(&gpu, bytemuck::cast_slice_mut(&mut found)).unwrap();
        assert_eq!(found, elements);
    }
}

#[test]
fn tensors_with_gaps_on_the_device_are_rows() {
    let device = common::device();
    let stream = device.stream().unwrap();
    let contents = noise(1, 4000);
    for (shape, strides, expected) in tensors() {
        let mut buffer = device.alloc::<u16>(4000).unwrap();
        stream.upload_slice(&contents, &mut buffer).unwrap();
        let mut layout = Layout::new(DataType::U16);
        (layout.shape, layout.strides) = (shape, Some(strides));
        let tensor = buffer.into_dlpack(&layout, &stream).unwrap();
        // SAFETY: the tensor has one owner, its memory no other user, and its work is on the
        // stream.
        let refused = unsafe { stream.import_dlpack(tensor) }.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidValue);
        // SAFETY: as above.
        let (gpu, rows) = unsafe { stream.import_dlpack_with_strides(tensor) }.unwrap();
        assert_eq!(rows, expected);
        let elements = elements(shape, strides, &contents);
        let mut found = vec![0u16; elements.len()];
        let view = Strided::new(gpu.as_slice(), rows).unwrap();
        let target: &mut [u8] = bytemuck::cast_slice_mut(&mut found);
        stream.download_strided(view, target).unwrap();
        assert_eq!(found, elements);
    }
}

/// What is no rows stays refused, and so does a tensor of another device.
#[test]
fn tensors_that_are_no_rows_stay_refused() {
    let device = Device::emulated().unwrap();
    let stream = device.stream().unwrap();
    for (shape, strides) in [
        (&[30, 20][..], &[1, 20][..]), // overlaps
        (&[20], &[0]),
        (&[30, 20], &[10, 1]),
        (&[30, 20], &[0, 1]),
        (&[2, 3, 4, 5], &[1000, 300, 50, 1]),
        (&[3, 4, 5], &[1000, 100, 2]),
    ] {
        let buffer = device.alloc::<u16>(4000).unwrap();
        let mut layout = Layout::new(DataType::U16);
        (layout.shape, layout.strides) = (shape, Some(strides));
        let tensor = buffer.into_dlpack(&layout, &stream).unwrap();
        // SAFETY: the tensor has one owner, and its memory no other user.
        let refused = unsafe { stream.import_dlpack_with_strides(tensor) };
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidValue, "{strides:?}");
        assert!(refused.to_string().contains("is not of rows that lie apart"), "{refused}");
        // SAFETY: not used afterwards.
        unsafe { dlpack::delete(tensor) };
    }
    let other = Device::emulated().unwrap();
    let buffer = device.alloc::<u16>(4000).unwrap();
    let mut layout = Layout::new(DataType::U16);
    (layout.shape, layout.strides) = (&[30, 20], Some(&[100, 1][..]));
    let tensor = buffer.into_dlpack(&layout, &stream).unwrap();
    // SAFETY: as above.
    let imported = unsafe { Imported::with_strides(tensor) };
    assert_eq!(imported.err().unwrap().kind(), ErrorKind::InvalidValue, "not in host memory");
    // SAFETY: not used afterwards.
    unsafe { dlpack::delete(tensor) };
    drop(other);
}
