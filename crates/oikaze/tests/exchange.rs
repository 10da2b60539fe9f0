//! Pages that change place in a job's regions, while peers reach them.

mod support;

use oikaze::job::Settings;
use oikaze::{Error, PageSize, PlacementError, Region, Rights, page_size};
use support::cluster;

fn pattern(len: usize, which: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 10) as u8 ^ which).collect()
}

fn bytes(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    bytes
}

/// MEM-17.1: a peer that put its bytes into one region finds them in the other, under the name of the other, and can put again.
#[test]
fn peers_reach_what_has_changed_place() {
    let pages = 1200;
    cluster(2, &Settings::default(), |job| {
        let len = pages * page_size();
        for (name, make) in [
            ("small", (|len| Region::private_of(len, PageSize::Small)) as fn(usize) -> _),
            ("huge", |len| Region::private_of(len, PageSize::Huge)),
            ("shared", Region::shared),
        ] {
            let one = job.publish(&format!("{name} one"), make(len).unwrap(), Rights::ALL).unwrap();
            let other = job.publish(&format!("{name} other"), make(len).unwrap(), Rights::ALL).unwrap();
            let there = |which: &str| job.peer(1 - job.rank()).unwrap().region(&format!("{name} {which}")).unwrap();
            let source = job.register(Region::zeroed(len).unwrap()).unwrap();
            source.write(0, &pattern(len, 5)).unwrap();
            there("one").put(0, source.all()).wait().unwrap();
            job.barrier().unwrap();
            let placed = job.exchange(&one, 0, &other, 0, pages as u64).unwrap();
            assert_eq!(placed.moved + placed.copied, len as u64);
            job.barrier().unwrap();
            let back = job.register(Region::zeroed(len).unwrap()).unwrap();
            there("other").get(0, back.all()).wait().unwrap();
            assert!(bytes(&back) == pattern(len, 5) && bytes(&one).iter().all(|byte| *byte == 0), "{name}");
            // A part, a ragged one, back again, by moving.
            job.barrier().unwrap();
            let (from, count) = (3 * page_size(), 700);
            job.move_pages(&other, from as u64, &one, from as u64, count).unwrap();
            let moved = from..from + count as usize * page_size();
            assert!(bytes(&one)[moved.clone()] == pattern(len, 5)[moved.clone()]);
            job.barrier().unwrap();
            there("one").put_copy(from as u64, b"after").unwrap().wait().unwrap();
            job.barrier().unwrap();
            assert_eq!(bytes(&one)[from..from + 5], *b"after");
            job.barrier().unwrap();
        }
    });
}

/// MEM-17.2: what a user may do wrong, in words.
#[test]
fn mistakes_are_told() {
    cluster(1, &Settings::default(), |job| {
        let [one, other] = [1, 2].map(|which| {
            let region = job.register(Region::zeroed(4 * page_size()).unwrap()).unwrap();
            region.fill(0, 4 * page_size() as u64, which).unwrap();
            region
        });
        let page = page_size() as u64;
        let failure = |outcome: oikaze::Result<_>| match outcome {
            Err(Error::Placement(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(matches!(failure(job.exchange(&one, 1, &other, 0, 1)), PlacementError::Misaligned { offset: 1, .. }));
        assert!(matches!(failure(job.exchange(&one, 2 * page, &other, 0, 3)), PlacementError::Access(_)));
        assert!(matches!(failure(job.move_pages(&one, 0, &one, page, 2)), PlacementError::Overlap { .. }));
        let text = failure(job.move_pages(&one, 0, &other, 8, 2)).to_string();
        assert!(text.contains("only whole pages change place"), "{text}");
        assert!(bytes(&one).iter().all(|byte| *byte == 1) && bytes(&other).iter().all(|byte| *byte == 2));
    });
}
