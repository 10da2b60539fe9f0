//! Messages out and in: posting with a purpose, delivery to this node itself, and the dispatch of
//! arrived messages (COH-9).

use crate::Rank;
use crate::coherence::codec::Headline;
use crate::coherence::failure::Doing;
use crate::coherence::machine::{ArrayId, Pages};
use crate::coherence::sync::tree::Ranks;
use crate::coherence::types::{CoherenceError, CoherenceEvent, Value};
use crate::coherence::{Coherence, TOKENS};
use crate::wind::{Admission, Body, Charge, Class, Message, Refusal, Token};
use alloc::vec::Vec;

/// Maximum length of a message body other than pages, in bytes: notices, vectors, diffs.
pub const CONTROL_MAX: u64 = 64 << 20;

/// Maximum number of answers owed to one peer, which it asked for and has not acknowledged. A node
/// with hundreds of threads asks another for fewer at a time.
const OWED_MAX: usize = 1 << 16;

/// Purpose of a posted message, used when the message is settled.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// Changes to a home, which a release waits for.
    Diff,
    /// Written bytes of this array for a reader.
    Update(ArrayId),
    /// Request for pages, with the numbers of its runs.
    Fetch { first: u64, end: u64 },
    /// End of the collective of this epoch.
    Departure { doing: Doing, epoch: u64 },
    /// End of the last collective.
    LastDeparture,
    /// Arrival of these nodes at a collective. With `says_why` the sender cannot go on, and the
    /// arrival gives the reason.
    Arrival { doing: Doing, says_why: bool, epoch: u64, ranks: Ranks },
    /// Answer to a fetch of this array, which the requester may have given up meanwhile.
    Pages(ArrayId),
    /// Answer to a request for this lock.
    Grant(u64),
    /// Reply to a question (COH-13).
    Reply,
    /// Answer to an operation on elements (COH-12).
    Answer,
    /// Notice of leaving, or a request for a lock, or its return.
    Control(Doing),
}

impl Purpose {
    /// Returns the array whose memory is read when the message is sent or retransmitted.
    pub fn reads(&self) -> Option<ArrayId> {
        match self {
            Purpose::Update(array) | Purpose::Pages(array) => Some(*array),
            _ => None,
        }
    }
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub to: Rank,
    pub purpose: Purpose,
}

impl Coherence {
    /// Posts one message. A message to this node goes through a queue of its own and the same code.
    /// Messages to dead nodes are dropped, because [`Coherence::node_died`] ends whatever depends
    /// on them.
    pub(crate) fn post(
        &mut self,
        to: Rank,
        class: Class,
        head: Headline,
        body: Vec<u8>,
        purpose: Purpose,
    ) {
        if to == self.me {
            self.local.push_back((head, body));
            return;
        }
        if self.dead.contains(&to) {
            return;
        }
        let mut urgent = false;
        if matches!(purpose, Purpose::Diff | Purpose::LastDeparture) {
            urgent = true; // the acknowledgement itself is waited for
        }
        if matches!(purpose, Purpose::Diff) {
            self.releases.outstanding.insert(self.next_token);
            *self.releases.diffs_to.entry(to).or_default() += 1;
        }
        let token = self.await_settling(to, purpose);
        let body = if body.is_empty() { Body::Empty } else { Body::Inline(body) };
        self.out.push_back((
            to,
            Message { class, urgent, charge: Charge::Nothing, head: head.write(), body, token },
        ));
    }

    /// Returns the token of a message that is posted next.
    pub(crate) fn await_settling(&mut self, to: Rank, purpose: Purpose) -> Token {
        let number = self.next_token;
        self.next_token += 1;
        self.posted.insert(number, Posted { to, purpose });
        Token(TOKENS | number)
    }

    /// Counts answers that a peer asks for. An answer is owed until it is settled (COH-9.1).
    pub(crate) fn owe(&mut self, to: Rank, answers: usize) -> Result<(), Refusal> {
        let owed = self.owed.entry(to).or_default();
        if *owed + answers > OWED_MAX {
            return Err(Refusal::NoRoom);
        }
        *owed += if to == self.me { 0 } else { answers };
        Ok(())
    }

    pub(crate) fn answered(&mut self, to: Rank) {
        if let Some(owed) = self.owed.get_mut(&to) {
            *owed = owed.saturating_sub(1);
        }
    }

    /// Reports that an operation is done.
    pub(crate) fn done(&mut self, token: Token, value: Value) {
        if token != Token::NONE {
            self.events.push_back(CoherenceEvent::Done { token, value });
        }
    }

    /// Reports that an operation failed.
    pub(crate) fn fail(&mut self, token: Token, error: CoherenceError) {
        if token != Token::NONE {
            self.events.push_back(CoherenceEvent::Failed { token, error });
        }
    }

    /// Continues everything that has become possible. Every call from outside ends with it.
    pub(crate) fn settle(&mut self, pages: &mut dyn Pages) {
        loop {
            self.look_at_machine(pages);
            if let Some((head, body)) = self.local.pop_front() {
                if let Err(refusal) = self.handle(self.me, head, &body, pages) {
                    self.break_down(Doing::Message, self.me, refusal, pages);
                }
            } else if self.touches_due {
                self.touches_due = false;
                self.advance_touches(pages);
                self.advance_prefetches();
            } else if !self.take_header()
                && !self.end_collective(pages)
                && !self.advance_releases()
                && !self.begin_collective(pages)
            {
                return self.end_arrays(pages);
            }
        }
    }

    /// Handles one whole message, from another node or this one.
    pub(crate) fn handle(
        &mut self,
        from: Rank,
        head: Headline,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let empty = || if body.is_empty() { Ok(()) } else { Err(Refusal::Malformed) };
        match head {
            Headline::Fetch(first) => self.serve_fetch(from, first, body, pages),
            Headline::Pages(run) => self.take_pages(from, run, body, pages),
            Headline::Diff { array } => self.apply_diff(from, array, body, pages),
            Headline::Arrive { epoch } => self.gather_arrival(from, epoch, body),
            Headline::Depart { epoch } => self.depart(from, epoch, body, pages),
            Headline::Acquire { lock, request } => self.manage_acquire(from, lock, request, body),
            Headline::Grant { lock, request, epoch } => {
                self.take_grant(from, lock, request, epoch, body, pages)
            }
            Headline::Unlock { lock, request, epoch } => {
                self.manage_unlock(from, lock, request, epoch, body)
            }
            Headline::Leaving { epoch, silent } => {
                empty().and_then(|()| self.take_leaving(from, epoch, silent))
            }
            Headline::Update(head) => self.take_update(from, head, body, pages),
            Headline::Subscribe { array, change, first, count } => empty()
                .and_then(|()| self.take_subscription(from, array, change, first..first + count)),
            Headline::Subscribers { array } => self.take_subscribers(from, array, body),
            Headline::Target { array, op, offset, id } => {
                self.serve_target(from, (array, op, offset, id), body, pages)
            }
            Headline::TargetDone { id } => self.take_target(from, id, body),
            Headline::Question { wait } => empty().and_then(|()| self.take_question(from, wait)),
            Headline::Reply { wait, owed } => empty().map(|()| self.take_reply(from, wait, owed)),
            Headline::Died { rank } => {
                empty()?;
                if rank >= self.nodes {
                    return Err(Refusal::Malformed);
                }
                // A node that takes this node for dead no longer answers it, so both are dead to
                // each other.
                self.mark_failed(if rank == self.me { from } else { rank }, pages);
                Ok(())
            }
        }
    }

    /// Decides where a fragmented message goes. Pages are placed, and all other messages are
    /// collected.
    pub(crate) fn decide(&mut self, from: Rank, number: u64, head: &[u8], len: u64) -> Admission {
        match Headline::read(head) {
            Ok(Headline::Pages(run)) if self.takes_whole(run.array) => Admission::Assemble,
            Ok(Headline::Pages(run)) => match self.expect_pages(from, number, run, len) {
                Ok(()) => Admission::Place,
                Err(refusal) => Admission::Refuse(refusal),
            },
            Ok(Headline::Update(head)) => self.admit_update(from, number, head, len),
            Ok(_) if len <= CONTROL_MAX => Admission::Assemble,
            Ok(_) => Admission::Refuse(Refusal::NoRoom),
            Err(refusal) => Admission::Refuse(refusal),
        }
    }
}
