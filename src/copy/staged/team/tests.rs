//! Jobs from many threads, while the team is replaced under them.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::error::ErrorKind;

fn of(device: Ordinal, count: usize) -> Helpers {
    Helpers { device, count }
}

/// Sums up numbers in units; every unit is taken exactly once.
fn sum(helpers: usize, count: u64) -> u64 {
    let (next, sum) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        loop {
            let unit = next.fetch_add(1, Ordering::Relaxed);
            if unit >= count {
                return;
            }
            sum.fetch_add(unit, Ordering::Relaxed);
        }
    };
    run(of(0, helpers), &work, &mut || work());
    sum.load(Ordering::Relaxed)
}

fn install(threads: usize, copying: usize) {
    let team = CopyTeam::new().threads(threads).copying(copying).spin(Duration::from_micros(10));
    team.install().expect("a small team");
}

#[test]
fn jobs_are_done_whatever_team_there_is() {
    thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                scope.spawn(move || {
                    for round in 0..300 {
                        let count = 1 + (round * 37 + caller) % 200;
                        assert_eq!(sum(round as usize % 9, count), count * (count - 1) / 2);
                    }
                })
            })
            .collect();
        while !callers.iter().all(thread::ScopedJoinHandle::is_finished) {
            for (threads, copying) in [(0, 0), (1, 1), (7, 3), (2, 0)] {
                install(threads, copying);
                thread::yield_now();
            }
        }
    });
}

/// The threads of a replaced team stop at once, instead of spinning on.
#[test]
fn a_dismissed_team_stops_spinning() {
    let patient = CopyTeam { spin: Duration::from_secs(3600), ..CopyTeam::new().threads(3) };
    let team: &'static Team = Box::leak(Box::new(Team::new(patient)));
    thread::scope(|scope| {
        let group = &team.groups[0];
        let helpers: Vec<_> = (0..3).map(|_| scope.spawn(move || team.help(group))).collect();
        thread::sleep(Duration::from_millis(20));
        assert!(!helpers.iter().any(thread::ScopedJoinHandle::is_finished), "they wait for work");
        team.dismiss();
        let until = Instant::now() + Duration::from_secs(60);
        while !helpers.iter().all(thread::ScopedJoinHandle::is_finished) {
            // Threads that spin cannot be ended.
            if Instant::now() > until {
                eprintln!("a dismissed helper continues to spin");
                std::process::abort();
            }
            thread::yield_now();
        }
    });
}

#[test]
fn a_team_that_would_spin_for_long_is_refused() {
    for spin in [Duration::from_millis(1001), Duration::MAX] {
        let error = CopyTeam::new().spin(spin).install().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        assert!(error.to_string().contains("at most a second"), "{error}");
    }
}

/// When `run` returns, no thread is inside, and what `work` borrows may be freed.
#[test]
fn nobody_is_inside_afterwards() {
    install(3, 3);
    for _ in 0..2000 {
        let inside = AtomicUsize::new(0);
        let work = || {
            inside.fetch_add(1, Ordering::Relaxed);
            std::hint::spin_loop();
            inside.fetch_sub(1, Ordering::Relaxed);
        };
        run(of(0, 3), &work, &mut || work());
        assert_eq!(inside.into_inner(), 0);
    }
}

#[test]
fn a_panic_goes_on_when_all_have_left() {
    install(3, 3);
    for _ in 0..200 {
        let inside = AtomicUsize::new(0);
        let work = || {
            inside.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
            inside.fetch_sub(1, Ordering::Relaxed);
        };
        let ours = || run(of(0, 3), &work, &mut || panic!("expected"));
        let panic = catch_unwind(AssertUnwindSafe(ours)).expect_err("it continues");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"expected"));
        assert_eq!(inside.into_inner(), 0);
    }
    // A helper's panic comes out too, if a helper comes: another test may have dismissed the team.
    let ours = thread::current().id();
    let came = AtomicBool::new(false);
    let work = || {
        came.store(true, Ordering::Relaxed);
        assert_eq!(thread::current().id(), ours, "expected");
    };
    let until = Instant::now() + Duration::from_millis(300);
    let mut wait = || {
        while !came.load(Ordering::Relaxed) && Instant::now() < until {
            thread::yield_now();
        }
    };
    let ran = catch_unwind(AssertUnwindSafe(|| run(of(0, 1), &work, &mut wait)));
    assert_eq!(ran.is_err(), came.load(Ordering::Relaxed));
    assert_eq!(sum(3, 100), 4950);
}

/// A team whose threads never start, so that its seats stay as they are.
fn asleep(threads: usize, copying: usize) -> &'static Team {
    let team = Team::new(CopyTeam::new().threads(threads).copying(copying));
    team.groups.iter().for_each(|group| group.started.store(true, Ordering::Relaxed));
    Box::leak(Box::new(team))
}

fn sizes(team: &Team) -> Vec<usize> {
    team.groups.iter().map(|group| group.threads.len()).collect()
}

/// The seats of a job that nobody has taken, by group.
fn seats(team: &Team, job: &Job) -> Vec<usize> {
    let jobs = team.jobs.lock();
    let offered = |number: usize| match jobs.offered[number] {
        Some((offered, _)) if offered == JobPtr(job) => team.groups[number].offer.left(),
        _ => 0,
    };
    let seats = |number: usize| job.seats[number].load(Ordering::Relaxed) + offered(number);
    (0..team.groups.len()).map(seats).collect()
}

/// The seats that each of these jobs has while all are open.
fn seats_of(team: &'static Team, jobs: &[Helpers]) -> Vec<Vec<usize>> {
    let open: Vec<Job> = jobs.iter().map(|&helpers| team.job(helpers, &|| {})).collect();
    for (job, helpers) in open.iter().zip(jobs) {
        team.open(job, helpers.count);
    }
    let found = open.iter().map(|job| seats(team, job)).collect();
    open.iter().for_each(|job| team.close(job));
    assert!(team.groups.iter().all(|group| group.offer.left() == 0));
    assert!(team.jobs.lock().open.is_empty());
    found
}

#[test]
fn a_group_is_as_large_as_one_copy_needs() {
    let sizes = |threads, copying| sizes(asleep(threads, copying));
    assert_eq!(sizes(15, 7), [7, 8]);
    assert_eq!(sizes(31, 7), [7, 7, 7, 10]);
    assert_eq!(sizes(4, 7), [4]);
    assert_eq!(sizes(0, 7), [0]);
    assert_eq!(sizes(5, 0), [5]);
    assert_eq!(sizes(256, 1).len(), GROUPS);
    assert_eq!(sizes(256, 1).iter().sum::<usize>(), 256);
}

#[test]
fn devices_that_copy_at_the_same_time_have_threads_of_their_own() {
    let team = asleep(31, 7);
    assert_eq!(seats_of(team, &[of(0, 7)]), [[7, 0, 0, 0]]);
    assert_eq!(seats_of(team, &[of(1, 7), of(1, 7)]), [[0, 7, 0, 0], [0, 7, 0, 0]]);
    // The groups without a device help.
    assert_eq!(seats_of(team, &[of(0, 7), of(1, 7)]), [[7, 0, 7, 0], [0, 7, 0, 7]]);
    assert_eq!(seats_of(team, &[of(3, 2), of(1, 7)]), [[0, 0, 2, 2], [7, 7, 0, 0]]);
    // Four devices have a group each; a fifth shares one.
    let five = seats_of(team, &[of(0, 7), of(1, 7), of(2, 7), of(3, 7), of(4, 7)]);
    assert_eq!(five[3..], [[0, 0, 0, 7], [7, 0, 0, 0]]);
}

#[test]
fn a_file_is_read_by_the_threads_of_several_groups() {
    let team = asleep(31, 7);
    assert_eq!(seats_of(team, &[of(1, 15)]), [[0, 7, 7, 1]]);
    assert_eq!(seats_of(team, &[of(3, 15)]), [[5, 0, 0, 10]]);
    assert_eq!(seats_of(asleep(15, 7), &[of(0, 15)]), [[7, 8]]);
    assert_eq!(seats_of(asleep(2, 7), &[of(0, 15)]), [[2]]);
}
