//! Runs the bench's programs: nodes of jobs, and sockets. All print one JSON object of values.

use std::collections::HashMap;
use std::ffi::OsString;
use std::time::Duration;

use crate::error::Error;
use crate::lab::Lab;
use crate::peers::oikaze;
use crate::process::{alone, own, own_program, seal};

/// Time limit of a measurement.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Values by name.
pub struct Values(HashMap<String, f64>);

impl Values {
    /// Finds the JSON object in what a program printed.
    ///
    /// # Errors
    /// There is none.
    pub fn of(printed: &str) -> Result<Values, Error> {
        let parse = |line: &str| serde_json::from_str(line.get(line.find('{')?..)?).ok();
        let values = printed.lines().find_map(parse);
        values
            .map(Values)
            .ok_or_else(|| Error::new(format!("the program printed no values: {}", printed.trim())))
    }

    /// Returns a value.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn get(&self, name: &str) -> Result<f64, Error> {
        let value = self.0.get(name).copied().filter(|value| value.is_finite());
        value.ok_or_else(|| Error::new(format!("the program measured no {name}")))
    }
}

/// Settings of a job's nodes.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Engines in the order of ranks, separated by commas.
    pub engines: &'static str,
    /// Ways to wait in the order of ranks, separated by commas.
    pub waits: &'static str,
    /// Mechanisms that the job does without.
    pub without: Option<&'static str>,
}

/// Checks that the programs are built.
///
/// # Errors
/// The `oikaze` command is missing.
pub fn present() -> Result<(), Error> {
    oikaze::program().map(drop)
}

/// Runs a job of two nodes, one on each host of the lab. Returns what node 0 printed.
///
/// # Errors
/// The job fails.
pub fn run_nodes(lab: &Lab, setup: &Setup, role: &[String]) -> Result<String, Error> {
    let me = own_program()?;
    let mut command = oikaze::launcher(lab, LIMIT, &seal())?;
    command.envs(setup.without.map(|without| ("OIKAZE_WITHOUT", without)));
    command.arg("--").arg(me).args(["node", "--engines", setup.engines, "--waits", setup.waits]);
    alone_with(command, role)
}

/// Runs a command with further arguments to its end.
fn alone_with(mut command: std::process::Command, arguments: &[String]) -> Result<String, Error> {
    command.args(arguments.iter().map(OsString::from));
    alone(command)
}

/// Runs a job as [`run_nodes`] does, and returns its values. A probe has none.
///
/// # Errors
/// The job fails, or prints no values.
pub fn node(lab: &Lab, setup: &Setup, role: &[String]) -> Result<Values, Error> {
    let printed = run_nodes(lab, setup, role)?;
    if role.first().is_some_and(|role| role == "probe") {
        return Ok(Values(HashMap::new()));
    }
    Values::of(&printed)
}

/// Runs both ends of a program over sockets.
///
/// # Errors
/// An end fails, or prints no values.
pub fn sockets(lab: &Lab, role: &str, arguments: &[String]) -> Result<Values, Error> {
    Values::of(&own(lab, "sockets", role, arguments)?)
}

/// Returns options with their values as arguments.
pub fn options(pairs: &[(&str, usize)]) -> Vec<String> {
    pairs.iter().flat_map(|(name, value)| [format!("--{name}"), value.to_string()]).collect()
}

/// Returns a role with its options as arguments.
pub fn role(name: &str, pairs: &[(&str, usize)]) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(options(pairs)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_behind_a_prefix() {
        let values = Values::of("note\n[0] {\"post\":1.5,\"p99\":2}\n").expect("values");
        assert!((values.get("post").expect("a value") - 1.5).abs() < 1e-9);
        assert!(values.get("t1").is_err());
        assert!(Values::of("").is_err() && Values::of("{").is_err());
    }

    #[test]
    fn arguments_are_options() {
        assert_eq!(role("post", &[("size", 8)]), ["post", "--size", "8"]);
    }
}
