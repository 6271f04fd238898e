//! What the emulated device keeps lists of.

use pinlane::Result;

use super::{Rig, Row, seconds};

pub const ROWS: &[Row] = &[("findings", findings, "misuses that the emulated device reports")];

fn findings(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(1)?;
    let mut block = pool.alloc_zeroed::<u8>(64)?;
    let gpu = rig.device.alloc::<u8>(64)?;
    let streams = rig.stalled(1)?;
    let stream = &streams[0];
    stream.download(&gpu, &mut block)?;
    let took = seconds(|| {
        for n in 0..count {
            rig.emulator.host_reads(block.as_ptr().wrapping_add(n % 64), 1);
        }
        assert!(!rig.emulator.findings().is_empty());
        Ok(())
    });
    rig.release(&streams);
    took
}
