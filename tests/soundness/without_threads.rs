//! Rule 19: calls on a thread that cannot start another. They return an error, or do the work
//! themselves. Nothing is lost, and the next call works on a thread that can start others.
//!
//! `tests/build/threads.rs` lists the case of each thread.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use pinlane::emulated::{Emulator, Execution};
use pinlane::prefetch::Prefetch;
use pinlane::staging::CopyTeam;
use pinlane::{CudaCode, Device, Error, ErrorKind, PinnedPool, Stream};

use crate::common::pool;
use crate::common::process::is_alone;
use crate::common::refused::{refuse_stacks, refuse_threads};
use crate::support::{assert_nothing_is_left, eventually, raw};

/// A thread that can start others, and runs the functions that it gets.
struct Ordinary(Sender<Box<dyn FnOnce() + Send>>);

impl Ordinary {
    fn new() -> Self {
        let (sender, receiver) = channel::<Box<dyn FnOnce() + Send>>();
        thread::spawn(move || receiver.into_iter().for_each(|work| work()));
        Ordinary(sender)
    }

    fn does<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let (sender, receiver) = channel();
        self.0.send(Box::new(move || sender.send(work()).unwrap())).unwrap();
        receiver.recv().unwrap()
    }
}

struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Rig {
    emulator: Emulator,
    device: Device,
    pool: PinnedPool,
    stream: Stream,
    ordinary: Ordinary,
    woken: Arc<Woken>,
}

const COPY_THREADS: usize = 3;

/// The number of threads of this process whose names begin with `start`.
fn threads_named(start: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process");
    let names = tasks.flatten().flat_map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.filter(|name| name.starts_with(start)).count()
}

fn is_refused(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported && error.to_string().contains("limit on threads")
}

impl Rig {
    fn keeper(&self) {
        let error = self.pool.alloc::<u32>(10).unwrap_err();
        assert!(is_refused(&error), "{error}");
        assert_eq!((self.pool.stats().waiting, self.emulator.usage().host_bytes), (0, 0));
        let pool = self.pool.clone();
        self.ordinary.does(move || pool.alloc::<u32>(10).map(drop)).expect("the keeper starts");
        self.pool.alloc::<u32>(10).expect("it runs");
    }

    fn host_function(&self) {
        let (called, owned) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let function = || {
            let (called, owned) = (called.clone(), owned.clone());
            move || drop((called.fetch_add(1, Ordering::Relaxed), owned))
        };
        let error = self.stream.launch_host(function()).unwrap_err();
        assert_eq!(error.cuda_code(), Some(CudaCode(304)), "{error}");
        assert_eq!(Arc::strong_count(&owned), 1, "what was not launched is dropped");
        let (stream, works) = (self.stream.clone(), function());
        self.ordinary.does(move || stream.launch_host(works).unwrap().wait()).unwrap();
        self.stream.launch_host(function()).unwrap().wait().expect("the thread runs");
        assert_eq!(called.load(Ordering::Relaxed), 2);
    }

    fn watcher(&self) {
        self.emulator.stall(raw(&self.stream)).unwrap();
        let mut gpu = self.device.alloc::<u32>(10).unwrap();
        let mut ticket = self.stream.fill(&mut gpu, 7).unwrap();
        let waker = Waker::from(self.woken.clone());
        let poll = Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
        let Poll::Ready(Err(error)) = poll else { panic!("{poll:?}") };
        assert!(is_refused(&error), "{error}");
        self.emulator.release(raw(&self.stream)).unwrap();
        ticket.wait().expect("the operation continues");
    }

    /// A request of a task gets its memory on this thread, which then calls the waker itself.
    fn wakers(&self) {
        let small = pool(&self.device).max_bytes(4096).build().unwrap();
        let own = small.clone();
        let taken = self.ordinary.does(move || own.alloc::<u8>(4096)).unwrap();
        let waker = Waker::from(self.woken.clone());
        let mut request = Box::pin(small.alloc_async::<u8>(4096));
        let mut task = Context::from_waker(&waker);
        assert!(request.as_mut().poll(&mut task).is_pending());
        drop(taken);
        eventually("the task is woken", || self.woken.0.load(Ordering::Relaxed) > 0);
        let Poll::Ready(Ok(_)) = request.as_mut().poll(&mut task) else { panic!("no memory") };
    }

    fn copy_team(&self) {
        let values: Vec<u32> = (0..4 << 20).collect();
        let (mut gpu, mut back) = (self.device.alloc(values.len()).unwrap(), vec![0; values.len()]);
        // The ring of such copies has a pool, which has a keeper thread.
        let error = self.stream.upload_slice(&values, &mut gpu).unwrap_err();
        assert!(is_refused(&error), "{error}");
        assert_eq!(threads_named("pinlane-copy-"), 0);
        let device = self.device.clone();
        self.ordinary.does(move || device.warm_up());
        eventually("copy threads start", || threads_named("pinlane-copy-") == COPY_THREADS);
        let destination = RefCell::new(&mut gpu);
        let uploads = || self.stream.upload_slice(&values, &mut **destination.borrow_mut()).is_ok();
        eventually("the ring is there, and the caller copies", uploads);
        self.stream.download_slice(&gpu, &mut back).expect("the caller copies");
        assert_eq!(back, values);
    }

    fn prefetch(&self) {
        let owned = Arc::new(());
        let batches = std::iter::repeat_with({
            let owned = owned.clone();
            move || vec![Arc::strong_count(&owned) as u32; 10]
        });
        let Err(error) = Prefetch::new(batches, &self.pool, &self.stream).start() else {
            panic!("a worker has started")
        };
        assert!(is_refused(&error), "{error}");
        assert_eq!(Arc::strong_count(&owned), 1, "the iterator is dropped");
    }
}

#[test]
fn rule_19_a_call_that_can_start_no_thread_says_so_or_does_without() {
    if !is_alone(module_path!(), "rule_19_a_call_that_can_start_no_thread_says_so_or_does_without")
    {
        return;
    }
    let emulator = crate::common::emulator(Execution::Eager, 1);
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let rig = Rig {
        pool: pool(&device).build().unwrap(),
        stream: device.stream().unwrap(),
        ordinary: Ordinary::new(),
        woken: Arc::new(Woken(AtomicUsize::new(0))),
        emulator,
        device,
    };
    CopyTeam::new().threads(COPY_THREADS).install().unwrap();
    refuse_threads();
    rig.device.warm_up(); // does nothing
    rig.keeper();
    rig.host_function();
    rig.watcher();
    rig.wakers();
    rig.copy_team();
    rig.prefetch();
    let Rig { emulator, device, pool, stream, .. } = rig;
    drop((pool, stream, device));
    assert_eq!(emulator.findings(), []);
    assert_nothing_is_left(&emulator);
}

#[test]
fn rule_19_a_pipeline_has_as_many_workers_as_can_be_started() {
    if !is_alone(module_path!(), "rule_19_a_pipeline_has_as_many_workers_as_can_be_started") {
        return;
    }
    const WORKERS: usize = 64;
    let emulator = crate::common::emulator(Execution::Eager, 1);
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let (pool, stream) = (pool(&device).build().unwrap(), device.stream().unwrap());
    drop(pool.alloc::<u32>(10).expect("its keeper starts"));
    let batches = (0..200u32).map(|number| vec![number; 10]);
    let start = {
        let (pool, stream) = (pool.clone(), stream.clone());
        move || {
            // This leaves a stack for one thread. The C library keeps no more than 20.
            thread::spawn(|| ()).join().unwrap();
            refuse_stacks();
            Prefetch::new(batches, &pool, &stream).workers(WORKERS).start()
        }
    };
    let streams = device.live_streams();
    let batches = thread::scope(|scope| scope.spawn(start).join().unwrap()).expect("one starts");
    // Each worker has one.
    let workers = device.live_streams() - streams;
    assert!((1..WORKERS).contains(&workers), "{workers}");
    let mut seen = 0;
    for batch in batches {
        let batch = batch.expect("no faults");
        assert_eq!(batch.index(), seen);
        seen += 1;
    }
    assert_eq!(seen, 200);
    drop((pool, stream, device));
    assert_nothing_is_left(&emulator);
}
