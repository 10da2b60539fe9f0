//! Chooses the tracker that works on this machine, and reports why.

use std::fmt;
use std::sync::Arc;

use oikaze_protocol::limits::PAGE;

use super::error::SharedError;
use super::self_test;
use super::trackers::mprotect::Mprotect;
use super::trackers::tracker::{Tracker, TrackerKind};
use super::trackers::userfaultfd::Userfaultfd;
use crate::features::{DisabledFeatures, Feature};

/// The chosen tracker, and why the better ones were passed over.
#[derive(Debug)]
pub struct Choice {
    /// Tracker that was chosen.
    pub tracker: Arc<dyn Tracker>,
    /// Better trackers that were passed over, best first, each with the reason.
    pub passed_over: Vec<(TrackerKind, String)>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tracker.kind())?;
        for (kind, reason) in &self.passed_over {
            write!(f, "; not {kind} ({reason})")?;
        }
        Ok(())
    }
}

/// Trackers, best first, each with the features that it needs.
const CANDIDATES: [(TrackerKind, &[Feature]); 3] = [
    (TrackerKind::UserfaultfdFull, &[Feature::Uffd, Feature::UffdFull]),
    (TrackerKind::UserfaultfdUserMode, &[Feature::Uffd]),
    (TrackerKind::Mprotect, &[Feature::Mprotect]),
];

/// Opens one tracker and tests it on two pages.
///
/// # Errors
/// Not permitted, not there, or it does not do what it should.
pub fn open(kind: TrackerKind) -> Result<Arc<dyn Tracker>, SharedError> {
    let page = rustix::param::page_size();
    if page != PAGE {
        return Err(SharedError::invalid(
            format!("tracking pages of {PAGE} bytes by {kind}"),
            format!("this kernel's pages have {page} bytes"),
            "Boot a kernel with 4 KiB pages; messages and remote memory work with any.",
        ));
    }
    if kind != TrackerKind::Mprotect && crate::valgrind::is_running() {
        return Err(SharedError::invalid(
            format!("tracking pages by {kind}"),
            "Valgrind runs one thread at a time, so that none could serve a page fault",
            "Leave the choice to Oikaze, which takes mprotect under Valgrind.",
        ));
    }
    let tracker: Arc<dyn Tracker> = match kind {
        TrackerKind::UserfaultfdFull => Arc::new(Userfaultfd::full()?),
        TrackerKind::UserfaultfdUserMode => Arc::new(Userfaultfd::user_mode_only()?),
        TrackerKind::Mprotect => Arc::new(Mprotect::new()?),
    };
    self_test::run(&tracker)?;
    Ok(tracker)
}

/// Tries the trackers, best first, and returns the first that works and is not switched off.
///
/// # Errors
/// None works: why, for each.
pub fn choose(without: &DisabledFeatures) -> Result<Choice, SharedError> {
    let mut passed_over = Vec::new();
    for (kind, needed) in CANDIDATES {
        if let Some(off) = needed.iter().find(|feature| without.contains(**feature)) {
            passed_over.push((kind, format!("switched off by OIKAZE_WITHOUT={off}")));
            continue;
        }
        match open(kind) {
            Ok(tracker) => return Ok(Choice { tracker, passed_over }),
            Err(e) => passed_over.push((kind, e.reason())),
        }
    }
    let reasons: Vec<_> =
        passed_over.iter().map(|(kind, reason)| format!("{kind}: {reason}")).collect();
    Err(SharedError::invalid(
        "finding a way to track touches of shared pages",
        reasons.join("; "),
        "Run `oikaze doctor`, and see docs/KERNELS.md.",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_switched_off_is_not_taken_and_the_report_says_so() {
        let choice = choose(&DisabledFeatures::parse("uffd").unwrap()).unwrap();
        assert_eq!(choice.tracker.kind(), TrackerKind::Mprotect);
        let report = choice.to_string();
        assert!(
            report.starts_with(
                "mprotect + SIGSEGV; not full userfaultfd (switched off by OIKAZE_WITHOUT=uffd)"
            ),
            "{report}"
        );
        assert_ne!(
            choose(&DisabledFeatures::parse("uffd-full").unwrap()).unwrap().tracker.kind(),
            TrackerKind::UserfaultfdFull
        );
    }

    #[test]
    fn nothing_left_is_an_error_that_names_all() {
        let text =
            choose(&DisabledFeatures::parse("uffd,mprotect").unwrap()).unwrap_err().to_string();
        assert!(text.contains("userfaultfd for user mode only"), "{text}");
        assert!(text.contains("OIKAZE_WITHOUT=mprotect"), "{text}");
    }
}
