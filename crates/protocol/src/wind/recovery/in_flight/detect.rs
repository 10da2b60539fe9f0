//! Loss detection: declares datagrams lost that were overtaken, are too large for their path, or
//! were not acknowledged for too long (WIND-5.2, WIND-5.4, WIND-8.4).

use super::super::flow::FlowRecord;
use super::super::loss::{self, Verdict};
use super::super::pto::PtoAction;
use super::{Cause, Flight, Item};
use crate::limits::ACK_DELAY;
use crate::time::Time;
use crate::wind::recovery::spurious::LostDatagram;
use crate::wind::send::mode::Evidence;

/// Maximum number of datagrams whose content a tail probe sends again (RFC 9002, section 6.2.4).
const PROBED: usize = 2;

impl Flight {
    /// Finds the datagrams that are lost by now, and calls `on_lost` for the items of each. Returns
    /// when the latest of them was sent.
    pub fn detect_lost(
        &mut self,
        now: Time,
        mut on_lost: impl FnMut(Cause, &mut dyn Iterator<Item = Item>),
    ) -> Option<Time> {
        self.loss_time = None;
        if !self.more.is_empty() {
            return self.detect_lost_of_flows(now, on_lost);
        }
        let overtaker = self.record.overtaker?;
        let (window, threshold) =
            (self.record.reordering.window(&self.record.rtt), self.record.reordering.threshold());
        let mut latest = None;
        let mut at = 0;
        while let Some(sent) = self.sent.get(at) {
            let number = self.first + at as u64;
            if number >= overtaker.number {
                break;
            }
            if sent.bytes > 0 {
                let cause = match loss::judge((number, sent.at), overtaker, window, threshold, now)
                {
                    Verdict::LostByReordering => Cause::Reordering,
                    Verdict::LostByTime => Cause::Time,
                    Verdict::Wait(until) => {
                        self.loss_time = Some(until);
                        break;
                    }
                };
                latest = self.lose(at, now, cause, true, &mut on_lost).flatten().or(latest);
            }
            at += 1;
        }
        self.trim();
        latest
    }

    /// Does the same for several flows, each for itself (WIND-14.4). Only time proves a loss,
    /// because numbers of one flow do not follow each other. A datagram that nothing of its flow
    /// has overtaken is lost when its flow was silent for too long, while a later datagram of
    /// another flow has arrived (WIND-14.5).
    fn detect_lost_of_flows(
        &mut self,
        now: Time,
        mut on_lost: impl FnMut(Cause, &mut dyn Iterator<Item = Item>),
    ) -> Option<Time> {
        let largest = self.largest_acked();
        let silence = self.slowest().pessimistic() + ACK_DELAY;
        let (mut latest, mut at) = (None, 0);
        // Flows whose oldest datagram waits, as a bit each. Later ones wait longer.
        let (mut waiting, all) = (0u32, (2u32 << self.more.len()) - 1);
        while let Some(sent) = self.sent.get(at).filter(|_| waiting != all) {
            let number = self.first + at as u64;
            if number >= largest {
                break;
            }
            let (index, sent_at) = (sent.flow, sent.at);
            if sent.bytes > 0 && waiting & (1 << index) == 0 {
                let flow = self.flow(index);
                let overtaker = flow.overtaker.filter(|overtaker| overtaker.number > number);
                let (cause, until) = match overtaker {
                    Some(overtaker) => {
                        let window = flow.reordering.window(&flow.rtt);
                        (Cause::Time, sent_at + overtaker.round_trip + window)
                    }
                    None => (Cause::Silence, sent_at + silence),
                };
                if until > now {
                    waiting |= 1 << index;
                    self.loss_time = Some(self.loss_time.map_or(until, |time| time.min(until)));
                } else if let Some(sent) = self.lose(at, now, cause, true, &mut on_lost).flatten() {
                    let share = self.flow_mut(index).share_mut();
                    share.lost = share.lost.max(Some(sent));
                    if cause == Cause::Silence {
                        share.silence.lost(sent, now);
                    }
                    latest = latest.max(Some(sent));
                }
            }
            at += 1;
        }
        self.trim();
        latest
    }

    /// Declares a datagram lost, if it is in flight. `counts` means that the window will be reduced
    /// for it. Returns when the datagram was sent, or an inner `None` for a size probe, whose loss
    /// says nothing about congestion (WIND-8.2). Returns an outer `None` if the datagram was not in
    /// flight.
    fn lose(
        &mut self,
        at: usize,
        now: Time,
        cause: Cause,
        counts: bool,
        on_lost: &mut impl FnMut(Cause, &mut dyn Iterator<Item = Item>),
    ) -> Option<Option<Time>> {
        let (sent, items) = self.retire(at)?;
        on_lost(cause, &mut self.items.range(items.clone()).copied());
        if self.is_size_probe(&items) {
            return Some(None);
        }
        if !self.more.is_empty() {
            self.flow_mut(sent.flow).share_mut().losses += 1;
        }
        let number = self.first + at as u64;
        if matches!(cause, Cause::Reordering | Cause::Time | Cause::Silence) {
            self.sizes.lost(number, u32::from(sent.bytes));
        }
        match sent.kind {
            _ if matches!(cause, Cause::Size | Cause::Silence) => {}
            Evidence::Segment => self.trains.lost(sent.at, now),
            Evidence::Alone => self.bypass.lost(sent.at, now),
            Evidence::Plain => {}
        }
        let event = counts.then(|| {
            let flow = self.flow_mut(sent.flow);
            let (event, begins) = flow.episode.lost(sent.at, now);
            if begins {
                flow.reordering.event();
            }
            event
        });
        let (bytes, flow) = (u32::from(sent.bytes), sent.flow);
        let doubt = LostDatagram { number, sent: sent.at, bytes, cause, flow, event };
        self.suspected.add(doubt, self.items.range(items).copied());
        Some(Some(sent.at))
    }

    /// Declares datagrams in flight of more than `size` bytes lost, because the path does not carry
    /// them. That is not congestion (WIND-8.4).
    pub fn give_up_larger(
        &mut self,
        now: Time,
        size: usize,
        mut on_lost: impl FnMut(Cause, &mut dyn Iterator<Item = Item>),
    ) {
        for at in 0..self.sent.len() {
            if self.sent.get(at).is_some_and(|sent| usize::from(sent.bytes) > size) {
                self.lose(at, now, Cause::Size, false, &mut on_lost);
            }
        }
        self.trim();
    }

    /// Declares all datagrams in flight lost. Called when nobody waits for their acknowledgements
    /// any more.
    pub fn give_up(
        &mut self,
        now: Time,
        mut on_lost: impl FnMut(Cause, &mut dyn Iterator<Item = Item>),
    ) {
        for at in 0..self.sent.len() {
            self.lose(at, now, Cause::Probe, false, &mut on_lost);
        }
        self.trim();
    }

    /// Called when the probe timer ran out, and returns what that means. None, the oldest two or
    /// all of the datagrams in flight count as lost, so that their content is sent again
    /// (WIND-5.4).
    pub fn ran_out(
        &mut self,
        now: Time,
        mut on_lost: impl FnMut(Cause, &mut dyn Iterator<Item = Item>),
    ) -> PtoAction {
        let silence = self.probe.ran_out();
        let (mut left, counts) = match silence {
            PtoAction::Ask => (0, false),
            PtoAction::Tail { .. } => (PROBED, false),
            // The window is reduced only at the first such timeout.
            PtoAction::Lost { first } => {
                // Nothing arrives by any flow, so none is worse than the others.
                self.flows_mut().for_each(FlowRecord::forgive);
                (usize::MAX, first)
            }
        };
        let mut at = 0;
        while left > 0 && at < self.sent.len() {
            if self.lose(at, now, Cause::Probe, counts, &mut on_lost).flatten().is_some() {
                left -= 1;
            }
            at += 1;
        }
        self.trim();
        silence
    }
}
