//! `Debug` of the public types.

use oikaze::memory::{Region, Rights};
use oikaze::shared::builder::Homes;
use std::fmt::Debug;

/// Each kind of object shows its name and identity, and does not block.
#[test]
fn objects_show_what_identifies_them() {
    let job = oikaze::join().unwrap();
    let region = job.publish("r", Region::zeroed(64).unwrap(), Rights::ALL).unwrap();
    let there = job.peer(0).unwrap().region("r").unwrap();
    let array = job.array_with_homes::<u8>("a", 10, Homes::Block).unwrap();
    let fifo = job.fifo("f", 4, 8).unwrap();
    let operation = there.fetch_add(0, 1);
    operation.wait().unwrap();
    let word = there.word::<u64>(0);
    let shown: [(&dyn Debug, &str); 8] = [
        (&job, "Job { rank: 0, size: 1, .. }"),
        (&job.peer(0).unwrap(), "Peer { rank: 0, .. }"),
        (&region, "LocalRegion { len: 64, .. }"),
        (&there, "RemoteRegion { peer: 0, len: 64, .. }"),
        (&array, "SharedArray { len: 10, .. }"),
        (&fifo, "Fifo { slots: 4, longest: 8, .. }"),
        (&operation, "Operation { is_done: true, .. }"),
        (&word, "RemoteWord { .. }"),
    ];
    for (object, wanted) in shown {
        assert_eq!(format!("{object:?}"), wanted);
    }
}
