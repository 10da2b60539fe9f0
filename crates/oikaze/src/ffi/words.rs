//! Atomics and accumulates on types that are known at run time only, and copies at once.

use crate::completion::operation::Operation;
use crate::error::Result;
use crate::memory::region::RegionSlice;
use crate::memory::remote::put::COPY_MAX;
use crate::memory::remote::region::RemoteRegion;
use oikaze_engine::OperationKind;
use oikaze_protocol::rma::{Accumulation, AtomicOp};

impl RemoteRegion {
    /// Changes the aligned word at `offset` by `op`, for callers that do not know the word's type
    /// at compile time. Yields the previous bits if `fetch` is set.
    pub fn change(&self, offset: u64, op: AtomicOp, fetch: bool) -> Operation<u64> {
        self.atomic(
            offset,
            op,
            fetch,
            OperationKind::Word(if fetch { "fetching change" } else { "change" }),
        )
    }

    /// Returns a copy of up to [`COPY_MAX`] bytes of a mapped region, made by this thread
    /// (MEM-18.2). Returns `None` if the operation must be sent to the owner, who judges it.
    #[must_use]
    pub fn copy_at_once(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        if len > COPY_MAX || !self.is_mapped() {
            return None;
        }
        let mut copy = vec![0; len];
        self.get_bytes_direct(offset, &mut copy).then_some(copy)
    }

    /// Combines numbers as [`RemoteRegion::accumulate`] does, for callers that do not know their
    /// type at compile time.
    ///
    /// # Errors
    /// As [`RemoteRegion::accumulate`].
    pub fn accumulate_as(
        &self,
        offset: u64,
        how: Accumulation,
        from: RegionSlice,
    ) -> Result<Operation<()>> {
        self.accumulate_slice(offset, how, from)
    }
}
