//! The end of a collective: one body for all nodes, from which each computes what to do (COH-6.4).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::Coherence;
use crate::coherence::clock::notices::{Interval, Runs, TOLD_MAX};
use crate::coherence::clock::vector::Vector;
use crate::coherence::machine::Pages;
use crate::coherence::mailbox::CONTROL_MAX;
use crate::coherence::number_set::NumberSet;
use crate::coherence::sync::agreement;
use crate::coherence::sync::agreement::Call;
use crate::coherence::sync::collective::Outcome;
use crate::coherence::sync::gather::merged;
use crate::coherence::types::CoherenceError;
use crate::planted::{Bug, planted};
use crate::wind::Refusal;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Maximum number of pairs of nodes whose updates one message counts.
const COUNTS_MAX: usize = 1 << 20;
// The longest departure and the longest arrival fit: intervals, counts of three numbers each, and
// 8 MiB of calls.
const _: () = assert!(TOLD_MAX as u64 * 31 + COUNTS_MAX as u64 * 15 + (8 << 20) < CONTROL_MAX);

/// Number of updates that one node sent another one before it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct UpdateCount {
    pub from: Rank,
    pub to: Rank,
    pub count: u64,
}

impl UpdateCount {
    /// Returns the counts of one sender.
    pub fn of(from: Rank, counts: &BTreeMap<Rank, u64>) -> Vec<UpdateCount> {
        let sent = counts.iter().filter(|(_, count)| **count > 0);
        sent.map(|(to, count)| UpdateCount { from, to: *to, count: *count }).collect()
    }

    pub fn write_all(counts: &[UpdateCount], out: &mut Vec<u8>) {
        out.put_leb128(counts.len() as u64);
        for UpdateCount { from, to, count } in counts {
            out.put_leb128(u64::from(*from)).put_leb128(u64::from(*to)).put_leb128(*count);
        }
    }

    /// Reads counts, each of which is of two nodes and not 0. No two are of the same nodes.
    pub fn read_all(reader: &mut ByteReader<'_>, nodes: u32) -> Result<Vec<UpdateCount>, Refusal> {
        let count = reader.count(3)?;
        if count > COUNTS_MAX {
            return Err(Refusal::NoRoom);
        }
        let mut counts: Vec<UpdateCount> = Vec::with_capacity(count);
        for _ in 0..count {
            let (from, to, count) = (reader.leb128_u32()?, reader.leb128_u32()?, reader.leb128()?);
            let is_behind = counts.last().is_none_or(|last| (last.from, last.to) < (from, to));
            if from >= nodes || to >= nodes || from == to || count == 0 || !is_behind {
                return Err(Refusal::Malformed);
            }
            counts.push(UpdateCount { from, to, count });
        }
        Ok(counts)
    }
}

/// End of a collective, the same for all nodes.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Departure {
    pub outcome: Outcome,
    /// All intervals that were told at the collective, those of the receiver included.
    pub intervals: Vec<Interval>,
    pub counts: Vec<UpdateCount>,
    /// Numbers of the arrays that all nodes have dropped (COH-14.3).
    pub freed: NumberSet,
}

impl Departure {
    /// Returns the departure of a collective that failed because this node is dead.
    pub fn of_dead(rank: Rank) -> Departure {
        Departure { outcome: Outcome::Dead(rank), ..Departure::default() }
    }

    pub fn write(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match &self.outcome {
            Outcome::Agreed(values) => {
                body.put_u8(0).put_u8(u8::from(values.is_some()));
                values.iter().fold(&mut body, |body, values| agreement::write_values(values, body))
            }
            Outcome::Mismatch { text, unfit } => {
                agreement::write_text(text, body.put_u8(1).put_u8(u8::from(*unfit)))
            }
            Outcome::Dead(rank) => body.put_u8(2).put_leb128(u64::from(*rank)),
        };
        Interval::write_all(self.intervals.iter(), &mut body);
        UpdateCount::write_all(&self.counts, &mut body);
        self.freed.write(&mut body);
        body
    }

    /// Returns `true` if a node with this call goes on to call it at the next collective. Nodes
    /// that leave do so if others called something else (COH-6.9).
    pub fn is_repeated_for(&self, call: &Call) -> bool {
        *call == Call::Leave && matches!(self.outcome, Outcome::Mismatch { unfit: false, .. })
    }
}

impl Coherence {
    /// Takes the departure that this node's parent sent, or that of a doomed collective.
    pub(crate) fn depart(
        &mut self,
        from: Rank,
        epoch: u64,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let departure = self.read_departure(body)?;
        let is_parent = self.gather.place.parent == Some(from);
        // A child tells that a death has doomed the collective (COH-8.10).
        let is_doomed = matches!(departure.outcome, Outcome::Dead(_));
        let is_child = self.gather.place.told_by(from).is_some();
        if !(is_parent || (is_doomed && is_child)) {
            return Err(Refusal::Malformed);
        }
        if self.dead.contains(&from) {
            // A process that has taken the place of a dead node knows nothing of this job's deaths.
            return Ok(());
        }
        if let Outcome::Dead(rank) = departure.outcome {
            // A node that takes this one for dead does not answer it any more (COH-8.1).
            let rank = if rank == self.me { from } else { rank };
            self.mark_failed(rank, pages);
            self.end_gathering(epoch, rank);
            return Ok(());
        }
        let current = self.collective.current.as_ref();
        let is_expected =
            current.is_some_and(|current| current.arrived && current.departure.is_none());
        if epoch != self.epoch || !is_expected {
            // After a death this node may have given up already.
            return if self.dead.is_empty() { Err(Refusal::Malformed) } else { Ok(()) };
        }
        // Nothing is freed that this node has not dropped.
        let dropped = current.map(|current| &current.dropped);
        if dropped.is_none_or(|dropped| departure.freed.intersection(dropped) != departure.freed) {
            return Err(Refusal::Malformed);
        }
        self.gather.end(epoch);
        let children = self.gather.place.children.clone();
        self.forward_departure(epoch, body, &departure, &children);
        self.store_departure(departure);
        Ok(())
    }

    fn read_departure(&self, body: &[u8]) -> Result<Departure, Refusal> {
        let mut reader = ByteReader(body);
        let outcome = match reader.u8()? {
            0 => Outcome::Agreed(match reader.u8()? {
                0 => None,
                1 => Some(agreement::read_values(&mut reader)?),
                _ => return Err(Refusal::Malformed),
            }),
            1 => {
                let unfit = reader.u8()?;
                if unfit > 1 {
                    return Err(Refusal::Malformed);
                }
                let text = agreement::read_text(&mut reader, agreement::TEXT_MAX)?;
                Outcome::Mismatch { text, unfit: unfit == 1 }
            }
            2 => Outcome::Dead(reader.leb128_u32()?),
            _ => return Err(Refusal::Malformed),
        };
        let intervals = self.knowledge.read_intervals(&mut reader, &self.arrays)?;
        let counts = UpdateCount::read_all(&mut reader, self.nodes)?;
        let freed = NumberSet::read(&mut reader)?;
        reader.end()?;
        if matches!(outcome, Outcome::Dead(rank) if rank >= self.nodes) {
            return Err(Refusal::Malformed);
        }
        Ok(Departure { outcome, intervals: merged(intervals), counts, freed })
    }

    /// Keeps the departure of the collective that this node is in. [`Self::end_collective`] does
    /// the rest.
    pub(crate) fn store_departure(&mut self, departure: Departure) {
        if let Some(current) = &mut self.collective.current {
            current.departure = Some(departure);
        }
    }

    /// Ends the collective once its departure and all updates of the epoch are here (COH-10.7).
    /// Returns `true` if it did.
    pub(crate) fn end_collective(&mut self, pages: &mut dyn Pages) -> bool {
        let Some(current) = &self.collective.current else { return false };
        let Some(departure) = &current.departure else { return false };
        // A node that leaves reads nothing any more.
        let leaves = current.call == Call::Leave && !departure.is_repeated_for(&current.call);
        let missing = if leaves { Vec::new() } else { self.writers_waited_for() };
        if !planted(Bug::LeaveUncounted) && !missing.is_empty() {
            let dead = missing.into_iter().find(|from| self.dead.contains(from));
            let Some(dead) = dead else { return false };
            // Not all bytes are here, and they will not come (COH-10.16).
            let (doing, token) = (current.call.doing().to_string(), current.token);
            self.collective.current = None;
            self.fail(token, CoherenceError::NodeDead { doing, rank: dead });
            return true;
        }
        let Some(current) = &mut self.collective.current else { return false };
        let Some(departure) = current.departure.take() else { return false };
        let known = current.known.take();
        self.conclude_departure(departure, known, pages);
        true
    }

    /// Returns the nodes whose updates the departure counts and that are not here.
    pub(crate) fn writers_waited_for(&self) -> Vec<Rank> {
        let current = self.collective.current.as_ref();
        let counts = current.and_then(|current| current.departure.as_ref());
        let counts = counts.map_or(&[][..], |departure| &departure.counts);
        let is_missing = |count: &&UpdateCount| {
            count.to == self.me
                && self.updates.receiving.arrived(self.epoch, count.from) < count.count
        };
        counts.iter().filter(is_missing).map(|count| count.from).collect()
    }

    /// Applies the write notices that this node did not know when it arrived, raises its knowledge
    /// to the base, and ends the call (COH-6.4).
    fn conclude_departure(
        &mut self,
        departure: Departure,
        known: Option<Vector>,
        pages: &mut dyn Pages,
    ) {
        let known = known.as_ref().unwrap_or(&self.knowledge.base);
        let mut base = Vector::new(self.nodes);
        departure.intervals.iter().for_each(|interval| base.raise(interval.writer, interval.last));
        let news = departure.intervals.iter();
        let news = news.filter(|i| i.writer != self.me && i.last > known.get(i.writer));
        let named = if planted(Bug::SkipInvalidation) {
            Runs::default()
        } else {
            Runs::named(news, self.me).at_most(TOLD_MAX)
        };
        self.end_update_epoch(&named, pages);
        // A page that could not be unmapped is old. In that case this collective has failed
        // already.
        self.look_at_machine(pages);
        let Some(current) = self.collective.current.take() else { return };
        self.knowledge.forget(&base);
        self.gather.end(self.epoch);
        self.epoch += 1;
        self.free_arrays(&departure.freed);
        self.begin_update_epoch(pages);
        self.forget_known_locks();
        self.untrack(current.told, pages);
        self.take_deferred_grants(pages);
        self.take_team_acquires(pages);
        if departure.is_repeated_for(&current.call) {
            self.collective.queue.push_front((current.call, current.token));
        } else {
            match departure.outcome {
                Outcome::Agreed(values) => self.conclude(current, values),
                Outcome::Mismatch { text, .. } => {
                    if let Call::Declare(declared) = &current.call {
                        self.remove_array(declared.number());
                    }
                    self.fail(current.token, CoherenceError::Mismatch(text));
                }
                Outcome::Dead(_) => {}
            }
        }
        self.fail_by_leaving();
    }

    /// Fails the collective that this node is in, if it has arrived, because of a dead node.
    pub(crate) fn fail_current_by_death(&mut self, rank: Rank) {
        let waits = |current: &mut crate::coherence::sync::collective::Current| {
            current.arrived && current.departure.is_none()
        };
        if let Some(current) = self.collective.current.take_if(waits) {
            let doing = current.call.doing().to_string();
            self.fail(current.token, CoherenceError::NodeDead { doing, rank });
        }
    }
}
