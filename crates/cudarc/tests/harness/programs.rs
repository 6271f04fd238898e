//! Random programs: how they are run, and compared with a model.

use std::collections::VecDeque;
use std::error::Error;

/// Any failure ends the program.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// A program that depends on its seed alone.
pub trait Program: Sized {
    fn new(seed: u64) -> Outcome<Self>;

    /// Runs it. What it still has is dropped then, perhaps in the middle of everything.
    fn run(&mut self) -> Outcome;

    /// The last steps that it has begun.
    fn steps(&mut self) -> &mut Steps;
}

/// The last steps of a program, in words.
#[derive(Default)]
pub struct Steps(VecDeque<String>);

impl Steps {
    pub fn push(&mut self, step: String) {
        if self.0.len() == 40 {
            self.0.pop_front();
        }
        self.0.push_back(step);
    }
}

pub fn check(what: &str, found: &[u32], model: &[u32]) -> Outcome {
    match found.iter().zip(model).position(|(found, model)| found != model) {
        None if found.len() == model.len() => Ok(()),
        at => Err(format!("{what}: wrong at element {at:?} of {}", model.len()).into()),
    }
}

/// What the drop-in has found so far.
fn findings() -> Outcome {
    let report = std::env::var_os("PINLANE_CUDART_REPORT");
    let lines = report.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    if lines.is_empty() { Ok(()) } else { Err("the drop-in has findings".into()) }
}

/// Runs programs with these seeds; all must agree with the model.
pub fn run<P: Program>(seed: u64, count: u64) -> bool {
    (seed..seed + count).all(|seed| {
        let mut program = match P::new(seed) {
            Ok(program) => program,
            Err(error) => {
                println!("program {seed} could not begin: {error}");
                return false;
            }
        };
        let outcome = program.run();
        let steps = std::mem::take(program.steps());
        drop(program);
        let outcome = outcome.and_then(|()| findings());
        if let Err(error) = &outcome {
            println!("program {seed}: {error}\n{}", Vec::from(steps.0).join("\n"));
        }
        outcome.is_ok()
    })
}
