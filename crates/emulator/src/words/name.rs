//! What streams are called in decisions: the same in every run of a program.
//!
//! A stream is named by the thread that made it and by how many that thread had made before. So its
//! name does not depend on what other threads do. Threads are numbered as they make their first
//! stream. In a program with one thread the names are those that reports of races use.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::words::thread::this_thread;
use pinlane_driver::Ordinal;

/// How many threads have numbers of their own. The others share one.
const MOST_THREADS: usize = 1 << 16;

/// `A`, `B` for the streams of the first thread, `1A` for those of the second; `@0` for the legacy
/// stream of device 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StreamName {
    Made { thread: u32, number: u32 },
    Legacy(Ordinal),
}

impl StreamName {
    /// As a part of a key.
    pub(crate) fn word(self) -> u64 {
        match self {
            StreamName::Legacy(device) => u64::MAX - device as u64,
            StreamName::Made { thread, number } => u64::from(thread) << 32 | u64::from(number),
        }
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            StreamName::Legacy(device) => write!(f, "@{device}"),
            StreamName::Made { thread: 0, number } => f.write_str(&letters(number)),
            StreamName::Made { thread, number } => write!(f, "{thread}{}", letters(number)),
        }
    }
}

impl FromStr for StreamName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(device) = text.strip_prefix('@') {
            let device: u8 = device.parse().map_err(drop)?;
            return Ok(StreamName::Legacy(device.into()));
        }
        let (thread, name) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or(())?);
        let thread = if thread.is_empty() { 0 } else { thread.parse().map_err(drop)? };
        Ok(StreamName::Made { thread, number: number_of(name).ok_or(())? })
    }
}

/// A to Z, then AA, AB and so on.
pub(crate) fn letters(number: u32) -> String {
    let last = char::from(b'A' + (number % 26) as u8);
    match number / 26 {
        0 => last.into(),
        rest => letters(rest - 1) + &String::from(last),
    }
}

fn number_of(letters: &str) -> Option<u32> {
    let digit = |c: char| c.is_ascii_uppercase().then(|| c as u32 - 'A' as u32 + 1);
    let add = |number: u32, c| number.checked_mul(26)?.checked_add(digit(c)?);
    letters.chars().try_fold(0, add)?.checked_sub(1)
}

/// How many each thread has made.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// By the number of the thread in the process: its number here, and how many it has made.
    threads: HashMap<u64, (u32, u32)>,
}

impl Names {
    /// The name of the next stream that the calling thread makes.
    pub(crate) fn next(&mut self) -> StreamName {
        let known = self.threads.len();
        let here = this_thread();
        let crowded = known >= MOST_THREADS && !self.threads.contains_key(&here);
        let here = if crowded { u64::MAX } else { here };
        let (thread, made) = self.threads.entry(here).or_insert((known as u32, 0));
        *made += 1;
        StreamName::Made { thread: *thread, number: *made - 1 }
    }
}

/// How often each thread could have taken a liberty (`liberties.rs`).
#[derive(Debug, Default)]
pub(crate) struct Liberties {
    /// By the number of the thread in the process: its number here, and how often.
    threads: HashMap<u64, (u32, u64)>,
}

impl Liberties {
    pub(crate) fn next(&mut self) -> (u32, u64) {
        let known = self.threads.len();
        let here = this_thread();
        let crowded = known >= MOST_THREADS && !self.threads.contains_key(&here);
        let here = if crowded { u64::MAX } else { here };
        let (thread, count) = self.threads.entry(here).or_insert((known as u32, 0));
        *count += 1;
        (*thread, *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_lettered_and_read_back() {
        let names = [0, 25, 26, 701, 702].map(letters);
        assert_eq!(names, ["A", "Z", "AA", "ZZ", "AAA"]);
        assert!((0..2000).all(|number| number_of(&letters(number)) == Some(number)));
        for text in ["A", "17ZZ", "@3"] {
            assert_eq!(text.parse::<StreamName>().unwrap().to_string(), text);
        }
        for text in ["", "3", "a", "@", "@300", "AAAAAAAAAAAA", "A1", "99999999999A"] {
            assert_eq!(text.parse::<StreamName>(), Err(()), "{text}");
        }
    }

    #[test]
    fn a_name_does_not_depend_on_other_threads() {
        let mut names = Names::default();
        let mine = names.next();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(names.next().to_string(), "1A")).join().unwrap();
        });
        assert_eq!((mine.to_string(), names.next().to_string()), ("A".into(), "B".into()));
    }
}
