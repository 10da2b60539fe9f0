//! [`Handler`]: the interface of the layer above Wind, to which messages are delivered.

use super::Class;
use crate::Rank;
use crate::wire::RefusedMessage;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Why a message was refused by the layer above; told to the sender, whose message is then settled
/// as refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// No region has this key: never published, withdrawn, or forged.
    #[error("no region has this key (never published, withdrawn, or a key of another run)")]
    UnknownKey = 1,
    /// offset + length is past the region's end.
    #[error("offset + length lies outside the region")]
    OutOfBounds = 2,
    /// The region does not grant this right.
    #[error("the region does not grant this right")]
    NotPermitted = 3,
    /// An atomic at an address that is not a multiple of its width.
    #[error("an atomic must be aligned to its width")]
    Misaligned = 4,
    /// The head makes no sense.
    #[error("the peer could not make sense of the request")]
    Malformed = 5,
    /// Nothing is published under this name.
    #[error("nothing is published under this name")]
    UnknownName = 6,
    /// The peer has no room.
    #[error("the peer has no room for this message")]
    NoRoom = 7,
    /// An array, lock or collective that the peer does not know.
    #[error("the peer does not know this shared object")]
    UnknownObject = 8,
    /// An answer to a request that is not outstanding: never made, cancelled, or answered before.
    #[error("no outstanding request asked for this answer (it was cancelled, or answered before)")]
    NotAsked = 9,
    /// A FIFO holds as many elements as it can.
    #[error("the FIFO is full")]
    Full = 10,
    /// Something is pushed where no FIFO is, or is no more.
    #[error("there is no FIFO at this place, or somebody has written over it")]
    NoFifo = 11,
    /// An element does not fit into the slots of its FIFO.
    #[error("the element is longer than the FIFO's slots")]
    TooLong = 12,
    /// Pages of the range are not in memory now; they are being fetched. The message may be sent
    /// again.
    #[error("pages of this range are not in the peer's memory, and could not be fetched in time")]
    NotPresent = 13,
    /// Pages of the range cannot be had.
    #[error(
        "pages of this range cannot be had: the file they belong to was truncated, or its disk failed"
    )]
    Lost = 14,
    /// The receiver cannot get memory for the whole message.
    #[error("the peer has not enough free memory for a message of this length")]
    NoMemory = 15,
    /// The name was published, and its owner has withdrawn it.
    #[error("the region of this name was withdrawn by its owner")]
    Withdrawn = 16,
}

impl Refusal {
    /// From its number on the wire.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Refusal> {
        Some(match code {
            1 => Refusal::UnknownKey,
            2 => Refusal::OutOfBounds,
            3 => Refusal::NotPermitted,
            4 => Refusal::Misaligned,
            5 => Refusal::Malformed,
            6 => Refusal::UnknownName,
            7 => Refusal::NoRoom,
            8 => Refusal::UnknownObject,
            9 => Refusal::NotAsked,
            10 => Refusal::Full,
            11 => Refusal::NoFifo,
            12 => Refusal::TooLong,
            13 => Refusal::NotPresent,
            14 => Refusal::Lost,
            15 => Refusal::NoMemory,
            16 => Refusal::Withdrawn,
            _ => return None,
        })
    }
}

/// Where the body of a fragmented message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// FastPath to its place: [`Handler::place`] is called for each byte range once. Only for
    /// unordered messages: an ordered one is collected as if `Assemble` had been said, because its
    /// bytes may not be seen before its turn.
    Place,
    /// Collected by Wind and handed over whole.
    Assemble,
    /// Not at all.
    Refuse(Refusal),
}

/// A message's body as it is handed over.
#[derive(Debug)]
pub enum Delivered<'a> {
    /// Whole, still in the datagram that brought it (or held back since).
    Bytes(&'a [u8]),
    /// Whole, collected from fragments.
    Owned(Vec<u8>),
    /// Already at its place, this many bytes.
    Placed(u64),
}

/// The layer above Wind. None of these may transmit; they mark what is due.
pub trait Handler {
    /// A message of several fragments has begun. Called once a message, before any byte of it.
    fn admit(&mut self, from: Rank, number: u64, class: Class, head: &[u8], len: u64) -> Admission;

    /// Would the body of such a message be placed, if it is admitted? Wind needs no room for it
    /// then (WIND-6.5). Where this says so, [`admit`](Self::admit) answers `Place` or `Refuse`.
    fn places(&self, class: Class, head: &[u8]) -> bool {
        let _ = (class, head);
        false
    }

    /// Does such a message cost credit, as its sender `said` or not (WIND-6.3)? What does not agree
    /// is refused.
    fn costs_credit(&self, head: &[u8], said: bool) -> bool {
        let _ = head;
        said
    }

    /// An empty buffer with room for so many bytes, for a message that was admitted with
    /// [`Admission::Assemble`]. It comes back as [`Delivered::Owned`]. `None`: there is no memory
    /// for it, and the message is refused.
    fn buffer(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(len).is_ok().then_some(buffer)
    }

    /// Bytes of a message admitted with [`Admission::Place`], each exactly once, already verified.
    fn place(&mut self, from: Rank, number: u64, offset: u64, bytes: &[u8]);

    /// From now on, whether what meets absent pages waits for them: what has begun and could be had
    /// only once does.
    fn wait_for_pages(&mut self, waits: bool) {
        let _ = waits;
    }

    /// A message is whole and its turn has come. Called exactly once a message that was not refused
    /// before.
    ///
    /// # Errors
    /// A refusal, which the sender is told reliably with the acknowledgement.
    fn deliver(
        &mut self,
        from: Rank,
        number: u64,
        class: Class,
        head: &[u8],
        body: Delivered<'_>,
    ) -> Result<(), Refusal>;

    /// The sender took a message back, admitted or never heard of: no more bytes of it come and it
    /// is not delivered.
    fn withdrawn(&mut self, from: Rank, number: u64) {
        let _ = (from, number);
    }

    /// The connection has failed or the peer has restarted: messages begun and not delivered will
    /// never be.
    fn abandon(&mut self, from: Rank);
}

/// Where calls go and what comes of them, during one datagram.
pub(super) struct Above<'u, U> {
    pub handler: &'u mut U,
    pub from: Rank,
    /// Refusals to be told, in the order in which they happened.
    pub refusals: &'u mut VecDeque<RefusedMessage>,
    pub delivered: &'u mut u64,
}

impl<U: Handler> Above<'_, U> {
    /// A message is refused.
    pub fn refuse(&mut self, number: u64, refusal: Refusal) {
        self.refusals.push_back(RefusedMessage { number, refusal });
    }

    /// Hand a message over; was it taken?
    pub fn deliver(&mut self, number: u64, class: Class, head: &[u8], body: Delivered<'_>) -> bool {
        *self.delivered += 1;
        let result = self.handler.deliver(self.from, number, class, head, body);
        if let Err(refusal) = result {
            self.refuse(number, refusal);
        }
        result.is_ok()
    }
}
