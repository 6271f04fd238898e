use std::collections::BTreeMap;
use std::ptr::NonNull;

use super::super::index::{Extent, Index};

/// A slab whose blocks are never accessed.
fn slab(begin: usize, each: usize, count: usize) -> Extent {
    Extent { begin, end: begin + each * count, each, blocks: NonNull::dangling() }
}

#[test]
fn an_address_lies_in_a_slab_from_its_first_byte_to_its_last() {
    let index = Index::default();
    assert_eq!(index.find(4096), None);
    let (first, second) = (slab(4096, 256, 16), slab(3 * 4096, 4096, 2));
    index.insert(second);
    index.insert(first);
    for (address, found) in [
        (0, None),
        (4095, None),
        (4096, Some(first)),
        (8191, Some(first)),
        (8192, None),
        (3 * 4096 - 1, None),
        (3 * 4096, Some(second)),
        (5 * 4096 - 1, Some(second)),
        (5 * 4096, None),
        (usize::MAX, None),
    ] {
        assert_eq!(index.find(address), found, "{address}");
    }
    index.remove(first);
    index.remove(first);
    assert_eq!((index.find(4096), index.find(4 * 4096)), (None, Some(second)));
    // A slab that is not in the index.
    index.remove(slab(3 * 4096, 4096, 1));
    assert_eq!(index.find(4 * 4096), Some(second));
}

/// Its address may be the end of memory that has nothing to do with the pool.
#[cfg(feature = "emulated")]
#[test]
fn an_empty_range_lies_in_no_block() -> crate::Result<()> {
    let device = crate::Device::emulated()?;
    let pool = crate::PinnedPool::builder(&device).build()?;
    let buffer = pool.alloc::<u8>(100)?;
    // SAFETY: the buffer lives.
    let is_found =
        |bytes| unsafe { super::block_at(buffer.as_ptr(), bytes, device.context()).is_some() };
    assert_eq!([1, 100, 0].map(is_found), [true, true, false]);
    Ok(())
}

#[test]
fn it_agrees_with_a_map_whatever_comes_and_goes() {
    let index = Index::default();
    let mut model = BTreeMap::new();
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..3000 {
        let begin = (1 + random(200) as usize) * 4096;
        let there = slab(begin, 512, 1 + random(8) as usize);
        match model.remove(&begin) {
            Some(there) => index.remove(there),
            None => {
                index.insert(there);
                model.insert(begin, there);
            }
        }
        let address = random(210 * 4096) as usize;
        let below = model.range(..=address).next_back();
        let expected = below.map(|(_, &slab)| slab).filter(|slab| address < slab.end);
        assert_eq!(index.find(address), expected);
    }
    assert!(model.len() > 64, "it has grown: {}", model.len());
}

/// A slab that stays is always found, and no search finds a slab where there is none.
#[test]
fn readers_are_right_while_others_write() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (index, done) = (Index::default(), AtomicBool::new(false));
    let stays = slab(100 * 4096, 4096, 1);
    index.insert(stays);
    std::thread::scope(|scope| {
        let read = || {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(index.find(100 * 4096 + 7), Some(stays));
                assert_eq!(index.find(101 * 4096), None);
            }
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        for round in 0..20_000 {
            let (below, above) =
                (slab((round % 50) * 4096, 4096, 1), slab((200 + round % 70) * 4096, 256, 16));
            index.insert(below);
            index.insert(above);
            index.remove(below);
            index.remove(above);
        }
        done.store(true, Ordering::Relaxed);
        // Joined here, because the thread sanitizer does not see how the scope's end waits.
        for reader in readers {
            reader.join().expect("it found what is there");
        }
    });
}
