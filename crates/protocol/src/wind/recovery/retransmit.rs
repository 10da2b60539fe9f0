//! Retransmission: decides what is sent again and when, after a loss, after a probe timeout, or by
//! another port. The timer itself is in [`pto`](super::pto).

use super::pto::PtoAction;
use crate::limits::BULK_PORT_ROUNDS;
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::connection::Connection;
use crate::wind::event::Fallback;
use crate::wind::lanes::PerLane;
use crate::wind::metrics::counters::Statistics;
use crate::wind::mtu::Mtu;
use crate::wind::recovery::in_flight::{Cause, Item};
use crate::wind::recv::refusals::Refusals;
use crate::wind::send::queue::Outbox;
use crate::wire::header::Lane;
use arrayvec::ArrayVec;

/// Evidence that the peer is reached by its first port only (WIND-8.9).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BulkPortDoubt {
    /// Largest number that was acknowledged in the bulk lane. A silence of the lane ends when it
    /// changes.
    bulk_acked: u64,
    /// Least number of a small-lane datagram that is sent after the latest timeout, or 0 before the
    /// first.
    small_from: u64,
    /// Number of timeouts after which the small lane got an answer before the next timeout, and the
    /// bulk lane did not.
    rounds: u8,
}

impl BulkPortDoubt {
    /// Called when the probe timer of the bulk lane has run out, which needs `more` timeouts to try
    /// all its flows. Returns `true` if the evidence is enough, and then starts anew.
    ///
    /// A peer that stood still and runs again may answer the small lane first, but only in one
    /// round. In the next round it answers both.
    fn timed_out(&mut self, more: u8, bulk_acked: u64, small_acked: u64, small_next: u64) -> bool {
        if self.bulk_acked != bulk_acked {
            *self = BulkPortDoubt { bulk_acked, ..BulkPortDoubt::default() };
        }
        if self.small_from > 0 && small_acked >= self.small_from {
            self.rounds += 1;
        }
        self.small_from = small_next;
        let enough = self.rounds >= BULK_PORT_ROUNDS + more;
        if enough {
            *self = BulkPortDoubt::default();
        }
        enough
    }
}

/// Hashes nothing, because states that differ only in this are equal to the exhaustive model.
impl core::hash::Hash for BulkPortDoubt {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

impl Connection {
    /// Acts on a probe timeout: asks the peer or sends the oldest datagrams again, regardless of
    /// the window (WIND-5.4).
    pub(crate) fn probe(&mut self, now: Time, lane: Lane) {
        let Connection { sending, outbox, refusals, mtu, statistics, .. } = self;
        let sending = &mut sending[lane];
        let flight = &mut sending.flight;
        statistics.probe_timeouts += 1;
        let large = flight.has_large();
        let silence = flight
            .ran_out(now, |cause, items| lost(outbox, refusals, mtu, statistics, cause, items));
        let first = match silence {
            // A PING is small, so it also gets through a path that has become narrow.
            PtoAction::Ask => {
                self.ping[lane] = true;
                return;
            }
            PtoAction::Tail { first } => first,
            PtoAction::Lost { first } => {
                if first {
                    sending.stalled(now);
                }
                false
            }
        };
        statistics.tail_probes += u64::from(matches!(silence, PtoAction::Tail { .. }));
        // The first timeout most likely asks a slow peer.
        sending.probes = if first { 1 } else { sending.probes_at_once() };
        if large {
            mtu.timed_out();
        }
        self.recut();
        self.outbox.begin_with_lowest();
        self.doubt_bulk_port(lane);
    }

    /// Notes a timeout as evidence that something on the way lets only the first port pass
    /// (WIND-8.9).
    fn doubt_bulk_port(&mut self, lane: Lane) {
        if lane == Lane::Small || self.bulk_port().is_none() {
            return;
        }
        let PerLane { small, bulk } = &self.sending;
        let (small, bulk_acked) = (&small.flight, bulk.flight.largest_acked());
        let (acked, next) = (small.largest_acked(), small.next_number());
        let more = bulk.flows() / bulk.probes_at_once();
        if self.bulk_port_doubt.timed_out(more, bulk_acked, acked, next) {
            self.avoids_bulk_port = true;
            self.sending.bulk.use_first_flow();
            self.statistics.bulk_ports_shunned += 1;
            self.fall_back(Fallback::BulkPort);
        }
        // An answer to this PING shows that the port is at fault, not the peer.
        self.ping.small = true;
    }

    /// Returns the peer's separate port for the bulk lane, if it is in use.
    pub(crate) fn bulk_port(&self) -> Option<u16> {
        let port = self.handshake.them.map_or(0, |them| them.bulk_port);
        (port != 0 && !self.avoids_bulk_port).then_some(port)
    }

    pub(crate) fn detect_lost(&mut self, now: Time, lane: Lane) {
        let Connection { sending, outbox, refusals, mtu, statistics, .. } = self;
        let sending = &mut sending[lane];
        let latest = sending
            .flight
            .detect_lost(now, |cause, items| lost(outbox, refusals, mtu, statistics, cause, items));
        let cut = latest.map_or(0, |sent| sending.note_losses(now, sent));
        if cut > 0 {
            self.statistics.flows_cut += cut;
            self.fall_back(Fallback::Flow);
        }
        self.weigh_fast_paths(now, lane);
    }

    /// Decides whether to avoid a fast path because datagrams that took it were lost (WIND-8.10).
    pub(crate) fn weigh_fast_paths(&mut self, now: Time, lane: Lane) {
        let Connection { sending, statistics, .. } = self;
        let flight = &mut sending[lane].flight;
        if !flight.trains.is_doubtful() && !flight.bypass.is_doubtful() {
            return;
        }
        let verdicts = [
            (flight.trains.verdict(now), Fallback::Segmentation, &mut statistics.trains_avoided),
            (flight.bypass.verdict(now), Fallback::Bypass, &mut statistics.bypasses_avoided),
        ];
        let mut fallbacks = ArrayVec::<Fallback, 2>::new();
        for (verdict, fallback, count) in verdicts {
            if let Some(news) = verdict {
                *count += 1;
                fallbacks.extend(news.then_some(fallback));
            }
        }
        fallbacks.into_iter().for_each(|fallback| self.fall_back(fallback));
    }
}

/// Queues the content of a lost datagram again (WIND-5.5).
pub(crate) fn lost(
    outbox: &mut Outbox,
    refusals: &mut Refusals,
    mtu: &mut Mtu,
    statistics: &mut Statistics,
    cause: Cause,
    items: &mut dyn Iterator<Item = Item>,
) {
    let mut items = items.peekable();
    if items.next_if_eq(&Item::SizeProbe).is_some() {
        statistics.size_probes_lost += 1;
        return mtu.probe_lost(matches!(cause, Cause::Reordering | Cause::Time));
    }
    *match cause {
        Cause::Reordering => &mut statistics.lost_by_reordering,
        Cause::Time => &mut statistics.lost_by_time,
        Cause::Probe | Cause::Silence => &mut statistics.lost_by_probe,
        Cause::Size => &mut statistics.lost_by_size,
    } += 1;
    if planted(Bug::ForgetRetransmission) || (planted(Bug::ForgetProbed) && cause == Cause::Probe) {
        return;
    }
    for item in items {
        match item {
            Item::Message(number) | Item::Withdrawal(number) => outbox.lost_small(number),
            Item::Fragment { message, offset, len } => {
                let len = u64::from(len) - u64::from(planted(Bug::RepeatTooLittle));
                outbox.lost_fragment(message, offset..offset + len);
            }
            Item::AckSent { .. } | Item::GroupAckSent { .. } => refusals.report_again(),
            // It goes again until it is acknowledged.
            Item::SizeProbe | Item::SettledSent(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DATAGRAM_MIN;
    use crate::wind::mtu::black_hole::SizeEvidence;

    /// WIND-8.3: a size probe that was given up with all datagrams of its size was not overtaken,
    /// and refutes nothing.
    #[test]
    fn a_size_probe_that_is_given_up_is_no_proof() {
        let mut mtu = Mtu::new(8952);
        let small =
            SizeEvidence { acked: 100, longest_acked: DATAGRAM_MIN, ..SizeEvidence::default() };
        assert!(mtu.weigh(Time(0), SizeEvidence { large_lost: 3, least_lost: 8952, ..small }));
        for cause in [Cause::Size, Cause::Probe, Cause::Time] {
            for _ in 0..3 {
                assert_eq!(mtu.probe(), 8952);
                let mut items = [Item::SizeProbe].into_iter();
                lost(
                    &mut Outbox::new(),
                    &mut Refusals::default(),
                    &mut mtu,
                    &mut Statistics::default(),
                    cause,
                    &mut items,
                );
            }
            mtu.weigh(Time(0), small);
        }
        assert_ne!(mtu.probe(), 8952, "what was overtaken refutes");
    }
}
