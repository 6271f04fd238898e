//! Passes on what the library's build has of CUDA.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(toolkit) = std::env::var("DEP_PINLANE_TOOLKIT") {
        println!("cargo::rustc-env=PINLANE_TOOLKIT={toolkit}");
        println!("cargo::rustc-cfg=pinlane_toolkit");
    }
    if std::env::var_os("DEP_PINLANE_CUDA").is_some() {
        println!("cargo::rustc-cfg=pinlane_cuda");
    }
}
