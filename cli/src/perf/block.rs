//! Blocks: rows that lie apart, there as here.

use super::measure::{Bench, PATIENCE};
use super::{Perf, Test};
use oikaze::{Block, Error, RemoteRegion, Result};

/// Bytes of a row; after each comes a gap of as many.
const ROW: usize = 1024;

impl Perf {
    /// Bytes of memory that an operation lies in.
    pub fn span(&self) -> usize {
        if self.test == Test::Block { 2 * self.size } else { self.size }
    }

    /// Blocks are whole rows, arrays whole numbers; the memory that is walked through is cut into
    /// them.
    pub fn check_parts(&self) -> Result<()> {
        let (what, part, of) = match self.test {
            Test::Block => ("blocks", "rows", ROW),
            Test::Accumulate => ("arrays", "doubles", size_of::<f64>()),
            Test::Exchange => ("exchanges", "pages", oikaze::page_size()),
            _ => return Ok(()),
        };
        if self.size.is_multiple_of(of) {
            return Ok(());
        }
        Err(Error::Invalid {
            what: format!("{what} of {} bytes", self.size),
            why: format!(
                "they are made of {part} of {of} bytes: give a multiple of it, as --size 128K"
            ),
        })
    }

    /// The rows of a block that begins there.
    pub fn rows(&self, offset: usize) -> Block {
        let rows = u32::try_from(self.size / ROW).unwrap_or(u32::MAX);
        Block::new(offset as u64, ROW as u32).rows(rows, 2 * ROW as u64)
    }
}

impl Bench<'_> {
    /// From the call to the completion; lands behind its source.
    pub fn block_done(&self, there: &RemoteRegion) -> Result<()> {
        let span = self.perf.span();
        there
            .put_block(self.perf.rows(span), self.local.slice(0..span)?, self.perf.rows(0))?
            .wait_for(PATIENCE)
    }
}
