//! Passes on what the library's build found: the CUDA toolkit, or where it looked for one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (found, name) in
        [("DEP_PINLANE_TOOLKIT", "PINLANE_TOOLKIT"), ("DEP_PINLANE_TRIED", "PINLANE_TRIED")]
    {
        if let Ok(value) = std::env::var(found) {
            println!("cargo::rustc-env={name}={value}");
        }
    }
    if std::env::var_os("DEP_PINLANE_TOOLKIT").is_some() {
        println!("cargo::rustc-cfg=pinlane_cuda");
    }
}
