//! Updates: written bytes that travel to readers with the barrier (COH-10).
//!
//! - `send`: a writer sends what its guards and its diffs have written to the subscribers of each
//!   page, and counts the messages.
//! - `delivery`: the five ways in which a transfer ends at its receiver.
//! - `receive`: a reader applies the bytes to valid pages, counts the messages, and holds those
//!   that come too early.
//! - `subscribe`: a home learns who reads which page after each update, and tells remote writers.

pub(crate) mod delivery;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod subscribe;

use crate::coherence::clock::notices::Runs;
use crate::coherence::machine::ArrayId;
use crate::coherence::number_set::NumberSet;
use alloc::collections::BTreeMap;
use delivery::Delivery;

/// Set of pages of several arrays.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct PageSets(BTreeMap<ArrayId, NumberSet>);

impl PageSets {
    pub fn insert(&mut self, array: ArrayId, pages: core::ops::Range<u64>) {
        self.0.entry(array).or_default().insert(pages);
    }

    pub fn remove(&mut self, array: ArrayId, pages: core::ops::Range<u64>) {
        if let Some(set) = self.0.get_mut(&array) {
            set.remove(pages);
        }
    }

    pub fn contains(&self, (array, page): crate::coherence::array::PageId) -> bool {
        self.0.get(&array).is_some_and(|pages| pages.contains(page))
    }

    pub fn forget(&mut self, array: ArrayId) {
        self.0.remove(&array);
    }

    pub fn runs(&self) -> Runs {
        Runs::of_sets(&self.0)
    }
}

/// All state of updates on one node.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Updates {
    pub sending: send::Sending,
    pub receiving: receive::Receiving,
    pub feeds: subscribe::Feeds,
}

impl Updates {
    /// Forgets a freed array. No update of it is under way, because the departure that frees it
    /// counts them all.
    pub fn forget(&mut self, array: ArrayId) {
        self.sending.forget(array);
        self.receiving.forget(array);
        self.feeds.forget(array);
    }
}

/// How an update's body is written (COH-9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum Form {
    /// The bytes of one range, from an offset in the array on.
    Range,
    /// Changes of pages, as in a diff.
    Changes,
}

/// Part of an update that is handed up to the receiver's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum Through {
    Nothing,
    Header,
    Message,
}

/// Head of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct UpdateHead {
    pub array: ArrayId,
    pub form: Form,
    /// `true` if the writer chose the receiver ([`crate::coherence::Coherence::end_write`]), and whole pages
    /// may be kept (COH-10.15).
    pub pushed: bool,
    pub through: Through,
    /// The lower 16 bits of the epoch, which tell apart all epochs that are possible.
    pub epoch: u16,
    /// First byte of the range; 0 for changes.
    pub offset: u64,
    /// Number of the writer's interval.
    pub interval: u64,
}

impl UpdateHead {
    /// Returns the delivery that the writer chose.
    pub fn delivery(&self) -> Delivery {
        match (self.form, self.through) {
            (Form::Range, Through::Nothing) => Delivery::DirectMap,
            (Form::Range, Through::Header) => Delivery::HeaderThrough,
            (Form::Range, Through::Message) => Delivery::MessageThrough,
            (Form::Changes, Through::Header) => Delivery::HeaderThroughDiffDecode,
            (Form::Changes, _) => Delivery::DirectDiffDecode,
        }
    }

    /// Returns the epoch nearest to `near` that has the lower bits of the head.
    pub fn epoch_near(&self, near: u64) -> u64 {
        near.wrapping_add_signed(i64::from(self.epoch.wrapping_sub(near as u16) as i16))
    }

    pub fn fields(self) -> [u64; 3] {
        let flags = u64::from(self.form == Form::Changes)
            | u64::from(self.pushed) << 1
            | u64::from(self.through == Through::Header) << 2
            | u64::from(self.through == Through::Message) << 3;
        let first = u64::from(self.array) | flags << 32 | u64::from(self.epoch) << 48;
        [first, self.offset, self.interval]
    }

    pub fn from_fields([first, offset, interval]: [u64; 3]) -> Result<Self, crate::wind::Refusal> {
        let flags = first >> 32 & 0xffff;
        let form = if flags & 1 == 1 { Form::Changes } else { Form::Range };
        let through = match flags >> 2 {
            0 => Through::Nothing,
            1 => Through::Header,
            2 if form == Form::Range => Through::Message,
            _ => return Err(crate::wind::Refusal::Malformed),
        };
        if interval == 0 || (form == Form::Changes && offset != 0) {
            return Err(crate::wind::Refusal::Malformed);
        }
        Ok(UpdateHead {
            array: first as u32,
            form,
            pushed: flags & 2 != 0,
            through,
            epoch: (first >> 48) as u16,
            offset,
            interval,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_keeps_its_fields_and_its_epoch(near in 0..1u64 << 40, ahead in -9..9i64, offset: u64, interval in 1u64.., pushed: bool) {
            let epoch = near.saturating_add_signed(ahead);
            for through in [Through::Nothing, Through::Header, Through::Message] {
                let head = UpdateHead { array: 7, form: Form::Range, pushed, through, epoch: epoch as u16, offset, interval };
                prop_assert_eq!(UpdateHead::from_fields(head.fields()), Ok(head));
                let changes = UpdateHead { form: Form::Changes, offset: 0, ..head };
                let read = UpdateHead::from_fields(changes.fields());
                prop_assert_eq!(read.ok(), (through != Through::Message).then_some(changes));
            }
            let head = UpdateHead { array: 7, form: Form::Range, pushed, through: Through::Nothing, epoch: epoch as u16, offset, interval };
            prop_assert_eq!(head.epoch_near(near), epoch);
        }
    }
}
