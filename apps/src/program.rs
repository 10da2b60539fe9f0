//! Run of a program: alone on one processor, or as a node of a job.

use oikaze_os::standard_output;
use std::error::Error;
use std::process::ExitCode;

use clap::{Args, Parser};
use oikaze::Job;

use super::nodes::{NodesTable, nodes_table};
use super::progress::Progress;
use super::report::Report;
use super::touch::Touch;
use crate::report::ReportedRun;

/// Options that all programs have.
#[derive(Args, Clone, Copy, Debug)]
pub struct RunOptions {
    /// The plain serial program, without Oikaze.
    #[arg(long)]
    pub serial: bool,
    /// Compares the result with the one of the serial program, bit for bit, and with published
    /// results where there are any.
    #[arg(long)]
    pub verify: bool,
    /// One line of JSON in place of text.
    #[arg(long)]
    pub json: bool,
    /// Shows a progress bar.
    #[arg(long)]
    pub progress: bool,
}

/// Options of a program that its run needs.
#[derive(Clone, Copy, Debug)]
pub struct RunPlan {
    /// Options that all programs have.
    pub options: RunOptions,
    /// How the program touches its shared arrays, if it has any.
    pub touch: Option<Touch>,
    /// Number of steps of the progress bar.
    pub steps: u64,
}

/// A program with a serial and a parallel version, as its command line describes it.
pub trait Program: Parser {
    /// Name in reports and errors.
    const NAME: &'static str;
    /// Result of a run.
    type Outcome;
    /// Result of a parallel run that is still in shared memory.
    type Solution;

    /// Computes the result on one processor, without nodes and shared memory. This result is the
    /// oracle of the parallel program.
    ///
    /// # Errors
    /// There is not enough memory.
    fn serial(&self, progress: Progress) -> Result<Self::Outcome, Box<dyn Error>>;

    /// Computes the result with all nodes of the job.
    ///
    /// # Errors
    /// A node is lost, or there is no memory.
    fn parallel(&self, job: &Job, progress: Progress) -> Result<Self::Solution, Box<dyn Error>>;

    /// Reads the result from all nodes, on node 0.
    ///
    /// # Errors
    /// A node is lost.
    fn outcome(&self, solution: &Self::Solution) -> oikaze::Result<Self::Outcome>;

    /// Returns what a run needs of the options.
    fn plan(&self) -> RunPlan;

    /// Returns the report about a result.
    fn report(&self, outcome: &Self::Outcome) -> Report;

    /// Checks a result against published ones, and against the serial run if there was one. Returns
    /// what was verified.
    ///
    /// # Errors
    /// The error says which values differ.
    fn check(
        &self,
        outcome: &Self::Outcome,
        serial: Option<&Self::Outcome>,
    ) -> Result<String, String>;
}

/// Runs program `P` with the arguments of this process.
#[must_use]
pub fn main<P: Program>() -> ExitCode {
    let program = match P::try_parse() {
        Ok(program) => program,
        Err(told) => return end(P::NAME, &told),
    };
    let plan = program.plan();
    let run = if plan.options.serial { run_serial } else { run_parallel };
    let result = run(&program, plan);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", P::NAME);
            ExitCode::FAILURE
        }
    }
}

/// Prints a help text, the version, or what is wrong with the arguments. Returns the status.
fn end(name: &str, told: &clap::Error) -> ExitCode {
    let printed = told.print();
    if told.use_stderr() {
        return ExitCode::from(2);
    }
    match standard_output::finish(printed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{name}: writing to standard output: {why}");
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> Result<(), String> {
    standard_output::print(text).map_err(|why| format!("writing to standard output: {why}"))
}

fn run_serial<P: Program>(program: &P, plan: RunPlan) -> Result<(), Box<dyn Error>> {
    let outcome = program.serial(Progress::new(plan.options.progress, plan.steps))?;
    print(&program.report(&outcome).lines(&reported::<P>(&plan, 1, None)))?;
    if plan.options.verify { verify(program, &outcome, None) } else { Ok(()) }
}

fn run_parallel<P: Program>(program: &P, plan: RunPlan) -> Result<(), Box<dyn Error>> {
    let job = oikaze::join()?;
    let shown = plan.options.progress && job.rank() == 0;
    let solution = program.parallel(&job, Progress::new(shown, plan.steps))?;
    // Taken before the result is read for its check, which is not part of the work.
    let table = nodes_table(&job)?;
    let mut verified = Ok(());
    if job.rank() == 0 {
        let outcome = program.outcome(&solution)?;
        print(&program.report(&outcome).lines(&reported::<P>(&plan, job.size(), Some(&table))))?;
        if plan.options.verify {
            let serial = program.serial(Progress::new(false, plan.steps))?;
            verified = verify(program, &outcome, Some(&serial));
        }
    }
    job.leave()?;
    verified
}

fn reported<'a, P: Program>(
    plan: &'a RunPlan,
    nodes: u32,
    table: Option<&'a NodesTable>,
) -> ReportedRun<'a> {
    ReportedRun { name: P::NAME, options: &plan.options, touch: plan.touch, nodes, table }
}

fn verify<P: Program>(
    program: &P,
    outcome: &P::Outcome,
    serial: Option<&P::Outcome>,
) -> Result<(), Box<dyn Error>> {
    let verified = program.check(outcome, serial)?;
    if !program.plan().options.json {
        print(&format!("verified: {verified}\n"))?;
    }
    Ok(())
}
