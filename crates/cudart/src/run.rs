//! Which run of the program this is: the mode, the seed and the decisions, which one text can say.
//!
//! `12:lazy` is a mode and a seed; `12:B#3` a seed, and what is decided otherwise than in an eager
//! run.

use std::sync::OnceLock;
use std::{env, fmt};

use pinlane_emulator::{Builder, Execution, Replay};

use crate::environment;

#[derive(Debug, PartialEq)]
pub enum Run {
    Drawn { execution: Execution, seed: u64 },
    Replayed(Replay),
}

/// The run that the environment asks for.
pub fn this() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| {
        let execution: Option<Execution> = environment::value("PINLANE_CUDART_MODE");
        let seed: Option<u64> = environment::value("PINLANE_CUDART_SEED");
        let Some(run) = environment::value::<Run>("PINLANE_REPLAY") else {
            let (execution, seed) = (execution.unwrap_or_default(), seed.unwrap_or(0));
            return Run::Drawn { execution, seed };
        };
        let (other_seed, other_mode) = run.contradicts(execution, seed);
        for (name, differs) in
            [("PINLANE_CUDART_SEED", other_seed), ("PINLANE_CUDART_MODE", other_mode)]
        {
            if differs {
                environment::stop(&format!(
                    "{name}={:?} contradicts PINLANE_REPLAY={run}; unset it",
                    env::var_os(name).unwrap_or_default()
                ));
            }
        }
        run
    })
}

impl Run {
    pub fn build(&self, builder: Builder) -> Builder {
        match self {
            Run::Drawn { execution, seed } => builder.execution(*execution).seed(*seed),
            Run::Replayed(replay) => builder.replay(replay.clone()),
        }
    }

    pub fn seed(&self) -> u64 {
        match self {
            Run::Drawn { seed, .. } => *seed,
            Run::Replayed(replay) => replay.seed(),
        }
    }

    /// The mode, in a report. What is replayed counts as eager.
    pub fn mode(&self) -> Execution {
        match self {
            Run::Drawn { execution, .. } => *execution,
            Run::Replayed(_) => Execution::Eager,
        }
    }

    /// The command that repeats the run.
    pub fn command(&self) -> String {
        let mut command = format!("PINLANE_REPLAY={self}");
        for argument in env::args_os() {
            command.push(' ');
            command.push_str(&quoted(&argument.to_string_lossy()));
        }
        command
    }

    /// Whether the seed and the mode are others than those of the run.
    fn contradicts(&self, execution: Option<Execution>, seed: Option<u64>) -> (bool, bool) {
        let drawn =
            |other: Execution| matches!(self, Run::Drawn { execution, .. } if *execution == other);
        let other_mode = execution.is_some_and(|execution| !drawn(execution));
        (seed.is_some_and(|seed| seed != self.seed()), other_mode)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Run::Drawn { execution, seed } => write!(f, "{seed}:{execution}"),
            Run::Replayed(replay) => replay.fmt(f),
        }
    }
}

impl std::str::FromStr for Run {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (seed, rest) = text.trim().split_once(':').ok_or(())?;
        if let Ok(execution) = rest.parse() {
            return Ok(Run::Drawn { execution, seed: seed.parse().map_err(drop)? });
        }
        text.parse().map(Run::Replayed).map_err(drop)
    }
}

/// As a shell reads it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_back() {
        for text in ["0:eager", "12:lazy", "3:pct:2", "12:B#3", "7:", "1:A#1/4,A#1+2"] {
            assert_eq!(text.parse::<Run>().unwrap().to_string(), text);
        }
        assert_eq!(
            "12:chunked".parse::<Run>(),
            Ok(Run::Drawn { execution: Execution::Chunked, seed: 12 })
        );
        for text in ["", "12", "lazy", ":lazy", "x:lazy", "12:sideways", "12:B#"] {
            assert!(text.parse::<Run>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn other_seeds_and_modes_contradict() {
        let run = |text: &str| text.parse::<Run>().unwrap();
        let lazy = Some(Execution::Lazy);
        assert_eq!(run("12:lazy").contradicts(None, None), (false, false));
        assert_eq!(run("12:lazy").contradicts(lazy, Some(12)), (false, false));
        assert_eq!(run("12:random").contradicts(lazy, Some(11)), (true, true));
        assert_eq!(run("12:B#3").contradicts(None, Some(12)), (false, false));
        assert_eq!(run("12:B#3").contradicts(lazy, None), (false, true));
    }

    #[test]
    fn arguments_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("./app"), "./app");
        assert_eq!(quoted("--filter=A*"), "'--filter=A*'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
