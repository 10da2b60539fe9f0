//! Posting several operations before a turn is run for them, so that they share datagrams (what `MSG_MORE` is to sockets and `FI_MORE`
//! to libfabric).

use oikaze_protocol::time::Time;
use std::cell::Cell;

/// Posts that wait for each other at most: as many as one turn takes, and more than a datagram holds.
const TOGETHER: u32 = 128;

thread_local! {
    /// How many batches this thread is in, one in another; and its posts since a turn was run for them.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static POSTS: Cell<u32> = const { Cell::new(0) };
    /// It has posted something since a batch of it has last been taken up.
    static POSTED: Cell<bool> = const { Cell::new(false) };
    /// When the latest of them began: to look at the clock for every post would cost as much as the post.
    static SINCE: Cell<Time> = const { Cell::new(Time(0)) };
}

/// This thread is in a batch.
pub(super) struct Cork;

impl Cork {
    pub fn new(now: Time) -> Self {
        DEPTH.set(DEPTH.get() + 1);
        SINCE.set(now);
        Self
    }

    /// When this thread's batch began.
    pub fn since() -> Time {
        SINCE.get()
    }

    /// This thread has posted something: may it wait for more?
    pub fn holds_post() -> bool {
        if DEPTH.get() == 0 {
            return false;
        }
        POSTED.set(true);
        POSTS.set((POSTS.get() + 1) % TOGETHER);
        POSTS.get() != 0
    }

    /// Was something posted in the batch that has ended, which is to be taken up now?
    pub fn take_posted() -> bool {
        POSTED.replace(false)
    }
}

impl Drop for Cork {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        POSTS.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_wait_while_a_batch_lasts_but_not_for_ever() {
        assert!(!Cork::holds_post());
        let outer = Cork::new(Time(5));
        assert_eq!(Cork::since(), Time(5));
        drop(Cork::new(Time(6)));
        let held = (0..2 * TOGETHER).filter(|_| Cork::holds_post()).count();
        assert_eq!(held, 2 * (TOGETHER as usize - 1));
        assert!(Cork::take_posted() && !Cork::take_posted());
        drop(outer);
        assert!(!Cork::holds_post() && !Cork::take_posted());
    }
}
