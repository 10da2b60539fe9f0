//! Atomics and accumulates on types that are known at run time only.

use super::{Accumulation, AtomicOp};
use crate::Result;
use crate::completion::Operation;
use crate::memory::{RegionSlice, RemoteRegion};
use oikaze_engine::OperationKind;

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
