//! One run of one seed.

use crate::cluster::{Cluster, Summary};
use crate::plan::{Plan, Scenario};
use crate::trace::Trace;
use crate::violation::Violation;
use oikaze_protocol::time::Time;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// End of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Seed of the run.
    pub seed: u64,
    /// Scenario of the run.
    pub scenario: Scenario,
    /// Summary of the run, or its failure.
    pub result: Result<Summary, Box<Failed>>,
    /// Hash and number of the run's events.
    pub digest: (u64, u64),
}

/// Details of a failed run.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Violation that was found.
    pub violation: Violation,
    /// Plan of the run.
    pub plan: String,
    /// State of the nodes when the violation was found.
    pub state: String,
}

impl Outcome {
    /// Returns the command that repeats this run.
    #[must_use]
    pub fn replay(&self) -> String {
        let (seed, scenario) = (self.seed, self.scenario.name());
        format!(
            "cargo run --release -p oikaze-sim -- --seed {seed:#x} --scenario {scenario} --trace"
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.result {
            Ok(summary) => {
                let (seed, scenario, (hash, events)) =
                    (self.seed, self.scenario.name(), self.digest);
                write!(
                    f,
                    "seed {seed:#x} ({scenario}): fine, {} ms, {} datagrams, ",
                    summary.time / 1_000_000,
                    summary.datagrams
                )?;
                write!(f, "{} messages, {events} events, hash {hash:016x}", summary.messages)
            }
            Err(failed) => {
                writeln!(f, "seed {:#x} FAILED: {}", self.seed, failed.violation)?;
                write!(f, "{}{}replay: {}", failed.plan, failed.state, self.replay())
            }
        }
    }
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, scenario: Scenario, print: bool) -> Outcome {
    let plan = Plan::new(seed, scenario);
    let text = plan.to_string();
    if print {
        println!("{text}");
    }
    let failed = |violation, state| Box::new(Failed { violation, plan: text.clone(), state });
    let mut cluster = match Cluster::new(plan, Trace::new(print)) {
        Ok(cluster) => cluster,
        Err(what) => {
            let violation = Violation { at: Time::default(), node: 0, what };
            return Outcome {
                seed,
                scenario,
                result: Err(failed(violation, String::new())),
                digest: (0, 0),
            };
        }
    };
    // A panic in the engine is a failure of this seed, and not of all seeds.
    let result = match catch_unwind(AssertUnwindSafe(|| cluster.run())) {
        Ok(Ok(summary)) => Ok(summary),
        Ok(Err(violation)) => Err(failed(violation, cluster.state())),
        Err(panic) => {
            let said = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            let what = format!("panic: {}", said.unwrap_or("without a word"));
            Err(failed(Violation { at: Time::default(), node: 0, what }, String::new()))
        }
    };
    Outcome { seed, scenario, result, digest: cluster.trace().digest() }
}
