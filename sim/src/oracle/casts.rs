//! Checks parcels that go to several nodes: each receiver gets each of them once and unaltered
//! (COLL-1.1, WIND-12.1).

use crate::random::{bytes_of, mix};
use crate::violation::Check;
use oikaze_engine::{Parcel, ParcelBody};
use oikaze_protocol::Rank;
use std::collections::{BTreeMap, BTreeSet};

/// Identity of a parcel to several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CastId {
    /// Rank of the sender.
    pub from: Rank,
    /// Number of the parcel from 0, in the order of posting.
    pub number: u64,
}

/// All parcels to several nodes of a run.
#[derive(Debug)]
pub struct CastOracle {
    seed: u64,
    /// Length of each parcel, by the sender.
    sent: BTreeMap<Rank, Vec<usize>>,
    /// Parcels that have come, with their receivers.
    came: BTreeSet<(CastId, Rank)>,
}

impl CastOracle {
    pub(super) fn new(seed: u64) -> CastOracle {
        CastOracle { seed, sent: BTreeMap::new(), came: BTreeSet::new() }
    }

    /// Notes a posted parcel. Returns its identity and its body.
    pub fn post(&mut self, from: Rank, len: usize) -> (CastId, Vec<u8>) {
        let sent = self.sent.entry(from).or_default();
        let id = CastId { from, number: sent.len() as u64 };
        sent.push(len);
        (id, self.body(id, len))
    }

    fn body(&self, id: CastId, len: usize) -> Vec<u8> {
        bytes_of(mix(self.seed ^ u64::from(id.from) << 40) ^ id.number, len)
    }

    /// Checks a parcel that has come.
    ///
    /// # Errors
    /// The parcel was never sent, comes again, or has other bytes.
    pub fn arrived(&mut self, at: Rank, parcel: &Parcel) -> Check {
        let id = CastId { from: parcel.from, number: parcel.head.number };
        let len = self.sent.get(&id.from).and_then(|sent| sent.get(id.number as usize).copied());
        let Some(len) = len else { return Err(format!("{id:?} was never sent")) };
        match &parcel.body {
            ParcelBody::Bytes(bytes) if bytes[..] == self.body(id, len)[..] => {}
            other => return Err(format!("{id:?} of {len} bytes came as {other:?}")),
        }
        match self.came.insert((id, at)) {
            true => Ok(()),
            false => Err(format!("{id:?} came twice")),
        }
    }

    /// Checks that a parcel has come whose sender was told so.
    ///
    /// # Errors
    /// The parcel has not come.
    pub fn settled(&self, id: CastId, to: Rank) -> Check {
        match self.came.contains(&(id, to)) {
            true => Ok(()),
            false => Err(format!("{id:?} is said to have reached node {to}, and has not")),
        }
    }
}
