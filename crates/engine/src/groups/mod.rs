//! Multicast streams of a node: those in which it sends, and those that it follows (WIND-13).
//!
//! A message to several nodes is an ordinary message of each connection, whose first flight is
//! shared. `GroupStream` of the protocol decides what is sent in a group. This folder opens
//! streams ([`own`]), takes part in those of others ([`subscriptions`]), and finds the messages
//! that several nodes get alike ([`alike`]). Correctness never depends on multicast: what no
//! group brings, each connection retransmits.

pub(crate) mod address;
pub(crate) mod alike;
pub(crate) mod counters;
mod ids;
pub(crate) mod own;
mod sets;
pub(crate) mod subscriptions;

use crate::client::shown_groups::ShownGroups;
use crate::peers::Peers;
use address::GroupAddresses;
use alike::Alike;
use counters::GroupCounters;
use ids::StreamIds;
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::multicast::Members;
use oikaze_protocol::wind::{Connection, Message};
use own::OwnStreams;
use std::sync::Arc;
use subscriptions::Subscriptions;

/// Streams of a node.
pub(crate) struct Groups {
    /// Length in bytes from which on a body is shared, if the node uses multicast.
    body_min: Option<u64>,
    /// Addresses of the job's groups.
    pub addresses: GroupAddresses,
    ids: StreamIds,
    pub own: OwnStreams,
    pub subscriptions: Subscriptions,
    /// Messages that are gathered because they are alike.
    pub alike: Alike,
    /// Parcels are gathered, because several are submitted together.
    pub gathers_parcels: bool,
    /// Groups that threads outside of the engine see.
    pub shown: Arc<ShownGroups>,
}

impl Groups {
    /// Makes the state of a node that does not use multicast yet.
    pub fn new(job: &Secret, me: Rank, incarnation: u64) -> Self {
        Self {
            body_min: None,
            addresses: GroupAddresses::of_job(job),
            ids: StreamIds::new(job, me, incarnation),
            own: OwnStreams::default(),
            subscriptions: Subscriptions::default(),
            alike: Alike::default(),
            gathers_parcels: false,
            shown: Arc::default(),
        }
    }

    /// Begins to use multicast, for bodies of at least this many bytes.
    pub fn switch_on(&mut self, body_min: u64) {
        self.body_min = Some(body_min);
        self.shown.set_on(true);
    }

    /// Opens and follows no more streams.
    pub fn switch_off(&mut self) {
        self.body_min = None;
        self.shown.set_on(false);
    }

    /// Shows other threads which groups are open, if that has changed.
    pub fn show(&mut self, now: Time) {
        if let Some(sets) = self.own.changed_sets(now) {
            self.shown.replace(sets);
        }
    }

    /// Returns `true` if a message may be shared (WIND-13.1).
    pub fn may_share(&self, message: &Message) -> bool {
        self.body_min.is_some_and(|body_min| Alike::is_eligible(message, body_min))
    }

    /// Returns `true` if the node uses multicast.
    pub fn is_on(&self) -> bool {
        self.body_min.is_some()
    }

    /// Returns an id for a stream, which no connection and no other stream has.
    pub fn next_id(&mut self, peers: &mut Peers) -> u64 {
        let Self { ids, own, subscriptions, .. } = self;
        ids.next(|id| {
            peers.of_connection(id).is_some()
                || own.contains(id)
                || subscriptions.get_mut(id).is_some()
        })
    }

    /// Returns the time at which a turn is needed at the latest.
    pub fn next_timeout(&self) -> Option<Time> {
        self.own.next_timeout()
    }

    /// Returns the counters.
    pub fn counters(&self) -> GroupCounters {
        let mut counters = self.subscriptions.counters;
        self.own.add_to(&mut counters);
        counters
    }
}

/// The connections of members. Each that is used is marked as active.
impl Members for Peers {
    fn connection(&mut self, rank: Rank) -> Option<&mut Connection> {
        self.touch(rank).map(|peer| &mut peer.connection)
    }
}
