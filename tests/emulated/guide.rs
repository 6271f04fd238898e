//! The program of docs/testing.md, and its output.

use pinlane::emulated::{Emulator, Exploration, explore};
use pinlane::{Device, Error, PinnedPool};

/// Fills memory on one stream and downloads it, by its address, on another.
fn produce_and_consume(device: &Device, waits: bool) -> Result<Vec<u32>, Error> {
    let (producer, consumer) = (device.stream()?, device.stream()?);
    let pool = PinnedPool::builder(device).build()?;
    let (mut memory, mut host) = (device.alloc::<u32>(256)?, pool.alloc::<u32>(256)?);
    producer.fill(&mut memory, 0)?;
    producer.synchronize()?;
    // SAFETY: the memory outlives `theirs`. The caller orders the work on it, as below.
    let theirs = unsafe { device.borrow_memory::<u32>(memory.as_device_ptr(), 256)? };
    let filled = producer.fill(&mut memory, 7)?;
    if waits {
        consumer.wait_for(&filled)?;
    }
    consumer.download(&theirs, &mut host)?;
    Ok(host.read()?.to_vec())
}

/// The result: nothing, or the report of the smallest run that fails.
fn report(machine: pinlane::emulated::Builder, waits: bool) -> String {
    let explored = explore(Exploration::new().machine(machine).quiet(true), |machine| {
        let device = Device::of_emulator(machine, 0)?;
        assert!(produce_and_consume(&device, waits)? == [7; 256], "wrong bytes");
        Ok::<(), Error>(())
    });
    explored.err().map(|failed| failed.to_string()).unwrap_or_default()
}

// ANCHOR: explore
#[test]
fn my_copies() {
    explore(Exploration::new().runs(200), |machine| {
        let device = Device::of_emulator(machine, 0)?;
        let (stream, mut gpu) = (device.stream()?, device.alloc::<u32>(256)?);
        let mut back = vec![0; 256];
        stream.upload_slice(&[7; 256], &mut gpu)?; // your code, and its checks
        stream.download_slice(&gpu, &mut back)?;
        assert_eq!(back, [7; 256]);
        Ok::<(), Error>(())
    })
    .unwrap();
}
// ANCHOR_END: explore

/// Compares words only, because the page wraps lines.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_guide_shows_this_program_and_what_it_prints() {
    let guide = include_str!("../../docs/testing.md");
    let (source, own) = (words(guide), include_str!("guide.rs"));
    let function = own.split_once("/// Fills memory").unwrap().1.split_once("\n}\n").unwrap().0;
    assert!(source.contains(&words(function)), "the program");
    assert_eq!(report(Emulator::builder(), true), "");
    let race = report(Emulator::builder(), false);
    assert!(source.contains(&words(&race)), "{race}");
    let bytes = report(Emulator::builder().races(false), false);
    let (_, run) = bytes.split_once("smallest run").expect("it fails");
    assert!(source.contains(&words(run)), "{bytes}");
}
