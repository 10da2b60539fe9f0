//! Messages that a node sends, counted by purpose and by size (paper 004, table 2).

use crate::coherence::codec;
use crate::rma::{self, MessageKind};
use crate::wind::Message;

/// Purpose of a message. Each message has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessagePurpose {
    /// Request for pages of a shared array.
    FetchRequest,
    /// Pages of a shared array, for a node that asked for them.
    Pages,
    /// Changes of pages, for their home.
    Diff,
    /// Changes of pages, for a node that reads them.
    Update,
    /// Arrival at a barrier or another collective, the end of it, or a notification.
    Barrier,
    /// Request, grant or return of a lock.
    Lock,
    /// Begin or end of a subscription, or a list of the subscribers.
    Subscription,
    /// Other message of shared arrays: of leaving, of deaths, and questions.
    OtherShared,
    /// Put of bytes or rows, accumulate, or an element for a FIFO.
    Put,
    /// Request for bytes or rows of a region, or the answer.
    Get,
    /// Atomic operation, or its answer.
    Atomic,
    /// Message of the program.
    Message,
    /// Other message: a search for a region by its name, or its answer.
    Other,
}

impl MessagePurpose {
    /// All purposes, in the order of their numbers.
    pub const ALL: [MessagePurpose; 13] = [
        MessagePurpose::FetchRequest,
        MessagePurpose::Pages,
        MessagePurpose::Diff,
        MessagePurpose::Update,
        MessagePurpose::Barrier,
        MessagePurpose::Lock,
        MessagePurpose::Subscription,
        MessagePurpose::OtherShared,
        MessagePurpose::Put,
        MessagePurpose::Get,
        MessagePurpose::Atomic,
        MessagePurpose::Message,
        MessagePurpose::Other,
    ];

    /// Returns the name in tables and records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MessagePurpose::FetchRequest => "fetch request",
            MessagePurpose::Pages => "pages",
            MessagePurpose::Diff => "diff",
            MessagePurpose::Update => "update",
            MessagePurpose::Barrier => "barrier",
            MessagePurpose::Lock => "lock",
            MessagePurpose::Subscription => "subscription",
            MessagePurpose::OtherShared => "other of shared memory",
            MessagePurpose::Put => "put",
            MessagePurpose::Get => "get",
            MessagePurpose::Atomic => "atomic",
            MessagePurpose::Message => "message",
            MessagePurpose::Other => "other",
        }
    }

    /// Returns `true` if the sender may wait until the receiver has handled such a message.
    /// Updates and arrivals are awaited only by nodes that have come to the barrier themselves.
    #[must_use]
    pub const fn is_request(self) -> bool {
        !matches!(
            self,
            MessagePurpose::Pages
                | MessagePurpose::Update
                | MessagePurpose::Barrier
                | MessagePurpose::Subscription
                | MessagePurpose::OtherShared
        )
    }

    /// Returns `true` if bulk gives way to such messages while they come (WIND-3.10). Most messages
    /// of shared arrays ask for bulk, or come with bulk for which the same threads wait.
    #[must_use]
    pub const fn is_urgent(self) -> bool {
        matches!(
            self,
            MessagePurpose::Lock
                | MessagePurpose::Put
                | MessagePurpose::Get
                | MessagePurpose::Atomic
                | MessagePurpose::Message
                | MessagePurpose::Other
        )
    }

    /// Returns the purpose of a message with this head.
    #[must_use]
    pub fn of(head: &[u8]) -> MessagePurpose {
        match rma::kind(head) {
            MessageKind::Coherence => codec::purpose(head),
            MessageKind::Put
            | MessageKind::PutSignal
            | MessageKind::PutNotice
            | MessageKind::PutBlock
            | MessageKind::PutBlockSignal
            | MessageKind::Accumulate
            | MessageKind::Push => MessagePurpose::Put,
            MessageKind::Get | MessageKind::GetBlock | MessageKind::Data | MessageKind::Gone => {
                MessagePurpose::Get
            }
            MessageKind::Atomic | MessageKind::Old => MessagePurpose::Atomic,
            MessageKind::User | MessageKind::Parcel => MessagePurpose::Message,
            MessageKind::Lookup
            | MessageKind::Found
            | MessageKind::Missing
            | MessageKind::Stream
            | MessageKind::Unknown => MessagePurpose::Other,
        }
    }
}

/// Number of size classes.
pub const SIZE_CLASSES: usize = 5;
/// Maximum length in bytes of the body of a message of each class. The last class has no limit.
/// Heads do not count, so that one page has at most 4 KiB.
pub const SIZE_CLASS_LIMITS: [u64; SIZE_CLASSES - 1] = [256, 1024, 4096, 16_384];

/// Returns the class of a message with a body of `len` bytes.
#[must_use]
pub fn size_class(len: u64) -> usize {
    SIZE_CLASS_LIMITS.iter().filter(|&&limit| len > limit).count()
}

/// Number of messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCount {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of their heads and bodies.
    pub bytes: u64,
}

/// Messages to other nodes since the start of a node. A message that is posted again after a
/// refusal counts again. Datagrams that are retransmitted do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    counts: [[MessageCount; SIZE_CLASSES]; MessagePurpose::ALL.len()],
}

impl Traffic {
    /// Counts a message that is posted to another node.
    #[inline]
    pub fn count(&mut self, message: &Message) {
        self.add(MessagePurpose::of(&message.head), message.head.len(), message.body.len());
    }

    /// Counts a message of this purpose, with the lengths of its head and its body in bytes.
    #[inline]
    pub fn add(&mut self, purpose: MessagePurpose, head: usize, body: u64) {
        let classes = self.counts.get_mut(purpose as usize);
        if let Some(count) = classes.and_then(|classes| classes.get_mut(size_class(body))) {
            count.messages += 1;
            count.bytes += head as u64 + body;
        }
    }

    /// Returns the counts of a purpose, by size class.
    #[must_use]
    pub fn of(&self, purpose: MessagePurpose) -> [MessageCount; SIZE_CLASSES] {
        self.counts.get(purpose as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_at_the_limits_are_in_the_lower_class() {
        let sizes = [0, 256, 257, 1024, 1025, 4096, 4097, 16_384, 16_385, u64::MAX];
        assert_eq!(sizes.map(size_class), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn every_purpose_has_a_place_of_its_own() {
        for (place, purpose) in MessagePurpose::ALL.into_iter().enumerate() {
            assert_eq!(purpose as usize, place, "{purpose:?}");
            let mut traffic = Traffic::default();
            traffic.add(purpose, 26, 1024);
            let total: u64 = MessagePurpose::ALL
                .iter()
                .flat_map(|purpose| traffic.of(*purpose))
                .map(|count| count.messages)
                .sum();
            let expected = MessageCount { messages: 1, bytes: 1050 };
            assert_eq!((traffic.of(purpose)[1], total), (expected, 1));
        }
    }

    #[test]
    fn heads_of_remote_memory_and_messages_have_their_purpose() {
        let of = |kind: MessageKind| MessagePurpose::of(&[kind as u8]);
        assert_eq!(of(MessageKind::PutBlockSignal), MessagePurpose::Put);
        assert_eq!(of(MessageKind::Data), MessagePurpose::Get);
        assert_eq!(of(MessageKind::Old), MessagePurpose::Atomic);
        assert_eq!(of(MessageKind::User), MessagePurpose::Message);
        assert_eq!(MessagePurpose::of(&[]), MessagePurpose::Other);
    }
}
