//! Tensors of DLPack with elements of every width: the program's own memory becomes a buffer, and a
//! buffer becomes a tensor of another library and a buffer again. The model computes the bytes of
//! the whole tensor by the specification.

use std::ptr::NonNull;

use pinlane::ErrorKind;
use pinlane::dlpack::{self, DataType, Imported, Layout, ManagedTensor, Place, Tensor};

use super::behind::Uses;
use super::model::painted;
use super::{Host, Machine, Memory, paint, pick};

/// The elements of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Elements {
    pub bits: u8,
    pub lanes: u16,
    /// Only tensors of other libraries are padded.
    pub padded: bool,
}

impl Elements {
    fn dtype(self) -> DataType {
        DataType { code: 1, bits: self.bits, lanes: self.lanes }
    }

    /// The bits of an element.
    fn step(self) -> usize {
        let bits = usize::from(self.bits) * usize::from(self.lanes);
        if self.padded { bits.next_multiple_of(8) } else { bits }
    }

    /// The number of elements that fit in `bytes` bytes.
    fn count_in(self, bytes: usize) -> usize {
        8 * bytes / self.step()
    }

    fn bytes(self, count: usize) -> usize {
        (count * self.step()).div_ceil(8)
    }
}

/// A tensor of the program's own memory.
struct Producer {
    tensor: ManagedTensor,
    shape: [i64; 1],
    /// The tensor's bytes, with others before and after them.
    memory: Vec<u8>,
}

impl Producer {
    const AROUND: usize = 64;

    /// `count` elements, painted.
    fn make(elements: Elements, count: usize, byte: u8) -> NonNull<ManagedTensor> {
        unsafe extern "C" fn delete(tensor: *mut ManagedTensor) {
            // SAFETY: the context is the box of `make`, and this is its only deletion.
            drop(unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Producer>()) });
        }
        let bytes = elements.bytes(count);
        let mut memory = vec![!byte; 2 * Self::AROUND + 8 * bytes];
        paint(&mut memory[Self::AROUND..][..bytes], byte);
        let tensor = Tensor {
            data: memory.as_mut_ptr().cast(),
            device: Place { device_type: Place::CPU, device_id: 0 },
            ndim: 1,
            dtype: elements.dtype(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: Self::AROUND as u64,
        };
        let made = Box::into_raw(Box::new(Producer {
            tensor: ManagedTensor {
                version: dlpack::VERSION,
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(delete),
                flags: if elements.padded { ManagedTensor::PADDED } else { 0 },
                tensor,
            },
            shape: [count as i64],
            memory,
        }));
        // SAFETY: just allocated.
        let this = unsafe { &mut *made };
        this.tensor.manager_ctx = made.cast();
        this.tensor.tensor.shape = this.shape.as_mut_ptr();
        this.tensor.tensor.data = this.memory.as_mut_ptr().cast();
        NonNull::from(&mut this.tensor)
    }
}

impl Machine {
    /// Makes a buffer of a tensor of the program.
    pub(super) fn import_tensor(&mut self, device: usize, of: Elements, len: usize, byte: u8) {
        let count = of.count_in(len);
        // SAFETY: live, without another owner; its memory is initialised, and nothing else uses it.
        let imported = unsafe { Imported::new(Producer::make(of, count, byte)) };
        let imported = imported.expect("writable, without gaps");
        self.register_tensor(device, imported, painted(of.bytes(count), byte));
    }

    /// Makes a tensor of a buffer, and then a buffer of that tensor.
    pub(super) fn export_tensor(&mut self, host: usize, device: usize, of: Elements) {
        let of = Elements { padded: false, ..of };
        let Some(index) = pick(host, &self.hosts) else { return };
        if !matches!(self.hosts[index].buffer, Memory::Pool(_)) {
            return;
        }
        let behind = self.hosts[index].uses.for_writing();
        self.may_wait_for(behind);
        let Host { buffer: Memory::Pool(buffer), mut model, uses } = self.hosts.swap_remove(index)
        else {
            unreachable!("as just seen")
        };
        let count = of.count_in(buffer.len());
        let shape = |count: usize| [count as i64];
        let layout = Layout { page_locked: true, ..Layout::new(of.dtype()) };
        let longer = buffer.into_dlpack(&Layout { shape: &shape(count + 1), ..layout }, None);
        let refused = longer.expect_err("one element more than fits");
        assert_eq!(refused.error.kind(), ErrorKind::OutOfRange, "{}", refused.error);
        match refused.value.into_dlpack(&Layout { shape: &shape(count), ..layout }, None) {
            Err(refused) => {
                assert_ne!(refused.error.kind(), ErrorKind::OutOfRange, "{}", refused.error);
                self.accept::<()>(Err(refused.error), behind);
                self.hosts.push(Host { buffer: Memory::Pool(refused.value), model, uses });
            }
            Ok(tensor) => {
                // SAFETY: live, without another owner; the pool's memory is initialised and
                // page-locked for all devices, and nothing else uses it.
                let imported = unsafe { Imported::new(tensor) }.expect("writable, without gaps");
                model.truncate(of.bytes(count));
                self.register_tensor(device, imported, model);
            }
        }
    }

    fn register_tensor(&mut self, device: usize, imported: Imported, model: super::model::Model) {
        let device = device % self.devices.len();
        let registered = self.devices[device].register(imported).map_err(|refused| refused.error);
        let Some(buffer) = self.accept(registered, self.behind.own(device)) else { return };
        assert_eq!(buffer.len(), model.len(), "a tensor has other bytes than its elements");
        self.hosts.push(Host { buffer: Memory::Tensor(buffer), model, uses: Uses::default() });
    }
}
