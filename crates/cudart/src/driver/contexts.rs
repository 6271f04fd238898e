//! Contexts. Each thread has a stack of them. The top one is current, and so is its device.
//!
//! A device's primary context lives as long as it is retained. The runtime retains it from its
//! first call on, and makes it current on threads that have no other. A context that `cuCtxCreate`
//! makes is a name for its device: what is made in it belongs to the device.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, RawStream};
use pinlane_emulator::{Emulator, Target};

use crate::abi::{Handle, Out};
use crate::device;

const INVALID_CONTEXT: CudaCode = CudaCode(201);
const CONTEXT_IS_DESTROYED: CudaCode = CudaCode(709);

/// What a context's handle begins with. A number follows: of the device, for primary contexts.
const TAG: usize = 0xc0_0000_0000;
const FIRST_CREATED: usize = 1 << 16;

/// `CU_CTX_MAP_HOST`, as always under unified addressing.
const MAPS_HOST: c_uint = 8;
/// All flags.
const FLAGS: c_uint = 0xff;
/// The ways to wait, of which a context has one.
const SCHEDULES: c_uint = 7;

struct Context {
    device: c_int,
    flags: c_uint,
    /// Who retains a primary context; 1 for one that was created.
    holders: usize,
    is_primary: bool,
}

#[derive(Default)]
struct Contexts {
    all: BTreeMap<Handle, Context>,
    created: usize,
    /// The devices whose primary contexts the runtime retains.
    of_runtime: Vec<c_int>,
}

impl Contexts {
    fn primary(&mut self, device: c_int) -> &mut Context {
        let new = Context { device, flags: 0, holders: 0, is_primary: true };
        self.all.entry(primary(device)).or_insert(new)
    }

    /// The context of that handle, though it may be destroyed.
    fn find(&mut self, handle: Handle) -> DriverResult<&mut Context> {
        self.all.get_mut(&handle).ok_or(INVALID_CONTEXT)
    }

    fn is_alive(&self, handle: Handle) -> bool {
        self.all.get(&handle).is_some_and(|context| context.holders > 0)
    }
}

fn contexts() -> MutexGuard<'static, Contexts> {
    static CONTEXTS: LazyLock<Mutex<Contexts>> = LazyLock::new(Mutex::default);
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a primary context begins or ends. No other lock is held when it is taken.
fn lifetimes() -> MutexGuard<'static, ()> {
    static LIFETIMES: Mutex<()> = Mutex::new(());
    LIFETIMES.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static STACK: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// The primary context of a device, whether it lives or not.
pub fn primary(device: c_int) -> Handle {
    TAG | device as usize
}

/// The context that is current on the calling thread.
pub fn current() -> Option<Handle> {
    STACK.try_with(|stack| stack.borrow().last().copied()).ok().flatten()
}

/// Changes the calling thread's stack; the device of the context that is then on top is current.
fn change<R>(gpu: &Emulator, work: impl FnOnce(&mut Vec<Handle>) -> R) -> Option<R> {
    let done = STACK.try_with(|stack| work(&mut stack.borrow_mut())).ok();
    let device = current().and_then(|top| Some(contexts().all.get(&top)?.device));
    let _ = gpu.set_device(device.unwrap_or(0));
    done
}

fn put_on_top(gpu: &Emulator, handle: Handle) {
    change(gpu, |stack| match stack.last_mut() {
        Some(top) => *top = handle,
        None => stack.push(handle),
    });
}

/// The error of calls that need a context, if they may not be made now.
pub fn refusal() -> Option<CudaCode> {
    match current() {
        None => Some(INVALID_CONTEXT),
        Some(handle) if !contexts().is_alive(handle) => Some(CONTEXT_IS_DESTROYED),
        Some(_) => None,
    }
}

/// Whether `cuInit` or a call of the runtime has made the driver ready.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Makes the driver ready for calls.
pub fn initialize() {
    IS_READY.store(true, Ordering::Relaxed);
}

/// Whether calls of the driver may be made.
pub fn is_ready() -> bool {
    IS_READY.load(Ordering::Relaxed)
}

/// The runtime is about to be called: most calls give the thread a context, if it has none.
pub fn used_by_runtime(gpu: &Emulator, name: &str) {
    const WITHOUT: [&str; 4] =
        ["cudaGetDevice", "cudaDeviceGet", "cudaDeviceCanAccessPeer", "__cuda"];
    if current().is_some() {
        return;
    }
    initialize();
    if !WITHOUT.iter().any(|start| name.starts_with(start)) {
        chosen_by_runtime(gpu, gpu.current_device());
    }
}

/// The stream that a call names. A default stream is one of the current context.
pub fn target(handle: Handle, per_thread: bool) -> DriverResult<Target> {
    const DEFAULTS: RangeInclusive<Handle> = 0..=RawStream::PER_THREAD;
    let code = if DEFAULTS.contains(&handle) { refusal() } else { None };
    code.map_or(Ok(Target { handle, per_thread }), Err)
}

/// The same, with its device.
pub fn stream(gpu: &Emulator, handle: Handle, per_thread: bool) -> DriverResult<RawStream> {
    gpu.stream(target(handle, per_thread)?)
}

/// The runtime makes a device current.
fn chosen_by_runtime(gpu: &Emulator, device: c_int) {
    // Most calls do not wait until a context has ended: the end of a context may wait for a host
    // function that makes such a call by mistake.
    if !contexts().of_runtime.contains(&device) {
        let _lifetimes = lifetimes();
        let mut contexts = contexts();
        if !contexts.of_runtime.contains(&device) {
            contexts.of_runtime.push(device);
            contexts.primary(device).holders += 1;
        }
    }
    put_on_top(gpu, primary(device));
}

/// Creates a context, and pushes it.
fn create(gpu: &Emulator, out: Out<Handle>, flags: c_uint, device: c_int) -> DriverResult<()> {
    out.check()?;
    gpu.check_device(device)?;
    if flags & !FLAGS != 0 || (flags & SCHEDULES).count_ones() > 1 {
        return Err(CudaCode::INVALID_VALUE);
    }
    let handle = {
        let mut contexts = contexts();
        let handle = TAG | (FIRST_CREATED + contexts.created);
        contexts.created += 1;
        contexts.all.insert(handle, Context { device, flags, holders: 1, is_primary: false });
        handle
    };
    change(gpu, |stack| stack.push(handle));
    out.put(handle)
}

/// Ends what is in a device, unless another context of it lives.
fn end(gpu: &Emulator, device: c_int) -> DriverResult<()> {
    if contexts().all.values().any(|other| other.device == device && other.holders > 0) {
        return Ok(());
    }
    // SAFETY: the program gives up what the context has.
    unsafe { gpu.reset(device) }
}

/// A handle that is not NULL.
fn some(handle: Handle) -> DriverResult<Handle> {
    if handle == 0 { Err(CudaCode::INVALID_VALUE) } else { Ok(handle) }
}

/// The device of a context that lives.
pub fn device_of(handle: Handle) -> DriverResult<c_int> {
    let mut contexts = contexts();
    let context = contexts.find(handle)?;
    if context.holders > 0 { Ok(context.device) } else { Err(CONTEXT_IS_DESTROYED) }
}

/// The context that a call names; 0 is the current one.
fn named(handle: Handle) -> DriverResult<Handle> {
    let handle = Some(handle).filter(|&handle| handle != 0).or_else(current);
    let handle = handle.ok_or(INVALID_CONTEXT)?;
    device_of(handle).map(|_| handle)
}

cuda! {
    fn cudaSetDevice(device: c_int) |gpu| {
        gpu.set_device(device)?;
        chosen_by_runtime(gpu, device);
        Ok(())
    }

    fn cuDevicePrimaryCtxRetain(out: Out<Handle>, device: c_int) |gpu| {
        out.check()?;
        gpu.check_device(device)?;
        let _lifetimes = lifetimes();
        contexts().primary(device).holders += 1;
        out.put(primary(device))
    }

    fn [cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2](device: c_int) |gpu| {
        gpu.check_device(device)?;
        let _lifetimes = lifetimes();
        let left = {
            let mut contexts = contexts();
            let held_by_runtime = usize::from(contexts.of_runtime.contains(&device));
            let context = contexts.primary(device);
            if context.holders == held_by_runtime {
                return Err(INVALID_CONTEXT);
            }
            context.holders -= 1;
            context.holders
        };
        if left == 0 { end(gpu, device) } else { Ok(()) }
    }

    fn [cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2](device: c_int) |gpu| {
        gpu.check_device(device)?;
        let _lifetimes = lifetimes();
        // SAFETY: the program gives up what the context has.
        unsafe { gpu.reset(device) }
    }

    fn cuDevicePrimaryCtxGetState(
        device: c_int, flags: Out<c_uint>, active: Out<c_int>,
    ) |gpu| {
        gpu.check_device(device)?;
        let (set, is_active) = {
            let mut contexts = contexts();
            let context = contexts.primary(device);
            (context.flags, context.holders > 0)
        };
        flags.put(set)?;
        active.put(c_int::from(is_active))
    }

    fn [cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2](
        device: c_int, flags: c_uint,
    ) |gpu| {
        gpu.check_device(device)?;
        if flags & !FLAGS != 0 {
            return Err(CudaCode::INVALID_VALUE);
        }
        contexts().primary(device).flags = flags;
        Ok(())
    }

    fn cuCtxCreate_v2(out: Out<Handle>, flags: c_uint, device: c_int) |gpu| {
        create(gpu, out, flags, device)
    }

    fn cuCtxCreate_v3(
        out: Out<Handle>, _affinities: *mut c_void, _count: c_int, flags: c_uint, device: c_int,
    ) |gpu| {
        create(gpu, out, flags, device)
    }

    fn cuCtxCreate_v4(
        out: Out<Handle>, _params: *mut c_void, flags: c_uint, device: c_int,
    ) |gpu| {
        create(gpu, out, flags, device)
    }

    // Waits for the device first: its work may use what the program frees next.
    fn [cuCtxDestroy, cuCtxDestroy_v2](handle: Handle) |gpu| {
        let device = device_of(some(handle)?)?;
        gpu.device_synchronize(device)?;
        {
            let mut contexts = contexts();
            let context = contexts.find(handle)?;
            if context.is_primary {
                return Err(INVALID_CONTEXT);
            }
            context.holders = 0;
        }
        if current() == Some(handle) {
            change(gpu, Vec::pop);
        }
        Ok(())
    }

    fn cuCtxSetCurrent(handle: Handle) |gpu| {
        if handle == 0 {
            change(gpu, Vec::pop);
            return Ok(());
        }
        device_of(handle)?;
        put_on_top(gpu, handle);
        Ok(())
    }

    fn cuCtxGetCurrent(out: Out<Handle>) |_face| {
        out.put(current().unwrap_or(0))
    }

    fn [cuCtxPushCurrent, cuCtxPushCurrent_v2](handle: Handle) |gpu| {
        device_of(some(handle)?)?;
        change(gpu, |stack| stack.push(handle));
        Ok(())
    }

    fn [cuCtxPopCurrent, cuCtxPopCurrent_v2](out: Out<Handle>) |gpu| {
        let popped = change(gpu, Vec::pop).flatten().ok_or(INVALID_CONTEXT)?;
        out.put_if_any(popped);
        Ok(())
    }

    fn cuCtxGetFlags(out: Out<c_uint>) |_face| {
        let handle = named(0)?;
        out.put(contexts().find(handle)?.flags | MAPS_HOST)
    }

    fn cuCtxSetFlags(flags: c_uint) |_face| {
        if flags & !FLAGS != 0 {
            return Err(CudaCode::INVALID_VALUE);
        }
        let handle = named(0)?;
        contexts().find(handle)?.flags = flags;
        Ok(())
    }

    fn cuCtxGetId(handle: Handle, out: Out<c_ulonglong>) |_face| {
        out.put((named(handle)? & !TAG) as c_ulonglong + 1)
    }

    fn cuCtxGetApiVersion(handle: Handle, out: Out<c_uint>) |_face| {
        named(handle)?;
        out.put(3020)
    }

    fn cuCtxGetDevice_v2(out: Out<c_int>, handle: Handle) |_face| {
        out.put(device_of(named(handle)?)?)
    }

    fn cuCtxSynchronize_v2(handle: Handle) |gpu| {
        gpu.device_synchronize(device_of(named(handle)?)?)
    }

    fn cuCtxEnablePeerAccess(peer: Handle, flags: c_uint) |gpu| {
        device::enable_peer(gpu, device_of(peer)?, flags)
    }

    fn cuCtxDisablePeerAccess(peer: Handle) |gpu| {
        device::disable_peer(gpu, device_of(peer)?)
    }

    fn cuStreamGetCtx / cuStreamGetCtx_ptsz(handle: Handle, out: Out<Handle>) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        out.put(primary(stream.device))
    }
}
