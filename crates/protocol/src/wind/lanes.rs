//! The two lanes of a connection (WIRE-2.7, WIND-3.6): what each of them keeps for itself.

use super::Settings;
use super::congestion::{Controller, Gate};
use super::flight::Flight;
use crate::limits::DATAGRAM_MIN;
use crate::time::Time;
use crate::wire::Lane;
use alloc::boxed::Box;
use core::ops::{Index, IndexMut};

/// One of a kind for each lane.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub struct PerLane<T> {
    /// The small lane's.
    pub small: T,
    /// The bulk lane's.
    pub bulk: T,
}

impl<T> PerLane<T> {
    /// Made for each.
    pub fn each(mut make: impl FnMut(Lane) -> T) -> PerLane<T> {
        PerLane { small: make(Lane::Small), bulk: make(Lane::Bulk) }
    }

    /// The small lane's, and the bulk lane's.
    pub fn both(&self) -> [&T; 2] {
        [&self.small, &self.bulk]
    }

    /// As [`both`](Self::both), to change.
    pub fn both_mut(&mut self) -> [&mut T; 2] {
        [&mut self.small, &mut self.bulk]
    }
}

impl<T> Index<Lane> for PerLane<T> {
    type Output = T;

    fn index(&self, lane: Lane) -> &T {
        match lane {
            Lane::Small => &self.small,
            Lane::Bulk => &self.bulk,
        }
    }
}

impl<T> IndexMut<Lane> for PerLane<T> {
    fn index_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Small => &mut self.small,
            Lane::Bulk => &mut self.bulk,
        }
    }
}

/// A lane's way out: what is in flight, and what may go.
pub(super) struct Sending {
    pub flight: Flight,
    pub controller: Box<dyn Controller>,
    pub gate: Gate,
    /// Datagrams that may go although the window is full, and must go although there is nothing to
    /// say.
    pub probes: u8,
}

impl Sending {
    /// Before anything is known of the peer.
    pub fn new(settings: &Settings) -> Sending {
        Sending {
            flight: Flight::new(settings.failure_time),
            controller: settings.congestion.controller(DATAGRAM_MIN as u64, DATAGRAM_MIN as u64),
            gate: Gate::default(),
            probes: 0,
        }
    }

    /// Bytes that may be in flight.
    pub fn window(&self, now: Time) -> u64 {
        self.gate.window(&*self.controller, now)
    }

    /// May something that must be acknowledged go?
    pub fn has_room(&self, now: Time) -> bool {
        self.probes > 0 || self.flight.in_flight() < self.window(now)
    }

    /// When the pace lets the next fragment go, if nothing else is in its way.
    pub fn pace_time(&self) -> Option<Time> {
        self.gate.opens().filter(|_| self.flight.in_flight() < self.controller.window())
    }

    /// The earliest at which something in flight is to be given up or asked for.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.flight.loss_time(), self.flight.probe_time(), self.flight.follow_time()]
            .into_iter()
            .flatten()
            .min()
    }
}
