//! Operations on borrowed memory: the scope ends when all of them are done, or cut off from it.

use crate::engine::{Completion, Request};
use crate::region::LocalRegion;
use crate::remote::RemoteRegion;
use crate::{Job, Operation, Result, Rights};
use oikaze_os::memory as os;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

/// Lends memory to operations; see [`Job::scope`].
pub struct Scope<'job, 'scope, 'env: 'scope> {
    job: &'job Job,
    lender: &'scope os::Scope<'scope, 'env>,
    begun: RefCell<Vec<(Arc<Completion>, LocalRegion)>>,
}

impl<'env> Scope<'_, '_, 'env> {
    /// Write any memory to a peer's region.
    ///
    /// # Errors
    /// The table of regions is full.
    pub fn put(&self, there: &RemoteRegion, offset: u64, from: &'env [u8]) -> Result<Operation<()>> {
        let lent = self.lend(self.lender.borrow(from))?;
        let operation = there.put(offset, lent.all());
        self.begun.borrow_mut().push((Arc::clone(operation.completion()), lent));
        Ok(operation)
    }

    /// Read from a peer's region into any memory, which stays borrowed until the scope ends.
    ///
    /// # Errors
    /// The table of regions is full.
    pub fn get(&self, there: &RemoteRegion, offset: u64, into: &'env mut [u8]) -> Result<Operation<()>> {
        let lent = self.lend(self.lender.borrow_mut(into))?;
        let operation = there.get(offset, lent.all());
        self.begun.borrow_mut().push((Arc::clone(operation.completion()), lent));
        Ok(operation)
    }

    fn lend(&self, region: os::Region) -> Result<LocalRegion> {
        LocalRegion::new(&self.job.node, region, Rights::NONE, None)
    }

    /// Wait for what was begun, within the job's time limit; what is not done then is cancelled, so that nothing reads or
    /// writes the lent memory any more.
    fn finish(&self) {
        let deadline = self.job.time_limit().and_then(|limit| Instant::now().checked_add(limit));
        for (completion, lent) in self.begun.borrow_mut().drain(..) {
            if self.job.node.wait(deadline, || completion.is_done().then_some(())).is_none() {
                self.job.node.tell(Request::Cancel { completion });
            }
            drop(lent);
        }
    }
}

pub(crate) fn run<'env, R>(job: &Job, work: impl for<'scope> FnOnce(&Scope<'_, 'scope, 'env>) -> Result<R>) -> Result<R> {
    os::scope(|lender| {
        let scope = Scope { job, lender, begun: RefCell::default() };
        let outcome = work(&scope);
        scope.finish();
        outcome
    })
}
