//! Rings to and from one local peer, with the same heads and bodies as over Wind, and the same
//! outcomes (spec/memory.md, MEM-16).

use super::channel::incoming::{Incoming, MapAnswer};
use super::channel::outgoing::Outgoing;
use super::channel::ring_counters::RingCounters;
use super::channel::unsettled::{LostGroup, Settled};
use super::socket_messages::{HandedRegion, OfferedPages, SentSegment};
use crate::buffer_pool::{Body, BufferPool};
use crate::client::completion::Completion;
use crate::client::shm_channel::ShmChannel;
use crate::failure::Failure;
use crate::ops::backoff::RetryTimer;
use oikaze_os::memory::RegionTable;
use oikaze_os::shm::Pair;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::ParcelHead;
use oikaze_protocol::limits::{FAST_BATCH_BYTES_MAX, FAST_PATH_RECENT, FINAL_POLLS_MAX};
use oikaze_protocol::shm::{Damaged, Heading, RecordKind};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Class, Handler, Message, PostError, Token};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Rings to and from one local peer, and the messages that are under way in them.
pub(crate) struct LocalPeer {
    pub pair: Pair,
    pub channel: Arc<ShmChannel>,
    /// Completions of fast-path messages. Each is settled when the ring is settled up to its
    /// position.
    promised: Vec<(u64, Arc<Completion>)>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Is `true` if a record was put in or settled since the local peer was last woken.
    needs_wakeup: bool,
    /// Timer of the oldest record of the ring, if the record waits for pages that are absent here.
    /// The records behind it wait, too (MEM-1.13).
    retry: RetryTimer,
    /// Is `true` if the fast path has taken messages since a turn last polled the ring.
    pub(super) taken: bool,
    /// Time at which a turn last found that the fast path had taken messages.
    taken_at: Option<Time>,
    /// Number of polls that are left for the records of a process that has ended.
    final_polls: Option<usize>,
    counters: RingCounters,
    /// Regions whose memory came through the socket, and that the ring has not announced yet.
    pub handed: Vec<HandedRegion>,
    /// Pages that came through the socket, and that the ring has not announced yet.
    pub offers: Vec<OfferedPages>,
    /// Files of arrays that came through the socket.
    pub segments: Vec<SentSegment>,
    /// Reserved descriptors, one for each exchange that this node asked the local peer for. However
    /// many descriptors this process opens, one is free for the pages that come back (MEM-20.3).
    pub spares: Vec<OwnedFd>,
}

impl LocalPeer {
    pub fn new(pair: Pair) -> LocalPeer {
        LocalPeer {
            channel: Arc::new(ShmChannel::new(&pair)),
            promised: Vec::new(),
            pair,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            needs_wakeup: false,
            retry: RetryTimer::default(),
            taken: false,
            taken_at: None,
            final_polls: None,
            counters: RingCounters::default(),
            handed: Vec::new(),
            offers: Vec::new(),
            segments: Vec::new(),
            spares: Vec::new(),
        }
    }

    /// Posts a message. The message is in the ring when this returns, or waits for room.
    #[inline]
    pub fn post(
        &mut self,
        message: Message,
        memory: &RegionTable,
        now: Time,
    ) -> Result<(), PostError> {
        self.counters.messages_out += 1;
        self.counters.bytes_out += message.body.len();
        let waiting = self.outgoing.waiting();
        self.outgoing.post(message, memory, &mut self.pair.outward, now)?;
        self.counters.waited += u64::from(self.outgoing.waiting() > waiting);
        self.needs_wakeup = true;
        Ok(())
    }

    /// See [`Outgoing::put_fast`].
    #[inline]
    pub fn put_fast(&mut self, class: Class, tag: u64, body: &[u8]) -> Option<u64> {
        let position = self.outgoing.put_fast(class, tag, body, &mut self.pair.outward)?;
        self.counters.messages_out += 1;
        self.counters.bytes_out += body.len() as u64;
        Some(position)
    }

    /// See [`Outgoing::put_parcel_fast`].
    #[inline]
    pub fn put_parcel_fast(&mut self, head: &ParcelHead, body: &[u8]) -> Option<u64> {
        let position = self.outgoing.put_parcel_fast(head, body, &mut self.pair.outward)?;
        self.counters.messages_out += 1;
        self.counters.bytes_out += body.len() as u64;
        Some(position)
    }

    /// Notes that the fast-path message that ends at this position belongs to this epoch of fences.
    #[inline]
    pub fn sent_fast(&mut self, position: u64, epoch: u32, is_parcel: bool) {
        self.outgoing.unsettled.push_fast(position, epoch, is_parcel);
    }

    /// Takes the oldest messages by the fast path: at most `most`, until they have
    /// [`FAST_BATCH_BYTES_MAX`] bytes or more. See [`Incoming::take_fast`].
    #[inline]
    pub fn take_fast(
        &mut self,
        most: usize,
        buffer_pool: &Arc<BufferPool>,
        mut each: impl FnMut(Class, u64, Body),
    ) {
        if self.final_polls.is_some() {
            return;
        }
        let (mut count, mut bytes) = (0, 0);
        while count < most
            && bytes < FAST_BATCH_BYTES_MAX
            && let Some(len) =
                self.incoming.take_fast(&mut self.pair.inward, buffer_pool, &mut each)
        {
            (count, bytes) = (count + 1, bytes + len);
        }
        if count > 0 {
            self.pair.inward.settle(self.pair.inward.position());
            self.counters.messages_in += count as u64;
            self.counters.bytes_in += bytes as u64;
            self.taken = true;
        }
    }

    /// Notes, when a turn polls the ring, whether the fast path has taken messages since the last
    /// poll.
    #[inline]
    pub fn note_takes(&mut self, now: Time) {
        if std::mem::take(&mut self.taken) {
            self.taken_at = Some(now);
        }
    }

    /// Returns `true` if a thread has lately taken messages by the fast path, and may take most of
    /// the messages that are in the ring.
    pub fn is_taken_from(&self, now: Time) -> bool {
        self.taken_at.is_some_and(|then| now - then < FAST_PATH_RECENT)
    }

    /// Settles `completion` when the fast-path messages up to this position are settled. Returns
    /// `true` if any completion was settled now.
    pub fn promise(&mut self, position: u64, completion: Arc<Completion>) -> bool {
        self.promised.push((position, completion));
        self.keep_promises()
    }

    /// Settles the promised completions that are due. Returns `true` if there were any.
    pub fn keep_promises(&mut self) -> bool {
        let (channel, before) = (&self.channel, self.promised.len());
        self.promised.retain(|(position, completion)| match channel.outcome(*position) {
            Some(outcome) => {
                completion.settle(outcome);
                false
            }
            None => true,
        });
        self.promised.len() < before
    }

    /// Fails all unsettled fast-path messages with this failure and wakes their waiters. Returns
    /// these messages by epoch.
    pub fn end_fast(&mut self, failure: Failure) -> Vec<LostGroup> {
        let settled = self.pair.outward.settled().unwrap_or(self.pair.outward.settled_before());
        self.channel.end(settled, failure);
        self.keep_promises();
        self.outgoing.unsettled.fast(settled).collect()
    }

    /// Returns `true` if [`LocalPeer::post`] would return [`PostError::Full`], as for a connection.
    pub fn is_full(&self) -> bool {
        self.outgoing.is_full()
    }

    /// Returns the number of messages that have been posted and not been settled.
    pub fn open_messages(&self) -> usize {
        self.outgoing.open_messages()
    }

    /// Returns `true` if nothing is unsettled in either direction.
    pub fn is_idle(&self) -> bool {
        self.outgoing.is_idle() && self.incoming.is_idle()
    }

    /// Cancels messages. Their sources are never read again, and their outcomes are not reported.
    pub fn cancel(&mut self, cancelled: &impl Fn(Token) -> bool) {
        self.outgoing.cancel(cancelled, &mut self.pair.outward);
        self.needs_wakeup = true;
    }

    /// Called when the user has read messages. The local peer may send as much again.
    pub fn consumed(&mut self, messages: u64, bytes: u64) {
        self.incoming.credit.free(messages, bytes);
        self.incoming.credit.report(&self.pair.inward);
        self.needs_wakeup = true;
    }

    /// Called when a user was handed a fast-path message of `bytes` bytes. The local peer gets the
    /// credit when the last of the messages that were taken together is handed out.
    #[inline]
    pub fn handed(&mut self, bytes: u64, is_last: bool) {
        self.incoming.credit.free(1, bytes);
        if is_last {
            self.incoming.credit.report(&self.pair.inward);
        }
    }

    /// Returns `true` if no message waits for room or credit.
    pub fn has_nothing_waiting(&self) -> bool {
        self.outgoing.waiting() == 0
    }

    /// See [`Outgoing::unsent_of`].
    pub fn unsent_of(&self, region: u32) -> Option<u64> {
        self.outgoing.unsent_of(region)
    }

    /// See [`Outgoing::detach`].
    pub fn detach(&mut self, region: u32, bytes: &[u8]) -> Option<(Token, u64)> {
        self.outgoing.detach(region, bytes)
    }

    /// Closes the rings: no more messages are sent.
    pub fn close(&mut self) {
        self.outgoing.close(&mut self.pair.outward);
        self.needs_wakeup = true;
    }

    /// Returns `true` if there are records or outcomes, or room for messages that wait. Costs one
    /// or two loads.
    #[inline]
    pub fn has_news(&mut self) -> bool {
        self.has_records() || self.has_settled() || self.final_polls.is_some() || self.is_pressed()
    }

    #[inline]
    pub fn has_records(&self) -> bool {
        let may_report = || self.incoming.has_unreported() && self.pair.inward.may_refuse();
        (self.pair.inward.has_record() && self.retry.until().is_none()) || may_report()
    }

    #[inline]
    pub fn has_settled(&mut self) -> bool {
        self.outgoing.has_settled(&mut self.pair.outward)
    }

    /// Returns the time of the next try of a record that waits for absent pages, in either
    /// direction.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.retry.until(), self.outgoing.retry.until()].into_iter().flatten().min()
    }

    /// Ends the retry pauses that are over, in both directions.
    #[inline]
    pub fn wake_up(&mut self, now: Time) {
        self.retry.wake_up(now);
        self.outgoing.retry.wake_up(now);
    }

    /// Takes at most `most` records. Returns their number, or 1 if the local peer was only told of
    /// refusals that had waited for room. A record whose pages are absent stays in the ring until
    /// the pages are present, or until the time limit ([`RetryTimer`]) has passed.
    pub fn take(
        &mut self,
        from: Rank,
        most: usize,
        handler: &mut impl Handler,
        now: Time,
    ) -> Result<usize, Damaged> {
        let unreported = self.incoming.has_unreported();
        let (came, delivered) = self.incoming.take(from, most, &mut self.pair.inward, handler)?;
        self.needs_wakeup |= came > 0 || unreported;
        self.counters.messages_in += delivered.messages;
        self.counters.bytes_in += delivered.bytes;
        if came > 0 {
            self.retry.end();
        }
        if std::mem::take(&mut self.incoming.blocked) {
            self.incoming.patience_over = !self.retry.begin(now);
        }
        Ok(came.max(unreported.into()))
    }

    /// Returns the outcome of the oldest unsettled message, if the local peer is done with it.
    pub fn next_settled(&mut self) -> Result<Option<Settled>, Damaged> {
        let settled = self.outgoing.next_settled(&mut self.pair.outward)?;
        // The local peer has room for one more refusal (MEM-16.4).
        self.needs_wakeup |= matches!(settled, Some(Settled::Message { outcome: Err(_), .. }));
        Ok(settled)
    }

    /// Returns a message whose source was removed before it could be read.
    pub fn next_lost(&mut self) -> Option<Token> {
        self.outgoing.next_lost()
    }

    /// Asks for the memory of a region.
    pub fn ask(&mut self, key: u64) {
        self.outgoing.queue_notice(Heading::plain(RecordKind::Ask, 0), key);
    }

    /// Announces that the memory of a region lies in the socket, or that it is refused.
    pub fn answer(&mut self, key: u64, is_there: bool) {
        self.outgoing
            .queue_notice(Heading { flag: is_there, ..Heading::plain(RecordKind::Given, 0) }, key);
    }

    /// Asks for an exchange of pages. This node's pages lie in the socket under this number.
    pub fn ask_to_swap(&mut self, number: u64) {
        self.outgoing.queue_notice(Heading::plain(RecordKind::Swap, 0), number);
    }

    /// Announces that pages were exchanged, and that the local peer's new pages lie in the socket,
    /// or that they were not exchanged.
    pub fn answer_swap(&mut self, number: u64, is_done: bool) {
        self.outgoing.queue_notice(
            Heading { flag: is_done, ..Heading::plain(RecordKind::Swapped, 0) },
            number,
        );
    }

    /// Takes the number of an exchange that the local peer asks for.
    pub fn next_swap(&mut self) -> Option<u64> {
        if self.outgoing.has_notice_room() { self.incoming.swaps.pop_front() } else { None }
    }

    /// Takes the number of an exchange that the local peer was asked for. The flag is `true` if the
    /// exchange was done.
    pub fn next_swapped(&mut self) -> Option<(u64, bool)> {
        self.incoming.swapped.pop_front()
    }

    /// Returns `true` if the local peer has requested something and there is room to answer.
    pub fn is_asked(&self) -> bool {
        (!self.incoming.asked.is_empty() || !self.incoming.swaps.is_empty())
            && self.outgoing.has_notice_room()
    }

    /// Takes the key of a region that the local peer wants to map.
    pub fn next_asked(&mut self) -> Option<u64> {
        if self.outgoing.has_notice_room() { self.incoming.asked.pop_front() } else { None }
    }

    /// Takes an answer to a request for the memory of a region.
    pub fn next_given(&mut self) -> Option<MapAnswer> {
        self.incoming.given.pop_front()
    }

    /// Puts messages that wait into the ring, as far as there is room.
    pub fn pump(&mut self, memory: &RegionTable, now: Time) {
        if self.outgoing.waiting() > 0 {
            self.needs_wakeup |= self.outgoing.pump(memory, &mut self.pair.outward, now);
        }
    }

    /// Returns `true` if a message waits that would find room.
    #[inline]
    pub fn is_pressed(&mut self) -> bool {
        self.outgoing.waiting() > 0 && self.outgoing.could_go(&mut self.pair.outward)
    }

    /// Wakes the local peer if it sleeps and there is something for it.
    pub fn wake_if_needed(&mut self) {
        if std::mem::take(&mut self.needs_wakeup) {
            self.pair.wake();
        }
    }

    /// Called when the process of the local peer has ended.
    pub fn has_ended(&mut self) {
        self.final_polls.get_or_insert(FINAL_POLLS_MAX);
        // Requests of a dead peer need no answers.
        self.incoming.writer_is_dead = true;
        self.retry.end();
    }

    /// Returns `true` if the peer has ended and the records that it left are still read.
    pub fn is_ending(&self) -> bool {
        self.final_polls.is_some()
    }

    /// Returns `true` if the peer has ended and the records that it left are taken or given up.
    pub fn is_over(&mut self) -> bool {
        let Some(left) = &mut self.final_polls else { return false };
        *left = left.saturating_sub(1);
        *left == 0 || !self.pair.inward.has_record()
    }

    /// Returns `true` if the peer closed the rings in order.
    pub fn is_closed_by_peer(&self) -> bool {
        self.incoming.is_closed_by_peer()
    }

    /// Returns the shared memory, and the messages that are not settled at its end.
    pub fn end(self) -> (Pair, impl Iterator<Item = Token>) {
        (self.pair, self.outgoing.into_unsettled())
    }

    /// Returns the counters of the rings.
    pub fn counters(&self) -> RingCounters {
        self.counters
    }
}
