//! Notifications: one node makes what it wrote visible to one other node (COH-15.4).

use crate::error::{Error, Result};
use crate::job::handle::Job;
use oikaze_engine::{Failure, Request};
use oikaze_protocol::Rank;
use oikaze_runtime::node::{Node, WaitSubject};
use std::sync::Arc;
use std::time::Duration;

impl Job {
    /// Tells another node that what this node wrote to shared arrays is complete. After the other
    /// node's [`wait_notify`](Job::wait_notify), its reads see all that this node wrote, or knew
    /// of, before this call. So two nodes can hand work over while the others compute.
    ///
    /// The notification brings what this node has
    /// [pushed](crate::shared::WriteGuard::push_to) to the other node, or sends it as a
    /// [subscriber](crate::shared::SharedArray::subscribe). The other node's pages stay valid, and
    /// its reads after the wait fetch nothing. That does not hold for pages that a third node has
    /// written, too, if the other node learns of this by the same notification. Such pages are
    /// fetched again.
    ///
    /// The call waits until the changes are at their homes. It does not wait for the other node's
    /// calls. Each notification ends one wait, in the order of the calls. A call that ran into the
    /// time limit still notifies the other node when the changes are at their homes.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let row = job.array::<f64>("row", 1000)?;
    /// let (me, last) = (job.rank(), job.size() - 1);
    /// if me > 0 {
    ///     job.wait_notify(me - 1)?; // now the row is as the node before has left it
    /// }
    /// row.write(..)?.iter_mut().for_each(|value| *value += 1.0);
    /// if me < last {
    ///     job.notify(me + 1)?;
    /// }
    /// job.barrier()?;
    /// assert_eq!(row.read(999..1000)?[0], f64::from(job.size()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The rank is this node's own, or none of the job; the calling thread has a guard of an array;
    /// a node is lost; the other node leaves; or the time limit passed. If the changes cannot be
    /// brought to their homes, the other node's wait fails, too.
    #[track_caller]
    pub fn notify(&self, to: Rank) -> Result<()> {
        let what = format!("notification of node {to}");
        self.check_other(to, &what)?;
        let notified = self.node.submit(Request::Notify(to), None);
        // This release orders what was owned before it (COH-10.14).
        drop(self.node.coherence.segments.end_interval());
        self.node.outcome(&what, &notified, self.limit)?;
        self.node.coherence.send_rest(&self.node);
        Ok(())
    }

    /// Waits for the next [notification](Job::notify) from a node. Afterwards this node's reads see
    /// what the other node wrote, or knew of, before it notified this node.
    ///
    /// # Errors
    /// The rank is this node's own, or none of the job; the calling thread has a guard of an array;
    /// a node of the job is lost; the other node leaves, or cannot tell what it wrote; or the time
    /// limit passed. After a timeout no notification
    /// is lost: the next call waits for the same one.
    #[track_caller]
    pub fn wait_notify(&self, from: Rank) -> Result<()> {
        self.wait_notify_within(from, self.limit, true)
    }

    /// Waits as [`Job::wait_notify`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Job::wait_notify`].
    #[track_caller]
    pub fn wait_notify_for(&self, from: Rank, limit: Duration) -> Result<()> {
        self.wait_notify_within(from, Some(limit), true)
    }

    /// Waits for the next notification. Without `takes` it is left to a later wait.
    #[track_caller]
    pub(crate) fn wait_notify_within(
        &self,
        from: Rank,
        limit: Option<Duration>,
        takes: bool,
    ) -> Result<()> {
        let what = format!("wait for a notification of node {from}");
        self.check_other(from, &what)?;
        wait_for_notification(&self.node, (from, takes), limit, &what)
    }

    /// Checks that there is such another node, and that the thread has no guard.
    fn check_other(&self, other: Rank, what: &str) -> Result<()> {
        let size = self.size();
        if other >= size {
            let why = format!("this job has {size} nodes; ranks are 0 to {}", size - 1);
            return Err(Error::invalid(what, why));
        }
        if other == self.rank() {
            return Err(Error::invalid(what, "a node sees its own writes; name another node"));
        }
        self.node.check_process(|| what.to_owned())?;
        self.node.coherence.check_no_guard_of_this_thread(&self.node, || what.to_owned())
    }
}

/// Waits for the next notification of a node, and takes it if `takes` is `true`.
#[track_caller]
pub(crate) fn wait_for_notification(
    node: &Node,
    (from, takes): (Rank, bool),
    limit: Option<Duration>,
    what: &str,
) -> Result<()> {
    let completion = node.submit(Request::WaitNotify { from, takes }, None);
    let notification = || format!("a notification of node {from}");
    let subject = || WaitSubject::Operation { what: notification(), peer: Some(from) };
    let waited = node.outcome_of(&subject, &what, || completion.outcome(), limit);
    if !waited.as_ref().is_err_and(Error::is_timeout) {
        return waited.map(drop);
    }
    // The notification stays for the next call, unless this one took it just now. The next turn
    // reports one or the other.
    node.tell(Request::Cancel { completion: Arc::clone(&completion) });
    match node.wait(None, || completion.outcome()) {
        Some(Ok(_)) => Ok(()),
        Some(Err(failure)) if !matches!(failure, Failure::Cancelled) => {
            Err(node.departures.failure(&what, failure))
        }
        _ => waited.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use crate::Job;
    use crate::job::Feature;
    use crate::testing::cluster_with;
    use oikaze_protocol::coherence::CoherenceStatistics;

    /// COH-15.5, COH-4.6: neither the bytes of notifications nor the intervals that nodes keep grow
    /// with the number of notifications between two barriers.
    #[test]
    fn many_notified_steps_without_a_barrier_grow_nothing() {
        let statistics = |job: &Job| -> CoherenceStatistics {
            let of = job.node.try_engine(|engine| *engine.coherence().statistics());
            of.unwrap_or_default()
        };
        let grown = cluster_with(3, Job::builder().without([Feature::Shm]), |job| {
            let words = job.array::<u64>("words", 3 * 512)?;
            let (me, size) = (job.rank(), job.size());
            let mut bytes = Vec::new();
            for step in 0..3000_u64 {
                let before = statistics(job).knowledge_bytes;
                if me > 0 || step > 0 {
                    job.wait_notify((me + size - 1) % size)?;
                }
                words.write(me as usize * 512..me as usize * 512 + 1)?[0] = step;
                job.notify((me + 1) % size)?;
                bytes.push(statistics(job).knowledge_bytes - before);
            }
            let end = statistics(job);
            if me == 0 {
                job.wait_notify(size - 1)?;
            }
            job.barrier()?;
            assert_eq!(words.read(1024..1025)?[0], 2999);
            Ok((bytes, end.intervals_kept - end.intervals_forgotten))
        });
        for (bytes, kept) in grown {
            // The numbers in the vector clocks become longer.
            let (first, last) = (bytes.iter().take(100).max(), bytes.iter().max());
            assert!(last.zip(first).is_some_and(|(last, first)| *last <= first + 16), "{bytes:?}");
            assert!(kept <= 64 + 16, "{kept} intervals");
        }
    }
}
