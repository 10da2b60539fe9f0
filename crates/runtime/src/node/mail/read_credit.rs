//! Credit of what a program has read, collected until it is worth a report to the engine.

use oikaze_engine::Request;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::{CREDIT, CREDIT_OVERHEAD};

/// Bytes of one peer's credit at which they are reported to the engine. A thread that finds nothing
/// to do reports smaller amounts ([`ReadCredit::take`]). On a node that always has something to do,
/// smaller amounts are reported in turn ([`ReadCredit::report_next_peer`]).
pub(super) const REPORT_BYTES: u64 = CREDIT / 8;
/// Number of items read per report of one peer's credit in turn.
pub(super) const READS_PER_CHECK: u64 = 64;

/// Unreported credit of messages, or of entries, that were read.
#[derive(Default)]
pub(super) struct ReadCredit {
    /// Unreported credit of each peer, by rank, grown as needed.
    read: Vec<Read>,
    /// Number of items read since the last report in turn, and the peer whose turn is next.
    reads_since_check: u64,
    next_checked: usize,
}

#[derive(Clone, Copy, Default)]
struct Read {
    messages: u64,
    bytes: u64,
}

impl ReadCredit {
    /// Counts an item as read, of which `bytes` bytes cost credit. Returns a request if enough
    /// credit has come together.
    pub fn count(&mut self, from: Rank, bytes: usize) -> Option<Request> {
        let at = from as usize;
        if at >= self.read.len() {
            self.read.resize(at + 1, Read::default());
        }
        let read = self.read.get_mut(at)?;
        read.messages += 1;
        read.bytes += bytes as u64;
        self.reads_since_check += 1;
        if read.bytes + read.messages * CREDIT_OVERHEAD >= REPORT_BYTES {
            return self.report(at);
        }
        if self.reads_since_check >= READS_PER_CHECK { self.report_next_peer() } else { None }
    }

    /// Counts credit of a request that cannot be made now again.
    pub fn keep(&mut self, request: Option<Request>) {
        if let Some(Request::Consumed { from, messages, bytes }) = request
            && let Some(read) = self.read.get_mut(from as usize)
        {
            read.messages += messages;
            read.bytes += bytes;
        }
    }

    /// Reports all unreported credit.
    pub fn take(&mut self) -> Vec<Request> {
        (0..self.read.len()).filter_map(|at| self.report(at)).collect()
    }

    /// Reports the credit of one peer after the other.
    fn report_next_peer(&mut self) -> Option<Request> {
        self.reads_since_check = 0;
        let at = self.next_checked % self.read.len().max(1);
        self.next_checked = at + 1;
        self.report(at)
    }

    fn report(&mut self, at: usize) -> Option<Request> {
        let Read { messages, bytes } = std::mem::take(self.read.get_mut(at)?);
        (messages > 0).then_some(Request::Consumed {
            from: Rank::try_from(at).ok()?,
            messages,
            bytes,
        })
    }
}
