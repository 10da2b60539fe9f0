//! Lanes of a connection (WIRE-2.7, WIND-3.6): the state that each of the two lanes has for itself.

mod spray;

use super::congestion::{Algorithm, Controller, FlowClimber, Gate, Sample};
use crate::limits::DATAGRAM_MIN;
use crate::time::Time;
use crate::wind::recovery::in_flight::{Acked, Flight};
use crate::wind::settings::Settings;
use crate::wire::header::Lane;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use core::time::Duration;

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

/// Controller and pace of a flow beyond the first.
pub(super) struct FlowControl {
    pub controller: Box<dyn Controller>,
    pub gate: Gate,
    /// Whether the window limited the flow when the latest acknowledgement came.
    limited: bool,
}

/// Makes the flows beyond the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowMaker {
    pub algorithm: Algorithm,
    /// Bytes of a full datagram.
    pub datagram: u64,
    /// Maximum number of bytes in flight by each flow, and by all together.
    pub window_max: u64,
}

/// Flows of a lane beyond the first, and the train being sent.
pub(super) struct Spray {
    more: Vec<FlowControl>,
    /// Number of flows in use, with the first one.
    used: u8,
    /// Maximum number of bytes in flight by all flows together.
    most: u64,
    /// Chooses how many flows are in use, if that is not fixed.
    climber: Option<FlowClimber>,
    /// Candidate paths over different networks, of one family each (WIND-14.8).
    networks: Vec<Vec<u8>>,
    /// Flow that sends the current train.
    flow: u8,
    /// Bytes of the train, and the length of its latest datagram.
    train: (usize, usize),
}

/// Sending state of a lane: the datagrams in flight, and what may be sent.
pub(super) struct Sending {
    pub flight: Flight,
    pub controller: Box<dyn Controller>,
    pub gate: Gate,
    /// Bytes of group datagrams in flight to the peer, which use the window, too (WIND-12.6).
    pub shared: u64,
    /// Number of datagrams that may be sent although the window is full, and must be sent even
    /// without content.
    pub probes: u8,
    /// Flows beyond the first, of which only the bulk lane has any (WIND-14). Most peers have none,
    /// and each peer costs memory.
    pub spray: Option<Box<Spray>>,
}

impl Sending {
    /// Creates the state before anything is known of the peer.
    pub fn new(settings: &Settings, lane: Lane) -> Sending {
        let skip_seed = settings.private_seed.rotate_left(lane as u32);
        Sending {
            flight: Flight::new(settings.failure_time, skip_seed),
            controller: settings.congestion.controller(DATAGRAM_MIN as u64, DATAGRAM_MIN as u64),
            gate: Gate::default(),
            shared: 0,
            probes: 0,
            spray: None,
        }
    }

    /// Returns the number of bytes that may be in flight.
    pub fn window(&self, now: Time) -> u64 {
        if self.is_single() {
            return self.gate.window(&*self.controller, now);
        }
        self.windows().min(self.gate.granted_bytes(now))
    }

    /// Returns the number of bytes in flight that use the window.
    pub fn in_flight(&self) -> u64 {
        self.flight.in_flight() + self.shared
    }

    /// Returns `true` if a datagram that must be acknowledged may be sent.
    pub fn has_room(&self, now: Time) -> bool {
        self.probes > 0 || self.in_flight() < self.window(now)
    }

    /// Feeds the controller with datagrams that were acknowledged. `marked` of them are newly
    /// reported as marked. `limited` tells whether the window was the limit. Returns how many marks
    /// count.
    pub fn acknowledged(
        &mut self,
        now: Time,
        acked: &Acked,
        marked: u32,
        limited: bool,
        smoothed: Option<Duration>,
    ) -> u64 {
        let Acked { bytes, datagrams, latest, round_trip, .. } = *acked;
        let sample =
            Sample { now, bytes, sent: latest, delay: round_trip, datagrams, marked, limited };
        self.gate.acknowledged(&mut *self.controller, sample, smoothed)
    }

    /// Returns the earliest time at which a datagram in flight is to be given up or asked for.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.flight.loss_time(), self.flight.probe_time(), self.flight.follow_time()]
            .into_iter()
            .flatten()
            .min()
    }
}
