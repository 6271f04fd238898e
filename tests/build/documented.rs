//! The errors that the documents list for each call are those of the toolkit's headers, with their
//! names in C.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use pinlane::CudaCode;
use pinlane::driver::Call;

use crate::sources::read;

/// All errors of CUDA, by number.
fn names() -> BTreeMap<i32, String> {
    let list = read("crates/cudart/exports/errors.txt");
    let line = |line: &str| {
        let (number, name) = line.split_once(' ').expect("a number and a name");
        (number.parse().expect("a number"), name.to_owned())
    };
    list.lines().map(line).collect()
}

#[test]
fn codes_have_the_names_that_c_gives_them() {
    let names = names();
    for (&number, name) in &names {
        assert_eq!(CudaCode(number).name(), name);
    }
    for call in Call::ALL {
        let codes = call.documented_codes();
        for code in codes.iter().chain(&Call::ANY_RETURNS) {
            assert!(names.contains_key(&code.0), "{call:?}: {code}");
            assert_ne!(*code, CudaCode::SUCCESS, "{call:?}");
        }
        let different: BTreeSet<i32> = codes.iter().map(|code| code.0).collect();
        assert_eq!(different.len(), codes.len(), "{call:?} names one twice");
    }
}

#[test]
fn any_call_may_return_every_sticky_error() {
    let sticky = names().into_keys().map(CudaCode).filter(|code| code.is_sticky());
    let missing: Vec<CudaCode> = sticky.filter(|code| !Call::ANY_RETURNS.contains(code)).collect();
    assert_eq!(missing, []);
}

/// The words of the comment ahead of a function's declaration.
fn comment<'a>(header: &'a str, function: &str) -> &'a str {
    let name = format!("{function}(");
    let declarations = header.match_indices(&name).filter_map(|(at, _)| {
        let (start, end) = (header[..at].rfind("/**")?, header[..at].rfind("*/")?);
        // Between the comment and the name there is a type.
        (start < end && !header[end..at].contains(';')).then(|| &header[start..end])
    });
    declarations.last().unwrap_or_else(|| panic!("{function} is not declared"))
}

/// The names after `\return`.
fn returns(comment: &str) -> BTreeSet<String> {
    let list = comment.split("\\return").nth(1).expect("it says what it returns");
    let list = list.split('\\').next().expect("not empty");
    let words = list.split(|c: char| !c.is_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("cuda") || word.starts_with("CUDA_"))
        .map(runtime)
        .collect()
}

/// The runtime's name of an error in the headers.
fn runtime(name: &str) -> String {
    let name = match name {
        "CUDA_SUCCESS" => "cudaSuccess",
        "CUDA_ERROR_DEINITIALIZED" => "cudaErrorCudartUnloading",
        "CUDA_ERROR_NOT_INITIALIZED" => "cudaErrorInitializationError",
        "CUDA_ERROR_INVALID_VALUE" => "cudaErrorInvalidValue",
        "CUDA_ERROR_INVALID_CONTEXT" => "cudaErrorDeviceUninitialized",
        "CUDA_ERROR_INVALID_HANDLE" => "cudaErrorInvalidResourceHandle",
        "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" => "cudaErrorStreamCaptureImplicit",
        "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD" => "cudaErrorStreamCaptureWrongThread",
        // No error has this name.
        "cudaErrorOutOfMemory" => "cudaErrorMemoryAllocation",
        name => name,
    };
    name.to_owned()
}

#[test]
fn the_lists_are_those_of_the_headers() {
    let root = Path::new(env!("PINLANE_PROJECT")).join(".toolkit/nvidia/cu13/include");
    if !root.is_dir() {
        eprintln!("skipped: scripts/install-toolkit brings the headers");
        return;
    }
    let header = |name: &str| fs::read_to_string(root.join(name)).expect("a header");
    let (driver, runtime) = (header("cuda.h"), header("cuda_runtime_api.h"));
    for call in Call::ALL {
        let mut listed = BTreeSet::new();
        for function in call.functions() {
            let header = if function.starts_with("cuda") { &runtime } else { &driver };
            listed.extend(returns(comment(header, function)));
        }
        listed.remove("cudaSuccess");
        if matches!(call, Call::StreamQuery | Call::EventQuery) {
            assert!(listed.remove("cudaErrorNotReady"), "{call:?}: it is an answer");
        }
        if call == Call::CaptureNode {
            assert!(listed.remove("CUDA_ERROR_LOSSY_QUERY"), "it asks for plain edges only");
        }
        if call == Call::PeerEnable {
            assert!(listed.remove("cudaErrorPeerAccessAlreadyEnabled"), "it is success");
        }
        let codes = call.documented_codes().iter().map(|code| code.name().to_owned());
        assert_eq!(codes.collect::<BTreeSet<_>>(), listed, "{call:?}");
    }
}

#[test]
fn sticky_errors_are_those_that_end_the_process() {
    let header =
        Path::new(env!("PINLANE_PROJECT")).join(".toolkit/nvidia/cu13/include/driver_types.h");
    let Ok(header) = fs::read_to_string(header) else {
        eprintln!("skipped: scripts/install-toolkit brings the headers");
        return;
    };
    // Each comment precedes its number.
    let ends = header.split("/**").filter_map(|part| {
        let (comment, behind) = part.split_once("*/")?;
        let words: Vec<&str> = comment.split_whitespace().filter(|&word| word != "*").collect();
        let (_, number) = behind.split(',').next()?.split_once('=')?;
        let ends = words.join(" ").contains("the process must be terminated");
        ends.then(|| number.trim().parse::<i32>().ok())?
    });
    let ends: BTreeSet<i32> = ends.collect();
    // The header does not say it of error 214, after which the device's memory is unreliable.
    let sticky = names().into_keys().filter(|&number| CudaCode(number).is_sticky());
    let sticky: BTreeSet<i32> =
        sticky.filter(|&code| code != CudaCode::ECC_UNCORRECTABLE.0).collect();
    assert_eq!(sticky, ends);
}
