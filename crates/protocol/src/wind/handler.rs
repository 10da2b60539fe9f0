//! [`Handler`]: the interface of the layer above Wind, to which messages are delivered.

use crate::Rank;
use crate::bytes::Invalid;
use crate::planted::{Bug, planted};
use crate::wind::send::message::Class;
use crate::wire::acknowledge::RefusedMessage;
use crate::wire::group::Carrier;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

crate::wire_enum! {
    /// Reason why the layer above refused a message. The sender is told, and its message is settled
    /// as refused.
    #[derive(thiserror::Error)]
    pub enum Refusal {
        /// No region has this key; the key was never published, was withdrawn, or is forged.
        #[error("no region has this key (never published, withdrawn, or a key of another run)")]
        UnknownKey = 1,
        /// The end of the range (offset + length) is past the region's end.
        #[error("offset + length lies outside the region")]
        OutOfBounds = 2,
        /// The region does not grant this right.
        #[error("the region does not grant this right")]
        NotPermitted = 3,
        /// The address of an atomic operation is not a multiple of its width.
        #[error("an atomic must be aligned to its width")]
        Misaligned = 4,
        /// The head is malformed.
        #[error("the peer could not make sense of the request")]
        Malformed = 5,
        /// Nothing is published under this name.
        #[error("nothing is published under this name")]
        UnknownName = 6,
        /// The peer has no room.
        #[error("the peer has no room for this message")]
        NoRoom = 7,
        /// The peer does not know the array, lock or collective.
        #[error("the peer does not know this shared object")]
        UnknownObject = 8,
        /// The answer belongs to no outstanding request: the request was never made, was cancelled,
        /// or was answered before.
        #[error(
            "no outstanding request asked for this answer (it was cancelled, or answered before)"
        )]
        NotAsked = 9,
        /// The FIFO is full.
        #[error("the FIFO is full")]
        Full = 10,
        /// The target of a push is not a FIFO, or is no longer one.
        #[error("there is no FIFO at this place, or somebody has written over it")]
        NoFifo = 11,
        /// The element does not fit into the slots of its FIFO.
        #[error("the element is longer than the FIFO's slots")]
        TooLong = 12,
        /// Pages of the range are not in memory now and are being fetched. The sender may send the
        /// message again.
        #[error(
            "pages of this range are not in the peer's memory, and could not be fetched in time"
        )]
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
        /// The sender has named too many keys that no region had (MEM-1.16).
        #[error("this node has named too many keys that no region of the peer ever had, so the peer serves none of its requests by key any more")]
        Barred = 17,
        /// The home of a page has moved to another node (COH-11.5).
        #[error("the home of a page has moved to another node")]
        Moved = 18,
    }
}

impl From<Invalid> for Refusal {
    fn from(Invalid: Invalid) -> Refusal {
        Refusal::Malformed
    }
}

/// Destination of a fragmented message's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Placed directly: [`Handler::place`] is called once for each byte range. Only unordered
    /// messages are placed. An ordered message is reassembled as with `Assemble`, because its bytes
    /// may not be visible before its turn.
    Place,
    /// Reassembled by Wind and delivered whole.
    Assemble,
    /// Refuse the message.
    Refuse(Refusal),
}

/// A message's body as it is delivered.
#[derive(Debug)]
pub enum Delivered<'a> {
    /// Whole body, still in the datagram that brought it or in a buffer that held it back since.
    Bytes(&'a [u8]),
    /// Whole body, reassembled from fragments.
    Owned(Vec<u8>),
    /// Length in bytes of a body that is already in its place.
    Placed(u64),
}

/// The layer above Wind. None of its methods may transmit. They mark what is due.
pub trait Handler {
    /// Called when a message of several fragments begins, once for each message, before any of its
    /// bytes.
    fn admit(&mut self, from: Rank, number: u64, class: Class, head: &[u8], len: u64) -> Admission;

    /// Returns `true` if the body of such a message would be placed when admitted. Wind then needs
    /// no room for it (WIND-6.5). If this returns `true`, [`admit`](Self::admit) returns `Place` or
    /// `Refuse`.
    fn places(&self, class: Class, head: &[u8]) -> bool {
        let _ = (class, head);
        false
    }

    /// Called for a fragmented message that [`admit`](Self::admit) has admitted with
    /// [`Admission::Assemble`], if every earlier message of the peer is delivered or being placed,
    /// or if the message is unordered. Returns `true` if the bytes go to their place as they
    /// arrive. The message is delivered in its turn all the same, as [`Delivered::Placed`]
    /// (WIND-2.12).
    fn places_until_turn(&mut self, from: Rank, number: u64, head: &[u8], len: u64) -> bool {
        let _ = (from, number, head, len);
        false
    }

    /// Returns `true` if such a message may come by group datagrams, which any member of a
    /// multicast stream can have written (WIND-12.13).
    fn may_be_shared(&self, class: Class, head: &[u8]) -> bool {
        let _ = (class, head);
        false
    }

    /// Returns `true` if such a message costs credit (WIND-6.3). `said` is the sender's statement.
    /// A message whose sender says otherwise is refused.
    fn costs_credit(&self, head: &[u8], said: bool) -> bool {
        let _ = head;
        said
    }

    /// Returns `true` if the body of such a message costs credit, too, if the message costs any
    /// (WIND-6.3).
    fn charges_body(&self, head: &[u8]) -> bool {
        let _ = head;
        true
    }

    /// Returns an empty buffer with room for `len` bytes, for a message admitted with
    /// [`Admission::Assemble`]. The buffer comes back as [`Delivered::Owned`]. Returns `None` if
    /// there is no memory for it, and the message is then refused.
    fn buffer(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(len).is_ok().then_some(buffer)
    }

    /// Called when a message with a body of `len` bytes is refused for lack of memory or room,
    /// which the handler has not refused itself.
    fn refused(&mut self, from: Rank, head: &[u8], len: u64) {
        let _ = (from, head, len);
    }

    /// Places bytes of a message that is placed, not reassembled. Each byte comes exactly once
    /// and is already verified.
    fn place(&mut self, from: Rank, number: u64, offset: u64, bytes: &[u8]);

    /// Sets whether operations on absent pages wait for the pages from now on. They wait if the
    /// operation has begun and its data could be had only once.
    fn wait_for_pages(&mut self, waits: bool) {
        let _ = waits;
    }

    /// Called when a message is whole and its turn has come, exactly once for each message that was
    /// not refused before.
    ///
    /// # Errors
    /// A refusal, which the acknowledgement reports reliably to the sender.
    fn deliver(
        &mut self,
        from: Rank,
        number: u64,
        class: Class,
        head: &[u8],
        body: Delivered<'_>,
    ) -> Result<(), Refusal>;

    /// Called when the sender has withdrawn a message, whether admitted or never seen. No more of
    /// its bytes come, and it is not delivered.
    fn withdrawn(&mut self, from: Rank, number: u64) {
        let _ = (from, number);
    }

    /// Called when what only group datagrams have told of a message does not count: the connection
    /// says otherwise, or the handler has refused it. The message may begin anew with another head,
    /// even if it was delivered (WIND-12.12).
    fn replaced(&mut self, from: Rank, number: u64) {
        self.withdrawn(from, number);
    }

    /// Called when the connection has failed or the peer has restarted. Messages that have begun
    /// and were not delivered never will be.
    fn abandon(&mut self, from: Rank);
}

/// Target of upcalls and collector of their results, during one datagram.
pub(super) struct UpcallTarget<'u, U> {
    pub handler: &'u mut U,
    pub from: Rank,
    /// Refusals to be reported to the sender, oldest first.
    pub refusals: &'u mut VecDeque<RefusedMessage>,
    pub delivered: &'u mut u64,
}

impl<U: Handler> UpcallTarget<'_, U> {
    /// Returns the bytes of a body of `len` bytes that cost credit, or `None` if the message costs
    /// none.
    pub fn charge(&self, credited: bool, head: &[u8], len: u64) -> Option<u64> {
        credited.then(|| if self.handler.charges_body(head) { len } else { 0 })
    }

    /// Queues a refusal of a message.
    pub fn refuse(&mut self, number: u64, refusal: Refusal) {
        self.refusals.push_back(RefusedMessage { number, refusal });
    }

    /// Delivers a message whose beginning this carrier has told. Returns `true` if the layer above
    /// accepted it. A refusal of what only group datagrams have told is not reported (WIND-12.11).
    pub fn deliver(
        &mut self,
        carrier: Carrier,
        number: u64,
        class: Class,
        head: &[u8],
        body: Delivered<'_>,
    ) -> bool {
        *self.delivered += 1;
        let result = self.handler.deliver(self.from, number, class, head, body);
        match result {
            Err(refusal) if carrier == Carrier::Connection || planted(Bug::RefuseForged) => {
                self.refuse(number, refusal);
            }
            _ => {}
        }
        result.is_ok()
    }
}
