//! Report of what this machine offers, for `oikaze doctor`: each feature as found, as needed, and
//! how to close the gap.
//!
//! Features are tried, not looked up. A version says what a kernel may be able to do, but a sandbox
//! decides what it permits. Probing does not change the machine, and everything tried is undone.

mod drops;
mod kernel;
mod limits;
mod multicast;
mod network;
mod placement;
mod sealing;
#[cfg(not(all(test, loom)))]
mod sharing;

use std::fmt;
use std::str::FromStr;

use crate::features::DisabledFeatures;

/// Suitability of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suitability {
    /// The feature is as it should be.
    Good,
    /// The feature works, with less speed or a restriction.
    Degraded,
    /// Some function will not work.
    Missing,
}

impl fmt::Display for Suitability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Suitability::Good => "good",
            Suitability::Degraded => "degraded",
            Suitability::Missing => "missing",
        })
    }
}

/// Result for one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the feature.
    pub what: &'static str,
    /// State that was found.
    pub found: String,
    /// State that is needed, and its purpose.
    pub needed: String,
    /// Suitability of what was found.
    pub ok: Suitability,
    /// Remedy; empty if none is needed.
    pub fix: String,
}

impl Finding {
    fn new(
        what: &'static str,
        found: impl Into<String>,
        needed: impl Into<String>,
        ok: Suitability,
    ) -> Finding {
        Finding { what, found: found.into(), needed: needed.into(), ok, fix: String::new() }
    }

    /// Adds a remedy, which is kept only if the verdict is not good.
    fn fix(mut self, fix: impl Into<String>) -> Finding {
        if self.ok != Suitability::Good {
            self.fix = fix.into();
        }
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8} {}: {} (needed: {})", self.ok, self.what, self.found, self.needed)?;
        if self.fix.is_empty() { Ok(()) } else { write!(f, "\n         fix: {}", self.fix) }
    }
}

/// Probes everything. Takes some milliseconds; the first time after the machine has started, some
/// 50 more.
#[must_use]
pub fn probe(without: &DisabledFeatures) -> Vec<Finding> {
    let mut findings = kernel::findings(without);
    findings.extend(limits::findings());
    #[cfg(not(all(test, loom)))]
    findings.extend(sharing::findings(without));
    findings.extend(network::findings(without));
    findings.extend(multicast::findings(without));
    findings.extend(drops::findings());
    findings.extend(placement::findings(without));
    findings.push(sealing::finding(without));
    findings
}

/// Returns the worst verdict of these findings.
#[must_use]
pub fn worst(findings: &[Finding]) -> Suitability {
    findings.iter().map(|f| f.ok).max().unwrap_or(Suitability::Good)
}

/// Reads a file that holds one number, such as those of /proc/sys.
fn number<T: FromStr>(path: &str) -> Option<T> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns a field of /proc/self/status, such as `CapEff`.
fn status_field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
}

/// Formats bytes with a unit, rounded down.
fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..units.len() - 1).find(|&u| count >> (10 * u) < 1024).unwrap_or(units.len() - 1);
    format!("{} {}", count >> (10 * unit), units.get(unit).unwrap_or(&"B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_is_complete_and_what_is_not_good_has_a_fix() {
        let findings = probe(&DisabledFeatures::default());
        assert!(findings.len() > 15);
        for finding in &findings {
            println!("{finding}");
            assert!(!finding.found.is_empty() && !finding.needed.is_empty(), "{finding}");
            assert_eq!(finding.fix.is_empty(), finding.ok == Suitability::Good, "{finding}");
        }
        let names: std::collections::BTreeSet<_> = findings.iter().map(|f| f.what).collect();
        assert_eq!(names.len(), findings.len(), "names are unique");
    }

    #[test]
    fn what_is_switched_off_is_not_called_missing() {
        let findings = probe(&DisabledFeatures::parse("uffd,gso").unwrap());
        let tracker = findings.iter().find(|f| f.what == "page tracking").unwrap();
        assert!(tracker.found.starts_with("mprotect"), "{tracker}");
        assert!(tracker.ok == Suitability::Degraded, "{tracker}");
    }

    #[test]
    fn byte_counts_read_well() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4 << 20), "4 MiB");
        assert_eq!(bytes(u64::MAX), "16777215 TiB");
    }

    #[test]
    fn status_fields_are_found_by_their_whole_name() {
        let text = "Seccomp_filters:\t3\nSeccomp:\t2\nCapEff:\t00000000000000ff\n";
        assert_eq!(status_field(text, "Seccomp").as_deref(), Some("2"));
        assert_eq!(status_field(text, "Cap"), None);
    }
}
