//! Messages by which nodes open, join and close streams (WIND-13.3).

use crate::flow::post::Outbound;
use crate::groups::subscriptions::Subscription;
use crate::sealing::stream::{StreamReceiveKeys, write_down};
use oikaze_os::net::{Group, Link};
use oikaze_os::secrets::protected::Protected;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::rma::{StreamOffer, StreamRefusal, StreamStep};
use oikaze_protocol::seal::StreamIdentity;

impl<L: Link, P: Pages> Outbound<'_, L, P> {
    /// Takes what other nodes have said about streams.
    pub fn take_stream_steps(&mut self) {
        for (from, id, step) in std::mem::take(&mut self.layers.stream_steps) {
            match step {
                StreamStep::Open(offer) => {
                    let answer = match self.follow(from, id, &offer) {
                        Ok(()) => StreamStep::Joined,
                        Err(why) => StreamStep::Refused(why),
                    };
                    self.post_or_hold(from, answer.message(id));
                }
                StreamStep::Joined => {
                    if let Some(own) = self.groups.own.of_id(id) {
                        own.stream.joined(from, self.now, self.peers);
                        own.note_change(self.now);
                    }
                }
                StreamStep::Refused(_) => {
                    if let Some(own) = self.groups.own.of_id(id) {
                        own.stream.refused(from, self.now, self.peers);
                        own.note_change(self.now);
                    }
                }
                StreamStep::Close => self.unfollow(from, id),
            }
        }
    }

    /// Begins to take part in a stream.
    fn follow(&mut self, from: Rank, id: u64, offer: &StreamOffer) -> Result<(), StreamRefusal> {
        let StreamOffer { member, cipher, group, secret } = offer;
        if !self.groups.is_on() {
            return Err(StreamRefusal::Off);
        }
        let is_taken = self.peers.of_connection(id).is_some()
            || self.groups.own.contains(id)
            || self.groups.subscriptions.get_mut(id).is_some();
        if is_taken || !self.groups.addresses.contain(*group) {
            return Err(StreamRefusal::Contradiction);
        }
        let address = self.peers.address_of(from).ok_or(StreamRefusal::NoGroup)?;
        let Some(peer) = self.peers.touch(from) else { return Err(StreamRefusal::NoGroup) };
        if !peer.connection.follow_stream(id) {
            return Err(StreamRefusal::TooMany);
        }
        // A socket is opened last, so that no refusal leaves one behind.
        if self.link.join_group(&Group { address: *group, peer: address }).is_err() {
            peer.connection.leave_stream(id);
            return Err(StreamRefusal::NoGroup);
        }
        let stream = StreamIdentity { id, sender: from, cipher: *cipher };
        let keys = self.seals.data.is_keyed().then(|| {
            if let Some(log) = &self.seals.key_log {
                write_down(&stream, secret, log);
            }
            Protected::new(StreamReceiveKeys::new(&stream, secret))
        });
        let subscription = Subscription { from, member: *member, group: *group, keys };
        self.groups.subscriptions.insert(id, subscription);
        Ok(())
    }

    /// Takes no part in a stream any more.
    fn unfollow(&mut self, from: Rank, id: u64) {
        if let Some(peer) = self.peers.touch(from) {
            peer.connection.leave_stream(id);
        }
        if let Some(group) = self.groups.subscriptions.remove(id, from) {
            self.link.leave_group(group);
        }
    }

    /// Leaves all streams of a node, and closes those of which it is a member (WIND-13.5,
    /// SEAL-8.5).
    pub fn end_streams_with(&mut self, rank: Rank) {
        while let Some(id) = self.groups.subscriptions.of_sender(rank) {
            self.unfollow(rank, id);
        }
        while let Some(mut own) = self.groups.own.take_of_member(rank) {
            own.stream.lost(rank, self.now, self.peers);
            self.close_stream(own, Some(rank));
        }
        self.groups.own.forget(rank);
    }
}
