//! Picking the tracker that works on this machine, and saying why.

use std::fmt;
use std::sync::Arc;

use super::error::SharedError;
use super::tracker::{Tracker, TrackerKind};
use super::userfaultfd::Userfaultfd;

/// What was chosen, and why not the ones before it.
#[derive(Debug)]
pub struct Choice {
    /// The tracker.
    pub tracker: Arc<dyn Tracker>,
    /// The better ones that were not taken, best first, each with the reason.
    pub passed_over: Vec<(TrackerKind, String)>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tracker.kind())?;
        for (kind, reason) in &self.passed_over {
            write!(f, "; not {kind}: {reason}")?;
        }
        Ok(())
    }
}

/// A tracker, the words that switch it off, and how to make it.
type Candidate = (TrackerKind, &'static [&'static str], fn() -> Result<Arc<dyn Tracker>, SharedError>);

/// Try the trackers, best first, and take the first that works. `is_off` says what `OIKAZE_WITHOUT` forbids: `uffd`, `uffd-full`.
///
/// # Errors
/// None works: the last one's reason.
pub fn choose(is_off: impl Fn(&str) -> bool) -> Result<Choice, SharedError> {
    let mut passed_over = Vec::new();
    let candidates: [Candidate; 2] = [
        (TrackerKind::UserfaultfdFull, &["uffd", "uffd-full"], || Ok(Arc::new(Userfaultfd::full()?))),
        (TrackerKind::UserfaultfdUserMode, &["uffd"], || Ok(Arc::new(Userfaultfd::user_mode_only()?))),
    ];
    for (kind, words, open) in candidates {
        if let Some(word) = words.iter().find(|w| is_off(w)) {
            passed_over.push((kind, format!("switched off by OIKAZE_WITHOUT={word}")));
            continue;
        }
        match open() {
            Ok(tracker) => return Ok(Choice { tracker, passed_over }),
            Err(e) => passed_over.push((kind, e.to_string())),
        }
    }
    Err(SharedError::invalid("choosing how to track shared pages", "nothing works here", "Run `oikaze doctor`."))
}
