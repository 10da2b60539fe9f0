//! Notices of nodes that leave the job (COH-6.7), so that nobody waits for a node that has left.

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::codec::Headline;
use crate::coherence::failing::doing::Doing;
use crate::coherence::gathering::agreement::Call;
use crate::coherence::gathering::state::{Collectives, CurrentCollective};
use crate::coherence::locking::lock::Locks;
use crate::coherence::mailbox::{Mailbox, Purpose};
use crate::coherence::pages::machine::Pages;
use crate::coherence::releasing::release::AfterRelease;
use crate::coherence::types::CoherenceError;
use crate::coherence::writes::Writes;
use crate::wind::{Body, Class, Refusal, Token};
use alloc::string::ToString;

impl Collectives {
    /// Gives back the locks that this node holds and tells all others that it leaves. The caller
    /// has seen its one-sided operations end. The second notice follows the releases that are under
    /// way, and what they tell others.
    pub fn announce_leaving(
        &mut self,
        locks: &mut Locks,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        if core::mem::replace(&mut self.has_announced, true) {
            return;
        }
        for lock in locks.held() {
            locks.release(lock, Token::NONE, w, pages);
        }
        let (mail, epoch) = (&mut *w.base.mail, w.base.clock.epoch);
        // After a death, the other nodes hear of the death first.
        let first = if mail.dead().is_empty() { Class::Unordered } else { Class::Sync };
        tell_leaving(epoch, false, first, mail);
        for dead in mail.dead().to_vec() {
            self.notify_dead_of_leaving(dead, epoch, mail);
        }
        w.release(AfterRelease::FallSilent, pages);
    }

    /// Tells a node that counts as dead here that this node leaves, if it does. Perhaps only other
    /// nodes have lost that node. Then both are survivors that wait for each other (END-4.3).
    pub fn notify_dead_of_leaving(&self, dead: Rank, epoch: u64, mail: &mut Mailbox) {
        if self.has_announced {
            for silent in [false, true] {
                mail.post_to_dead(dead, Class::Sync, Headline::Leaving { epoch, silent });
            }
        }
    }

    /// Takes another node's notice that it leaves.
    pub fn take_leaving(
        &mut self,
        from: Rank,
        epoch: u64,
        silent: bool,
        base: &mut Base<'_>,
    ) -> Result<(), Refusal> {
        // A collective that this node has not called yet cannot be over (COH-9.1).
        if epoch > base.clock.epoch.saturating_add(1) {
            return Err(Refusal::Malformed);
        }
        base.mail.note_leaving(from, epoch, silent);
        self.fail_by_leaving(base);
        Ok(())
    }

    /// Tells all others that this node sends nothing more but its last arrivals (COH-6.7). Class
    /// *sync* follows all its messages so far.
    pub fn announce_silence(&self, base: &mut Base<'_>) {
        tell_leaving(base.clock.epoch, true, Class::Sync, base.mail);
    }

    /// Returns why this collective cannot succeed: some node has begun to leave.
    pub fn leaving_impediment(&self, call: &Call, base: &Base<'_>) -> Option<CoherenceError> {
        let rank = leaver(base).filter(|_| !call.is_leave())?;
        Some(CoherenceError::NodeLeaving { doing: call.doing().to_string(), rank })
    }

    /// Fails the called collectives that need a leaving node (COH-6.8). A call that other nodes may
    /// know of stays, without a waiter here.
    pub fn fail_by_leaving(&mut self, base: &mut Base<'_>) {
        let Some(rank) = leaver(base) else { return };
        let mut fail = |call: &Call, token: Token| {
            let doing = call.doing().to_string();
            base.mail.fail(token, CoherenceError::NodeLeaving { doing, rank });
        };
        if let Some(CurrentCollective { call, token, .. }) =
            self.current.as_mut().filter(|current| !current.call.is_leave())
        {
            fail(call, core::mem::replace(token, Token::NONE));
        }
        let mut repeats = self.repeats;
        self.queue.retain_mut(|(call, token)| {
            // Other nodes wait for the second round of a collective.
            let stays = call.is_leave() || core::mem::take(&mut repeats);
            if !call.is_leave() {
                fail(call, core::mem::replace(token, Token::NONE));
            }
            stays
        });
    }
}

/// Tells all other nodes that this one leaves.
fn tell_leaving(epoch: u64, silent: bool, class: Class, mail: &mut Mailbox) {
    for to in mail.others() {
        let head = Headline::Leaving { epoch, silent };
        mail.post(to, class, head, Body::Empty, Purpose::Control(Doing::Leave));
    }
}

/// Returns the leaving node because of which this node's next collective cannot succeed. One that
/// has passed more collectives took part in the current one, whose departure is on the way here.
fn leaver(base: &Base<'_>) -> Option<Rank> {
    base.mail.leaver_until(base.clock.epoch)
}
