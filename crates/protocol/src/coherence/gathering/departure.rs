//! The end of a collective, from which each node computes what to do (COH-6.4).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::moves::{MOVES_MAX, Moves};
use crate::coherence::clock::notices::{Interval, NOTICES_MAX};
use crate::coherence::clock::rise::Rise;
use crate::coherence::gathering::agreement;
use crate::coherence::gathering::agreement::Call;
use crate::coherence::gathering::holding::{CHANGES_MAX, needed};
use crate::coherence::mailbox::CONTROL_MAX;
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::types::Values;
use crate::coherence::updating::page_sets::PageSets;
use crate::limits::NODES_MAX;
use crate::wind::Refusal;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of pairs of nodes whose updates one message counts.
const COUNTS_MAX: usize = 1 << 20;
// The longest departure and the longest arrival fit: intervals, counts of three numbers each,
// moves, gained and lost copies, the rise, and 8 MiB of calls.
const _: () = assert!(
    NOTICES_MAX as u64 * 31
        + COUNTS_MAX as u64 * 15
        + MOVES_MAX as u64 * 20
        + CHANGES_MAX as u64 * 2 * 15
        + NODES_MAX as u64 * 20
        + (8 << 20)
        < CONTROL_MAX
);

/// Outcome of a collective, the same for all nodes.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum Outcome {
    Agreed(Option<Values>),
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

    pub fn write_all<'a>(counts: impl Iterator<Item = &'a UpdateCount> + Clone, out: &mut Vec<u8>) {
        out.put_leb128(counts.clone().count() as u64);
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

/// End of a collective, as one node of the tree is told it.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Departure {
    pub outcome: Outcome,
    /// How far the intervals that were told at the collective raise the base.
    pub rise: Rise,
    /// Those of these intervals of which a node of the subtree may have to know (COH-6.19). They
    /// lack the owned bytes, which only the node that computes the departure compares (COH-10.14).
    pub intervals: Vec<Interval>,
    /// Updates that the nodes of the subtree got.
    pub counts: Vec<UpdateCount>,
    /// Numbers of the arrays that all nodes have dropped (COH-14.3).
    pub freed: NumberSet,
    /// Pages whose homes are to move, or move now if it is the second round (COH-11.2).
    pub moves: Moves,
}

impl Departure {
    /// Returns the departure of a collective that failed because this node is dead.
    pub fn of_dead(rank: Rank) -> Departure {
        Departure { outcome: Outcome::Dead(rank), ..Departure::default() }
    }

    /// Adds what the receiver's subtree has told.
    pub fn add(&mut self, (intervals, counts): (Vec<Interval>, Vec<UpdateCount>)) {
        if !intervals.is_empty() {
            self.intervals.extend(intervals);
            self.intervals = Interval::merged(core::mem::take(&mut self.intervals));
        }
        self.counts.extend(counts);
        self.counts.sort_unstable();
    }

    /// Writes what the nodes of a child's subtree need, which may hold these pages. Nodes that do
    /// not tell what they hold need everything.
    pub fn write(&self, subtree: &Range<Rank>, held: Option<&PageSets>, out: &mut Vec<u8>) {
        match &self.outcome {
            Outcome::Agreed(values) => {
                out.put_u8(0).put_u8(u8::from(values.is_some()));
                values.iter().for_each(|values| {
                    agreement::write_values(values, out);
                });
            }
            Outcome::Mismatch { text, unfit } => {
                agreement::write_text(text, out.put_u8(1).put_u8(u8::from(*unfit)));
            }
            Outcome::Dead(rank) => {
                out.put_u8(2).put_leb128(u64::from(*rank));
            }
        }
        self.rise.write(out);
        match held {
            Some(held) => {
                Interval::write_all(needed(&self.intervals, subtree, held).iter(), out);
            }
            None => Interval::write_all(self.intervals.iter(), out),
        }
        let is_inside = |rank: &Rank| subtree.contains(rank);
        let counts = self.counts.iter().filter(|one| is_inside(&one.to) && !is_inside(&one.from));
        UpdateCount::write_all(counts, out);
        self.freed.write(out);
        self.moves.write(out);
    }

    /// Returns `true` if a node with this call goes on to call it at the next collective. Nodes
    /// that leave do so if others called something else (COH-6.9).
    pub fn is_repeated_for(&self, call: &Call) -> bool {
        call.is_leave() && matches!(self.outcome, Outcome::Mismatch { unfit: false, .. })
    }

    /// Reads a departure for the nodes of a subtree, and checks it.
    pub fn read(subtree: &Range<Rank>, body: &[u8], base: &Base<'_>) -> Result<Departure, Refusal> {
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
        let knowledge = &base.clock.knowledge;
        let rise = Rise::read(&mut reader, base.mail.nodes)?;
        let intervals = knowledge.read_intervals(&mut reader, base.arrays)?;
        let counts = UpdateCount::read_all(&mut reader, base.mail.nodes)?;
        let freed = NumberSet::read(&mut reader)?;
        let moves = Moves::read(&mut reader, &(0..base.mail.nodes), base.arrays)?;
        reader.end()?;
        let is_nobody = matches!(outcome, Outcome::Dead(rank) if rank >= base.mail.nodes);
        let is_counted =
            |one: &UpdateCount| subtree.contains(&one.to) && !subtree.contains(&one.from);
        if is_nobody || !knowledge.may_rise(&rise) || !counts.iter().all(is_counted) {
            return Err(Refusal::Malformed);
        }
        let intervals = Interval::merged(intervals);
        Ok(Departure { outcome, rise, intervals, counts, freed, moves })
    }
}
