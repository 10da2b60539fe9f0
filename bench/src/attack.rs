//! Measures what is left of a job's bandwidth while somebody on its network attacks it.
//!
//! The attacker is on the bridge between two nodes. It sends forged, changed and replayed datagrams
//! and handshakes to both, at a limited rate. A *control* sends the same datagrams to a port of the
//! same hosts at which nothing reads. Attacker and kernel take time from the nodes in both runs, so
//! the control shows what Oikaze itself adds.

#[path = "../../cli/tests/support/attacker.rs"]
mod attacker;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use oikaze_protocol::random::Random;
use serde_json::Value;

use self::attacker::{Attacker, Datagram};
use crate::error::{Error, Tried};
use crate::process::own_program;
use crate::record::{Record, median, table};
use crate::suite::case::MIB;
use crate::suite::goals::{self, Bound, Figures, Found, Goal};
use crate::suite::{Rounds, machine, warn_if_busy};

/// Datagrams per second of the attack, to both nodes together.
const RATE: u32 = 20_000;
/// Number of datagrams after which the attacker looks whether it should stop.
const CHUNK: usize = 200;
/// Port of the control, at which nothing reads.
const ELSEWHERE: u16 = 7105;
/// Time limit for what the attacker waits for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that a node puts.
const VOLUME: &str = "8G";
const QUICK_VOLUME: &str = "2G";

/// Measured situations, of which the first is the floor.
const SYSTEMS: [&str; 3] = ["quiet", "elsewhere", "attacked"];

/// Settings of the bench.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    rounds: Rounds,
}

/// Runs the bench.
///
/// # Errors
/// The user is not root, or the job fails.
pub fn bench(run: &Run) -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new("attacking needs root, for raw sockets; run the bench as root"));
    }
    let before = warn_if_busy();
    let mut rounds = SYSTEMS.map(|_| Vec::new());
    let mut sent = 0;
    for round in 1..=run.rounds.count {
        eprintln!("round {round} of {}", run.rounds.count);
        for (system, values) in SYSTEMS.into_iter().zip(&mut rounds) {
            let (value, datagrams) = measured(system, run.rounds.quick)?;
            values.push(value);
            sent += datagrams;
        }
    }
    let records: Vec<Record> = SYSTEMS.into_iter().zip(rounds).filter_map(record).collect();
    run.rounds.write(&records, before)?;
    print!("{}", table(&records, SYSTEMS[0]));
    print!("{}", goals::table(goals_of(&Figures(&records))));
    println!("\nWhat these figures are:\n- {}", machine());
    println!(
        "- Puts of 1 MiB between two network namespaces, MTU 9000, sealed fully. The attacker has sent {sent} datagrams, {RATE} in a second at most."
    );
    println!("- elsewhere: the same datagrams, to a port at which nothing reads.");
    Ok(())
}

fn record((system, rounds): (&'static str, Vec<f64>)) -> Option<Record> {
    Some(Record {
        bench: "attack",
        case: "put_bw",
        size: MIB,
        system,
        value: median(&rounds)?,
        unit: "GB/s",
        rounds,
        mtu: Some(9000),
        mode: Some("whole"),
        ..Record::default()
    })
}

fn goals_of(figures: &Figures<'_>) -> Vec<Goal> {
    let of = |system: &str| figures.of("put_bw", MIB, 9000, system);
    ["quiet", "elsewhere"]
        .into_iter()
        .map(|base| {
            let what = format!("put_bw 1 MiB, attacked / {base}");
            (what, Found::ratio((of("attacked"), of(base))), Bound::AtLeast(0.8))
        })
        .collect()
}

/// Job that is killed when this value is dropped.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the bandwidth of a job in GB/s, and the number of datagrams that were sent to attack it.
fn measured(system: &str, quick: bool) -> Result<(f64, u64), Error> {
    let me = own_program()?;
    let oikaze = me.with_file_name("oikaze");
    let mut command = Command::new(&oikaze);
    command.args(["run", "-n", "2", "--netns", "--no-prefix", "--seal", "full"]);
    command.args(["--timeout", "100", "--"]).arg(&oikaze);
    command.args(["perf", "put", "--size", "1M", "--iterations", "10", "--json", "--volume"]);
    command.arg(if quick { QUICK_VOLUME } else { VOLUME }).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let job = Job(command.spawn().tried(format!("starting {command:?}"))?);
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let pid = job.0.id();
    let port = (system == "elsewhere").then_some(ELSEWHERE);
    std::thread::scope(|scope| {
        let attack = (system != "quiet").then(|| scope.spawn(|| attack(pid, port, &over, &sent)));
        let printed = printed_by(job);
        over.store(true, Ordering::SeqCst);
        if let Some(attack) = attack {
            attack.join().map_err(|_| Error::new("the attacker has failed"))??;
        }
        let printed = printed?;
        let found = printed.lines().rev().find_map(|line| {
            serde_json::from_str::<Value>(line).ok()?.get("bandwidth_gbs")?.as_f64()
        });
        let bandwidth = found.ok_or_else(|| Error::new(format!("no bandwidth in: {printed}")))?;
        Ok((bandwidth, sent.load(Ordering::SeqCst)))
    })
}

/// Waits for the end of the job, and returns what it printed.
fn printed_by(mut job: Job) -> Result<String, Error> {
    let mut printed = String::new();
    if let Some(mut stdout) = job.0.stdout.take() {
        std::io::Read::read_to_string(&mut stdout, &mut printed).tried("reading the result")?;
    }
    let status = job.0.wait().tried("waiting for the job")?;
    if status.success() {
        Ok(printed)
    } else {
        Err(Error::new(format!("the job failed ({status}): {printed}")))
    }
}

/// Listens on the job's bridge until the attacker has seen handshakes and data, and attacks until
/// `over`.
fn attack(
    launcher: u32,
    port: Option<u16>,
    over: &AtomicBool,
    sent: &AtomicU64,
) -> Result<(), Error> {
    // The namespace of the last node is made after that of the bridge.
    let last = format!("/run/netns/oik-{launcher}-1");
    let begun = Instant::now();
    while !Path::new(&last).exists() {
        if begun.elapsed() > PATIENCE || over.load(Ordering::SeqCst) {
            return Err(Error::new("the job has made no network"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut attacker = Attacker::in_namespace(&format!("oik-{launcher}-bridge"));
    let handshakes = attacker.capture(2, PATIENCE, Datagram::is_handshake);
    // Datagrams that segmentation offload has not joined.
    let is_short = |seen: &Datagram| !seen.is_handshake() && seen.bytes.len() < 1400;
    let data: Vec<Datagram> = [1, 2]
        .into_iter()
        .flat_map(|host| {
            attacker
                .capture(20, PATIENCE, |seen| is_short(seen) && seen.to.ip().octets()[3] == host)
        })
        .collect();
    let mut random = Random::new(7);
    while !over.load(Ordering::SeqCst) {
        let forged = (0..CHUNK).map(|at| {
            let mut forged = forgery(&mut random, at, &data, &handshakes);
            if let Some(port) = port {
                forged.to.set_port(port);
            }
            forged
        });
        attacker.send_at(RATE, forged);
        sent.fetch_add(CHUNK as u64, Ordering::SeqCst);
    }
    Ok(())
}

/// Returns a datagram of one of five kinds: changed, replayed, a changed handshake from the peer or
/// from somebody else, and noise.
fn forgery(
    random: &mut Random,
    kind: usize,
    data: &[Datagram],
    handshakes: &[Datagram],
) -> Datagram {
    let from = if matches!(kind % 5, 2 | 3) { handshakes } else { data };
    let mut forged = from[random.below(from.len())].clone();
    let last = forged.bytes.len() - 1;
    match kind % 5 {
        0 => forged.bytes[random.below(last)] ^= 1 << random.below(8),
        1 => {}
        2 | 3 => {
            // Newer than any, so that only its seal is wrong.
            forged.bytes[8..16].copy_from_slice(&(1 << 40 | random.next_u64() >> 30).to_le_bytes());
            if kind % 5 == 3 {
                forged.from.set_port(1024 + random.below(60_000) as u16);
            }
        }
        _ => {
            let len = 1 + random.below(1024);
            forged.bytes = random.bytes(len);
        }
    }
    forged
}
