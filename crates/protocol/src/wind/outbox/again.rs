//! What goes again, or goes otherwise: after a loss, after a timeout, when the path has become
//! narrower.

use super::super::outgoing::{Outgoing, Sizes, Stage};
use super::Outbox;
use crate::planted::{Bug, planted};
use core::ops::Range;

impl Outbox {
    /// Is what waits cut for datagrams of this size?
    pub fn is_cut(&self, sizes: Sizes) -> bool {
        self.sizes == Some(sizes)
    }

    /// Datagrams have another size from now on. Whole messages that wait and do not fit any more go
    /// in fragments (WIND-2.4).
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

    /// A datagram with this whole message or withdrawal was lost.
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
            // It goes in fragments by now, and they carry its beginning.
            Stage::Bulk(_) | Stage::Waiting | Stage::Acknowledged | Stage::Settled => false,
        };
        if again {
            // The queue is sorted but for a few withdrawals; what others wait for goes first.
            let at = self.small.partition_point(|queued| *queued < number);
            self.small.insert(at, number);
        }
    }

    /// A datagram with these bytes was lost.
    pub fn lost_fragment(&mut self, number: u64, bytes: Range<u64>) {
        let Some(Outgoing { stage: Stage::Bulk(progress), .. }) = self.get_mut(number) else {
            return;
        };
        for missing in progress.acked.missing(bytes) {
            progress.lost.insert(missing);
        }
        if !progress.lost.is_empty() && !core::mem::replace(&mut progress.active, true) {
            let at =
                self.bulk.iter().position(|active| *active > number).unwrap_or(self.bulk.len());
            self.bulk.insert(at, number);
            self.run = 0;
        }
    }

    /// Nothing is acknowledged any more; perhaps the peer has room only for the message that all
    /// others wait for. Begin with the lowest numbers again (WIND-6.5).
    pub fn begin_with_lowest(&mut self) {
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
