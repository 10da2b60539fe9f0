//! Copies of remote memory, offsets in elements, and messages that are passed on.

use oikaze::job::Feature;
use oikaze::prelude::*;
use oikaze::testing::cluster_with;

#[test]
fn copies_and_elements_are_those_of_the_peer() {
    for settings in [Job::builder(), Job::builder().without([Feature::Shm])] {
        cluster_with(2, settings, |job| {
            let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC;
            let mine = job.publish("numbers", Region::shared(4099)?, rights)?;
            let own: Vec<u8> = (0..4099).map(|i| (i * 7 + job.rank() as usize) as u8).collect();
            mine.write(0, &own)?;
            job.barrier()?;
            let other = 1 - job.rank();
            let there = job.peer(other)?.region("numbers")?;
            let byte = |i: usize| (i * 7 + other as usize) as u8;
            assert_eq!(there.get_copy(0, 4099)?, (0..4099).map(byte).collect::<Vec<_>>());
            assert!(there.get_copy(4099, 0)?.is_empty());
            assert_eq!(there.get_value::<[u8; 3]>(4096)?, [4096, 4097, 4098].map(byte));
            for (offset, len) in [(4099, 1), (0, 4100), (u64::MAX, 2), (0, usize::MAX)] {
                let text = there.get_copy(offset, len).unwrap_err().to_string();
                assert!(text.contains("the region has 4099 bytes"), "{text}");
            }
            job.barrier()?;
            let words = there.elements::<u32>();
            assert_eq!((words.len(), words.is_empty(), words.offset(9)), (1024, false, 36));
            words.put_copy(1000, &[5, 6, 7])?.wait()?;
            words.accumulate_copy(1001, Max, &[9, 1])?.wait()?;
            assert_eq!(words.get(1000..1003)?, [5, 9, 7]);
            assert_eq!(words.get_value(1001)?, 9);
            let source = job.register(Region::zeroed(8)?)?;
            words.put(1000, source.all()).wait()?;
            assert_eq!(words.get(1000..1002)?, [0, 0]);
            assert!(words.get(1024..1026).is_err() && words.get_value(1025).is_err());
            assert!(words.get(std::ops::Range { start: 3, end: 1 }).is_err());
            assert!(words.get_value(u64::MAX).is_err());
            Ok(job.barrier()?)
        });
    }
}

#[test]
fn messages_are_passed_on_round_the_nodes() {
    for settings in [Job::builder(), Job::builder().without([Feature::Shm])] {
        cluster_with(3, settings, |job| {
            let (me, n) = (job.rank(), job.size());
            let next = job.peer((me + 1) % n)?;
            for len in [0, 5, 33, 100_000] {
                let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
                if me == 0 {
                    next.send(Class::Ordered, 4, &sent).wait()?;
                }
                let message = job.receive(Some((me + n - 1) % n))?;
                assert_eq!((message.bytes(), message.tag()), (&sent[..], 4));
                if me != 0 {
                    next.forward(Class::Ordered, 4, message).wait()?;
                }
            }
            Ok(job.barrier()?)
        });
    }
}
