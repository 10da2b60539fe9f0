//! Posts messages: hands each to the peer's connection or ring, or to this node itself.

use crate::failure::Failure;
use crate::flow::loopback::{LOOPBACK_BYTES_PER_TURN, Loopback};
use crate::groups::Groups;
use crate::layers::Layers;
use crate::ops::Ops;
use crate::outcome::{failed, why_unreadable};
use crate::peers::Peers;
use crate::sealing::seal::Seals;
use crate::shm::table::ShmPeers;
use oikaze_os::memory::RegionTable;
use oikaze_os::net::{Link, PayloadForm};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{MESSAGES_OF_PROGRAM_MAX, PAGES_MIN, POST_INLINE};
use oikaze_protocol::rma::{self, Memory, MessageKind, read_rows};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Message, PostError, Token};

/// Maximum number of replies posted, and of loopback messages delivered, in one turn.
const REPLIES_PER_TURN: usize = 1024;

/// Parts of the engine through which messages go out, and outcomes come back.
pub(crate) struct Outbound<'e, L, P> {
    pub link: &'e mut L,
    pub peers: &'e mut Peers,
    pub shm: &'e mut ShmPeers,
    pub loopback: &'e mut Loopback,
    pub layers: &'e mut Layers<P>,
    pub ops: &'e mut Ops,
    pub groups: &'e mut Groups,
    pub seals: &'e Seals,
    pub now: Time,
}

impl<L: Link, P: Pages> Outbound<'_, L, P> {
    /// Hands a message to the peer's connection or ring. A message that is not accepted fails at
    /// once.
    pub fn post(&mut self, to: Rank, mut message: Message) {
        let token = message.token;
        // A message whose content cannot be read would never be sent (MEM-1.5).
        let copy = if self.shm.contains(to) { None } else { self.copy_if_better(to, &message) };
        if let Some(copy) = copy {
            message.body = copy;
        } else if !is_readable(&message.body, &self.layers.memory) {
            self.layers.rma.unposted(&message);
            return self.fail_unreadable(to, token, message.body.region());
        }
        if to != self.peers.me() {
            self.layers.traffic.count(&message);
        }
        let (memory, now) = (&self.layers.memory, self.now);
        let posted = if let Some(local_peer) = self.shm.get_mut(to) {
            // The message is copied when it is put into the ring.
            local_peer.post(message, memory, now)
        } else if to == self.peers.me() {
            self.loopback.post(message)
        } else {
            let nodes = self.peers.nodes();
            let Some(peer) = self.peers.touch(to) else {
                return self.fail(to, token, Failure::NoSuchNode { rank: to, nodes });
            };
            let pages = begins_with_page(&message.body, memory)
                && peer.addresses.iter().any(|to| self.link.prefers(*to, PayloadForm::WholePages));
            peer.connection.post(now, message).map(|number| {
                if pages {
                    peer.connection.cut_between_pages(number)
                }
            })
        };
        if let Err(error) = posted {
            self.fail(to, token, why_not_posted(to, error));
        }
    }

    /// Posts what the layers above owe their peers, and delivers loopback messages. Returns `true`
    /// if the turn's share was used up.
    ///
    /// Messages for which a connection has no room wait until there is room. A peer that asked must
    /// be answered, and coherence takes a message that cannot be sent as the death of its receiver.
    /// Answers wait in remote memory, which counts them and drops those whose region is removed.
    pub fn post_replies(&mut self) -> bool {
        self.post_held();
        // Answers to this node ask for no further answers, so that each is visited once.
        let (mut answers, mut moved) = (None, 0);
        for _ in 0..REPLIES_PER_TURN {
            if moved < LOOPBACK_BYTES_PER_TURN
                && let Some(bytes) = self.loopback.deliver(self.now, self.ops, self.layers)
            {
                moved += bytes;
                continue;
            }
            if let Some((to, message)) = self.layers.coherence.poll_message() {
                self.post_or_gather(to, message);
                continue;
            }
            self.post_alike();
            let left = answers.get_or_insert(self.layers.rma.answers());
            if *left == 0 {
                return false;
            }
            *left -= 1;
            let Some((to, message)) = self.layers.rma.poll_answer() else { return false };
            if self.is_full(to) {
                self.layers.rma.defer_answer(to, message);
            } else {
                self.post(to, message);
            }
        }
        self.post_alike();
        true
    }

    /// Posts a message of coherence, or a parcel, or gathers it if others like it may follow.
    pub fn post_or_gather(&mut self, to: Rank, message: Message) {
        if !self.groups.may_share(&message) {
            self.post_alike();
            return self.post_or_hold(to, message);
        }
        if let Some(message) = self.groups.alike.gather(to, message) {
            self.post_alike();
            let other = self.groups.alike.gather(to, message);
            debug_assert!(other.is_none(), "the first of its like is gathered");
        }
    }

    /// Posts the messages whose next try is due (MEM-1.11).
    pub fn post_retries(&mut self) {
        for retry in self.ops.retry.take_due(self.now) {
            if self.is_full(retry.to) {
                self.ops.retry.postpone(retry, self.now);
            } else {
                self.post(retry.to, retry.message);
            }
        }
    }

    /// Fails the messages that waited for their next try to a peer that is gone.
    pub fn fail_retries(&mut self, peer: Rank) {
        for retry in self.ops.retry.take_to(peer) {
            let death = self.peers.death_of(peer);
            self.fail(peer, retry.message.token, Failure::PeerLost { peer, death });
        }
    }

    /// Returns `true` if there is no room for another message to this peer.
    pub fn is_full(&self, to: Rank) -> bool {
        if to == self.peers.me() {
            self.loopback.is_full()
        } else if let Some(local_peer) = self.shm.get(to) {
            local_peer.is_full()
        } else {
            self.peers.get(to).is_some_and(|peer| peer.connection.is_full())
        }
    }

    /// Returns `false` if the room that is left for messages to this peer is reserved for the
    /// library. Otherwise collectives and answers would wait until the peer's program reads its
    /// messages.
    pub fn has_room_for_program(&self, to: Rank) -> bool {
        let open = if to == self.peers.me() {
            self.loopback.open_messages()
        } else if let Some(local_peer) = self.shm.get(to) {
            local_peer.open_messages()
        } else {
            self.peers.get(to).map_or(0, |peer| peer.connection.open_messages())
        };
        open < MESSAGES_OF_PROGRAM_MAX
    }

    /// Fails a message that cannot be sent.
    pub fn fail(&mut self, to: Rank, token: Token, failure: Failure) {
        failed(to, token, failure, self.ops, self.layers);
    }

    fn fail_unreadable(&mut self, to: Rank, token: Token, region: Option<u32>) {
        let failure = why_unreadable(region, self.layers);
        self.fail(to, token, failure);
    }

    /// Drops the sources of the messages to this peer whose tokens `cancelled` selects.
    pub fn cancel_to(&mut self, to: Rank, cancelled: &impl Fn(Token) -> bool) {
        if let Some(peer) = self.peers.touch(to) {
            match self.shm.get_mut(to) {
                Some(local_peer) => local_peer.cancel(cancelled),
                None => peer.connection.cancel_all(cancelled),
            }
        }
    }

    /// Does the same for messages to all peers.
    pub fn cancel_to_all(&mut self, cancelled: &impl Fn(Token) -> bool) {
        for (rank, peer) in self.peers.touch_all() {
            match self.shm.get_mut(rank) {
                Some(local_peer) => local_peer.cancel(cancelled),
                None => peer.connection.cancel_all(cancelled),
            }
        }
    }

    /// Called when the user has read this number of messages, with this number of bytes, from a
    /// node.
    pub fn consumed(&mut self, from: Rank, messages: u64, bytes: u64) {
        if from == self.peers.me() {
            return self.loopback.consumed(messages, bytes);
        }
        if let Some(peer) = self.peers.touch(from) {
            match self.shm.get_mut(from) {
                Some(local_peer) => local_peer.consumed(messages, bytes),
                None => peer.connection.consumed(messages, bytes),
            }
        }
    }

    /// Closes the connections and the rings to all peers.
    pub fn close(&mut self) {
        self.end_streams();
        for (rank, peer) in self.peers.touch_all() {
            if let Some(local_peer) = self.shm.get_mut(rank) {
                local_peer.close();
            }
            peer.connection.close(self.now);
        }
    }

    /// Returns the bytes of a segment, or of rows, that are better sent from a copy.
    pub fn copy_if_better(&self, to: Rank, message: &Message) -> Option<Body> {
        let len = match &message.body {
            Body::Segment(segment) => segment.len,
            Body::Rows(rows) => rows.len(),
            _ => return None,
        };
        let better = match self.peers.get(to) {
            Some(peer) => peer.connection.is_better_whole(message.head.len(), len),
            None => len <= POST_INLINE,
        };
        let len = usize::try_from(len).ok().filter(|_| better)?;
        let memory = &self.layers.memory;
        Body::filled(len, |bytes| match &message.body {
            Body::Segment(segment) => memory.read(segment.region, segment.offset, bytes),
            Body::Rows(rows) => read_rows(rows, 0, bytes, memory),
            _ => false,
        })
    }

    /// Returns `true` if the memory that the body names is still registered.
    pub fn can_read(&self, message: &Message) -> bool {
        is_readable(&message.body, &self.layers.memory)
    }

    /// Posts a message. Holds a message of coherence while there is no room for it. A parcel has
    /// its room (COLL-1.4), and may be withdrawn, so it is not held.
    pub fn post_or_hold(&mut self, to: Rank, message: Message) {
        if rma::kind(&message.head) == MessageKind::Parcel {
            return self.post(to, message);
        }
        let holds = self.peers.get(to).is_some_and(|peer| !peer.held.is_empty());
        if holds || (to != self.peers.me() && self.is_full(to)) {
            self.peers.hold(to, message);
        } else {
            self.post(to, message);
        }
    }

    /// Posts held messages where there is room again.
    fn post_held(&mut self) {
        let mut holding = self.peers.take_holding();
        holding.retain(|&rank| self.still_holds(rank));
        self.peers.put_holding(holding);
    }

    /// Posts held messages of one peer while there is room. Returns `true` if any are left.
    fn still_holds(&mut self, rank: Rank) -> bool {
        loop {
            let is_full = self.is_full(rank);
            let Some(peer) = self.peers.get_mut(rank) else { return false };
            if is_full {
                return !peer.held.is_empty();
            }
            let Some(message) = peer.held.pop_front() else { return false };
            self.post(rank, message);
        }
    }
}

/// Returns the failure of a message that a connection or a ring did not take.
pub(crate) fn why_not_posted(to: Rank, error: PostError) -> Failure {
    match error {
        PostError::Dead(death) => Failure::PeerLost { peer: to, death },
        PostError::Full => Failure::TooMany { peer: to },
        other => Failure::Machine(other.to_string()),
    }
}

/// Returns `true` if the memory that the body names is still registered. Whether its pages are
/// present is found when the message is sent.
fn is_readable(body: &Body, memory: &RegionTable) -> bool {
    match body {
        Body::Segment(segment) => memory.is_inside(segment.region, segment.offset, segment.len),
        Body::Rows(rows) => {
            let len = rows.block.hull().unwrap_or(u64::MAX);
            memory.is_inside(rows.region, rows.block.offset, len)
        }
        Body::Empty | Body::Short(_) | Body::Inline(_) | Body::Shared(_) => true,
    }
}

/// Returns `true` if the body is long and consists of whole pages except for its end.
fn begins_with_page(body: &Body, memory: &RegionTable) -> bool {
    matches!(body, Body::Segment(segment) if segment.len >= PAGES_MIN && memory.begins_with_page(segment))
}
