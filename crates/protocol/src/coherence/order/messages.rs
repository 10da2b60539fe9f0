//! Messages in and out: each goes to the part that it is about (COH-9).

use crate::Rank;
use crate::coherence::codec::{Headline, Wait};
use crate::coherence::fetching::home::{apply_diff, serve_fetch};
use crate::coherence::fetching::targets::serve_target;
use crate::coherence::gathering::end::DoomedCollective;
use crate::coherence::locking::state::Locking;
use crate::coherence::mailbox::{CONTROL_MAX, Mailbox, Posted, Purpose};
use crate::coherence::order::Coherence;
use crate::coherence::pages::machine::Pages;
use crate::coherence::pages::number_set::common;
use crate::coherence::pages::page::pages_of;
use crate::coherence::types::CoherenceEvent;
use crate::coherence::updating::subscribers::{take_subscribers, take_subscription};
use crate::coherence::updating::updates::Updates;
use crate::coherence::writes::Writes;
use crate::wind::{Admission, Message, Nonsense, Refusal, Segment, Token};

impl Coherence {
    /// Returns `true` if this is the token of a message that coherence posted. The engine then
    /// reports its settling to [`Self::acknowledged`] and the like.
    #[must_use]
    pub fn owns(token: Token) -> bool {
        Mailbox::number(token).is_some()
    }

    /// Called with a whole coherence message (its head begins with [`KIND`]) that was not admitted
    /// with [`Admission::Place`].
    ///
    /// # Errors
    /// A refusal, if the message makes no sense. Nothing has been changed then.
    ///
    /// [`KIND`]: crate::coherence::KIND
    pub fn receive(
        &mut self,
        from: Rank,
        head: &[u8],
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let checked = self.mail.check_sender(from).and_then(|()| Headline::read(head));
        let result = checked.and_then(|head| self.handle(from, head, body, pages));
        self.statistics.refused += u64::from(result.is_err());
        self.settle(pages);
        result
    }

    /// Called when a message of several fragments has begun. Pages and updates are placed, and all
    /// other messages are collected.
    pub fn admit(&mut self, from: Rank, number: u64, head: &[u8], len: u64) -> Admission {
        let checked = self.mail.check_sender(from).and_then(|()| Headline::read(head));
        let (up, mut w) = self.parts();
        let admission = match checked {
            Ok(Headline::Pages(run)) => up.fetches.admit(from, number, run, len, w.base.arrays),
            Ok(Headline::Update(head)) => w.updates.receiving.admit(
                from,
                number,
                head,
                len,
                &mut w.updates.feeds,
                &mut w.base,
            ),
            Ok(_) if len <= CONTROL_MAX => Admission::Assemble,
            Ok(_) => Admission::Refuse(Refusal::NoRoom),
            Err(refusal) => Admission::Refuse(refusal),
        };
        self.statistics.refused += u64::from(matches!(admission, Admission::Refuse(_)));
        admission
    }

    /// Called with bytes of an admitted message.
    pub fn place(
        &mut self,
        from: Rank,
        number: u64,
        offset: u64,
        bytes: &[u8],
        pages: &mut dyn Pages,
    ) {
        let (up, mut w) = self.parts();
        if !w.updates.receiving.place(from, number, offset, bytes, &mut w.base, pages) {
            up.fetches.place(from, number, offset, bytes, &mut w, pages);
        }
        self.settle(pages);
    }

    /// Returns where bytes of an admitted message would be placed now, if the network may receive
    /// them there directly: into pages on their way to this node, which no thread sees before all
    /// of their bytes have come. [`Self::place`] writes the bytes there and nowhere else
    /// (MEM-3.7).
    pub fn place_of(
        &self,
        from: Rank,
        number: u64,
        offset: u64,
        len: u64,
        pages: &mut dyn Pages,
    ) -> Option<Segment> {
        let (array, bytes) = self.fetches.place_of(from, number, offset, len)?;
        let region = self.arrays.region(array)?;
        // This node may still send the page, as its home before or as an update. Bytes that are not
        // checked must not be in such a message (COH-3.7).
        let mut read = self.mail.reads().filter(|(other, _)| *other == array);
        let is_read = read.any(|(_, read)| !common(&read, &pages_of(&bytes)).is_empty());
        let is_free = !is_read && pages.may_receive(array, pages_of(&bytes));
        is_free.then_some(Segment { region, offset: bytes.start, len })
    }

    /// Called when a message admitted with [`Admission::Place`] is whole.
    ///
    /// # Errors
    /// A refusal, if no such message was admitted.
    pub fn arrived(
        &mut self,
        from: Rank,
        number: u64,
        head: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let (up, mut w) = self.parts();
        let result = Headline::read(head).and_then(|_| {
            match w.updates.receiving.arrive(from, number, &mut w.base) {
                true => Ok(()),
                false => up.fetches.arrived(from, number, &mut w, pages),
            }
        });
        self.settle(pages);
        result
    }

    /// Called when the sender has withdrawn a message, which may have begun.
    pub fn withdrawn(&mut self, from: Rank, number: u64, pages: &mut dyn Pages) {
        let (up, mut w) = self.parts();
        up.fetches.forget_begun(from, number);
        w.updates.receiving.withdrawn(from, number, &mut w.base);
        self.settle(pages);
    }

    /// Called when another node has forged the beginning of a message, which may have been
    /// admitted (WIND-12.12).
    pub fn replaced(&mut self, from: Rank, number: u64) {
        self.fetches.forget_begun(from, number);
        self.updates.receiving.forget_begun(from, number);
    }

    /// Called when a message posted here is settled at its receiver.
    pub fn acknowledged(&mut self, token: Token, pages: &mut dyn Pages) {
        if let Some(posted) = Mailbox::number(token).and_then(|n| self.mail.take_posted(n)) {
            let Writes { updates, base, .. } = self.parts().1;
            updates.sending.note_read(&posted, &base);
        }
        self.collectives.end_leaving(&mut self.mail);
        self.settle(pages);
    }

    /// Called when a message posted here was refused.
    pub fn refused(&mut self, token: Token, refusal: Refusal, pages: &mut dyn Pages) {
        if let Some(posted) = Mailbox::number(token).and_then(|n| self.mail.take_posted(n)) {
            self.take_refusal(posted, refusal, pages);
        }
        self.settle(pages);
    }

    /// Ends what depends on a message that was refused.
    fn take_refusal(&mut self, posted: Posted, refusal: Refusal, pages: &mut dyn Pages) {
        let Posted { to, purpose, .. } = posted;
        if let (Purpose::Fetch { first, end }, Refusal::Moved) = (&purpose, refusal) {
            let (up, w) = self.parts();
            if up.fetches.leave_moved(to, &(*first..*end), &w.base) {
                return;
            }
        }
        if let Some(doing) = purpose.needed_by() {
            self.failing.break_down(&doing, to, refusal);
        }
        if matches!(refusal, Refusal::Malformed | Refusal::UnknownObject)
            && !matches!(purpose, Purpose::Pages(_))
        {
            self.mail.contradict(to, Nonsense::RefusedShared { refusal });
        }
        let (up, mut w) = self.parts();
        match purpose {
            Purpose::Fetch { first, end } => up.fetches.give_up(first..end, &mut w, pages),
            Purpose::LastDeparture => up.collectives.end_leaving(w.base.mail),
            Purpose::Arrival { says_why, epoch, ranks, .. } => {
                up.collectives.arrival_refused(to, epoch, ranks, says_why, &mut w.base);
            }
            _ => {}
        }
    }

    /// Called when a message posted here will never be settled because its receiver is dead.
    pub fn failed(&mut self, token: Token, pages: &mut dyn Pages) {
        let posted = Mailbox::number(token).and_then(|number| self.mail.posted(number));
        if let Some(rank) = posted.map(|posted| posted.to) {
            self.note_death(rank, true, pages);
        }
        self.settle(pages);
    }

    /// Called when a node is dead, or has restarted, which this node treats alike.
    pub fn node_died(&mut self, rank: Rank, pages: &mut dyn Pages) {
        self.note_death(rank, true, pages);
        self.settle(pages);
    }

    /// Returns the next message to post.
    pub fn poll_message(&mut self) -> Option<(Rank, Message)> {
        self.mail.poll_message()
    }

    /// Returns `true` if [`Self::poll_message`] has a message.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.mail.owes()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<CoherenceEvent> {
        self.mail.poll_event()
    }

    /// Handles one whole message, from another node or this one.
    pub(crate) fn handle(
        &mut self,
        from: Rank,
        head: Headline,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        if !body.is_empty() && !head.has_body() {
            return Err(Refusal::Malformed);
        }
        let (up, mut w) = self.parts();
        match head {
            Headline::Fetch(first) => serve_fetch(from, first, body, &mut w, pages),
            Headline::Pages(run) => up.fetches.take(from, run, body, &mut w, pages),
            Headline::Diff { array } => apply_diff(from, array, body, &mut w.base, pages),
            Headline::Arrive { epoch } => {
                up.collectives.take_arrival(from, epoch, body, &mut w.base)
            }
            Headline::Depart { epoch } => {
                let doomed = up.collectives.depart(from, epoch, body, &mut w.base)?;
                if let Some(DoomedCollective { epoch, dead }) = doomed {
                    self.note_death(dead, false, pages);
                    let (up, mut w) = self.parts();
                    up.collectives.end_gathering(epoch, dead, &mut w.base);
                }
                Ok(())
            }
            // No node has got anything more of a lock by a dead one than it knew at that death
            // (COH-7.11).
            Headline::Acquire { .. }
            | Headline::Grant { .. }
            | Headline::Unlock { .. }
            | Headline::Next { .. }
            | Headline::Passed { .. }
            | Headline::Abandon { .. }
                if w.base.mail.is_dead(from) =>
            {
                Ok(())
            }
            Headline::Acquire { lock, request, mode } => {
                up.locking.managed.acquire(from, (lock, request, mode), body, &mut w.base)
            }
            Headline::Grant { lock, request, epoch } => {
                let Locking { locks, managed, .. } = up.locking;
                let lists = &mut managed.written;
                locks.take_grant(from, (lock, request, epoch), body, lists, &mut w, pages)
            }
            Headline::Unlock { lock, request, epoch } => {
                up.locking.managed.unlock(from, (lock, request, epoch), body, &mut w.base)
            }
            Headline::Next { lock, request } => {
                up.locking.locks.take_next(from, (lock, request), body, &w.base)
            }
            Headline::Passed { lock, request } => {
                up.locking.managed.passed(from, (lock, request), body, &mut w.base)
            }
            Headline::Abandon { lock, request, abandoned } => {
                up.locking.managed.abandon(from, (lock, request), abandoned, &mut w.base)
            }
            Headline::Leaving { epoch, silent } => {
                up.collectives.take_leaving(from, epoch, silent, &mut w.base)
            }
            Headline::Update(head) => {
                let Updates { receiving, feeds, .. } = w.updates;
                receiving.take(from, head, body, feeds, &mut w.base, pages)
            }
            Headline::Subscribe { array, change, first, count } => {
                take_subscription(from, array, change, first..first + count, &mut w.base)
            }
            Headline::Subscribers { array } => take_subscribers(from, array, body, &mut w.base),
            Headline::Target { array, op, offset, id } => {
                serve_target(from, (array, op, offset, id), body, &mut w.base, pages)
            }
            Headline::TargetDone { id } => up.targets.take(from, id, body, w.base.mail),
            Headline::Question { wait } => self.waits().0.take_question(from, wait),
            Headline::Reply { wait, owed } => {
                let managed = &mut up.locking.managed;
                match wait {
                    Wait::Granted { lock, request } => {
                        managed.take_reply(from, (lock, request), owed, &mut w.base);
                    }
                    Wait::Sent { lock, request } if owed => {
                        managed.take_reply_of_giver(from, (lock, request), &mut w.base);
                    }
                    _ => {}
                }
                self.questions.take_reply(from, wait, owed);
                Ok(())
            }
            Headline::Notify { epoch, updates } => {
                up.locking.notifications.receive(from, (epoch, updates), body, &mut w.base)
            }
            Headline::Died { rank } if rank >= self.mail.nodes => Err(Refusal::Malformed),
            Headline::Died { rank } => {
                // A node that takes this node for dead no longer answers it, so both are dead to
                // each other.
                let dead = if rank == self.mail.me { from } else { rank };
                self.note_death(dead, false, pages);
                Ok(())
            }
        }
    }
}
