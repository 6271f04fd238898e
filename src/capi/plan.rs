//! Plans of batches: which way they would take, and how long that should be.

use std::ffi::c_char;

use super::batch::{downloads, pinlane_copy, uploads};
use super::device::sized_input;
use super::handle;
use super::pointer::{self, Out};
use super::status::{boundary, pinlane_status};
use super::stream::pinlane_stream;
use crate::error::{Error, ErrorKind, Result};
use crate::transfer::{Choice, Path, Plan};

/// No path: none is forced, or there is nothing to copy.
pub const PINLANE_PATH_NONE: i32 = 0;
/// One `cudaMemcpyAsync` for each run of copies that follow each other. Best for long ones.
pub const PINLANE_PATH_COPIES: i32 = 1;
/// One `cudaMemcpyBatchAsync` for many, where the driver has it (CUDA 12.8). Not on the legacy
/// default stream.
pub const PINLANE_PATH_BATCH: i32 = 2;
/// Packed together, they cross in one copy; a kernel takes them apart, or packs them. For ordinary
/// memory.
pub const PINLANE_PATH_PACKED: i32 = 3;
/// A kernel fetches them out of page-locked memory over the bus. Not for downloads.
pub const PINLANE_PATH_PULL: i32 = 4;

/// The path that C names.
pub(super) fn forced_path(operation: &'static str, path: i32) -> Result<Option<Path>> {
    Ok(Some(match path {
        PINLANE_PATH_NONE => return Ok(None),
        PINLANE_PATH_COPIES => Path::Copies,
        PINLANE_PATH_BATCH => Path::Batch,
        PINLANE_PATH_PACKED => Path::Packed,
        PINLANE_PATH_PULL => Path::Pull,
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                operation,
                format!("{path} is no path"),
                "use PINLANE_PATH_NONE or another of PINLANE_PATH_*",
            ));
        }
    }))
}

fn number_of(path: Path) -> i32 {
    match path {
        Path::Copies => PINLANE_PATH_COPIES,
        Path::Batch => PINLANE_PATH_BATCH,
        Path::Packed => PINLANE_PATH_PACKED,
        Path::Pull => PINLANE_PATH_PULL,
    }
}

/// The way that some copies of a batch take.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct pinlane_choice {
    /// One of `PINLANE_PATH_*`; `PINLANE_PATH_NONE` if there are no such copies.
    pub path: i32,
    /// 0.
    pub reserved: u32,
    /// How long they should take, from the call until the data is there, in nanoseconds.
    pub predicted_ns: u64,
    /// How many copies there are that are not empty.
    pub copies: usize,
    /// How many they are when those that follow each other are merged.
    pub runs: usize,
    /// How many bytes they have.
    pub bytes: usize,
}

/// How a batch would be made. Initialise with `PINLANE_PLAN_INIT`. Copies of ordinary memory take
/// one way, those of page-locked memory another.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_plan {
    /// `sizeof(pinlane_plan)`.
    pub size: usize,
    /// For the copies of ordinary memory.
    pub ordinary: pinlane_choice,
    /// For those of page-locked memory.
    pub direct: pinlane_choice,
}

const _: () = {
    assert!(size_of::<pinlane_choice>() == 40);
    assert!(std::mem::offset_of!(pinlane_choice, predicted_ns) == 8);
    assert!(size_of::<pinlane_plan>() == 88);
    assert!(std::mem::offset_of!(pinlane_plan, ordinary) == 8);
    assert!(std::mem::offset_of!(pinlane_plan, direct) == 48);
};

impl From<&Choice> for pinlane_choice {
    fn from(choice: &Choice) -> Self {
        pinlane_choice {
            path: number_of(choice.path),
            reserved: 0,
            predicted_ns: u64::try_from(choice.predicted.as_nanos()).unwrap_or(u64::MAX),
            copies: choice.entries,
            runs: choice.runs,
            bytes: choice.bytes,
        }
    }
}

/// Where a plan is written.
struct PlanOut {
    plan: Out<pinlane_plan>,
    length: Option<Out<usize>>,
    text: *mut c_char,
    capacity: usize,
}

impl PlanOut {
    /// # Safety
    ///
    /// * `plan` is NULL, misaligned (errors), or points to a struct that is as large as its `size`
    ///   says.
    /// * `length` is NULL, misaligned (an error), or valid for writing until the call returns.
    /// * `text` is NULL, or valid for writing `capacity` bytes until the call returns.
    unsafe fn new(
        operation: &'static str,
        plan: *mut pinlane_plan,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
    ) -> Result<Self> {
        // SAFETY: the first precondition.
        let out = unsafe { Out::new(operation, "plan", plan) }?;
        // SAFETY: the first precondition; all members are plain numbers, and only `size` is looked
        // at.
        unsafe { sized_input(operation, plan.cast_const()) }?;
        // SAFETY: the second precondition.
        let length = unsafe { Out::optional(operation, "length", length) }?;
        if text.is_null() && capacity > 0 {
            return Err(pointer::null(operation, "text"));
        }
        Ok(PlanOut { plan: out, length, text, capacity })
    }

    fn set(self, plan: &Plan) {
        let choice = |choice: &Option<Choice>| choice.as_ref().map(Into::into).unwrap_or_default();
        self.plan.set(pinlane_plan {
            size: size_of::<pinlane_plan>(),
            ordinary: choice(&plan.ordinary),
            direct: choice(&plan.direct),
        });
        let text = plan.to_string();
        if let Some(length) = self.length {
            length.set(text.len());
        }
        if self.capacity > 0 {
            let bytes = text.len().min(self.capacity - 1);
            // SAFETY: `text` has `capacity` bytes by the precondition of `new`, of which at most
            // `capacity - 1` and a NUL are written; the plan's text is the library's own memory.
            unsafe {
                self.text.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), bytes);
                self.text.add(bytes).write(0);
            }
        }
    }
}

/// Writes what `pinlane_upload_batch` would do with these copies to `plan`, whose `size` member
/// must be set, and the same in words, with the cost of every other way, to `text`: at most
/// `capacity` bytes with the terminating NUL, cut off if it does not fit. `length` gets the length
/// of the whole text, without the NUL. `text` may be NULL if `capacity` is 0, and `length` may be
/// NULL. Enqueues nothing, and does not block.
///
/// Statuses: those of `pinlane_upload_batch` about its arguments; `INVALID_VALUE` if `plan` is NULL
/// or its size is unknown.
///
/// # Safety
///
/// - `copies` is NULL or points to an array of `count` elements, which name memory as in
///   `pinlane_upload_batch`.
/// - `plan` is NULL or points to a struct whose `size` member is set and right.
/// - `text` is NULL or points to `capacity` bytes.
/// - `length` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_plan_upload(
    stream: *const pinlane_stream,
    copies: *const pinlane_copy,
    count: usize,
    plan: *mut pinlane_plan,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_plan_upload";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's preconditions on `plan`, `text` and `length`.
        let out = unsafe { PlanOut::new(OPERATION, plan, text, capacity, length) }?;
        // SAFETY: the caller's precondition on `copies`.
        let copies = unsafe { pointer::inputs(OPERATION, "copies", copies, count) }?;
        // SAFETY: the caller's precondition on the memory that the copies name.
        let plan =
            unsafe { uploads(OPERATION, &stream, copies, |items| stream.plan_upload(items)) }?;
        out.set(&plan);
        Ok(())
    })
}

/// As `pinlane_plan_upload`, for `pinlane_download_batch`.
///
/// # Safety
///
/// - `copies` is NULL or points to an array of `count` elements, which name memory as in
///   `pinlane_download_batch`.
/// - `plan` is NULL or points to a struct whose `size` member is set and right.
/// - `text` is NULL or points to `capacity` bytes.
/// - `length` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_plan_download(
    stream: *const pinlane_stream,
    copies: *const pinlane_copy,
    count: usize,
    plan: *mut pinlane_plan,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_plan_download";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's preconditions on `plan`, `text` and `length`.
        let out = unsafe { PlanOut::new(OPERATION, plan, text, capacity, length) }?;
        // SAFETY: the caller's precondition on `copies`.
        let copies = unsafe { pointer::inputs(OPERATION, "copies", copies, count) }?;
        // SAFETY: the caller's precondition on the memory that the copies name.
        let plan =
            unsafe { downloads(OPERATION, &stream, copies, |items| stream.plan_download(items)) }?;
        out.set(&plan);
        Ok(())
    })
}
