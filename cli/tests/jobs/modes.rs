//! One suite for all modes of the engine: every kind of call does the same in each of them, with
//! real processes, over rings and over the network.

use crate::support::*;
use oikaze::collective::Collectives;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze::{Job, Result};
use std::process::ExitCode;

/// Number of nodes of each job.
const NODES: u32 = 3;
/// Number of rounds of each check.
const ROUNDS: u64 = 20;
/// Bytes of a long transfer: many datagrams, and more than a ring.
const LONG: usize = 1 << 20;

/// Returns the modes of the engine. The second thread lies on a core that others use too.
fn modes() -> [String; 4] {
    let server = format!("process:modes-{}", std::process::id());
    ["inline".into(), "thread".into(), "thread:0".into(), server]
}

/// Options for a job over rings, for one whose nodes keep pages of their own, and for one over the
/// network, sealed. Nodes with injected faults share no memory. The fourth loses datagrams, and the
/// last sends bulk by several flows.
const MEDIA: [&[&str]; 5] = [
    &[],
    &["--env", "OIKAZE_WITHOUT=segment"],
    &["--fault", "seed=1"],
    &["--fault", "seed=2,loss=0.02,reorder=0.05"],
    &["--fault", "seed=3", "--env", "OIKAZE_FLOWS=4"],
];

#[test]
fn every_mode_does_the_same() {
    for mode in modes() {
        for medium in MEDIA {
            let mut command = oikaze(&[&["run", "-n", "3", "--timeout", "120"], medium].concat());
            command.args(["--env", &format!("OIKAZE_ENGINE={mode}")]);
            of_test_nodes(&mut command, module_path!(), "MODES_NODE");
            let (status, out, err) = finish(command.stdin(std::process::Stdio::null()));
            assert_eq!(status, Some(0), "{mode} {medium:?}\n{out}\n{err}");
            let done = out.lines().filter(|line| line.ends_with("all is as it should be")).count();
            assert_eq!(done, NODES as usize, "{mode} {medium:?}\n{out}\n{err}");
        }
    }
}

/// One line for each machine says that spinning threads have too few cores. Nodes that sleep, and a
/// node that has a core, say nothing.
#[test]
fn spinning_on_too_few_cores_is_told_once_and_otherwise_not() {
    let core = oikaze_os::cpu::permitted_cpus().unwrap()[0].to_string();
    for (nodes, engine, waiting, told) in [
        ("2", "inline", "spin", 1),
        ("1", "thread", "spin", 1),
        ("1", "inline", "spin", 0),
        ("2", "thread", "adaptive", 0),
    ] {
        let mut command = std::process::Command::new("taskset");
        command.args(["-c", &core, OIKAZE, "run", "-n", nodes, "--timeout", "120", "--env"]);
        command.args([&format!("OIKAZE_ENGINE={engine}"), "--env"]);
        command.args([&format!("OIKAZE_WAIT={waiting}"), "--", OIKAZE, "hello"]);
        let (status, out, err) = finish(&mut command);
        assert_eq!(status, Some(0), "{out}\n{err}");
        let warnings = err.lines().filter(|line| line.contains("spinning without end"));
        assert_eq!(warnings.count(), told, "{nodes} {engine} {waiting}: {err}");
    }
}

/// Runs a node of the jobs above. Not a test.
#[test]
#[ignore = "a node of the other tests"]
fn node() {
    if std::env::var_os("MODES_NODE").is_none() {
        return;
    }
    let code = oikaze::run(|job| Ok(check(job)?));
    // The test harness would replace the status by its own.
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

fn check(job: &Job) -> Result<()> {
    memory(job)?;
    messages(job)?;
    queues(job)?;
    collectives(job)?;
    arrays(job)?;
    job.barrier()?;
    println!("\nall is as it should be");
    Ok(())
}

/// Bytes that tell their writer, their round and their place.
fn pattern(rank: u32, round: u64) -> Vec<u8> {
    (0..LONG as u64).map(|at| (at * 7 + round * 31 + u64::from(rank) * 101) as u8).collect()
}

/// Puts, gets, signals and atomics, between nodes of a ring.
fn memory(job: &Job) -> Result<()> {
    let (me, next) = (job.rank(), (job.rank() + 1) % NODES);
    let before = (me + NODES - 1) % NODES;
    let own = job.publish("own", Region::shared(LONG + 64)?, Rights::ALL)?;
    let source = job.register(Region::shared(LONG)?)?;
    let there = job.peer(next)?.region("own")?;
    job.barrier()?;
    for round in 1..=ROUNDS {
        source.write(0, &pattern(me, round))?;
        there.put(64, source.all()).wait()?;
        there.fetch_add(0, 1).wait()?;
        own.wait_until(0, |word| word >= round)?;
        let mut came = vec![0; LONG];
        own.read(64, &mut came)?;
        assert!(came == pattern(before, round), "round {round}");
        let back = job.register(Region::shared(LONG)?)?;
        there.get(64, back.all()).wait()?;
        let mut read = vec![0; LONG];
        back.read(0, &mut read)?;
        assert!(read == pattern(me, round), "round {round}");
        job.barrier()?;
    }
    // Every node counts at every other node: nothing is lost and nothing is done twice.
    for rank in (0..NODES).filter(|rank| *rank != me) {
        let counter = job.peer(rank)?.region("own")?;
        for _ in 0..ROUNDS {
            counter.fetch_add(8, 1).wait()?;
        }
    }
    job.barrier()?;
    let mut word = [0; 8];
    own.read(8, &mut word)?;
    assert_eq!(u64::from_le_bytes(word), ROUNDS * u64::from(NODES - 1));
    job.barrier()
}

/// Messages of each class, short and long.
fn messages(job: &Job) -> Result<()> {
    let (me, next) = (job.rank(), (job.rank() + 1) % NODES);
    let before = (me + NODES - 1) % NODES;
    for round in 0..ROUNDS {
        for class in [Class::Ordered, Class::Unordered, Class::Sync] {
            let body = pattern(me, round);
            let body = if round % 2 == 0 { &body[..] } else { &body[..16] };
            let sent = job.peer(next)?.send(class, round, body);
            let came = job.receive(Some(before))?;
            let expected = pattern(before, round);
            assert!(came.bytes()[..] == expected[..body.len()], "{class:?} {round}");
            sent.wait()?;
        }
    }
    job.barrier()
}

/// FIFOs of one node, which all nodes fill.
fn queues(job: &Job) -> Result<()> {
    let queue = job.fifo("queue", 4, 16)?;
    job.barrier()?;
    let first = job.peer(0)?.fifo("queue")?;
    if job.rank() == 0 {
        let mut sum = 0;
        for _ in 0..ROUNDS * u64::from(NODES - 1) {
            let mut element = Vec::new();
            queue.pop(&mut element)?;
            sum += u64::from_le_bytes(element[..8].try_into().unwrap_or_default());
        }
        assert_eq!(sum, u64::from(NODES - 1) * (0..ROUNDS).sum::<u64>());
    } else {
        for round in 0..ROUNDS {
            first.push(&round.to_le_bytes())?;
        }
    }
    job.barrier()
}

fn collectives(job: &Job) -> Result<()> {
    for round in 0..ROUNDS {
        let mut sums = vec![u64::from(job.rank()) + round; 1000];
        job.all_reduce_into(&mut sums, oikaze::collective::operator::Sum)?;
        let expected: u64 = (0..u64::from(NODES)).map(|rank| rank + round).sum();
        assert!(sums.iter().all(|sum| *sum == expected));
    }
    job.barrier()
}

/// A shared array that all nodes write, with a lock.
fn arrays(job: &Job) -> Result<()> {
    let array = job.array::<u64>("array", 4096)?;
    for _ in 0..ROUNDS {
        let lock = job.lock(3)?;
        array.write(0..1)?[0] += 1;
        lock.release()?;
    }
    job.barrier()?;
    assert_eq!(array.read(0..1)?[0], ROUNDS * u64::from(NODES));
    job.barrier()?;
    let share = 4096 / NODES as usize;
    let mine = job.rank() as usize * share;
    array.write(mine..mine + share)?.fill(u64::from(job.rank()) + 7);
    job.barrier()?;
    let read = array.read(0..share * NODES as usize)?;
    assert!(read.iter().enumerate().all(|(at, value)| *value == (at / share) as u64 + 7));
    Ok(())
}
