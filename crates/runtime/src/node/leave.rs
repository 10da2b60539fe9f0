//! Leaves the job in order (END-1.2, END-1.3): tells the others, waits for them, and reports the
//! nodes that this node waits for.

use super::outcomes::ranks;
use super::parts::departures::Departures;
use super::{Node, WaitSubject};
use crate::error::Result;
use oikaze_engine::{Failure, Request, Value};
use std::time::{Duration, Instant};

/// Time in leave after which one line on standard error names the nodes that this node waits for.
const LEAVE_QUIET: Duration = Duration::from_secs(2);

impl Departures {
    /// Waits from `begun` on until all other nodes leave, too. A call after an interruption goes on
    /// with the leave that the first call has begun.
    #[track_caller]
    pub fn leave_job(&self, node: &Node, begun: Instant, limit: Option<Duration>) -> Result<()> {
        let call = node.coherence.begin_leave(node);
        let left =
            self.wait_in_leave(node, begun, limit, || node.coherence.calls.outcome(call, node));
        match left {
            // A collective of all nodes ends once one node is dead. Survivors still wait for one
            // another (END-4.3).
            Err(error) if error.lost_peer().is_some() && self.keeps_going() => {
                let survivors_leave = || self.active_nodes().is_empty().then_some(Ok(Value::Done));
                self.wait_in_leave(node, begun, limit, survivors_leave)
            }
            left => left,
        }
    }

    #[track_caller]
    fn wait_in_leave(
        &self,
        node: &Node,
        begun: Instant,
        limit: Option<Duration>,
        mut ready: impl FnMut() -> Option<std::result::Result<Value, Failure>>,
    ) -> Result<()> {
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let quiet = begun.checked_add(LEAVE_QUIET);
        let until = [deadline, quiet].into_iter().flatten().min();
        let subject = || WaitSubject::Collective("leave".into());
        let mut outcome = node.wait_on(&subject, until, &mut ready);
        let now = Instant::now();
        let is_quiet = quiet.is_some_and(|quiet| now >= quiet);
        if outcome.is_none() && is_quiet && deadline.is_none_or(|deadline| now < deadline) {
            self.say_who_is_waited_for(node);
            outcome = node.wait_on(&subject, deadline, &mut ready);
        }
        let is_late = outcome.is_none();
        let what = || match self.active_nodes() {
            late if is_late && !late.is_empty() => {
                format!("leave, to which node {} has not come", ranks(&late))
            }
            _ => "leave".to_owned(),
        };
        node.awaited(what, begun, outcome).map(drop)
    }

    fn say_who_is_waited_for(&self, node: &Node) {
        let (me, late) = (node.bootstrap.rank(), self.active_nodes());
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

    /// Says goodbye to all peers, once they have all that was sent to them, and sees that it goes
    /// out. A peer without that goodbye would wait for this node until it takes the node for dead.
    pub fn say_goodbye(&self, node: &Node, limit: Duration) {
        if node.enter().is_none() {
            return;
        }
        if self.is_aborted() {
            return self.let_reason_arrive(node);
        }
        let deadline = Instant::now().checked_add(limit);
        let _: Option<()> =
            node.wait(deadline, || node.with_engine(|engine| engine.is_settled()).then_some(()));
        let completion = node.submit(Request::Close, None);
        let _: Option<()> = node.wait(deadline, || {
            let gone = completion.is_done()
                && node.with_engine(|engine| engine.has_closed_all(node.now()));
            gone.then_some(())
        });
    }
}
