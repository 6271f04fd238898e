//! The models: a few threads each.

use std::sync::Arc;

use loom::thread;

use crate::explore;
use crate::pool::rig::{Pool, end_of_thread};
use crate::timeline::Timeline;

fn spawn(pool: &Arc<Pool>, work: impl FnOnce(&Pool) + 'static) -> thread::JoinHandle<()> {
    let pool = pool.clone();
    thread::spawn(move || {
        work(&pool);
        end_of_thread();
        drop(pool);
    })
}

/// The gate: a thread uses its own cache while another collects from all caches.
#[test]
fn a_hit_and_a_collection_never_have_the_same_block() {
    explore(3, || {
        let pool = Pool::new(1, true);
        let owner = spawn(&pool, |pool| {
            drop(pool.try_alloc());
            drop(pool.try_alloc());
        });
        pool.collect();
        drop(pool.try_alloc());
        owner.join().unwrap();
        pool.assert_complete();
        end_of_thread();
        assert_eq!(pool.end(), 4096);
    });
}

/// Two threads take and give back; each finds what the other keeps.
#[test]
fn two_threads_share_one_block() {
    explore(3, || {
        let pool = Pool::new(1, true);
        let other = spawn(&pool, |pool| drop(pool.try_alloc()));
        drop(pool.try_alloc());
        other.join().unwrap();
        assert!(pool.try_alloc().is_some(), "it is free, on whatever thread it was kept");
        pool.assert_complete();
        end_of_thread();
        pool.end();
    });
}

/// One thread frees a buffer that another allocated.
#[test]
fn a_block_freed_elsewhere_comes_back() {
    explore(3, || {
        let pool = Pool::new(2, true);
        let buffer = pool.try_alloc().expect("two are free");
        let other = spawn(&pool, move |_| {
            buffer.touch();
            drop(buffer);
        });
        drop(pool.try_alloc());
        other.join().unwrap();
        pool.assert_complete();
        end_of_thread();
        pool.end();
    });
}

/// A block in flight is found only when the device is done with it, on any thread. It was dropped
/// by another thread, or by the one that has a cache for it.
#[test]
fn a_block_in_flight_is_not_reused_before_it_is_retired() {
    for (cached, moves) in [(false, true), (true, true), (true, false)] {
        explore(3, move || {
            let pool = Pool::new(1, cached);
            let stream = Arc::new(Timeline::new());
            let buffer = pool.try_alloc().expect("it is free");
            buffer.used_by(&stream, 0);
            let device = {
                let stream = stream.clone();
                thread::spawn(move || stream.finish(1))
            };
            let moved = Some(buffer).filter(|_| moves);
            let other = spawn(&pool, move |pool| {
                drop(moved);
                drop(pool.try_alloc());
            });
            // `Pool::buffer` asserts that its block is no longer in use.
            drop(pool.try_alloc());
            device.join().unwrap();
            other.join().unwrap();
            pool.assert_complete();
            end_of_thread();
            pool.end();
        });
    }
}

/// Two threads at once check the blocks parked for one stream.
#[test]
fn two_threads_retire_the_same_stream() {
    explore(2, || {
        let pool = Pool::new(2, false);
        let stream = Arc::new(Timeline::new());
        for position in 0..2 {
            let buffer = pool.try_alloc().expect("it is free");
            buffer.used_by(&stream, position);
            drop(buffer);
        }
        stream.finish(1);
        let other = spawn(&pool, |pool| drop(pool.try_alloc()));
        let first = pool.try_alloc();
        stream.finish(2);
        drop(first);
        other.join().unwrap();
        pool.assert_complete();
        end_of_thread();
        pool.end();
    });
}

/// A request is served by the first of two: the buffer's drop, or the keeper's search of the
/// caches.
#[test]
fn a_request_is_served() {
    explore(2, || {
        let pool = Pool::new(1, true);
        let buffer = pool.try_alloc().expect("it is free");
        let other = spawn(&pool, move |_| drop(buffer));
        let waiting = pool.request();
        let keeper = spawn(&pool, |pool| pool.keep());
        other.join().unwrap();
        keeper.join().unwrap();
        drop(pool.wait(&waiting));
        drop(waiting);
        pool.assert_complete();
        end_of_thread();
        pool.end();
    });
}

/// A request waits while a thread looks which of its blocks in flight are free.
#[test]
fn a_request_gets_a_block_that_another_thread_settles() {
    explore(3, || {
        let pool = Pool::new(1, true);
        let stream = Arc::new(Timeline::new());
        let buffer = pool.try_alloc().expect("it is free");
        buffer.used_by(&stream, 0);
        drop(buffer);
        stream.finish(1);
        let waiting = pool.request();
        let keeper = spawn(&pool, |pool| pool.keep());
        drop(pool.try_alloc());
        keeper.join().unwrap();
        drop(pool.wait(&waiting));
        drop(waiting);
        pool.assert_complete();
        end_of_thread();
        pool.end();
    });
}

/// A request is withdrawn while it is served: the block is not lost.
#[test]
fn a_withdrawn_request_loses_no_block() {
    explore(3, || {
        let pool = Pool::new(1, false);
        let buffer = pool.try_alloc().expect("it is free");
        let waiting = pool.request();
        let other = spawn(&pool, move |_| drop(buffer));
        drop(waiting);
        other.join().unwrap();
        pool.assert_complete();
        end_of_thread();
        pool.end();
    });
}

/// The last handle and the last buffer are dropped at the same time: everything is given back,
/// once.
#[test]
fn the_last_handle_and_the_last_buffer_go_at_once() {
    for cached in [false, true] {
        explore(3, move || {
            let pool = Pool::new(1, cached);
            let buffer = pool.try_alloc().expect("it is free");
            let other = thread::spawn(move || {
                drop(buffer);
                end_of_thread();
            });
            pool.close();
            other.join().unwrap();
            end_of_thread();
            assert_eq!(pool.end(), 4096);
        });
    }
}

/// A thread ends while another collects.
#[test]
fn a_thread_that_ends_gives_its_blocks_back() {
    explore(3, || {
        let pool = Pool::new(1, true);
        let other = spawn(&pool, |pool| drop(pool.try_alloc()));
        pool.collect();
        drop(pool.try_alloc());
        other.join().unwrap();
        end_of_thread();
        pool.assert_complete();
        pool.end();
    });
}
