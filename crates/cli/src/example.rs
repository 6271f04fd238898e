//! The modules of the example `load_safetensors` that the command `load` is made of. The example
//! stays the small program to read; its command line and its `main` are its own.

#[path = "../../../examples/load_safetensors/error.rs"]
#[allow(dead_code, reason = "the example's command line uses the rest")]
pub mod error;
#[path = "../../../examples/load_safetensors/load.rs"]
pub mod load;
#[path = "../../../examples/load_safetensors/report.rs"]
#[allow(dead_code, reason = "the example prints its report itself")]
pub mod report;
#[path = "../../../examples/load_safetensors/tensor_file.rs"]
pub mod tensor_file;
#[path = "../../../examples/load_safetensors/verify.rs"]
pub mod verify;
