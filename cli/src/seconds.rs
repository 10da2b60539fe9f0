//! Numbers of seconds on the command line.

use std::time::Duration;

/// Parses a number of seconds greater than 0.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|&seconds| seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "a number of seconds greater than 0".to_owned())
}
