//! Corks posts: several operations are posted before a turn runs for them, so that they share
//! datagrams. The counterparts are `MSG_MORE` of sockets and `FI_MORE` of libfabric.
//!
//! Bench case: `message_rate` of 8 bytes (`bench wind`).

use oikaze_protocol::time::Time;
use std::cell::Cell;

/// Maximum number of posts that wait for each other. One turn takes as many, and a datagram holds
/// fewer.
const TOGETHER: u32 = 128;

thread_local! {
    /// Batch of this thread; the innermost one if batches are nested.
    static BATCH: Cell<Option<Batch>> = const { Cell::new(None) };
}

/// Posts to one node. Posts to another node do not wait, because the end of this batch runs no turn
/// of that node.
#[derive(Clone, Copy)]
struct Batch {
    node: usize,
    /// Start of the batch by the node's clock. Reading the clock for every post would cost as much
    /// as the post.
    since: Time,
    /// Posts since the last turn for them.
    posts: u32,
    /// Set by the first post.
    posted: bool,
}

/// Puts this thread into a batch, until the cork is [lifted](Cork::lift).
pub(super) struct Cork {
    outer: Option<Batch>,
}

impl Cork {
    pub fn new(node: usize, now: Time) -> Self {
        Self { outer: BATCH.replace(Some(Batch { node, since: now, posts: 0, posted: false })) }
    }

    /// Ends the batch, and resumes the one around it. Returns `true` if the batch has posts for a
    /// turn to take up.
    pub fn lift(&mut self) -> bool {
        BATCH.replace(self.outer.take()).is_some_and(|batch| batch.posted)
    }
}

/// Returns `true` if this thread is in a batch.
pub(super) fn is_on() -> bool {
    BATCH.get().is_some()
}

/// Counts a post of this thread to this node. Returns the start of the batch if the post may wait
/// for more.
pub(super) fn hold_post(node: usize) -> Option<Time> {
    let mut batch = BATCH.get().filter(|batch| batch.node == node)?;
    batch.posted = true;
    batch.posts = (batch.posts + 1) % TOGETHER;
    BATCH.set(Some(batch));
    (batch.posts != 0).then_some(batch.since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_wait_while_a_batch_lasts_but_not_for_ever() {
        assert_eq!(hold_post(1), None);
        let mut outer = Cork::new(1, Time(5));
        assert!(!Cork::new(1, Time(6)).lift());
        let held = (0..2 * TOGETHER)
            .filter_map(|_| hold_post(1))
            .inspect(|since| assert_eq!(*since, Time(5)))
            .count();
        assert_eq!(held, 2 * (TOGETHER as usize - 1));
        assert!(outer.lift());
        assert_eq!(hold_post(1), None);
    }

    #[test]
    fn a_batch_is_of_one_node() {
        let mut outer = Cork::new(1, Time(5));
        assert_eq!((hold_post(2), hold_post(1)), (None, Some(Time(5))));
        let mut inner = Cork::new(2, Time(9));
        assert_eq!((hold_post(1), hold_post(2)), (None, Some(Time(9))), "each by its own clock");
        assert!(inner.lift());
        assert!(outer.lift(), "what was posted before the inner one began is not forgotten");
        let mut outer = Cork::new(1, Time(5));
        let mut inner = Cork::new(2, Time(9));
        assert_eq!(hold_post(2), Some(Time(9)));
        assert!(inner.lift() && !outer.lift());
    }
}
