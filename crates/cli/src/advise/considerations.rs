//! What people ask about page-locked memory and non-blocking copies, answered for a workload.

use pinlane::driver::{Attribute, cuda};
use pinlane::{Device, PinnedPool, Result};

use super::rates::Rates;
use super::ways::{Measured, WORTH, Way, is_worth_it};
use super::workload::{Direction, Memory, Workload};
use crate::figures::{number, time};
use crate::machine::COPY_THREADS;
use crate::output::in_units;

pub struct Answer {
    pub question: &'static str,
    pub text: String,
}

pub fn answers(
    device: &Device,
    workload: &Workload,
    rates: &Rates,
    ways: &[Measured],
) -> Result<Vec<Answer>> {
    let seconds =
        |way| ways.iter().find(|measured| measured.way == way).map(|measured| measured.seconds);
    let batch = seconds(Way::Batch).expect("always measured");
    let mut answers = Vec::new();
    let mut add = |question, text| answers.push(Answer { question, text });

    add("Should the data be page-locked?", page_locked(seconds(Way::KeepLocked), batch));
    if let Some(by_hand) = seconds(Way::ByHand) {
        add(
            "Is it worth copying it to page-locked memory first (pin_memory)?",
            format!(
                "{}: by hand {}, one batch {}. The batch does the same in portions: several \
                 threads fill slots of a ring while the device copies those before.",
                if is_worth_it(by_hand, batch) { "Here, yes" } else { "No" },
                time(by_hand),
                time(batch)
            ),
        );
    }
    if let Some(in_place) = seconds(Way::InPlace) {
        add(
            "Is it worth page-locking it in place?",
            format!(
                "{}: {} with page-locking each time. Page-lock what is copied many times, once \
                 (Device::register); locking runs at {} GB/s here, and a call costs {}.",
                if is_worth_it(in_place, batch) { "Here, yes" } else { "Not for one copy" },
                time(in_place),
                number(rates.locking / 1e9),
                time(rates.lock_call)
            ),
        );
    }
    add("One call or many?", {
        let each = seconds(Way::Each).expect("always measured");
        match workload.count {
            1 => "There is one piece.".into(),
            _ => format!(
                "One batch takes {}, a call for each piece {} ({}).",
                time(batch),
                time(each),
                times(each, batch)
            ),
        }
    });
    add("Does a non-blocking copy help?", non_blocking(workload, rates));
    add(
        "When is it safe to touch the host's memory again?",
        match workload.direction {
            Direction::Up => {
                "Slices: when the call returns. Buffers of a pool: `write` waits for the \
                          copy, and for nothing else; you cannot overwrite what is under way."
            }
            Direction::Down => {
                "Slices: when the call returns, the data is there. Buffers of a pool: \
                            `read` waits for the copy; without a wait you cannot see old bytes, \
                            which is the trap of a non-blocking copy to the host elsewhere."
            }
        }
        .into(),
    );
    add("How many streams?", streams(device));
    add(
        "How many cores?",
        match workload.memory {
            Memory::PageLocked => "None: the device copies by itself.".into(),
            Memory::Pageable => format!(
                "{} may copy here, and up to {COPY_THREADS} copy one slice. Together they reach {} \
                 GB/s, one alone {}, and the link carries {}.{}",
                workload.cores,
                number(rates.staged / 1e9),
                number(rates.host_copy / 1e9),
                number(rates.link / 1e9),
                if rates.staged < 0.8 * rates.link { " The cores are the bottleneck." } else { "" }
            ),
        },
    );
    add("Does it fit?", fit(device, workload)?);
    add(
        "What comes around it?",
        "Batches of a loop: Prefetch copies them ahead of their use. \
        Kernels beside copies: put them on a stream of their own; buffers order the streams. \
        Files: Stream::upload_file, without a Vec in between; those that are uploaded again and \
        again while the cores are busy: FileReader::open_mapped (see `pinlane load --mapped`)."
            .into(),
    );
    Ok(answers)
}

/// `locked` and `batch` are the seconds from memory of a pool, and from where the data is; `None`
/// if it is page-locked.
fn page_locked(locked: Option<f64>, batch: f64) -> String {
    match locked {
        Some(locked) if is_worth_it(locked, batch) => format!(
            "If you can write it to, or read it from, buffers of a pool in the first place: the \
             device then copies it as it is, in {} in place of {} ({}). Otherwise leave it where \
             it is.",
            time(locked),
            time(batch),
            times(batch, locked)
        ),
        Some(locked) => format!(
            "Not to be faster: from buffers of a pool it takes {}, from where it is {}, and less \
             than {} times counts as the same. But with page-locked memory no core is busy with \
             the copy, and the call returns at once.",
            time(locked),
            time(batch),
            number(WORTH)
        ),
        None => "It is: the device copies it as it is, and no core is busy with it.".into(),
    }
}

fn non_blocking(workload: &Workload, rates: &Rates) -> String {
    match workload.memory {
        Memory::PageLocked => {
            let copies = workload.total().expect("checked") as f64 / rates.link;
            format!(
                "Yes: a call returns after about {}, and the device copies for {}. Compute \
                 meanwhile, and wait by `read`, `write` or the ticket.",
                time(rates.submit),
                time(copies)
            )
        }
        Memory::Pageable => "Not by itself: pageable memory is copied by the host's threads, and \
                             the call keeps its thread until the slice is free again. Keep the \
                             data in page-locked memory, or let Prefetch call on threads of its \
                             own."
            .into(),
    }
}

fn streams(device: &Device) -> String {
    let driver = match device.emulator() {
        Some(machine) => Some(machine.driver()),
        None => cuda(),
    };
    let engines = driver
        .and_then(|driver| driver.attribute(device.ordinal(), Attribute::AsyncEngineCount).ok());
    let both = match engines {
        Some(0 | 1) => "This device has one copy engine, so the two directions take turns.",
        _ => "Another for the other direction, and one for kernels: all three run at once.",
    };
    format!("One for this direction: two streams share one link, and are no faster. {both}")
}

fn fit(device: &Device, workload: &Workload) -> Result<String> {
    let total = workload.total().expect("checked") as u64;
    let budget = PinnedPool::builder(device).build()?.stats().max_bytes as u64;
    let free = device.memory_info()?.free as u64;
    let locked = if total <= budget {
        format!("all of it could be page-locked (a pool's budget is {} here)", in_units(budget))
    } else {
        format!(
            "not all of it can be page-locked at a time: a pool's budget is {} here, so work in \
             parts",
            in_units(budget)
        )
    };
    let device = if total <= free {
        format!("the device has {} free", in_units(free))
    } else {
        format!("the device has only {} free: work in parts", in_units(free))
    };
    Ok(format!("{} in all; {locked}; {device}.", in_units(total)))
}

/// The ratio of two times.
fn times(long: f64, short: f64) -> String {
    format!("{} times", number(long / short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_locked_memory_is_advised_for_a_gain_of_five_percent() {
        assert!(page_locked(Some(1.0), 2.0).starts_with("If you can"));
        assert!(page_locked(Some(1.0), 1.06).starts_with("If you can"));
        let same = page_locked(Some(1.0), 1.01);
        assert!(same.starts_with("Not to be faster") && same.contains("1.05 times"), "{same}");
        assert!(page_locked(None, 1.0).starts_with("It is"));
    }
}
