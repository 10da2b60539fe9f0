//! Mail of a node: messages and puts with notice that have arrived and are not read.

mod arrivals;
pub(super) mod mailbox;
mod posted;
pub(super) mod queues;
mod read_credit;

pub use posted::{PostedReceive, ReceiveMemory, RegisteredMemory};

use super::parts::Node;
use super::parts::departures::Needs;
use super::parts::engine::RealEngine;
use super::waits::WaitSubject;
use oikaze_engine::{Arrived, Completion, Failure, Placed, Request, Submission};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::{Pattern, RmaError};
use oikaze_protocol::time::Time;
use queues::MailQueues;
use std::sync::Arc;
use std::time::Instant;

impl MailQueues {
    /// Takes the oldest message for the user, from this peer or any.
    #[inline]
    pub fn take(&self, node: &Node, from: Option<Rank>) -> Option<Arrived> {
        let (arrived, read) = self.mailbox.take(from)?;
        if let Some(read) = read {
            node.tell(read);
        }
        Some(arrived)
    }

    /// Describes the message that [`MailQueues::take`] would take: sender, tag and length.
    #[inline]
    pub fn probe(&self, from: Option<Rank>) -> Option<(Rank, u64, u64)> {
        self.mailbox.probe(from)
    }

    /// Posts a receive, whose completion gets the outcome (MEM-26).
    pub fn post_receive(&self, node: &Node, pattern: Pattern, receive: PostedReceive) {
        if node.enter().is_none() {
            return receive.completion.settle(Err(node.forked()));
        }
        let nodes = node.bootstrap.size();
        if let Some(rank) = pattern.from.filter(|rank| *rank >= nodes) {
            return receive.completion.settle(Err(Failure::NoSuchNode { rank, nodes }));
        }
        let loss = || node.departures.loss_of(pattern.from, Needs::Messages);
        let (read, waits) = self.mailbox.post(pattern, receive, loss);
        if let Some(read) = read {
            node.tell(read);
        } else if waits {
            // A message may have been taken out of a ring for a reader that has not come.
            node.tell(Request::Collect);
        }
    }

    /// Ends the posted receives into a region that is being deregistered (MEM-26.5).
    pub fn end_receives_into(&self, memory: &Arc<dyn RegisteredMemory>) {
        self.mailbox.end_posted(|_, receive| {
            receive.into.is_of(memory).then_some(Failure::Remote(RmaError::DestinationGone))
        });
    }

    /// Cancels a posted receive, if it waits.
    pub fn cancel_receive(&self, node: &Node, completion: &Arc<Completion>) {
        if node.enter().is_some() {
            self.mailbox.cancel_posted(completion);
            node.tell_waiters();
        }
    }

    /// Takes at most `wanted` of the oldest messages. Waits until that many are there, and is woken
    /// once, by the last of them. Messages that arrive meanwhile take none of their senders' credit
    /// any more.
    #[track_caller]
    pub fn take_batch(
        &self,
        node: &Node,
        wanted: usize,
        deadline: Option<Instant>,
    ) -> Vec<Arrived> {
        let mut batch = Vec::new();
        let mut is_late = false;
        if node.enter().is_none() {
            return batch;
        }
        loop {
            self.mailbox
                .take_batch(wanted, &mut batch)
                .into_iter()
                .for_each(|read| node.tell(read));
            while batch.len() < wanted
                && let Some(arrived) = node.fast.take_soon(node, None)
            {
                batch.push(arrived);
            }
            let missing = wanted - batch.len();
            if missing == 0 || is_late {
                return batch;
            }
            is_late = !self.wait_for_batch(node, missing, deadline);
        }
    }

    /// Waits until this many messages are there, and leaves them. Returns `false` if the deadline
    /// has passed, or no more messages come.
    #[track_caller]
    pub fn wait_for_batch(&self, node: &Node, wanted: usize, deadline: Option<Instant>) -> bool {
        self.mailbox.enlist(wanted).into_iter().for_each(|read| node.tell(read));
        let there = || (self.mailbox.len() >= wanted).then_some(());
        let subject = || WaitSubject::Message { from: None, count: wanted };
        let next = || node.departures.next_or_loss(None, Needs::Messages, there);
        let waited = node.wait_quietly(&subject, deadline, next);
        self.mailbox.delist();
        matches!(waited, Some(Ok(())))
    }

    /// Takes at most `wanted` of the oldest messages, if at least `at_least` are there.
    pub fn take_waiting(
        &self,
        node: &Node,
        wanted: usize,
        at_least: usize,
    ) -> Option<Vec<Arrived>> {
        node.enter()?;
        // Takes messages out of the rings of local peers first.
        let _ = node.fast.probe_if_there(node, None);
        let mut batch = Vec::new();
        self.mailbox
            .take_batch_of(wanted, at_least, &mut batch)?
            .into_iter()
            .for_each(|read| node.tell(read));
        Some(batch)
    }

    /// Takes the messages and the puts with notice of a turn out of the engine.
    pub fn deposit(&self, node: &Node, engine: &mut RealEngine) {
        let entries = self.arrivals.deposit(|| engine.inbox().take_placed());
        for read in self.mailbox.deposit_with(|| engine.inbox().take_arrived(), entries) {
            node.leave_to_holder(Submission { request: read, completion: None, keep: None });
        }
        if self.mailbox.take_restored() {
            self.fail_posted(node);
        }
    }

    /// Fails the posted receives for which no message will come any more (MEM-26.6).
    pub fn fail_posted(&self, node: &Node) {
        self.mailbox.fail_posted(|from| node.departures.loss_of(from, Needs::Messages));
    }

    /// Takes the oldest put with notice, to the region with this key or to any.
    pub fn take_arrival(&self, node: &Node, key: Option<u64>) -> Option<Placed> {
        node.enter()?;
        let (placed, read) = self.arrivals.take(key)?;
        if let Some(read) = read {
            node.tell(read);
        }
        Some(placed)
    }

    /// Returns the credit of all that was read to its senders, to the last byte. Called when there
    /// is nothing else to do. Returns `true` if there was any.
    pub fn give_credit_back(&self, engine: &mut RealEngine, now: Time) -> bool {
        let mut read = self.mailbox.read();
        read.extend(self.arrivals.read());
        let any = !read.is_empty();
        read.into_iter().for_each(|request| {
            engine.submit(Submission { request, completion: None, keep: None }, now);
        });
        if any {
            // Peers may sleep until they get the credit, and this thread runs no whole turn before
            // it sleeps.
            engine.shm_mut().wake_peers_that_need_it();
        }
        any
    }
}
