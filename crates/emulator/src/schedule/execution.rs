//! When operations run, as a builder sets it.

use std::fmt;
use std::str::FromStr;

use crate::words::unreadable::Unreadable;

/// When operations run. As a text it is `eager`, `lazy`, `random`, `chunked` or `pct:3`.
///
/// All modes keep to what CUDA promises, and every wait comes to an end. Queries say no up to four
/// times before they make the progress that they need, except in eager mode.
///
/// Unless the mode is eager, the destination of a copy to the host holds poison until the copy
/// runs; if the source of a copy changes before it runs, that is a finding.
///
/// A host function is called when a thread waits or asks for something that is not complete, or
/// when the program makes no calls for a while. From then on it counts as a wait for the work ahead
/// of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Execution {
    /// As soon as they are ready, usually inside the call that enqueues them.
    #[default]
    Eager,
    /// Only when a call waits for them. A wait lets other streams get ahead or not, as the seed
    /// decides.
    Lazy,
    /// At any call or wait, as the seed decides: each operation that is ready runs at once, or lets
    /// some others go ahead, or is not run before it is waited for.
    Random,
    /// By priorities, as in "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs"
    /// (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010).
    ///
    /// Each stream, and the host, gets a random priority. Of those that can make a step, the one
    /// with the highest priority does. At `depth - 1` random points the one that has just made a
    /// step gets the lowest priority.
    ///
    /// `depth` is how many pairs of steps have to come in one certain order for a bug to show: 1
    /// for an operation that comes too late, 2 if it must come too late after something else, and
    /// so on. In a program of `n` streams and `k` steps (operations that are enqueued or run), a
    /// run finds such a bug with a probability of at least `1 / (n + 1)`, times `1 / k` for each
    /// point. [`Builder::operations`](crate::Builder::operations) says what `k` is; if it is not
    /// said, it is `1 / (16 * k)` for each point, and `k` below 65,536.
    ///
    /// 0 is taken as 1.
    Pct {
        /// How many orders have to come together.
        depth: u32,
    },
    /// As [`Random`](Execution::Random). Copies, fills and the copies of a batch also land in up to
    /// four pieces, in any order, and other streams may run in between. Checksums and moves run as
    /// a whole.
    Chunked,
}

impl fmt::Display for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Execution::Eager => f.write_str("eager"),
            Execution::Lazy => f.write_str("lazy"),
            Execution::Random => f.write_str("random"),
            Execution::Pct { depth } => write!(f, "pct:{depth}"),
            Execution::Chunked => f.write_str("chunked"),
        }
    }
}

impl FromStr for Execution {
    type Err = Unreadable;

    /// Reads what [`Display`](fmt::Display) writes; `pct` is `pct:3`.
    fn from_str(text: &str) -> Result<Self, Unreadable> {
        match text {
            "eager" => Some(Execution::Eager),
            "lazy" => Some(Execution::Lazy),
            "random" => Some(Execution::Random),
            "chunked" => Some(Execution::Chunked),
            "pct" => Some(Execution::Pct { depth: 3 }),
            _ => {
                let depth = text.strip_prefix("pct:").and_then(|depth| depth.parse().ok());
                depth.map(|depth| Execution::Pct { depth })
            }
        }
        .ok_or_else(|| Unreadable {
            of: "Execution",
            what: format!("{text:?} is no mode"),
            remedy: "use eager, lazy, random, chunked or pct:3",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_back() {
        let pct = [0, 1, 3, u32::MAX].map(|depth| Execution::Pct { depth });
        let others = [Execution::Eager, Execution::Lazy, Execution::Random, Execution::Chunked];
        for mode in pct.into_iter().chain(others) {
            assert_eq!(mode.to_string().parse::<Execution>().unwrap(), mode);
        }
        assert_eq!("pct".parse::<Execution>().unwrap(), Execution::Pct { depth: 3 });
        for text in ["", "Lazy", "pct:", "pct:-1", "pct:x", "random "] {
            assert!(text.parse::<Execution>().is_err(), "{text:?}");
        }
    }
}
