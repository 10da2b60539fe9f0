//! Notifications: one node makes what it wrote visible to one other node (COH-15.4).

use crate::collective::calls::Collectives;
use crate::collective::channels::{Channel, SENDER};
use crate::error::{Error, Result};
use crate::job::handle::Job;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::told_by;
use oikaze_runtime::node::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Minimum time limit for learning a notification that has come. So a call with a shorter limit, as
/// in a program that polls, takes it as well.
const LEARN_LIMIT_MIN: Duration = Duration::from_millis(100);

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
    /// The call waits until the changes are at their homes. It waits for the other node only if
    /// that has not yet read hundreds of notifications (COLL-1.4). Each notification ends one wait,
    /// in the order of the calls. A call that ran into the time limit has still notified the other
    /// node, if the changes were at their homes. Otherwise, the other node's wait fails.
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
    /// a node is lost; or the time limit passed.
    #[track_caller]
    pub fn notify(&self, to: Rank) -> Result<()> {
        let what = format!("notification of node {to}");
        let channel = self.channel((self.rank(), to), to, &what)?;
        self.node.coherence.check_no_guard_of_this_thread(&self.node, || what.clone())?;
        // Another thread may notify meanwhile. Then this call tells more than it needs to.
        let told = lock(&channel.told).clone();
        let released = channel.team.release_to(to, told, &what);
        // A node that cannot release sends nothing known, so that the other one does not wait.
        let mine = released.as_deref().unwrap_or_default();
        let sent = channel.team.start().broadcast(SENDER, mine);
        if let Ok(mine) = &released {
            *lock(&channel.told) = told_by(mine, self.size());
        }
        let sent = sent.wait().map(drop);
        if sent.as_ref().is_err_and(|error| !error.is_timeout()) {
            // The other node may have lost it. What was told before is told again.
            lock(&channel.told).clear();
        }
        released.and(sent).map_err(|error| error.renamed(&what))
    }

    /// Waits for the next [notification](Job::notify) from a node. Afterwards this node's reads see
    /// what the other node wrote, or knew of, before it notified this node.
    ///
    /// # Errors
    /// The rank is this node's own, or none of the job; the calling thread has a guard of an array;
    /// the other node is lost or leaves; or the time limit passed. After a timeout no notification
    /// is lost: the next call waits for the same one.
    #[track_caller]
    pub fn wait_notify(&self, from: Rank) -> Result<()> {
        self.wait_notify_within(from, self.limit)
    }

    /// Waits as [`Job::wait_notify`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Job::wait_notify`].
    #[track_caller]
    pub fn wait_notify_for(&self, from: Rank, limit: Duration) -> Result<()> {
        self.wait_notify_within(from, Some(limit))
    }

    #[track_caller]
    fn wait_notify_within(&self, from: Rank, limit: Option<Duration>) -> Result<()> {
        let what = format!("wait for a notification of node {from}");
        let channel = self.channel((from, self.rank()), from, &what)?;
        self.node.coherence.check_no_guard_of_this_thread(&self.node, || what.clone())?;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let next = channel.next();
            next.wait(from, deadline).map_err(|error| error.renamed(&what))?;
            let learnt = next.told().map_err(|error| error.renamed(&what)).and_then(|told| {
                // The updates that it counts may still be on their way (COH-15.7).
                let left = |until: Instant| until.saturating_duration_since(Instant::now());
                let limit = deadline.map(|until| left(until).max(LEARN_LIMIT_MIN));
                channel.team.learn_from(from, (SENDER, told), &what, limit)
            });
            // A call that the program interrupts leaves the notification to the next one. Of
            // several threads, one takes it.
            if learnt.as_ref().is_err_and(Error::is_timeout) || channel.take(&next) {
                return learnt;
            }
        }
    }

    /// Waits until a notification of this node has come, and leaves it (`ffi::readiness`).
    #[track_caller]
    pub(crate) fn wait_until_notified(&self, from: Rank, limit: Option<Duration>) -> Result<()> {
        let what = format!("wait for a notification of node {from}");
        let channel = self.channel((from, self.rank()), from, &what)?;
        self.node.coherence.check_no_guard_of_this_thread(&self.node, || what.clone())?;
        let deadline = limit.or(self.limit).and_then(|limit| Instant::now().checked_add(limit));
        channel.next().wait(from, deadline).map_err(|error| error.renamed(&what))
    }

    /// Returns the channel from the first rank to the second, one of which is the `other` node.
    fn channel(&self, pair: (Rank, Rank), other: Rank, what: &str) -> Result<Arc<Channel>> {
        let (me, size) = (self.rank(), self.size());
        if other >= size {
            let why = format!("this job has {size} nodes; ranks are 0 to {}", size - 1);
            return Err(Error::invalid(what, why));
        }
        if other == me {
            return Err(Error::invalid(what, "a node sees its own writes; name another node"));
        }
        self.node.check_process(|| what.to_owned())?;
        let mut channels = lock(&self.channels.0);
        let channel = channels.entry(pair).or_insert_with(|| {
            let team = self.world.pair(pair);
            Arc::new(Channel { team, told: Mutex::default(), next: Mutex::default() })
        });
        Ok(Arc::clone(channel))
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
