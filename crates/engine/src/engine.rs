//! The engine: the parts of a node, and access to them between turns.

use crate::client::posted::PostedMemory;
use crate::client::shm_channel::ShmChannels;
use crate::client::shown_groups::ShownGroups;
use crate::client::submission::Submission;
use crate::control;
use crate::counters::Counters;
use crate::failure::Failure;
use crate::flow::events::end_local_peers;
use crate::flow::loopback::Loopback;
use crate::flow::post::Outbound;
use crate::flow::submit;
use crate::groups::Groups;
use crate::groups::counters::GroupCounters;
use crate::inbox::Inbox;
use crate::io::cookies::Cookies;
use crate::io::egress::Egress;
use crate::io::ingress::Ingress;
use crate::layers::Layers;
use crate::ops::Ops;
use crate::peers::Peers;
use crate::peers::peer::Peer;
use crate::regions;
use crate::sealing::seal::{DataSeal, HandshakeSeal, Seals};
use crate::setup::Setup;
use crate::shm::table::ShmPeers;
use crate::work::Pending;
use crossbeam_queue::SegQueue;
use oikaze_os::memory::{Holder, MemoryError, Region, RegionTable, Registered};
use oikaze_os::net::Link;
use oikaze_os::secrets::seal::NoiseExchange;
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Coherence, Pages};
use oikaze_protocol::collective::{PARCEL_HEAD, ParcelHead};
use oikaze_protocol::limits::{HELD_MIN, HELD_TOTAL, QUEUED_MAX};
use oikaze_protocol::rma::{Rights, Rma, USER_HEAD};
use oikaze_protocol::seal::KeyExchange;
use oikaze_protocol::time::Time;
use oikaze_protocol::traffic::{MessagePurpose, Traffic};
use oikaze_protocol::wind::congestion::Shares;
use oikaze_protocol::wind::{self, Class, Introduction};
use std::ops::Range;
use std::sync::Arc;

/// Protocol state of one node of a job, without threads. Each field is a part with methods of its
/// own; the engine runs their stages in order.
pub struct Engine<L, P> {
    pub(crate) link: L,
    pub(crate) layers: Layers<P>,
    pub(crate) peers: Peers,
    pub(crate) shm: ShmPeers,
    pub(crate) ops: Ops,
    pub(crate) loopback: Loopback,
    pub(crate) ingress: Ingress,
    pub(crate) egress: Egress,
    pub(crate) inbox: Inbox,
    pub(crate) seals: Seals,
    pub(crate) groups: Groups,
    pub(crate) submissions: Arc<SegQueue<Submission>>,
    pub(crate) counters: Counters,
    /// Time at which the latest turn began.
    pub(crate) now: Time,
    pub(crate) pending: Pending,
}

/// Derives the random number of a connection from that of the node. No peer can compute the one of
/// another peer from its own, of which the skipped numbers tell a little.
fn of_connection(secret: &Secret, private_seed: u64, id: u64) -> u64 {
    let parts = [b"oikaze private", &private_seed.to_le_bytes()[..], &id.to_le_bytes()];
    secret.mac(&parts).first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes)).max(1)
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Creates a node that knows its peers' addresses and begins to connect to them at its first
    /// turn.
    ///
    /// # Errors
    /// The parts of `setup` contradict each other.
    pub fn new(
        setup: Setup,
        link: L,
        pages: P,
        submissions: Arc<SegQueue<Submission>>,
        now: Time,
    ) -> Result<Self, Failure> {
        let Setup {
            me,
            nodes,
            incarnation,
            addresses,
            datagram_max,
            connections,
            mut settings,
            secret,
            keys,
            local_peers,
        } = setup;
        if me >= nodes {
            return Err(Failure::NoSuchNode { rank: me, nodes });
        }
        let data = DataSeal::of(settings.seal).ok_or_else(|| {
            Failure::Machine(format!(
                "datagrams cannot be sealed with {:?}: use another kind",
                settings.seal
            ))
        })?;
        settings.held_max =
            settings.held_max.min((HELD_TOTAL / u64::from(nodes.max(2) - 1)).max(HELD_MIN));
        let everywhere = settings
            .datagram_max
            .min(u16::try_from(link.properties().datagram_max).unwrap_or(u16::MAX));
        let private_seed = settings.private_seed;
        let exchange = data.is_keyed().then(|| NoiseExchange::new(&secret, keys.cipher));
        let (mut peers, mut buffer) = (Peers::new(me, nodes), u32::MAX);
        let mut fit = addresses.len() == nodes as usize && connections.len() == nodes as usize;
        for (rank, (addresses, id)) in
            (0..nodes).zip(addresses.into_iter().zip(connections)).filter(|(rank, _)| *rank != me)
        {
            settings.datagram_max =
                datagram_max.get(rank as usize).map_or(everywhere, |&there| there.min(everywhere));
            settings.receive_buffer =
                u32::try_from(link.properties().receive_room(settings.datagram_max.into()))
                    .unwrap_or(u32::MAX);
            buffer = buffer.min(settings.receive_buffer);
            let bulk_port = link.properties().bulk_port.unwrap_or(0);
            settings.flows = settings.flows.within(link.properties().flows);
            let (datagram_max, here) =
                (settings.datagram_max, Introduction::here(me, nodes, incarnation, id));
            settings.private_seed = match private_seed {
                0 => 0,
                seed => of_connection(&secret, seed, id),
            };
            let introduction = Introduction { datagram_max, bulk_port, ..here };
            let exchange = exchange.as_ref().map(NoiseExchange::another);
            let exchange = exchange.map(|exchange| Box::new(exchange) as Box<dyn KeyExchange>);
            let peer = Peer::new(settings, introduction, rank, addresses, exchange, now);
            fit &= peers.insert(rank, peer);
        }
        if !fit {
            return Err(Failure::Machine(format!(
                "a job of {nodes} needs addresses and distinct connection ids for every node"
            )));
        }
        let pairs = local_peers.into_iter().filter(|(rank, _)| peers.get(*rank).is_some());
        let shm = ShmPeers::new(nodes, pairs.collect(), settings.failure_time)
            .map_err(|why| Failure::Machine(format!("local peers cannot be watched: {why}")))?;
        Ok(Self {
            link,
            layers: Layers::new(me, nodes, pages, settings.failure_time),
            peers,
            shm,
            ops: Ops::default(),
            loopback: Loopback::new(me),
            ingress: Ingress::new(
                Shares::new(buffer.into(), nodes),
                Cookies::new(me, &secret, private_seed),
                now,
            ),
            egress: Egress::default(),
            inbox: Inbox::default(),
            groups: Groups::new(&secret, me, incarnation),
            seals: Seals { handshake: HandshakeSeal::new(&secret), data, key_log: keys.log },
            submissions,
            counters: Counters::default(),
            now,
            pending: Pending::Nothing,
        })
    }

    /// Borrows the parts through which requests, messages and outcomes pass.
    pub(crate) fn stages(&mut self) -> (Outbound<'_, L, P>, &mut Egress, &mut Inbox) {
        let Self { link, layers, peers, shm, ops, loopback, egress, inbox, .. } = self;
        let (groups, seals, now) = (&mut self.groups, &self.seals, self.now);
        let out = Outbound { link, peers, shm, loopback, layers, ops, groups, seals, now };
        (out, egress, inbox)
    }

    /// Sends bodies of at least `body_min` bytes to several nodes at once where they get the same,
    /// if the link has multicast groups. Without this call, the node also follows no streams of
    /// others.
    pub fn use_multicast(&mut self, body_min: u64) {
        self.groups.switch_on(body_min);
    }

    /// Lets flows of bulk to a peer go by different networks. Each list has indices of the peer's
    /// addresses, of one family (WIND-14.8).
    pub fn use_networks(&mut self, rank: Rank, networks: Vec<Vec<u8>>) {
        if let Some(peer) = self.peers.get_mut(rank) {
            peer.connection.use_networks(networks);
        }
    }

    /// Returns the counters of multicast.
    #[must_use]
    pub fn group_counters(&self) -> GroupCounters {
        self.groups.counters()
    }

    /// Returns the groups of this node, as other threads see them.
    #[must_use]
    pub fn shown_groups(&self) -> Arc<ShownGroups> {
        Arc::clone(&self.groups.shown)
    }

    /// Begins to connect to every peer.
    pub fn connect(&mut self, now: Time) {
        self.peers.touch_all().for_each(|(_, peer)| peer.connection.connect(now));
        self.peers.settle(now);
    }

    /// Submits a request. The next turn, which follows soon, sends the messages of the request and
    /// settles what it can.
    pub fn submit(&mut self, submission: Submission, now: Time) {
        self.now = self.now.max(now);
        let (mut out, egress, inbox) = self.stages();
        if perform(submission, &mut out, egress, inbox) {
            self.ingress.note_operation();
        }
    }

    /// Submits requests one after the other, with no other in between. Parcels among them that are
    /// alike go to their receivers by multicast, if these have a group (WIND-13.1).
    pub fn submit_together(&mut self, submissions: Vec<Submission>, now: Time) {
        self.groups.gathers_parcels = true;
        for submission in submissions {
            self.submit(submission, now);
        }
        self.groups.gathers_parcels = false;
        self.stages().0.post_alike();
    }

    /// Submits the requests that threads have made until now because they found the engine taken.
    /// Called before a change on which these requests may depend.
    pub fn begin_waiting(&mut self, now: Time) {
        for _ in 0..self.submissions.len() {
            let Some(submission) = self.submissions.pop() else { return };
            self.submit(submission, now);
        }
    }

    /// Puts a user's message into a local peer's ring, if no earlier request is in its way. Returns
    /// the position that settles the message. The local peer is to be woken if it sleeps.
    #[inline]
    pub fn send_fast(&mut self, to: Rank, class: Class, tag: u64, body: &[u8]) -> Option<u64> {
        if !self.submissions.is_empty() {
            return None;
        }
        let position = self.shm.send_fast(to, class, tag, body, &mut self.ops)?;
        self.layers.traffic.add(MessagePurpose::Message, USER_HEAD, body.len() as u64);
        Some(position)
    }

    /// Submits a message to a local peer whose body is all of a region of the caller's own. The
    /// caller waits until the ring has taken the region ([`Engine::unsent_of`]), or detaches the
    /// message from it ([`Engine::detach`]). Returns the submission if something is in the way.
    ///
    /// # Errors
    /// The peer is not a local peer; a fence or an earlier message is in the way; or the bytes
    /// could not be copied later (MEM-15.6).
    pub fn stream(
        &mut self,
        submission: Submission,
        len: u64,
        now: Time,
    ) -> Result<(), Box<Submission>> {
        let to = submission.request.peer();
        let queued = to.map_or(0, |to| self.ops.in_flight.copied(to));
        let is_free = to
            .and_then(|to| self.shm.get(to))
            .is_some_and(|local_peer| local_peer.has_nothing_waiting() && !local_peer.is_full());
        if !is_free
            || self.ops.ended.is_some()
            || self.ops.fences.holds_back()
            || !self.submissions.is_empty()
            || (queued > 0 && queued.saturating_add(len) > QUEUED_MAX)
        {
            return Err(Box::new(submission));
        }
        self.submit(submission, now);
        Ok(())
    }

    /// Returns the number of bytes of this region that messages to a local peer still need. Returns
    /// `None` if they need none.
    #[must_use]
    pub fn unsent_of(&self, to: Rank, region: u32) -> Option<u64> {
        self.shm.get(to)?.unsent_of(region)
    }

    /// Copies what is still to be sent of a message of [`Engine::stream`], of which `bytes` are the
    /// body. The region is not read again.
    pub fn detach(&mut self, to: Rank, region: u32, bytes: &[u8]) {
        let detached = self.shm.get_mut(to).and_then(|peer| peer.detach(region, bytes));
        if let Some((token, copied)) = detached {
            self.ops.in_flight.add_copied(token, copied);
        }
    }

    /// Puts a parcel into a local peer's ring, if no earlier request is in its way. Returns `true`
    /// if it is there. The local peer is to be woken if it sleeps.
    #[inline]
    pub fn send_parcel_fast(&mut self, to: Rank, head: &ParcelHead, body: &[u8]) -> bool {
        let is_sent =
            self.submissions.is_empty() && self.shm.send_parcel_fast(to, head, body, &mut self.ops);
        if is_sent {
            self.layers.traffic.add(MessagePurpose::Message, PARCEL_HEAD, body.len() as u64);
        }
        is_sent
    }

    /// Returns the sender of the user's oldest message, if that message is in a local peer's ring,
    /// or was taken from it with an earlier one. Returns `None` if an earlier arrival waits to be
    /// read. The flag is `true` if the local peer was notified and must be woken if it sleeps.
    /// [`Inbox::take_arrived`] follows. If `sends_many`, several messages are taken at once and
    /// kept for later calls.
    #[inline]
    pub fn make_ready(&mut self, from: Option<Rank>, sends_many: bool) -> Option<(Rank, bool)> {
        let buffer_pool = &self.layers.buffer_pool;
        self.shm.make_ready(from, sends_many, &mut self.inbox, buffer_pool)
    }

    /// Ends every operation in flight, and every later one, with this failure.
    pub fn end(&mut self, failure: &Failure) {
        self.shm.end_fast(failure);
        self.ops.end(failure);
        // Their receives end like those for which no message has begun.
        self.layers.abort_placements(|_| true);
    }

    /// Removes a region. Nothing can touch it afterwards: neither peers, nor answers in flight, nor
    /// datagrams that wait for the link. Operations of this node that still use the region are for
    /// the caller to wait for, or to cancel.
    pub fn remove_region(&mut self, slot: u32) -> Option<Region> {
        let (mut out, egress, _) = self.stages();
        regions::remove(slot, &mut out, egress)
    }

    /// Removes a region and registers the same memory in the same slot, under another number and
    /// key.
    ///
    /// # Errors
    /// As [`RegionTable::renew`].
    pub fn renew_region(&mut self, slot: u32, rights: Rights) -> Result<Registered, MemoryError> {
        let (mut out, egress, _) = self.stages();
        regions::renew(slot, rights, &mut out, egress)
    }

    /// Closes a region to peers; operations of this node go on. Returns `false` if it was closed
    /// already.
    pub fn close_region(&mut self, slot: u32) -> bool {
        let (mut out, egress, _) = self.stages();
        regions::close(slot, &mut out, egress)
    }

    /// Changes the rights of peers, on every page or on some pages.
    ///
    /// # Errors
    /// As [`RegionTable::protect`].
    pub fn set_rights(
        &mut self,
        slot: u32,
        pages: Option<Range<u64>>,
        rights: Rights,
    ) -> Result<(), MemoryError> {
        let (mut out, egress, _) = self.stages();
        regions::set_rights(slot, pages, rights, &mut out, egress)
    }

    /// Cancels every operation in flight that keeps `holder`, and cuts it off from its memory.
    pub fn cancel_keeping(&mut self, holder: &Holder) {
        let (mut out, egress, inbox) = self.stages();
        regions::end_keeping(holder, &Failure::Cancelled, &mut out, egress, inbox);
    }

    /// Gives up the local peers that are in the middle of an access to this memory
    /// ([`ShmPeers::is_reached`]).
    pub fn give_up_peers_inside(&mut self, region: &Region, now: Time) {
        self.now = self.now.max(now);
        let (mut out, _, inbox) = self.stages();
        out.shm.end_inside(region, out.ops, inbox);
        end_local_peers(&mut out);
    }

    /// Returns the rank of this node.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.peers.me()
    }

    /// Returns the number of nodes in the job.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.peers.nodes()
    }

    /// Returns the link.
    #[must_use]
    pub fn link(&self) -> &L {
        &self.link
    }

    /// Returns the link for changes by tests and by the simulator.
    pub fn link_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// Returns the table of regions.
    pub fn memory(&mut self) -> &mut RegionTable {
        &mut self.layers.memory
    }

    /// Returns the pages of the shared arrays.
    pub fn pages(&mut self) -> &mut P {
        &mut self.layers.pages
    }

    /// Returns the coherence state of the shared arrays.
    pub fn coherence(&mut self) -> &mut Coherence {
        &mut self.layers.coherence
    }

    /// Returns the coherence state of the shared arrays, and their pages.
    pub fn coherence_and_pages(&mut self) -> (&mut Coherence, &mut P) {
        (&mut self.layers.coherence, &mut self.layers.pages)
    }

    /// Returns remote memory: published names, and accesses refused to peers.
    pub fn rma(&mut self) -> &mut Rma {
        &mut self.layers.rma
    }

    /// Returns the connections to all peers.
    #[must_use]
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Returns the peers that share memory with this node.
    #[must_use]
    pub fn shm(&self) -> &ShmPeers {
        &self.shm
    }

    /// Returns the peers that share memory with this node, for changes.
    pub fn shm_mut(&mut self) -> &mut ShmPeers {
        &mut self.shm
    }

    /// Returns the operations of this node.
    #[must_use]
    pub fn ops(&self) -> &Ops {
        &self.ops
    }

    /// Returns the news for the node's threads.
    pub fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// Sets the posted receives of the node's threads.
    pub fn set_posted(&mut self, posted: Arc<dyn PostedMemory>) {
        self.layers.posted = Some(posted);
    }

    /// Returns the thread-side view of the rings of all local peers.
    #[must_use]
    pub fn channels(&self) -> ShmChannels {
        self.shm.channels(self.inbox.ahead.clone())
    }

    /// Returns the statistics of this peer: those of Wind, with the shared-memory traffic added.
    #[must_use]
    pub fn peer_statistics(&self, rank: Rank) -> Option<wind::Statistics> {
        let wind = *self.peers.get(rank)?.connection.statistics();
        let rings = self.shm.counters(rank);
        Some(wind::Statistics {
            messages_posted: wind.messages_posted + rings.messages_out,
            bytes_sent: wind.bytes_sent + rings.bytes_out,
            messages_delivered: wind.messages_delivered + rings.messages_in,
            bytes_received: wind.bytes_received + rings.bytes_in,
            ..wind
        })
    }

    /// Takes the reason for which the link carries nothing any more: its other end has gone, or
    /// does not run.
    #[inline]
    pub fn take_link_end(&mut self) -> Option<String> {
        self.ingress.link_end.take().or_else(|| self.inbox.take_link_end())
    }

    /// Returns notices for the user, such as a mechanism that the kernel refuses.
    pub fn notices(&mut self) -> &[String] {
        while let Some(notice) = self.link.notice() {
            self.inbox.note(notice);
        }
        self.inbox.notices()
    }

    /// Returns the messages to other nodes, counted by purpose and size.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.layers.traffic
    }

    /// Returns the engine's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let placed_messages = self.layers.placed_messages;
        Counters { visits: self.peers.visits, placed_messages, ..self.counters }
    }
}

/// Admits a submission, and begins its operation or performs its request. Returns `true` if it is
/// an operation.
#[inline]
pub(crate) fn perform<L: Link, P: Pages>(
    submission: Submission,
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
    inbox: &mut Inbox,
) -> bool {
    let is_operation = submission.request.is_operation();
    match submit::admit(&submission, out) {
        Err(failure) => submit::refuse(&submission, failure, inbox),
        Ok(()) if is_operation => submit::begin(submission, out),
        Ok(()) => control::apply(submission, out, egress, inbox),
    }
    is_operation
}
