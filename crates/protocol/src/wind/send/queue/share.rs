//! Messages whose first flight goes by group datagrams (WIND-12.3). Their bytes do not take part in
//! the rotation of bulk before they are lost or no longer shared.

use super::super::outgoing::{BodyPiece, Outgoing, SharedStage, Sizes, Stage};
use super::{Outbox, full_fragment};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::event::PostError;
use crate::wind::send::message::Message;
use core::ops::Range;

impl Outbox {
    /// Accepts a message whose bytes wait for group datagrams.
    pub fn post_shared(&mut self, now: Time, message: Message) -> Result<u64, PostError> {
        self.add(now, message, true)
    }

    /// Returns `true` if bytes wait for group datagrams.
    pub fn has_shared(&self) -> bool {
        self.shared > 0
    }

    /// Returns what a message still needs of group datagrams.
    pub fn shared_stage(&self, number: u64) -> SharedStage {
        match self.get(number) {
            Some(Outgoing { shared: true, stage: Stage::Waiting, .. }) => SharedStage::Waiting,
            Some(Outgoing { shared: true, stage: Stage::Bulk(progress), .. }) => {
                SharedStage::Sending { next: progress.next }
            }
            _ => SharedStage::Ended,
        }
    }

    /// Returns the first range of a message that is to be sent again.
    pub fn first_lost(&self, number: u64) -> Option<Range<u64>> {
        match &self.get(number)?.stage {
            Stage::Bulk(progress) => progress.lost.iter().next(),
            _ => None,
        }
    }

    /// Returns the first piece of these bytes of a shared message, for datagrams of these sizes.
    /// `opened` tells whether all addressees know the message's beginning.
    pub fn shared_piece(
        &self,
        number: u64,
        bytes: Range<u64>,
        sizes: Sizes,
        opened: bool,
    ) -> Option<BodyPiece> {
        let message = self.get(number)?;
        let (offset, end) = (bytes.start, bytes.end.min(message.len));
        let len = full_fragment(sizes, message, opened).min(end.checked_sub(offset)?);
        let (last, was_sent) = (offset + len == message.len, false);
        Some(BodyPiece { number, offset, len: u32::try_from(len).ok()?, last, was_sent })
    }

    /// Advances a message after a group datagram has taken a piece of it.
    pub fn shared_sent(&mut self, piece: &BodyPiece) {
        let end = piece.offset + u64::from(piece.len);
        let Some(message) = self.get_mut(piece.number) else { return };
        let len = message.len;
        if let Stage::Bulk(progress) = &mut message.stage {
            progress.next = progress.next.max(end);
            progress.lost.remove(piece.offset..end);
            if progress.next == len {
                self.end_sharing(piece.number);
            }
            // Lost bytes may be sent again by now.
            self.drop_stale();
        }
    }

    /// Lets the bytes of a message that were never sent go by the bulk lane.
    pub fn unshare(&mut self, number: u64) {
        if !self.end_sharing(number) {
            return;
        }
        let Some(Outgoing { stage: Stage::Bulk(progress), len, .. }) = self.get_mut(number) else {
            return;
        };
        if progress.next == 0 {
            // Nothing was sent, so the message takes its turn as others do.
            self.enqueue(number);
        } else if progress.next < *len && !core::mem::replace(&mut progress.active, true) {
            self.rejoin(number);
        }
    }

    /// Lets the oldest message that has not arrived go by the bulk lane, if it is shared.
    pub(super) fn unshare_oldest(&mut self) {
        let has_arrived =
            |message: &Outgoing| matches!(message.stage, Stage::Acknowledged | Stage::Settled);
        if self.has_shared()
            && !planted(Bug::KeepOldestShared)
            && let Some(at) = self.messages.iter().position(|message| !has_arrived(message))
        {
            self.unshare(self.first + at as u64);
        }
    }

    /// Notes that no more bytes of a message wait for group datagrams. Returns `true` if some did.
    pub(super) fn end_sharing(&mut self, number: u64) -> bool {
        let shared =
            self.get_mut(number).is_some_and(|message| core::mem::take(&mut message.shared));
        self.shared -= usize::from(shared);
        shared
    }
}
