//! Submissions: what threads ask for becomes messages to peers; what the layers above owe their
//! peers is posted too.

use super::events::Owner;
use super::loopback::LOOPBACK_PER_TURN;
use super::{Engine, Failure, Value};
use crate::ops::operation::Completion;
use crate::ops::submission::{Keep, Request, Submission};
use crate::peers::peer::Peer;
use oikaze_os::memory::RegionTable;
use oikaze_os::net::{Link, PayloadForm};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{MESSAGES_OF_PROGRAM_MAX, PAGES_MIN, POST_INLINE, QUEUED_MAX};
use oikaze_protocol::rma::{Memory, Rma, read_rows};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Message, Token};
use std::sync::Arc;

/// Maximum number of submissions taken in one turn.
const SUBMISSIONS_A_TURN: usize = 256;
/// Replies posted, and messages to ourselves delivered, in one turn.
const REPLIES_A_TURN: usize = 1024;

impl<L: Link, P: Pages> Engine<L, P> {
    pub(super) fn take_submissions(&mut self, now: Time) {
        self.begin_some(SUBMISSIONS_A_TURN, now);
    }

    /// Begin what has been asked for until now, by threads that found the engine taken: for whoever
    /// changes what it may depend on.
    pub fn begin_waiting(&mut self, now: Time) {
        self.begin_some(self.submissions.len(), now);
    }

    fn begin_some(&mut self, most: usize, now: Time) {
        for _ in 0..most {
            let Some(submission) = self.submissions.pop() else { return };
            self.submit(submission, now);
        }
    }

    /// Begin what is asked for. The next turn sends what comes of it, and settles what it can: one
    /// follows soon.
    pub fn submit(&mut self, submission: Submission, now: Time) {
        self.now = self.now.max(now);
        let Submission { request, completion, keep } = submission;
        if let (Some(completion), Some(ended)) = (&completion, &self.ended) {
            completion.settle(Err(ended.clone()));
            self.news += 1;
            return;
        }
        match request {
            Request::Withdraw { name } => {
                self.rma.withdraw(&name);
                self.settle_now(completion, Ok(Value::Done));
            }
            Request::Remove { region } => {
                if let Some(slot) = self.memory.slot(region) {
                    self.remove_region(slot);
                }
                self.settle_now(completion, Ok(Value::Done));
            }
            Request::Cancel { completion: cancelled } => {
                self.cancel(&cancelled);
                self.settle_now(completion, Ok(Value::Done));
            }
            Request::Tell { completion, sink } => self.news += usize::from(completion.tell(sink)),
            Request::Promise { peer, channel, position, completion } => {
                self.promise(peer, &channel, position, completion)
            }
            Request::Fence { peer } => {
                self.fence(peer);
                self.settle_now(completion, Ok(Value::Done));
            }
            Request::Flush { peer } => self.flush_operations(peer, completion),
            Request::Map { at, key } => self.ask_for_memory(at, key, completion),
            Request::Swap(swap) => self.ask_to_swap(*swap, completion),
            Request::Consumed { from, messages, bytes } if from == self.me => {
                self.loopback.consumed(messages, bytes)
            }
            Request::Consumed { from, messages, bytes } => {
                if let Some(peer) = self.peers.touch(from) {
                    peer.consumed(messages, bytes);
                }
            }
            Request::PeerEnded { peer, success } => {
                self.process_ended(peer, success, now);
                self.settle_now(completion, Ok(Value::Done));
            }
            Request::Close => {
                self.peers.touch_all().for_each(|peer| peer.close(now));
                self.settle_now(completion, Ok(Value::Done));
            }
            request => {
                if let Some(over) = self.is_over(&request, &keep) {
                    return self.settle_now(completion, Err(over.into()));
                }
                let peer = request.peer().filter(|&peer| peer < self.nodes);
                let copied = request.copied();
                if let Some(peer) = peer.filter(|_| copied > 0) {
                    let queued = self.operations.copied(peer);
                    // One alone may be longer than the bound (MEM-15.6).
                    if queued > 0 && queued.saturating_add(copied) > QUEUED_MAX {
                        return self
                            .settle_now(completion, Err(Failure::QueueFull { peer, queued }));
                    }
                }
                let token = match completion {
                    Some(completion) => {
                        let is_message = matches!(request, Request::Send { .. });
                        self.operations.insert(completion, keep, peer, copied, is_message)
                    }
                    None => Token::NONE,
                };
                self.begin_or_hold(request, token);
            }
        }
    }

    pub(super) fn settle_now(
        &mut self,
        completion: Option<Arc<Completion>>,
        outcome: Result<Value, Failure>,
    ) {
        if let Some(completion) = completion {
            completion.settle(outcome);
            self.news += 1;
        }
    }

    /// Requests that settle later, by an event.
    pub(super) fn begin(&mut self, request: Request, token: Token) {
        if let Some(lost) = self.is_lost(&request) {
            self.operations.settle(token, Err(lost.into()));
            return;
        }
        let Self { rma, coherence, pages, .. } = self;
        let (to, message) = match request {
            Request::Put { to, key, offset, body, signal } => {
                (to, rma.put(key, offset, body, signal, token))
            }
            Request::Get { from, key, offset, into } => {
                (from, rma.get(from, key, offset, into, token))
            }
            Request::PutBlock { to, key, block, body, signal } => {
                (to, rma.put_block(key, *block, body, signal, token))
            }
            Request::GetBlock { from, key, block, into } => {
                (from, rma.get_block(from, key, *block, into, token))
            }
            Request::Atomic { at, key, offset, op, fetch: true } => {
                (at, rma.atomic(at, key, offset, op, token))
            }
            Request::Atomic { at, key, offset, op, fetch: false } => {
                (at, Ok(Rma::change(key, offset, op, token)))
            }
            Request::Accumulate { to, key, offset, how, body } => {
                (to, Rma::accumulate(key, offset, how, body, token))
            }
            Request::Push { to, key, body, urgent } => (to, Rma::push(key, body, urgent, token)),
            Request::Lookup { at, name } => (at, rma.lookup(at, &name, token)),
            Request::Send { to, class, tag, body } => (to, Rma::user(class, tag, body, token)),
            Request::Declare(declaration) => {
                coherence.declare(declaration, token, pages);
                return;
            }
            Request::CannotDeclare(declaration, why) => {
                coherence.declare_unfit(declaration, why, token, pages);
                return;
            }
            Request::Touch { array, pages: range, access } => {
                return coherence.touch(array, range, access, token, pages);
            }
            Request::Fault { array, page, access } => {
                return coherence.fault(array, page, access, pages);
            }
            Request::Barrier => return coherence.barrier(token, pages),
            Request::Reduce(reduction) => return coherence.reduce(reduction, token, pages),
            Request::Leave => return self.leave_after_operations(token),
            Request::Lock(lock) => return coherence.lock(lock, token, pages),
            Request::Unlock(lock) => return coherence.unlock(lock, token, pages),
            Request::Withdraw { .. }
            | Request::Remove { .. }
            | Request::Cancel { .. }
            | Request::Tell { .. }
            | Request::Promise { .. }
            | Request::Fence { .. }
            | Request::Flush { .. }
            | Request::Map { .. }
            | Request::Swap(_)
            | Request::Consumed { .. }
            | Request::PeerEnded { .. }
            | Request::Close => return,
        };
        match message {
            Ok(message) if self.has_no_room_for_program(to) => {
                self.rma.unposted(&message);
                self.fail(to, token, Failure::TooMany { peer: to });
            }
            Ok(message) => self.post(to, message),
            Err(error) => {
                self.operations.settle(token, Err(error.into()));
            }
        }
    }

    /// Hands a message to the peer's connection or ring. A message that is not accepted fails at
    /// once.
    pub(super) fn post(&mut self, to: Rank, mut message: Message) {
        let token = message.token;
        // What could not be read would be lost here for ever (MEM-1.5).
        let copy = if self.is_local_peer(to) { None } else { self.copy_if_better(to, &message) };
        if let Some(copy) = copy {
            message.body = copy;
        } else if !self.is_readable(&message.body) {
            self.rma.unposted(&message);
            return self.fail(to, token, self.why_unreadable(message.body.region()));
        }
        let Self { peers, memory, link, .. } = self;
        let posted = if let Some(Peer { local_peer: Some(local_peer), .. }) = peers.get_mut(to) {
            // What goes through a ring is copied when it is put in.
            local_peer.post(message, memory, self.now)
        } else if to == self.me {
            self.loopback.post(message)
        } else {
            let nodes = self.nodes;
            let Some(peer) = peers.touch(to) else {
                return self.fail(to, token, Failure::NoSuchNode { rank: to, nodes });
            };
            let pages = begins_with_page(&message.body, memory)
                && peer.addresses.iter().any(|to| link.prefers(*to, PayloadForm::WholePages));
            let number = peer.connection.post(self.now, message);
            number.map(|number| {
                if pages {
                    peer.connection.cut_between_pages(number)
                }
            })
        };
        if let Err(error) = posted {
            use oikaze_protocol::wind::PostError;
            self.fail(
                to,
                token,
                match error {
                    PostError::Dead(death) => Failure::PeerLost { peer: to, death },
                    PostError::Full => Failure::TooMany { peer: to },
                    other => Failure::Machine(other.to_string()),
                },
            );
        }
    }

    /// The bytes of a segment, or of rows, that had better travel whole.
    fn copy_if_better(&self, to: Rank, message: &Message) -> Option<Body> {
        let len = match &message.body {
            Body::Segment(segment) => segment.len,
            Body::Rows(rows) => rows.len(),
            _ => return None,
        };
        let better = match self.peer(to) {
            Some(peer) => peer.connection.is_better_whole(message.head.len(), len),
            None => len <= POST_INLINE,
        };
        let len = usize::try_from(len).ok().filter(|_| better)?;
        Body::filled(len, |bytes| match &message.body {
            Body::Segment(segment) => self.memory.read(segment.region, segment.offset, bytes),
            Body::Rows(rows) => read_rows(rows, 0, bytes, &self.memory),
            _ => false,
        })
    }

    pub(super) fn fail(&mut self, to: Rank, token: Token, failure: Failure) {
        if Owner::of(token) == Owner::Operation {
            self.operations.settle(token, Err(failure));
        }
        self.lost(to, token);
    }

    /// Called when the content of this message cannot be read any more. An operation of this node
    /// fails; for an answer, the peer whose get it answers is told (MEM-4.6).
    pub(super) fn unreadable(&mut self, to: Rank, token: Token, failure: Failure) {
        match Owner::of(token) {
            Owner::Remote => self.rma.answer_lost(token),
            Owner::Nobody | Owner::Operation | Owner::Coherence => self.fail(to, token, failure),
        }
    }

    /// Post what the layers above owe their peers, and deliver messages to ourselves; true if the
    /// turn's share was used up.
    ///
    /// Messages for which a connection has no room wait until there is room. A peer that asked must
    /// be answered, and coherence takes a message that cannot be sent as the death of its receiver.
    /// Answers wait in remote memory, which counts them and drops those whose region is removed.
    pub(super) fn post_replies(&mut self) -> bool {
        self.post_held();
        // Answers to ourselves ask for no further ones, so that each is looked at once.
        let (mut answers, mut moved) = (None, 0);
        for _ in 0..REPLIES_A_TURN {
            if moved < LOOPBACK_PER_TURN
                && let Some(bytes) = self.deliver_loopback()
            {
                moved += bytes;
                continue;
            }
            if let Some((to, message)) = self.coherence.poll_message() {
                self.post_or_hold(to, message);
                continue;
            }
            let left = answers.get_or_insert(self.rma.answers());
            if *left == 0 {
                return false;
            }
            *left -= 1;
            let Some((to, message)) = self.rma.poll_answer() else { return false };
            if self.is_full(to) {
                self.rma.defer_answer(to, message);
            } else {
                self.post(to, message);
            }
        }
        true
    }

    pub(super) fn is_full(&self, to: Rank) -> bool {
        if to == self.me {
            self.loopback.is_full()
        } else {
            self.peer(to).is_some_and(Peer::is_full)
        }
    }

    /// Returns `true` if what is left of the messages to this peer is for the library's own.
    /// Otherwise collectives and answers would wait until the peer's program reads its messages.
    pub(super) fn has_no_room_for_program(&self, to: Rank) -> bool {
        let open = match to == self.me {
            true => self.loopback.open_messages(),
            false => self.peer(to).map_or(0, Peer::open_messages),
        };
        open >= MESSAGES_OF_PROGRAM_MAX
    }

    fn post_or_hold(&mut self, to: Rank, message: Message) {
        match self.peers.get_mut(to) {
            Some(peer) if peer.is_full() || !peer.held.is_empty() => {
                if peer.held.is_empty() {
                    self.holding.push(to);
                }
                peer.held.push_back(message);
            }
            _ => self.post(to, message),
        }
    }

    /// Posts held messages where there is room again.
    fn post_held(&mut self) {
        let mut holding = std::mem::take(&mut self.holding);
        holding.retain(|&rank| self.still_holds(rank));
        self.holding = holding;
    }

    /// Posts held messages of one peer while there is room. Returns `true` if any are left.
    fn still_holds(&mut self, rank: Rank) -> bool {
        while let Some(peer) = self.peers.get_mut(rank) {
            if peer.is_full() {
                return !peer.held.is_empty();
            }
            let Some(message) = peer.held.pop_front() else { break };
            self.post(rank, message);
        }
        false
    }
}

/// Returns `true` if the body is long and consists of whole pages except for its end.
fn begins_with_page(body: &Body, memory: &RegionTable) -> bool {
    matches!(body, Body::Segment(segment) if segment.len >= PAGES_MIN && memory.begins_with_page(segment))
}

/// Returns a submission, and the completion in which its outcome will appear.
#[must_use]
pub fn tracked(request: Request, keep: Keep) -> (Submission, Arc<Completion>) {
    let completion = Completion::new();
    (tracked_by(Arc::clone(&completion), request, keep), completion)
}

/// A submission whose outcome will appear there.
#[must_use]
pub fn tracked_by(completion: Arc<Completion>, request: Request, keep: Keep) -> Submission {
    Submission { request, completion: Some(completion), keep }
}
