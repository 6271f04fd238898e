//! Handles that go stale: a slot map whose keys carry a generation.
//!
//! Streams and events are named by numbers that callers may keep for too long. A key is the index
//! of a slot and the generation of its tenant; the generation moves on when the tenant leaves, so
//! that a stale key finds nothing instead of the next tenant.

/// Names a tenant of a [`Slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    fn to_handle(self, tag: u8) -> usize {
        let index = self.index as usize + 1;
        ((self.generation as usize) << 40) | (index << 8) | ((tag as usize) << 4)
    }

    fn from_handle(handle: usize, tag: u8) -> Option<Key> {
        let index = (handle >> 8) as u32;
        let generation = (handle >> 40) as u32;
        let key = Key { index: index.checked_sub(1)?, generation };
        (key.to_handle(tag) == handle).then_some(key)
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    tenant: Option<T>,
}

/// A slot map.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    /// Below 16: tells its handles from those of other maps.
    tag: u8,
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

/// Generations that fit into a handle with an index of 32 bits.
const GENERATIONS: u32 = 1 << 24;

impl<T> Slots<T> {
    pub(crate) fn new(tag: u8) -> Self {
        Slots { tag, slots: Vec::new(), vacant: Vec::new() }
    }

    /// The key as a handle: never one of the values 0 to 2 that name the default streams. It is a
    /// multiple of 16, as the addresses are that GPUs' drivers give: PyTorch puts marks of its own
    /// into the last bits.
    pub(crate) fn handle(&self, key: Key) -> usize {
        key.to_handle(self.tag)
    }

    /// The tenant that a handle names.
    #[inline]
    pub(crate) fn find(&self, handle: usize) -> Option<(Key, &T)> {
        let key = Key::from_handle(handle, self.tag)?;
        self.get(key).map(|tenant| (key, tenant))
    }

    pub(crate) fn insert(&mut self, tenant: T) -> Key {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, tenant: None });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 streams or events")
        });
        let slot = &mut self.slots[index as usize];
        slot.tenant = Some(tenant);
        Key { index, generation: slot.generation }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.tenant.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.tenant.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let tenant = slot.tenant.take()?;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        self.vacant.push(key.index);
        Some(tenant)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.vacant.len() == self.slots.len()
    }

    /// The keys of the tenants for which `like` is true.
    pub(crate) fn keys_of(&self, like: impl Fn(&T) -> bool) -> Vec<Key> {
        let key = |(index, slot): (usize, &Slot<T>)| {
            let key = Key { index: index as u32, generation: slot.generation };
            slot.tenant.as_ref().filter(|tenant| like(tenant)).map(|_| key)
        };
        self.slots.iter().enumerate().filter_map(key).collect()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.tenant.as_ref())
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.tenant.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_never_finds_the_next_tenant() {
        let mut slots = Slots::new(5);
        let old = slots.insert("old");
        assert_eq!(slots.remove(old), Some("old"));
        let new = slots.insert("new");
        assert_eq!(slots.get(old), None);
        assert_eq!(slots.remove(old), None);
        assert_eq!(slots.get(new), Some(&"new"));
    }

    #[test]
    fn handles_come_back_as_keys_and_only_with_their_tag() {
        let key = Key { index: 77, generation: 12345 };
        let handle = key.to_handle(5);
        assert_eq!(Key::from_handle(handle, 5), Some(key));
        assert_eq!(Key::from_handle(handle, 6), None);
        assert!((0..16).all(|handle| Key::from_handle(handle, 5).is_none()));
        assert_eq!(handle % 16, 0, "as the addresses of a driver's objects");
    }
}
