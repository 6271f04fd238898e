use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

struct Nested;

/// Holds another handle of its kind, which its drop frees. Counts drops.
#[derive(Default)]
struct Outer {
    inner: Option<usize>,
    drops: Arc<AtomicUsize>,
}

impl Drop for Outer {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        if let Some(inner) = self.inner {
            let inner = std::ptr::without_provenance_mut::<Nested>(inner);
            free(inner).expect("a live handle");
        }
    }
}

handle_type!(Nested: Outer, "nested object", table 27, shared: false);

#[test]
fn handles_are_checked_and_objects_dropped_with_nothing_locked() {
    let drops = Arc::new(AtomicUsize::new(0));
    let inner = create::<Nested>(Outer { inner: None, drops: drops.clone() });
    let outer = Outer { inner: Some(inner.addr()), drops: drops.clone() };
    let outer = create_noted::<Nested>(ManuallyDrop::new(outer), [7, 77]);
    assert_eq!(notes(outer).expect("a live handle"), [7, 77]);
    free(outer).expect("a live handle");
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    for handle in [inner, outer] {
        for error in [free(handle).err(), get(handle).err(), notes(handle).err()] {
            assert_eq!(error.expect("freed already").kind(), ErrorKind::InvalidHandle);
        }
    }
    free(std::ptr::null_mut::<Nested>()).expect("freeing nothing is fine");
    let local = 0;
    for address in [0, usize::MAX, (&raw const local).addr(), outer.addr() ^ (1 << 56)] {
        let foreign = std::ptr::without_provenance_mut::<Nested>(address);
        assert!(get(foreign).is_err());
    }
}

#[test]
fn a_conflicting_use_is_busy() {
    let handle = create::<Nested>(Outer::default());
    let first = get(handle).expect("live");
    assert_eq!(get_mut(handle).err().map(|error| error.kind()), Some(ErrorKind::Busy));
    assert!(get(handle).is_ok());
    drop(first);
    let only = get_mut(handle).expect("no other call");
    assert_eq!(get(handle).err().map(|error| error.kind()), Some(ErrorKind::Busy));
    only.remove();
    assert!(get(handle).is_err());
}
