//! Runs real processes whose datagrams are changed on the way and sealed again, so that no checksum
//! shows the change. Whatever happens to data, every node must end: well, or with an error that it
//! prints. OIKAZE_TAMPERED_RUNS sets the number of runs, of 4 s of traffic each.
//! OIKAZE_TAMPERED_FROM sets their first seed.

use crate::support::*;
use oikaze::collective::operator::Max;
use oikaze::memory::remote::RemoteRegion;
use oikaze::memory::{LocalRegion, Region, Rights};
use oikaze::message::{Class, Fifo, RemoteFifo};
use oikaze::shared::SharedArray;
use oikaze::{Job, Result};
use oikaze_protocol::random::Random;
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Environment variable that marks a process as a node of such a job. Its value holds seed, traffic
/// and mode of the run.
const MARK: &str = "TAMPERED_RUN";
/// Milliseconds of traffic in a short run and in a long one.
const TRAFFIC_MS: [u64; 2] = [1_500, 4_000];
/// Seeds of the short runs, in which much is changed, in jobs of two and three nodes.
const SEEDS: [u64; 4] = [5, 12, 13, 15];
/// Seconds after which a job counts as hanging.
const LIMIT: u64 = 60;
/// Status of a job whose time limit has passed.
const TIMED_OUT: i32 = 124;
/// Bytes of a region.
const LEN: usize = 64 << 10;
/// Elements of the array.
const ELEMENTS: usize = 16 << 10;
/// Time limit of waits for an action of another program. All other waits have no limit.
const PATIENCE: Duration = Duration::from_millis(20);

/// A job and its result.
struct Run {
    seed: u64,
    options: Vec<String>,
    status: i32,
    out: String,
    err: String,
    took: Duration,
}

impl Run {
    /// Runs the job of this seed until it ends.
    fn of(seed: u64, traffic: u64) -> Run {
        let mut random = Random::new(seed);
        let nodes = random.pick(&["2", "3"]);
        let share = random.pick(&["0.001", "0.003", "0.01", "0.05"]);
        let seal = random.pick(&["crc", "crc", "header"]);
        let goes_on = random.pick(&["stops", "goes-on", "goes-on"]);
        let fault = format!("tamper={share},seed={seed}");
        let mut options = vec!["-n", nodes, "--seal", seal, "--fault", &fault];
        if random.below(3) == 0 {
            options.push("--keep-going");
        }
        let line = format!("run --failure-time 1000 --timeout {LIMIT} --explain-after 20");
        let mut command = oikaze_line(&line);
        command.args(&options).args([
            "--env",
            &format!("{MARK}={seed} {traffic} {goes_on}"),
            "--env",
            "RUST_BACKTRACE=1",
        ]);
        of_test_nodes(&mut command, module_path!(), "TAMPERED_NODE");
        let begun = Instant::now();
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
        let status = end_of(&mut child, begun);
        let took = begun.elapsed();
        let options = options.iter().chain(&[goes_on]).map(|&text| text.to_owned()).collect();
        Run { seed, options, status, out: out.join().unwrap(), err: err.join().unwrap(), took }
    }

    /// Fails unless all nodes ended as they may. Returns their statuses and numbers of errors.
    fn check(&self) -> Vec<(u32, u32)> {
        let Run { seed, options, status, out, err, took } = self;
        let told =
            || format!("seed {seed} {options:?}: status {status} after {took:?}\n{out}\n{err}");
        assert_ne!(*status, TIMED_OUT, "a node hangs: {}", told());
        for sign in ["panicked", "by signal", "a defect"] {
            assert!(!out.contains(sign) && !err.contains(sign), "{sign}: {}", told());
        }
        let nodes: usize = options[1].parse().unwrap();
        let ended: BTreeMap<&str, (u32, u32)> = out.lines().filter_map(ending).collect();
        assert_eq!(ended.len(), nodes, "a node did not end by itself: {}", told());
        let failed = ended.values().any(|(code, _)| *code != 0);
        assert_eq!(*status != 0, failed, "the status of the job is wrong: {}", told());
        // A node that fails prints its error.
        assert!(!failed || err.contains("oikaze: "), "no error was printed: {}", told());
        ended.into_values().collect()
    }
}

/// Parses `[RANK] ended STATUS ERRORS`.
fn ending(line: &str) -> Option<(&str, (u32, u32))> {
    let (rank, rest) = line.strip_prefix('[')?.split_once("] ended ")?;
    let (code, errors) = rest.split_once(' ')?;
    Some((rank, (code.parse().ok()?, errors.trim().parse().ok()?)))
}

fn collect(from: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.unwrap().read_to_end(&mut bytes).unwrap();
        text(&bytes)
    })
}

/// Returns the launcher's status. Kills a launcher that does not end in spite of its own limit.
fn end_of(child: &mut Child, begun: Instant) -> i32 {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        if begun.elapsed() > Duration::from_secs(2 * LIMIT) {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// WIND-7.8, COH-9.1, END-1.4: runs a few seeds, or as many as asked for.
#[test]
fn every_node_ends_whatever_is_changed_on_the_way() {
    let wanted = variable("OIKAZE_TAMPERED_RUNS");
    let first = variable("OIKAZE_TAMPERED_FROM").unwrap_or(0);
    let seeds = wanted.map_or_else(|| SEEDS.to_vec(), |runs| (first..first + runs).collect());
    let (runs, traffic) = (seeds.len(), TRAFFIC_MS[usize::from(wanted.is_some())]);
    let (mut failed, mut longest) = (0, Duration::ZERO);
    for seed in seeds {
        let run = Run::of(seed, traffic);
        let ended = run.check();
        let errors: u32 = ended.iter().map(|(_, errors)| errors).sum();
        println!(
            "\nseed {seed} {:?}: status {}, {errors} errors, {:.1} s",
            run.options,
            run.status,
            run.took.as_secs_f64()
        );
        failed += u64::from(errors > 0 || run.status != 0);
        longest = longest.max(run.took);
    }
    println!("{runs} runs: {failed} with errors, the longest took {:.1} s", longest.as_secs_f64());
    assert!(failed > 0 || runs < 4, "nothing came of what was changed: the test proves nothing");
}

/// Runs a node of the jobs above. Not a test.
#[test]
#[ignore = "a node of the other tests"]
fn node() {
    let Ok(mark) = std::env::var(MARK) else { return };
    let mut words = mark.split(' ');
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (seed, traffic) = (number(), Duration::from_millis(number()));
    let goes_on = words.next() == Some("goes-on");
    let mut errors = 0;
    let code = oikaze::run(|job| Ok(work(job, seed, traffic, goes_on, &mut errors)?));
    println!("\nended {} {errors}", i32::from(code != ExitCode::SUCCESS));
    // The test harness would replace the status by its own.
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

/// Creates traffic of all kinds until the time is over. An error ends it or, with `goes_on`, is
/// counted.
fn work(job: &Job, seed: u64, traffic: Duration, goes_on: bool, errors: &mut u32) -> Result<()> {
    let begun = Instant::now();
    let mut random = Random::new(seed ^ (u64::from(job.rank()) << 32));
    let mut count = |outcome: Result<()>| match outcome {
        // No peer did what this node waited for, or there was no room. Neither is an error.
        Err(error) if error.is_timeout() => Ok(()),
        Err(error) if error.is_full() || error.is_queue_full() => Ok(()),
        Err(error) => {
            *errors += 1;
            // Some errors come thousands of times, so only the first five are printed.
            if *errors <= 5 {
                eprintln!("node {}: {error}", job.rank());
            }
            // An aborted job does nothing more. Its launcher ends the nodes that do not end
            // themselves.
            let aborted = error.to_string().contains("the job was ended");
            if goes_on && !aborted { Ok(()) } else { Err(error) }
        }
        Ok(()) => Ok(()),
    };
    let objects = Objects::new(job)?;
    loop {
        for _ in 0..random.below(30) {
            count(objects.step(job, &mut random))?;
        }
        let over = begun.elapsed() >= traffic;
        match job.barrier_reduce(u64::from(over), Max) {
            Ok(0) if begun.elapsed() < 3 * traffic => {}
            Ok(_) => return Ok(()),
            Err(error) => {
                count(Err(error))?;
                if over {
                    return Ok(());
                }
            }
        }
    }
}

struct Objects {
    own: LocalRegion,
    local: LocalRegion,
    queue: Fifo,
    array: SharedArray<u64>,
    peers: Vec<(RemoteRegion, RemoteFifo)>,
}

impl Objects {
    fn new(job: &Job) -> Result<Objects> {
        let own = job.publish("own", Region::zeroed(LEN)?, Rights::ALL)?;
        let local = job.register(Region::zeroed(LEN)?)?;
        let queue = job.fifo("queue", 16, 64)?;
        let array = job.array::<u64>("array", ELEMENTS)?;
        let others = (0..job.size()).filter(|&rank| rank != job.rank());
        let peers = others.map(|rank| {
            let peer = job.peer(rank)?;
            Ok((peer.region("own")?, peer.fifo("queue")?))
        });
        let peers = peers.collect::<Result<_>>()?;
        job.barrier()?;
        Ok(Objects { own, local, queue, array, peers })
    }

    /// Starts one operation of any kind, and perhaps waits for it.
    fn step(&self, job: &Job, random: &mut Random) -> Result<()> {
        let (there, queue) = &self.peers[random.below(self.peers.len())];
        let peer = there.peer();
        let len = random.pick(&[8, 100, 5_000, LEN]);
        let slice = self.local.slice(0..len)?;
        let class = random.pick(&[Class::Ordered, Class::Unordered, Class::Sync]);
        let waits = random.below(3) == 0;
        match random.below(16) {
            0 => end(&there.put(0, slice), waits),
            1 => end(&there.put_signal(0, slice, &there.signal((LEN - 8) as u64, 1)), waits),
            2 => end(&there.get(0, slice), waits),
            3 => there.fetch_add(16, 1).wait().map(drop),
            4 => there.compare_exchange(24, 0, 1).wait().map(drop),
            5 => end(&peer.send(class, 1, &[7; 20]), waits),
            6 => end(&peer.send_from(class, 2, slice), waits),
            7 => job.receive_for(random.pick(&[None, Some(peer.rank())]), PATIENCE).map(drop),
            8 => queue.push_for(b"an element", PATIENCE),
            9 => self.queue.pop_for(&mut Vec::new(), PATIENCE),
            10 => {
                while job.try_receive(None).is_some() {}
                while self.queue.try_pop(&mut Vec::new())? {}
                Ok(())
            }
            11 => self.own.wait_until_for((LEN - 8) as u64, PATIENCE, |word| word > 3).map(drop),
            12 | 13 => {
                let lock = job.lock(random.below(3) as u64)?;
                let written = self.touch(random);
                lock.release().and(written)
            }
            14 => job.flush(),
            _ => self.touch(random),
        }
    }

    /// Reads or writes some of the array, by guards of both kinds.
    fn touch(&self, random: &mut Random) -> Result<()> {
        let first = random.below(ELEMENTS);
        let range = first..(first + random.pick(&[1, 600, 3_000])).min(ELEMENTS);
        let add = |elements: &mut [u64]| {
            elements.iter_mut().step_by(7).for_each(|element| *element = element.wrapping_add(1))
        };
        match random.below(4) {
            0 => self.array.read(range)?.release(),
            1 => {
                let guard = self.array.read_lazily(range)?;
                std::hint::black_box(
                    guard.iter().fold(0, |sum: u64, element| sum.wrapping_add(*element)),
                );
                guard.release()
            }
            2 => {
                let mut guard = self.array.write(range)?;
                add(&mut guard);
                guard.release()
            }
            _ => {
                let mut guard = self.array.write_lazily(range)?;
                add(&mut guard);
                guard.release()
            }
        }
    }
}

fn end(operation: &oikaze::completion::Operation<()>, waits: bool) -> Result<()> {
    if waits { operation.wait() } else { Ok(()) }
}
