//! Sequences of faults, from which a fetch learns how far to read ahead (COH-3.4).

use crate::coherence::fetching::limits::READ_AHEAD_MAX;
use alloc::vec::Vec;

/// Maximum number of sequences of faults that are followed at a time, per array.
const STREAMS: usize = 8;

/// Recent sequences of faults of one array. A fault that continues a sequence fetches twice as far
/// (COH-3.4).
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Streams(Vec<Stream>);

#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Stream {
    /// First page that the sequence has not fetched.
    next: u64,
    run: u32,
}

impl Streams {
    /// Returns how many pages a fault on `page` should fetch.
    pub fn reach(&mut self, page: u64) -> u32 {
        let run = match self.0.iter().position(|stream| stream.next == page) {
            Some(found) => self.0.remove(found).run.saturating_mul(2).min(READ_AHEAD_MAX),
            None => 1,
        };
        if self.0.len() == STREAMS {
            self.0.remove(0);
        }
        self.0.push(Stream { next: page, run });
        run
    }

    /// Records that the fault fetched the pages before `end`.
    pub fn fetched(&mut self, end: u64) {
        if let Some(stream) = self.0.last_mut() {
            stream.next = end;
        }
    }
}
