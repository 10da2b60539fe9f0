//! Lanes of a connection (WIRE-2.7, WIND-3.6): the state that each of the two lanes has for itself.

use super::congestion::{Controller, Gate};
use crate::limits::DATAGRAM_MIN;
use crate::time::Time;
use crate::wind::recovery::in_flight::Flight;
use crate::wind::settings::Settings;
use crate::wire::header::Lane;
use alloc::boxed::Box;
use core::ops::{Index, IndexMut};

/// One value for each lane.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub struct PerLane<T> {
    /// Value of the small lane.
    pub small: T,
    /// Value of the bulk lane.
    pub bulk: T,
}

impl<T> PerLane<T> {
    /// Makes a value for each lane.
    pub fn each(mut make: impl FnMut(Lane) -> T) -> PerLane<T> {
        PerLane { small: make(Lane::Small), bulk: make(Lane::Bulk) }
    }

    /// Returns the values of the small lane and of the bulk lane.
    pub fn both(&self) -> [&T; 2] {
        [&self.small, &self.bulk]
    }

    /// Like [`both`](Self::both), but mutable.
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

/// Sending state of a lane: the datagrams in flight, and what may be sent.
pub(super) struct Sending {
    pub flight: Flight,
    pub controller: Box<dyn Controller>,
    pub gate: Gate,
    /// Number of datagrams that may be sent although the window is full, and must be sent even
    /// without content.
    pub probes: u8,
}

impl Sending {
    /// Creates the state before anything is known of the peer.
    pub fn new(settings: &Settings, lane: Lane) -> Sending {
        let skip_seed = settings.private_seed.rotate_left(lane as u32);
        Sending {
            flight: Flight::new(settings.failure_time, skip_seed),
            controller: settings.congestion.controller(DATAGRAM_MIN as u64, DATAGRAM_MIN as u64),
            gate: Gate::default(),
            probes: 0,
        }
    }

    /// Returns the number of bytes that may be in flight.
    pub fn window(&self, now: Time) -> u64 {
        self.gate.window(&*self.controller, now)
    }

    /// Returns `true` if a datagram that must be acknowledged may be sent.
    pub fn has_room(&self, now: Time) -> bool {
        self.probes > 0 || self.flight.in_flight() < self.window(now)
    }

    /// Returns when the pace permits the next fragment, if nothing else prevents it.
    pub fn pace_time(&self) -> Option<Time> {
        self.gate.opens().filter(|_| self.flight.in_flight() < self.controller.window())
    }

    /// Returns the earliest time at which a datagram in flight is to be given up or asked for.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.flight.loss_time(), self.flight.probe_time(), self.flight.follow_time()]
            .into_iter()
            .flatten()
            .min()
    }
}
