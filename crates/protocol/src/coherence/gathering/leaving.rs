//! Notices of nodes that leave the job (COH-6.7), so that nobody waits for a node that has left.

use crate::Rank;
use crate::coherence::Coherence;
use crate::coherence::codec::Headline;
use crate::coherence::failure::Doing;
use crate::coherence::machine::Pages;
use crate::coherence::mailbox::Purpose;
use crate::coherence::sync::agreement::Call;
use crate::coherence::sync::collective::Current;
use crate::coherence::types::{CoherenceError, CoherenceEvent};
use crate::wind::{Class, Refusal, Token};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Nodes that have begun to leave, and whether this node has.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Leavers {
    /// Number of collectives that each leaving node had passed when it began to leave.
    epochs: BTreeMap<Rank, u64>,
    announced: bool,
}

impl Coherence {
    /// Gives back the locks that this node holds and tells all others that it leaves. The caller
    /// has seen its one-sided operations end. The second notice follows all messages of this node,
    /// as class *sync* does.
    pub(crate) fn announce_leaving(&mut self, pages: &mut dyn Pages) {
        if core::mem::replace(&mut self.leavers.announced, true) {
            return;
        }
        for lock in self.held_locks() {
            self.release_lock(lock, Token::NONE, pages);
        }
        let me = self.me;
        // After a death, the other nodes hear of the death first.
        let first = if self.dead.is_empty() { Class::Unordered } else { Class::Sync };
        for (silent, class) in [(false, first), (true, Class::Sync)] {
            for to in (0..self.nodes).filter(|to| *to != me) {
                let head = Headline::Leaving { epoch: self.epoch, silent };
                self.post(to, class, head, Vec::new(), Purpose::Control(Doing::Leave));
            }
        }
        self.dead.clone().into_iter().for_each(|dead| self.notify_dead_of_leaving(dead));
    }

    /// Tells a node that counts as dead here that this node leaves, if it does. Perhaps only other
    /// nodes have lost that node. Then both are survivors that wait for each other (END-4.3).
    pub(crate) fn notify_dead_of_leaving(&mut self, dead: Rank) {
        if self.leavers.announced {
            let epoch = self.epoch;
            for silent in [false, true] {
                self.post_to_dead(dead, Class::Sync, Headline::Leaving { epoch, silent });
            }
        }
    }

    /// Returns `true` if this node has begun to leave.
    #[must_use]
    pub fn is_leaving(&self, rank: Rank) -> bool {
        self.leavers.epochs.contains_key(&rank)
    }

    /// Returns `true` if this node has passed its last collective.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Takes another node's notice that it leaves.
    pub(crate) fn take_leaving(
        &mut self,
        from: Rank,
        epoch: u64,
        silent: bool,
    ) -> Result<(), Refusal> {
        // A collective that this node has not called yet cannot be over (COH-9.1).
        if epoch > self.epoch.saturating_add(1) {
            return Err(Refusal::Malformed);
        }
        self.leavers.epochs.entry(from).or_insert(epoch);
        self.events.push_back(CoherenceEvent::Leaving { rank: from, silent });
        self.fail_by_leaving();
        Ok(())
    }

    /// Returns the leaving node because of which this node's next collective cannot succeed.
    fn leaver(&self) -> Option<Rank> {
        // A leaving node that has passed more collectives than this one took part in the current
        // collective, whose departure is still on the way here.
        self.leavers.epochs.iter().find(|(_, epoch)| **epoch <= self.epoch).map(|(rank, _)| *rank)
    }

    /// Returns why this collective cannot succeed: some node has begun to leave.
    pub(crate) fn leaving_impediment(&self, call: &Call) -> Option<CoherenceError> {
        let rank = self.leaver().filter(|_| *call != Call::Leave)?;
        Some(CoherenceError::NodeLeaving { doing: call.doing().to_string(), rank })
    }

    /// Fails the called collectives that need a leaving node (COH-6.8). A call that other nodes may
    /// know of stays, without a waiter here.
    pub(crate) fn fail_by_leaving(&mut self) {
        let Some(rank) = self.leaver() else { return };
        let error = |doing: Doing| CoherenceError::NodeLeaving { doing: doing.to_string(), rank };
        let mut failed = Vec::new();
        if let Some(Current { call, token, .. }) =
            self.collective.current.as_mut().filter(|current| current.call != Call::Leave)
        {
            failed.push((core::mem::replace(token, Token::NONE), call.doing()));
        }
        self.collective.queue.retain(|(call, token)| {
            let stays = *call == Call::Leave;
            if !stays {
                failed.push((*token, call.doing()));
            }
            stays
        });
        for (token, doing) in failed {
            self.fail(token, error(doing));
        }
    }
}
