//! Host and device memory in pairs, copied in both directions repeatedly.

use bytemuck::Pod;

use super::items::{Download, Upload};
use super::list::{Downloads, Uploads};
use crate::copy::route::Route;
use crate::error::Result;
use crate::memory::{DeviceSlice, DeviceSliceMut, PinnedSlice, PinnedSliceMut};
use crate::stream::Stream;
use crate::ticket::Ticket;

/// Page-locked memory and device memory in pairs of equal length: the state of an optimizer, the
/// blocks of a cache. All are copied by one call, in either direction, as often as needed:
/// [`Stream::upload_pairs`], [`Stream::download_pairs`].
///
/// The first call in a direction checks the pairs and lays out what the kernel reads (24 bytes of
/// page-locked memory a pair, and as many for every 16 KiB of a longer one); the others only
/// enqueue. The pairs borrow the buffers as long as they exist, and give access to them between the
/// copies.
///
/// ```
/// use pinlane::batch::Pairs;
/// use pinlane::{Device, PinnedPool};
///
/// let device = Device::open_or_emulated()?;
/// let (pool, stream) = (PinnedPool::builder(&device).build()?, device.stream()?);
/// let mut host = [pool.alloc_zeroed::<f32>(1000)?, pool.alloc_zeroed(500)?];
/// let mut gpu = [device.alloc::<f32>(1000)?, device.alloc(500)?];
/// let mut state: Pairs<f32> = host.iter_mut().zip(&mut gpu).collect();
/// stream.upload_pairs(&mut state)?;
/// for step in 0..3 {
///     stream.fill(state.device_mut(0), step as f32)?; // or a kernel
///     stream.download_pairs(&mut state)?;
///     for part in 0..state.len() {
///         state.host_mut(part).into_write()?.iter_mut().for_each(|value| *value += 1.0);
///     }
///     stream.upload_pairs(&mut state)?;
/// }
/// assert_eq!(state.host(0).read()?[999], 3.0);
/// # Ok::<(), pinlane::Error>(())
/// ```
pub struct Pairs<'a, T: Pod> {
    pairs: Vec<(PinnedSliceMut<'a, T>, DeviceSliceMut<'a, T>)>,
    /// Lists of copies of the views, made by `twin`.
    up: Uploads<'a>,
    down: Downloads<'a>,
}

impl<'a, T: Pod> Pairs<'a, T> {
    /// No pairs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes all copies by this route. `None`, the default: the route that is fastest by rule.
    #[must_use]
    pub fn route(mut self, route: impl Into<Option<Route>>) -> Self {
        let route = route.into();
        (self.up, self.down) = (self.up.route(route), self.down.route(route));
        self
    }

    /// Adds a pair. The first copy checks that both sides have the same length.
    pub fn push(
        &mut self,
        host: impl Into<PinnedSliceMut<'a, T>>,
        device: impl Into<DeviceSliceMut<'a, T>>,
    ) {
        let (host, device) = (host.into(), device.into());
        // SAFETY: one twin is used at a time: only `upload_pairs` and `download_pairs` use the
        // lists, while they borrow the pairs exclusively, so no view is in use.
        let [first, second] = [(); 2].map(|()| unsafe { (host.twin(), device.twin()) });
        self.up.push(Upload::new(PinnedSlice::from(first.0), first.1));
        self.down.push(Download::new(second.1, second.0));
        self.pairs.push((host, device));
    }

    /// The number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The number of bytes of all pairs together, on one side.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.up.bytes()
    }

    /// The host side of a pair.
    ///
    /// # Panics
    ///
    /// Panics if there is no such pair. So do the methods below.
    #[must_use]
    pub fn host(&self, pair: usize) -> PinnedSlice<'_, T> {
        self.pairs[pair].0.as_slice()
    }

    /// The host side of a pair, to write.
    #[must_use]
    pub fn host_mut(&mut self, pair: usize) -> PinnedSliceMut<'_, T> {
        self.pairs[pair].0.reborrow()
    }

    /// The device side of a pair.
    #[must_use]
    pub fn device(&self, pair: usize) -> DeviceSlice<'_, T> {
        self.pairs[pair].1.as_slice()
    }

    /// The device side of a pair, to write.
    #[must_use]
    pub fn device_mut(&mut self, pair: usize) -> DeviceSliceMut<'_, T> {
        self.pairs[pair].1.reborrow()
    }
}

impl<T: Pod> Default for Pairs<'_, T> {
    fn default() -> Self {
        Pairs { pairs: Vec::new(), up: Uploads::new(), down: Downloads::new() }
    }
}

impl<'a, T: Pod, H, D> Extend<(H, D)> for Pairs<'a, T>
where
    H: Into<PinnedSliceMut<'a, T>>,
    D: Into<DeviceSliceMut<'a, T>>,
{
    fn extend<I: IntoIterator<Item = (H, D)>>(&mut self, pairs: I) {
        pairs.into_iter().for_each(|(host, device)| self.push(host, device));
    }
}

impl<'a, T: Pod, H, D> FromIterator<(H, D)> for Pairs<'a, T>
where
    H: Into<PinnedSliceMut<'a, T>>,
    D: Into<DeviceSliceMut<'a, T>>,
{
    fn from_iter<I: IntoIterator<Item = (H, D)>>(pairs: I) -> Self {
        let mut all = Self::default();
        all.extend(pairs);
        all
    }
}

impl Stream {
    /// Copies the host side of every pair to the device. Does not block; ordered as
    /// [`upload`](Self::upload); the copies are unordered among themselves.
    ///
    /// # Errors
    ///
    /// As for [`upload_list`](Self::upload_list).
    pub fn upload_pairs<T: Pod>(&self, pairs: &mut Pairs<'_, T>) -> Result<Ticket> {
        self.upload_entries(self.door("Stream::upload_pairs"), &mut pairs.up)
    }

    /// Copies the device side of every pair to the host. Does not block; ordered as
    /// [`download`](Self::download); the copies are unordered among themselves.
    ///
    /// # Errors
    ///
    /// As for [`download_list`](Self::download_list).
    pub fn download_pairs<T: Pod>(&self, pairs: &mut Pairs<'_, T>) -> Result<Ticket> {
        self.download_entries(self.door("Stream::download_pairs"), &mut pairs.down, None)
    }
}
