//! Which streams an eager machine looks at: those that may have become ready, and no others.

use super::*;
use crate::words::rng::Rng;

const LEGACY: RawStream = RawStream { device: 0, handle: RawStream::LEGACY };

/// One random call that makes a stream wait or continue.
fn call(rig: &Rig, rng: &mut Rng, streams: &mut [RawStream], a: DevicePtr) {
    let at = rng.below(streams.len());
    let (stream, other) = (streams[at], streams[rng.below(streams.len())]);
    match rng.below(9) {
        0 => rig.emulator.stall(stream).unwrap(),
        1 => rig.emulator.release(stream).unwrap(),
        2 => rig.emulator.slow(stream, rng.below(4) as u32).unwrap(),
        3 => {
            let event = rig.mark(other);
            rig.wait(stream, event).unwrap();
        }
        4 => rig.launch(stream, || ()).unwrap(),
        5 => rig.fill(LEGACY, a, 1).unwrap(),
        6 => {
            rig.destroy_stream(stream).unwrap();
            streams[at] = rig.stream(0);
        }
        _ => rig.fill(stream, a, 1).unwrap(),
    }
}

#[test]
fn no_stream_that_could_go_on_is_left_asleep() {
    for seed in 0..200 {
        let (rig, mut rng) = (Rig::new(Emulator::builder().races(false)), Rng::keyed(seed, [0; 4]));
        let a = rig.memory(0);
        let mut streams = [(); 6].map(|()| rig.stream(0));
        for step in 0..100 {
            call(&rig, &mut rng, &mut streams, a);
            let overslept = rig.emulator.with(|machine| machine.overslept());
            assert_eq!(overslept, [], "seed {seed}, step {step}");
        }
        for &stream in &streams {
            rig.emulator.slow(stream, 0).unwrap();
            rig.emulator.release(stream).unwrap();
        }
        streams.iter().for_each(|&stream| rig.synchronize(stream).unwrap());
        rig.synchronize(LEGACY).unwrap();
        let overslept = rig.emulator.with(|machine| machine.overslept());
        assert_eq!(overslept, [], "seed {seed}");
        assert_eq!(rig.found(), [], "seed {seed}");
    }
}

#[test]
fn streams_that_wait_are_not_looked_at_again() {
    let rig = Rig::eager();
    let (a, first, streams) = (rig.memory(0), rig.stream(0), [(); 100].map(|()| rig.stream(0)));
    rig.emulator.stall(first).unwrap();
    rig.fill(first, a, 1).unwrap();
    let event = rig.mark(first);
    for stream in streams {
        rig.wait(stream, event).unwrap();
    }
    let looks = |rig: &Rig| rig.emulator.with(|machine| machine.awake.len());
    let other = rig.stream(0);
    rig.emulator.release(other).unwrap();
    assert_eq!(looks(&rig), 0, "each has been looked at");
    rig.emulator.stall(other).unwrap();
    rig.fill(other, a, 1).unwrap();
    assert_eq!(looks(&rig), 1, "the next change finds one to look at, and not all");
    rig.emulator.release(first).unwrap();
    assert_eq!(rig.emulator.usage().pending_operations, 1, "and nobody has forgotten them");
}
