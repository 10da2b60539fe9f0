//! Work of each node of the job: threads that wait for the other nodes in every way, until one of
//! them is lost.

use crate::operations::{Source, Target, Waits};
use crate::round::{MARK, NODES};
use oikaze::memory::remote::RefusalReason;
use oikaze::memory::{LocalRegion, Region, Rights};
use oikaze::message::{Class, Fifo};
use oikaze::shared::SharedArray;
use oikaze::{Error, Job, Peer, Result};
use oikaze_protocol::random::Random;
use std::collections::VecDeque;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Time after which an operation that has not ended hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit of waits for things that may be missing: a name that is just withdrawn, room in a
/// FIFO.
const LOOKUP_LIMIT: Duration = Duration::from_millis(20);
/// Maximum number of operations that a thread has in flight.
const UNDER_WAY: usize = 80;
/// Last message of a survivor.
const FAREWELL: u64 = u64::MAX;
/// Bytes of the region that comes and goes.
const VOLATILE: usize = 65_536;
/// Bytes of the region whose pages are exchanged.
const HUGE: usize = 4 << 20;

/// Sends a line to the parent.
fn tell(line: &str) {
    println!("\n{MARK}{line}");
}

/// Tracks the peers that have been lost.
#[derive(Default)]
struct Witness {
    lost: AtomicU32,
}

impl Witness {
    fn is_calm(&self) -> bool {
        self.lost.load(Ordering::Relaxed) == 0
    }

    fn has_lost(&self, rank: u32) -> bool {
        self.lost.load(Ordering::Relaxed) & 1 << rank != 0
    }

    /// Checks an outcome: success, the loss of a peer, or an error that `also` allows.
    fn ended<T>(&self, what: &str, outcome: Result<T>, also: impl Fn(&Error) -> bool) {
        match outcome {
            Ok(_) => {}
            Err(error) => match error.lost_peer() {
                Some(rank) => drop(self.lost.fetch_or(1 << rank, Ordering::Relaxed)),
                None if also(&error) => {}
                None => tell(&format!("wrong: {what}: {error}")),
            },
        }
    }
}

fn nothing_else(_: &Error) -> bool {
    false
}

/// Returns `true` for failed operations of other threads that no thread has waited for yet
/// (MEM-15.5).
fn of_others(error: &Error) -> bool {
    error.unreported().is_some()
}

pub fn play() {
    // Waits until the parent closes the input, or is gone.
    let parent = std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        if !OVER.load(Ordering::SeqCst) {
            std::process::exit(3);
        }
    });
    let until_let_go = |what: String| {
        OVER.store(true, Ordering::SeqCst);
        tell(&format!("over: {what}"));
        parent.join().unwrap();
    };
    let job = oikaze::join();
    match job.and_then(|mut job| Begun::new(&mut job).map(|begun| (job, begun))) {
        Ok((job, begun)) => {
            let lost = begun.work(&job);
            until_let_go(format!("{lost:b}"));
        }
        Err(why) => until_let_go(why.to_string()),
    }
}

/// Set when all waits for other nodes have ended.
static OVER: AtomicBool = AtomicBool::new(false);

/// A node that has found the other nodes.
struct Begun {
    targets: Vec<Target>,
    others: Vec<Peer>,
    queue: Fifo,
    array: SharedArray<u64>,
    /// Regions for the other nodes. Each of them also writes its farewell to *private*.
    open: [LocalRegion; 3],
}

impl Begun {
    fn new(job: &mut Job) -> Result<Self> {
        let all = Rights::ALL;
        let regions = [
            ("mapped", Region::shared(1 << 20)?),
            ("private", Region::zeroed(1 << 20)?),
            ("huge", Region::shared(HUGE)?),
        ];
        let [mapped, private, huge] = regions.map(|(name, region)| job.publish(name, region, all));
        let open = [mapped?, private?, huge?];
        let queue = job.fifo("queue", 64, 64)?;
        let others = |job: &Job| {
            let others = (0..NODES).filter(|rank| *rank != job.rank());
            others.map(|rank| job.peer(rank)).collect::<Result<Vec<_>>>()
        };
        let targets = others(job)?.iter().map(Target::find).collect::<Result<_>>()?;
        let array = job.array("array", 8 * 512 * NODES as usize)?;
        job.barrier()?;
        tell("ready");
        Ok(Self { targets, others: others(job)?, queue, array, open })
    }

    /// Runs all threads. Returns the nodes that were lost, as bits.
    fn work(&self, job: &Job) -> u32 {
        let Self { targets, others, queue, array, open: [_, private, _] } = self;
        let witness = &Witness::default();
        std::thread::scope(|scope| {
            scope.spawn(|| many_at_once(job, targets, witness));
            scope.spawn(|| one_after_the_other(job, targets, queue, witness));
            scope.spawn(|| come_and_go(job, others, witness));
            scope.spawn(|| together(job, array, witness));
            for target in targets {
                scope.spawn(|| read(job, &target.peer, witness));
                scope.spawn(|| {
                    let rank = target.peer.rank();
                    let said =
                        private.wait_until_by_for(rank, farewell_of(rank), PATIENCE, |word| {
                            word == FAREWELL
                        });
                    witness.ended("a word", said, nothing_else);
                });
            }
        });
        // The survivors have not lost each other.
        for target in targets.iter().filter(|target| !witness.has_lost(target.peer.rank())) {
            witness.ended("a last word", target.private.fetch_add(0, 1).wait(), nothing_else);
        }
        witness.lost.load(Ordering::Relaxed)
    }
}

/// Returns the offset of the word that a node changes with its farewell, beyond the range of other
/// operations.
fn farewell_of(rank: u32) -> u64 {
    (1 << 20) - 8 * (u64::from(rank) + 1)
}

/// Runs operations of every kind, with many in flight to each peer.
fn many_at_once(job: &Job, targets: &[Target], witness: &Witness) {
    let source = Source::new(job);
    let mut under_way: VecDeque<Waits> = VecDeque::new();
    let may_be_full = |error: &Error| error.refusal() == Some(RefusalReason::Full);
    for number in 0u64.. {
        if !witness.is_calm() {
            break;
        }
        for target in targets {
            under_way.push_back(target.begin(Random::new(number).next_u64(), &source));
        }
        if number.is_multiple_of(16) {
            job.fence();
        }
        while under_way.len() > UNDER_WAY {
            let (what, wait) = under_way.pop_front().expect("there are many");
            witness.ended(what, wait(), may_be_full);
        }
    }
    under_way.into_iter().for_each(|(what, wait)| witness.ended(what, wait(), may_be_full));
    for target in targets {
        witness.ended(
            "a farewell",
            target.peer.send(Class::Ordered, FAREWELL, &[]).wait(),
            nothing_else,
        );
        let word = target.private.word::<u64>(farewell_of(job.rank()));
        witness.ended("a farewell in a word", word.store(FAREWELL).wait(), nothing_else);
    }
}

/// Runs operations that wait by themselves: completions, flushes, full FIFOs, scopes, exchanges,
/// cancelled operations.
fn one_after_the_other(job: &Job, targets: &[Target], mine: &Fifo, witness: &Witness) {
    let source = Source::new(job);
    let mut bytes = vec![7; 100_000];
    let huge = job.register(Region::shared(HUGE).expect("memory")).expect("room");
    while witness.is_calm() {
        let (queue, counter) = (job.completion_queue(), job.counter());
        for (target, number) in
            targets.iter().flat_map(|target| (0..4).map(move |number| (target, number)))
        {
            target
                .private
                .put(0, source.part(20_000 * number as usize))
                .report_to(&queue, number)
                .expect("told once");
            target.private.fetch_add(8 * number, 1).count_in(&counter).expect("told once");
        }
        let (mut ended, all) = (Vec::new(), targets.len() * 4);
        witness.ended("a queue", queue.wait(all, &mut ended), nothing_else);
        ended
            .into_iter()
            .for_each(|one| witness.ended("what a queue tells", one.outcome, nothing_else));
        witness.ended("a counter", counter.wait(all as u64), nothing_else);
        for target in targets {
            let begun = target.private.put(4096, source.part(300_000));
            witness.ended("a flush", target.peer.flush(), of_others);
            witness.ended("what was flushed", begun.wait(), nothing_else);
            let full = |error: &Error| error.is_full() || error.is_timeout();
            witness.ended("a push", target.queue.push_for(b"one more", LOOKUP_LIMIT), full);
            let scoped = job.scope(|scope| scope.get(&target.private, 0, &mut bytes)?.wait());
            witness.ended("a scope", scoped, nothing_else);
            let cancelled = target.private.get(0, source.part(300_000)).cancel();
            witness.ended("what is cancelled", cancelled, |error| {
                error.to_string().contains("cancelled")
            });
            // Exchanges huge pages where possible, and a few pages that are copied.
            let pages = (HUGE / 2 / oikaze::memory::page_size()) as u64 + 3;
            witness.ended("an exchange", target.huge.exchange(0, &huge, 0, pages), nothing_else);
            witness.ended("a lookup", target.peer.region("private"), nothing_else);
        }
        witness.ended("flush", job.flush(), of_others);
        let mut element = Vec::new();
        while mine.try_pop(&mut element).expect("nobody writes over it") {}
    }
}

/// Ends registrations while peers access them, through mappings too, and accesses registrations of
/// peers that end.
fn come_and_go(job: &Job, others: &[Peer], witness: &Witness) {
    let source = job.register(Region::zeroed(VOLATILE).expect("memory")).expect("room");
    let mut memory = Region::shared(VOLATILE).expect("memory");
    // The registration has ended, is missing at the moment, or was looked up with too short a
    // limit.
    let gone = |error: &Error| error.refusal() == Some(RefusalReason::UnknownKey);
    while witness.is_calm() {
        let open = job.publish("volatile", memory, Rights::ALL).expect("the name is free");
        for peer in others {
            let found = peer.region_for("volatile", LOOKUP_LIMIT);
            if let Ok(there) = &found {
                for _ in 0..8 {
                    witness.ended(
                        "a put into what may end",
                        there.put(0, source.all()).wait_for(PATIENCE),
                        gone,
                    );
                    witness.ended(
                        "a change of what may end",
                        there.fetch_add(8, 1).wait_for(PATIENCE),
                        gone,
                    );
                }
            }
            witness.ended("a name that comes and goes", found, |_| true);
        }
        memory = open.deregister().expect("it was open");
    }
}

/// Runs collective operations of all nodes, and accesses pages of shared arrays.
fn together(job: &Job, array: &SharedArray<u64>, witness: &Witness) {
    let step = || -> Result<()> {
        let nodes = NODES as usize;
        for at in (job.rank() as usize * 64..array.len()).step_by(64 * nodes) {
            array.write(at..at + 1)?[0] += 1;
        }
        job.barrier()?;
        // Reads by page faults, and ahead of them.
        let lazy = array.read_lazily(0..array.len())?;
        let sum: u64 = (0..array.len()).step_by(512).map(|at| lazy[at]).sum();
        drop(lazy);
        drop(array.read(0..array.len())?);
        job.barrier_reduce(sum, oikaze::collective::operator::Sum)?;
        for lock in 0..u64::from(NODES) {
            let held = job.lock(lock)?;
            array.write(lock as usize..lock as usize + 1)?[0] += 1;
            held.release()?;
        }
        job.barrier()
    };
    loop {
        let outcome = step();
        let over = outcome.is_err();
        witness.ended("a step together", outcome, nothing_else);
        if over {
            return;
        }
    }
}

/// Reads messages of one peer until its farewell, or until the peer is lost.
fn read(job: &Job, from: &Peer, witness: &Witness) {
    loop {
        match job.receive_for(Some(from.rank()), PATIENCE) {
            Ok(message) if message.tag() == FAREWELL => return,
            Ok(_) => {}
            Err(error) => {
                // No message of a lost peer may arrive after the news of its loss.
                if let Some(message) = job.try_receive(Some(from.rank())) {
                    tell(&format!("wrong: message {:x} came after \"{error}\"", message.tag()));
                }
                return witness.ended("receiving", Err::<(), _>(error), nothing_else);
            }
        }
    }
}
