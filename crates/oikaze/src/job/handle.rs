//! The job's handle, [`Job`], and the calls that no other folder has.

use super::statistics::NodeStatistics;
use crate::collective::team::Team;
use crate::ffi::handles::HandleTable;
use oikaze_launch::Bootstrap;
use oikaze_os::memory::tracking::Tracker;
use oikaze_protocol::Rank;
use oikaze_runtime::error::{Error, Result};
use oikaze_runtime::node::{LoopProgress, Node};
use oikaze_runtime::observe::TrafficReport;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Status of a process that aborts its job and names no status.
const STATUS_ABORTED: u8 = 1;

/// A job that this process has joined. A dropped job leaves: it waits until all other nodes leave
/// too, then says goodbye.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// println!("node {} of {}", job.rank(), job.size());
/// job.barrier()?; // all nodes have come here
/// job.leave()?; // dropping the job does the same, but reports no error
/// # Ok(())
/// # }
/// ```
pub struct Job {
    pub(crate) node: Arc<Node>,
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    pub(crate) tracker: Arc<dyn Tracker>,
    pub(crate) limit: Option<Duration>,
    pub(crate) failure_time: Duration,
    pub(crate) tracking: String,
    /// Team of all nodes.
    pub(crate) world: Team,
    /// Set when the node begins to leave, and cleared again if the leave is interrupted.
    pub(crate) left: AtomicBool,
    pub(crate) handles: HandleTable,
}

impl Job {
    /// Returns this node's rank, 0 to `size` − 1.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.bootstrap.rank()
    }

    /// Returns the number of nodes in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.bootstrap.size()
    }

    /// Returns how this node detects accesses to shared arrays, and why not in a better way.
    #[must_use]
    pub fn page_tracking(&self) -> &str {
        &self.tracking
    }

    /// Returns the time limit of waits that are given none of their own. The program sets it by
    /// [`JobBuilder::time_limit`], and the user by `OIKAZE_TIMEOUT`. There is none unless it is
    /// set.
    ///
    /// A call that waits for what another node may never do has a second form with a limit of its
    /// own, whose name ends in `_for`: [`Job::receive_for`], [`Operation::wait_for`] and so on. The
    /// job's limit applies to all other waits.
    ///
    /// [`JobBuilder::time_limit`]: crate::job::JobBuilder::time_limit
    /// [`Operation::wait_for`]: crate::completion::Operation::wait_for
    #[must_use]
    pub fn time_limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Ends the job for all nodes, for this reason, and this process with status 1. Every wait and
    /// operation of every node fails with the reason. The launcher prints the reason, and ends each
    /// process that does not end by itself. If several nodes abort the job, the first reason stays.
    ///
    /// The call does not return, as that of `MPI_Abort` does not. Destructors do not run, but
    /// functions of atexit(3) do.
    ///
    /// ```no_run
    /// # fn main() -> oikaze::Result<()> {
    /// # let residual = f64::NAN;
    /// let job = oikaze::join()?;
    /// if residual.is_nan() {
    ///     job.abort("the iteration diverges: choose a smaller step");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn abort(&self, reason: &str) -> ! {
        self.abort_with(STATUS_ABORTED, reason)
    }

    /// Ends the job for all nodes as [`Job::abort`] does, and this process with this status, which
    /// is the job's status, too (LAUNCH-3.1). An aborted job has failed, so status 0 counts as 1.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// # let input = "4";
    /// let job = oikaze::join()?;
    /// if input.is_empty() {
    ///     job.abort_with(3, "the input is empty");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn abort_with(&self, status: u8, reason: &str) -> ! {
        self.end_for_all(reason);
        std::process::exit(i32::from(if status == 0 { STATUS_ABORTED } else { status }))
    }

    /// Ends the job for all nodes, and waits a moment until they know the reason (END-3.1).
    pub(crate) fn end_for_all(&self, reason: &str) {
        self.tell_end(reason);
        if let Some(node) = self.node.enter() {
            node.departures.let_reason_arrive(node);
        }
    }

    /// Ends the job for all nodes. They may not know it yet.
    fn tell_end(&self, reason: &str) {
        // A child of fork may not speak for the node (MEM-24.1).
        if self.node.check_process(|| "abort".into()).is_err() {
            return;
        }
        self.bootstrap.abort(reason);
        self.node
            .departures
            .end_aborted(&self.node, &format!("node {} aborted the job: {reason}", self.rank()));
    }

    /// Returns the ranks of nodes that have died, or have left without waiting for the others, in
    /// the order in which this node learned of it. See [`JobBuilder::keep_going`].
    ///
    /// [`JobBuilder::keep_going`]: crate::job::JobBuilder::keep_going
    #[must_use]
    pub fn lost(&self) -> Vec<Rank> {
        self.node.departures.lost()
    }

    /// Returns the counters of this node.
    #[must_use]
    pub fn statistics(&self) -> NodeStatistics {
        let mut statistics = self.node.try_engine(NodeStatistics::of).unwrap_or_default();
        let without = self.node.coherence.without_engine();
        statistics.barriers += without.barriers;
        statistics.locks += without.locks;
        statistics
    }

    /// Returns a descriptor that becomes readable when an operation is settled or a message has
    /// arrived, for `select` and async runtimes. [`Job::clear_descriptor`] makes the descriptor
    /// unreadable again. Check for events after that call, not before. The descriptor is readable
    /// at first. It may become readable without any event, because it also reports what the node
    /// has yet to take in.
    ///
    /// A loop that calls [`Job::progress`] before it sleeps is about as fast as a blocking wait.
    /// While a loop sleeps, datagrams come through the kernel's sockets, as for any thread that
    /// sleeps.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # use std::os::fd::{AsRawFd, BorrowedFd};
    /// # fn sleep_on(_: BorrowedFd<'_>) {} // poll(2)
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// job.peer(job.rank())?.send(Class::Ordered, 3, b"a note").wait()?;
    /// let note = loop {
    ///     if let Some(note) = job.try_receive(None) {
    ///         break note;
    ///     }
    ///     if !job.progress() {
    ///         sleep_on(job.descriptor());
    ///         job.clear_descriptor();
    ///     }
    /// };
    /// assert_eq!(note.tag(), 3);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.node.tasks.watch_loop.descriptor(&self.node)
    }

    /// Makes the descriptor unreadable again, and takes in what has arrived; see
    /// [`Job::descriptor`].
    pub fn clear_descriptor(&self) {
        self.node.tasks.watch_loop.clear(&self.node);
    }

    /// Does the node's work that is due now, and returns at once, for programs with an event loop.
    /// Returns `true` if the loop should look for its events and call again, because there may be
    /// some or they are likely to come soon. Returns `false` if the loop should sleep on
    /// [`Job::descriptor`]. The way to wait ([`JobBuilder::waiting`]) says for how long the result
    /// is `true`: always with `spin`, never with `poll:TIME`, and with `block` for 100 µs after the
    /// latest event.
    ///
    /// No program has to call it: a helper thread serves the node otherwise.
    ///
    /// [`JobBuilder::waiting`]: crate::job::JobBuilder::waiting
    pub fn progress(&self) -> bool {
        let progress = self.node.tasks.watch_loop.progress(&self.node);
        progress.news || progress.polls_on
    }

    /// Does what [`Job::progress`] does, and says what it has found. For bindings, whose event
    /// loops look for their events at a cost.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// job.peer(job.rank())?.send(oikaze::message::Class::Ordered, 0, b"a note");
    /// let note = loop {
    ///     let _found = job.progress_of_loop(); // with `news` and `polls_on`
    ///     if let Some(note) = job.try_receive(None) {
    ///         break note;
    ///     }
    /// };
    /// assert_eq!(note.bytes(), b"a note");
    /// # Ok(())
    /// # }
    /// ```
    pub fn progress_of_loop(&self) -> LoopProgress {
        self.node.tasks.watch_loop.progress(&self.node)
    }

    /// Leaves the job: waits for all other nodes to leave, then says goodbye. Dropping the job does
    /// the same. This call also returns errors.
    ///
    /// Guards that are still alive show the last bytes that this node had, and nothing changes
    /// these bytes any more.
    ///
    /// # Errors
    /// A node was lost before it left; operations have failed that no caller waited for
    /// ([`Job::flush`]); a guard is alive, whose later writes no other node will see (this node
    /// leaves the job all the same).
    #[track_caller]
    pub fn leave(self) -> Result<()> {
        self.leave_once()
    }

    /// Tells the other nodes that this node has failed, and leaves without waiting for them.
    pub(crate) fn fail(self, why: &str) {
        self.left.store(true, Ordering::Relaxed);
        if self.node.check_process(|| "leave".into()).is_err() {
            return;
        }
        if !self.node.departures.keeps_going() {
            self.tell_end(why);
        }
        self.part();
    }

    /// Says goodbye and stops the node.
    fn part(&self) {
        if TrafficReport::is_wanted() {
            let report = self.node.with_engine(|engine| TrafficReport::of(self.rank(), engine));
            report.publish(&*self.bootstrap);
        }
        self.node.departures.say_goodbye(&self.node, self.failure_time);
        self.node.stop();
    }

    #[track_caller]
    pub(crate) fn leave_once(&self) -> Result<()> {
        if self.left.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.node.check_process(|| "leave".into())?;
        let outcome = if std::thread::panicking() {
            // A node that panics waits for no other. Survivors that go on learn of the end by its
            // goodbye.
            if !self.node.departures.keeps_going() {
                self.tell_end("it panicked");
            }
            Ok(())
        } else if self.node.departures.is_aborted() {
            Ok(())
        } else {
            // The others cannot do without this node's arrival, so a guard that is alive is an
            // error only afterwards.
            let guards = self.node.coherence.check_no_guard(&self.node, "leave");
            let begun = Instant::now();
            let left = self.node.departures.leave_job(&self.node, begun, self.limit);
            let is_late = self.limit.is_some_and(|limit| begun.elapsed() >= limit);
            if !is_late && left.as_ref().is_err_and(Error::is_timeout) {
                // Interrupted (MEM-19.4).
                self.left.store(false, Ordering::Relaxed);
                return left;
            }
            left.and_then(|()| self.node.departures.report_untaken(&self.node, None)).and(guards)
        };
        self.part();
        self.bootstrap.report_left();
        outcome
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The parent goes on, and a child of fork takes nothing down (MEM-24.2).
        if self.node.enter().is_none() {
            return;
        }
        // The program has been told of the earlier failure, so a failure to leave for the same
        // reason is not reported.
        let known = self.node.departures.has_failed();
        if let Err(error) = self.leave_once()
            && !known
        {
            eprintln!("oikaze: node {}: {error}", self.bootstrap.rank());
        }
    }
}
