//! Registrations through the public interface, over loopback: ids, rights, growth, end, and
//! registration again.

use crate::support::{Until, pair};
use oikaze::ffi::RegionId;
use oikaze::memory::remote::{RefusalReason, RemoteId};
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const PAGE: u64 = 4096;

/// MEM-1.5: regions are named by ids. The remote id arrives in a message.
#[test]
fn transfers_by_numbers() {
    pair(|job| {
        let other = 1 - job.rank();
        let mine = job.register(Region::zeroed(10_000).unwrap()).unwrap();
        let open = job.publish("open", Region::zeroed(10_000).unwrap(), Rights::ALL).unwrap();
        mine.fill(0, 10_000, job.rank() as u8 + 1).unwrap();
        job.peer(other)
            .unwrap()
            .send(Class::Ordered, 0, &open.remote_id().to_bytes())
            .wait_for(PATIENCE)
            .unwrap();
        let told = job.receive_for(Some(other), PATIENCE).unwrap();
        let there = RemoteId::from_bytes(told.bytes()).unwrap();
        assert_eq!((there.node, there.len, there.rights), (other, 10_000, Rights::ALL));
        assert_eq!(job.remote(there).unwrap().remote_id(), there);

        let id = RegionId::from_bits(mine.id().to_bits());
        job.transfer(id, 100, there, 200, 5000).unwrap().wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
        let mut bytes = vec![0; 10_000];
        open.read(0, &mut bytes).unwrap();
        let expected = |at: usize| if (200..5200).contains(&at) { other as u8 + 1 } else { 0 };
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
        // The other node's region now has bytes of this node.
        job.fetch(there, 200, id, 0, 8).unwrap().wait_for(PATIENCE).unwrap();
        assert_eq!(mine.load_u64(0).unwrap(), 0x0101_0101_0101_0101 * (u64::from(job.rank()) + 1));
        job.barrier().unwrap();

        let text = job.transfer(id, 9_999, there, 0, 2).err().unwrap().to_string();
        assert!(
            text.contains(
                "2 bytes at offset 9999 lie outside this node's own region of 10000 bytes"
            ),
            "{text}"
        );
        assert!(job.transfer(id, u64::MAX, there, 0, 2).is_err());
        assert!(job.remote(RemoteId { node: 7, ..there }).is_err());
        drop(mine);
        for stale in [id, RegionId::from_bits(0), RegionId::from_bits(u64::MAX)] {
            let text = job.transfer(stale, 0, there, 0, 2).err().unwrap().to_string();
            assert!(text.contains("put of 2 bytes"), "{text}");
            assert!(text.contains("not registered any more"), "{text}");
            assert!(job.fetch(there, 0, stale, 0, 2).is_err());
        }
    });
}

/// A transfer by id keeps its source alive, as one by object does. The last user may drop the
/// region meanwhile.
#[test]
fn a_transfer_under_way_keeps_its_region() {
    pair(|job| {
        let open = job.publish("open", Region::zeroed(1 << 20).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("open").unwrap();
        let source = job.register(Region::zeroed(1 << 20).unwrap()).unwrap();
        source.fill(0, 1 << 20, 9).unwrap();
        let id = source.id();
        let put = job.transfer(id, 0, there.remote_id(), 0, 1 << 20).unwrap();
        drop(source);
        put.wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
        let mut bytes = vec![0; 1 << 20];
        open.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 9));
    });
}

/// MEM-1.8: deregistration waits for operations of this node and shuts peers out. Afterwards id and
/// key mean nothing.
#[test]
fn deregistered_memory_is_the_programs_again() {
    pair(|job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let open = job.publish("open", Region::zeroed(1 << 20).unwrap(), Rights::ALL).unwrap();
        let there = peer.region("open").unwrap();
        let source = job.register(Region::zeroed(1 << 20).unwrap()).unwrap();
        source.fill(0, 1 << 20, 7).unwrap();
        let (kept, id) = (source.clone(), source.id());
        let put = there.put(0, source.all());
        let memory = source.deregister().unwrap();
        assert!(put.is_done(), "it was waited for");
        put.wait().unwrap();
        memory.fill(0, 1 << 20, 0xC4).unwrap();
        job.barrier().unwrap();
        let mut bytes = vec![0; 1 << 20];
        open.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));

        // Remaining clones and slices do nothing.
        for operation in [
            there.put(0, kept.slice(0..8).unwrap()),
            there.put(0, kept.all()),
            there.get(0, kept.all()),
        ] {
            let text = operation.wait_for(PATIENCE).unwrap_err().to_string();
            assert!(
                text.contains("not registered any more") || text.contains("was removed"),
                "{text}"
            );
        }
        assert!(job.transfer(id, 0, there.remote_id(), 0, 8).is_err());
        assert!(kept.set_rights(Rights::NONE).is_err());
        assert!(kept.deregister().unwrap_err().to_string().contains("not registered any more"));
        job.barrier().unwrap();

        // The key of the peers means nothing any more, and they do not find the name.
        let memory = open.deregister().unwrap();
        memory.fill(0, 1 << 20, 0xC4).unwrap();
        job.barrier().unwrap();
        let refused = there
            .put(0, job.register(memory.clone()).unwrap().all())
            .wait_for(PATIENCE)
            .unwrap_err();
        assert_eq!(refused.refusal(), Some(RefusalReason::UnknownKey));
        job.barrier().unwrap();
        memory.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0xC4));
    });
}

/// MEM-1.8: deregistration also waits for an operation that was left to another thread, because
/// that thread was in the engine.
#[test]
fn what_was_asked_for_before_is_waited_for_whoever_is_in_the_engine() {
    pair(|job| {
        let _open = job.publish("open", Region::zeroed(4096).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("open").unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Until(&over);
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = job.statistics();
                }
            });
            let lost = (0..500).filter(|_| {
                let source = job.register(Region::zeroed(4096).unwrap()).unwrap();
                let put = there.put(0, source.all());
                source.deregister().unwrap();
                put.wait_for(PATIENCE).is_err()
            });
            assert_eq!(lost.count(), 0);
        });
        job.barrier().unwrap();
    });
}

/// MEM-1.8: the same memory gets a new id and a new key, and the name leads to it.
#[test]
fn memory_registered_again() {
    pair(|job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let first = job.publish("open", Region::zeroed(4096).unwrap(), Rights::ALL).unwrap();
        let (id, old) = (first.id(), peer.region("open").unwrap());
        let clone = first.clone();
        job.barrier().unwrap();
        let second = first.reregister(Rights::WRITE).unwrap();
        drop(clone);
        assert_ne!(second.id(), id);
        job.barrier().unwrap();
        assert_eq!(
            old.put_copy(0, &[1]).unwrap().wait_for(PATIENCE).unwrap_err().refusal(),
            Some(RefusalReason::UnknownKey)
        );
        let new = peer.region("open").unwrap();
        assert_eq!(new.rights(), Rights::WRITE);
        new.put_copy(0, &[2]).unwrap().wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
        let mut byte = [0];
        second.read(0, &mut byte).unwrap();
        assert_eq!(byte, [2]);
    });
}

/// MEM-1.5: kept clones and slices never mean a later registration in the same slot.
#[test]
fn an_old_handle_never_means_a_later_registration() {
    /// Number of uses of a slot, which exceeds the bits of its use counter.
    const AS_OFTEN: usize = 1 << 12;
    pair(|job| {
        let open = job.publish("open", Region::zeroed(64).unwrap(), Rights::ALL).unwrap();
        job.barrier().unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("open").unwrap();
        let mut region = job.register(Region::zeroed(64).unwrap()).unwrap();
        let (old, stale) = (region.clone(), region.all());
        for _ in 0..AS_OFTEN {
            region = region.reregister(Rights::READ).unwrap();
        }
        region.store_u64(0, 7).unwrap();
        for (refused, why) in [
            (there.put(0, &stale), "not registered any more"),
            (there.get(0, &stale), "was removed"),
        ] {
            let text = refused.wait().unwrap_err().to_string();
            assert!(text.contains(why), "{text}");
        }
        assert_eq!((old.rights(), region.rights()), (Rights::NONE, Rights::READ));
        assert!(old.set_rights(Rights::ALL).is_err());
        assert!(old.deregister().is_err());
        assert_eq!(region.rights(), Rights::READ);
        there.put(0, region.all()).wait().unwrap();
        job.barrier().unwrap();
        assert_eq!(open.load_u64(0), Ok(7));
    });
}

/// MEM-1.6, MEM-1.7, MEM-1.9: rights of pages change at run time. Both sides learn what was refused
/// and why.
#[test]
fn rights_of_pages() {
    pair(|job| {
        let here =
            job.publish("here", Region::zeroed(4 * PAGE as usize).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("here").unwrap();
        here.protect(PAGE..2 * PAGE, Rights::READ).unwrap();
        job.barrier().unwrap();
        let refused = |offset, len: usize| {
            there.put_copy(offset, &vec![1; len]).unwrap().wait_for(PATIENCE).unwrap_err()
        };
        for (offset, len) in [(PAGE, 8), (PAGE - 1, 2), (2 * PAGE - 1, 1), (100, 4096)] {
            let error = refused(offset, len);
            assert_eq!(error.refusal(), Some(RefusalReason::NotPermitted));
            let text = error.to_string();
            let what = format!(
                "put of {len} bytes at offset {offset} of region \"here\" on node {}",
                1 - job.rank()
            );
            assert!(text.contains(&what) && text.contains("Puts take the right write"), "{text}");
        }
        there.put_copy(0, &[5; 4096]).unwrap().wait_for(PATIENCE).unwrap();
        there.put_copy(2 * PAGE, &[6; 100]).unwrap().wait_for(PATIENCE).unwrap();
        assert!(there.fetch_add(PAGE + 8, 1).wait_for(PATIENCE).is_err());
        let own = job.register(Region::zeroed(4096).unwrap()).unwrap();
        there.get(PAGE, own.all()).wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();

        let seen = job.refused_accesses();
        assert_eq!(seen.len(), 5);
        assert_eq!((seen[1].from, seen[1].offset, seen[1].len), (1 - job.rank(), PAGE - 1, 2));
        assert_eq!(
            seen[0].to_string(),
            format!(
                "node {}: put of 8 bytes at offset 4096 of region \"here\", which takes the right write: the region does not grant this right",
                1 - job.rank()
            )
        );
        assert_eq!((seen[4].operation, seen[4].right), ("atomic", Rights::ATOMIC));

        here.set_rights(Rights::READ).unwrap();
        job.barrier().unwrap();
        assert_eq!(
            job.peer(1 - job.rank()).unwrap().region("here").unwrap().rights(),
            Rights::READ
        );
        assert_eq!(refused(0, 1).refusal(), Some(RefusalReason::NotPermitted));
        job.barrier().unwrap();
        let text = here.protect(1..PAGE, Rights::ALL).unwrap_err().to_string();
        assert!(
            text.contains("bytes 1..4096 of a region of 16384 bytes are not whole pages"),
            "{text}"
        );
    });
}

/// MEM-6.5: a peer that knows the key may use the added pages at once. A peer that looks the region
/// up learns of them.
#[test]
fn a_region_that_grows() {
    pair(|job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let here = job
            .publish("here", Region::private_with_capacity(100, 100_000).unwrap(), Rights::ALL)
            .unwrap();
        let before = peer.region("here").unwrap();
        let beyond = |len: usize| before.put_copy(100, &vec![3; len]).unwrap().wait_for(PATIENCE);
        assert_eq!(beyond(1).unwrap_err().refusal(), Some(RefusalReason::OutOfBounds));
        job.barrier().unwrap();
        here.grow(3000).unwrap();
        job.barrier().unwrap();
        beyond(2900).unwrap();
        assert_eq!(beyond(2901).unwrap_err().refusal(), Some(RefusalReason::OutOfBounds));
        assert_eq!((before.len(), peer.region("here").unwrap().len()), (100, 3000));
        job.barrier().unwrap();
        assert!(here.grow(2999).is_err() && here.grow(1 << 30).is_err());
    });
}

#[test]
fn what_is_no_remote_id() {
    let id = RemoteId { key: 5, len: 6, node: 7, rights: Rights::READ };
    let bytes = id.to_bytes();
    assert_eq!(RemoteId::from_bytes(&bytes), Some(id));
    assert_eq!(RemoteId::from_bytes(&bytes[..23]), None);
    assert_eq!(RemoteId::from_bytes(&[&bytes[..], &[0]].concat()), None);
    for damaged in [20, 21, 23] {
        let mut bytes = bytes;
        bytes[damaged] = 0xFF;
        assert_eq!(RemoteId::from_bytes(&bytes), None, "byte {damaged}");
    }
}
