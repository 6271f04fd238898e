//! Programs for the driver.

use std::path::Path;

use crate::TWO_DEVICES;
use crate::support::{Run, program, program_of_12, toolkit};

fn driver_ends_well(headers: Option<&Path>) {
    let app = program("driver", headers);
    for mode in ["eager", "lazy", "random", "chunked"] {
        let run = app.with(mode, 1, &TWO_DEVICES);
        run.is_right();
    }
    let none = app.with("eager", 0, &[("PINLANE_CUDART_DEVICES", "0")]);
    assert!(none.stdout.ends_with("cuInit(0) gives 100\n"), "{none:?}");
}

fn planes_are_as_on_a_gpu(headers: Option<&Path>) -> Vec<Run> {
    let app = program("planes", headers);
    let modes = ["eager", "lazy", "random", "chunked"].into_iter().zip(1..);
    let runs: Vec<Run> = modes.map(|(mode, seed)| app.with(mode, seed, &[])).collect();
    for run in &runs {
        run.is_right();
    }
    runs
}

#[test]
fn the_driver_copies_and_fills_planes_volumes_and_batches() {
    for run in planes_are_as_on_a_gpu(None) {
        for name in ["cuGLInit", "cuEGLStreamConsumerConnect", "cuVDPAUGetDevice"] {
            let said = format!("{name} is not there: CUDA_ERROR_NOT_SUPPORTED");
            assert!(run.stderr.contains(&said), "{run:?}");
        }
    }
}

#[test]
fn the_driver_copies_planes_as_the_headers_of_the_toolkit_declare_them() {
    let Some(headers) = toolkit() else { return };
    planes_are_as_on_a_gpu(Some(headers));
}

#[test]
fn a_correct_program_for_the_driver_ends_well() {
    driver_ends_well(None);
}

#[test]
fn a_correct_program_for_the_driver_with_the_headers_of_the_toolkit_ends_well_too() {
    let Some(headers) = toolkit() else { return };
    driver_ends_well(Some(headers));
}

#[test]
fn one_eager_run_finds_the_race_of_a_program_for_the_driver_and_names_its_calls() {
    let run = program("driver_race", None).eager();
    assert_eq!((run.status, &*run.stdout), (Some(0), "done\n"), "{run:?}");
    assert_eq!(run.kinds(), ["Race", "BadHandle", "BadFree", "BadCopy"], "{run:?}");
    assert!(run.findings[0].contains("read after write"), "{run:?}");
    assert!(run.findings[1].contains("cuStreamSynchronize names"), "{run:?}");
    assert!(run.findings[2].contains("cuMemFree_v2: "), "{run:?}");
    let name = "cuEGLStreamConsumerConnect";
    let said = format!("pinlane-cudart: {name} is not there: CUDA_ERROR_NOT_SUPPORTED\n");
    assert_eq!(run.stderr, said);
}

fn mapped_memory_is_right(headers: Option<&Path>) {
    let app = program("mapped", headers);
    for mode in ["eager", "lazy", "random", "chunked"] {
        app.with(mode, 1, &TWO_DEVICES).is_right();
    }
}

#[test]
fn a_program_maps_memory_at_addresses_that_it_has_reserved() {
    mapped_memory_is_right(None);
}

#[test]
fn a_program_maps_memory_as_the_headers_of_the_toolkit_declare_it() {
    let Some(headers) = toolkit() else { return };
    mapped_memory_is_right(Some(headers));
}

#[test]
fn each_wrong_use_of_mapped_memory_is_found() {
    let app = program("mapped_wrongly", None);
    let kinds = |what: &str, mode: &str| {
        let run = app.given(what).with(mode, 1, &TWO_DEVICES);
        assert_eq!((run.status, &*run.stdout), (Some(0), "done\n"), "{what}: {run:?}");
        (run.kinds().join(" "), run)
    };
    for (what, found) in [
        ("unmapped", "IllegalAddress"),
        ("border", "IllegalAddress"),
        ("closed", "IllegalAddress"),
        ("read only", "IllegalAddress"),
        ("other device", "IllegalAddress"),
        ("gone", "IllegalAddress"),
        ("address free", "BadFree BadFree BadFree"),
        ("unmap", "BadFree BadFree"),
        ("free", "BadFree"),
        ("handle", "BadHandle BadHandle"),
        ("unmap in use", "FreedInFlight"),
        ("race", "Race"),
    ] {
        let (kinds, run) = kinds(what, "eager");
        assert_eq!(kinds, found, "{what}: {run:?}");
    }
    let (_, race) = kinds("race", "eager");
    assert!(race.findings[0].contains("memory: 2097152 bytes"), "of one mapping: {race:?}");
    let (late, run) = kinds("unmap in use", "lazy");
    assert_eq!(late, "FreedInFlight IllegalAddress", "{run:?}");
}

#[test]
fn calls_of_the_driver_fail_as_the_environment_says() {
    let fault = [("PINLANE_CUDART_FAULT", "cuMemAlloc_v2:1:CUDA_ERROR_OUT_OF_MEMORY")];
    let run = program("driver_race", None).with("eager", 0, &fault);
    assert!(run.stdout.ends_with("cuMemAlloc_v2(&memory, 4096) gives 2\n"), "{run:?}");
}

#[test]
fn the_driver_and_the_runtime_have_one_machine() {
    let (name, modes) = ("driver_and_runtime", ["eager", "lazy"]);
    let apps = [program(name, None), program_of_12(name)];
    for (app, mode) in apps.iter().flat_map(|app| modes.map(|mode| (app, mode))) {
        let run = app.with(mode, 1, &TWO_DEVICES);
        assert_eq!((run.status, &*run.stdout), (Some(0), "one machine\n"), "{run:?}");
        assert!(run.findings.is_empty(), "{run:?}");
    }
}
