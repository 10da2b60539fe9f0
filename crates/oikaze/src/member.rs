//! Membership of this process in its job. [`Job`] is the object from which a program gets
//! everything else.

use crate::completion::{CompletionQueue, Counter};
use crate::fifo::Fifo;
use crate::handle::Handles;
use crate::node::{Needs, Node, WaitSubject};
use crate::region::LocalRegion;
use crate::remote::Peer;
use crate::shared::{Element, LockGuard, SharedArray};
use crate::statistics::NodeStatistics;
use crate::{Arrived, Error, Homes, Result, Rights};
use oikaze_engine::{Request, Value};
use oikaze_launch::Bootstrap;
use oikaze_os::memory::Region;
use oikaze_os::memory::tracking::Tracker;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{ReduceOp, Reduction, Values};
use oikaze_protocol::rma::Published;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A job that this process has joined. A dropped job leaves: it waits until all other nodes leave
/// too, then says goodbye.
pub struct Job {
    pub(crate) node: Arc<Node>,
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    pub(crate) tracker: Arc<dyn Tracker>,
    pub(crate) limit: Option<Duration>,
    pub(crate) failure_time: Duration,
    pub(crate) tracking: String,
    pub(crate) left: bool,
    pub(crate) handles: Handles,
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
    pub fn tracking(&self) -> &str {
        &self.tracking
    }

    /// Returns the time limit of waits that are given none of their own (`OIKAZE_TIMEOUT`, in
    /// milliseconds; none unless set).
    #[must_use]
    pub fn time_limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Sets the time limit of waits from now on. [`Peer`]s and arrays obtained earlier keep their
    /// previous limit.
    pub fn set_time_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// Returns the handle of another node.
    ///
    /// # Errors
    /// The job has no such rank.
    pub fn peer(&self, rank: Rank) -> Result<Peer> {
        self.node.check_process(|| format!("node {rank}"))?;
        self.node.check_rank(rank)?;
        let route = self.node.shm_route_to(rank, self.limit);
        Ok(Peer { node: Arc::clone(&self.node), rank, limit: self.limit, route })
    }

    /// Registers memory as source and destination of this node's operations. Peers cannot reach the
    /// memory.
    ///
    /// # Errors
    /// The table of regions is full.
    pub fn register(&self, region: Region) -> Result<LocalRegion> {
        LocalRegion::new(&self.node, region, Rights::NONE, None, self.limit)
    }

    /// Registers memory without a name, and makes it reachable for peers that know its id
    /// ([`LocalRegion::remote_id`]).
    ///
    /// # Errors
    /// The memory is lent and cannot grant these rights; the table of regions is full.
    pub fn expose(&self, region: Region, rights: Rights) -> Result<LocalRegion> {
        LocalRegion::new(&self.node, region, rights, None, self.limit)
    }

    /// Registers memory under a name of up to 48 bytes, and makes it reachable for peers.
    ///
    /// # Errors
    /// The name is taken, or too long; the table of regions is full.
    pub fn publish(&self, name: &str, region: Region, rights: Rights) -> Result<LocalRegion> {
        let len = region.len() as u64;
        let local =
            LocalRegion::new(&self.node, region, rights, Some(name.to_owned()), self.limit)?;
        let published = Published { key: local.key(), len, rights };
        // Published at once: a request left to another thread could publish the region after the
        // caller has given it up.
        match self.node.publish(name, published) {
            Ok(()) => Ok(local),
            Err(failure) => {
                local.forget_name();
                Err(self.node.failure(&format_args!("publishing region \"{name}\""), failure))
            }
        }
    }

    /// Makes a FIFO that peers push into, under a name of up to 48 bytes. The FIFO has room for at
    /// least `slots` elements (a power of two, at most 2²⁴) of up to `longest` bytes each, at most
    /// 1 MiB.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let work = if job.rank() == 0 { Some(job.fifo("work", 1024, 64)?) } else { None };
    /// job.peer(0)?.fifo("work")?.push(b"an item", None)?; // waits for room
    /// if let Some(work) = work {
    ///     for _ in 0..job.size() {
    ///         let mut item = Vec::new();
    ///         work.pop(&mut item, None)?; // waits for one
    ///         assert_eq!(item, b"an item");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The elements are too many or too long; there is not enough memory; the name is taken, or too
    /// long; the table of regions is full.
    pub fn fifo(&self, name: &str, slots: u64, longest: u64) -> Result<Fifo> {
        Fifo::make(self, name, slots, longest)
    }

    /// Waits for the next message, from this peer or from any, and returns it.
    ///
    /// # Errors
    /// The time limit passed; the peer (or every other node, if `from` is `None`) is lost, and all
    /// its messages have been read.
    #[inline]
    pub fn receive(&self, from: Option<Rank>, limit: Option<Duration>) -> Result<Arrived> {
        self.node.take_soon(from).map_or_else(|| self.receive_later(from, limit), Ok)
    }

    #[cold]
    fn receive_later(&self, from: Option<Rank>, limit: Option<Duration>) -> Result<Arrived> {
        from.map_or(Ok(()), |rank| self.node.check_rank(rank))?;
        let next = || self.node.take_mail(from).or_else(|| self.node.take_fast(from));
        let begun = Instant::now();
        let deadline = limit.or(self.limit).and_then(|limit| begun.checked_add(limit));
        let subject = || WaitSubject::Message { from, count: 1 };
        let arrived = self
            .node
            .wait_on(&subject, deadline, || self.node.next_or_loss(from, Needs::Messages, next));
        self.node.awaited(|| "receiving a message".into(), begun, arrived)
    }

    /// Returns the next message if one has arrived.
    #[must_use]
    pub fn try_receive(&self, from: Option<Rank>) -> Option<Arrived> {
        self.node.take_if_there(from)
    }

    /// Waits until `count` messages from any peers have arrived, and returns them. A thread that
    /// does not drive the engine meanwhile is woken once for all of them. Credit for received
    /// messages is returned while the call waits. If the time limit passes, or all other nodes are
    /// lost, the call returns the messages received so far.
    #[must_use]
    pub fn receive_batch(&self, count: usize, limit: Option<Duration>) -> Vec<Arrived> {
        self.node.take_batch(
            count,
            limit.or(self.limit).and_then(|limit| Instant::now().checked_add(limit)),
        )
    }

    /// Makes a queue in which operations report their end ([`crate::Operation::into_queue`]).
    #[must_use]
    pub fn completion_queue(&self) -> CompletionQueue {
        CompletionQueue::new(&self.node, self.limit)
    }

    /// Makes a counter of operations that have ended ([`crate::Operation::count_on`]).
    #[must_use]
    pub fn counter(&self) -> Counter {
        Counter::new(&self.node, self.limit)
    }

    /// Makes a shared array of `len` elements under this name of up to 48 bytes. The array has at
    /// most 1 TiB ([`ARRAY_PAGES_MAX`](crate::limits::ARRAY_PAGES_MAX)), and each node is home to
    /// one block of its pages. Collective: all nodes make the same arrays in the same order.
    ///
    /// # Errors
    /// Nodes disagree on name, length, element or homes (the error names them); a node has no
    /// memory for the array (all nodes get the error); a node is lost; a guard of any array of this
    /// node is alive (as for [`Job::barrier`]).
    pub fn array<T: Element>(&self, name: &str, len: usize) -> Result<SharedArray<T>> {
        self.array_with_homes(name, len, Homes::Block)
    }

    /// Makes a shared array as [`Job::array`] does, with the given homes of its pages.
    ///
    /// # Errors
    /// As [`Job::array`].
    pub fn array_with_homes<T: Element>(
        &self,
        name: &str,
        len: usize,
        homes: Homes,
    ) -> Result<SharedArray<T>> {
        SharedArray::declare(&self.node, &self.tracker, name, len, homes, self.limit)
    }

    /// Posts many small operations together, at several times the rate of posting one by one. The
    /// operations that `posts` begins leave at its end, in as few datagrams as hold them. They
    /// leave earlier if they are many, or if a thread waits.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::Class;
    /// let job = oikaze::join()?;
    /// let next = job.peer((job.rank() + 1) % job.size())?;
    /// let sent: Vec<_> =
    ///     job.batch(|| (0..64).map(|n| next.send(Class::Ordered, n, b"tick")).collect());
    /// for n in 0..64 {
    ///     assert_eq!(job.receive(None, None)?.tag, n);
    /// }
    /// sent.into_iter().try_for_each(|message| message.wait())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch<T>(&self, posts: impl FnOnce() -> T) -> T {
        self.node.batch(posts)
    }

    /// Fences the operations to each peer ([`Peer::fence`]).
    pub fn fence(&self) {
        self.node.fence(None);
    }

    /// Waits until all operations and messages that this node has begun have ended, to all peers.
    ///
    /// # Errors
    /// The time limit passed; or operations have failed and no caller knows. An unreported
    /// operation is one whose handle was dropped or not waited for yet, and whose failure no
    /// completion queue has handed out. The error gives the number of failures, and holds the
    /// first. Each failure is reported once.
    pub fn quiet(&self) -> Result<()> {
        let completion = self.node.submit(Request::Flush { peer: None }, None);
        let subject = || WaitSubject::other("all operations of this node to end");
        self.node.outcome_of(
            &subject,
            &"waiting for all operations to end",
            || completion.outcome(),
            self.limit,
        )?;
        self.node.report_untaken(None)
    }

    /// Waits for all nodes. After the barrier, all nodes see all that any node wrote before it. One
    /// thread of each node calls it.
    ///
    /// # Errors
    /// A node is lost; nodes do different things; the time limit passed; or a guard of any array of
    /// this node is alive. In the last case this node does not arrive, and the others go on waiting
    /// for it.
    pub fn barrier(&self) -> Result<()> {
        self.node.check_no_guard("barrier")?;
        self.node.collective("barrier", Request::Barrier, self.limit).map(drop)
    }

    /// Combines one value of each node, in rank order, so that all nodes have the same bits. It is
    /// also a barrier.
    ///
    /// # Errors
    /// As [`Job::barrier`].
    pub fn reduce<T: Reducible>(&self, value: T, op: ReduceOp) -> Result<T> {
        let combined = self.reduce_all(&[value], op)?;
        combined
            .into_iter()
            .next()
            .ok_or_else(|| Error::invalid("reduce", "the result is empty (a defect)"))
    }

    /// Combines vectors of equal length, element by element: at most
    /// [`REDUCE_MAX`](crate::limits::REDUCE_MAX) values (65,536). It is also a barrier.
    ///
    /// # Errors
    /// As [`Job::barrier`]; the lengths differ between nodes; there are too many values.
    pub fn reduce_all<T: Reducible>(&self, values: &[T], op: ReduceOp) -> Result<Vec<T>> {
        self.node.check_no_guard("reduce")?;
        let reduction = Reduction { op, values: T::to_values(values) };
        match self.node.collective("reduce", Request::Reduce(reduction), self.limit)? {
            Value::Reduced(values) => T::from_values(values),
            _ => None,
        }
        .ok_or_else(|| Error::invalid("reduce", "the result is of another type (a defect)"))
    }

    /// Acquires lock number `lock` (any number) of the job. Guards of other threads may be alive.
    /// Such guards keep the bytes that they have shown until they end.
    ///
    /// # Errors
    /// A node that the lock needs is lost; the time limit passed; a guard that this thread took is
    /// alive.
    pub fn lock(&self, lock: u64) -> Result<LockGuard> {
        LockGuard::acquire(&self.node, lock, self.limit)
    }

    /// Ends the job for all nodes, for this reason. Every wait and operation of every node fails
    /// with the reason. The launcher prints the reason, and ends each process that does not end by
    /// itself. The first reason stays.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// # let residual = f64::NAN;
    /// let job = oikaze::join()?;
    /// if residual.is_nan() {
    ///     job.abort("the iteration diverges: choose a smaller step");
    /// }
    /// let error = job.barrier().unwrap_err(); // so on every node
    /// assert!(error.to_string().contains("the iteration diverges"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn abort(&self, reason: &str) {
        // A child of fork may not speak for the node (MEM-24.1).
        if self.node.check_process(|| "abort".into()).is_err() {
            return;
        }
        self.bootstrap.abort(reason);
        self.node.end_aborted(&format!("node {} aborted the job: {reason}", self.rank()));
    }

    /// Returns the ranks of nodes that have died, or have left without waiting for the others, in
    /// the order in which this node learned of it. See
    /// [`OnDeath::Continue`](crate::OnDeath::Continue).
    #[must_use]
    pub fn lost(&self) -> Vec<Rank> {
        self.node.lost()
    }

    /// Returns the counters of this node.
    #[must_use]
    pub fn statistics(&self) -> NodeStatistics {
        if self.node.is_forked() {
            return NodeStatistics::default();
        }
        self.node.with_engine(NodeStatistics::of)
    }

    /// Returns a descriptor that becomes readable when an operation is settled or a message has
    /// arrived, for `select` and async runtimes. [`Job::clear_news`] makes the descriptor
    /// unreadable again. Check for events after that call, not before.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.node.news().as_fd()
    }

    /// Makes the descriptor unreadable again; see [`Job::descriptor`].
    pub fn clear_news(&self) {
        // The descriptor is the parent's in a child of fork.
        if !self.node.is_forked() {
            self.node.news().clear();
        }
    }

    /// Runs operations that borrow any memory. When this call returns, all of them are done, or cut
    /// off from the memory.
    ///
    /// # Errors
    /// Returns the error of `work`, or else the first failure of an operation of the scope that no
    /// caller was told of.
    pub fn scope<'env, R>(
        &self,
        work: impl for<'scope> FnOnce(&crate::Scope<'_, 'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        crate::scope::run(self, work)
    }

    /// Leaves the job: waits for all other nodes to leave, then says goodbye. Dropping the job does
    /// the same. This call also returns errors.
    ///
    /// Guards that are still alive show the last bytes that this node had, and nothing changes
    /// these bytes any more.
    ///
    /// # Errors
    /// A node was lost before it left; operations have failed that no caller waited for
    /// ([`Job::quiet`]); a guard is alive, whose later writes no other node will see (this node
    /// leaves the job all the same).
    pub fn leave(mut self) -> Result<()> {
        self.leave_once()
    }

    /// Tells the other nodes that this node has failed, and leaves without waiting for them.
    pub(crate) fn fail(mut self, why: &str) {
        self.left = true;
        if self.node.check_process(|| "leave".into()).is_err() {
            return;
        }
        if !self.node.keeps_going() {
            self.abort(why);
        }
        self.part();
    }

    /// Says goodbye and stops the node.
    fn part(&self) {
        self.node.say_goodbye(self.failure_time);
        self.node.stop();
    }

    fn leave_once(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.left, true) {
            return Ok(());
        }
        self.node.check_process(|| "leave".into())?;
        let outcome = if std::thread::panicking() {
            // A node that panics waits for no other. Survivors that go on learn of the end by its
            // goodbye.
            if !self.node.keeps_going() {
                self.abort("it panicked");
            }
            Ok(())
        } else if self.node.is_aborted() {
            Ok(())
        } else {
            // The others cannot do without this node's arrival, so a guard that is alive is an
            // error only afterwards.
            let guards = self.node.check_no_guard("leave");
            self.node
                .leave_job(self.limit)
                .and_then(|()| self.node.report_untaken(None))
                .and(guards)
        };
        self.part();
        outcome
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The parent goes on, and a child of fork takes nothing down (MEM-24.2).
        if self.node.is_forked() {
            return;
        }
        // The program has been told of the earlier failure, so a failure to leave for the same
        // reason is not reported.
        let known = self.node.has_failed();
        if let Err(error) = self.leave_once()
            && !known
        {
            eprintln!("oikaze: node {}: {error}", self.bootstrap.rank());
        }
    }
}

/// Value type that [`Job::reduce`] can combine.
pub trait Reducible: Copy {
    #[doc(hidden)]
    fn to_values(values: &[Self]) -> Values;
    #[doc(hidden)]
    fn from_values(values: Values) -> Option<Vec<Self>>;
}

macro_rules! reducible {
    ($($type:ty: $variant:ident),*) => {
        $(impl Reducible for $type {
            fn to_values(values: &[Self]) -> Values {
                Values::$variant(values.to_vec())
            }
            fn from_values(values: Values) -> Option<Vec<Self>> {
                match values {
                    Values::$variant(values) => Some(values),
                    _ => None,
                }
            }
        })*
    };
}
reducible!(f64: F64, i64: I64, u64: U64);
