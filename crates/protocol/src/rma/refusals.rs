//! What this node refused to peers: its owner can ask who wanted what, and why it was not done
//! (MEM-1.9).

use super::{Kind, Memory, Operation, Rights, Signal, kind};
use crate::limits::REFUSALS_KEPT;
use crate::wind::Refusal;
use crate::{Rank, counters};
use alloc::collections::VecDeque;

counters! {
/// How often something was refused to peers, by reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Keys that no region has: guessed, or of a region that is gone.
    pub unknown_key: u64,
    /// Ranges that are not inside their region.
    pub out_of_bounds: u64,
    /// Rights that the region, or one of its pages, does not grant.
    pub not_permitted: u64,
    /// Words that are not aligned.
    pub misaligned: u64,
    /// Messages that make no sense.
    pub malformed: u64,
    /// Requests beyond what one peer may have under way.
    pub no_room: u64,
    /// Answers that nobody waits for.
    pub not_asked: u64,
    /// Pushes into FIFOs that were full.
    pub full: u64,
    /// Ranges whose pages were not in memory: most of these come again and are done.
    pub not_present: u64,
    /// Ranges whose pages cannot be had.
    pub lost: u64,
    /// For any other reason.
    pub otherwise: u64,
}
}

impl Refusals {
    fn of(&mut self, refusal: Refusal) -> &mut u64 {
        match refusal {
            Refusal::UnknownKey => &mut self.unknown_key,
            Refusal::OutOfBounds => &mut self.out_of_bounds,
            Refusal::NotPermitted => &mut self.not_permitted,
            Refusal::Misaligned => &mut self.misaligned,
            Refusal::Malformed => &mut self.malformed,
            Refusal::NoRoom => &mut self.no_room,
            Refusal::NotAsked => &mut self.not_asked,
            Refusal::NotPresent => &mut self.not_present,
            Refusal::Lost => &mut self.lost,
            Refusal::Full => &mut self.full,
            Refusal::UnknownName
            | Refusal::UnknownObject
            | Refusal::NoFifo
            | Refusal::TooLong
            | Refusal::NoMemory
            | Refusal::Withdrawn => &mut self.otherwise,
        }
    }
}

/// What of a region an operation wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The key it showed.
    pub key: u64,
    /// Bytes from the region's start.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// What it needed.
    pub right: Rights,
}

/// An access that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Counts all that were refused, from 1 on: whoever looks now and then sees how many are
    /// between.
    pub serial: u64,
    /// To whom.
    pub from: Rank,
    /// What was asked.
    pub operation: Kind,
    /// Of which memory.
    pub access: Access,
    /// Why it was not done.
    pub refusal: Refusal,
}

/// The latest, and how many there were.
#[derive(Debug, Default)]
pub(super) struct Log {
    counters: Refusals,
    latest: VecDeque<Refused>,
    serial: u64,
}

impl Log {
    pub fn look(&self) -> (&Refusals, &VecDeque<Refused>) {
        (&self.counters, &self.latest)
    }

    /// A message with this head, and a body of `len` bytes, is being refused.
    #[cold]
    pub fn note(
        &mut self,
        from: Rank,
        head: &[u8],
        len: u64,
        refusal: Refusal,
        memory: &impl Memory,
    ) {
        *self.counters.of(refusal) += 1;
        if refusal == Refusal::NotPresent {
            return;
        }
        if refusal == Refusal::Full {
            // Nobody's fault, and often.
            return;
        }
        let Some(access) =
            Operation::decode(head).and_then(|operation| wanted(&operation, len, memory))
        else {
            return;
        };
        if self.latest.len() >= REFUSALS_KEPT {
            self.latest.pop_front();
        }
        self.serial += 1;
        self.latest.push_back(Refused {
            serial: self.serial,
            from,
            operation: kind(head),
            access,
            refusal,
        });
    }
}

/// The memory that the operation names; of a put with a signal, the signal's word if it was for
/// that.
fn wanted(operation: &Operation, len: u64, memory: &impl Memory) -> Option<Access> {
    Some(match *operation {
        Operation::Put { key, offset, signal } => {
            put(Access { key, offset, len, right: Rights::WRITE }, signal, memory)
        }
        Operation::PutBlock { key, block, signal } => {
            let len = block.hull().unwrap_or(u64::MAX);
            put(Access { key, offset: block.offset, len, right: Rights::WRITE }, signal, memory)
        }
        Operation::GetBlock { key, block, .. } => Access {
            key,
            offset: block.offset,
            len: block.hull().unwrap_or(u64::MAX),
            right: Rights::READ,
        },
        Operation::Get { key, offset, len, .. } => Access { key, offset, len, right: Rights::READ },
        Operation::Atomic { key, offset, op, .. } => {
            Access { key, offset, len: op.width().bytes(), right: Rights::ATOMIC }
        }
        Operation::Push { key, offset } => Access { key, offset, len, right: Rights::PUSH },
        Operation::Accumulate { key, offset, .. } => {
            Access { key, offset, len, right: Rights::ATOMIC }
        }
        _ => return None,
    })
}

fn put(data: Access, signal: Option<Signal>, memory: &impl Memory) -> Access {
    match signal {
        Some(signal) if memory.locate(data.key, data.offset, data.len, data.right).is_ok() => {
            Access { key: signal.key, offset: signal.offset, len: 8, right: Rights::ATOMIC }
        }
        _ => data,
    }
}
