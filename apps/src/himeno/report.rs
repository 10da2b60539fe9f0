//! What a run tells, for people and for programs, and whether it is right.

use crate::Options;
use crate::problem::known;
use crate::serial::Outcome;

/// Digits of gosa that published results give.
fn ten_digits(gosa: f64) -> String {
    format!("{gosa:.9e}")
}

/// Prints the outcome; `nodes_did` are the rows of the table of statistics, or none.
pub fn print(options: &Options, nodes: u32, outcome: &Outcome, nodes_did: &[String]) {
    let mflops = options.size.shape().mflops(options.iterations, outcome.seconds);
    if options.json {
        let line = serde_json::json!({
            "program": "himeno", "size": options.size.name(), "iterations": options.iterations, "nodes": nodes,
            "serial": options.serial, "seconds": outcome.seconds, "mflops": mflops, "gosa": outcome.gosa,
            "hash": format!("{:016x}", outcome.hash),
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
    for row in nodes_did {
        println!("{row}");
    }
}

/// Compares with the serial run, if one was made beside this one, and with published results.
///
/// # Errors
/// Says what differs from what.
pub fn verify(options: &Options, outcome: &Outcome, serial: Option<&Outcome>) -> Result<(), String> {
    let name = format!("{} after {} iterations", options.size.name(), options.iterations);
    let differs = |what: &str, here: String, there: String| {
        Err(format!(
            "wrong result: {name}: {what}: this run has {here}, expected {there}; the field is not what one processor computes"
        ))
    };
    if let Some(serial) = serial {
        if serial.hash != outcome.hash {
            return differs("p hash, against the serial run", format!("{:016x}", outcome.hash), format!("{:016x}", serial.hash));
        }
        if serial.gosa.to_bits() != outcome.gosa.to_bits() {
            return differs("gosa, against the serial run", format!("{:e}", outcome.gosa), format!("{:e}", serial.gosa));
        }
    }
    if let Some(known) = known(options.size, options.iterations) {
        if known.hash != outcome.hash {
            return differs(
                "p hash, against the published one",
                format!("{:016x}", outcome.hash),
                format!("{:016x}", known.hash),
            );
        }
        if ten_digits(known.gosa) != ten_digits(outcome.gosa) {
            return differs("gosa, against the published one", ten_digits(outcome.gosa), ten_digits(known.gosa));
        }
    }
    if !options.json {
        println!("verified: p hash {:016x}", outcome.hash);
    }
    Ok(())
}
