//! Watcher thread, which explains long waits (MEM-21.1): one line on stderr for each, then again
//! after 60 s and every 10 minutes.

use super::answers::Asking;
use super::cause::{WaitCause, cause};
use super::{Wait, Waits};
use crate::sync::lock;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Age of a wait at its second explanation.
const SECOND: Duration = Duration::from_secs(60);
/// Time between later explanations.
const EXPLAIN_AGAIN_TIME: Duration = Duration::from_secs(600);
/// Time until a wait without explanation of its own is looked at again: another node explained it.
const EXPLAIN_POLL_TIME: Duration = Duration::from_secs(5);
/// Shortest time between two rounds of explanations.
const ROUND: Duration = Duration::from_secs(1);
/// Maximum number of lines of one round.
const LINES_MAX: usize = 4;
/// Maximum time that one round spends on asking other nodes.
const ASK_TIME: Duration = Duration::from_secs(2);
/// Nodes explain one after the other, this far apart, so that a large job does not ask one node all
/// at once.
const SPREAD: Duration = Duration::from_millis(1);
/// Ranks that are spread.
const SPREAD_MAX: u32 = 1000;

pub(super) fn spawn(waits: Arc<Waits>) -> std::io::Result<()> {
    let watch = move || waits.watch();
    oikaze_os::signals::spawn("oikaze watch", watch).map(drop)
}

impl Waits {
    fn watch(&self) {
        let mut earliest = None;
        while let Some(due) = self.next_due(earliest) {
            earliest = Instant::now().checked_add(ROUND);
            for line in self.explain(&due) {
                eprintln!("{line}");
            }
        }
    }

    /// Sleeps until waits are to be explained, at `earliest` or later. `None`: the node ends.
    fn next_due(&self, earliest: Option<Instant>) -> Option<Vec<Arc<Wait>>> {
        let Some(after) = self.explain_after else { return self.sleep_until_closed() };
        let after =
            after.saturating_add(SPREAD.saturating_mul(self.bootstrap.rank().min(SPREAD_MAX)));
        let mut entries = lock(&self.entries);
        loop {
            if entries.closed {
                return None;
            }
            let left = |wait: &Arc<Wait>| {
                lock(&wait.state).next.unwrap_or(after).saturating_sub(wait.begun.elapsed())
            };
            let pause = earliest.map_or(Duration::ZERO, |earliest| {
                earliest.saturating_duration_since(Instant::now())
            });
            match entries.waits.iter().map(left).min().map(|left| left.max(pause)) {
                Some(Duration::ZERO) => {
                    return Some(
                        entries.waits.iter().filter(|wait| left(wait).is_zero()).cloned().collect(),
                    );
                }
                Some(left) => entries = entries.wait_timeout(&self.changed, left),
                None => entries = entries.wait(&self.changed),
            }
        }
    }

    /// Sleeps until the node ends. No wait is explained on its own, and causes are found only for
    /// nodes that ask.
    fn sleep_until_closed(&self) -> Option<Vec<Arc<Wait>>> {
        let mut entries = lock(&self.entries);
        while !entries.closed {
            entries = entries.wait(&self.changed);
        }
        None
    }

    /// Returns the lines to print. Threads that wait for the same subject share one.
    fn explain(&self, due: &[Arc<Wait>]) -> Vec<String> {
        let facts = Asking::new(self, ASK_TIME);
        let mut groups: Vec<(String, Vec<&Arc<Wait>>)> = Vec::new();
        for wait in due {
            let subject = wait.subject.to_string();
            match groups.iter_mut().find(|(known, _)| *known == subject) {
                Some((_, waits)) => waits.push(wait),
                None => groups.push((subject, vec![wait])),
            }
        }
        let (mut lines, mut silent) = (Vec::new(), 0);
        for (_, waits) in groups {
            let Some(oldest) = waits.iter().min_by_key(|wait| wait.begun) else { continue };
            let found = if lines.len() < LINES_MAX {
                cause(&facts, &oldest.subject, Some(&oldest.thread))
            } else {
                silent += waits.len();
                WaitCause { text: String::new(), is_reporter: false }
            };
            if found.is_reporter {
                lines.push(self.line(oldest, waits.len() - 1, &found.text));
            }
            waits.iter().for_each(|wait| wait.explained(&found));
        }
        if silent > 0 {
            lines.push(format!(
                "oikaze: node {}: {silent} more waits last as long (oikaze top shows them)",
                self.bootstrap.rank()
            ));
        }
        lines
    }

    fn line(&self, oldest: &Wait, others: usize, cause: &str) -> String {
        let (rank, waited) = (self.bootstrap.rank(), waited_text(oldest.begun.elapsed()));
        let mut line = format!("oikaze: node {rank} has waited {waited} for {}", oldest.text());
        if others > 0 {
            // Writing to a string cannot fail.
            let _ = write!(line, " (so have {others} more of its threads)");
        }
        let _ = write!(line, ": {cause}");
        line
    }
}

/// Formats seconds without a fraction, from one second on.
fn waited_text(waited: Duration) -> String {
    let seconds = waited.as_secs_f64();
    if seconds < 1.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

impl Wait {
    /// Decides when the wait is explained again.
    fn explained(&self, found: &WaitCause) {
        let age = self.begun.elapsed();
        let mut state = lock(&self.state);
        if !found.text.is_empty() {
            state.cause = Some(found.text.clone());
        }
        state.next = Some(if !found.is_reporter {
            age.saturating_add(EXPLAIN_POLL_TIME)
        } else if state.explanations == 0 {
            SECOND.max(age.saturating_add(ROUND))
        } else {
            age.saturating_add(EXPLAIN_AGAIN_TIME)
        });
        state.explanations += u32::from(found.is_reporter);
    }
}

#[cfg(test)]
mod tests {
    use super::super::subject::WaitingThread;
    use super::*;
    use crate::node::waits::WaitSubject;

    /// MEM-21.1.
    #[test]
    fn wait_is_explained_at_once_then_after_a_minute_then_every_ten() {
        let (subject, thread) =
            (WaitSubject::Lock { number: 1, text: "lock 1".into() }, WaitingThread::current());
        let (begun, state) = (Instant::now(), Default::default());
        let wait = Wait { subject, place: None, begun, thread, state };
        let next = || lock(&wait.state).next.unwrap();
        let explained = |is_reporter| wait.explained(&WaitCause { text: "x".into(), is_reporter });
        explained(false);
        assert!(next() >= EXPLAIN_POLL_TIME, "nobody may have said it: {:?}", next());
        assert!(next() < SECOND, "nobody may have said it: {:?}", next());
        explained(true);
        assert_eq!(next(), SECOND);
        explained(true);
        assert!(next() >= EXPLAIN_AGAIN_TIME && next() < EXPLAIN_AGAIN_TIME + SECOND);
        assert_eq!(waited_text(Duration::from_millis(250)), "0.2 s");
        assert_eq!(waited_text(Duration::from_millis(5049)), "5 s");
    }
}
