//! Bandwidth by size: each way, and both ways at once.

use pinlane::Stream;

use super::bare::{self, Way};
use super::driver;
use super::rig::Rig;
use crate::error::Result;
use crate::figures::{Ceiling, Chart, Series, Unit, XAxis, YAxis};
use crate::measure::gb_per_s;

const BANDWIDTH: YAxis =
    YAxis { label: "bandwidth", unit: "GB/s", higher_is_better: true, logarithmic: false };
const SIZE: XAxis = XAxis { label: "size of a copy", unit: Unit::Bytes };

pub fn up(rig: &Rig) -> Result<Chart> {
    one_way(rig, Way::Up, "up", "Up: host to device, one copy and the wait for it")
}

pub fn down(rig: &Rig) -> Result<Chart> {
    one_way(rig, Way::Down, "down", "Down: device to host, one copy and the wait for it")
}

fn one_way(rig: &Rig, way: Way, id: &'static str, title: &'static str) -> Result<Chart> {
    let mut locked = Series { name: "page-locked", points: Vec::new() };
    let mut staged = Series { name: "pageable, staged", points: Vec::new() };
    let mut runtime = Series { name: "pageable, by the driver", points: Vec::new() };
    // A stream whose handle was given out makes more checks in each tracked copy.
    let other: Stream = rig.device.stream()?;
    let has_driver = driver::is_there(&rig.device);
    for bytes in rig.sizes() {
        let mut gpu = rig.device_memory(bytes)?;
        let mut host = rig.pool.alloc_zeroed::<u8>(bytes)?;
        let mut pageable = vec![1u8; bytes];
        let stream = &rig.stream;
        let rate = |seconds| (bytes as f64, gb_per_s(bytes, seconds));
        let seconds = rig.seconds(bytes, || match way {
            Way::Up => stream.upload(&host, &mut gpu)?.wait(),
            Way::Down => stream.download(&gpu, &mut host)?.wait(),
        })?;
        locked.points.push(rate(seconds));
        let seconds = rig.seconds(bytes, || match way {
            Way::Up => stream.upload_slice(&pageable, &mut gpu)?.wait(),
            Way::Down => stream.download_slice(&gpu, &mut pageable).map(drop),
        })?;
        staged.points.push(rate(seconds));
        if has_driver {
            let copy = || driver::copy(way, &other, &mut pageable, &mut gpu);
            runtime.points.push(rate(rig.seconds(bytes, copy)?));
        }
    }
    let mut series = vec![locked, staged];
    if has_driver {
        series.push(runtime);
    }
    let bytes = largest(rig);
    let value = gb_per_s(bytes, bare::seconds(rig, &[way], bytes)?);
    let ceiling = Some(Ceiling { name: "bare copies in a row", value });
    Ok(Chart { id, title: title.into(), x: SIZE, y: BANDWIDTH, ceiling, series })
}

/// Page-locked memory both ways at once, on two streams; and up and down in turns on one.
pub fn both(rig: &Rig) -> Result<Chart> {
    let mut at_once = Series { name: "two streams", points: Vec::new() };
    let mut in_turns = Series { name: "one stream", points: Vec::new() };
    let (up, down) = (rig.device.stream()?, rig.device.stream()?);
    for bytes in rig.sizes() {
        let (mut there, here) = (rig.device_memory(bytes)?, rig.device_memory(bytes)?);
        let source = rig.pool.alloc_zeroed::<u8>(bytes)?;
        let mut target = rig.pool.alloc_zeroed::<u8>(bytes)?;
        let mut measure = |down: &Stream| {
            let seconds = rig.seconds(bytes, || {
                let sent = up.upload(&source, &mut there)?;
                down.download(&here, &mut target)?.wait()?;
                sent.wait()
            })?;
            Ok::<_, crate::error::Error>((bytes as f64, gb_per_s(2 * bytes, seconds)))
        };
        at_once.points.push(measure(&down)?);
        in_turns.points.push(measure(&up)?);
    }
    let bytes = largest(rig);
    let value = gb_per_s(2 * bytes, bare::seconds(rig, &[Way::Up, Way::Down], bytes)?);
    Ok(Chart {
        id: "both",
        title: "Up and down: the sum of both ways, page-locked memory".into(),
        x: SIZE,
        y: BANDWIDTH,
        ceiling: Some(Ceiling { name: "bare copies in rows, both ways", value }),
        series: vec![at_once, in_turns],
    })
}

/// The size at which the ceiling is measured.
pub fn largest(rig: &Rig) -> usize {
    *rig.sizes().last().expect("sizes")
}
