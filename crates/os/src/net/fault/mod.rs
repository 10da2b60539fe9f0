//! A link that loses, repeats, reorders, damages, forges and delays what another link delivers.

mod plan;
#[cfg(test)]
mod tests;

pub use plan::FaultDecision;
pub use plan::{
    Corruption, Fate, FaultPlan, FaultSettings, FaultSyntax, Tampering, VARIABLE as FAULT_VARIABLE,
};

use super::datagram::Arrival;
use super::link::{Link, ReceiveEach};
use super::sink::Sink;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time after which a reordered datagram that nothing overtakes is delivered all the same.
const REORDER_TIME: Duration = Duration::from_millis(1);
/// Maximum number of datagrams held back; more are lost, as in a router.
const HELD_MAX: usize = 4096;

/// Corrects the checksum of a changed datagram, so that the receiver does not notice the change.
pub trait Reseal: std::fmt::Debug + Send {
    /// Writes the tag that belongs to the bytes before it.
    fn reseal(&self, datagram: &mut [u8]);
}

/// Wraps a link. Faults happen on arrival, so each node's own seed decides the faults that it
/// suffers. Sending is not changed.
#[derive(Debug)]
pub struct Fault<L> {
    inner: L,
    plan: FaultPlan,
    held: HeldDatagrams,
    /// Corrects checksums. If `None`, datagrams that are tampered with keep their checksum, and the
    /// receiver drops them.
    reseal: Option<Box<dyn Reseal>>,
}

/// Datagrams that are delivered later.
#[derive(Debug, Default)]
struct HeldDatagrams {
    waiting: Vec<DelayedDatagram>,
}

#[derive(Debug)]
struct DelayedDatagram {
    from: SocketAddr,
    bytes: Vec<u8>,
    congested: bool,
    to_group: bool,
    due: Instant,
    /// Number of datagrams that must still come before this one; with [`u32::MAX`] only the time
    /// counts.
    overtakers: u32,
}

impl<L: Link> Fault<L> {
    /// Faults for `inner`, with these settings.
    pub fn new(inner: L, settings: FaultSettings) -> Fault<L> {
        Fault {
            inner,
            plan: FaultPlan::new(settings),
            held: HeldDatagrams::default(),
            reseal: None,
        }
    }

    /// Corrects the checksums of tampered datagrams with `reseal`.
    #[must_use]
    pub fn resealing(self, reseal: Box<dyn Reseal>) -> Fault<L> {
        Fault { reseal: Some(reseal), ..self }
    }

    /// Returns the probabilities of the faults.
    pub fn settings(&self) -> &FaultSettings {
        self.plan.settings()
    }

    fn receive_at(&mut self, now: Instant, take: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        let Fault { inner, plan, held, reseal } = self;
        let mut taken = 0;
        let mut give = |arrival: Arrival<'_>| {
            taken += 1;
            take(arrival);
        };
        held.expire(now, &mut give);
        inner.receive(&mut |arrival| {
            let decision = plan.decide();
            for fate in [decision.first, decision.second].into_iter().flatten() {
                if fate.is_prompt() && fate.corrupt.is_none() && fate.tamper.is_none() {
                    give(arrival);
                    held.overtake(&mut give);
                    continue;
                }
                let mut copy = arrival.bytes.to_vec();
                if let Some(tampering) = fate.tamper {
                    tampering.apply(&mut copy);
                    reseal.iter().for_each(|reseal| reseal.reseal(&mut copy));
                }
                if let Some(corruption) = fate.corrupt {
                    corruption.apply(&mut copy);
                }
                if fate.is_prompt() {
                    give(Arrival { bytes: &copy, ..arrival });
                    held.overtake(&mut give);
                } else {
                    held.keep(arrival, copy, fate, now);
                }
            }
        })?;
        Ok(taken)
    }
}

impl HeldDatagrams {
    /// Keeps a copy for later.
    fn keep(&mut self, arrival: Arrival<'_>, bytes: Vec<u8>, fate: Fate, now: Instant) {
        if self.waiting.len() < HELD_MAX {
            let (due, overtakers) = match fate.overtaken {
                0 => (now + fate.delay, u32::MAX),
                // Reordered and delayed: the delay begins the wait.
                others => (now + fate.delay.max(REORDER_TIME), u32::from(others)),
            };
            let Arrival { from, congested, to_group, .. } = arrival;
            let late = DelayedDatagram { from, bytes, congested, to_group, due, overtakers };
            self.waiting.push(late);
        }
    }

    /// Called when a datagram has come. Delivers the datagrams that now have been overtaken often
    /// enough.
    fn overtake(&mut self, give: &mut impl FnMut(Arrival<'_>)) {
        for late in &mut self.waiting {
            if late.overtakers != u32::MAX {
                late.overtakers = late.overtakers.saturating_sub(1);
            }
        }
        self.release(|late| late.overtakers == 0, give);
    }

    /// Delivers the datagrams whose time has come.
    fn expire(&mut self, now: Instant, give: &mut impl FnMut(Arrival<'_>)) {
        if self.waiting.iter().any(|late| late.due <= now) {
            self.waiting.sort_by_key(|late| late.due);
            self.release(|late| late.due <= now, give);
        }
    }

    fn release(
        &mut self,
        when: impl Fn(&DelayedDatagram) -> bool,
        give: &mut impl FnMut(Arrival<'_>),
    ) {
        self.waiting.retain(|late| {
            let now = when(late);
            if now {
                let &DelayedDatagram { from, congested, to_group, .. } = late;
                give(Arrival { from, bytes: &late.bytes, congested, to_group });
            }
            !now
        });
    }
}

impl<L: Link> Link for Fault<L> {
    forward_link!(self => (self.inner): send stall local_addresses properties prefers watch poll_too_big
        report_silence join_group leave_group route_group notice statistics);

    /// Without faults, datagrams may be received directly into their place.
    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        if self.settings().is_clear() {
            self.inner.receive_into(sink)
        } else {
            self.receive_at(Instant::now(), &mut |arrival| sink.take(arrival))
        }
    }

    fn receive_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        if self.settings().is_clear() {
            self.inner.receive_again(sink)
        } else {
            self.receive_into(sink)
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.held.waiting.iter().map(|late| late.due).chain(self.inner.next_wakeup()).min()
    }
}
