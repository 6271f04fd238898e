//! Tests of builds, and of what must not build.
//!
//! | module | what it shows |
//! |---|---|
//! | `search` | where the build finds a CUDA toolkit, and which one it refuses |
//! | `script`, `broken` | the build script itself: on targets and toolkits that it refuses |
//! | `driver_api` | the declarations of the driver's functions are those of the toolkit's headers |
//! | `driver_faults` | each function of the driver fails at each call, on the drop-in's driver |
//! | `libcuda` | what is said of a driver's library that is of no use |
//! | `documented` | which errors the CUDA documents list for each call |
//! | `dependencies` | which features need bindgen, cbindgen and cc |
//! | `ui` | programs that must not compile, with the compiler's reason |
//! | `ffi` | the C and C++ interfaces, from outside |
//! | `architecture` | the layers of the crate |
//! | `safe_functions` | no safe public function frees the object of an address or a raw handle |
//! | `c_rules` | the rules of the C interface (docs/c-abi.md) have tests, and hold for its text |
//! | `parity` | C and C++ have every function of Rust, or docs/parity.md says why not |
//! | `public_paths` | the names of the driver and the emulated device keep their paths |
//! | `statics` | statics are safe in a forked child |
//! | `threads` | threads are started in one place |
//! | `figures` | every figure in the README and the guides is that of its file in docs/measured |
//! | `reference` | a mistake in the headers' comments ends the build of the book |
//! | `guides` | the programs of the guides run |
//! | `readme` | the README's programs are those of the examples |
//! | `rules` | the tests of the soundness rules run for every way of page-locking |
//! | `ladder` | the numbered examples print what they say, in Rust and in C++ |

mod architecture;
#[cfg(feature = "emulated")]
mod artifacts;
#[cfg(feature = "toolkit")]
mod broken;
mod c_rules;
mod dependencies;
mod documented;
#[cfg(feature = "toolkit")]
mod driver_api;
#[cfg(all(pinlane_cuda, not(pinlane_toolkit)))]
mod driver_faults;
#[cfg(all(feature = "capi", feature = "emulated"))]
#[path = "../ffi/mod.rs"]
mod ffi;
mod figures;
#[cfg(feature = "emulated")]
mod guides;
#[cfg(feature = "emulated")]
mod ladder;
#[cfg(all(pinlane_cuda, not(pinlane_toolkit)))]
mod libcuda;
mod parity;
mod public_paths;
mod readme;
mod reference;
mod rules;
mod safe_functions;
mod script;
mod search;
mod sources;
mod statics;
mod threads;
#[cfg(feature = "emulated")]
mod ui;

// The build script's own files, which use each other by paths from the root.
#[path = "../../build/failure.rs"]
mod failure;
#[path = "../../build/libclang.rs"]
mod libclang;
#[path = "../../build/toolkit.rs"]
mod toolkit;
#[path = "../../build/wish.rs"]
#[allow(dead_code)] // Half of it is for builds without a feature.
mod wish;
