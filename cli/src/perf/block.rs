//! Blocks: rows with gaps between them, at the source and at the destination.

use super::measure::{Bench, PATIENCE};
use super::{Perf, Test};
use oikaze::memory::Block;
use oikaze::memory::remote::RemoteRegion;
use oikaze::{Error, Result};

/// Bytes of a row. A gap of the same length follows each row.
const ROW: usize = 1024;

impl Perf {
    /// Returns the number of bytes of memory that one operation covers.
    pub fn span(&self) -> usize {
        if self.test == Test::Block { 2 * self.size } else { self.size }
    }

    /// Checks that the size is a whole number of rows (blocks), doubles (accumulate) or pages
    /// (exchange, fetch).
    pub fn check_parts(&self) -> Result<()> {
        let (what, part, of) = match self.test {
            Test::Block => ("blocks", "rows", ROW),
            Test::Accumulate => ("arrays", "doubles", size_of::<f64>()),
            Test::Exchange => ("exchanges", "pages", oikaze::memory::page_size()),
            Test::Fetch => ("fetches", "pages", 4096),
            _ => return Ok(()),
        };
        if self.size.is_multiple_of(of) {
            return Ok(());
        }
        Err(Error::invalid(
            format!("{what} of {} bytes", self.size),
            format!("they are made of {part} of {of} bytes: give a multiple of it, as --size 128K"),
        ))
    }

    /// Returns the rows of the block that begins at `offset`.
    pub fn rows(&self, offset: usize) -> Block {
        let rows = u32::try_from(self.size / ROW).unwrap_or(u32::MAX);
        Block::new(offset as u64, ROW as u32).rows(rows, 2 * ROW as u64)
    }
}

impl Bench<'_> {
    /// Puts one block and waits for its completion. The block lands behind its source.
    pub fn block_done(&self, there: &RemoteRegion) -> Result<()> {
        let span = self.perf.span();
        there
            .put_block(self.perf.rows(span), self.local.slice(0..span)?, self.perf.rows(0))?
            .wait_for(PATIENCE)
    }
}
