//! `sim` runs seeds of the simulator.
#![forbid(unsafe_code)]

use clap::Parser;
use oikaze_protocol::planted::Bug;
use oikaze_sim::hunt::{Hunt, Hunted, hunt};
use oikaze_sim::plan::Scenario;
use oikaze_sim::planted::{by_name, catchable, seek};
use oikaze_sim::run::{Outcome, run};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

/// Run a whole simulated cluster, with the real engine and protocol, from one seed after another.
///
/// Each seed draws the number of nodes, their settings, the network's faults and what the nodes do,
/// and checks every promise. A seed that fails is printed with the command that has it again, event
/// by event.
#[derive(Parser)]
#[command(
    name = "sim",
    version,
    after_help = "Examples:\n  \
    sim --seeds 200                     what `make test` runs\n  \
    sim --seeds 10000 --from 1000000    seeds that nobody has run yet\n  \
    sim --seed 0x1234 --trace           one seed, event by event\n  \
    sim --scenario fire --seeds 200     each fault at its worst, and all together\n  \
    sim --scenario deaths --seeds 1000  a node killed at any point: all that was under way ends within 1 s\n  \
    sim --planted all                   is every planted bug caught?"
)]
struct Arguments {
    /// Number of seeds to run
    #[arg(long, default_value_t = 200, conflicts_with = "seed")]
    seeds: u64,
    /// First seed to run
    #[arg(long, default_value = "0", value_parser = number)]
    from: u64,
    /// Run only this seed
    #[arg(long, value_parser = number)]
    seed: Option<u64>,
    /// Work of the nodes: messages, memory, shared, mixed, kill, fire, setups, deaths, counts,
    /// groups or flows; `all` draws it from each seed
    #[arg(long, default_value = "all", value_parser = scenario)]
    scenario: Choice,
    /// Print every event (with --seed)
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Plant this bug, or all in turn, and look for it with --seeds seeds
    #[arg(long, value_name = "BUG|all")]
    planted: Option<String>,
    /// Threads; 0 for one per core
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,
    /// Stop at the first failure
    #[arg(long)]
    first: bool,
    /// Fail if fewer additions were confirmed
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    additions: u64,
    /// Fail if fewer registrations have ended
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    registrations: u64,
}

/// One scenario, or `None` for that of each seed.
type Choice = Option<Scenario>;

/// Returns the scenario of this name.
fn scenario(name: &str) -> Result<Choice, String> {
    let found = Scenario::ALL.into_iter().find(|one| one.name() == name);
    if found.is_some() || name == "all" {
        return Ok(found);
    }
    Err(format!("give all, or one of {}", Scenario::ALL.map(Scenario::name).join(", ")))
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn number(text: &str) -> Result<u64, String> {
    let parsed = text
        .strip_prefix("0x")
        .map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    parsed.map_err(|error| format!("{error}: write for example 4660 or 0x1234"))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let jobs = match arguments.jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    // A panic is reported with its seed. The usual lines of all threads would only be in the way.
    if arguments.seed.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let fine = match (&arguments.planted, arguments.seed) {
        (Some(bugs), _) => planted(&arguments, bugs, jobs),
        (None, Some(seed)) => one(&arguments, seed),
        (None, None) => many(&arguments, jobs),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(arguments: &Arguments, seed: u64) -> bool {
    let outcome =
        run(seed, arguments.scenario.unwrap_or_else(|| Scenario::of_seed(seed)), arguments.trace);
    match arguments.json {
        true => println!("{}", described(&outcome)),
        false => println!("{outcome}"),
    }
    outcome.result.is_ok()
}

fn many(arguments: &Arguments, jobs: usize) -> bool {
    let Arguments { seeds, from, scenario, json, first, .. } = arguments;
    let begun = Instant::now();
    let asked =
        Hunt { from: *from, seeds: *seeds, jobs, scenario: *scenario, stop_at_first: *first };
    let progress = std::io::stderr().is_terminal();
    let hunted = hunt(&asked, |hunted| {
        if progress {
            let (runs, failures) = (hunted.runs, hunted.failures.len());
            let _ = write!(
                std::io::stderr(),
                "\r{runs} of {seeds} seeds, {failures} failed, {:.0} s ",
                begun.elapsed().as_secs_f64()
            );
        }
    });
    if progress {
        eprintln!();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let Hunted { runs, datagrams, counted, registrations, ends, time, failures } = &hunted;
    if *json {
        let failures: Vec<_> = failures.iter().map(described).collect();
        let seconds_simulated = *time as f64 / 1e9;
        println!(
            "{}",
            serde_json::json!({ "runs": runs, "from": from, "datagrams": datagrams, "counted": counted,
                "registrations": registrations, "seconds": seconds,
                "seconds_simulated": seconds_simulated, "failures": failures })
        );
    } else {
        failures.iter().for_each(|outcome| println!("{outcome}\n"));
        if *scenario == Some(Scenario::Deaths) {
            print!("{ends}");
        }
        let (failed, virtual_time) = (failures.len(), *time as f64 / 1e9);
        println!(
            "{runs} seeds from {from}: {failed} failed; {datagrams} datagrams, {counted} additions of 1, {registrations} registrations ended, \
             {virtual_time:.0} s of cluster time in {seconds:.1} s"
        );
    }
    let too_few = [
        ("additions of 1", *counted, arguments.additions),
        ("registrations", *registrations, arguments.registrations),
    ];
    for (what, came, least) in too_few.iter().filter(|(_, came, least)| came < least) {
        eprintln!("sim: {came} {what}, where at least {least} are asked for: run more seeds");
    }
    failures.is_empty() && too_few.iter().all(|(_, came, least)| came >= least)
}

fn planted(arguments: &Arguments, bugs: &str, jobs: usize) -> bool {
    let bugs = match (bugs, by_name(bugs)) {
        ("all", _) => catchable().collect(),
        (_, Some(bug)) => vec![bug],
        (_, None) => {
            let known: Vec<_> = Bug::ALL.iter().map(|bug| format!("{bug:?}")).collect();
            eprintln!("no bug is called \"{bugs}\"; there are: all, {}", known.join(", "));
            return false;
        }
    };
    let mut results = Vec::new();
    let mut missed = 0;
    for bug in &bugs {
        let caught = seek(*bug, arguments.from, arguments.seeds, jobs);
        match &caught.by {
            Some((outcome, tried)) => {
                if !arguments.json {
                    let what = outcome
                        .result
                        .as_ref()
                        .err()
                        .map_or_else(String::new, |failed| failed.violation.to_string());
                    println!("{bug:?}: caught after {tried} seeds: {what}");
                }
                results
                    .push(serde_json::json!({ "bug": format!("{bug:?}"), "seed": outcome.seed }));
            }
            None => {
                missed += 1;
                if !arguments.json {
                    println!(
                        "{bug:?}: NOT caught by {} seeds from {}",
                        arguments.seeds, arguments.from
                    );
                }
                results.push(serde_json::json!({ "bug": format!("{bug:?}"), "seed": null }));
            }
        }
    }
    match arguments.json {
        true => println!("{}", serde_json::json!({ "planted": results })),
        false => println!("{} of {} planted bugs caught", bugs.len() - missed, bugs.len()),
    }
    missed == 0
}

fn described(outcome: &Outcome) -> serde_json::Value {
    let (hash, events) = outcome.digest;
    let error = outcome.result.as_ref().err().map(|failed| failed.violation.to_string());
    serde_json::json!({ "seed": outcome.seed, "scenario": outcome.scenario.name(), "events": events,
        "hash": format!("{hash:016x}"), "failure": error, "replay": outcome.replay() })
}
