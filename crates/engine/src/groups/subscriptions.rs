//! Streams of other nodes that this node follows, found by the id in a datagram's header.

use super::counters::GroupCounters;
use crate::sealing::stream::StreamReceiveKeys;
use oikaze_os::secrets::protected::Protected;
use oikaze_protocol::Rank;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Stream of another node.
pub(crate) struct Subscription {
    /// Rank of the node that sends in the stream.
    pub from: Rank,
    /// Index of this node among the members.
    pub member: u8,
    /// Address of the group.
    pub group: SocketAddr,
    /// Keys, if datagrams are sealed with keys.
    pub keys: Option<Protected<StreamReceiveKeys>>,
}

/// Streams of other nodes.
#[derive(Default)]
pub(crate) struct Subscriptions {
    by_id: BTreeMap<u64, Subscription>,
    pub counters: GroupCounters,
}

impl Subscriptions {
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Subscription> {
        self.by_id.get_mut(&id)
    }

    pub fn insert(&mut self, id: u64, subscription: Subscription) {
        self.by_id.insert(id, subscription);
    }

    /// Removes the stream of this node. Returns the group if no other stream is in it.
    pub fn remove(&mut self, id: u64, from: Rank) -> Option<SocketAddr> {
        if self.by_id.get(&id)?.from != from {
            return None;
        }
        let removed = self.by_id.remove(&id)?;
        let is_used = self.by_id.values().any(|other| other.group == removed.group);
        (!is_used).then_some(removed.group)
    }

    /// Returns the id of a stream of this node.
    pub fn of_sender(&self, from: Rank) -> Option<u64> {
        self.by_id.iter().find(|(_, of)| of.from == from).map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(from: Rank, port: u16) -> Subscription {
        let group = ([239, 192, 0, 1], port).into();
        Subscription { from, member: 0, group, keys: None }
    }

    /// A group is left with the last stream in it, and only a stream's sender ends it.
    #[test]
    fn group_is_left_with_its_last_stream() {
        let mut all = Subscriptions::default();
        all.insert(1, subscription(5, 50_000));
        all.insert(2, subscription(6, 50_000));
        assert_eq!(all.remove(1, 6), None);
        assert_eq!((all.of_sender(5), all.of_sender(7)), (Some(1), None));
        assert_eq!(all.remove(1, 5), None);
        assert_eq!(all.remove(2, 6), Some(([239, 192, 0, 1], 50_000).into()));
        assert!(all.by_id.is_empty() && all.remove(2, 6).is_none());
    }
}
