//! Mistakes with memory of other nodes: regions and FIFOs.

use super::*;

/// Runs an operation that must fail, on both nodes of a job of two. Its error must have `words`.
fn remote(
    words: &[&str],
    rights: Rights,
    operation: impl Fn(&Job, &oikaze::memory::remote::RemoteRegion) -> Operation<u64> + Sync,
) {
    cluster(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::zeroed(4096).unwrap(), rights).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        failure(operation(&job, &there).wait_for(PATIENCE), words);
        job.barrier().unwrap();
    });
}

#[test]
fn regions_that_nobody_published() {
    // The limit allows an answer on any machine, because the name is looked up until then.
    const LIMIT: Duration = Duration::from_secs(2);
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        failure(
            peer.region_for("inbox", LIMIT).map(drop),
            &["region \"inbox\" of node", "nothing at all", "waited for 2 s"],
        );
        job.barrier().unwrap();
        let _a = job.publish("results", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
        let _b = job.publish("tasks", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
        job.barrier().unwrap();
        failure(
            peer.region_for("inbox", LIMIT).map(drop),
            &["\"results\", \"tasks\"", "mend the name"],
        );
        failure(
            job.publish("tasks", Region::zeroed(8).unwrap(), Rights::ALL).map(drop),
            &["\"tasks\"", "withdraw it first"],
        );
        failure(peer.region("").map(drop), &["cannot be a name"]);
        failure(peer.region(&"n".repeat(49)).map(drop), &["1 to 48 bytes"]);
        failure(
            job.publish("", Region::zeroed(8).unwrap(), Rights::ALL).map(drop),
            &["cannot be a name"],
        );
        failure(job.peer(2).map(drop), &["node 2", "numbered from 0 to 1"]);
        job.barrier().unwrap();
    });
}

/// The wait for a name that never comes ends, even without a time limit.
#[test]
fn an_unknown_region_ends_without_a_time_limit() {
    cluster_once(1, &Settings::default(), |job| {
        let begun = Instant::now();
        failure(job.peer(0).unwrap().region("inbox").map(drop), &["waited for 10 s"]);
        assert!(begun.elapsed() < PATIENCE);
    });
}

#[test]
fn offsets_outside_a_region() {
    for offset in [4096, 1 << 40, u64::MAX - 7] {
        let words = [
            &format!("at offset {offset} of region \"inbox\" on node "),
            "Compare with the length of the region",
        ];
        remote(&words, Rights::ALL, |_, there| there.fetch_add(offset, 1));
    }
    cluster(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::zeroed(4096).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        let local = job.register(Region::zeroed(100_000).unwrap()).unwrap();
        for (offset, len) in
            [(4095, 2), (0, 4097), (0, 100_000), (u64::MAX, 1), (u64::MAX - 4096, 8192), (5000, 0)]
        {
            let place = format!("of {len} bytes at offset {offset} of region \"inbox\"");
            let words = [place.as_str(), "outside", "length of the region"];
            failure(there.put(offset, local.slice(0..len).unwrap()).wait_for(PATIENCE), &words);
            failure(there.get(offset, local.slice(0..len).unwrap()).wait_for(PATIENCE), &words);
        }
        let end = there.signal(4096, 1);
        failure(
            there.put_signal(0, local.slice(0..8).unwrap(), &end).wait_for(PATIENCE),
            &["outside"],
        );
        failure(there.put_copy(0, &[0; 4097]).map(drop), &["put_copy takes up to 4096 bytes"]);
        failure(local.slice(99_999..100_001).map(drop), &["the region has 100000 bytes"]);
        // An empty range anywhere inside the region is not a mistake.
        for offset in [0, 4096] {
            there.put(offset, local.slice(0..0).unwrap()).wait_for(PATIENCE).unwrap();
            there.get(offset, local.slice(7..7).unwrap()).wait_for(PATIENCE).unwrap();
            there.put_copy(offset, &[]).unwrap().wait_for(PATIENCE).unwrap();
        }
        there.peer().send(Class::Ordered, 1, &[]).wait_for(PATIENCE).unwrap();
        assert!(job.receive_for(None, PATIENCE).unwrap().bytes().is_empty());
        job.barrier().unwrap();
    });
}

#[test]
fn rights_that_were_not_granted() {
    cluster(2, &Settings::default(), |job| {
        let local = job.register(Region::zeroed(8).unwrap()).unwrap();
        let mut held = Vec::new();
        for (name, rights) in [("r", Rights::READ), ("w", Rights::WRITE), ("a", Rights::ATOMIC)] {
            held.push(job.publish(name, Region::zeroed(8).unwrap(), rights).unwrap());
        }
        let region = |name| job.peer(1 - job.rank()).unwrap().region(name).unwrap();
        let words = ["Its owner decides, when it publishes the region"];
        for name in ["w", "a"] {
            failure(region(name).get(0, local.all()).wait_for(PATIENCE), &words);
        }
        for name in ["r", "a"] {
            failure(region(name).put(0, local.all()).wait_for(PATIENCE), &words);
        }
        for name in ["r", "w"] {
            failure(region(name).fetch_add(0, 1).wait_for(PATIENCE), &words);
        }
        job.barrier().unwrap();
    });
}

#[test]
fn words_that_are_not_aligned() {
    remote(&["fetch-add", "Use an offset that is a multiple of 8"], Rights::ALL, |_, there| {
        there.fetch_add(12, 1)
    });
    remote(&["compare-exchange", "multiple of 8"], Rights::ALL, |_, there| {
        there.compare_exchange(1, 0, 1)
    });
}

/// A region's key ends with its registration. A peer that kept the key is told to look the region
/// up again.
#[test]
fn a_region_that_was_withdrawn() {
    cluster(2, &Settings::default(), |job| {
        let inbox = job.publish("inbox", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        there.fetch_add(0, 1).wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
        drop(inbox);
        job.barrier().unwrap();
        failure(
            there.fetch_add(0, 1).wait_for(PATIENCE),
            &["fetch-add", "\"inbox\"", "Ask the peer for the region again"],
        );
        job.barrier().unwrap();
    });
}

#[test]
fn memory_that_cannot_be_had() {
    failure(Region::zeroed(0).map_err(Error::from), &["0 bytes makes no sense"]);
    failure(Region::shared(1 << 45).map_err(Error::from), &["available"]);
    failure(Region::shared(usize::MAX).map_err(Error::from), &["1 byte to 2^47 bytes"]);
    failure(Region::zeroed(usize::MAX).map_err(Error::from), &["1 byte to 2^47 bytes"]);
}

#[test]
fn arrays_that_cannot_be_accumulated() {
    use oikaze::collective::operator::{Max, Sum};
    cluster(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::zeroed(4096).unwrap(), Rights::ATOMIC).unwrap();
        let _closed = job.publish("closed", Region::zeroed(4096).unwrap(), Rights::WRITE).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let (there, closed) = (peer.region("inbox").unwrap(), peer.region("closed").unwrap());
        let source = job.register(Region::zeroed(4096).unwrap()).unwrap();
        let slice = |len: usize| source.slice(0..len).unwrap();
        let long = vec![0_u64; 513];
        failure(
            there.accumulate::<u64>(0, Sum, slice(12)).map(drop),
            &["accumulate of 12 bytes", "whole number"],
        );
        failure(
            there.accumulate_copy(0, Sum, &long).map(drop),
            &["4104 bytes", "up to 4096 bytes", "scope"],
        );
        let sum = |offset, len| {
            there.accumulate::<u64>(offset, Sum, slice(len)).unwrap().wait_for(PATIENCE)
        };
        for len in [8, 2048] {
            failure(sum(4, len), &["accumulate", "at offset 4 of region \"inbox\"", "aligned"]);
            failure(sum(4096, len), &["outside the region", "length of the region"]);
            failure(sum(u64::MAX - 7, len), &["outside the region"]);
            let refused = closed.accumulate::<f32>(0, Max, slice(len)).unwrap();
            failure(
                refused.wait_for(PATIENCE),
                &["does not grant this right", "Its owner decides"],
            );
        }
        sum(4096, 0).unwrap();
        job.barrier().unwrap();
    });
}

#[test]
fn what_can_go_wrong_with_a_fifo() {
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let fifo = job.fifo("work", 2, 16).unwrap();
        let _region = job
            .publish("inbox", Region::zeroed(4096).unwrap(), Rights::WRITE | Rights::ATOMIC)
            .unwrap();
        let _all = job.publish("all", Region::zeroed(4096).unwrap(), Rights::ALL).unwrap();
        failure(job.fifo("work", 2, 16).map(drop), &["\"work\"", "withdraw it first"]);
        failure(
            job.fifo("none", 2, 0).map(drop),
            &["FIFO \"none\" of 2 slots of 0 bytes", "1 to 1048576 bytes"],
        );
        failure(job.fifo("many", 1 << 25, 8).map(drop), &["16777216 slots"]);
        failure(
            peer.fifo("inbox").map(drop),
            &["FIFO \"inbox\" of node", "its owner makes a FIFO"],
        );
        failure(peer.fifo("all").unwrap().try_push(b"x"), &["push of 1 bytes", "there is no FIFO"]);
        failure(
            fifo.pop_for(&mut Vec::new(), SHORT),
            &["waiting for an element of FIFO \"work\"", "not done after "],
        );
        job.barrier().unwrap();
        let there = peer.fifo("work").unwrap();
        failure(there.try_push(&[0; 17]), &["push of 17 bytes", "longer than the FIFO's slots"]);
        failure(
            peer.region("work").unwrap().put_copy(0, &[1; 8]).unwrap().wait_for(PATIENCE),
            &["does not grant this right"],
        );
        there.try_push(b"one").unwrap();
        there.push_for(b"two", PATIENCE).unwrap();
        let full = there.try_push(b"three").err().unwrap();
        assert!(full.is_full());
        failure(Err::<(), _>(full), &["the FIFO is full", "take elements out faster"]);
        // The answer to the last attempt may come after the limit.
        let full = there.push_for(b"three", SHORT).err().unwrap();
        assert!(full.is_full() || full.is_timeout(), "{full}");
        assert!(!full.is_full() || full.to_string().contains("waited for "), "{full}");
        let _refused = job.flush();
        job.barrier().unwrap();
        let mut element = Vec::new();
        while fifo.try_pop(&mut element).unwrap() {}
        assert_eq!(element, b"onetwo");
        drop(fifo);
        job.barrier().unwrap();
        failure(there.try_push(b"late"), &["no region has this key"]);
        job.barrier().unwrap();
    });
}
