//! Posting several operations before a turn is run for them, so that they share datagrams (what
//! `MSG_MORE` is to sockets and `FI_MORE` to libfabric).

use oikaze_protocol::time::Time;
use std::cell::Cell;

/// Posts that wait for each other at most: as many as one turn takes, and more than a datagram
/// holds.
const TOGETHER: u32 = 128;

thread_local! {
    /// The batch that this thread is in; of several, one in another, the innermost.
    static BATCH: Cell<Option<Batch>> = const { Cell::new(None) };
}

/// Posts to one node: those to another do not wait, for its end runs no turn of theirs.
#[derive(Clone, Copy)]
struct Batch {
    node: usize,
    /// When it began, by the node's clock: to look at it for every post would cost as much as the
    /// post.
    since: Time,
    /// Posts since a turn was run for them.
    posts: u32,
    /// There was one at all.
    posted: bool,
}

/// This thread is in a batch, until it is [lifted](Cork::lift).
pub(super) struct Cork {
    outer: Option<Batch>,
}

impl Cork {
    pub fn new(node: usize, now: Time) -> Self {
        Self { outer: BATCH.replace(Some(Batch { node, since: now, posts: 0, posted: false })) }
    }

    /// The batch has ended, and the one around it goes on: was something posted in it, which is to
    /// be taken up now?
    pub fn lift(&mut self) -> bool {
        BATCH.replace(self.outer.take()).is_some_and(|batch| batch.posted)
    }
}

/// Is this thread in a batch?
pub(super) fn is_on() -> bool {
    BATCH.get().is_some()
}

/// This thread has posted something to this node: if it may wait for more, since when others do.
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
