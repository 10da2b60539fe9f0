//! Leaves the job in order (END-1.2, END-1.3): tells the others, waits for them, and reports the
//! nodes that this node waits for.

use super::Node;
use super::WaitSubject;
use super::outcomes::ranks;
use crate::Result;
use oikaze_engine::{Request, Value};
use std::time::{Duration, Instant};

/// Time in leave after which one line on standard error names the nodes that this node waits for.
const LEAVE_QUIET: Duration = Duration::from_secs(2);

impl Node {
    /// Waits until all other nodes leave, too.
    #[track_caller]
    pub fn leave_job(&self, limit: Option<Duration>) -> Result<()> {
        let begun = Instant::now();
        let completion = self.submit(Request::Leave, None);
        let left = self.wait_in_leave(begun, limit, || completion.outcome());
        match left {
            // A collective of all nodes ends once one node is dead. Survivors still wait for one
            // another (END-4.3).
            Err(error) if error.lost_peer().is_some() && self.departures.keeps_going() => {
                let survivors_leave =
                    || self.departures.active_nodes().is_empty().then_some(Ok(Value::Done));
                self.wait_in_leave(begun, limit, survivors_leave)
            }
            left => left,
        }
    }

    #[track_caller]
    fn wait_in_leave(
        &self,
        begun: Instant,
        limit: Option<Duration>,
        mut ready: impl FnMut() -> Option<std::result::Result<Value, oikaze_engine::Failure>>,
    ) -> Result<()> {
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let quiet = begun.checked_add(LEAVE_QUIET);
        let until = [deadline, quiet].into_iter().flatten().min();
        let subject = || WaitSubject::Collective("leave".into());
        let mut outcome = self.wait_on(&subject, until, &mut ready);
        if outcome.is_none() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            self.say_who_is_waited_for();
            outcome = self.wait_on(&subject, deadline, &mut ready);
        }
        let is_late = outcome.is_none();
        let what = || match self.departures.active_nodes() {
            late if is_late && !late.is_empty() => {
                format!("leave, to which node {} has not come", ranks(&late))
            }
            _ => "leave".to_owned(),
        };
        self.awaited(what, begun, outcome).map(drop)
    }

    fn say_who_is_waited_for(&self) {
        let (me, late) = (self.bootstrap.rank(), self.departures.active_nodes());
        if late.is_empty() {
            eprintln!(
                "oikaze: node {me} has left its work and waits for the last answers of the others in leave"
            );
        } else {
            eprintln!(
                "oikaze: node {me} has left its work and waits in leave for node {}",
                ranks(&late)
            );
        }
    }
}
