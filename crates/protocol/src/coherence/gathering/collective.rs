//! A node's part in a collective (COH-6): barrier, reduce, declare, leave. Every collective is a
//! barrier.

use crate::Rank;
use crate::coherence::Coherence;
use crate::coherence::clock::notices::Interval;
use crate::coherence::clock::vector::Vector;
use crate::coherence::failure::Doing;
use crate::coherence::machine::Pages;
use crate::coherence::mailbox::Purpose;
use crate::coherence::number_set::NumberSet;
use crate::coherence::sync::agreement::Call;
use crate::coherence::sync::departure::{Departure, UpdateCount};
use crate::coherence::sync::gather::Arrivals;
use crate::coherence::sync::release::Then;
use crate::coherence::types::{CoherenceError, Value};
use crate::wind::Token;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Outcome of a collective, the same for all nodes.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum Outcome {
    Agreed(Option<crate::coherence::Values>),
    /// The nodes called different collectives, or one of them is `unfit` (COH-8.4).
    Mismatch {
        text: String,
        unfit: bool,
    },
    Dead(Rank),
}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome::Agreed(None)
    }
}

/// The collective that this node is in.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Current {
    pub call: Call,
    pub token: Token,
    /// `true` once this node has arrived.
    pub arrived: bool,
    /// Number of this node's last interval that it told when it arrived.
    pub told: u64,
    /// Vector time of this node when it arrived.
    pub known: Option<Vector>,
    /// Number of updates sent to each node in the epoch that the collective ends (COH-10.7).
    pub counts: BTreeMap<Rank, u64>,
    /// Arrays that this node had dropped when its interval was closed (COH-14.2).
    pub dropped: NumberSet,
    /// The departure, once it is here.
    pub departure: Option<Departure>,
}

/// The collectives that this node has called.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Collective {
    pub queue: VecDeque<(Call, Token)>,
    pub current: Option<Current>,
}

impl Collective {
    pub fn call(&mut self, call: Call, token: Token) {
        self.queue.push_back((call, token));
    }

    /// Returns `true` between the closing of this node's interval and the end of the collective.
    /// Intervals closed in that time are late (COH-6.5).
    pub fn is_waiting(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.told != u64::MAX)
    }

    /// Called when nobody waits for this collective any longer. It goes on, because other nodes
    /// wait for it.
    pub fn cancel(&mut self, token: Token) {
        let queued = self.queue.iter_mut().map(|(_, token)| token);
        for slot in queued.chain(self.current.as_mut().map(|current| &mut current.token)) {
            if *slot == token {
                *slot = Token::NONE;
            }
        }
    }
}

impl Coherence {
    /// Returns how many collectives another node may have passed by now. That is one more than this
    /// node has passed, if this node has arrived (COH-7.4).
    pub(crate) fn epoch_possible(&self) -> u64 {
        let arrived = self.collective.current.as_ref().is_some_and(|current| current.arrived);
        // After a death this node may have given up a collective that other nodes passed.
        self.epoch.saturating_add(u64::from(arrived || !self.dead.is_empty()))
    }

    /// Begins the next collective if none is under way. Returns `true` if something happened.
    pub(crate) fn begin_collective(&mut self, pages: &mut dyn Pages) -> bool {
        // With a dead node, the end of the current collective may never come.
        if self.collective.current.is_some() && self.dead.is_empty() {
            return false;
        }
        // Pages of an array that is freed are waited for, unless a dead node would send them.
        if let Some((Call::Free { number, .. }, _)) = self.collective.queue.front()
            && self.dead.is_empty()
            && self.is_fetching(*number)
        {
            return false;
        }
        let Some((call, token)) = self.collective.queue.pop_front() else { return false };
        let impediment = self.collective_impediment(&call.doing());
        let call = match impediment {
            // The other nodes do not know the error, so tell them at the collective in which they
            // wait.
            Some(error @ (CoherenceError::Refused { .. } | CoherenceError::Machine(_)))
                if self.dead.is_empty() =>
            {
                Call::Unfit(error.to_string())
            }
            Some(error) => {
                self.fail(token, error);
                return true;
            }
            None => call,
        };
        if let Some(error) = self.leaving_impediment(&call) {
            self.fail(token, error);
            return true;
        }
        self.collective.current = Some(Current {
            call,
            token,
            arrived: false,
            told: u64::MAX,
            known: None,
            counts: BTreeMap::new(),
            dropped: self.arrays_to_free(),
            departure: None,
        });
        self.begin_release(Then::Arrive, pages);
        let told = self.knowledge.vector.get(self.me);
        let counts = self.updates.sending.take_counts();
        if let Some(current) = &mut self.collective.current {
            current.counts = counts;
            current.told = told;
        }
        true
    }

    /// Arrives with what was known when the diffs were written, now that they are at their homes
    /// (COH-6.1).
    pub(crate) fn arrive(&mut self, known: &Vector) {
        let Some(current) = &mut self.collective.current else { return };
        if !self.dead.is_empty() || self.lost_diff.is_some() {
            let (doing, token) = (current.call.doing(), current.token);
            self.collective.current = None;
            if let Some(error) = self.collective_impediment(&doing) {
                self.fail(token, error);
            }
            return;
        }
        current.arrived = true;
        let counts = UpdateCount::of(self.me, &current.counts);
        let own = if let Some(broken) = &self.broken {
            // This collective was called before something of this node was refused. Intervals that
            // this node would report may not be at their homes (COH-8.4).
            current.call = Call::Unfit(broken.to_string());
            current.told = self.knowledge.base.get(self.me);
            current.dropped = NumberSet::default();
            Arrivals::new(self.me, current.call.clone(), Vec::new(), counts)
        } else {
            current.known = Some(known.clone());
            let intervals = Interval::bounded(self.knowledge.arrival(known).cloned().collect());
            self.knowledge.arrived = known.get(self.me);
            Arrivals::new(self.me, current.call.clone(), intervals, counts)
                .dropping(current.dropped.clone())
        };
        if self.me != 0 || current.call != Call::Leave {
            self.send_across(own.clone());
        }
        self.gather_own(own);
    }

    pub(crate) fn conclude(&mut self, current: Current, values: Option<crate::coherence::Values>) {
        let value = match (current.call, values) {
            (Call::Declare(declared), _) => {
                let number = declared.number();
                if let Some(array) = self.arrays.get_mut(number) {
                    array.agreed = true;
                }
                Value::Array(number)
            }
            (Call::Leave, _) => {
                self.leaving = Some(current.token);
                self.left = true;
                self.end_leaving();
                return;
            }
            (_, Some(values)) => {
                self.statistics.reductions += 1;
                Value::Reduced(values)
            }
            _ => {
                self.statistics.barriers += 1;
                Value::None
            }
        };
        self.done(current.token, value);
    }

    /// Completes the leave once the nodes below this one have the last departure. This node may
    /// fall silent then.
    pub(crate) fn end_leaving(&mut self) {
        if self.posted.values().any(|posted| matches!(posted.purpose, Purpose::LastDeparture)) {
            return;
        }
        if let Some(token) = self.leaving.take() {
            self.done(token, Value::None);
        }
    }

    /// Fails the collectives that wait here, because a node has died. A node that has arrived at
    /// *leave* still waits, because the dead node may just have left (COH-6.6). If the departure
    /// cannot come, [`Self::gather_death`] fails it.
    pub(crate) fn collective_death(&mut self, rank: Rank) {
        let may_leave = |current: &Current| current.arrived && current.call == Call::Leave;
        if !self.collective.current.as_ref().is_some_and(may_leave) {
            self.fail_collectives(&CoherenceError::NodeDead { doing: String::new(), rank });
        }
    }

    /// Fails all called collectives. A call stays without a waiter here, because other nodes may
    /// wait for this node in it (COH-8.4).
    pub(crate) fn fail_collectives(&mut self, error: &CoherenceError) {
        let mut failed: VecDeque<(Doing, Token)> = VecDeque::new();
        if let Some(current) = &mut self.collective.current {
            failed.push_back((
                current.call.doing(),
                core::mem::replace(&mut current.token, Token::NONE),
            ));
        }
        let queue = self.collective.queue.iter_mut();
        failed.extend(
            queue.map(|(call, token)| (call.doing(), core::mem::replace(token, Token::NONE))),
        );
        for (doing, token) in failed {
            let said = match error {
                CoherenceError::Refused { .. } | CoherenceError::Machine(_) => None,
                _ => self.collective_impediment(&doing),
            };
            self.fail(token, said.unwrap_or_else(|| error.clone()));
        }
    }
}
