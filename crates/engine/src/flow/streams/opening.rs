//! Opening and closing streams, and posting messages in them (WIND-13.1, WIND-13.2).

use crate::flow::post::{Outbound, why_not_posted};
use crate::groups::own::{OwnStream, StreamChoice};
use crate::sealing::stream::{StreamSendKeys, write_down};
use oikaze_os::net::{Group, Link};
use oikaze_os::secrets::stream::draw;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{GROUP_MEMBERS_MAX, GROUP_RECEIVERS_MIN};
use oikaze_protocol::rma::{StreamOffer, StreamStep};
use oikaze_protocol::seal::{CipherKind, StreamIdentity, StreamSecret};
use oikaze_protocol::wind::multicast::GroupStream;
use oikaze_protocol::wind::{Message, Token};
use std::net::SocketAddr;

impl<L: Link, P: Pages> Outbound<'_, L, P> {
    /// Posts the gathered messages: in a stream if there is one for their receivers, otherwise to
    /// each receiver.
    pub fn post_alike(&mut self) {
        if self.groups.alike.is_empty() {
            return;
        }
        let mut messages = self.groups.alike.take();
        self.post_all_alike(&mut messages);
        self.groups.alike.put_back(messages);
    }

    fn post_all_alike(&mut self, messages: &mut Vec<(Rank, Message)>) {
        let mut receivers: Vec<Rank> =
            messages.iter().map(|(to, _)| *to).filter(|to| self.may_share(*to)).collect();
        receivers.sort_unstable();
        if receivers.len() >= GROUP_RECEIVERS_MIN {
            match self.groups.own.choose(&receivers, self.now) {
                StreamChoice::Share(index) => self.share(index, &receivers, messages),
                StreamChoice::Open => self.open_stream(receivers),
                StreamChoice::Each => {}
            }
        }
        for (to, message) in messages.drain(..) {
            self.post_or_hold(to, message);
        }
    }

    /// Opens a stream to these nodes, which are sorted, if messages go to all of them again and
    /// again (WIND-13.1).
    pub fn want_stream(&mut self, receivers: Vec<Rank>) {
        let fits = (GROUP_RECEIVERS_MIN..=GROUP_MEMBERS_MAX).contains(&receivers.len());
        if self.groups.is_on()
            && fits
            && receivers.iter().all(|to| self.may_share(*to))
            && self.groups.own.choose(&receivers, self.now) == StreamChoice::Open
        {
            self.open_stream(receivers);
        }
    }

    /// Returns `true` if a message to this node may be shared: its connection takes a message now,
    /// and nothing waits before it.
    fn may_share(&self, to: Rank) -> bool {
        !self.shm.contains(to)
            && self.peers.is_connected(to)
            && !self.is_full(to)
            && self.peers.get(to).is_some_and(|peer| peer.held.is_empty())
    }

    /// Posts the messages to these receivers in a stream, and removes them.
    fn share(&mut self, index: usize, receivers: &[Rank], messages: &mut Vec<(Rank, Message)>) {
        let Some((to, first)) = messages.first() else { return };
        let mut message = first.clone();
        if let Some(copy) = self.copy_if_better(*to, &message) {
            message.body = copy;
        } else if !self.can_read(&message) {
            return;
        }
        let is_receiver = |rank: Rank| receivers.binary_search(&rank).is_ok();
        let shared: Vec<(Rank, Token)> = messages
            .extract_if(.., |(to, _)| is_receiver(*to))
            .map(|(to, message)| {
                self.layers.traffic.count(&message);
                (to, message.token)
            })
            .collect();
        let mut failed = Vec::new();
        if let Some(own) = self.groups.own.get_mut(index) {
            own.note_change(self.now);
            own.stream.post(self.now, message, &shared, self.peers, |rank, posted| {
                failed.extend(posted.err().map(|error| (rank, error)));
            });
        }
        for (rank, error) in failed {
            let token = shared.iter().find(|(to, _)| *to == rank).map(|(_, token)| *token);
            self.fail(rank, token.unwrap_or(Token::NONE), why_not_posted(rank, error));
        }
    }

    /// Opens a stream to these nodes, and asks them to take part.
    fn open_stream(&mut self, receivers: Vec<Rank>) {
        // Nodes of this host may reach each other by any of its addresses, of which each has an
        // interface with another maximum of bytes. Copies for them save nothing on a cable.
        let here = self.link.local_addresses().unwrap_or_default();
        let is_here = |at: &SocketAddr| here.iter().any(|own| own.address.ip() == at.ip());
        let peers: Vec<(Rank, SocketAddr)> = receivers
            .iter()
            .filter_map(|rank| Some((*rank, self.peers.address_of(*rank)?)))
            .filter(|(_, at)| !is_here(at))
            .collect();
        // Members of one family only, because a datagram has one destination. The others get theirs
        // each for themselves.
        let [ipv4, ipv6] = [true, false]
            .map(|is_ipv4| peers.iter().filter(|(_, at)| at.is_ipv4() == is_ipv4).count());
        let is_member = |at: &SocketAddr| at.is_ipv4() == (ipv4 >= ipv6);
        let members: Vec<Rank> =
            peers.iter().filter(|(_, at)| is_member(at)).map(|(rank, _)| *rank).collect();
        let near = peers.iter().map(|(_, at)| *at).find(is_member);
        let (Some(peer), true) = (near, members.len() >= GROUP_RECEIVERS_MIN) else {
            return self.groups.own.give_up(receivers, self.now);
        };
        let address = self.groups.addresses.for_peer(peer);
        let Ok(to) = self.link.route_group(&Group { address, peer }) else {
            return self.groups.own.give_up(receivers, self.now);
        };
        let secret = if self.seals.data.is_keyed() { draw().ok() } else { None };
        if secret.is_none() && self.seals.data.is_keyed() {
            return self.groups.own.give_up(receivers, self.now);
        }
        while let Some(oldest) = self.groups.own.take_oldest_if_full(self.now) {
            self.close_stream(oldest, None);
        }
        let id = self.groups.next_id(self.peers);
        // One cipher for all, which suits each member (SEAL-8.2).
        let ciphers = members.iter().filter_map(|rank| self.peers.cipher_of(*rank));
        let cipher = ciphers.fold(CipherKind::Aes128Gcm, CipherKind::agreed);
        let identity = StreamIdentity { id, sender: self.peers.me(), cipher };
        let keys = secret.as_ref().map(|secret| {
            if let Some(log) = &self.seals.key_log {
                write_down(&identity, secret, log);
            }
            StreamSendKeys::new(&identity, secret)
        });
        let mut stream = GroupStream::new(id, &members, self.seals.data.kind());
        stream.invite(self.now);
        let own = OwnStream::new(stream, receivers, to, keys, self.now);
        self.groups.own.insert(own);
        let secret = secret.unwrap_or(StreamSecret::from_bytes([0; StreamSecret::LEN]));
        for (rank, member) in members.into_iter().zip(0..) {
            let secret = secret.clone();
            let offer = StreamOffer { member, cipher, group: address, secret };
            self.post_or_hold(rank, StreamStep::Open(offer).message(id));
        }
    }

    /// Closes the streams that no two nodes can hear.
    pub fn close_useless_streams(&mut self) {
        while let Some(useless) = self.groups.own.take_useless() {
            self.groups.own.give_up(useless.receivers.clone(), self.now);
            self.close_stream(useless, None);
        }
    }

    /// Closes a stream, and tells its members, except for one that has ended.
    pub fn close_stream(&mut self, mut own: OwnStream, ended: Option<Rank>) {
        own.stream.end(self.now, self.peers);
        let members: Vec<Rank> = own.stream.members().map(|(rank, _)| rank).collect();
        for rank in members.into_iter().filter(|rank| Some(*rank) != ended) {
            if self.peers.is_connected(rank) {
                self.post_or_hold(rank, StreamStep::Close.message(own.stream.id()));
            }
        }
    }

    /// Sends nothing in streams any more.
    pub fn end_streams(&mut self) {
        while let Some(mut own) = self.groups.own.take_any() {
            own.stream.end(self.now, self.peers);
        }
        self.groups.switch_off();
    }
}
