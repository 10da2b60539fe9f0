//! Refusals of this node to peers. The node's owner can ask who wanted which access, and why it was
//! refused (MEM-1.9).

use super::Rma;
use crate::limits::{REFUSALS_KEPT, WRONG_KEYS_MAX};
use crate::rma::head::{Operation, Signal};
use crate::rma::memory::{Memory, Rights};
use crate::rma::messages::kind::{MessageKind, kind};
use crate::wind::Refusal;
use crate::{Rank, counters};
use alloc::collections::VecDeque;

counters! {
/// Number of refusals to peers, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalCounts {
    /// Keys that no region has, either guessed or of a removed region.
    pub unknown_key: u64,
    /// Ranges that are not inside their region.
    pub out_of_bounds: u64,
    /// Rights that the region, or one of its pages, does not grant.
    pub not_permitted: u64,
    /// Words that are not aligned.
    pub misaligned: u64,
    /// Number of malformed messages.
    pub malformed: u64,
    /// Requests beyond what one peer may have under way.
    pub no_room: u64,
    /// Answers that nobody waits for.
    pub not_asked: u64,
    /// Pushes into FIFOs that were full.
    pub full: u64,
    /// Ranges whose pages were not in memory. Most of these come again and are done.
    pub not_present: u64,
    /// Ranges whose pages are lost.
    pub lost: u64,
    /// Refusals for any other reason.
    pub otherwise: u64,
}
}

impl RefusalCounts {
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
            | Refusal::Withdrawn
            | Refusal::Barred
            | Refusal::Moved => &mut self.otherwise,
        }
    }
}

/// Part of a region that an operation needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess {
    /// Key that the operation showed.
    pub key: u64,
    /// Offset in bytes from the region's start.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Right that the operation needed.
    pub right: Rights,
}

/// An access that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of the refusal among all refusals, from 1 on. A reader that polls can tell how many
    /// it missed.
    pub serial: u64,
    /// Rank of the peer that was refused.
    pub from: Rank,
    /// Kind of the operation.
    pub operation: MessageKind,
    /// Memory that the operation needed.
    pub access: RegionAccess,
    /// Reason of the refusal.
    pub refusal: Refusal,
}

/// The latest refusals, and the number of all.
#[derive(Debug, Default)]
pub(super) struct Log {
    counters: RefusalCounts,
    latest: VecDeque<Refused>,
    serial: u64,
}

impl Log {
    pub fn summary(&self) -> (&RefusalCounts, &VecDeque<Refused>) {
        (&self.counters, &self.latest)
    }

    /// Records that a message with this head, and a body of `len` bytes, is refused. Returns the
    /// access that was refused.
    #[cold]
    pub fn note(
        &mut self,
        from: Rank,
        head: &[u8],
        len: u64,
        refusal: Refusal,
        memory: &impl Memory,
    ) -> Option<RegionAccess> {
        *self.counters.of(refusal) += 1;
        if refusal == Refusal::NotPresent {
            return None;
        }
        if refusal == Refusal::Full {
            // A full FIFO is nobody's fault, and frequent.
            return None;
        }
        let access =
            Operation::decode(head).and_then(|operation| wanted(&operation, len, memory))?;
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
        Some(access)
    }
}

impl Rma {
    /// Refuses a request by key of a peer that has guessed keys (MEM-1.16).
    pub(super) fn check_guesses(&self, from: Rank, operation: &Operation) -> Result<(), Refusal> {
        let is_barred = self.has_guessers
            && operation.names_key()
            && self.peers.get(&from).is_some_and(|peer| peer.wrong_keys.len() > WRONG_KEYS_MAX);
        if is_barred { Err(Refusal::Barred) } else { Ok(()) }
    }

    /// Records that a message is refused, and remembers a key that its sender can only have
    /// guessed.
    #[cold]
    pub(super) fn note_refusal(
        &mut self,
        from: Rank,
        head: &[u8],
        len: u64,
        refusal: Refusal,
        memory: &impl Memory,
    ) {
        let access = self.refusals.note(from, head, len, refusal, memory);
        let Some(RegionAccess { key, .. }) = access else { return };
        if refusal != Refusal::UnknownKey || memory.has_had(key) {
            return;
        }
        let keys = &mut self.peers.entry(from).or_default().wrong_keys;
        // A program that asks for the same vanished region again and again guesses nothing.
        if keys.len() <= WRONG_KEYS_MAX && !keys.contains(&key) {
            keys.push(key);
            self.has_guessers |= keys.len() > WRONG_KEYS_MAX;
        }
    }
}

/// Returns the memory that the operation names. For a put with a signal, returns the signal's word
/// if that word was the reason.
fn wanted(operation: &Operation, len: u64, memory: &impl Memory) -> Option<RegionAccess> {
    Some(match *operation {
        Operation::Put { key, offset, signal } => {
            put(RegionAccess { key, offset, len, right: Rights::WRITE }, signal, memory)
        }
        Operation::PutNotice { key, offset, .. } => {
            RegionAccess { key, offset, len, right: Rights::WRITE }
        }
        Operation::PutBlock { key, block, signal } => {
            let len = block.hull().unwrap_or(u64::MAX);
            put(
                RegionAccess { key, offset: block.offset, len, right: Rights::WRITE },
                signal,
                memory,
            )
        }
        Operation::GetBlock { key, block, .. } => RegionAccess {
            key,
            offset: block.offset,
            len: block.hull().unwrap_or(u64::MAX),
            right: Rights::READ,
        },
        Operation::Get { key, offset, len, .. } => {
            RegionAccess { key, offset, len, right: Rights::READ }
        }
        Operation::Atomic { key, offset, op, .. } => {
            RegionAccess { key, offset, len: op.width().bytes(), right: Rights::ATOMIC }
        }
        Operation::Push { key, offset } => RegionAccess { key, offset, len, right: Rights::PUSH },
        Operation::Accumulate { key, offset, .. } => {
            RegionAccess { key, offset, len, right: Rights::ATOMIC }
        }
        _ => return None,
    })
}

fn put(data: RegionAccess, signal: Option<Signal>, memory: &impl Memory) -> RegionAccess {
    match signal {
        Some(signal) if memory.locate(data.key, data.offset, data.len, data.right).is_ok() => {
            RegionAccess { key: signal.key, offset: signal.offset, len: 8, right: Rights::ATOMIC }
        }
        _ => data,
    }
}
