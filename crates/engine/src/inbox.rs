//! News for the node's threads: messages that have arrived, deaths, leaves, notices.

use crate::buffer_pool::{Body, BufferPool};
use crate::client::shm_channel::Ahead;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::ParcelHead;
use oikaze_protocol::limits::{BODY_POOL_IDLE_TIME, BODY_POOLED_MIN};
use oikaze_protocol::rma::Notice;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Class, Death};
use std::collections::VecDeque;

/// A user's message that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Rank of the sender.
    pub from: Rank,
    /// Message class in which it was sent.
    pub class: Class,
    /// Tag that the sender chose.
    pub tag: u64,
    /// Content of the message.
    pub body: Body,
}

/// A put with notice whose bytes are in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Rank of the sender.
    pub from: Rank,
    /// Description of the put.
    pub notice: Notice,
}

/// A part of a collective operation that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Rank of the sender.
    pub from: Rank,
    /// Head of the parcel.
    pub head: ParcelHead,
    /// Content of the parcel.
    pub body: ParcelBody,
}

/// Content of a parcel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParcelBody {
    /// The bytes themselves.
    Bytes(Body),
    /// Length of the bytes, which are in the memory that waited for them.
    Placed(u64),
    /// Length of the bytes, which this node has refused for lack of memory.
    Refused(u64),
}

impl ParcelBody {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            ParcelBody::Bytes(body) => body.len() as u64,
            ParcelBody::Placed(len) | ParcelBody::Refused(len) => *len,
        }
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// News that no thread has taken yet.
#[derive(Default)]
pub struct Inbox {
    pub(crate) arrived: VecDeque<Arrived>,
    placed: VecDeque<Placed>,
    parcels: VecDeque<Parcel>,
    deaths: VecDeque<(Rank, Death)>,
    /// Nodes that have begun to leave; `true`: the node sends no more messages either.
    leaving: VecDeque<(Rank, bool)>,
    notices: Vec<String>,
    /// Notices to print, each once.
    warnings: VecDeque<String>,
    /// Reason for which the link carries nothing any more, although peers may be alive.
    link_end: Option<String>,
    /// Number of events that a thread may wait for and that are not operations in flight: arrivals,
    /// deaths, requests that were settled at once.
    news: usize,
    /// Number of the oldest messages in `arrived` that the fast path has taken from a ring.
    pub(crate) ahead: Ahead,
    /// Time at which the latest long body arrived, if the pool keeps memory for more of them.
    long_body: Option<Time>,
}

impl Inbox {
    /// Takes the oldest message for the user.
    pub fn take_arrived(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }

    /// Takes the oldest put with notice.
    pub fn take_placed(&mut self) -> Option<Placed> {
        self.placed.pop_front()
    }

    /// Takes the oldest part of a collective operation.
    pub fn take_parcel(&mut self) -> Option<Parcel> {
        self.parcels.pop_front()
    }

    /// Takes the oldest death of a peer.
    pub fn take_death(&mut self) -> Option<(Rank, Death)> {
        self.deaths.pop_front()
    }

    /// Takes the oldest notice of another node that has begun to leave. The flag is `true` if all
    /// its messages have arrived, too.
    pub fn take_leaving(&mut self) -> Option<(Rank, bool)> {
        self.leaving.pop_front()
    }

    /// Takes a notice that the user should see now, though nothing has failed.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warnings.pop_front()
    }

    /// Adds a notice for the user.
    pub fn note(&mut self, notice: String) {
        self.notices.push(notice);
    }

    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Ends the link for this reason, which counts instead of the silence of peers.
    pub(crate) fn end_link(&mut self, why: String) {
        self.link_end.get_or_insert(why);
    }

    pub(crate) fn take_link_end(&mut self) -> Option<String> {
        self.link_end.take()
    }

    /// Adds a notice that is also printed.
    pub(crate) fn warn(&mut self, warning: String) {
        self.notices.push(warning.clone());
        self.warnings.push_back(warning);
    }

    /// Adds a message for the user.
    pub(crate) fn deliver(&mut self, arrived: Arrived, now: Time) {
        if arrived.body.len() >= BODY_POOLED_MIN {
            self.long_body = Some(now);
        }
        self.arrived.push_back(arrived);
        self.news += 1;
    }

    /// Adds a put with notice.
    pub(crate) fn add_placed(&mut self, placed: Placed) {
        self.placed.push_back(placed);
        self.news += 1;
    }

    /// Adds a part of a collective operation.
    pub(crate) fn deliver_parcel(&mut self, parcel: Parcel, now: Time) {
        if matches!(&parcel.body, ParcelBody::Bytes(body) if body.len() >= BODY_POOLED_MIN) {
            self.long_body = Some(now);
        }
        self.parcels.push_back(parcel);
        self.news += 1;
    }

    pub(crate) fn add_death(&mut self, peer: Rank, death: Death) {
        self.deaths.push_back((peer, death));
        self.news += 1;
    }

    pub(crate) fn add_leaving(&mut self, peer: Rank, is_silent: bool) {
        self.leaving.push_back((peer, is_silent));
        self.news += 1;
    }

    /// Counts outcomes of requests that were settled at once.
    pub(crate) fn add_settled(&mut self, count: usize) {
        self.news += count;
    }

    /// Returns the number of events since the last call.
    pub(crate) fn take_news(&mut self) -> usize {
        std::mem::take(&mut self.news)
    }

    /// Frees the memory for long bodies after `BODY_POOL_IDLE_TIME` without one.
    pub(crate) fn trim_buffer_pool(&mut self, now: Time, buffer_pool: &BufferPool) {
        if self.long_body.take_if(|latest| now - *latest > BODY_POOL_IDLE_TIME).is_some() {
            buffer_pool.trim();
        }
    }
}
