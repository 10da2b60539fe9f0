//! Mailbox of messages that have arrived and are not read, and the credit that reading them frees.

use super::posted::PostedReceive;
use super::read_credit::ReadCredit;
use crate::node::collectives::awaited::AwaitedParcels;
use crate::node::driver::waiters::Waiters;
use crate::sync::lock;
use oikaze_engine::{Arrived, Completion, Failure, MessagePlacement, PostedMemory, Request, Value};
use oikaze_os::memory::Scatter;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::ParcelHead;
use oikaze_protocol::rma::{Pattern, PostedReceives, ReceivePlace, RmaError};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Default)]
pub struct Mailbox {
    inside: Mutex<MailboxState>,
    /// Number of messages, so that a check costs one load.
    waiting: AtomicUsize,
    /// Set if there is credit that is not reported yet.
    untold: AtomicBool,
    /// Is set if a receive has got its whole message and has not ended.
    has_finished: AtomicBool,
    /// Number of posted receives, so that a check costs one load.
    posted: AtomicUsize,
    /// Set if a receive was put back, for which perhaps no message will come any more.
    restored: AtomicBool,
}

/// The posted receives and the awaited parcels of a node, as its engine sees them.
pub struct Receives(pub Arc<Mailbox>, pub Arc<AwaitedParcels>);

impl PostedMemory for Receives {
    fn begin(&self, from: Rank, tag: u64, len: u64) -> Option<Box<dyn MessagePlacement>> {
        if !self.0.has_posted() {
            return None;
        }
        let mut inside = lock(&self.0.inside);
        // A receive whose memory is closed meets the whole message, and fails (MEM-26.5).
        let has_room =
            |receive: &PostedReceive| receive.into.len >= len && receive.into.may_be_written();
        let (place, receive) = inside.posted.take_for((from, tag), has_room)?;
        inside.placing.push(PlacedReceive { place, receive: receive.clone(), ended: None });
        self.0.posted.store(inside.posted.len(), Ordering::Release);
        let mailbox = Arc::clone(&self.0);
        Some(Box::new(Placement { mailbox, place, receive, from, tag, len, is_gone: false }))
    }

    fn begin_parcel(
        &self,
        from: Rank,
        head: &ParcelHead,
        len: u64,
    ) -> Option<Box<dyn MessagePlacement>> {
        self.1.begin(from, head, len)
    }
}

/// A message that is placed into posted memory as its bytes arrive (MEM-26.8).
struct Placement {
    mailbox: Arc<Mailbox>,
    place: ReceivePlace,
    receive: PostedReceive,
    from: Rank,
    tag: u64,
    len: u64,
    /// Is `true` if the memory is not registered any more, and so is not touched (MEM-26.7).
    is_gone: bool,
}

impl MessagePlacement for Placement {
    fn scatter(&self, offset: u64, len: u64) -> Option<Scatter> {
        self.receive.into.scatter(offset, len)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.is_gone |= !self.receive.into.write(offset, bytes);
    }

    fn finish(self: Box<Self>) -> bool {
        let Placement { mailbox, place, receive, from, tag, len, is_gone } = *self;
        let mut inside = lock(&mailbox.inside);
        // A cancel that came meanwhile came too late (MEM-26.8).
        let _ = inside.end_placing(place);
        let is_gone = is_gone || !receive.into.may_be_written();
        let received = if is_gone {
            Err(RmaError::DestinationGone.into())
        } else {
            Ok(Value::Received { from, tag, len })
        };
        // The turn may have brought entries of earlier puts, which are deposited before the receive
        // ends (MEM-25.5).
        inside.finished.push((receive.completion, received));
        mailbox.has_finished.store(true, Ordering::Release);
        !is_gone
    }

    fn abort(self: Box<Self>) {
        self.mailbox.restore(self.place, self.receive);
    }
}

/// Receives that have ended, for the caller to settle when it has left the lock.
type Ended = Vec<(Arc<Completion>, Result<Value, Failure>)>;

/// A receive into whose memory a message is being placed.
struct PlacedReceive {
    place: ReceivePlace,
    receive: PostedReceive,
    /// Failure of the receive, if its message will not be whole.
    ended: Option<Failure>,
}

#[derive(Default)]
struct MailboxState {
    messages: VecDeque<Arrived>,
    posted: PostedReceives<PostedReceive>,
    /// Receives that are not among `posted`, because a message is being placed for each.
    placing: Vec<PlacedReceive>,
    /// Receives that have got their whole messages in this turn.
    finished: Ended,
    credit: ReadCredit,
    /// Number of the oldest messages that count as read. A waiter for a batch will take them, and
    /// the rest of the batch may need their credit.
    promised: usize,
    waiters: Waiters,
}

/// Returns the next item, or else the end. A turn deposits the items that came before an end, and
/// then reports the end. Both may happen between two calls of `next`, so this function calls it
/// again after an end.
pub fn next_or_end<T, E>(
    mut next: impl FnMut() -> Option<T>,
    end: impl FnOnce() -> Option<E>,
) -> Option<Result<T, E>> {
    if let Some(next) = next() {
        return Some(Ok(next));
    }
    let end = end()?;
    Some(next().ok_or(end))
}

impl Mailbox {
    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns `true` if a receive is posted, so that messages must come through
    /// [`Mailbox::deposit`].
    #[inline]
    pub fn has_posted(&self) -> bool {
        self.posted.load(Ordering::Acquire) > 0
    }

    /// Deposits the messages of a turn. Each goes to the oldest posted receive that matches, else
    /// to the other messages (MEM-26.2). Drops `entries`, which the turn has brought with the
    /// messages, once these are there and before a receive ends. Returns the requests that the
    /// caller has to make of the engine.
    pub fn deposit_with<E>(
        &self,
        mut next: impl FnMut() -> Option<Arrived>,
        entries: E,
    ) -> Vec<Request> {
        let first = next();
        if !self.has_finished.swap(false, Ordering::Acquire) && first.is_none() {
            return Vec::new();
        }
        let mut inside = lock(&self.inside);
        let mut requests = Vec::new();
        let mut ended = std::mem::take(&mut inside.finished);
        let arrived = first.into_iter().chain(std::iter::from_fn(next));
        if inside.posted.is_empty() {
            inside.messages.extend(arrived);
        } else {
            for arrived in arrived {
                requests.extend(inside.offer(arrived, &mut ended));
            }
            self.posted.store(inside.posted.len(), Ordering::Release);
            self.untold.store(true, Ordering::Relaxed);
        }
        requests.extend(self.promise(&mut inside));
        let there = inside.messages.len();
        inside.waiters.wake(there as u64);
        self.waiting.store(there, Ordering::Release);
        drop(inside);
        drop(entries);
        settle(ended);
        requests
    }

    /// Deposits the messages of a turn without entries.
    pub fn deposit(&self, next: impl FnMut() -> Option<Arrived>) -> Vec<Request> {
        self.deposit_with(next, ())
    }

    /// Posts a receive: the oldest message that matches and waits fills it, else a later one
    /// (MEM-26.2). The receive fails if its memory cannot be written, or if no message waits and
    /// `loss` returns why none will come. Returns the requests that the caller has to make of the
    /// engine, and `true` if the receive waits.
    pub fn post(
        &self,
        pattern: Pattern,
        receive: PostedReceive,
        loss: impl FnOnce() -> Option<Failure>,
    ) -> (Option<Request>, bool) {
        let mut inside = lock(&self.inside);
        // Checked inside the lock: memory that is closed later ends its receives inside it, too.
        let (request, outcome) = if !receive.into.may_be_written() {
            (None, Err(RmaError::DestinationGone.into()))
        } else if let Some(filled) = inside.fill_by_waiting(&pattern, &receive) {
            self.waiting.store(inside.messages.len(), Ordering::Release);
            self.untold.store(true, Ordering::Relaxed);
            filled
        } else if let Some(failure) = loss() {
            (None, Err(failure))
        } else {
            inside.posted.post(pattern, receive);
            self.posted.store(inside.posted.len(), Ordering::Release);
            return (None, true);
        };
        drop(inside);
        receive.completion.settle(outcome);
        (request, false)
    }

    /// Returns `true` if a message is being placed into posted memory.
    pub fn is_placing(&self) -> bool {
        !lock(&self.inside).placing.is_empty()
    }

    /// Puts a receive back whose message will not be whole, unless the receive has ended meanwhile.
    /// A message that has come meanwhile and waits may match the receive.
    fn restore(&self, place: ReceivePlace, receive: PostedReceive) {
        let mut inside = lock(&self.inside);
        let ended = inside.end_placing(place);
        let outcome = if !receive.into.may_be_written() {
            Err(RmaError::DestinationGone.into())
        } else if let Some(failure) = ended {
            Err(failure)
        } else if let Some((request, outcome)) = inside.fill_by_waiting(&place.pattern, &receive) {
            inside.credit.keep(request);
            self.waiting.store(inside.messages.len(), Ordering::Release);
            self.untold.store(true, Ordering::Relaxed);
            outcome
        } else {
            inside.posted.restore(place, receive);
            self.posted.store(inside.posted.len(), Ordering::Release);
            self.restored.store(true, Ordering::Release);
            return;
        };
        drop(inside);
        receive.completion.settle(outcome);
    }

    /// Returns `true` if a receive was put back since the last call. The caller then fails the
    /// receives for which no message will come.
    pub fn take_restored(&self) -> bool {
        self.restored.load(Ordering::Relaxed) && self.restored.swap(false, Ordering::AcqRel)
    }

    /// Fails the posted receives for which `loss` returns why no message will come (MEM-26.6).
    pub fn fail_posted(&self, mut loss: impl FnMut(Option<Rank>) -> Option<Failure>) {
        self.end_posted(|pattern, _| loss(pattern.from));
    }

    /// Cancels the posted receive with this completion. If a message is being placed for it, the
    /// receive ends with that message (MEM-26.8).
    pub fn cancel_posted(&self, cancelled: &Arc<Completion>) {
        self.end_posted(|_, receive| {
            Arc::ptr_eq(&receive.completion, cancelled).then_some(Failure::Cancelled)
        });
    }

    /// Ends the posted receives for which `end` returns a reason. One for which a message is being
    /// placed ends if that message will not be whole.
    pub fn end_posted(&self, mut end: impl FnMut(&Pattern, &PostedReceive) -> Option<Failure>) {
        let ended = {
            // Not by the number of receives, which may be older than what the caller has closed.
            let mut inside = lock(&self.inside);
            for PlacedReceive { place, receive, ended } in &mut inside.placing {
                *ended = ended.take().or_else(|| end(&place.pattern, receive));
            }
            let ended = inside.posted.take_if(|pattern, receive| end(pattern, receive));
            self.posted.store(inside.posted.len(), Ordering::Release);
            ended
        };
        settle(ended.into_iter().map(|(receive, end)| (receive.completion, Err(end))));
    }

    /// Takes the oldest message from this peer or any. The caller has to make the returned request
    /// of the engine.
    #[inline]
    pub fn take(&self, from: Option<Rank>) -> Option<(Arrived, Option<Request>)> {
        if self.waiting.load(Ordering::Acquire) == 0 { None } else { self.take_out(from) }
    }

    /// Describes the message that [`Mailbox::take`] would take (MEM-8.3): sender, tag and length.
    pub fn probe(&self, from: Option<Rank>) -> Option<(Rank, u64, u64)> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let inside = lock(&self.inside);
        let mut messages = inside.messages.iter();
        let next = messages.find(|arrived| from.is_none_or(|from| arrived.from == from))?;
        Some((next.from, next.tag, next.body.len() as u64))
    }

    fn take_out(&self, from: Option<Rank>) -> Option<(Arrived, Option<Request>)> {
        let mut inside = lock(&self.inside);
        let at = inside
            .messages
            .iter()
            .position(|arrived| from.is_none_or(|from| arrived.from == from))?;
        let (arrived, request) = inside.remove(at)?;
        self.waiting.store(inside.messages.len(), Ordering::Release);
        self.untold.store(true, Ordering::Relaxed);
        Some((arrived, request))
    }

    /// Moves the oldest messages to the end of `batch`, until it has `wanted` messages. Returns the
    /// requests that the caller has to make of the engine.
    pub fn take_batch(&self, wanted: usize, batch: &mut Vec<Arrived>) -> Vec<Request> {
        self.take_batch_of(wanted, 0, batch).unwrap_or_default()
    }

    /// Moves messages as [`Mailbox::take_batch`] does, if at least `at_least` are there.
    pub fn take_batch_of(
        &self,
        wanted: usize,
        at_least: usize,
        batch: &mut Vec<Arrived>,
    ) -> Option<Vec<Request>> {
        let mut inside = lock(&self.inside);
        if inside.messages.len() < at_least {
            return None;
        }
        let mut requests = Vec::new();
        while batch.len() < wanted
            && let Some((arrived, request)) = inside.remove(0)
        {
            requests.extend(request);
            batch.push(arrived);
            self.untold.store(true, Ordering::Relaxed);
        }
        self.waiting.store(inside.messages.len(), Ordering::Release);
        Some(requests)
    }

    /// Enlists the calling thread, which waits until `wanted` messages are there, and then takes
    /// them. Returns the requests that the caller has to make of the engine.
    pub fn enlist(&self, wanted: usize) -> Vec<Request> {
        let mut inside = lock(&self.inside);
        inside.waiters.enlist(wanted as u64);
        self.promise(&mut inside)
    }

    /// Removes the calling thread from the waiters.
    pub fn delist(&self) {
        lock(&self.inside).waiters.delist();
    }

    /// Reports all unreported credit. A peer may wait for the very last of its credit, to send a
    /// message as long as all of it.
    pub fn read(&self) -> Vec<Request> {
        if !self.untold.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut inside = lock(&self.inside);
        self.untold.store(false, Ordering::Relaxed);
        inside.credit.take()
    }

    /// Counts the messages of waiting batches as read.
    fn promise(&self, inside: &mut MailboxState) -> Vec<Request> {
        let mut requests = Vec::new();
        while let Some(request) = inside.promise_next() {
            requests.extend(request);
            self.untold.store(true, Ordering::Relaxed);
        }
        requests
    }
}

/// Settles receives that have ended. The lock is released first: a task may be woken, which looks
/// into the mailbox.
fn settle(ended: impl IntoIterator<Item = (Arc<Completion>, Result<Value, Failure>)>) {
    ended.into_iter().for_each(|(completion, outcome)| completion.settle(outcome));
}

impl MailboxState {
    /// Gives a message to the oldest posted receive that matches and has room, else to the other
    /// messages. A receive that matches and has no room ends with an error (MEM-26.4).
    fn offer(&mut self, arrived: Arrived, ended: &mut Ended) -> Option<Request> {
        while let Some(receive) = self.posted.take(arrived.from, arrived.tag) {
            let outcome = receive.fill(&arrived);
            let is_filled = outcome.is_ok();
            ended.push((receive.completion, outcome));
            if is_filled {
                return self.credit.count(arrived.from, arrived.body.len());
            }
        }
        self.messages.push_back(arrived);
        None
    }

    /// Fills a receive with the oldest message that matches and waits, and takes that message out.
    /// A message for which there is no room stays where it is (MEM-26.4). Returns `None` if no
    /// message matches.
    fn fill_by_waiting(
        &mut self,
        pattern: &Pattern,
        receive: &PostedReceive,
    ) -> Option<(Option<Request>, Result<Value, Failure>)> {
        let waits = |arrived: &Arrived| pattern.matches(arrived.from, arrived.tag);
        let at = self.messages.iter().position(waits)?;
        let outcome = receive.fill(self.messages.get(at)?);
        let taken = if outcome.is_ok() { self.remove(at) } else { None };
        Some((taken.and_then(|(_, request)| request), outcome))
    }

    /// Forgets that a message is being placed. Returns the failure of the receive, if it has ended
    /// meanwhile.
    fn end_placing(&mut self, place: ReceivePlace) -> Option<Failure> {
        let at = self.placing.iter().position(|placed| placed.place == place)?;
        self.placing.swap_remove(at).ended
    }

    /// Takes a message out. Returns a request if enough credit has come together.
    fn remove(&mut self, at: usize) -> Option<(Arrived, Option<Request>)> {
        let arrived = self.messages.remove(at)?;
        if at < self.promised {
            self.promised -= 1;
            // Another thread may wait for as many messages as before.
            return Some((arrived, self.promise_next().flatten()));
        }
        let request = self.credit.count(arrived.from, arrived.body.len());
        Some((arrived, request))
    }

    /// Counts one more message of a waiting batch as read, if there is one.
    fn promise_next(&mut self) -> Option<Option<Request>> {
        let wanted = usize::try_from(self.waiters.most()).unwrap_or(usize::MAX);
        let next = self.messages.get(self.promised).filter(|_| self.promised < wanted)?;
        let (from, bytes) = (next.from, next.body.len());
        self.promised += 1;
        Some(self.credit.count(from, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_credit::{READS_PER_CHECK, REPORT_BYTES};
    use super::*;
    use oikaze_protocol::limits::CREDIT_OVERHEAD;
    use oikaze_protocol::wind::Class;

    fn message(from: Rank, tag: u64, bytes: usize) -> Arrived {
        Arrived { from, class: Class::Ordered, tag, body: vec![0; bytes].into() }
    }

    fn deposit(mailbox: &Mailbox, messages: Vec<Arrived>) {
        let mut messages = messages.into_iter();
        mailbox.deposit(|| messages.next());
    }

    #[test]
    fn each_peer_has_its_messages_in_their_order() {
        let mailbox = Mailbox::default();
        deposit(&mailbox, vec![message(2, 0, 1), message(0, 1, 1), message(2, 2, 1)]);
        deposit(&mailbox, Vec::new());
        deposit(&mailbox, vec![message(0, 3, 1)]);
        let take = |from| mailbox.take(from).map(|(arrived, _)| arrived.tag);
        assert_eq!(
            (mailbox.len(), take(Some(1)), take(Some(0)), take(None)),
            (4, None, Some(1), Some(0))
        );
        assert_eq!(
            (take(Some(0)), take(Some(2)), take(None), mailbox.len()),
            (Some(3), Some(2), None, 0)
        );
    }

    /// A message that was deposited between the two calls of `next` is read before the end.
    #[test]
    fn who_has_ended_is_told_when_all_its_messages_are_read() {
        let mailbox = Mailbox::default();
        let take = |last: Option<Arrived>| {
            let end = || {
                deposit(&mailbox, last.into_iter().collect());
                Some("ended")
            };
            next_or_end(|| mailbox.take(Some(1)), end)
                .map(|taken| taken.map(|(arrived, _)| arrived.tag))
        };
        assert_eq!(take(Some(message(1, 7, 1))), Some(Ok(7)));
        assert_eq!(take(None), Some(Err("ended")));
        assert_eq!(take(Some(message(0, 8, 1))), Some(Err("ended")));
        deposit(&mailbox, vec![message(1, 9, 1)]);
        assert_eq!(take(None), Some(Ok(9)));
        assert!(next_or_end(|| mailbox.take(Some(1)), || None::<()>).is_none());
    }

    /// WIND-6.4: credit comes back exactly, sooner than a peer has used it up.
    #[test]
    fn what_is_read_is_given_back_in_large_pieces() {
        let mailbox = Mailbox::default();
        let (mut given, mut read, mut pieces) = ([0; 2], [0; 2], 0);
        for n in 0..100_000u32 {
            let (from, bytes) = (n % 2, 1000 * (n as usize % 2));
            deposit(&mailbox, vec![message(from, 0, bytes)]);
            let (arrived, request) = mailbox.take(None).unwrap();
            read[from as usize] += arrived.body.len() as u64 + CREDIT_OVERHEAD;
            if let Some(Request::Consumed { from, messages, bytes }) = request {
                given[from as usize] += bytes + messages * CREDIT_OVERHEAD;
                assert_eq!(given[from as usize], read[from as usize]);
                pieces += 1;
            }
            assert!((0..2).all(|peer| read[peer] - given[peer] < REPORT_BYTES));
        }
        // Some of them by READ_A_LOOK.
        assert!((20..40 + 100_000 / READS_PER_CHECK).contains(&pieces), "{pieces}");
        for request in mailbox.read() {
            let Request::Consumed { from, messages, bytes } = request else {
                panic!("it gives credit back")
            };
            given[from as usize] += bytes + messages * CREDIT_OVERHEAD;
        }
        assert_eq!(given, read, "all of it, when there is nothing else to do");
        assert_eq!(mailbox.read().len(), 0, "all of it, when there is nothing else to do");
    }

    /// WIND-6.4: two threads wait for a batch each, and one takes the messages that are there. The
    /// other waits for the remaining ones, which take no credit either.
    #[test]
    fn a_batch_that_another_has_taken_from_is_promised_again() {
        const EACH: usize = REPORT_BYTES as usize;
        let mailbox = Mailbox::default();
        std::thread::scope(|scope| scope.spawn(|| mailbox.enlist(2).len()).join().unwrap());
        mailbox.enlist(2);
        let mut messages = (0..3).map(|tag| message(1, tag, EACH));
        let given = |requests: Vec<Request>| requests.len();
        assert_eq!(given(mailbox.deposit(|| messages.next())), 2);
        mailbox.delist();
        let mut batch = Vec::new();
        assert_eq!((given(mailbox.take_batch(2, &mut batch)), batch.len()), (1, 2));
    }

    /// WIND-6.4: a peer of which a little was read gets that credit back, however busy another peer
    /// keeps this node.
    #[test]
    fn nobody_waits_for_the_rest_of_its_credit_until_all_others_are_quiet() {
        let mailbox = Mailbox::default();
        deposit(&mailbox, vec![message(3, 0, 1000)]);
        let mut told = false;
        for _ in 0..READS_PER_CHECK * 5 {
            deposit(&mailbox, vec![message(0, 0, 8)]);
            let request = mailbox.take(None).and_then(|(_, request)| request);
            told |=
                matches!(request, Some(Request::Consumed { from: 3, messages: 1, bytes: 1000 }));
        }
        assert!(told);
    }
}
