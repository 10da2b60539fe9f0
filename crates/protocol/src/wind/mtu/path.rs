//! Path MTU changes of a connection (WIND-8): applies what [`Mtu`](crate::wind::mtu) finds out.

use crate::time::Time;
use crate::wind::connection::Connection;
use crate::wind::event::Fallback;
use crate::wind::lanes::Sending;
use crate::wind::recovery::retransmit::lost;
use crate::wind::send::outgoing::Sizes;
use crate::wire::header::Lane;

impl Connection {
    /// Updates the path MTU from the datagrams of a lane that were acknowledged and lost (WIND-8).
    pub(crate) fn weigh_sizes(&mut self, now: Time, lane: Lane) {
        let seen = self.sending[lane].flight.sizes.take();
        if self.mtu.weigh(now, seen) {
            self.statistics.black_holes += 1;
            self.give_up_larger(now);
        }
        if let Some((promised, carried)) = self.mtu.narrower() {
            self.fall_back(Fallback::Size { promised, carried });
        }
        self.recut();
    }

    /// Called when the system has refused to send a datagram to the peer's candidate address
    /// `path`. According to the system, at most `fits` bytes get there (WIND-8.8).
    pub fn too_big(&mut self, now: Time, path: u8, fits: usize) {
        let bulk = &self.sending.bulk;
        let is_used = |first| (0..bulk.flows()).any(|flow| bulk.path_of(flow, first) == path);
        if !self.is_established() || !self.path().is_some_and(is_used) {
            return;
        }
        if self.mtu.limit_reported(now, fits) {
            self.give_up_larger(now);
        }
        self.recut();
    }

    /// Gives up datagrams in flight that are larger than the path MTU, which is not a sign of
    /// congestion (WIND-8.4).
    fn give_up_larger(&mut self, now: Time) {
        let Connection { sending, outbox, refusals, mtu, statistics, .. } = self;
        let size = mtu.size();
        for Sending { flight, .. } in sending.both_mut() {
            flight.give_up_larger(now, size, |cause, items| {
                lost(outbox, refusals, mtu, statistics, cause, items)
            });
        }
    }

    /// Fragments queued messages for the current path MTU, and scales the windows to datagrams of
    /// that size (WIND-6.2). The size may have changed much earlier, for instance when a size probe
    /// arrived.
    pub(crate) fn recut(&mut self) {
        let sizes = Sizes::within(self.mtu.size(), self.settings.seal);
        if !self.outbox.is_cut(sizes) {
            self.outbox.resize(sizes);
            let size = self.mtu.size() as u64;
            self.sending.both_mut().into_iter().for_each(|sending| sending.resized(size));
        }
    }
}
