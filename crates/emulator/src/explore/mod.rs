//! Runs a program under many schedules, and makes the first run that fails as small as it gets.
//!
//! ```text
//!   schedules   all modes, many seeds        run      one run, and how it ended
//!   orders      every order in turn          shrink   smaller runs that fail
//!   options     what is to be run            report   how runs are reported
//! ```

mod options;
mod orders;
mod report;
mod run;
mod schedules;
mod shrink;

pub use options::Exploration;
pub use options::asked_for;
pub use orders::explore_orders;
pub use report::{Explored, FailedRun};
pub use run::Outcome;
pub use schedules::{explore, explore_steps};
