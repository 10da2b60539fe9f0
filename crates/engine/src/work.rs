//! Work of a turn, and what it leaves to the next one.

/// Number of datagrams above which a turn takes longer than a reading of the clock is worth.
const LONG_TURN_DATAGRAMS: usize = 4;

/// Work that a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of datagrams received.
    pub received: usize,
    /// Number of datagrams sent.
    pub sent: usize,
    /// Number of operations settled and messages arrived.
    pub settled: usize,
    /// Number of messages received whose senders may wait for this node.
    pub requests: usize,
    /// Is `true` if there is more to do at once.
    pub more: bool,
}

impl Work {
    /// Returns `true` if nothing was done and nothing is due.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self.received == 0 && self.sent == 0 && self.settled == 0 && !self.more
    }

    /// Adds the work of the next turn.
    pub fn add(&mut self, next: Work) {
        self.received += next.received;
        self.sent += next.sent;
        self.settled += next.settled;
        self.requests += next.requests;
        self.more = next.more;
    }

    /// Returns `true` if the turn handled so many datagrams that the clock has moved on noticeably.
    #[must_use]
    pub fn is_long(self) -> bool {
        self.more || self.sent + self.received > LONG_TURN_DATAGRAMS
    }
}

/// Work that the latest turn has left to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Nothing, until a timer expires or something arrives.
    #[default]
    Nothing,
    /// More of the same, at once.
    More,
    /// The stages after ingress: the turn ended early because it had news.
    RestOfTurn,
}
