//! Registrations that begin and end while a peer writes. No byte changes after the end, even if the
//! memory has another owner.
//!
//! `make test` runs 10^4 registrations. `make soak` sets OIKAZE_REGISTRATIONS to 10^6.

use crate::support::{Until, cluster, cluster_once, over_the_network};
use oikaze::Job;
use oikaze::completion::Operation;
use oikaze::memory::remote::{RefusalReason, RemoteId, RemoteRegion};
use oikaze::memory::{LocalRegion, Region, Rights};
use oikaze_launch::Settings;
use oikaze_protocol::random::Random;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit of a wait for a name that may just be withdrawn.
const LOOKUP_LIMIT: Duration = Duration::from_millis(5);
const CANARY: u8 = 0xC4;
const LENS: [usize; 8] = [8, 64, 500, 4096, 9000, 30_000, 100_000, 300_000];

/// State that both sides share: regions that a peer may write now, and the outcomes of the writes.
#[derive(Default)]
struct Board {
    open: Mutex<[Option<RemoteId>; LENS.len()]>,
    over: AtomicBool,
    done: AtomicU64,
    refused: AtomicU64,
    /// Number of writes that had ended when the call that began them returned.
    direct: AtomicU64,
}

/// Way in which the writer reaches the regions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// By the keys on the board.
    Told,
    /// By mapping the region that a name leads to.
    Mapped,
}

impl Reach {
    fn memory(self, len: usize) -> Region {
        let shared = self == Reach::Mapped || len.is_multiple_of(3);
        if shared { Region::shared(len) } else { Region::private(len) }.unwrap()
    }

    fn open(self, job: &Job, which: usize, memory: &Region) -> LocalRegion {
        let memory = memory.clone();
        match self {
            Reach::Told => job.expose(memory, Rights::ALL),
            Reach::Mapped => job.publish(&which.to_string(), memory, Rights::ALL),
        }
        .unwrap()
    }
}

fn is_untouched(memory: &Region) -> bool {
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes).unwrap();
    bytes.iter().all(|byte| *byte == CANARY)
}

fn owner(job: &Job, board: &Board, reach: Reach, count: u64) {
    let over = Until(&board.over);
    let memories = LENS.map(|len| reach.memory(len));
    memories.iter().for_each(|memory| memory.fill(0, memory.len() as u64, CANARY).unwrap());
    let mut open = LENS.map(|_| None::<LocalRegion>);
    // Regions that hold a piece of memory between two registrations. They may only be read.
    let mut others = LENS.map(|_| None);
    let (mut random, mut begun) = (Random::new(7), 0);
    while begun < count {
        let which = random.below(LENS.len());
        let memory = &memories[which];
        let now = match open[which].take() {
            None => {
                assert!(
                    is_untouched(memory),
                    "{} bytes were written after the end of a registration, {begun}",
                    memory.len()
                );
                drop(others[which].take());
                begun += 1;
                tell_progress(begun, count);
                Some(reach.open(job, which, memory))
            }
            Some(region) if random.below(4) == 0 => {
                begun += 1;
                Some(region.reregister(Rights::ALL).unwrap())
            }
            Some(region) => {
                assert_eq!(region.deregister().unwrap().view_ptr(), memory.view_ptr());
                memory.fill(0, memory.len() as u64, CANARY).unwrap();
                others[which] = (random.below(2) == 0)
                    .then(|| job.expose(memory.clone(), Rights::READ).unwrap());
                None
            }
        };
        board.open.lock().unwrap()[which] = now.as_ref().map(LocalRegion::remote_id);
        open[which] = now;
        // Waits for a random time of a few microseconds, so that writes are in progress.
        let _ = job.receive_for(None, Duration::from_micros(10 * random.below(4) as u64));
    }
    for (region, memory) in open.into_iter().zip(&memories) {
        if let Some(region) = region {
            region.deregister().unwrap();
            memory.fill(0, memory.len() as u64, CANARY).unwrap();
        }
    }
    drop(over);
    // Writes in flight may arrive until the other node has seen the end.
    job.barrier().unwrap();
    assert!(memories.iter().all(is_untouched));
}

/// Prints progress, because a soak takes long.
fn tell_progress(begun: u64, count: u64) {
    if begun.is_multiple_of(100_000) {
        println!("{begun} of {count} registrations");
    }
}

/// Regions that the writer knows, by key or by name.
struct Known {
    found: [Option<RemoteRegion>; LENS.len()],
    owner: oikaze::Peer,
    reach: Reach,
}

impl Known {
    fn new(job: &Job, reach: Reach) -> Self {
        let owner = job.peer(0).unwrap();
        Self { found: Default::default(), owner, reach }
    }

    /// Returns the region of this number, whose id the owner has put on the board.
    fn region(&mut self, job: &Job, which: usize, id: RemoteId) -> Option<RemoteRegion> {
        if self.reach == Reach::Told {
            return Some(job.remote(id).unwrap());
        }
        let found = &mut self.found[which];
        if found.as_ref().is_none_or(|found| found.remote_id().key != id.key) {
            // The region may be gone, or replaced, by now.
            *found = self.owner.region_for(&which.to_string(), LOOKUP_LIMIT).ok();
        }
        found.clone()
    }
}

fn writer(job: &mut Job, board: &Board, reach: Reach) {
    let mut known = Known::new(job, reach);
    let job = &*job;
    let source = job.register(Region::zeroed(300_000).unwrap()).unwrap();
    source.fill(0, 300_000, 0x11).unwrap();
    let mut under_way: VecDeque<Operation<()>> = VecDeque::new();
    let mut random = Random::new(9);
    let settle = |operation: Operation<()>| match operation.wait_for(PATIENCE) {
        Ok(()) => board.done.fetch_add(1, Ordering::Relaxed),
        Err(error) => {
            assert_eq!(error.refusal(), Some(RefusalReason::UnknownKey), "{error}");
            board.refused.fetch_add(1, Ordering::Relaxed)
        }
    };
    while !board.over.load(Ordering::Acquire) {
        let open = *board.open.lock().unwrap();
        for (which, id) in open.into_iter().enumerate() {
            let Some(there) = id.and_then(|id| known.region(job, which, id)) else { continue };
            let offset = random.below(there.len() as usize) as u64;
            let len = 1 + random.below((there.len() - offset) as usize) as u64;
            let put = match len {
                ..=64 => there.put_copy(offset, &[0x22; 64][..len as usize]).unwrap(),
                _ => there.put(offset, source.slice(0..len as usize).unwrap()),
            };
            board.direct.fetch_add(u64::from(put.is_done()), Ordering::Relaxed);
            under_way.push_back(put);
        }
        while under_way.len() > 16 {
            settle(under_way.pop_front().unwrap());
        }
    }
    under_way.into_iter().for_each(|operation| {
        settle(operation);
    });
    job.barrier().unwrap();
}

fn registrations(settings: &Settings, reach: Reach, count: u64) {
    let board = Board::default();
    cluster_once(2, settings, |mut job| match job.rank() {
        0 => owner(&job, &board, reach, count),
        _ => writer(&mut job, &board, reach),
    });
    let Board { done, refused, direct, .. } = board;
    let (done, refused, direct) = (done.into_inner(), refused.into_inner(), direct.into_inner());
    println!(
        "{count} registrations against {done} puts that were done, {direct} of them when the call returned, and {refused} that were refused"
    );
    assert!(done > 0 && refused > 0 && (direct > done / 2 || reach == Reach::Told));
}

fn count() -> u64 {
    std::env::var("OIKAZE_REGISTRATIONS")
        .ok()
        .map_or(10_000, |text| text.parse().expect("a number"))
}

/// MEM-1.8, MEM-3.4.
#[test]
fn no_byte_changes_after_a_registration_has_ended() {
    registrations(&over_the_network(&Settings::default()), Reach::Told, count());
    registrations(&Settings::default(), Reach::Told, count());
}

/// MEM-18.3: nor by a local peer that had mapped the region.
#[test]
fn no_byte_changes_in_what_was_mapped() {
    registrations(&Settings::default(), Reach::Mapped, count());
}

/// The same with late, doubled and reordered datagrams. A retransmission may find its region gone.
#[test]
fn no_byte_changes_on_a_bad_network_either() {
    let fault = Some("loss=0.05,duplicate=0.05,reorder=0.1,seed=11".to_owned());
    registrations(&Settings { fault, ..Settings::default() }, Reach::Told, count() / 10);
}

/// MEM-1.8: threads that begin operation after operation with a clone do not delay the end of its
/// registration. Each of their operations ends.
#[test]
fn who_goes_on_with_a_clone_is_told_that_the_region_is_gone() {
    const ROUNDS: usize = 100;
    cluster(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::private(1 << 20).unwrap(), Rights::ALL).unwrap();
        job.barrier().unwrap();
        if job.rank() == 0 {
            let there = &job.peer(1).unwrap().region("inbox").unwrap();
            for round in 0..ROUNDS {
                let region = job.register(Region::zeroed(40_000).unwrap()).unwrap();
                let begun = &AtomicU64::new(0);
                std::thread::scope(|scope| {
                    let source = region.all();
                    let other = scope.spawn(move || {
                        let mut under_way = VecDeque::new();
                        let gone = loop {
                            under_way.push_back(there.put(0, source.clone()));
                            begun.fetch_add(1, Ordering::Relaxed);
                            if under_way.len() > 8
                                && let Err(error) = under_way
                                    .pop_front()
                                    .map_or(Ok(()), |put| put.wait_for(PATIENCE))
                            {
                                break error;
                            }
                        };
                        assert!(gone.to_string().contains("not registered"), "{round}: {gone}");
                        // Some operations were begun before the end, none afterwards, and none is
                        // left.
                        for put in under_way {
                            let outcome = put.wait_for(PATIENCE);
                            assert!(
                                outcome.as_ref().err().is_none_or(|error| error
                                    .to_string()
                                    .contains("not registered")),
                                "{outcome:?}"
                            );
                        }
                    });
                    while begun.load(Ordering::Relaxed) < 20 && !other.is_finished() {
                        std::thread::yield_now();
                    }
                    region.deregister().unwrap();
                });
            }
        }
        job.barrier().unwrap();
    });
}

/// MEM-6.1: of two clones that end at once, one ends the registration and has the name.
#[test]
fn of_two_clones_that_end_at_once_one_has_the_name() {
    cluster(2, &Settings::default(), |job| {
        let mut region = job.publish("mine", Region::zeroed(4096).unwrap(), Rights::ALL).unwrap();
        for _ in 0..200 {
            let both = std::thread::scope(|scope| {
                let both = [region.clone(), region]
                    .map(|clone| scope.spawn(move || clone.reregister(Rights::READ)));
                both.map(|ended| ended.join().unwrap())
            });
            let [Ok(renewed), Err(error)] = (if both[0].is_ok() {
                both
            } else {
                let [first, second] = both;
                [second, first]
            }) else {
                panic!("one of two ends it")
            };
            assert!(error.to_string().contains("not registered"), "{error}");
            region = renewed;
            let found = job.peer(job.rank()).unwrap().region("mine").unwrap();
            assert_eq!(found.remote_id().key, region.remote_id().key);
        }
        job.barrier().unwrap();
    });
}

/// MEM-1.8, MEM-7.6: a wait for a word of a deregistered region fails. It fails for a thread that
/// drives, for one that sleeps beside it, and for one that comes later.
#[test]
fn who_waits_for_a_word_is_told_that_its_region_is_gone() {
    for settings in [Settings::default(), over_the_network(&Settings::default())] {
        cluster_once(2, &settings, |job| {
            let region = job.expose(Region::shared(4096).unwrap(), Rights::ALL).unwrap();
            let wait = |word: &LocalRegion| {
                word.wait_until_for(0, PATIENCE, |word| word != 0).unwrap_err().to_string()
            };
            let late = region.clone();
            std::thread::scope(|threads| {
                let waiters =
                    [region.clone(), region.clone()].map(|word| threads.spawn(move || wait(&word)));
                region.deregister().unwrap();
                for waiter in waiters {
                    let gone = waiter.join().unwrap();
                    assert!(gone.contains("not registered any more"), "{gone}");
                }
            });
            // A value that was stored before is still seen.
            late.store_u64(0, 7).unwrap();
            assert_eq!(late.wait_until(0, |word| word == 7).unwrap(), 7);
            assert!(
                late.wait_until(0, |word| word == 8)
                    .unwrap_err()
                    .to_string()
                    .contains("not registered any more")
            );
            job.barrier().unwrap();
        });
    }
}
