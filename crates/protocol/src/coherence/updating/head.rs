//! Head of an update, and the form of its body (COH-9.2).

use crate::coherence::pages::machine::ArrayId;
use crate::coherence::updating::delivery::Delivery;
use crate::wind::Refusal;

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
pub(crate) enum UpdatePart {
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
    /// `true` if the writer chose the receiver
    /// ([`end_write`](crate::coherence::Coherence::end_write)), and whole pages may be kept
    /// (COH-10.15).
    pub pushed: bool,
    pub through: UpdatePart,
    /// The lower 16 bits of the epoch, which tell apart all epochs that are possible.
    pub epoch: u16,
    /// First byte of the range; 0 for changes.
    pub offset: u64,
    /// Number of the writer's interval.
    pub interval: u64,
}

/// Number of updates that a notification tells its receiver (COH-15.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct CountedUpdates {
    /// Epoch of the updates.
    pub epoch: u64,
    pub count: u64,
}

impl UpdateHead {
    /// Returns the delivery that the writer chose.
    pub fn delivery(&self) -> Delivery {
        match (self.form, self.through) {
            (Form::Range, UpdatePart::Nothing) => Delivery::DirectMap,
            (Form::Range, UpdatePart::Header) => Delivery::HeaderThrough,
            (Form::Range, UpdatePart::Message) => Delivery::MessageThrough,
            (Form::Changes, UpdatePart::Header) => Delivery::HeaderThroughDiffDecode,
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
            | u64::from(self.through == UpdatePart::Header) << 2
            | u64::from(self.through == UpdatePart::Message) << 3;
        let first = u64::from(self.array) | flags << 32 | u64::from(self.epoch) << 48;
        [first, self.offset, self.interval]
    }

    pub fn from_fields([first, offset, interval]: [u64; 3]) -> Result<Self, Refusal> {
        let flags = first >> 32 & 0xffff;
        let form = if flags & 1 == 1 { Form::Changes } else { Form::Range };
        let through = match flags >> 2 {
            0 => UpdatePart::Nothing,
            1 => UpdatePart::Header,
            2 if form == Form::Range => UpdatePart::Message,
            _ => return Err(Refusal::Malformed),
        };
        if interval == 0 || (form == Form::Changes && offset != 0) {
            return Err(Refusal::Malformed);
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
            for through in [UpdatePart::Nothing, UpdatePart::Header, UpdatePart::Message] {
                let head = UpdateHead { array: 7, form: Form::Range, pushed, through, epoch: epoch as u16, offset, interval };
                prop_assert_eq!(UpdateHead::from_fields(head.fields()), Ok(head));
                let changes = UpdateHead { form: Form::Changes, offset: 0, ..head };
                let read = UpdateHead::from_fields(changes.fields());
                prop_assert_eq!(read.ok(), (through != UpdatePart::Message).then_some(changes));
            }
            let head = UpdateHead { array: 7, form: Form::Range, pushed, through: UpdatePart::Nothing, epoch: epoch as u16, offset, interval };
            prop_assert_eq!(head.epoch_near(near), epoch);
        }
    }
}
