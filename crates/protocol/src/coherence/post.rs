//! Messages out and in: posting with a purpose, the way to this node itself, and the dispatch of
//! what arrives (COH-9).

use super::codec::Headline;
use super::failure::Doing;
use super::{Coherence, CoherenceError, CoherenceEvent, Pages, TOKENS, Value};
use crate::Rank;
use crate::wind::{Admission, Body, Class, Message, Refusal, Token};
use alloc::vec::Vec;

/// The largest body of a message that is not pages: notices, vectors, diffs.
pub const CONTROL_MAX: u64 = 64 << 20;

/// Answers owed to one peer: asked for, and not acknowledged. More than a node asks of another at a
/// time with hundreds of threads.
const OWED_MAX: usize = 1 << 16;

/// What a posted message was for: told when it is settled.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// Changes to a home; a release waits for them.
    Diff,
    /// A request for pages: the run's number.
    Fetch(u64),
    /// The end of the last collective.
    LastDeparture,
    /// The arrival at a collective; `says_why`: of a node that cannot go on, with nothing but the
    /// reason.
    Arrival { doing: Doing, says_why: bool },
    /// The answer to a fetch; who asked may have given it up meanwhile.
    Pages,
    /// The answer to who asked for this lock.
    Grant(u64),
    /// The reply to a question (COH-13).
    Reply,
    /// Part of a collective, or a request for a lock, or its return.
    Control(Doing),
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub to: Rank,
    pub purpose: Purpose,
}

impl Coherence {
    /// Post one message; what is for this node goes through a queue of its own and the same code.
    /// Messages to the dead are dropped: whoever depends on them was or will be told by
    /// [`Coherence::node_died`].
    pub(super) fn post(
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
            urgent = true; // somebody waits for the acknowledgement itself
        }
        if matches!(purpose, Purpose::Diff) {
            self.releases.outstanding.insert(self.next_token);
            *self.releases.diffs_to.entry(to).or_default() += 1;
        }
        let token = self.await_settling(to, purpose);
        let body = if body.is_empty() { Body::Empty } else { Body::Inline(body) };
        self.out.push_back((
            to,
            Message { class, urgent, credited: false, head: head.write(), body, token },
        ));
    }

    /// The token of a message that is posted next.
    pub(super) fn await_settling(&mut self, to: Rank, purpose: Purpose) -> Token {
        let number = self.next_token;
        self.next_token += 1;
        self.posted.insert(number, Posted { to, purpose });
        Token(TOKENS | number)
    }

    /// A peer asks for something that is answered once: it is owed until that is settled (COH-9.1).
    pub(super) fn owe(&mut self, to: Rank) -> Result<(), Refusal> {
        let owed = self.owed.entry(to).or_default();
        if *owed >= OWED_MAX {
            return Err(Refusal::NoRoom);
        }
        *owed += usize::from(to != self.me);
        Ok(())
    }

    pub(super) fn answered(&mut self, to: Rank) {
        if let Some(owed) = self.owed.get_mut(&to) {
            *owed = owed.saturating_sub(1);
        }
    }

    /// An operation is done.
    pub(super) fn done(&mut self, token: Token, value: Value) {
        if token != Token::NONE {
            self.events.push_back(CoherenceEvent::Done { token, value });
        }
    }

    /// An operation failed.
    pub(super) fn fail(&mut self, token: Token, error: CoherenceError) {
        if token != Token::NONE {
            self.events.push_back(CoherenceEvent::Failed { token, error });
        }
    }

    /// Go on with all that has become possible; ends every call from outside.
    pub(super) fn settle(&mut self, pages: &mut dyn Pages) {
        loop {
            self.look_at_machine(pages);
            if let Some((head, body)) = self.local.pop_front() {
                if let Err(refusal) = self.handle(self.me, head, &body, pages) {
                    self.break_down(Doing::Message, self.me, refusal, pages);
                }
            } else if self.touches_due {
                self.touches_due = false;
                self.advance_touches(pages);
            } else if !self.advance_releases() && !self.begin_collective(pages) {
                return;
            }
        }
    }

    /// One whole message, from another node or this one.
    pub(super) fn handle(
        &mut self,
        from: Rank,
        head: Headline,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let empty = || if body.is_empty() { Ok(()) } else { Err(Refusal::Malformed) };
        match head {
            Headline::Fetch(run) => empty().and_then(|()| self.serve(from, run, pages)),
            Headline::Pages(run) => self.take_pages(from, run, body, pages),
            Headline::Diff { array } => self.apply_diff(array, body, pages),
            Headline::Arrive { epoch } => self.gather_arrival(from, epoch, body, pages),
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
            Headline::Question { wait } => empty().and_then(|()| self.take_question(from, wait)),
            Headline::Reply { wait, owed } => empty().map(|()| self.take_reply(from, wait, owed)),
            Headline::Died { rank } => {
                empty()?;
                if rank >= self.nodes {
                    return Err(Refusal::Malformed);
                }
                // Who takes this node for dead answers it nothing any more: to each other, both
                // are.
                self.mark_failed(if rank == self.me { from } else { rank }, pages);
                Ok(())
            }
        }
    }

    /// Where a fragmented message goes: pages to their place, all else is collected.
    pub(super) fn decide(&mut self, from: Rank, number: u64, head: &[u8], len: u64) -> Admission {
        match Headline::read(head) {
            Ok(Headline::Pages(run)) => match self.expect_pages(from, number, run, len) {
                Ok(()) => Admission::Place,
                Err(refusal) => Admission::Refuse(refusal),
            },
            Ok(_) if len <= CONTROL_MAX => Admission::Assemble,
            Ok(_) => Admission::Refuse(Refusal::NoRoom),
            Err(refusal) => Admission::Refuse(refusal),
        }
    }
}
