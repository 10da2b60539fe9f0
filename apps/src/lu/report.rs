//! Report of a run for people and for programs, with a check of the result.

use oikaze_apps::NodesTable;

use crate::Options;
use crate::matrix::TOLERANCE;
use crate::serial::Outcome;

/// Prints the outcome and, if there is one, the table of the nodes' activity.
pub fn print(options: &Options, nodes: u32, outcome: &Outcome, table: Option<&NodesTable>) {
    let mflops = options.matrix().flops() / outcome.seconds / 1e6;
    if options.json {
        let line = serde_json::json!({
            "program": "lu", "n": options.n, "seed": options.seed, "nodes": nodes, "serial": options.serial,
            "seconds": outcome.seconds, "mflops": mflops, "error": outcome.error, "hash": format!("{:016x}", outcome.hash),
            "nodes_did": table.map(NodesTable::rows),
        });
        println!("{line}");
        return;
    }
    println!("lu {0} × {0}, {nodes} node{1}", options.n, if nodes == 1 { "" } else { "s" });
    println!(
        "{mflops:.0} MFLOPS ({:.3} s), solution within {:.1e} of ones",
        outcome.seconds, outcome.error
    );
    if let Some(table) = table {
        print!("{table}");
    }
}

/// Checks that the solution is all ones, and that the factors are those of the serial run if there
/// was one.
///
/// # Errors
/// The error says which values differ.
pub fn verify(
    options: &Options,
    outcome: &Outcome,
    serial: Option<&Outcome>,
) -> Result<(), String> {
    if outcome.error >= TOLERANCE {
        return Err(format!(
            "wrong result: the solution is {:.1e} away from ones, allowed are {TOLERANCE:.0e}",
            outcome.error
        ));
    }
    if let Some(serial) = serial
        && serial.hash != outcome.hash
    {
        return Err(format!(
            "wrong result: hash of the factors: this run has {:016x}, the serial run {:016x}; the factors are not what one processor computes",
            outcome.hash, serial.hash
        ));
    }
    if !options.json {
        println!("verified: factors hash {:016x}", outcome.hash);
    }
    Ok(())
}
