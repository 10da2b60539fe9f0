//! Blocks of a peer's region: rows at equal distances, and planes of rows, put or fetched in one
//! call.

use crate::completion::operation::Operation;
use crate::error::{Error, Result};
use crate::memory::region::RegionSlice;
use crate::memory::remote::put::RemoteSignal;
use crate::memory::remote::region::RemoteRegion;
use oikaze_engine::OperationKind;
use oikaze_engine::Request;
use oikaze_protocol::block::BadBlock;
use oikaze_protocol::block::Block;
use oikaze_protocol::rma::{Destination, Rights, Signal};
use oikaze_protocol::wind::{Body, Rows, Segment};
use std::sync::Arc;

impl RemoteRegion {
    /// Writes the rows `here` of a counted slice to the rows `there` of this region, in one
    /// operation. The two blocks need not have the same shape, only as many bytes. The first row
    /// here begins the first row there, and planes follow one another. The call returns at once.
    /// The operation is complete when all rows are in the peer's memory and visible.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::prelude::*;
    /// let job = oikaze::join()?;
    /// let field = job.publish("field", Region::shared(100 * 100 * 8)?, Rights::WRITE)?;
    /// let there = job.peer((job.rank() + 1) % job.size())?.region("field")?;
    /// // One column of 100 × 100 doubles here becomes another there: 100 rows of 8 bytes,
    /// // 800 bytes apart.
    /// let column = |x: u64| Block::new(8 * x, 8).rows(100, 800);
    /// there.put_block(column(0), field.all(), column(99))?.wait()?;
    /// # job.barrier()
    /// # }
    /// ```
    ///
    /// # Errors
    /// The blocks have unequal numbers of bytes; rows overlap there; `here` is not inside the
    /// slice. Later errors come as from [`Operation::wait`]: the region must grant writing on all
    /// of the block's hull, from its first byte to its last.
    pub fn put_block(&self, there: Block, from: RegionSlice, here: Block) -> Result<Operation<()>> {
        self.begin_put_block(there, from, here, None)
    }

    /// Writes rows as [`RemoteRegion::put_block`] does, and adds to a word of a region of the same
    /// peer once *all* rows are in place.
    ///
    /// # Errors
    /// As [`RemoteRegion::put_block`].
    pub fn put_block_signal(
        &self,
        there: Block,
        from: RegionSlice,
        here: Block,
        signal: &RemoteSignal,
    ) -> Result<Operation<()>> {
        self.begin_put_block(there, from, here, Some(signal.0))
    }

    fn begin_put_block(
        &self,
        there: Block,
        from: RegionSlice,
        here: Block,
        signal: Option<Signal>,
    ) -> Result<Operation<()>> {
        if there.is_empty() && here.is_empty() {
            return Ok(self.put_body(there.offset, Body::Empty, signal, None));
        }
        let wrong = |why| self.cannot(OperationKind::Put, there, why);
        let rows = from.rows(here, Rights::READ)?;
        let len = here.check_source().map_err(wrong)?;
        if there.check_destination().map_err(wrong)? != len {
            return Err(wrong(BadBlock::Lengths { there, here: len }));
        }
        let body = match here.as_range() {
            Some(len) => {
                Body::Segment(Segment { region: rows.region, offset: rows.block.offset, len })
            }
            None => Body::Rows(Arc::new(rows)),
        };
        let (to, key) = (self.peer.rank, self.published.key);
        let request = match there.as_range() {
            Some(_) => Request::Put { to, key, offset: there.offset, body, signal },
            None => Request::PutBlock { to, key, block: Box::new(there), body, signal },
        };
        Ok(self.peer.begin(
            request,
            Some(from.keep()),
            self.what(OperationKind::PutBlock, there.offset, len),
        ))
    }

    /// Reads the rows `there` of this region into the rows `here` of a counted slice, in one
    /// operation. It is the counterpart of [`RemoteRegion::put_block`].
    ///
    /// # Errors
    /// The blocks have unequal numbers of bytes; rows overlap here; `here` is not inside the slice.
    /// Later errors come as from [`Operation::wait`]: the region must grant reading on all of the
    /// block's hull, from its first byte to its last.
    pub fn get_block(&self, there: Block, into: RegionSlice, here: Block) -> Result<Operation<()>> {
        let (from, key) = (self.peer.rank, self.published.key);
        let rows = into.rows(here, Rights::WRITE)?;
        if there.is_empty() && here.is_empty() {
            let nothing = Segment { region: rows.region, offset: rows.block.offset, len: 0 };
            let request = Request::Get { from, key, offset: there.offset, into: nothing };
            return Ok(self.peer.begin(
                request,
                Some(into.keep()),
                self.what(OperationKind::Get, there.offset, 0),
            ));
        }
        let wrong = |why| self.cannot(OperationKind::Get, there, why);
        let len = here.check_destination().map_err(wrong)?;
        if there.check_source().map_err(wrong)? != len {
            return Err(wrong(BadBlock::Lengths { there, here: len }));
        }
        let destination = destination(rows);
        let request = Request::GetBlock { from, key, block: Box::new(there), into: destination };
        Ok(self.peer.begin(
            request,
            Some(into.keep()),
            self.what(OperationKind::GetBlock, there.offset, len),
        ))
    }

    fn cannot(&self, verb: OperationKind, there: Block, why: BadBlock) -> Error {
        let len = there.len().unwrap_or(u64::MAX);
        Error::invalid(self.what(verb, there.offset, len).to_string(), why.to_string())
    }
}

/// Returns rows without gaps as a range, so that bytes can be received directly into it.
fn destination(rows: Rows) -> Destination {
    match rows.block.as_range() {
        Some(len) => {
            Destination::Range(Segment { region: rows.region, offset: rows.block.offset, len })
        }
        None => Destination::Rows(Arc::new(rows)),
    }
}
