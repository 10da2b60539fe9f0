//! Send queue: messages that were posted and are not settled (WIND-2, WIND-4), with their numbers
//! and states. A full queue refuses further messages, which is the backpressure on the program.
//!
//! Two queues take turns: *small* (whole messages, beginnings, withdrawals) and *bulk* (bodies in
//! fragments, a few messages at a time in rotation). The front of each can always be sent, so
//! whether anything is due is known in O(1).

mod cancel;
mod retransmit;
mod settle;
mod share;
use super::outgoing::{BodyPiece, Outgoing, SendProgress, Sizes, Stage, body_max, cost};
use crate::limits::{
    BULK_ACTIVE, BULK_RUN, BULK_RUN_OVER, MESSAGES_IN_FLIGHT, PAGE, PAGES_A_DATAGRAM,
};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::event::PostError;
use crate::wind::metrics::histogram::Latency;
use crate::wind::send::message::{Body, Class, Message, Rows, Segment};
use alloc::collections::VecDeque;
use alloc::sync::Arc;

#[derive(Clone, Debug, Hash)]
pub(crate) struct Outbox {
    first: u64,
    messages: VecDeque<Outgoing>,
    small: VecDeque<u64>,
    bulk: VecDeque<u64>,
    bulk_waiting: VecDeque<u64>,
    run: u32,
    blocked: VecDeque<u64>,
    /// Number of messages of which bytes wait for group datagrams.
    shared: usize,
    sizes: Option<Sizes>,
    credit_most: u64,
    credit_limit: u64,
    credit_used: u64,
    /// Time of the latest acknowledgement.
    now: Time,
    settle_times: Latency,
    /// Number below which all messages are settled, if some of them came by group datagrams and the
    /// peer does not know the number yet (WIND-12.14).
    untold_settled: Option<u64>,
    /// Time at which the peer is told of that number, if nothing has told it by then.
    tell_settled: Time,
    /// Messages refused as *not present*, which the owner will post again.
    returned: VecDeque<Message>,
}

/// Lengths of the queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queues {
    pub unsettled: usize,
    pub small: usize,
    pub bulk: usize,
    pub blocked: usize,
    /// Bytes of credited messages that the peer would still accept.
    pub credit: u64,
}

impl Outbox {
    pub fn new() -> Outbox {
        Outbox {
            first: 0,
            messages: VecDeque::new(),
            small: VecDeque::new(),
            bulk: VecDeque::new(),
            bulk_waiting: VecDeque::new(),
            run: 0,
            blocked: VecDeque::new(),
            shared: 0,
            sizes: None,
            credit_most: 0,
            credit_limit: 0,
            credit_used: 0,
            now: Time(0),
            settle_times: Latency::default(),
            untold_settled: None,
            tell_settled: Time(0),
            returned: VecDeque::new(),
        }
    }

    /// Returns a number to tell the peer, below which all messages are settled.
    pub fn untold_settled(&self) -> Option<u64> {
        self.untold_settled.map(|_| self.first)
    }

    /// Returns when the peer is to be told of this number at the latest.
    pub fn tell_settled_time(&self) -> Option<Time> {
        self.untold_settled.map(|_| self.tell_settled)
    }

    /// Called when a datagram goes that tells the number. The next one goes at this time, unless
    /// the peer acknowledges the first.
    pub fn tell_settled_again(&mut self, at: Time) {
        self.tell_settled = at;
    }

    /// Called when the peer knows that all messages below this number are settled.
    pub fn settled_told(&mut self, number: u64) {
        self.untold_settled.take_if(|untold| *untold <= number);
    }

    /// Returns the next message that was refused as *not present*.
    pub fn take_returned(&mut self) -> Option<Message> {
        self.returned.pop_front()
    }

    /// Returns `true` if no message is unsettled.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn has_small(&self) -> bool {
        !self.small.is_empty()
    }

    pub fn has_bulk(&self) -> bool {
        !self.bulk.is_empty()
    }

    /// Returns `true` if a message waits for the peer's credit.
    pub fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    pub fn get(&self, number: u64) -> Option<&Outgoing> {
        self.messages.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Outgoing> {
        self.messages.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Returns class and body length of the oldest message that is not settled.
    pub fn oldest(&self) -> Option<(Class, u64)> {
        let settled =
            |message: &&Outgoing| matches!(message.stage, Stage::Acknowledged | Stage::Settled);
        self.messages
            .iter()
            .find(|message| !settled(message))
            .map(|message| (message.class, message.len))
    }

    /// Returns the maximum credit that the peer can have granted in all: the full credit beyond
    /// what the peer was charged (WIND-6.4).
    pub fn credit_possible(&self) -> u64 {
        self.credit_used.saturating_add(self.credit_most)
    }

    /// Returns `true` if a message of this number can have been refused. It cannot if it was never
    /// posted or waits for credit.
    pub fn may_be_refused(&self, number: u64) -> bool {
        number < self.first
            || self.get(number).is_some_and(|message| message.stage != Stage::Waiting)
    }

    pub fn queues(&self) -> Queues {
        Queues {
            unsettled: self.messages.len(),
            small: self.small.len(),
            bulk: self.bulk.len() + self.bulk_waiting.len(),
            blocked: self.blocked.len(),
            credit: self.credit_limit.saturating_sub(self.credit_used),
        }
    }

    /// Returns the times from post to acknowledgement of all messages so far.
    pub fn settle_times(&self) -> &Latency {
        &self.settle_times
    }

    /// Sets the time of an acknowledgement, at which the messages that it settles count as settled.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Returns `true` if a message of this head and body fits into one frame. Always `false` before
    /// establishment.
    pub fn holds(&self, head: usize, body: u64) -> bool {
        self.sizes.is_some_and(|sizes| sizes.fit(head, body))
    }

    pub fn is_full(&self) -> bool {
        self.messages.len() >= MESSAGES_IN_FLIGHT
    }

    /// Number of messages that are not settled, or follow one that is not.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Accepts a message and returns its number.
    pub fn post(&mut self, now: Time, message: Message) -> Result<u64, PostError> {
        self.add(now, message, false)
    }

    /// Accepts a message whose bytes wait for group datagrams if `shared` is set.
    fn add(&mut self, now: Time, message: Message, shared: bool) -> Result<u64, PostError> {
        let len = message.body.len();
        let max = body_max(message.charge);
        if len > max {
            return Err(PostError::TooLong { len, max });
        }
        if self.is_full() {
            return Err(PostError::Full);
        }
        let number = self.first + self.messages.len() as u64;
        let Message { class, urgent, charge, head, body, token } = message;
        self.messages.push_back(Outgoing {
            class,
            // WIND-3.5: the poster of a synchronous message waits for its acknowledgement.
            urgent: urgent || class == Class::Sync,
            charge,
            charged: false,
            head,
            body,
            len,
            posted: now,
            token,
            pages: false,
            shared,
            by_group: false,
            stage: Stage::Waiting,
        });
        self.shared += usize::from(shared);
        if self.sizes.is_some() {
            self.start(number);
        }
        Ok(number)
    }

    /// Cuts a message that was just posted at page boundaries (WIND-2.5).
    pub fn cut_between_pages(&mut self, number: u64) {
        if let Some(message) = self.get_mut(number) {
            message.pages = true;
        }
    }

    /// Releases all messages posted so far. Called when the connection is established.
    pub fn open(&mut self, sizes: Sizes, credit: u64) {
        self.sizes = Some(sizes);
        (self.credit_most, self.credit_limit, self.credit_used) = (credit, credit, 0);
        for number in self.first..self.first + self.messages.len() as u64 {
            self.start(number);
        }
    }

    /// Queues a new message, or lets it wait for credit (WIND-6.4).
    fn start(&mut self, number: u64) {
        let Some(message) = self.get_mut(number) else { return };
        if message.stage == (Stage::Withdrawn { queued: true }) {
            self.small.push_back(number);
        } else if !message.charge.is_credited() {
            self.enqueue(number);
        } else {
            self.blocked.push_back(number);
            self.unblock();
        }
    }

    /// Called when the peer has granted `limit` bytes of credit in all.
    pub fn grant(&mut self, limit: u64) {
        if limit > self.credit_limit {
            self.credit_limit = limit;
            self.unblock();
        }
    }

    fn unblock(&mut self) {
        while let Some(&number) = self.blocked.front() {
            let (used, limit) = (self.credit_used, self.credit_limit);
            // WIND-6.7: the peer has read everything, so that even a message beyond all credit may
            // be sent.
            let is_alone = limit == used.saturating_add(self.credit_most);
            match self.get_mut(number) {
                Some(message) if message.stage == Stage::Waiting => {
                    let used =
                        used.saturating_add(cost(message.charge.of(message.len).unwrap_or(0)));
                    if used > limit && !is_alone {
                        return;
                    }
                    message.charged = true;
                    self.credit_used = used;
                    self.enqueue(number);
                }
                _ => {}
            }
            self.blocked.pop_front();
        }
    }

    /// Puts a message that may be sent into its queue.
    fn enqueue(&mut self, number: u64) {
        let sizes = self.sizes.unwrap_or_default();
        let Some(message) = self.get_mut(number) else { return };
        if message.shared {
            message.stage = Stage::Bulk(SendProgress::default());
        } else if sizes.hold(message) {
            message.stage = Stage::Small { queued: true };
            self.small.push_back(number);
        } else {
            self.enqueue_bulk(number);
        }
    }

    fn enqueue_bulk(&mut self, number: u64) {
        let Some(message) = self.get_mut(number) else { return };
        message.stage = Stage::Bulk(SendProgress::default());
        // Numbers come in order, except for messages that waited for credit. Other messages may
        // wait for these.
        let at = self.bulk_waiting.partition_point(|waiting| *waiting < number);
        self.bulk_waiting.insert(at, number);
        let overdue = at == 0 && self.bulk.iter().any(|active| *active > number);
        self.activate(if overdue { self.bulk.len() + 1 } else { BULK_ACTIVE });
    }

    /// Fills the rotation.
    fn activate(&mut self, most: usize) {
        while self.bulk.len() < most {
            let Some(number) = self.bulk_waiting.pop_front() else { return };
            if let Some(Outgoing { stage: Stage::Bulk(progress), .. }) = self.get_mut(number)
                && !progress.active
            {
                progress.active = true;
                self.bulk.push_back(number);
            }
        }
    }

    /// Returns the front of the small queue; see [`Self::take_small`].
    pub fn peek_small(&self) -> Option<(u64, &Outgoing)> {
        let number = *self.small.front()?;
        Some((number, self.get(number)?))
    }

    /// Removes the front of the small queue after it was written.
    pub fn take_small(&mut self) {
        if let Some(number) = self.small.pop_front()
            && let Some(message) = self.get_mut(number)
        {
            match &mut message.stage {
                Stage::Small { queued } | Stage::Withdrawn { queued } => *queued = false,
                Stage::Bulk(_) | Stage::Waiting | Stage::Acknowledged | Stage::Settled => {}
            }
        }
        self.drop_stale();
    }

    /// Returns the next piece of the bulk queue's front.
    pub fn peek_bulk(&self) -> Option<BodyPiece> {
        let number = *self.bulk.front()?;
        let message = self.get(number)?;
        let Stage::Bulk(progress) = &message.stage else { return None };
        let most = self.full_fragment(message, progress.opened)?;
        let lost = progress.lost.iter().next();
        // Bytes that wait for group datagrams are not sent here.
        let end = if message.shared { progress.next } else { message.len };
        let from = lost.clone().unwrap_or(progress.next..end);
        let len = most.min(from.end - from.start);
        let lost_left =
            progress.lost.pieces() > 1 || lost.is_some_and(|lost| lost.end - lost.start > len);
        let last = !lost_left && progress.next.max(from.start + len) == end;
        let was_sent = from.start < progress.next;
        Some(BodyPiece {
            number,
            offset: from.start,
            len: u32::try_from(len).ok()?,
            last,
            was_sent,
        })
    }

    /// Returns the bytes of a full fragment of this message. `opened` tells whether the peer knows
    /// the message's beginning.
    pub fn full_fragment(&self, message: &Outgoing, opened: bool) -> Option<u64> {
        Some(full_fragment(self.sizes?, message, opened))
    }

    /// Returns the source of a piece whose bytes are not stored here: a segment, or a segment among
    /// the packed bytes of the returned rows.
    // Inlined, because moving the result out of a call would wait for its stores.
    #[inline(always)]
    pub fn source_of(&self, piece: &BodyPiece) -> (Option<Segment>, Option<Arc<Rows>>) {
        let len = u64::from(piece.len);
        match self.get(piece.number).map(|message| &message.body) {
            Some(Body::Segment(whole)) => (
                Some(Segment {
                    region: whole.region,
                    offset: whole.offset.saturating_add(piece.offset),
                    len,
                }),
                None,
            ),
            Some(Body::Rows(rows)) => (
                Some(Segment { region: rows.region, offset: piece.offset, len }),
                Some(Arc::clone(rows)),
            ),
            _ => (None, None),
        }
    }

    /// Returns the bytes of a piece that is stored here.
    pub fn bytes_of(&self, piece: &BodyPiece) -> Option<&[u8]> {
        let start = usize::try_from(piece.offset).ok()?;
        self.get(piece.number)?.body.bytes().get(start..start + piece.len as usize)
    }

    /// Advances after the piece was written: to the message's next piece and, at the end of its
    /// turn, to the next message.
    pub fn take_bulk(&mut self, piece: &BodyPiece) {
        let taken = piece.offset..piece.offset + u64::from(piece.len);
        let mut ends_soon = false;
        if let Some(Outgoing { stage: Stage::Bulk(progress), len, .. }) = self.get_mut(piece.number)
        {
            progress.lost.remove(taken.clone());
            progress.next = progress.next.max(taken.end);
            progress.opened |= planted(Bug::ForgetOpening);
            progress.active = !piece.last;
            ends_soon = progress.lost.is_empty()
                && *len - progress.next <= u64::from(BULK_RUN_OVER * piece.len);
        }
        self.run += 1;
        if !piece.last && (self.run < BULK_RUN || ends_soon) {
            // The front has more to send and stays the front.
            return;
        }
        if piece.last {
            self.bulk.pop_front();
        } else {
            self.bulk.rotate_left(1);
        }
        self.run = 0;
        self.drop_stale();
    }

    /// Restores the invariant that each queue's front can be sent.
    fn drop_stale(&mut self) {
        if self.small.is_empty() && self.bulk.is_empty() && self.bulk_waiting.is_empty() {
            return;
        }
        while let Some(&number) = self.small.front() {
            let live = self.get(number).is_some_and(|message| match &message.stage {
                Stage::Small { queued } | Stage::Withdrawn { queued } => *queued,
                Stage::Bulk(_) | Stage::Waiting | Stage::Acknowledged | Stage::Settled => false,
            });
            if live {
                break;
            }
            self.small.pop_front();
        }
        loop {
            self.activate(BULK_ACTIVE);
            let Some(&number) = self.bulk.front() else { break };
            if let Some(Outgoing { stage: Stage::Bulk(progress), len, shared, .. }) =
                self.get_mut(number)
            {
                let unsent = progress.next < *len && !*shared;
                if progress.active && (unsent || !progress.lost.is_empty()) {
                    break;
                }
                progress.active = false;
            }
            self.bulk.pop_front();
            self.run = 0;
        }
    }

    /// Gives memory back while idle.
    pub fn shrink(&mut self) {
        if self.messages.is_empty() {
            self.messages.shrink_to(8);
            self.small.shrink_to(8);
            self.bulk.shrink_to(8);
            self.bulk_waiting.shrink_to(8);
            self.blocked.shrink_to(8);
        }
    }
}

/// Returns the bytes of a full fragment of this message in datagrams of these sizes.
pub(crate) fn full_fragment(sizes: Sizes, message: &Outgoing, opened: bool) -> u64 {
    let row = match &message.body {
        Body::Rows(rows) => Some(rows.block.row),
        Body::Segment(_) if message.pages && sizes.fragment / PAGE <= PAGES_A_DATAGRAM => {
            Some(PAGE as u32)
        }
        _ => None,
    };
    sizes.fragment(message.len, row, (!opened).then_some(&message.head))
}
