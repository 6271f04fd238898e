//! The names and structs of the libraries, and how they replace NVIDIA's.

use crate::support::{App, declared, exports, library, program, stub, toolkit, unlinked};

#[test]
fn the_structs_are_those_of_the_toolkit() {
    let Some(headers) = toolkit() else { return };
    let run = program("layout", Some(headers)).eager();
    assert_eq!((run.status, &*run.stdout), (Some(0), "as declared\n"), "{run:?}");
}

#[test]
fn a_program_that_was_linked_with_another_library_runs_by_preloading() {
    for major in [12, 13] {
        let app = stub("small", major);
        assert!(app.alone().stdout.contains("of the stub"));
        let run = app.preloaded(&format!("libcudart.so.{major}"));
        assert_eq!((run.status, &*run.stdout), (Some(0), "replaced\n"), "{run:?}");
        assert_eq!(run.stderr, "", "the dynamic linker has nothing to say");
    }
}

#[test]
fn every_name_of_the_real_library_is_there_with_its_version() {
    for major in [12, 13] {
        let ours = library().symbols(major);
        let wanted = exports(&major.to_string());
        assert!(wanted.len() > 400);
        let missing: Vec<_> = wanted.iter().filter(|name| !ours.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let driver = exports("driver");
        let missing: Vec<_> = driver.iter().filter(|name| !ours.contains(name)).collect();
        assert!(missing.is_empty(), "the driver that libcuda.so.1 leads to: {missing:?}");
    }
    let mut ours = library().driver_symbols();
    ours.sort();
    let mut wanted = exports("driver");
    wanted.sort();
    assert!(wanted.len() > 600 && ours == wanted);
}

#[test]
fn every_name_that_the_headers_of_the_toolkit_declare_is_there() {
    let Some(headers) = toolkit() else { return };
    let ours = library().driver_symbols();
    for header in ["cuda", "cudaGL", "cudaEGL", "cudaVDPAU"] {
        let declared = declared(headers, header, "cu");
        let missing: Vec<_> = declared.iter().filter(|name| !ours.contains(name)).collect();
        assert!(declared.len() > 4 && missing.is_empty(), "{header}.h: {missing:?}");
    }
    let ours = library().symbols(13);
    for header in ["cuda_runtime_api", "cuda_gl_interop", "cuda_egl_interop", "cuda_vdpau_interop"]
    {
        let declared = declared(headers, header, "cuda");
        let missing: Vec<_> = declared.iter().filter(|name| !ours.contains(name)).collect();
        assert!(declared.len() > 4 && missing.is_empty(), "{header}.h: {missing:?}");
    }
}

#[test]
fn a_profiler_learns_that_there_are_no_events_of_devices() {
    for name in ["libcupti.so.13", "libcupti.so.12"] {
        let run = program("profiled", None).given(name).eager();
        assert_eq!((run.status, &*run.stdout), (Some(0), "refused\n"), "{run:?}");
        assert_eq!(run.stderr.matches("cuptiSubscribe is not there").count(), 1, "{run:?}");
    }
}

#[test]
fn nvml_knows_the_devices_of_the_runtime() {
    let app = program("management", None);
    let run = app.with("eager", 0, &[("PINLANE_CUDART_DEVICES", "3")]);
    assert_eq!((run.status, &*run.stdout), (Some(0), "3 devices\n"), "{run:?}");
    let run = app.with("eager", 0, &[("PINLANE_CUDART_DEVICES", "0")]);
    assert_eq!((run.status, &*run.stdout), (Some(0), "0 devices\n"), "{run:?}");
}

fn says_what_to_do(app: &App) {
    let folder = library().folder().to_str().expect("is ASCII");
    let run = app.with("eager", 0, &[("LD_LIBRARY_PATH", folder), ("PINLANE_CUDART_QUIET", "1")]);
    assert_eq!((run.status, &*run.stdout), (Some(0), "801 801\n"), "{run:?}");
    let said = "static_runtime.app has NVIDIA's own CUDA runtime, which does not run on this";
    assert!(run.stderr.contains(said) && run.stderr.contains("-cudart shared"), "{run:?}");
    assert_eq!(run.stderr.matches("does not run").count(), 1, "once: {run:?}");
}

#[test]
fn what_begins_as_a_static_runtime_is_told_what_is_the_matter() {
    says_what_to_do(&unlinked("static_runtime", None));
}

#[test]
fn the_static_runtime_of_the_toolkit_is_told_what_is_the_matter() {
    let Some(headers) = toolkit() else { return };
    says_what_to_do(&unlinked("static_runtime", Some(headers)));
}
