//! Report of a run for people and for programs, with a check of the result.

use oikaze_apps::NodesTable;

use crate::Options;
use crate::problem::known;
use crate::serial::Outcome;

/// Formats gosa with as many digits as published results have.
fn ten_digits(gosa: f64) -> String {
    format!("{gosa:.9e}")
}

/// Prints the outcome and, if there is one, the table of the nodes' activity.
pub fn print(options: &Options, nodes: u32, outcome: &Outcome, table: Option<&NodesTable>) {
    let mflops = options.size.shape().mflops(options.iterations, outcome.seconds);
    if options.json {
        let line = serde_json::json!({
            "program": "himeno", "size": options.size.name(), "iterations": options.iterations, "nodes": nodes,
            "serial": options.serial, "seconds": outcome.seconds, "mflops": mflops, "gosa": outcome.gosa,
            "hash": outcome.hash.map(hex), "nodes_did": table.map(NodesTable::rows),
        });
        println!("{line}");
        return;
    }
    println!(
        "himeno {}, {} iterations, {nodes} node{}",
        options.size.name(),
        options.iterations,
        if nodes == 1 { "" } else { "s" }
    );
    println!("{mflops:.0} MFLOPS ({:.3} s), gosa {}", outcome.seconds, ten_digits(outcome.gosa));
    if let Some(table) = table {
        print!("{table}");
    }
}

/// Compares the outcome with published results, and with the serial run if there was one.
///
/// # Errors
/// The error says which values differ.
pub fn verify(
    options: &Options,
    outcome: &Outcome,
    serial: Option<&Outcome>,
) -> Result<(), String> {
    let name = format!("{} after {} iterations", options.size.name(), options.iterations);
    let differs = |what: &str, here: String, there: String| {
        Err(format!(
            "wrong result: {name}: {what}: this run has {here}, expected {there}; the field is not what one processor computes"
        ))
    };
    let hash = outcome.hash.ok_or("the run took no fingerprint of the field (a defect)")?;
    if let Some(serial) = serial {
        if serial.hash != Some(hash) {
            return differs(
                "p hash, against the serial run",
                hex(hash),
                serial.hash.map_or_else(String::new, hex),
            );
        }
        if serial.gosa.to_bits() != outcome.gosa.to_bits() {
            return differs(
                "gosa, against the serial run",
                format!("{:e}", outcome.gosa),
                format!("{:e}", serial.gosa),
            );
        }
    }
    if let Some(known) = known(options.size, options.iterations) {
        if known.hash != hash {
            return differs("p hash, against the published one", hex(hash), hex(known.hash));
        }
        if ten_digits(known.gosa) != ten_digits(outcome.gosa) {
            return differs(
                "gosa, against the published one",
                ten_digits(outcome.gosa),
                ten_digits(known.gosa),
            );
        }
    }
    if !options.json {
        println!("verified: p hash {}", hex(hash));
    }
    Ok(())
}

fn hex(hash: u64) -> String {
    format!("{hash:016x}")
}
