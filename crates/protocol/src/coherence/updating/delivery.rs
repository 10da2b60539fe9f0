//! The five deliveries of paper 004: how a transfer of shared memory ends at its receiver
//! (COH-10.20).

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
