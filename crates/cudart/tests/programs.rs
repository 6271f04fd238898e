//! Programs in C++ that know nothing of this project, run on this library instead of NVIDIA's.
//!
//! They are compiled against a header with the few declarations that they need; where the toolkit
//! is installed (`scripts/install-toolkit`), against its headers too: by the tests that have
//! `toolkit` in their names. Those in `rules/` are the rules of docs/semantics.md, by their
//! numbers; the one in `arguments/` asks what CUDA answers to odd and wrong arguments.

mod answers;
mod arguments;
mod declared;
mod driver;
mod early;
mod exported;
mod findings;
mod io;
mod kernels;
mod owners;
mod python;
mod rules;
mod runs;
mod sanitized;
mod support;

use support::{App, MODES, Run};

const TWO_DEVICES: [(&str, &str); 1] = [("PINLANE_CUDART_DEVICES", "2")];

/// Runs a program in all modes, with several seeds.
fn in_all_modes(app: &App, mut look: impl FnMut(&Run)) {
    look(&app.eager());
    let modes = ["lazy", "random", "chunked", "pct:2"].into_iter().cycle();
    modes.zip(1..=MODES).for_each(|(mode, seed)| look(&app.with(mode, seed, &[])));
}
