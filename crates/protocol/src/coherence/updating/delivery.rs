//! The five deliveries of paper 004: how a transfer of shared memory ends at its receiver
//! (COH-10.20).

/// Selects how data of a shared array that travels between nodes is put into the receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// Whole ranges travel. Each fragment is copied to its place as it arrives. The receiver counts
    /// the ranges, and the runtime processes no message.
    DirectMap,
    /// As [`Delivery::DirectMap`], and the runtime then processes a message without the data.
    HeaderThrough,
    /// Whole ranges travel in ordinary messages. The runtime receives each message and copies its
    /// data.
    MessageThrough,
    /// Only the bytes that changed travel (diffs). They are written as they arrive, and the runtime
    /// processes no message.
    DirectDiffDecode,
    /// As [`Delivery::DirectDiffDecode`], and the runtime then processes a message without the
    /// data.
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

    /// Returns `true` if only changed bytes travel, which are found by comparing a page with its
    /// twin.
    pub(crate) fn is_diff(self) -> bool {
        matches!(self, Delivery::DirectDiffDecode | Delivery::HeaderThroughDiffDecode)
    }

    /// Returns `true` if the runtime processes a message for each transfer.
    pub(crate) fn is_through(self) -> bool {
        matches!(self, Delivery::HeaderThrough | Delivery::HeaderThroughDiffDecode)
    }
}
