//! What the doctor found, and what to do about it.

use serde_json::{Value, json};

use crate::output::{Colour, coloured, wrapped};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Good,
    /// It works, but not as well as it could.
    Notice,
    /// Something does not work.
    Wrong,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Good => "ok",
            State::Notice => "note",
            State::Wrong => "wrong",
        }
    }

    fn colour(self) -> Colour {
        match self {
            State::Good => Colour::Green,
            State::Notice => Colour::Yellow,
            State::Wrong => Colour::Red,
        }
    }
}

/// One line of the doctor's report.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub name: String,
    pub state: State,
    pub found: String,
    /// What to do; every finding that is not good has it.
    pub remedy: Option<String>,
    /// The figures in `found`, for programs.
    pub figures: Option<Value>,
}

impl Finding {
    pub fn good(name: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding {
            name: name.into(),
            state: State::Good,
            found: found.into(),
            remedy: None,
            figures: None,
        }
    }

    pub fn notice(
        name: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        let remedy = Some(remedy.into());
        Finding {
            name: name.into(),
            state: State::Notice,
            found: found.into(),
            remedy,
            figures: None,
        }
    }

    pub fn wrong(
        name: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { state: State::Wrong, ..Finding::notice(name, found, remedy) }
    }

    /// The same finding with its figures.
    pub fn with(self, figures: Value) -> Finding {
        Finding { figures: Some(figures), ..self }
    }

    /// For people.
    pub fn text(&self) -> String {
        const NAME: usize = 7;
        const FOUND: usize = 26;
        let state = coloured(&format!("{:5}", self.state.word()), self.state.colour());
        let width = FOUND - NAME - 1;
        let found = wrapped(&self.found, FOUND);
        let mut text = format!("{state}  {:width$} {found}\n", self.name);
        if let Some(remedy) = &self.remedy {
            let remedy = wrapped(&format!("-> {remedy}"), FOUND);
            text += &format!("{:FOUND$}{remedy}\n", "");
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "state": self.state.word(),
            "found": self.found,
            "remedy": self.remedy,
            "figures": self.figures,
        })
    }
}
