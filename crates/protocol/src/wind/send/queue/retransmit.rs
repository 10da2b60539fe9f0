//! Retransmission of messages, and fragmenting them anew: after a loss, after a timeout, and when
//! the path has become narrower.

use super::super::outgoing::{Outgoing, Sizes, Stage};
use super::Outbox;
use crate::planted::{Bug, planted};
use core::ops::Range;

impl Outbox {
    /// Returns `true` if queued messages are fragmented for datagrams of this size.
    pub fn is_cut(&self, sizes: Sizes) -> bool {
        self.sizes == Some(sizes)
    }

    /// Sets the size of datagrams. Whole messages that wait and no longer fit are sent in fragments
    /// (WIND-2.4).
    pub fn resize(&mut self, sizes: Sizes) {
        self.sizes = Some(sizes);
        let mut small = core::mem::take(&mut self.small);
        small.retain(|&number| {
            let stays = self.get(number).is_none_or(|message| {
                message.stage != Stage::Small { queued: true } || sizes.hold(message)
            });
            if !stays {
                self.enqueue_bulk(number);
            }
            stays
        });
        self.small = small;
        self.drop_stale();
    }

    /// Queues a whole message or withdrawal again, whose datagram was lost.
    pub fn lost_small(&mut self, number: u64) {
        let sizes = self.sizes.unwrap_or_default();
        let Some(message) = self.get_mut(number) else { return };
        if message.stage == (Stage::Small { queued: false }) && !sizes.hold(message) {
            return self.enqueue_bulk(number);
        }
        let again = match &mut message.stage {
            Stage::Withdrawn { .. } if planted(Bug::ForgetWithdrawal) => false,
            Stage::Small { queued } | Stage::Withdrawn { queued } => {
                !core::mem::replace(queued, true)
            }
            // The message is sent in fragments by now, and these carry its beginning.
            Stage::Bulk(_) | Stage::Waiting | Stage::Acknowledged | Stage::Settled => false,
        };
        if again {
            // The queue is sorted, except for a few withdrawals. Messages that others wait for go
            // first.
            let at = self.small.partition_point(|queued| *queued < number);
            self.small.insert(at, number);
        }
    }

    /// Queues these bytes again, whose datagram was lost.
    pub fn lost_fragment(&mut self, number: u64, bytes: Range<u64>) {
        let Some(Outgoing { stage: Stage::Bulk(progress), .. }) = self.get_mut(number) else {
            return;
        };
        for missing in progress.acked.missing(bytes) {
            progress.lost.insert(missing);
        }
        if !progress.lost.is_empty() && !core::mem::replace(&mut progress.active, true) {
            self.rejoin(number);
        }
    }

    /// Puts a message back into the rotation, before all with greater numbers.
    pub(super) fn rejoin(&mut self, number: u64) {
        let at = self.bulk.iter().position(|active| *active > number).unwrap_or(self.bulk.len());
        self.bulk.insert(at, number);
        self.run = 0;
    }

    /// Begins with the lowest numbers again. Called when nothing is acknowledged, because the peer
    /// may have room only for the message that all others wait for (WIND-6.5). That message is no
    /// longer shared, because the other addressees may wait in the same way (WIND-12.3).
    pub fn begin_with_lowest(&mut self) {
        self.unshare_oldest();
        self.small.make_contiguous().sort_unstable();
        while self
            .bulk_waiting
            .front()
            .is_some_and(|waiting| self.bulk.iter().any(|active| active > waiting))
        {
            self.activate(self.bulk.len() + 1);
        }
        self.bulk.make_contiguous().sort_unstable();
        self.run = 0;
        self.drop_stale();
    }
}
