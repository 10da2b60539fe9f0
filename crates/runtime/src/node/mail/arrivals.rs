//! Arrival queue: puts with notice that have arrived and are not read (MEM-25).

use super::read_credit::ReadCredit;
use crate::sync::lock;
use oikaze_engine::{Placed, Request};
use oikaze_os::signals::Locked;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

#[derive(Default)]
pub struct ArrivalQueue {
    inside: Mutex<ArrivalState>,
    /// Number of entries, so that a check costs one load.
    waiting: AtomicUsize,
    /// Set if there is credit that is not reported yet.
    untold: AtomicBool,
}

#[derive(Default)]
struct ArrivalState {
    entries: VecDeque<Placed>,
    credit: ReadCredit,
    /// Tasks that wait for an entry.
    wakers: Vec<Waker>,
}

/// Guard of a queue that has got the entries of a turn.
#[derive(Default)]
#[must_use = "the queue is closed until this is dropped"]
pub struct DepositedArrivals<'q> {
    inside: Option<Locked<MutexGuard<'q, ArrivalState>>>,
    /// Tasks to wake once the queue is open.
    wakers: Vec<Waker>,
}

impl Drop for DepositedArrivals<'_> {
    fn drop(&mut self) {
        drop(self.inside.take());
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl ArrivalQueue {
    /// Adds the entries of a turn in the order of their arrival (MEM-25.5). The queue stays closed
    /// until the returned guard is dropped, which wakes the tasks that wait for entries. The caller
    /// deposits the messages of the turn meanwhile: a fence orders entries and messages (MEM-15.1),
    /// so no thread may see one without the other.
    pub fn deposit(&self, mut next: impl FnMut() -> Option<Placed>) -> DepositedArrivals<'_> {
        let Some(first) = next() else { return DepositedArrivals::default() };
        let mut inside = lock(&self.inside);
        inside.entries.extend(std::iter::once(first).chain(std::iter::from_fn(next)));
        // A thread that sees a message of this turn sees this number, too, and waits for the lock.
        self.waiting.store(inside.entries.len(), Ordering::Release);
        let wakers = std::mem::take(&mut inside.wakers);
        DepositedArrivals { inside: Some(inside), wakers }
    }

    /// Takes the oldest entry, of the region with this key or of any. The caller has to make the
    /// returned request of the engine.
    pub fn take(&self, key: Option<u64>) -> Option<(Placed, Option<Request>)> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut inside = lock(&self.inside);
        let at = inside
            .entries
            .iter()
            .position(|placed| key.is_none_or(|key| placed.notice.key == key))?;
        let placed = inside.entries.remove(at)?;
        self.waiting.store(inside.entries.len(), Ordering::Release);
        // The bytes are in their place, so only the entry has cost credit (MEM-25.4).
        let request = inside.credit.count(placed.from, 0);
        self.untold.store(true, Ordering::Relaxed);
        Some((placed, request))
    }

    pub fn len(&self, key: Option<u64>) -> usize {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let inside = lock(&self.inside);
        let is_meant = |placed: &&Placed| key.is_none_or(|key| placed.notice.key == key);
        inside.entries.iter().filter(is_meant).count()
    }

    /// Enlists a task, which is woken once by the next entry or end of a node.
    pub fn enlist(&self, waker: &Waker) {
        let mut inside = lock(&self.inside);
        if !inside.wakers.iter().any(|known| known.will_wake(waker)) {
            inside.wakers.push(waker.clone());
        }
    }

    /// Wakes all tasks, because what they wait for may never come.
    pub fn wake_all(&self) {
        let wakers = std::mem::take(&mut lock(&self.inside).wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Reports all unreported credit.
    pub fn read(&self) -> Vec<Request> {
        if !self.untold.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        lock(&self.inside).credit.take()
    }
}

#[cfg(test)]
mod tests {
    use super::super::mailbox::Mailbox;
    use super::*;
    use oikaze_engine::Arrived;
    use oikaze_protocol::limits::{CREDIT, CREDIT_OVERHEAD};
    use oikaze_protocol::rma::Notice;
    use oikaze_protocol::wind::Class;
    use std::sync::Arc;
    use std::task::Wake;

    fn placed(from: u32, key: u64, tag: u64) -> Placed {
        Placed { from, notice: Notice { key, offset: 0, len: 1 << 20, tag } }
    }

    /// MEM-25.5: each region's entries are taken in the order in which they came.
    #[test]
    fn entries_of_a_region_are_taken_in_their_order() {
        let queue = ArrivalQueue::default();
        let mut entries =
            [(1, 0), (2, 1), (1, 2), (2, 3)].map(|(key, tag)| placed(0, key, tag)).into_iter();
        drop(queue.deposit(|| entries.next()));
        let take = |key| queue.take(key).map(|(placed, _)| placed.notice.tag);
        assert_eq!((queue.len(None), queue.len(Some(1)), queue.len(Some(3))), (4, 2, 0));
        assert_eq!((take(Some(2)), take(None), take(Some(2))), (Some(1), Some(0), Some(3)));
        assert_eq!((take(Some(2)), take(Some(1)), take(None)), (None, Some(2), None));
        assert_eq!(queue.len(None), 0);
    }

    /// MEM-15.1, MEM-25.5: no thread sees the entries of a turn without the messages of that turn,
    /// or the messages without the entries. Receives end, and tasks wake, when both are there.
    #[test]
    fn entries_and_messages_of_a_turn_are_seen_together() {
        struct Task(Arc<ArrivalQueue>, AtomicUsize);
        impl Wake for Task {
            fn wake(self: Arc<Self>) {
                self.1.store(self.0.len(None), Ordering::Relaxed);
            }
        }
        let (queue, mailbox) = (Arc::new(ArrivalQueue::default()), Mailbox::default());
        let task = Arc::new(Task(Arc::clone(&queue), AtomicUsize::new(0)));
        queue.enlist(&Waker::from(Arc::clone(&task)));
        let mut entries = [placed(0, 1, 7), placed(0, 2, 8)].into_iter();
        let message = Arrived { from: 0, class: Class::Ordered, tag: 9, body: vec![1].into() };
        let mut messages = std::iter::once(message);
        let deposited = queue.deposit(|| entries.next());
        let next = || {
            assert!(queue.inside.try_lock().is_err(), "no entry can be taken yet");
            assert_eq!(queue.waiting.load(Ordering::Acquire), 2, "no taker of a message misses it");
            messages.next()
        };
        mailbox.deposit_with(next, deposited);
        assert_eq!((mailbox.len(), queue.len(None)), (1, 2));
        assert_eq!(task.1.load(Ordering::Relaxed), 2, "the task could look at the queue");
        assert_eq!(queue.take(None).unwrap().0.notice.tag, 7);
        drop(queue.deposit(|| None));
        assert_eq!(queue.len(None), 1);
    }

    /// MEM-25.4: each entry that was read gives back what an entry costs, and not its bytes.
    #[test]
    fn read_entries_give_their_credit_back_exactly() {
        let queue = ArrivalQueue::default();
        let (mut messages, mut requests) = (0, 0);
        let mut count = |request: Request| {
            let Request::Consumed { messages: some, bytes, .. } = request else {
                panic!("it gives credit back")
            };
            assert_eq!(bytes, 0);
            (messages, requests) = (messages + some, requests + 1);
        };
        let all = CREDIT / CREDIT_OVERHEAD;
        for tag in 0..all {
            let mut entry = Some(placed(3, 1, tag));
            drop(queue.deposit(|| entry.take()));
            queue.take(None).unwrap().1.into_iter().for_each(&mut count);
        }
        queue.read().into_iter().for_each(&mut count);
        assert!(queue.read().is_empty(), "once");
        assert_eq!(messages, all);
        assert!(requests > 8, "{requests}");
    }
}
