//! Ends of a node's waits and operations, because the launcher or another node has ended the job.

use super::parts::Node;
use super::parts::departures::{Departures, WORDS_LIMIT};
use crate::error::{Cause, Result};
use crate::sync::lock;
use oikaze_engine::{Failure, Request};
use oikaze_protocol::Rank;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Departures {
    /// Takes news of the launcher: the end of a process, or an abort of the job. Runs on the thread
    /// that reads from the store.
    pub fn take_launcher_news(&self, node: &Node) {
        let ended = node.bootstrap.ended();
        let new = {
            let mut inside = lock(&self.inside);
            let passed_on = std::mem::replace(&mut inside.passed_on, ended.len());
            ended.get(passed_on..).unwrap_or_default()
        };
        for end in new.iter().filter(|end| end.rank != node.bootstrap.rank()) {
            node.tell(Request::PeerEnded { peer: end.rank, success: end.success });
        }
        // A launcher that ends the job because of a death reports the abort, too. The program gets
        // the death itself as the reason.
        if let Some(why) = node.bootstrap.aborted().filter(|_| ended.iter().all(|end| end.success))
        {
            self.end_aborted(node, &why);
        }
        self.reason_came.notify_all();
    }

    /// Fails every wait and every later operation with this reason, or the earlier one (END-3.1).
    pub fn end_aborted(&self, node: &Node, why: &str) {
        let why = {
            let mut inside = lock(&self.inside);
            if inside.has_ended_engine {
                return;
            }
            // Another thread may have set the reason and not have ended the engine yet. A request
            // that this thread submits next must fail all the same: a barrier, for instance, would
            // succeed on other nodes.
            inside.aborted.get_or_insert_with(|| why.to_owned()).clone()
        };
        self.any.store(true, Ordering::Release);
        self.failed.store(true, Ordering::Relaxed);
        node.with_engine(|engine| {
            engine.end(&Failure::Aborted(why));
            // A load that waits for a page goes on with the page's last bytes, as after a death
            // (COH-8.3).
            engine.pages().release();
        });
        lock(&self.inside).has_ended_engine = true;
        node.wake_tasks();
        node.collectives.run(node);
        node.tell_waiters();
    }

    /// Delays the end after an abort, so that the others learn its reason before they see this
    /// process end (END-3.1). The engine refuses requests by then, a goodbye among them.
    pub fn let_reason_arrive(&self, node: &Node) {
        let deadline = Instant::now().checked_add(WORDS_LIMIT);
        let _: Option<()> = node.wait(deadline, || self.active_nodes().is_empty().then_some(()));
    }

    /// Reports the failures of operations to this peer, or to all, that no caller has been told of.
    /// They count as told from now on.
    pub fn report_untaken(&self, node: &Node, peer: Option<Rank>) -> Result<()> {
        let Some(report) = node.requests.untaken.report(peer) else { return Ok(()) };
        let first = report.first.map(|(what, failure)| {
            Box::new(self.failure(&what, failure).of_unknown_fate(what.fate()))
        });
        Err(Cause::Unseen { count: report.count, first }.into())
    }
}
