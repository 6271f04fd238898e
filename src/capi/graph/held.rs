//! A buffer of a C program, as a graph holds it.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use crate::capi::buffer::{HostBuffer, Kept};
use crate::capi::device_buffer::DeviceBuffer;
use crate::capi::table::{Alone, Counted, Inside, Kind};
use crate::capi::{Result, handle, invalid, pinlane_buffer, pinlane_device_buffer};
use crate::graph::{self, GraphBuffer, Held as _, OfDevice, OnDevice, OnHost, Pinned, Writable};
use crate::memory::{DeviceBuf, DeviceSlice, Operand, PinnedBuf, PinnedSlice};

/// A type of handles that name memory.
pub trait Memory: Kind {
    type Buffer: GraphBuffer<Element = u8>;
    /// Keeps the memory of a buffer that is freed while it is lent.
    type Kept: Send + Sync + 'static;

    fn buffer(object: &Self::Object) -> &Self::Buffer;
    /// Fails for memory that is only read.
    fn check_writable(object: &mut Self::Object) -> Result<()>;
    fn keep(object: &Self::Object) -> Self::Kept;
}

impl Memory for pinlane_buffer {
    type Buffer = PinnedBuf<u8>;
    type Kept = Arc<Kept>;

    fn buffer(object: &HostBuffer) -> &PinnedBuf<u8> {
        object.buffer()
    }

    fn check_writable(object: &mut HostBuffer) -> Result<()> {
        object.writable().map(drop)
    }

    fn keep(object: &HostBuffer) -> Arc<Kept> {
        object.keep()
    }
}

impl Memory for pinlane_device_buffer {
    type Buffer = DeviceBuf<u8>;
    /// CUDA lets device memory go while a graph that is not launched has its address.
    type Kept = ();

    fn buffer(object: &DeviceBuffer) -> &DeviceBuf<u8> {
        object
    }

    fn check_writable(_: &mut DeviceBuffer) -> Result<()> {
        Ok(())
    }

    fn keep(_: &DeviceBuffer) {}
}

/// What a graph has of a buffer.
enum Hold<H: Memory> {
    /// Its work only reads it, and others may read it too.
    Shared(Counted<Inside<H>>),
    Alone(Counted<Alone<H>>),
    /// The program has it until the next launch. Its memory stays.
    Lent(H::Kept),
    /// The program has it for good.
    Gone,
}

/// A buffer that a capture or a graph holds by its handle. Nobody can free it: when the handle is
/// freed, the buffer stays as long as this.
pub struct Held<H: Memory> {
    hold: Hold<H>,
    len: usize,
    address: u64,
}

impl<H: Memory> Hold<H> {
    fn new(handle: *const H, writes: bool) -> Result<Self> {
        Ok(match writes {
            false => Hold::Shared(handle::get_counted(handle)?),
            true => {
                let mut alone: Counted<Alone<H>> = handle::get_counted(handle)?;
                H::check_writable(&mut alone)?;
                Hold::Alone(alone)
            }
        })
    }
}

impl<H: Memory> Held<H> {
    pub(super) fn new(handle: *const H, writes: bool) -> Result<Self> {
        let hold = Hold::new(handle, writes)?;
        let mut held = Held { hold, len: 0, address: 0 };
        (held.len, held.address) = (held.buffer().extent().0, held.buffer().address());
        Ok(held)
    }

    /// The work writes the buffer, too. Fails if others read it now, or it is only read: then this
    /// is as before.
    pub(super) fn take_alone(&mut self, handle: *const H) -> Result<()> {
        let (hold, taken) = match std::mem::replace(&mut self.hold, Hold::Gone) {
            Hold::Shared(shared) => match handle::upgrade(shared, handle) {
                Ok(alone) => (Hold::Alone(alone), Ok(())),
                Err((shared, error)) => (Hold::Shared(shared), Err(error)),
            },
            other => (other, Ok(())),
        };
        self.hold = hold;
        taken?;
        let Hold::Alone(alone) = &mut self.hold else { return Ok(()) };
        let checked = H::check_writable(alone);
        if checked.is_err() {
            self.share();
        }
        checked
    }

    /// The work only reads the buffer, after all.
    pub(super) fn share(&mut self) {
        self.hold = match std::mem::replace(&mut self.hold, Hold::Gone) {
            Hold::Alone(alone) => Hold::Shared(alone.downgrade()),
            other => other,
        };
    }

    /// Gives the buffer out, and keeps its memory. False if the program has it already.
    pub(super) fn lend(&mut self) -> bool {
        let kept = match &self.hold {
            Hold::Shared(shared) => H::keep(shared),
            Hold::Alone(alone) => H::keep(alone),
            Hold::Lent(_) | Hold::Gone => return false,
        };
        self.hold = Hold::Lent(kept);
        true
    }

    /// Gives the buffer out for good: no work names it.
    pub(super) fn let_go(&mut self) {
        self.hold = Hold::Gone;
    }

    /// Takes the buffer back that was lent.
    pub(super) fn take_back(&mut self, handle: *const H, writes: bool) -> Result<()> {
        if matches!(self.hold, Hold::Lent(_)) {
            self.hold = Hold::new(handle, writes)?;
        }
        Ok(())
    }

    fn buffer(&self) -> &H::Buffer {
        match &self.hold {
            Hold::Shared(shared) => H::buffer(shared),
            Hold::Alone(alone) => H::buffer(alone),
            Hold::Lent(_) | Hold::Gone => unreachable!("a graph uses no buffer that it has lent"),
        }
    }
}

impl<H: Memory> graph::Held for Held<H> {
    fn extent(&self) -> (usize, usize) {
        (self.len, 1)
    }

    fn operand(&self, bytes: Range<usize>, writes: bool) -> Operand<'_> {
        self.buffer().operand(bytes, writes)
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn is_one_piece(&self, bytes: Range<usize>) -> bool {
        self.buffer().is_one_piece(bytes)
    }
}

impl<H: Memory> GraphBuffer for Held<H> {
    type Element = u8;
    const IS_OF_DEVICE: bool = <H::Buffer as GraphBuffer>::IS_OF_DEVICE;
}

impl<H: Memory> Writable for Held<H> {
    /// There is none: the program writes by the handle, which the graph lends.
    type SliceMut<'a> = Infallible;

    fn part_mut(&mut self, _: Range<usize>) -> Result<Infallible> {
        Err(invalid("a graph has no views of this buffer", "lend it, and use its handle"))
    }
}

impl Pinned<u8> for Held<pinlane_buffer> {
    fn part(&self, range: Range<usize>) -> Result<PinnedSlice<'_, u8>> {
        self.buffer().slice(range)
    }
}

impl OnHost for Held<pinlane_buffer> {}

impl OfDevice<u8> for Held<pinlane_device_buffer> {
    fn part(&self, range: Range<usize>) -> Result<DeviceSlice<'_, u8>> {
        self.buffer().slice(range)
    }
}

impl OnDevice for Held<pinlane_device_buffer> {}
