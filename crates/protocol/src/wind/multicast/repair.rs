//! Repair by group datagrams: bytes that several members have lost go to all of them at once
//! (WIND-12.7). What is not repaired so goes to each of them by its connection.

use super::stream::{GroupStream, Members, SharedMessage};
use crate::limits::{GROUP_RECEIVERS_MIN, GROUP_REPAIRED_MESSAGES};
use crate::time::Time;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of a message that a group datagram is to carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedPiece {
    /// Indices of the addressees, in order, and the number of the message for each.
    pub to: Vec<(u8, u64)>,
    /// Range of the body from which the datagram takes as many bytes as fit.
    pub bytes: Range<u64>,
    /// Whether the bytes were never sent.
    pub is_first_flight: bool,
}

impl GroupStream {
    /// Notes that a message was sent as a whole to these members.
    pub(super) fn note_sent(&mut self, to: Vec<(u8, u64)>) {
        self.sent.truncate(GROUP_REPAIRED_MESSAGES - 1);
        self.sent.push_front(SharedMessage { offset: u64::MAX, to });
    }

    /// Returns bytes that at least half of the addressees of a message have lost, if all of these
    /// have room for a datagram. Looks for them only after something was lost.
    pub(super) fn find_repair(
        &mut self,
        now: Time,
        members: &mut impl Members,
    ) -> Option<PlannedPiece> {
        if !self.has_losses {
            return None;
        }
        let found = self
            .sent
            .iter()
            .chain(self.queue.front())
            .find_map(|message| self.lost_by_many(message, now, members));
        self.has_losses = found.is_some();
        found
    }

    fn lost_by_many(
        &self,
        message: &SharedMessage,
        now: Time,
        members: &mut impl Members,
    ) -> Option<PlannedPiece> {
        let mut to = Vec::new();
        let mut common: Option<Range<u64>> = None;
        for &(index, number) in &message.to {
            let member = self.members.get(usize::from(index)).filter(|member| member.is_proven());
            let connection = member.and_then(|member| members.connection(member.rank));
            let Some((connection, lost)) = connection.and_then(|connection| {
                let lost = connection.group_lost(self.id(), number)?;
                Some((connection, lost))
            }) else {
                continue;
            };
            if !connection.group_has_room(now) {
                return None;
            }
            let range = common.unwrap_or(lost.clone());
            common = Some(range.start.max(lost.start)..range.end.min(lost.end));
            to.push((index, number));
        }
        let enough = to.len() >= GROUP_RECEIVERS_MIN && to.len() * 2 >= message.to.len();
        let bytes = common.filter(|bytes| enough && !bytes.is_empty())?;
        Some(PlannedPiece { to, bytes, is_first_flight: false })
    }
}
