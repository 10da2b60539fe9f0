//! Agreement of the living ranks of a team on who they are (COLL-6).
//!
//! Each rank sends all others its *view*: the ranks that it counts as gone. It adds to its view
//! what it hears, and sends the view again when it has grown. A rank whose view all others share,
//! except those in it, has *decided*, and tells all. Whoever hears a decision takes it.
//!
//! Two living ranks never decide differently. A decision needs the same view from every rank that
//! is not in it. A rank that has decided sends no other view, so nobody decides otherwise without
//! counting that rank as gone. Messages of ranks in the view are ignored.
//!
//! The problem is that of `MPIX_Comm_shrink` (Bland et al., "Post-failure recovery of MPI
//! communication capability", 2013). The exchange takes two rounds if no view grows meanwhile, and
//! sends a message between any two ranks in each.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter, Invalid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Message of an agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoneView {
    /// The sender has decided.
    pub is_final: bool,
    /// Ranks that the sender counts as gone.
    pub gone: BTreeSet<Rank>,
}

impl GoneView {
    /// Encodes the view (COLL-6.2).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + 4 * self.gone.len());
        out.put_u8(u8::from(self.is_final));
        for rank in &self.gone {
            out.put_u32(*rank);
        }
        out
    }

    /// Decodes a view of a team of so many ranks.
    ///
    /// # Errors
    /// The bytes are not a view, or name a rank that the team does not have, or do not name the
    /// ranks in their order.
    pub fn decode(bytes: &[u8], ranks: Rank) -> Result<GoneView, Invalid> {
        let mut bytes = ByteReader(bytes);
        let is_final = match bytes.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Invalid),
        };
        let mut gone = BTreeSet::new();
        while !bytes.0.is_empty() {
            let rank = bytes.u32()?;
            if rank >= ranks || gone.last().is_some_and(|last| *last >= rank) {
                return Err(Invalid);
            }
            gone.insert(rank);
        }
        Ok(GoneView { is_final, gone })
    }
}

/// Result of an agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// All living ranks get these ranks as those that are gone.
    Gone(BTreeSet<Rank>),
    /// This rank, though alive, counts as gone at the others.
    Excluded,
}

/// One rank's part of an agreement.
///
/// ```
/// use oikaze_protocol::collective::{Agreed, Agreement};
/// let mut ranks = [Agreement::new(0, 3), Agreement::new(2, 3)];
/// for rank in &mut ranks {
///     rank.lose(1);
///     rank.join();
/// }
/// let views = ranks.each_mut().map(|rank| rank.message().expect("it has joined"));
/// ranks[0].hear(2, &views[1]);
/// ranks[1].hear(0, &views[0]);
/// assert!(ranks.iter().all(|rank| rank.outcome() == Some(&Agreed::Gone([1].into()))));
/// ```
#[derive(Clone, Debug)]
pub struct Agreement {
    me: Rank,
    ranks: Rank,
    /// View of this rank.
    gone: BTreeSet<Rank>,
    /// Views of others that are not gone.
    views: BTreeMap<Rank, BTreeSet<Rank>>,
    has_joined: bool,
    /// The view is to be sent.
    is_due: bool,
    outcome: Option<Agreed>,
}

impl Agreement {
    /// Makes the part of rank `me` of `ranks`. It hears others, and says nothing before it joins.
    #[must_use]
    pub fn new(me: Rank, ranks: Rank) -> Agreement {
        Agreement {
            me,
            ranks,
            gone: BTreeSet::new(),
            views: BTreeMap::new(),
            has_joined: false,
            is_due: false,
            outcome: None,
        }
    }

    /// Takes part from now on.
    pub fn join(&mut self) {
        self.has_joined = true;
        self.is_due = true;
        self.decide();
    }

    /// Notes that a rank is gone.
    pub fn lose(&mut self, rank: Rank) {
        if self.outcome.is_none() && self.gone.insert(rank) {
            self.is_due = true;
            self.views.remove(&rank);
            self.decide();
        }
    }

    /// Takes the message of another rank (COLL-6.3, COLL-6.4). Messages of a rank may come in any
    /// order.
    pub fn hear(&mut self, from: Rank, view: &GoneView) {
        if self.outcome.is_some() || self.gone.contains(&from) {
            return;
        }
        if view.gone.contains(&self.me) {
            self.outcome = Some(Agreed::Excluded);
        } else if view.is_final {
            self.gone.clone_from(&view.gone);
            self.outcome = Some(Agreed::Gone(view.gone.clone()));
            self.is_due = true;
        } else {
            // Views only grow.
            self.views.entry(from).or_default().extend(&view.gone);
            let before = self.gone.len();
            self.gone.extend(&view.gone);
            self.is_due |= self.gone.len() > before;
            self.views.retain(|rank, _| !self.gone.contains(rank));
            self.decide();
        }
    }

    fn decide(&mut self) {
        let share = |rank: Rank| {
            rank == self.me
                || self.gone.contains(&rank)
                || self.views.get(&rank).is_some_and(|view| *view == self.gone)
        };
        if self.has_joined && self.outcome.is_none() && (0..self.ranks).all(share) {
            self.outcome = Some(Agreed::Gone(self.gone.clone()));
            self.is_due = true;
        }
    }

    /// Returns what this rank has to tell all ranks that are not gone, once for each change.
    #[must_use]
    pub fn message(&mut self) -> Option<GoneView> {
        let is_final = matches!(self.outcome, Some(Agreed::Gone(_)));
        let speaks = self.is_due && (self.has_joined || is_final);
        if !speaks || self.outcome == Some(Agreed::Excluded) {
            return None;
        }
        self.is_due = false;
        Some(GoneView { is_final, gone: self.gone.clone() })
    }

    /// Returns the result, if there is one.
    #[must_use]
    pub fn outcome(&self) -> Option<&Agreed> {
        self.outcome.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::vec;

    /// Runs an agreement of so many ranks in a random order, in which ranks die at any moment and
    /// others learn of it later. Returns what the living ranks have decided, and how many died.
    fn run(seed: u64, ranks: Rank) -> (Vec<BTreeSet<Rank>>, usize) {
        let mut random = Random::new(seed);
        let mut agreements: Vec<_> = (0..ranks).map(|me| Agreement::new(me, ranks)).collect();
        let mut waiting: Vec<Rank> = (0..ranks).collect();
        // Messages from one rank to another, and news of deaths, under way in any order.
        let mut messages: Vec<(Rank, Rank, GoneView)> = vec![];
        let mut news: Vec<(Rank, Rank)> = vec![];
        let mut dead = BTreeSet::new();
        let deaths_max = random.below(ranks as usize);
        for _ in 0..100_000 {
            let choice = random.below(100);
            if choice < 3 && dead.len() < deaths_max {
                let victim = random.below(ranks as usize) as Rank;
                if dead.insert(victim) {
                    // Some of its last messages are lost with it.
                    messages.retain(|(from, ..)| *from != victim || random.below(2) == 0);
                    news.extend((0..ranks).map(|rank| (rank, victim)));
                }
            } else if choice < 20 && !waiting.is_empty() {
                let rank = waiting.swap_remove(random.below(waiting.len()));
                agreements[rank as usize].join();
            } else if choice < 35 && !news.is_empty() {
                let (to, victim) = news.swap_remove(random.below(news.len()));
                // Messages of a dead node that have arrived are read before its death is known.
                messages.retain(|(from, rank, view)| {
                    let comes = *from == victim && *rank == to && !dead.contains(&to);
                    if comes {
                        agreements[to as usize].hear(victim, view);
                    }
                    (*from, *rank) != (victim, to)
                });
                agreements[to as usize].lose(victim);
            } else if !messages.is_empty() {
                let (from, to, view) = messages.swap_remove(random.below(messages.len()));
                agreements[to as usize].hear(from, &view);
            }
            for rank in (0..ranks).filter(|rank| !dead.contains(rank)) {
                if let Some(view) = agreements[rank as usize].message() {
                    let to = (0..ranks).filter(|to| *to != rank && !view.gone.contains(to));
                    // A rank may die while it sends.
                    let sent: Vec<_> = to.map(|to| (rank, to, view.clone())).collect();
                    messages.extend(sent);
                }
            }
            messages.retain(|(_, to, _)| !dead.contains(to));
            news.retain(|(to, _)| !dead.contains(to));
            if waiting.is_empty() && messages.is_empty() && news.is_empty() {
                break;
            }
        }
        let living = (0..ranks).filter(|rank| !dead.contains(rank));
        let decided = living.map(|rank| match agreements[rank as usize].outcome() {
            Some(Agreed::Gone(gone)) => gone.clone(),
            other => panic!("seed {seed}: rank {rank} of {ranks} has {other:?}"),
        });
        (decided.collect(), dead.len())
    }

    /// COLL-6.3: all living ranks decide the same, whenever others die.
    #[test]
    fn living_ranks_agree_whatever_ranks_die_and_when() {
        let (mut deaths, mut late) = (0, 0);
        for seed in 0..3000 {
            let (decided, dead) = run(seed, 1 + (seed % 7) as Rank);
            assert!(decided.windows(2).all(|two| two[0] == two[1]), "seed {seed}: {decided:?}");
            assert!(decided.iter().all(|gone| gone.len() <= dead), "seed {seed}: {decided:?}");
            deaths += dead;
            late += usize::from(decided.iter().any(|gone| gone.len() < dead));
        }
        assert!(deaths > 2000 && late > 20, "{deaths} deaths, {late} after the decision");
    }

    /// COLL-6.4.
    #[test]
    fn rank_that_the_others_count_as_gone_learns_of_it() {
        let mut agreement = Agreement::new(1, 3);
        agreement.join();
        agreement.hear(0, &GoneView { is_final: false, gone: [1].into() });
        assert_eq!(agreement.outcome(), Some(&Agreed::Excluded));
    }

    /// COLL-6.2.
    #[test]
    fn views_are_read_as_written_and_nothing_else_is() {
        for view in [
            GoneView { is_final: false, gone: BTreeSet::new() },
            GoneView { is_final: true, gone: [0, 5].into() },
        ] {
            assert_eq!(GoneView::decode(&view.encode(), 6), Ok(view.clone()));
            assert!(view.gone.is_empty() || GoneView::decode(&view.encode(), 5).is_err());
        }
        let twice = [0, 1, 0, 0, 0, 1, 0, 0, 0];
        for bytes in [&[][..], &[2], &[0, 1, 0, 0], &[1, 0, 0, 0, 0, 9], &twice] {
            assert!(GoneView::decode(bytes, 6).is_err(), "{bytes:?}");
        }
        let mut random = Random::new(7);
        for len in (0..40).cycle().take(4000) {
            let bytes: Vec<u8> = (0..len).map(|_| random.below(3) as u8).collect();
            if let Ok(view) = GoneView::decode(&bytes, 1 << 26) {
                assert_eq!(view.encode(), bytes);
            }
        }
    }
}
