//! The five deliveries of paper 004: how a transfer of shared memory ends at its receiver
//! (COH-10.20).

use crate::coherence::Coherence;
use crate::coherence::machine::ArrayId;
use crate::wind::Class;

/// Way in which transfers of a shared array end at their receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// Whole ranges are placed as their fragments arrive. They are counted, and nobody is told.
    DirectMap,
    /// As [`Delivery::DirectMap`], and then the head is handed up to the runtime.
    HeaderThrough,
    /// Head and data are handed up, and the runtime copies the data: the ordinary path.
    MessageThrough,
    /// Only the bytes that changed travel. They are applied as they arrive.
    DirectDiffDecode,
    /// As [`Delivery::DirectDiffDecode`], and then the head is handed up to the runtime.
    HeaderThroughDiffDecode,
}

impl Delivery {
    /// All deliveries, in the order of the paper.
    pub const ALL: [Delivery; 5] = [
        Delivery::DirectMap,
        Delivery::HeaderThrough,
        Delivery::MessageThrough,
        Delivery::DirectDiffDecode,
        Delivery::HeaderThroughDiffDecode,
    ];

    /// Returns the name in settings and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Delivery::DirectMap => "direct_map",
            Delivery::HeaderThrough => "header_through",
            Delivery::MessageThrough => "message_through",
            Delivery::DirectDiffDecode => "direct_diff_decode",
            Delivery::HeaderThroughDiffDecode => "header_through_diff_decode",
        }
    }

    /// Returns the delivery of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Delivery> {
        Delivery::ALL.into_iter().find(|delivery| delivery.name() == name)
    }

    /// Returns `true` if only changed bytes travel, so that a twin must tell what changed.
    pub(crate) fn is_diff(self) -> bool {
        matches!(self, Delivery::DirectDiffDecode | Delivery::HeaderThroughDiffDecode)
    }

    /// Returns `true` if the runtime is told of each message.
    pub(crate) fn is_through(self) -> bool {
        matches!(self, Delivery::HeaderThrough | Delivery::HeaderThroughDiffDecode)
    }
}

impl Coherence {
    /// Sets how updates of an array that this node sends are delivered, and how it takes answers to
    /// its fetches. Without a delivery the runtime chooses for each transfer. The array must be as
    /// it was when it was declared.
    pub fn set_delivery(&mut self, array: ArrayId, delivery: Option<Delivery>) {
        if let Some(array) = self.arrays.get_mut(array) {
            array.delivery = delivery;
        }
    }

    /// Sets the class of the updates of an array that this node sends, [`Class::Unordered`] at
    /// first. An update that must follow an earlier one is [`Class::Sync`] in any case (COH-10.8).
    pub fn set_update_class(&mut self, array: ArrayId, class: Class) {
        if let Some(array) = self.arrays.get_mut(array) {
            array.update_class = class;
        }
    }

    /// Counts a transfer that has been delivered.
    pub(crate) fn count_delivery(&mut self, delivery: Delivery) {
        let counter = match delivery {
            Delivery::DirectMap => &mut self.statistics.direct_map,
            Delivery::HeaderThrough => &mut self.statistics.header_through,
            Delivery::MessageThrough => &mut self.statistics.message_through,
            Delivery::DirectDiffDecode => &mut self.statistics.direct_diff_decode,
            Delivery::HeaderThroughDiffDecode => &mut self.statistics.header_through_diff_decode,
        };
        *counter += 1;
    }
}
