//! Operations on borrowed memory. A scope ends when all its operations are done, or cut off from
//! the memory.

use crate::completion::operation::{Operation, Outcome};
use crate::error::Result;
use crate::job::handle::Job;
use crate::memory::region::{LocalRegion, RegionSlice};
use crate::memory::remote::put::COPY_MAX;
use crate::memory::remote::region::RemoteRegion;
use bytemuck::NoUninit;
use oikaze_engine::{Completion, Failure, OperationKind, Request};
use oikaze_os::memory as os;
use oikaze_protocol::Rank;
use oikaze_protocol::block::Block;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::rma::{Combine, Number};
use oikaze_runtime::node::WaitSubject;
use oikaze_runtime::received::Received;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lends memory to operations; see [`Job::scope`].
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let inbox = job.publish("inbox", Region::shared(1 << 20)?, Rights::WRITE)?;
/// let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;
/// let numbers = vec![7_u8; 1 << 20]; // any memory of the program
/// job.scope(|scope| scope.put(&there, 0, &numbers).map(drop))?; // returns when it is done
/// # job.barrier()?;
/// # drop(inbox);
/// # Ok(())
/// # }
/// ```
pub struct Scope<'job, 'scope, 'env: 'scope> {
    job: &'job Job,
    lender: &'scope os::Scope<'scope, 'env>,
    begun: RefCell<Vec<(Arc<Completion>, LocalRegion)>>,
}

impl<'env> Scope<'_, '_, 'env> {
    /// Writes any memory to a peer's region. Up to [`COPY_MAX`] bytes for a
    /// [mapped](RemoteRegion::is_mapped) region are copied by the calling thread.
    ///
    /// # Errors
    /// The table of regions is full; the memory belongs to a shared array.
    pub fn put(
        &self,
        there: &RemoteRegion,
        offset: u64,
        from: &'env [u8],
    ) -> Result<Operation<()>> {
        if from.len() <= COPY_MAX
            && let Some(done) = there.put_bytes_direct(offset, from)
        {
            return Ok(done);
        }
        self.begin(self.lender.borrow(from), |lent| Ok(there.put(offset, lent)))
    }

    /// Reads from a peer's region into any memory, which stays borrowed until the scope ends. Up to
    /// [`COPY_MAX`] bytes of a [mapped](RemoteRegion::is_mapped) region are copied by the calling
    /// thread.
    ///
    /// # Errors
    /// The table of regions is full; the memory belongs to a shared array.
    pub fn get(
        &self,
        there: &RemoteRegion,
        offset: u64,
        into: &'env mut [u8],
    ) -> Result<Operation<()>> {
        if into.len() <= COPY_MAX && there.get_bytes_direct(offset, into) {
            return Ok(Operation::done(()));
        }
        self.begin(self.lender.borrow_mut(into), |lent| Ok(there.get(offset, lent)))
    }

    /// Combines any numbers with those in a peer's region; see [`RemoteRegion::accumulate`].
    ///
    /// # Errors
    /// The table of regions is full; the memory belongs to a shared array.
    pub fn accumulate<T: Number + NoUninit>(
        &self,
        there: &RemoteRegion,
        offset: u64,
        operator: impl Into<Combine>,
        numbers: &'env [T],
    ) -> Result<Operation<()>> {
        let from = bytemuck::cast_slice(numbers);
        self.begin(self.lender.borrow(from), |lent| there.accumulate::<T>(offset, operator, lent))
    }

    /// Writes rows of any memory to rows of a peer's region ([`RemoteRegion::put_block`]).
    ///
    /// # Errors
    /// As [`Scope::put`] and [`RemoteRegion::put_block`].
    pub fn put_block(
        &self,
        to: &RemoteRegion,
        there: Block,
        from: &'env [u8],
        here: Block,
    ) -> Result<Operation<()>> {
        self.begin(self.lender.borrow(from), |lent| to.put_block(there, lent, here))
    }

    /// Reads rows of a peer's region into rows of any memory, which stays borrowed until the scope
    /// ends.
    ///
    /// # Errors
    /// As [`Scope::get`] and [`RemoteRegion::get_block`].
    pub fn get_block(
        &self,
        from: &RemoteRegion,
        there: Block,
        into: &'env mut [u8],
        here: Block,
    ) -> Result<Operation<()>> {
        self.begin(self.lender.borrow_mut(into), |lent| from.get_block(there, lent, here))
    }

    /// Offers any memory for a message ([`Job::post_receive`]). The memory stays borrowed until the
    /// scope ends, which waits for the message.
    ///
    /// # Errors
    /// The table of regions is full; the memory belongs to a shared array.
    pub fn post_receive(
        &self,
        from: Option<Rank>,
        tag: u64,
        mask: u64,
        into: &'env mut [u8],
    ) -> Result<Operation<Received>> {
        let post = |lent| Ok(self.job.post_receive(from, tag, mask, lent));
        self.begin(self.lender.borrow_mut(into), post)
    }

    /// Begins an operation with lent memory, and records it for the scope's end.
    fn begin<T: Outcome>(
        &self,
        lent: os::Region,
        begin: impl FnOnce(RegionSlice) -> Result<Operation<T>>,
    ) -> Result<Operation<T>> {
        let lent = LocalRegion::new(&self.job.node, lent, Rights::NONE, None, self.job.limit)?;
        let operation = begin(lent.all())?;
        // The scope does not wait for an operation that is already done.
        if let Some(completion) = operation.completion() {
            self.begun.borrow_mut().push((Arc::clone(completion), lent));
        }
        Ok(operation)
    }
}

impl Scope<'_, '_, '_> {
    /// Waits for the scope's operations, within the job's time limit. Operations that are not done
    /// then are cancelled, so that nothing reads or writes the lent memory any more. A thread that
    /// panics does not wait. If `is_told` is set, the call returns the first failure that no caller
    /// has been told of.
    #[track_caller]
    fn end(&self, is_told: bool) -> Result<()> {
        let limit =
            if std::thread::panicking() { Some(Duration::ZERO) } else { self.job.time_limit() };
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let node = &self.job.node;
        let subject = || WaitSubject::other("operations of a scope to end");
        let mut failed = Ok(());
        for (completion, lent) in self.begun.take() {
            if node.wait_on(&subject, deadline, || completion.is_done().then_some(())).is_none() {
                node.mail.cancel_receive(node, &completion);
                node.tell(Request::Cancel { completion: Arc::clone(&completion) });
            }
            drop(lent);
            let Some(what) = completion.what().filter(|_| is_told && failed.is_ok()) else {
                continue;
            };
            let failure = match completion.outcome() {
                Some(Err(failure)) => completion.take_failure().then_some(failure),
                // The message that is being placed comes too late for this scope.
                None if what.verb == OperationKind::Receive => Some(Failure::Cancelled),
                _ => None,
            };
            if let Some(failure) = failure {
                failed = Err(node.departures.failure(what, failure).of_unknown_fate(what.fate()));
            }
        }
        failed
    }
}

/// Ends all access to the lent memory, also after an error or a panic.
impl Drop for Scope<'_, '_, '_> {
    fn drop(&mut self) {
        // `Job::flush` reports the failures, if `run` did not return them.
        let _ = self.end(false);
    }
}

pub(crate) fn run<'env, R>(
    job: &Job,
    work: impl for<'scope> FnOnce(&Scope<'_, 'scope, 'env>) -> Result<R>,
) -> Result<R> {
    os::scope(|lender| {
        let scope = Scope { job, lender, begun: RefCell::default() };
        let done = work(&scope)?;
        scope.end(true).map(|()| done)
    })
}

impl Job {
    /// Runs operations that borrow any memory. When this call returns, all of them are done, or cut
    /// off from the memory.
    ///
    /// # Errors
    /// Returns the error of `work`, or else the first failure of an operation of the scope that no
    /// caller was told of.
    pub fn scope<'env, R>(
        &self,
        work: impl for<'scope> FnOnce(&crate::memory::Scope<'_, 'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        crate::memory::scope::run(self, work)
    }
}
