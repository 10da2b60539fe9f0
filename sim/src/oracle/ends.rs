//! Outcomes of the operations that were in flight when a node died.

use oikaze_protocol::time::Time;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Outcomes of one kind of operation in flight to the node that died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Operations that were done or answered, and whose requester learned of it.
    pub done: u64,
    /// Operations that may or may not have taken place, because the peer is dead.
    pub lost: u64,
}

/// Outcomes of all kinds of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    died: Option<Time>,
    /// Outcomes by name of the operation.
    pub kinds: BTreeMap<&'static str, Ended>,
    /// Maximum time for which any operation was in flight after the death, to any node.
    pub longest: Duration,
}

impl Ends {
    /// Notes that a node has died.
    pub fn death(&mut self, now: Time) {
        self.died = Some(now);
    }

    /// Notes that an operation has ended, with its times. `bereaved` is set if it was to the node
    /// that died.
    pub fn ended(
        &mut self,
        kind: &'static str,
        bereaved: bool,
        (since, now): (Time, Time),
        lost: bool,
    ) {
        let Some(died) = self.died.filter(|died| since <= *died) else { return };
        self.longest = self.longest.max(now.since(died));
        if bereaved {
            let ended = self.kinds.entry(kind).or_default();
            *if lost { &mut ended.lost } else { &mut ended.done } += 1;
        }
    }

    /// Adds the outcomes of another run.
    pub fn add(&mut self, other: &Ends) {
        self.longest = self.longest.max(other.longest);
        for (kind, ended) in &other.kinds {
            let sum = self.kinds.entry(kind).or_default();
            (sum.done, sum.lost) = (sum.done + ended.done, sum.lost + ended.lost);
        }
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "under way when a node died: the last had ended {:.0} ms later",
            self.longest.as_secs_f64() * 1e3
        )?;
        for (kind, Ended { done, lost }) in &self.kinds {
            writeln!(f, "  {kind:24} {done:8} done {lost:8} lost")?;
        }
        Ok(())
    }
}
