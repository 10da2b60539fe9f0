//! Credit of what a program has read, collected until it is worth a report to the engine.

use oikaze_engine::Request;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::{CREDIT, CREDIT_OVERHEAD};

/// Bytes of one peer's credit at which they are reported to the engine. A thread that finds nothing
/// to do reports smaller amounts ([`ReadCredit::take`]). On a node that always has something to do,
/// they are reported sooner or later ([`ReadCredit::one_of_the_rest`]).
pub(super) const TOLD_TOGETHER: u64 = CREDIT / 8;
/// Items read per check of one peer for unreported credit.
pub(super) const READ_A_LOOK: u64 = 64;

/// Unreported credit of messages, or of entries, that were read.
#[derive(Default)]
pub(super) struct ReadCredit {
    /// Unreported credit of each peer, by rank, grown as needed.
    read: Vec<Read>,
    /// Items read since the last check of a peer, and the peer to be checked next.
    since_look: u64,
    next_look: usize,
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
        self.since_look += 1;
        if read.bytes + read.messages * CREDIT_OVERHEAD >= TOLD_TOGETHER {
            return self.tell(at);
        }
        if self.since_look >= READ_A_LOOK { self.one_of_the_rest() } else { None }
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
        (0..self.read.len()).filter_map(|at| self.tell(at)).collect()
    }

    /// Reports the credit of one peer after the other.
    fn one_of_the_rest(&mut self) -> Option<Request> {
        self.since_look = 0;
        let at = self.next_look % self.read.len().max(1);
        self.next_look = at + 1;
        self.tell(at)
    }

    fn tell(&mut self, at: usize) -> Option<Request> {
        let Read { messages, bytes } = std::mem::take(self.read.get_mut(at)?);
        (messages > 0).then_some(Request::Consumed {
            from: Rank::try_from(at).ok()?,
            messages,
            bytes,
        })
    }
}
