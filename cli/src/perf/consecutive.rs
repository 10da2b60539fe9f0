//! Measures puts of a header and then the data, without a wait in between. Distributed shared
//! memories send pages in this way (paper 003, section 4.3).

use super::measure::{Bench, PATIENCE, exchanged};
use oikaze::Result;

/// Bytes of the header.
const HEADER: usize = 32;
/// Bytes of the header's source and of its destination together.
pub const ROOM: usize = 2 * HEADER;

impl Bench<'_> {
    /// Runs one ping and pong. Node 0 puts header and data. Node 1 waits for both and does the
    /// same.
    pub fn ping_consecutive(&self, flag: u64) -> Result<()> {
        if self.job.rank() == 0 {
            self.put_both(flag)?;
            self.see_both(flag)
        } else {
            self.see_both(flag)?;
            self.put_both(flag)
        }
    }

    /// Puts header and data, and waits for neither. The peer's answer shows that both have arrived.
    fn put_both(&self, flag: u64) -> Result<()> {
        let Some((_, there)) = &self.pair else { return Ok(()) };
        let at = self.header_at();
        self.local.store_u64((at + HEADER - 8) as u64, flag)?;
        let _settles_by_itself =
            there.put((at + HEADER) as u64, self.local.slice(at..at + HEADER)?);
        let _settles_by_itself = self.put_flag(flag)?;
        Ok(())
    }

    fn see_both(&self, flag: u64) -> Result<()> {
        if let Some((peer, _)) = &self.pair {
            self.local.wait_until_by_for(
                peer.rank(),
                (self.header_at() + ROOM - 8) as u64,
                PATIENCE,
                |word| word == flag,
            )?;
            self.see_flag(|word| word == flag)?;
        }
        Ok(())
    }

    /// Returns the offset of the header's source, at the end of the [`exchanged`] memory.
    fn header_at(&self) -> usize {
        exchanged(self.perf.size) - ROOM
    }
}
