//! Poll schedule of the sockets: small datagrams come before bulk, and idle sockets cost little.

/// Polls after which one of the idle sockets is polled.
const IDLE_SOCKET_POLLS: usize = 12;
/// Maximum number of polls by which idle sockets are deferred in favour of the hot one, which has
/// or may have datagrams at any moment.
const IDLE_SOCKET_DEFERRAL_POLLS: usize = 24;
/// Polls for which another small datagram is expected after one came: the sender's next, or its
/// answer to ours.
const NEXT_SMALL_EXPECTED_POLLS: usize = 24;
/// Polls for which the bulk socket is polled each time after it had something.
const BULK_RECENT_POLLS: usize = 64;
/// Polls for which small messages count as recent. Others may follow them, and bulk leaves room for
/// those.
const SMALL_RECENT_POLLS: usize = 512;
/// Polls without a datagram through a small socket, after which the small sockets count as idle.
const SMALL_SOCKETS_IDLE_POLLS: usize = 64;

/// State of the poll schedule. Times are numbers of polls.
#[derive(Debug)]
pub(in crate::net) struct PollSchedule {
    /// Number of polls so far.
    pub(super) polls: usize,
    /// Number of polls of other sockets than the hot ones.
    pub(super) idle_polls: usize,
    /// Poll at which an idle socket was polled last.
    pub(super) idle_polled_at: usize,
    /// Index of the small socket that had something last.
    pub(super) hot_small: usize,
    /// Index of the bulk socket that had something last.
    pub(super) hot_bulk: usize,
    /// Poll at which small datagrams came last.
    small_at: usize,
    /// Poll at which small datagrams came last through a socket.
    small_by_socket_at: usize,
    /// Poll at which bulk came last.
    bulk_at: usize,
    /// The latest poll left bulk to the next one.
    bulk_waits: bool,
}

impl PollSchedule {
    pub(super) fn new() -> PollSchedule {
        // Nothing counts as recent at first.
        let polls = BULK_RECENT_POLLS.max(SMALL_RECENT_POLLS).max(SMALL_SOCKETS_IDLE_POLLS + 1);
        PollSchedule {
            polls,
            idle_polls: 0,
            idle_polled_at: polls,
            hot_small: 0,
            hot_bulk: 0,
            small_at: 0,
            small_by_socket_at: 0,
            bulk_at: 0,
            bulk_waits: false,
        }
    }

    /// Begins a poll.
    pub(in crate::net) fn begin_poll(&mut self) {
        self.polls = self.polls.wrapping_add(1);
    }

    /// Accounts for new bulk sockets from this index on. The hot socket stays hot, because what is
    /// still in it came before anything in the new ones.
    pub(super) fn bulk_sockets_inserted(&mut self, at: usize, count: usize) {
        if self.hot_bulk >= at {
            self.hot_bulk += count;
        }
    }

    /// Records that small datagrams came by a bypass.
    pub(in crate::net) fn small_came(&mut self) {
        self.small_at = self.polls;
    }

    /// Records that small datagrams came through a socket.
    pub(super) fn small_came_by_socket(&mut self) {
        (self.small_at, self.small_by_socket_at) = (self.polls, self.polls);
    }

    /// Returns `true` if this poll has found small datagrams in a socket.
    pub(in crate::net) fn has_small_come_by_socket(&self) -> bool {
        self.small_by_socket_at == self.polls
    }

    /// Returns `true` if nothing has come through the small sockets for a while.
    pub(in crate::net) fn are_small_sockets_idle(&self) -> bool {
        self.polls.wrapping_sub(self.small_by_socket_at) > SMALL_SOCKETS_IDLE_POLLS
    }

    pub(super) fn is_small_recent(&self) -> bool {
        self.polls.wrapping_sub(self.small_at) < SMALL_RECENT_POLLS
    }

    /// Records that bulk came.
    pub(super) fn bulk_came(&mut self) {
        self.bulk_at = self.polls;
    }

    /// Returns `true` if bulk has come in one of the latest polls.
    pub(in crate::net) fn is_bulk_recent(&self) -> bool {
        self.is_recent_for_bulk(self.bulk_at)
    }

    /// Returns `true` if something that came at this poll is recent for a bulk socket.
    pub(super) fn is_recent_for_bulk(&self, at: usize) -> bool {
        self.polls.wrapping_sub(at) < BULK_RECENT_POLLS
    }

    /// Returns `true` if the hot bulk socket should be polled, because bulk is recent. A thread may
    /// wait for small messages, so bulk waits for one poll after small datagrams came.
    pub(super) fn may_poll_bulk(&mut self, small_came: bool) -> bool {
        self.bulk_waits = small_came && !self.bulk_waits;
        self.is_bulk_recent() && !self.bulk_waits
    }

    /// Returns `true` if an idle socket should be polled. Idle sockets cost more than the hot one,
    /// for which a thread waits. The best time is the first empty poll after a datagram, when the
    /// next datagram is least likely to be imminent.
    pub(super) fn may_poll_idle(&self) -> bool {
        let since = self.polls.wrapping_sub(self.idle_polled_at);
        let lull = self.polls.wrapping_sub(self.small_at);
        since >= IDLE_SOCKET_POLLS
            && (lull == 1
                || lull > NEXT_SMALL_EXPECTED_POLLS
                || since >= IDLE_SOCKET_POLLS + IDLE_SOCKET_DEFERRAL_POLLS)
    }
}
