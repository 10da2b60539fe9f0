//! Properties of remote memory that hold on every path of an access: to the node itself, over the
//! network, through rings, into mapped memory.

use crate::support::{cluster_once, over_the_network};
use oikaze::collective::operator::Sum;
use oikaze::completion::Operation;
use oikaze::memory::remote::{RefusalReason, RemoteRegion};
use oikaze::memory::{LocalRegion, Region, Rights};
use oikaze::message::Class;
use oikaze::{Error, Job, Peer};
use oikaze_launch::Settings;
use std::sync::Barrier;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const PAGE: u64 = 4096;
/// Length of many fragments, which exceeds a ring.
const LEN: u64 = 100 * PAGE;

/// One end of a job, or both ends.
struct End<'j> {
    job: &'j Job,
    /// Peer whose memory is reached.
    target: Peer,
    shared: bool,
    /// Barrier of all ends that sends no message.
    all: &'j Barrier,
}

impl End<'_> {
    fn region(&self) -> Region {
        if self.shared {
            Region::shared(LEN as usize).unwrap()
        } else {
            Region::zeroed(LEN as usize).unwrap()
        }
    }

    /// Runs `ask` on the requesting node while the other node waits.
    fn ask(&self, ask: impl FnOnce()) {
        if self.job.rank() == 0 {
            ask();
        }
        self.job.barrier().unwrap();
    }

    /// Runs `serve` on the target node while the other node waits.
    fn serve(&self, serve: impl FnOnce()) {
        if self.job.rank() == self.target.rank() {
            serve();
        }
        self.job.barrier().unwrap();
    }

    fn source(&self, byte: u8) -> LocalRegion {
        let source = self.job.register(Region::zeroed(LEN as usize).unwrap()).unwrap();
        source.fill(0, LEN, byte).unwrap();
        source
    }
}

fn each_way(program: impl Fn(&End<'_>) + Sync) {
    let network = over_the_network(&Settings::default());
    for (nodes, settings, shared) in [
        (1, Settings::default(), false),
        (2, network, false),
        (2, Settings::default(), false),
        (2, Settings::default(), true),
    ] {
        let all = Barrier::new(nodes as usize);
        cluster_once(nodes, &settings, |job| {
            program(&End { job: &job, target: job.peer(nodes - 1).unwrap(), shared, all: &all });
        });
    }
}

fn refusal<T: oikaze::completion::Outcome>(operation: Operation<T>) -> Option<RefusalReason> {
    operation
        .wait_for(PATIENCE)
        .err()
        .map(|error| error.refusal().unwrap_or_else(|| panic!("{error}")))
}

/// MEM-1.6, MEM-1.7: changed rights are in force when the call returns, also for peers that have
/// looked up or mapped the region before.
#[test]
fn rights_change_page_by_page_while_the_region_is_used() {
    each_way(|end| {
        let mine = end.job.publish("mine", end.region(), Rights::ALL).unwrap();
        let there = end.target.region("mine").unwrap();
        let source = end.source(7);
        // Returns the refusals of a short put and a long one, each from this page on, and of a get,
        // a word, numbers and a signal in that page.
        let refused = |there: &RemoteRegion, page: u64| {
            let (at, short) = (page * PAGE, source.slice(0..8).unwrap());
            [
                refusal(there.put(at, &short)),
                refusal(there.put(at, source.slice(0..50 * PAGE as usize).unwrap())),
                refusal(there.get(at, source.slice(0..50 * PAGE as usize).unwrap())),
                refusal(there.fetch_add(at, 1)),
                refusal(there.accumulate::<u64>(at, Sum, short.clone()).unwrap()),
                refusal(there.put_signal(60 * PAGE, &short, &there.signal(at, 1))),
            ]
        };
        let no = Some(RefusalReason::NotPermitted);
        end.ask(|| assert_eq!(refused(&there, 0), [None; 6]));
        end.serve(|| mine.protect(PAGE..2 * PAGE, Rights::READ).unwrap());
        end.ask(|| {
            assert_eq!(refused(&there, 1), [no, no, None, no, no, no]);
            assert_eq!(
                refused(&there, 0),
                [None, no, None, None, None, None],
                "the long one reaches the page"
            );
            assert_eq!(refused(&there, 2), [None; 6]);
        });
        end.serve(|| mine.set_rights(Rights::ATOMIC).unwrap());
        end.ask(|| {
            assert_eq!(refused(&there, 1), [no, no, no, None, None, no]);
            assert_eq!(
                refused(&end.target.region("mine").unwrap(), 1),
                [no, no, no, None, None, no]
            );
        });
        end.serve(|| mine.set_rights(Rights::ALL).unwrap());
        end.ask(|| assert_eq!(refused(&there, 1), [None; 6]));
    });
}

/// MEM-1.8: a region that is registered again is another region. Peers that know the first one get
/// an error.
#[test]
fn memory_is_registered_again() {
    each_way(|end| {
        let mine = end.job.publish("mine", end.region(), Rights::ALL).unwrap();
        let before = end.target.region("mine").unwrap();
        let (id, source) = (mine.id(), end.source(9));
        end.ask(|| before.put(0, source.all()).wait_for(PATIENCE).unwrap());
        let mine = mine.reregister(Rights::WRITE | Rights::READ).unwrap();
        assert_ne!(mine.id(), id);
        end.job.barrier().unwrap();
        let after = end.target.region("mine").unwrap();
        end.ask(|| {
            for long in [8, LEN as usize] {
                assert_eq!(
                    refusal(before.put(0, source.slice(0..long).unwrap())),
                    Some(RefusalReason::UnknownKey)
                );
                assert_eq!(
                    refusal(before.get(0, source.slice(0..long).unwrap())),
                    Some(RefusalReason::UnknownKey)
                );
            }
            assert_eq!(refusal(before.fetch_add(0, 1)), Some(RefusalReason::UnknownKey));
            assert_eq!(refusal(after.fetch_add(0, 1)), Some(RefusalReason::NotPermitted));
            source.fill(0, LEN, 3).unwrap();
            after.put(PAGE, source.slice(0..PAGE as usize).unwrap()).wait_for(PATIENCE).unwrap();
        });
        end.serve(|| {
            let mut bytes = vec![0; LEN as usize];
            mine.read(0, &mut bytes).unwrap();
            let expected = |at: usize| if at as u64 / PAGE == 1 { 3 } else { 9 };
            assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
        });
    });
}

/// MEM-15.1 to MEM-15.3: operations behind a fence take place after those before it. A flush waits
/// for both, whatever their outcome.
#[test]
fn fences_and_flushes_hold() {
    each_way(|end| {
        let mine = end.job.publish("mine", end.region(), Rights::ALL).unwrap();
        let there = end.target.region("mine").unwrap();
        for round in 1..=20_u8 {
            let source = end.source(round);
            let mut begun = Vec::new();
            if end.job.rank() == 0 {
                begun.push(there.put(8, source.slice(8..LEN as usize).unwrap()).into_bits());
                begun.push(there.fetch_add(LEN, 1));
                if round % 2 == 0 {
                    end.target.fence()
                } else {
                    end.job.fence()
                }
                begun.push(there.word::<u64>(0).store(u64::from(round)).into_bits());
            }
            if end.job.rank() == end.target.rank() {
                mine.wait_until_for(0, PATIENCE, |word| word == u64::from(round)).unwrap();
                let mut bytes = vec![0; LEN as usize - 8];
                mine.read(8, &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == round), "the word overtook the data");
            }
            // Some operations were meant to fail, and no call has waited for them yet (MEM-15.5).
            let ended = if round % 3 == 0 { end.target.flush() } else { end.job.flush() };
            let is_as_meant = |error: &Error| error.unreported().is_some();
            assert!(ended.as_ref().err().is_none_or(is_as_meant), "{ended:?}");
            let ended: Vec<_> =
                begun.iter().map(|one| one.is_done() && one.wait_for(PATIENCE).is_ok()).collect();
            assert!(ended.is_empty() || ended == [true, false, true], "{ended:?}");
            end.job.barrier().unwrap();
        }
    });
}

/// MEM-7.1: one wait covers many operations, whether they end at once, end later, or are refused.
/// Each is counted once and reported once.
#[test]
fn counters_and_queues_wake_when_enough_have_ended() {
    const EACH: u64 = 50;
    each_way(|end| {
        let mine = end.job.publish("mine", end.region(), Rights::ALL).unwrap();
        let there = end.target.region("mine").unwrap();
        let source = end.source(1);
        let begin = |n: u64| match n % 5 {
            0 => there.put(8 * PAGE, source.slice(0..8).unwrap()).into_bits(),
            1 => there.put(8 * PAGE, source.slice(0..50 * PAGE as usize).unwrap()).into_bits(),
            2 => there.get(8 * PAGE, source.slice(0..8).unwrap()).into_bits(),
            3 => there.fetch_add(0, 1),
            _ => there.fetch_add(LEN, 1),
        };
        end.ask(|| {
            let (counter, queue) = (end.job.counter(), end.job.completion_queue());
            std::thread::scope(|threads| {
                let waits = threads.spawn(|| counter.wait_for(EACH, PATIENCE));
                (0..EACH).for_each(|n| begin(n).count_in(&counter).unwrap());
                let counts = waits.join().unwrap().unwrap();
                assert_eq!((counts.succeeded, counts.failed), (EACH / 5 * 4, EACH / 5));
                let waits = threads.spawn(|| {
                    let mut told = Vec::new();
                    queue.wait_for(EACH as usize, PATIENCE, &mut told).map(|_| told)
                });
                (0..EACH).for_each(|n| begin(n).report_to(&queue, n).unwrap());
                let mut told = waits.join().unwrap().unwrap();
                told.sort_by_key(|one| one.context);
                assert!(told.iter().map(|one| one.context).eq(0..EACH));
                assert!(told.iter().all(|one| one.outcome.is_err() == (one.context % 5 == 4)));
            });
        });
        end.serve(|| assert_eq!(mine.load_u64(0).unwrap(), 2 * EACH / 5));
    });
}

/// MEM-6.5: added pages of a region are reached at once, in memory of its own and in a memory file
/// that a local peer maps.
#[test]
fn a_region_grows_while_it_is_used() {
    each_way(|end| grows(end, Region::private_with_capacity(PAGE as usize, LEN as usize).unwrap()));
    each_way(|end| grows(end, Region::shared_with_capacity(PAGE as usize, LEN as usize).unwrap()));
}

fn grows(end: &End<'_>, region: Region) {
    let mine = end.job.publish("mine", region, Rights::ALL).unwrap();
    let there = end.target.region("mine").unwrap();
    let source = end.source(4);
    let beyond = || refusal(there.put(PAGE - 8, source.slice(0..(LEN - PAGE) as usize).unwrap()));
    end.ask(|| assert_eq!(beyond(), Some(RefusalReason::OutOfBounds)));
    end.serve(|| mine.grow(LEN as usize).unwrap());
    end.ask(|| {
        assert_eq!(beyond(), None);
        assert_eq!(there.fetch_add(LEN - 8, 1).wait_for(PATIENCE).unwrap(), 0);
        assert_eq!(refusal(there.fetch_add(LEN, 1)), Some(RefusalReason::OutOfBounds));
        assert_eq!(end.target.region("mine").unwrap().len(), LEN);
    });
}

/// MEM-15.4, MEM-9.1: requests beyond the limit kept for a peer fail at once. The others take
/// place, each once.
#[test]
fn what_is_asked_for_without_end_is_bounded() {
    /// Number of requests that exceeds those held back at the requester and on the way to its
    /// engine.
    const ASKED: u64 = 70_000;
    const UNREAD: u64 = 20;
    each_way(|end| {
        let mine = end.job.publish("mine", end.region(), Rights::ALL).unwrap();
        let there = end.target.region("mine").unwrap();
        let large = end.job.register(Region::zeroed(1 << 20).unwrap()).unwrap();
        let mut begun = Vec::new();
        if end.job.rank() == 0 {
            // There is no credit for all of these messages. Until some are read, nothing behind the
            // fence is sent.
            begun.extend(
                (0..UNREAD)
                    .map(|tag| end.target.send_from(Class::Ordered, tag, large.all()).into_bits()),
            );
            end.target.fence();
            begun.extend((0..ASKED).map(|_| there.word::<u64>(0).add(1).into_bits()));
        }
        // The barrier sends no message, which might wait, too.
        end.all.wait();
        if end.job.rank() == end.target.rank() {
            (0..UNREAD).for_each(|_| drop(end.job.receive_for(None, PATIENCE).unwrap()));
        }
        let (ended, failed): (Vec<_>, Vec<_>) =
            begun.iter().map(|one| one.wait_for(PATIENCE)).partition(Result::is_ok);
        end.job.barrier().unwrap();
        let words = format!(
            "too many operations in flight to node {}: wait for some of them first",
            end.target.rank()
        );
        for failure in &failed {
            let text = failure.as_ref().unwrap_err().to_string();
            assert!(text.ends_with(&words), "{text}");
        }
        end.ask(|| {
            assert_eq!(ended.len() + failed.len(), (ASKED + UNREAD) as usize);
            assert!(!failed.is_empty(), "there is a bound");
            assert_eq!(
                there.fetch_add(0, 0).wait_for(PATIENCE).unwrap(),
                ended.len() as u64 - UNREAD
            );
        });
        end.serve(|| assert_eq!(mine.load_u64(8).unwrap(), 0));
    });
}

/// MEM-6.1, MEM-9.1: names are bounded, and a withdrawn name makes room.
#[test]
fn names_without_end_are_bounded() {
    const NAMES: usize = 4096;
    cluster_once(1, &Settings::default(), |job| {
        let memory = Region::zeroed(8).unwrap();
        let publish = |n: usize| job.publish(&format!("name {n}"), memory.clone(), Rights::ALL);
        let mut published: Vec<_> = (0..NAMES).map(|n| publish(n).unwrap()).collect();
        let more = || job.publish("more", memory.clone(), Rights::ALL);
        let text = more().expect_err("it must fail").to_string();
        assert!(text.contains("publishing region \"more\""), "{text}");
        assert!(text.contains(&NAMES.to_string()), "{text}");
        published.pop();
        more().unwrap();
        // Names that found no room leave nothing behind.
        published.push(publish(NAMES - 1).unwrap());
        let there = job.peer(0).unwrap().region("name 17").unwrap();
        assert_eq!(there.fetch_add(0, 5).wait_for(PATIENCE).unwrap(), 0);
        assert_eq!(memory.load_u64(0).unwrap(), 5);
    });
}

/// A wait for a word that keeps changing to unwanted values ends at its limit, however the changes
/// arrive.
#[test]
fn who_waits_for_a_word_that_keeps_changing_waits_no_longer_than_asked() {
    const LIMIT: Duration = Duration::from_millis(50);
    each_way(|end| {
        if end.job.size() == 1 {
            return;
        }
        let mine = end.job.publish("mine", end.region(), Rights::ALL).unwrap();
        let there = end.target.region("mine").unwrap();
        end.job.barrier().unwrap();
        if end.job.rank() == end.target.rank() {
            let late = mine.wait_until_for(0, LIMIT, |word| word == u64::MAX).unwrap_err();
            assert!(late.is_timeout(), "{late}");
            mine.store_u64(8, 1).unwrap();
        } else {
            let is_over = || there.word::<u64>(8).load().wait_for(PATIENCE).unwrap() == 1;
            let put = |word: u64| {
                there.put_copy(0, &word.to_le_bytes()).unwrap().wait_for(PATIENCE).unwrap()
            };
            (0..u64::MAX).take_while(|word| word % 64 != 0 || !is_over()).for_each(put);
        }
        end.job.barrier().unwrap();
    });
}
