//! A node's part in a collective (COH-6): barrier, reduce, declare, leave. Every collective is a
//! barrier.

use super::agreement::{self, Call};
use super::gather::{read_counts, write_counts};
use super::release::Then;
use crate::Rank;
use crate::bytes::ByteReader;
use crate::coherence::clock::notices::{Interval, Runs};
use crate::coherence::clock::vector::Vector;
use crate::coherence::codec::Headline;
use crate::coherence::failure::Doing;
use crate::coherence::mailbox::Purpose;
use crate::coherence::{Coherence, CoherenceError, Pages, Value};
use crate::planted::{Bug, planted};
use crate::wind::{Class, Refusal, Token};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Outcome of a collective, as rank 0 reports it.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Agreed(Option<crate::coherence::Values>),
    Mismatch(String),
    Dead(Rank),
    /// The node leaves, but other nodes called something else. It arrives again at the next
    /// collective (COH-6.9).
    Again,
}

/// The collective that this node is in.
#[derive(Debug)]
pub(crate) struct Current {
    pub call: Call,
    pub token: Token,
    /// `true` once rank 0 has been told.
    pub arrived: bool,
    /// Number of this node's last interval that rank 0 was told of.
    told: u64,
    /// Number of updates sent to each node in the epoch that the collective ends.
    counts: BTreeMap<Rank, u64>,
    departure: Option<Departure>,
}

/// What a node learns at the end of a collective.
#[derive(Debug)]
pub(crate) struct Departure {
    outcome: Outcome,
    base: Vector,
    /// Pages to invalidate.
    named: Runs,
    /// Number of updates of the epoch that come from each node.
    counts: BTreeMap<Rank, u64>,
}

/// The collectives that this node has called.
#[derive(Debug, Default)]
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
            counts: BTreeMap::new(),
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

    /// Tells rank 0 what was known when the diffs were written, now that they are at their homes
    /// (COH-6.1).
    pub(crate) fn arrive(&mut self, known: &Vector) {
        let Some(current) = &mut self.collective.current else { return };
        let doing = current.call.doing();
        if !self.dead.is_empty() || self.lost_diff.is_some() {
            let token = current.token;
            self.collective.current = None;
            if let Some(error) = self.collective_impediment(&doing) {
                self.fail(token, error);
            }
            return;
        }
        current.arrived = true;
        let mut body = Vec::new();
        if let Some(broken) = &self.broken {
            // This collective was called before something of this node was refused. Intervals that
            // this node would report may not be at their homes (COH-8.4).
            current.call = Call::Unfit(broken.to_string());
            current.told = self.knowledge.base.get(self.me);
            current.call.write(&mut body);
            self.knowledge.base.write(&mut body);
            Interval::write_all(core::iter::empty(), &mut body);
            write_counts(&current.counts, &mut body);
        } else {
            current.call.write(&mut body);
            known.write(&mut body);
            Interval::write_all(self.knowledge.arrival(known), &mut body);
            write_counts(&current.counts, &mut body);
            self.knowledge.arrived = known.get(self.me);
        }
        let purpose = Purpose::Arrival { doing, says_why: self.broken.is_some() };
        self.post(0, Class::Unordered, Headline::Arrive { epoch: self.epoch }, body, purpose);
    }

    /// Called when rank 0 has refused this node's arrival and so has not counted it. The node
    /// arrives again with nothing but the reason. If rank 0 refuses that too, the call fails here.
    pub(crate) fn arrival_refused(&mut self, said_why: bool) {
        if !said_why {
            let known = self.knowledge.base.clone();
            return self.arrive(&known);
        }
        if let (Some(current), Some(error)) = (self.collective.current.take(), self.broken.clone())
        {
            self.fail(current.token, error);
        }
    }

    /// Takes rank 0's report of the outcome, of what every node knows now, and of the copies that
    /// are old.
    pub(crate) fn depart(
        &mut self,
        from: Rank,
        epoch: u64,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let expected = self
            .collective
            .current
            .as_ref()
            .is_some_and(|current| current.arrived && current.departure.is_none());
        if from != 0 || epoch != self.epoch || !expected {
            // After a death this node may have given up already.
            return if from == 0 && !self.dead.is_empty() {
                Ok(())
            } else {
                Err(Refusal::Malformed)
            };
        }
        let mut reader = ByteReader(body);
        let outcome = match reader.u8()? {
            0 => Outcome::Agreed(if reader.u8()? == 1 {
                Some(agreement::read_values(&mut reader)?)
            } else {
                None
            }),
            1 => Outcome::Mismatch(agreement::read_text(&mut reader, usize::MAX)?),
            2 => Outcome::Dead(reader.leb128_u32()?),
            3 => Outcome::Again,
            _ => return Err(Refusal::Malformed),
        };
        let base = self.knowledge.read_vector(&mut reader)?;
        let named = Runs::read(&mut reader, &self.arrays)?;
        let counts = read_counts(&mut reader, self.nodes)?;
        reader.end()?;
        // The collective is not passed. Its intervals are not known by all, and rank 0 does not
        // count it either (COH-8.2).
        if let Outcome::Dead(rank) = outcome {
            if let Some(Current { call, token, .. }) = self.collective.current.take() {
                self.fail(
                    token,
                    CoherenceError::NodeDead { doing: call.doing().to_string(), rank },
                );
            }
            if rank < self.nodes {
                self.mark_failed(rank, pages);
            }
            return Ok(());
        }
        if let Some(current) = &mut self.collective.current {
            current.departure = Some(Departure { outcome, base, named, counts });
        }
        Ok(())
    }

    /// Ends the collective once its departure and all updates of the epoch are here. Returns `true`
    /// if it did.
    pub(crate) fn end_collective(&mut self, pages: &mut dyn Pages) -> bool {
        let Some(departure) =
            self.collective.current.as_ref().and_then(|current| current.departure.as_ref())
        else {
            return false;
        };
        let receiving = &self.updates.receiving;
        let is_complete = departure
            .counts
            .iter()
            .all(|(from, count)| receiving.arrived(self.epoch, *from) >= *count);
        if !is_complete && !planted(Bug::LeaveUncounted) {
            return false;
        }
        let departure =
            self.collective.current.as_mut().and_then(|current| current.departure.take());
        let Some(Departure { outcome, base, named, .. }) = departure else { return false };
        let named = if planted(Bug::SkipInvalidation) { Runs::default() } else { named };
        self.end_update_epoch(&named, pages);
        // A page that could not be unmapped is old. In that case this collective has failed
        // already.
        self.look_at_machine(pages);
        let Some(current) = self.collective.current.take() else { return false };
        self.knowledge.forget(&base);
        self.epoch += 1;
        self.begin_update_epoch(pages);
        self.forget_known_locks();
        self.untrack(current.told, pages);
        self.take_deferred_grants(pages);
        match outcome {
            Outcome::Agreed(values) => self.conclude(current, values),
            Outcome::Mismatch(text) => {
                if let Call::Declare(declared) = &current.call {
                    self.disown(declared.number());
                }
                self.fail(current.token, CoherenceError::Mismatch(text));
            }
            Outcome::Again => self.collective.queue.push_front((current.call, current.token)),
            Outcome::Dead(_) => {}
        }
        self.fail_by_leaving();
        true
    }

    fn conclude(&mut self, current: Current, values: Option<crate::coherence::Values>) {
        let value = match (current.call, values) {
            (Call::Declare(declared), _) => {
                let number = declared.number();
                if let Some(array) = self.arrays.get_mut(number as usize) {
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

    /// Completes the leave once the other nodes have the last departure (from rank 0). This node
    /// may fall silent then.
    pub(crate) fn end_leaving(&mut self) {
        if self.posted.values().any(|posted| matches!(posted.purpose, Purpose::LastDeparture)) {
            return;
        }
        if let Some(token) = self.leaving.take() {
            self.done(token, Value::None);
        }
    }

    /// Fails the collectives that wait here, because a node has died. Once this node has arrived at
    /// the last collective, only rank 0 knows whether the dead node was missing or had just left
    /// (COH-6.6).
    pub(crate) fn collective_death(&mut self, rank: Rank) {
        let waits_for_rank_0 = |current: &Current| {
            current.arrived && current.call == Call::Leave && rank != 0 && !self.dead.contains(&0)
        };
        if self.collective.current.as_ref().is_some_and(waits_for_rank_0) {
            return;
        }
        self.fail_collectives(&CoherenceError::NodeDead { doing: String::new(), rank });
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
