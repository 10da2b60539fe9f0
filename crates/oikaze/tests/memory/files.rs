//! Memory that belongs to files, whose pages are on a disk when an operation needs them.

use crate::support::{cluster, pair};
use oikaze::collective::operator::Sum;
use oikaze::memory::remote::RefusalReason;
use oikaze::memory::{Region, Rights};
use oikaze_launch::Settings;
use oikaze_os::memory::{TruncatedFile, nameless_file};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const LEN: usize = 1 << 20;

/// Maps a file of sevens whose pages are on the disk only. The file lies beside cargo's build,
/// because a temporary directory may be in memory.
fn evicted(name: &str, rank: u32) -> (File, Region) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("oikaze-file-{}-{name}-{rank}", std::process::id()));
    let mut file = nameless_file(&path).unwrap();
    file.write_all(&vec![7; LEN]).unwrap();
    let region = Region::of_file(file.as_fd(), 0, LEN, true).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(
        !region.is_present(0, LEN as u64),
        "is the file of this test on a disk, whose pages can be dropped?"
    );
    (file, region)
}

/// MEM-1.10, MEM-1.11: each operation on absent pages takes place once, and the file has the
/// result.
#[test]
fn operations_on_absent_pages_are_done() {
    pair(|job| {
        let (mut file, region) = evicted("target", job.rank());
        let here = job.publish("file", region, Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("file").unwrap();
        let own = job.register(Region::zeroed(LEN).unwrap()).unwrap();
        job.barrier().unwrap();
        assert_eq!(there.fetch_add(0, 1).wait_for(PATIENCE).unwrap(), 0x0707_0707_0707_0707);
        there.get(200_000, own.slice(0..100_000).unwrap()).wait_for(PATIENCE).unwrap();
        let mut bytes = vec![0; 100_000];
        own.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
        own.fill(0, LEN as u64, 9).unwrap();
        let put = there.put_signal(400_000, own.slice(0..600_000).unwrap(), &there.signal(8, 2));
        there.put_copy(100_000, &[9; 4096]).unwrap().wait_for(PATIENCE).unwrap();
        put.wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
        assert_eq!(here.load_u64(0).unwrap(), 0x0707_0707_0707_0708);
        assert_eq!(here.load_u64(8).unwrap(), 0x0707_0707_0707_0709);
        let mut all = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut all).unwrap();
        let expected = |at| {
            if (100_000..104_096).contains(&at) || (400_000..1_000_000).contains(&at) {
                9
            } else {
                7
            }
        };
        assert!(all.iter().enumerate().skip(16).all(|(at, byte)| *byte == expected(at)));
        assert_eq!(job.refused_accesses(), [], "what was done in the end was not refused");
    });
}

/// MEM-1.11: an accumulate is sent again, too, in one datagram or in many. Each element is combined
/// once.
#[test]
fn accumulates_on_absent_pages_are_done_once() {
    pair(|job| {
        let (_file, region) = evicted("sums", job.rank());
        let here = job.publish("file", region, Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("file").unwrap();
        let own = job.register(Region::zeroed(LEN).unwrap()).unwrap();
        (0..LEN as u64 / 8).for_each(|n| own.store_u64(8 * n, n).unwrap());
        job.barrier().unwrap();
        let (short, long) = (0..800, 100_000..LEN);
        for range in [short.clone(), long.clone()] {
            let from = own.slice(range.clone()).unwrap();
            there
                .accumulate::<u64>(range.start as u64, Sum, from)
                .unwrap()
                .wait_for(PATIENCE)
                .unwrap();
        }
        job.barrier().unwrap();
        for n in 0..LEN / 8 {
            let added =
                if short.contains(&(8 * n)) || long.contains(&(8 * n)) { n as u64 } else { 0 };
            assert_eq!(
                here.load_u64(8 * n as u64).unwrap(),
                0x0707_0707_0707_0707 + added,
                "element {n}"
            );
        }
        job.barrier().unwrap();
    });
}

/// MEM-1.11, MEM-5.2: many changes of words that lie on the disk are requested at once and sent
/// again. This happens over the network and rings, and with lost and doubled datagrams. Each change
/// takes place once, so no two changes see the same value before.
#[test]
fn words_on_absent_pages_are_changed_once() {
    const PAGES: u64 = LEN as u64 / 4096;
    const EACH: u64 = 4;
    const NODES: u32 = 3;
    let faults = Settings {
        fault: Some("loss=0.05,duplicate=0.05,reorder=0.05,seed=7".to_owned()),
        ..Settings::default()
    };
    for settings in [Settings::default(), faults] {
        let seen = cluster(NODES, &settings, |job| {
            let owned = (job.rank() == 0).then(|| evicted("words", 0));
            let (_file, here) = owned
                .map(|(file, region)| (file, job.publish("file", region, Rights::ALL).unwrap()))
                .unzip();
            job.barrier().unwrap();
            let there = job.peer(0).unwrap().region("file").unwrap();
            let asked: Vec<_> =
                (0..PAGES * EACH).map(|n| there.fetch_add(n % PAGES * 4096, 1)).collect();
            let seen: Vec<u64> =
                asked.into_iter().map(|word| word.wait_for(PATIENCE).unwrap()).collect();
            job.barrier().unwrap();
            if let Some(here) = here {
                for page in 0..PAGES {
                    let word = here.load_u64(page * 4096).unwrap();
                    assert_eq!(
                        word,
                        0x0707_0707_0707_0707 + EACH * u64::from(NODES),
                        "page {page}"
                    );
                }
            }
            job.barrier().unwrap();
            seen
        });
        for page in 0..PAGES {
            let of_page = seen
                .iter()
                .flat_map(|seen| seen.iter().skip(page as usize).step_by(PAGES as usize));
            let mut before: Vec<u64> = of_page.map(|value| value - 0x0707_0707_0707_0707).collect();
            before.sort_unstable();
            assert!(before.into_iter().eq(0..EACH * u64::from(NODES)), "page {page}");
        }
    }
}

/// MEM-1.12: the same holds for memory of the requesting node.
#[test]
fn operations_from_and_to_files_of_our_own() {
    pair(|job| {
        let here = job.publish("memory", Region::zeroed(LEN).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("memory").unwrap();
        let (_source_file, source) = evicted("source", job.rank());
        let (_sink_file, sink) = evicted("sink", job.rank());
        let (source, sink) = (job.register(source).unwrap(), job.register(sink).unwrap());
        there.put(0, source.slice(100..1_000_000).unwrap()).wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
        let mut bytes = vec![0; LEN];
        here.read(0, &mut bytes).unwrap();
        assert!(
            bytes.iter().enumerate().all(|(at, byte)| *byte == if at < 999_900 { 7 } else { 0 })
        );
        job.fetch(there.remote_id(), 900_000, sink.id(), 0, 148_576)
            .unwrap()
            .wait_for(PATIENCE)
            .unwrap();
        sink.read(0, &mut bytes).unwrap();
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == if (99_900..148_576).contains(&at) { 0 } else { 7 })
        );
        job.barrier().unwrap();
    });
}

/// MEM-1.10: a page that its file no longer has is an error for both sides, and no wait hangs.
#[test]
fn pages_that_cannot_be_had_are_an_error() {
    pair(|job| {
        let (file, region) = evicted("truncated", job.rank());
        let _here = ["file", "memory"].map(|name| {
            let region = if name == "file" { region.clone() } else { Region::zeroed(LEN).unwrap() };
            job.publish(name, region, Rights::ALL).unwrap()
        });
        file.set_len(8192).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("file").unwrap();
        job.barrier().unwrap();
        let error = there.put_copy(8192, &[1; 100]).unwrap().wait_for(PATIENCE).unwrap_err();
        assert_eq!(error.refusal(), Some(RefusalReason::Lost));
        assert!(error.to_string().contains("the file they belong to was truncated"), "{error}");
        there.put_copy(4096, &[1; 100]).unwrap().wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
        let refusals = job.refused_accesses();
        assert_eq!(refusals.len(), 1);
        assert_eq!(refusals[0].reason, RefusalReason::Lost);
        assert_eq!(refusals[0].offset, 8192);

        let own = job.register(region).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("memory").unwrap();
        for operation in [
            there.put(0, own.slice(0..20_000).unwrap()),
            there.get(0, own.slice(8192..8200).unwrap()),
        ] {
            let text = operation.wait_for(PATIENCE).unwrap_err().to_string();
            assert!(text.contains("this operation's own memory cannot be had"), "{text}");
        }
        job.barrier().unwrap();
    });
}

/// MEM-1.12: the same holds for a file that a program has lent.
#[test]
fn lent_pages_that_cannot_be_had_are_an_error() {
    pair(|job| {
        let name = format!("oikaze-file-{}-lent-{}", std::process::id(), job.rank());
        let lent =
            TruncatedFile::new(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), LEN, 8192)
                .unwrap();
        let _here = job.publish("memory", Region::zeroed(LEN).unwrap(), Rights::ALL).unwrap();
        for at in [1 - job.rank(), job.rank()] {
            let there = job.peer(at).unwrap().region("memory").unwrap();
            for (offset, len) in [(8192, 8), (0, 20_000), (8192, 200_000)] {
                let lent = &lent.bytes()[offset..offset + len];
                let put = job.scope(|scope| scope.put(&there, 0, lent)?.wait_for(PATIENCE));
                let text = put.unwrap_err().to_string();
                assert!(text.contains("this operation's own memory cannot be had"), "{text}");
            }
        }
        job.barrier().unwrap();
    });
}
