//! What a plan says: the groups and their sizes, the ways that are possible, and that the cheapest
//! is taken.

use pinlane::driver::emulated::Emulator;
use pinlane::{
    Choice, Device, DeviceBuf, DownloadItem, ErrorKind, Path, PinnedPool, Plan, Stream, UploadItem,
};

use super::support::{PATHS, all_calls, bytes, device, pinned, views};

fn rig() -> (Emulator, Device, Stream) {
    let emulator = Emulator::new();
    let device = device(&emulator);
    let stream = device.stream().unwrap();
    (emulator, device, stream)
}

/// The choice is the cheapest of what is possible, which is listed in order.
fn assert_cheapest(choice: &Choice, possible: &[Path]) {
    assert!(choice.costs.is_sorted_by_key(|cost| cost.1), "{choice:?}");
    assert_eq!((choice.path, choice.predicted), choice.costs[0]);
    let mut paths: Vec<_> = choice.costs.iter().map(|cost| cost.0).collect();
    paths.sort_by_key(|path| PATHS.iter().position(|known| known == path));
    assert_eq!(paths, possible);
}

fn upload_plan(stream: &Stream, gpu: &mut DeviceBuf<u8>, sizes: &[usize], gap: usize) -> Plan {
    let source = bytes(sizes.iter().sum(), 1);
    let (mut from, mut to) = (0, 0);
    let range = |&size: &usize| {
        let start = to;
        to += size + gap;
        start..start + size
    };
    let ranges: Vec<_> = sizes.iter().map(range).collect();
    let items = views(gpu, ranges.into_iter()).into_iter().map(|view| {
        from += view.len();
        UploadItem::new(&source[from - view.len()..from], view).unwrap()
    });
    let items: Vec<_> = items.collect();
    stream.plan_upload(&items).unwrap()
}

#[test]
fn entries_that_follow_each_other_are_one_run() {
    let (emulator, device, stream) = rig();
    let mut gpu = device.alloc(1 << 20).unwrap();
    let before = all_calls(&emulator);
    let plan = upload_plan(&stream, &mut gpu, &[100, 0, 5, 300], 0);
    let choice = plan.ordinary.unwrap();
    assert_eq!((choice.entries, choice.runs, choice.bytes), (3, 1, 405));
    assert_eq!(plan.direct, None);
    let plan = upload_plan(&stream, &mut gpu, &[100, 0, 5, 300], 1);
    let choice = plan.ordinary.unwrap();
    assert_eq!((choice.entries, choice.runs, choice.bytes), (3, 3, 405));
    let enqueuing = all_calls(&emulator) - emulator.calls(pinlane::driver::Call::Attributes);
    assert!(enqueuing <= before, "a plan enqueues nothing");
}

#[test]
fn the_cheapest_way_is_taken() {
    for batches in [true, false] {
        let emulator = Emulator::builder().batches(batches).build();
        let device = device(&emulator);
        let stream = device.stream().unwrap();
        let legacy = device.legacy_stream();
        let with = |stream: &Stream, others: &[Path]| {
            let batch = batches && stream.as_raw().addr() > 2;
            let mut paths = vec![Path::Copies];
            paths.extend(batch.then_some(Path::Batch));
            paths.extend(others);
            paths
        };
        let pool = PinnedPool::builder(&device).build().unwrap();
        let source = bytes(100_000, 1);
        let mut target = vec![0; 100_000];
        for (number, size) in [(1, 100_000), (1, 1), (100, 1000), (1000, 100), (1000, 1)] {
            for stream in [&stream, &legacy] {
                let locked = pinned(&pool, &source);
                let mut gpus: Vec<_> = (0..number).map(|_| device.alloc(size).unwrap()).collect();
                let items = source.chunks(size).zip(&mut gpus);
                let items: Result<Vec<_>, _> =
                    items.map(|(from, to)| UploadItem::new(from, to)).collect();
                let plan = stream.plan_upload(&items.unwrap()).unwrap();
                let possible = with(stream, &[Path::Packed, Path::Pull]);
                assert_cheapest(plan.ordinary.as_ref().unwrap(), &possible);
                assert!(plan.direct.is_none());

                let part = |n: usize| locked.slice(n * size..(n + 1) * size).unwrap();
                let items = gpus.iter_mut().enumerate();
                let items = items.map(|(n, to)| UploadItem::new(part(n), to));
                let items: Result<Vec<_>, _> = items.collect();
                let plan = stream.plan_upload(&items.unwrap()).unwrap();
                assert_cheapest(plan.direct.as_ref().unwrap(), &with(stream, &[Path::Pull]));
                assert!(plan.ordinary.is_none());

                let items = gpus.iter().zip(target.chunks_mut(size));
                let items: Result<Vec<_>, _> =
                    items.map(|(from, to)| DownloadItem::new(from, to)).collect();
                let plan = stream.plan_download(&items.unwrap()).unwrap();
                assert_cheapest(plan.ordinary.as_ref().unwrap(), &with(stream, &[Path::Packed]));
            }
        }
    }
}

/// One long copy goes by itself; a thousand short ones do not go one by one.
#[test]
fn short_copies_go_together() {
    let (_, device, stream) = rig();
    let mut gpu = device.alloc(4 << 20).unwrap();
    let plan = upload_plan(&stream, &mut gpu, &[4 << 20], 0);
    assert_eq!(plan.ordinary.unwrap().path, Path::Copies);
    let plan = upload_plan(&stream, &mut gpu, &[100; 1000], 3);
    assert_ne!(plan.ordinary.unwrap().path, Path::Copies);
}

#[test]
fn a_plan_as_text() {
    let (_, device, stream) = rig();
    let mut gpu = device.alloc(10_000).unwrap();
    let plan = upload_plan(&stream, &mut gpu, &[100, 200], 7);
    let choice = plan.ordinary.as_ref().unwrap();
    let text = plan.to_string();
    let start = "ordinary memory: 2 entries in 2 runs, 300 bytes:";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains(&format!("{}* ", choice.path)), "{text}");
    assert_eq!(text.matches(" us").count(), choice.costs.len());
    assert_eq!(text.matches('*').count(), 1);
    for (path, time) in &choice.costs {
        let micros = format!("{:.1} us", time.as_secs_f64() * 1e6);
        assert!(text.contains(&path.to_string()) && text.contains(&micros), "{text}");
    }
    let mut both = plan.clone();
    both.direct = plan.ordinary.clone();
    assert_eq!(both.to_string().lines().count(), 2);
    assert!(both.to_string().lines().nth(1).unwrap().starts_with("direct: 2 entries"));
    assert_eq!(stream.plan_upload(&[]).unwrap().to_string(), "nothing to copy");
    assert_eq!(stream.plan_download(&[]).unwrap(), Plan::default());
}

#[test]
fn impossible_ways_are_refused() {
    let emulator = Emulator::builder().batches(false).build();
    let device = device(&emulator);
    let stream = device.stream().unwrap();
    let pool = PinnedPool::builder(&device).build().unwrap();
    let mut host = pinned(&pool, &[1; 10]);
    let mut gpu = device.alloc::<u8>(10).unwrap();
    let before = device_calls(&emulator);
    let mut up = |path| {
        let mut items = [UploadItem::new(&host, &mut gpu).unwrap()];
        stream.upload_batch_by(path, &mut items).map(drop)
    };
    for path in [Path::Batch, Path::Packed] {
        let error = up(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(&path.to_string()), "{error}");
    }
    let mut target = [0; 10];
    for path in [Path::Batch, Path::Packed, Path::Pull] {
        let mut items = [DownloadItem::new(&gpu, &mut host).unwrap()];
        let error = stream.download_batch_by(path, &mut items).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
    for path in [Path::Batch, Path::Pull] {
        let mut items = [DownloadItem::new(&gpu, &mut target).unwrap()];
        let error = stream.download_batch_by(path, &mut items).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
    assert_eq!(device_calls(&emulator), before, "nothing was enqueued");
}

fn device_calls(emulator: &Emulator) -> u64 {
    use pinlane::driver::Call::{CopyBatch, CopyD2H, CopyH2D, Pull};
    [CopyBatch, CopyD2H, CopyH2D, Pull].map(|call| emulator.calls(call)).iter().sum()
}
