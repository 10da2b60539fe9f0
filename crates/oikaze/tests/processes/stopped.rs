//! MEM-18.6: a local peer is stopped in the middle of a put into a mapped region, given up by the
//! others, and goes on later. The memory stays registered until then. Uses real processes.

use crate::processes::run_two_nodes;
use oikaze::memory::{LocalRegion, Region, Rights};
use oikaze::message::Class;
use oikaze::{Error, Job};
use oikaze_launch::Settings;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// Set for nodes: the way in which the node's memory is given back.
const ROLE: &str = "OIKAZE_TEST_ROLE";
/// Length of a put that is long enough to be found in its middle.
const LEN: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a node of a job that the other tests start. Not a test by itself.
#[test]
fn plays_its_role() {
    let Ok(way) = std::env::var(ROLE) else { return };
    let job = Job::builder().time_limit(PATIENCE).join().unwrap();
    match job.rank() {
        0 => gives_memory_and_has_it_back(&job, &way),
        _ => puts_and_is_stopped(&job),
    }
    // The other node is lost, so this node cannot leave together with it.
    std::process::exit(0);
}

fn puts_and_is_stopped(job: &Job) {
    let owner = job.peer(0).unwrap();
    owner.send(Class::Ordered, u64::from(std::process::id()), &[]).wait().unwrap();
    let there = owner.region("memory").unwrap();
    let source = job.register(Region::zeroed(LEN).unwrap()).unwrap();
    let outcome = (1..u64::MAX).find_map(|number| {
        source.fill(0, LEN as u64, number as u8).unwrap();
        there.put(0, source.all()).wait().err()
    });
    assert_eq!(outcome.as_ref().and_then(Error::lost_peer), Some(0), "{outcome:?}");
}

/// The memory is registered once, and deregistered.
const ONCE: &str = "once";
/// The memory is registered twice. The registration of the peer's put is dropped before the peer is
/// given up, or afterwards.
const DROPPED_BEFORE: &str = "dropped before";
const DROPPED_AFTERWARDS: &str = "dropped afterwards";
/// The memory is registered once and never deregistered. All handles to it are dropped.
const DROPPED_ALTOGETHER: &str = "dropped altogether";

fn gives_memory_and_has_it_back(job: &Job, way: &str) {
    let region = Region::shared(LEN).unwrap();
    let memory = job.publish("memory", region.clone(), Rights::ALL).unwrap();
    let at = memory.view_ptr();
    let other = job.receive_for(Some(1), PATIENCE).unwrap().tag();
    let stopped = Stopped::in_the_middle_of_a_put(Pid::from_raw(other as i32).unwrap(), &memory);
    if way == DROPPED_ALTOGETHER {
        drop(region);
        return drops_all_handles(job, memory, stopped);
    }
    let memory = if way == ONCE {
        memory
    } else {
        let another = job.register(region).unwrap();
        if way == DROPPED_AFTERWARDS {
            is_given_up(job);
        }
        drop(memory);
        another
    };
    if way != DROPPED_BEFORE {
        is_given_up(job);
    }
    let id = memory.id();
    // Deregistration fails on each try, in either form.
    for refused in [
        memory.deregister().unwrap_err(),
        memory.reregister(Rights::ALL).err().unwrap(),
        memory.deregister().unwrap_err(),
    ] {
        assert_eq!(refused.lost_peer(), Some(1), "{refused}");
        assert!(refused.to_string().contains("The region stays registered"), "{refused}");
    }
    assert!(is_half_done(&memory), "what has come of the put is there");
    assert_eq!((memory.id(), memory.view_ptr()), (id, at));
    // The region is closed to new accesses all the same.
    let refused = job.peer(0).unwrap().region("memory").unwrap_err();
    assert!(refused.refusal().is_some(), "{refused}");
    assert!(job.transfer(id, 0, memory.remote_id(), 0, 8).is_err());
    // The peer goes on, finishes its put, learns that it was given up, and ends.
    stopped.goes_on_to_its_end();
    let kept = memory.deregister().unwrap();
    assert_eq!(kept.view_ptr(), at);
    assert!(!is_half_done(&kept), "the put that it was in is whole");
    assert!(memory.deregister().unwrap_err().to_string().contains("not registered any more"));
    // The memory can be used like any other.
    let again = job.publish("memory", kept, Rights::ALL).unwrap();
    again.fill(0, LEN as u64, 7).unwrap();
    let copy = job.register(Region::zeroed(LEN).unwrap()).unwrap();
    job.peer(0).unwrap().region("memory").unwrap().get(0, copy.all()).wait().unwrap();
    assert!(bytes(&copy).iter().all(|byte| *byte == 7));
}

/// The stopped process keeps the pages that it writes. Memory that this node takes after it gave
/// the pages back is other memory.
fn drops_all_handles(job: &Job, memory: LocalRegion, stopped: Stopped) {
    is_given_up(job);
    assert!(memory.deregister().is_err());
    drop(memory);
    let others: Vec<Region> = (0..4).map(|_| Region::shared(LEN).unwrap()).collect();
    for other in &others {
        other.fill(0, LEN as u64, 0xA5).unwrap();
    }
    stopped.goes_on_to_its_end();
    for other in &others {
        assert!(bytes(other).iter().all(|byte| *byte == 0xA5), "written by the other process");
    }
}

/// Waits until the other node is given up.
fn is_given_up(job: &Job) {
    let lost = job.receive_for(Some(1), PATIENCE).unwrap_err();
    assert_eq!(lost.lost_peer(), Some(1), "{lost}");
    nobody_is_waited_for(job);
}

/// MEM-7.6: all other nodes are lost, so waits for them fail.
fn nobody_is_waited_for(job: &Job) {
    let begun = Instant::now();
    let word = job.register(Region::zeroed(8).unwrap()).unwrap();
    let queue = job.fifo("queue", 1, 8).unwrap();
    let ends = [
        job.receive(None).map(drop),
        word.wait_until(0, |word| word != 0).map(drop),
        word.wait_until_by(1, 0, |word| word != 0).map(drop),
        queue.pop(&mut Vec::new()),
    ];
    for end in ends {
        let lost = end.unwrap_err();
        assert_eq!(lost.lost_peer(), Some(1), "{lost}");
    }
    assert!(job.receive_batch(1).is_empty());
    // The wait ends whatever else changes the word meanwhile.
    let changed = word.wait_until_by(1, 0, |before| {
        assert!(begun.elapsed() < PATIENCE, "it is waited for without end");
        word.store_u64(0, before + 1).unwrap();
        false
    });
    assert_eq!(changed.unwrap_err().lost_peer(), Some(1));
    assert!(begun.elapsed() < PATIENCE, "that was the time limit");
}

fn bytes(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    bytes
}

/// Returns `true` if a put has begun and is not whole. (A copy may write its very ends last.)
fn is_half_done(memory: &Region) -> bool {
    let words: Vec<u64> =
        (1..64).map(|part| memory.load_u64(part * LEN as u64 / 64).unwrap()).collect();
    words.iter().any(|word| *word != words[0])
}

fn until(give_up: Instant, otherwise: &str, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        assert!(Instant::now() < give_up, "{otherwise}");
        std::thread::yield_now();
    }
}

/// A process that was stopped. Dropping the value does not leave it so.
struct Stopped(Pid);

impl Stopped {
    fn in_the_middle_of_a_put(process: Pid, memory: &LocalRegion) -> Self {
        let give_up = Instant::now() + PATIENCE;
        loop {
            until(give_up, "no put is half done", || is_half_done(memory));
            kill_process(process, Signal::STOP).unwrap();
            let stopped = Self(process);
            until(give_up, "it does not stop", || stopped.state() == Some('T'));
            if is_half_done(memory) {
                return stopped;
            }
        }
    }

    /// Returns the state of the process in the kernel's letter, or `None` if it does not exist.
    fn state(&self) -> Option<char> {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.0.as_raw_nonzero())).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    }

    fn goes_on_to_its_end(self) {
        kill_process(self.0, Signal::CONT).unwrap();
        until(Instant::now() + PATIENCE, "it does not end", || {
            matches!(self.state(), None | Some('Z'))
        });
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// MEM-18.6.
#[test]
fn deregister_fails_while_a_stopped_peer_is_in_a_put_and_succeeds_afterwards() {
    run(ONCE);
}

/// MEM-18.6.
#[test]
fn dropped_memory_of_a_stopped_peer_is_no_memory_of_this_node() {
    run(DROPPED_ALTOGETHER);
}

/// MEM-18.6: memory is the same under any of its region ids.
#[test]
fn nor_if_what_it_puts_through_was_dropped_and_another_registration_is_ended() {
    run(DROPPED_AFTERWARDS);
}

/// MEM-18.6.
#[test]
fn nor_if_that_was_dropped_before_it_was_given_up() {
    run(DROPPED_BEFORE);
}

fn run(way: &str) {
    let settings = Settings { failure_time: Some(Duration::from_secs(2)), ..Settings::default() };
    run_two_nodes("stopped::plays_its_role", &settings, &[(ROLE, way)]);
}
