//! Departures: nodes that leave or die, and the waits that end because of that (spec/ending.md).
//!
//! Each other node is *active*, then *leaving* (it said so, END-1.2) or *dead* (END-1.1). A wait
//! ends with an error as soon as only nodes that are leaving or dead could satisfy it.

use crate::error::{Error, Result};
use crate::node::mail::mailbox::next_or_end;
use crate::sync::lock;
use oikaze_engine::Failure;
use oikaze_launch::Bootstrap;
use oikaze_protocol::Rank;
use oikaze_protocol::wind::Death;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Maximum time for which an error waits for the launcher's words. The launcher sees the end of a
/// process about as early as its peers do.
pub(in crate::node) const WORDS_LIMIT: Duration = Duration::from_millis(300);

/// Part of another node's work that a wait needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Needs a message.
    Messages,
    /// Needs a change of this node's memory: a word, a FIFO.
    Memory,
}

/// Ends of other nodes, as far as they are known, and of this one.
pub struct Departures {
    /// Source of the reason why another node ended, for a node that a launcher started.
    bootstrap: Arc<dyn Bootstrap>,
    /// Set if survivors go on after the death of a node.
    keeps_going: AtomicBool,
    /// Set when all operations have ended and no more messages come.
    left: AtomicBool,
    /// See [`Departures::has_failed`].
    pub(in crate::node) failed: AtomicBool,
    /// Set once any other field is. Waits check it again and again, so the check is one load.
    pub(in crate::node) any: AtomicBool,
    pub(in crate::node) inside: Mutex<DeparturesState>,
    /// Notified when the launcher has sent news.
    pub(in crate::node) reason_came: Condvar,
}

#[derive(Default)]
pub(in crate::node) struct DeparturesState {
    /// Dead nodes, in the order in which their deaths became known.
    dead: Vec<(Rank, Death)>,
    /// Nodes that have begun to leave; `true` if all their messages have arrived.
    leaving: BTreeMap<Rank, bool>,
    /// Reason of the abort, if the job was aborted.
    pub(in crate::node) aborted: Option<String>,
    /// Set when the engine refuses requests because of the abort.
    pub(in crate::node) has_ended_engine: bool,
    /// Number of the ends of processes that the launcher has reported and the engine has been told.
    pub(in crate::node) passed_on: usize,
}

impl DeparturesState {
    fn death_of(&self, rank: Rank) -> Option<Death> {
        self.dead.iter().find(|(dead, _)| *dead == rank).map(|(_, death)| *death)
    }

    /// Returns `true` if a node is gone without having left in order.
    fn is_lost(&self, rank: Rank, death: Death) -> bool {
        death != Death::Closed || !self.leaving.contains_key(&rank)
    }

    /// Loss of the first node that is gone without having left in order.
    fn first_lost(&self) -> Option<Failure> {
        let lost = self.dead.iter().find(|(rank, death)| self.is_lost(*rank, *death));
        lost.map(|&(peer, death)| Failure::PeerLost { peer, death })
    }

    /// Returns why this peer no longer does the needed work (END-2.1).
    fn end_of(&self, peer: Rank, needs: Needs) -> Option<Failure> {
        if let Some(death) = self.death_of(peer).filter(|death| self.is_lost(peer, *death)) {
            return Some(Failure::PeerLost { peer, death });
        }
        let silent = *self.leaving.get(&peer)?;
        let is_over = silent || needs == Needs::Memory || self.death_of(peer).is_some();
        is_over.then_some(Failure::Leaving { peer: Some(peer) })
    }
}

impl Departures {
    /// Makes the record of a node that has just joined.
    pub fn new(bootstrap: Arc<dyn Bootstrap>) -> Departures {
        Departures {
            any: AtomicBool::new(false),
            inside: Mutex::default(),
            reason_came: Condvar::new(),
            keeps_going: AtomicBool::new(false),
            left: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            bootstrap,
        }
    }

    /// Notes that all operations of this node have ended, and that no more messages come.
    pub fn note_left(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// Notes that a peer is dead.
    pub(in crate::node) fn note_death(&self, death: (Rank, Death)) {
        lock(&self.inside).dead.push(death);
        self.any.store(true, Ordering::Release);
    }

    /// Notes that a peer has begun to leave; `silent` if all its messages have arrived, too.
    pub(in crate::node) fn note_leaving(&self, (rank, silent): (Rank, bool)) {
        *lock(&self.inside).leaving.entry(rank).or_default() |= silent;
        self.any.store(true, Ordering::Release);
    }

    #[inline]
    fn read_state<T>(&self, read: impl FnOnce(&DeparturesState) -> Option<T>) -> Option<T> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        read(&lock(&self.inside))
    }

    /// Returns how this peer died, if it did.
    pub fn death_of(&self, rank: Rank) -> Option<Death> {
        self.read_state(|inside| inside.death_of(rank))
    }

    /// Returns the nodes that are gone without having left in order, in the order in which that
    /// became known (END-4.2).
    pub fn lost(&self) -> Vec<Rank> {
        let lost = |inside: &DeparturesState| {
            let lost = inside.dead.iter().filter(|(rank, death)| inside.is_lost(*rank, *death));
            Some(lost.map(|(rank, _)| *rank).collect())
        };
        self.read_state(lost).unwrap_or_default()
    }

    fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let me = self.bootstrap.rank();
        (0..self.bootstrap.size()).filter(move |rank| *rank != me)
    }

    /// Returns the nodes that neither leave nor are dead.
    pub fn active_nodes(&self) -> Vec<Rank> {
        let active = |inside: &DeparturesState, rank: Rank| {
            inside.death_of(rank).is_none() && !inside.leaving.contains_key(&rank)
        };
        let all = || self.others().collect();
        self.read_state(|inside| Some(self.others().filter(|rank| active(inside, *rank)).collect()))
            .unwrap_or_else(all)
    }

    /// Checks that the job has a node of this rank.
    ///
    /// # Errors
    /// It has not.
    pub fn check_rank(&self, rank: Rank) -> Result<()> {
        let size = self.bootstrap.size();
        if rank < size {
            return Ok(());
        }
        let why = format!("this job has {size} nodes, numbered from 0 to {}", size - 1);
        Err(Error::invalid(format!("node {rank}"), why))
    }

    /// Returns `true` if this peer has begun to leave.
    pub fn is_leaving(&self, rank: Rank) -> bool {
        self.read_state(|inside| inside.leaving.contains_key(&rank).then_some(())).is_some()
    }

    /// Returns why a wait for this peer, or for any other node, is in vain. A wait for any node is
    /// in vain if all others are leaving or dead (END-2.2).
    #[inline]
    pub fn loss_of(&self, peer: Option<Rank>, needs: Needs) -> Option<Failure> {
        let loss = self.read_state(|inside| match peer {
            Some(peer) => inside.end_of(peer, needs),
            // A death ends the job, unless survivors go on (END-4.1): nothing is waited for then.
            None if !self.keeps_going() && inside.first_lost().is_some() => inside.first_lost(),
            None => {
                let ends: Option<Vec<Failure>> =
                    self.others().map(|rank| inside.end_of(rank, needs)).collect();
                let ends = ends.filter(|ends| !ends.is_empty())?;
                let lost = ends.into_iter().find(|end| matches!(end, Failure::PeerLost { .. }));
                Some(lost.unwrap_or(Failure::Leaving { peer: None }))
            }
        });
        loss.or_else(|| self.over())
    }

    /// Returns the loss of the first of these nodes that is gone without having left in order, or
    /// why no result comes any more.
    pub fn loss_in(&self, ranks: &[Rank]) -> Option<Failure> {
        let loss = self.read_state(|inside| {
            let lost = inside
                .dead
                .iter()
                .find(|(rank, death)| ranks.contains(rank) && inside.is_lost(*rank, *death));
            lost.map(|&(peer, death)| Failure::PeerLost { peer, death })
        });
        loss.or_else(|| self.over())
    }

    /// Returns those of these nodes that have begun to leave or are dead.
    pub fn gone_of(&self, ranks: &[Rank]) -> Vec<Rank> {
        let gone = |inside: &DeparturesState| {
            let is_gone = |rank: &&Rank| {
                inside.leaving.contains_key(rank) || inside.death_of(**rank).is_some()
            };
            Some(ranks.iter().filter(is_gone).copied().collect())
        };
        self.read_state(gone).unwrap_or_default()
    }

    /// Returns `true` if not all nodes will come to a call: the job was aborted, a node is lost, or
    /// a node has left in order and has not come to the call.
    #[inline]
    pub(in crate::node) fn ends_call(&self, has_come: impl Fn(Rank) -> bool) -> bool {
        let ends = |inside: &DeparturesState| {
            let ends_it =
                |(rank, death): &(Rank, Death)| inside.is_lost(*rank, *death) || !has_come(*rank);
            (inside.aborted.is_some() || inside.dead.iter().any(ends_it)).then_some(())
        };
        self.read_state(ends).is_some()
    }

    /// Returns why no result comes any more: this node has left, or the job was aborted.
    pub fn over(&self) -> Option<Failure> {
        if self.left.load(Ordering::Acquire) {
            return Some(Failure::Left);
        }
        self.read_state(|inside| inside.aborted.clone().map(Failure::Aborted))
    }

    /// Returns the next result of this node's own work, or why there will be none.
    pub fn next_or_left<T>(&self, next: impl FnMut() -> Option<T>) -> Option<Result<T, Failure>> {
        next_or_end(next, || self.over())
    }

    /// Returns the next message of this peer, or of any. When none is left, returns why no message
    /// will come (MEM-7.6).
    pub fn next_or_loss<T>(
        &self,
        from: Option<Rank>,
        needs: Needs,
        next: impl FnMut() -> Option<T>,
    ) -> Option<Result<T, Failure>> {
        next_or_end(next, || self.loss_of(from, needs))
    }

    /// Returns `true` if the job was aborted.
    pub fn is_aborted(&self) -> bool {
        self.read_state(|inside| inside.aborted.as_ref().map(drop)).is_some()
    }

    /// Returns the launcher's words on how this node's process ended. Waits a moment for them.
    pub(in crate::node) fn launcher_words(&self, peer: Rank) -> Option<String> {
        let words = || {
            let end = self.bootstrap.ended().into_iter().find(|end| end.rank == peer)?;
            let without = if end.success { " without leaving the job" } else { "" };
            Some(format!("node {peer} {}{without}", end.how))
        };
        if self.bootstrap.reports_ends() {
            let deadline = Instant::now() + WORDS_LIMIT;
            let mut inside = lock(&self.inside);
            while words().is_none() {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                inside = inside.wait_timeout(&self.reason_came, left);
            }
        }
        // Without the launcher's list of ends, its reason for ending the job is the best
        // information.
        words().or_else(|| self.bootstrap.aborted().filter(|_| !self.bootstrap.reports_ends()))
    }

    /// Sets that survivors go on after the death of a node.
    pub fn keep_going(&self) {
        self.keeps_going.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if survivors go on after the death of a node.
    #[inline]
    pub fn keeps_going(&self) -> bool {
        self.keeps_going.load(Ordering::Relaxed)
    }

    /// Returns the error of an operation that failed, with the launcher's reason if a node is lost.
    pub fn failure(&self, what: &dyn std::fmt::Display, failure: Failure) -> Error {
        let shared = matches!(failure, Failure::Coherence(_));
        let error = Error::failed(what.to_string(), failure);
        let lost = error.lost_peer().is_some();
        if lost || shared {
            self.failed.store(true, Ordering::Relaxed);
        }
        let Some(peer) = error.lost_peer() else { return error };
        match (self.launcher_words(peer), self.loss_of(Some(peer), Needs::Messages)) {
            // An error of shared memory does not say how the node was lost, such as by silence.
            (None, Some(loss @ Failure::PeerLost { .. })) if shared => {
                Error::failed(what.to_string(), loss)
            }
            (words, _) => error.with_reason(words),
        }
    }

    /// Returns `true` if the program has got an error that concerns all nodes.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}
