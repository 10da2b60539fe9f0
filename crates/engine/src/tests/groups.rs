//! Multicast between engines (WIND-12, WIND-13): nodes on a switch in memory that carries groups.

use super::*;
use oikaze_os::net::{
    Arrival, Group, LinkProperties, LocalAddress, Outgoing, Sink, Statistics as LinkStatistics,
};
use oikaze_protocol::collective::{CollectiveCall, ParcelHead, ParcelPurpose, WHOLE};
use oikaze_protocol::limits::{DATAGRAM_MIN, GROUP_BODY_MIN, GROUP_JOIN_TIME};
use oikaze_protocol::random::Random;
use oikaze_protocol::rma::{Rma, StreamOffer, StreamStep};
use oikaze_protocol::seal::{CipherKind, StreamSecret};
use oikaze_protocol::wind::Token;
use oikaze_protocol::wind::multicast::MemberState;
use oikaze_protocol::wire::SealKind;
use std::io;
use std::sync::Mutex;

/// Returns the address of a node, each at a host of its own.
fn address(rank: Rank) -> SocketAddr {
    ([10, 0, 0, 1 + rank as u8], 1000 + rank as u16).into()
}

/// Datagram on its way to a node.
struct OnTheWay {
    from: Rank,
    bytes: Vec<u8>,
    to_group: bool,
}

/// Switch between the nodes.
#[derive(Default)]
struct Switch {
    /// Datagrams on their way to each node.
    queues: Vec<VecDeque<OnTheWay>>,
    /// Groups, with the nodes that have joined them.
    joined: Vec<(SocketAddr, Rank)>,
    /// Number of datagrams that were sent to a group.
    to_groups: usize,
    /// Bytes that were sent to single nodes.
    to_nodes: usize,
    /// The switch loses what goes to groups.
    loses_groups: bool,
    /// Percentage of datagrams to groups that each member loses.
    loss: usize,
    random: Option<Random>,
    /// Latest datagram to a group.
    latest: Vec<u8>,
}

/// One node's port.
struct Port {
    me: Rank,
    switch: Arc<Mutex<Switch>>,
    /// The link has no groups.
    is_bare: bool,
    /// Nodes of the same host.
    here: Vec<Rank>,
}

impl Link for Port {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let mut switch = self.switch.lock().unwrap();
        for datagram in batch {
            let mut bytes = datagram.head.to_vec();
            datagram.payload.append_to(&mut bytes);
            bytes.extend_from_slice(datagram.tag);
            let Switch { queues, joined, loss, random, loses_groups, .. } = &mut *switch;
            if !datagram.to.ip().is_multicast() {
                let to = usize::from(datagram.to.port() - 1000);
                switch.to_nodes += bytes.len();
                let one = OnTheWay { from: self.me, bytes, to_group: false };
                switch.queues[to].push_back(one);
                continue;
            }
            let members =
                joined.iter().filter(|(group, rank)| group == datagram.to && *rank != self.me);
            for (_, rank) in members.filter(|_| !*loses_groups) {
                let is_lost = random.as_mut().is_some_and(|random| random.below(100) < *loss);
                if !is_lost {
                    let one = OnTheWay { from: self.me, bytes: bytes.clone(), to_group: true };
                    queues[*rank as usize].push_back(one);
                }
            }
            switch.to_groups += 1;
            switch.latest = bytes;
        }
        Ok(batch.len())
    }

    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        let burst = std::mem::take(&mut self.switch.lock().unwrap().queues[self.me as usize]);
        for OnTheWay { from, bytes, to_group } in &burst {
            let arrival = Arrival::new(address(*from), bytes);
            sink.take(Arrival { to_group: *to_group, ..arrival });
        }
        Ok(burst.len())
    }

    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        let local = |rank: &Rank| LocalAddress {
            address: address(*rank),
            interface: "eth0".into(),
            mtu: usize::from(DATAGRAM_ETHERNET) + 28,
            loopback: false,
        };
        Ok(self.here.iter().map(local).collect())
    }

    fn properties(&self) -> LinkProperties<'_> {
        LinkProperties::within_process(usize::from(DATAGRAM_ETHERNET), 1 << 20)
    }

    fn join_group(&mut self, group: &Group) -> io::Result<()> {
        self.leave_group(group.address);
        self.switch.lock().unwrap().joined.push((group.address, self.me));
        Ok(())
    }

    fn leave_group(&mut self, address: SocketAddr) {
        let me = self.me;
        self.switch.lock().unwrap().joined.retain(|one| *one != (address, me));
    }

    fn route_group(&mut self, group: &Group) -> io::Result<SocketAddr> {
        if self.is_bare { Err(io::ErrorKind::Unsupported.into()) } else { Ok(group.address) }
    }

    fn statistics(&self) -> LinkStatistics {
        LinkStatistics::default()
    }
}

/// Nodes of a job on one switch.
struct Cluster {
    engines: Vec<Option<Engine<Port, PageSet>>>,
    switch: Arc<Mutex<Switch>>,
    now: Time,
    /// Number of messages that each node has received, and their bytes are right.
    received: Vec<u64>,
}

/// Options of a cluster.
struct Options {
    nodes: u32,
    seal: SealKind,
    /// Nodes that do not use multicast.
    without: Vec<Rank>,
    is_bare: bool,
    /// Nodes of one host, at different addresses.
    here: Vec<Rank>,
}

impl Default for Options {
    fn default() -> Self {
        let (without, here) = (Vec::new(), Vec::new());
        Options { nodes: 4, seal: SealKind::Encrypted, without, is_bare: false, here }
    }
}

fn body(tag: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 31 + (at as u64 >> 9) + tag * 7) as u8).collect()
}

/// Returns the head of a message, which costs no credit and so may be shared.
fn head(number: u64) -> ParcelHead {
    let (purpose, call) = (ParcelPurpose::Data, CollectiveCall::SHRINK);
    ParcelHead { purpose, team: 0, number, round: WHOLE, call }
}

impl Cluster {
    fn new(options: &Options) -> Cluster {
        let nodes = options.nodes;
        let queues = (0..nodes).map(|_| VecDeque::new()).collect();
        let switch = Arc::new(Mutex::new(Switch { queues, ..Switch::default() }));
        let engine = |me: Rank| {
            let here = if options.here.contains(&me) { options.here.clone() } else { Vec::new() };
            let switch = Arc::clone(&switch);
            let port = Port { me, switch, is_bare: options.is_bare, here };
            let setup = Setup {
                me,
                nodes,
                incarnation: 1,
                addresses: (0..nodes).map(|rank| vec![address(rank)]).collect(),
                datagram_max: Vec::new(),
                connections: (0..nodes).map(|rank| u64::from(100 + 10 * me + rank)).collect(),
                settings: Settings {
                    datagram_max: DATAGRAM_ETHERNET,
                    seal: options.seal,
                    ..Settings::default()
                },
                secret: Secret::from_bytes([7; 32]),
                keys: KeyOptions::default(),
                local_peers: Vec::new(),
            };
            let mut engine =
                Engine::new(setup, port, PageSet::new(), Arc::default(), Time(0)).unwrap();
            if !options.without.contains(&me) {
                engine.use_multicast(GROUP_BODY_MIN);
            }
            engine.connect(Time(0));
            Some(engine)
        };
        let engines: Vec<_> = (0..nodes).map(engine).collect();
        let received = vec![0; nodes as usize];
        let mut cluster = Cluster { engines, switch, now: Time(0), received };
        cluster.run("all to meet", |cluster| {
            let is_met = |engine: &Engine<Port, PageSet>| {
                (0..nodes).all(|rank| engine.peers().is_connected(rank))
            };
            cluster.engines.iter().flatten().all(is_met)
        });
        cluster
    }

    fn at(&mut self, rank: Rank) -> &mut Engine<Port, PageSet> {
        self.engines[rank as usize].as_mut().unwrap()
    }

    fn switch(&self) -> std::sync::MutexGuard<'_, Switch> {
        self.switch.lock().unwrap()
    }

    /// Runs turns of all nodes for one step of time. Checks what has arrived.
    fn step(&mut self) {
        self.now = step(self.now);
        for (rank, engine) in self.engines.iter_mut().enumerate() {
            let Some(engine) = engine else { continue };
            while engine.turn(self.now).more {}
            assert_eq!(engine.missed_peer(self.now), None, "at node {rank}");
            while let Some(parcel) = engine.inbox().take_parcel() {
                let (number, ParcelBody::Bytes(bytes)) = (parcel.head.number, parcel.body) else {
                    panic!("no place is awaited");
                };
                assert!(bytes[..] == body(number, bytes.len())[..], "message {number} at {rank}");
                self.received[rank] += 1;
            }
        }
    }

    /// Runs turns until this time, in steps of a millisecond.
    fn run_to(&mut self, until: Time) {
        while self.now < until {
            self.now += Duration::from_millis(1);
            self.step();
        }
    }

    fn run(&mut self, what: &str, mut until: impl FnMut(&mut Cluster) -> bool) {
        for _ in 0..100_000 {
            if until(self) {
                return;
            }
            self.step();
        }
        let counters: Vec<_> = self.engines.iter().flatten().map(Engine::group_counters).collect();
        let own = self.at(0).groups.own.get_mut(0);
        let states: Vec<_> = own.map(|own| own.stream.members().collect()).unwrap_or_default();
        let received = &self.received;
        panic!("waited in vain for {what}: {states:?}, {received:?}, {counters:?}");
    }

    /// Posts one message from node 0 to these nodes, as coherence does.
    fn post(&mut self, to: &[Rank], tag: u64, len: usize) {
        let body = Body::Inline(body(tag, len)).into_shared();
        let (mut out, ..) = self.at(0).stages();
        for rank in to {
            let message = Rma::parcel(&head(tag), body.clone(), Token::NONE).unwrap();
            out.post_or_gather(*rank, message);
        }
        out.post_alike();
    }

    /// Waits until each of these nodes has received so many messages.
    fn wait(&mut self, to: &[Rank], messages: u64) {
        self.run("messages", |cluster| {
            to.iter().all(|rank| cluster.received[*rank as usize] >= messages)
        });
    }

    /// Posts messages until a stream to these nodes is proven. Returns the number of messages.
    fn open_stream(&mut self, to: &[Rank]) -> u64 {
        for tag in 0..2 {
            self.post(to, tag, GROUP_BODY_MIN as usize);
        }
        let members = to.len() as u64;
        self.run("members", |cluster| cluster.at(0).group_counters().group_members == members);
        self.wait(to, 2);
        2
    }

    fn counters(&mut self, rank: Rank) -> GroupCounters {
        self.at(rank).group_counters()
    }
}

const OTHERS: [Rank; 3] = [1, 2, 3];
const LONG: usize = 1 << 20;

/// WIND-13.1, SEAL-8.2: bytes for several nodes go once, whatever the seal.
#[test]
fn message_to_several_nodes_goes_once() {
    let seals =
        [SealKind::Encrypted, SealKind::Authenticated, SealKind::EndToEnd, SealKind::HeaderOnly];
    for seal in seals {
        let mut cluster = Cluster::new(&Options { seal, ..Options::default() });
        let before = cluster.open_stream(&OTHERS);
        let to_groups = cluster.switch().to_groups;
        let to_nodes = cluster.switch().to_nodes;
        cluster.post(&OTHERS, 9, LONG);
        cluster.wait(&OTHERS, before + 1);
        let groups = cluster.switch().to_groups - to_groups;
        let nodes = cluster.switch().to_nodes - to_nodes;
        assert!(groups >= LONG / usize::from(DATAGRAM_ETHERNET), "{groups} datagrams");
        assert!(nodes < LONG / 4, "{nodes} bytes to single nodes");
        let counters = cluster.counters(0);
        assert_eq!((counters.group_streams_opened, counters.group_messages), (1, 1));
        for rank in OTHERS {
            let counters = cluster.counters(rank);
            assert!(counters.group_datagrams_received as usize >= groups, "{counters:?}");
        }
        cluster.run("the sender to settle", |cluster| cluster.at(0).is_settled());
    }
}

/// WIND-13.3: where multicast arrives nowhere, each node gets its messages alone. The stream is
/// closed after a few probes, and another one is tried later, because networks change.
#[test]
fn network_without_multicast_costs_a_few_probes() {
    let mut cluster = Cluster::new(&Options::default());
    cluster.switch().loses_groups = true;
    let mut posted = 0;
    let mut post_until = |cluster: &mut Cluster, seconds: u64| {
        while cluster.now < Time(seconds * 1_000_000_000) {
            cluster.post(&OTHERS, posted, 100_000);
            posted += 1;
            cluster.wait(&OTHERS, posted);
            let next = cluster.now + Duration::from_millis(200);
            cluster.run_to(next);
        }
    };
    post_until(&mut cluster, 8);
    assert_eq!(cluster.at(0).groups.own.len(), 0, "the stream is closed");
    assert!((1..4).all(|rank| cluster.at(rank).groups.subscriptions.of_sender(0).is_none()));
    let probes = cluster.switch().to_groups;
    assert!((3..=27).contains(&probes), "{probes} probes");
    assert_eq!(cluster.at(0).shown_groups().state(&OTHERS), GroupState::Closed);
    let counters = cluster.counters(0);
    assert_eq!((counters.group_messages, counters.group_streams_opened), (0, 1));
    // The network has changed by the next try.
    cluster.switch().loses_groups = false;
    post_until(&mut cluster, 20);
    let counters = cluster.counters(0);
    assert_eq!((counters.group_members, counters.group_streams_opened), (3, 2));
    assert!(counters.group_messages > 0);
}

/// WIND-13.2: the streams of receivers that do not answer are closed, too.
#[test]
fn stream_that_nobody_joins_is_closed() {
    let mut cluster = Cluster::new(&Options::default());
    (0..2).for_each(|tag| cluster.post(&OTHERS, tag, LONG));
    let mut late = [1, 2].map(|rank| cluster.engines[rank].take());
    // They stand still for a time that is too short to be taken for their end.
    cluster.now += GROUP_JOIN_TIME;
    assert_eq!(cluster.at(0).groups.own.len(), 1);
    cluster.at(0).groups.own.note_all();
    (0..10).for_each(|_| cluster.step());
    assert_eq!(cluster.at(0).groups.own.len(), 0);
    for rank in [1, 2] {
        cluster.engines[rank] = late[rank - 1].take();
    }
    cluster.wait(&OTHERS, 2);
}

/// WIND-12.4, WIND-13.2: a message to some of the receivers goes in the stream of all.
#[test]
fn fewer_receivers_share_in_the_stream_of_all() {
    let mut cluster = Cluster::new(&Options::default());
    let before = cluster.open_stream(&OTHERS);
    let sent = cluster.switch().to_nodes;
    for tag in 5..9 {
        cluster.post(&[1, 3], tag, LONG);
    }
    cluster.wait(&[1, 3], before + 4);
    assert_eq!(cluster.received[2], before);
    let counters = cluster.counters(0);
    assert_eq!((counters.group_streams_opened, counters.group_messages), (1, 4));
    assert!(cluster.switch().to_nodes - sent < LONG, "they went to the group");
}

/// WIND-13.3: what nodes say about streams waits while a connection has no room for it.
#[test]
fn stream_opens_although_connections_are_full() {
    let mut cluster = Cluster::new(&Options::default());
    cluster.post(&OTHERS, 0, LONG);
    for rank in OTHERS {
        let now = cluster.now;
        for _ in 0..MESSAGES_IN_FLIGHT {
            let (submission, _) = tracked(put(0, 1), None);
            cluster.at(rank).submit(submission, now);
        }
    }
    cluster.post(&OTHERS, 1, LONG);
    cluster.run("members", |cluster| cluster.counters(0).group_members == 3);
    cluster.wait(&OTHERS, 2);
}

/// WIND-13.3: a node joins no group for a stream that it does not follow.
#[test]
fn refused_streams_leave_no_group_behind() {
    let mut cluster = Cluster::new(&Options::default());
    let offer = |group| StreamOffer {
        member: 0,
        cipher: CipherKind::Aes128Gcm,
        group,
        secret: StreamSecret::from_bytes([0; StreamSecret::LEN]),
    };
    let mine = cluster.at(1).groups.addresses.ipv4;
    let foreign = SocketAddr::from(([239, 192, 0, 1], mine.port()));
    let open = |cluster: &mut Cluster, from, id, group| {
        cluster.at(1).layers.stream_steps.push((from, id, StreamStep::Open(offer(group))));
        cluster.step();
        cluster.switch().joined.len()
    };
    assert_eq!(open(&mut cluster, 0, 70, foreign), 0, "a group of another program");
    cluster.engines[3] = None;
    cluster.run("the end", |cluster| cluster.at(1).inbox().take_death().is_some());
    assert_eq!(open(&mut cluster, 3, 71, mine), 0, "the connection has ended");
    assert_eq!(open(&mut cluster, 0, 72, mine), 1);
}

/// WIND-12.7: each member repairs what it has lost by its own connection.
#[test]
fn members_that_lose_datagrams_get_their_bytes() {
    for seed in 0..4 {
        let mut cluster = Cluster::new(&Options::default());
        let before = cluster.open_stream(&OTHERS);
        cluster.switch().random = Some(Random::new(seed));
        cluster.switch().loss = 5;
        for tag in 0..10 {
            cluster.post(&OTHERS, tag, 200_000);
        }
        cluster.wait(&OTHERS, before + 10);
        assert!(cluster.counters(0).group_messages > 0);
        // Later all is lost at once: the stream was open, and nothing arrives.
        cluster.switch().loss = 100;
        cluster.post(&OTHERS, 10, LONG);
        cluster.wait(&OTHERS, before + 11);
    }
}

/// SEAL-8.5, WIND-13.5: when a member ends, the stream ends, and another one is opened for the
/// rest.
#[test]
fn stream_ends_with_a_member_and_another_one_follows() {
    let mut cluster = Cluster::new(&Options::default());
    let before = cluster.open_stream(&OTHERS);
    let of_stream = |datagram: &[u8]| u64::from_le_bytes(*datagram.first_chunk().unwrap());
    let first = of_stream(&cluster.switch().latest);
    assert_eq!(cluster.switch().joined.len(), 3);
    cluster.post(&OTHERS, 5, LONG);
    let mut gone = cluster.engines[3].take().unwrap();
    let (mut out, ..) = gone.stages();
    out.close();
    while gone.turn(cluster.now).more {}
    drop(gone);
    let rest = [1, 2];
    cluster.wait(&rest, before + 1);
    cluster.run("the end of the member", |cluster| cluster.at(0).inbox().take_death().is_some());
    assert_eq!(cluster.counters(0).group_members, 0, "the stream is closed");
    for tag in 6..8 {
        cluster.post(&rest, tag, LONG);
        cluster.wait(&rest, before + tag - 4);
    }
    cluster.run("a new stream", |cluster| cluster.counters(0).group_members == 2);
    cluster.post(&rest, 8, LONG);
    cluster.wait(&rest, before + 4);
    assert_eq!(cluster.counters(0).group_messages, 2);
    assert_ne!(of_stream(&cluster.switch().latest), first);
    // The members have left the old stream: its datagrams are unknown.
    assert!(cluster.at(1).groups.subscriptions.get_mut(first).is_none());
}

/// WIND-13.3: a node without multicast refuses, and gets what is for it alone.
#[test]
fn node_without_multicast_gets_its_messages_alone() {
    let mut cluster = Cluster::new(&Options { without: vec![2], ..Options::default() });
    for tag in 0..2 {
        cluster.post(&OTHERS, tag, LONG);
    }
    cluster.run("members", |cluster| cluster.counters(0).group_members == 2);
    cluster.post(&OTHERS, 2, LONG);
    cluster.wait(&OTHERS, 3);
    assert_eq!(cluster.counters(0).group_messages, 1);
    assert_eq!(cluster.counters(2), GroupCounters::default());
    let own = cluster.at(0).groups.own.get_mut(0).unwrap();
    let states: Vec<_> = own.stream.members().collect();
    assert_eq!(states[1], (2, MemberState::Refused));
}

/// WIND-13.2: nodes of one host that share no memory get their messages alone, and at once.
#[test]
fn nodes_of_one_host_are_not_members() {
    for (here, members) in [(vec![0, 2], 2), (vec![0, 1, 2], 0), (vec![1, 2, 3], 3)] {
        let mut cluster = Cluster::new(&Options { here: here.clone(), ..Options::default() });
        for tag in 0..2 {
            cluster.post(&OTHERS, tag, LONG);
        }
        cluster.wait(&OTHERS, 2);
        let next = cluster.now + Duration::from_secs(1);
        cluster.run_to(next);
        assert_eq!(cluster.counters(0).group_members, members, "{here:?}");
        assert_eq!(cluster.switch().joined.len() as u64, members, "{here:?}");
        assert_eq!(cluster.switch().to_groups > 0, members > 0, "{here:?}");
        cluster.post(&OTHERS, 2, LONG);
        cluster.wait(&OTHERS, 3);
        let is_open = cluster.at(0).shown_groups().state(&OTHERS) == GroupState::Open;
        assert_eq!(is_open, members == 3, "{here:?}");
    }
}

/// WIND-13.2: a link without groups opens no streams.
#[test]
fn link_without_groups_sends_to_each_node() {
    let mut cluster = Cluster::new(&Options { is_bare: true, ..Options::default() });
    for tag in 0..5 {
        cluster.post(&OTHERS, tag, LONG);
    }
    cluster.wait(&OTHERS, 5);
    assert_eq!(cluster.counters(0), GroupCounters::default());
    assert_eq!(cluster.switch().to_groups, 0);
}

/// WIND-10.1, WIND-12.2, WIND-13.4: what is forged or of no stream is counted and dropped.
#[test]
fn strange_group_datagrams_change_nothing() {
    for seal in [SealKind::Encrypted, SealKind::EndToEnd] {
        let mut cluster = Cluster::new(&Options { seal, ..Options::default() });
        let before = cluster.open_stream(&OTHERS);
        cluster.post(&OTHERS, 3, LONG);
        cluster.wait(&OTHERS, before + 1);
        let latest = cluster.switch().latest.clone();
        let give = |cluster: &mut Cluster, from: Rank, bytes: Vec<u8>| {
            let (groups, engine) = (cluster.counters(1), cluster.at(1).counters());
            cluster.switch().queues[1].push_back(OnTheWay { from, bytes, to_group: true });
            cluster.step();
            let (after, engine_after) = (cluster.counters(1), cluster.at(1).counters());
            assert_eq!(after.group_datagrams_received, groups.group_datagrams_received);
            (
                after.group_datagrams_unknown - groups.group_datagrams_unknown,
                engine_after.bad_seal - engine.bad_seal,
                engine_after.unknown_connection - engine.unknown_connection,
            )
        };
        assert_eq!(give(&mut cluster, 0, latest.clone()), (0, 0, 0), "a duplicate");
        let mut changed = latest.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(give(&mut cluster, 0, changed), (0, 1, 0), "a wrong seal");
        // From the address of another node, which is a member.
        assert_eq!(give(&mut cluster, 2, latest.clone()), (1, 0, 0));
        let mut other = latest.clone();
        other[0] ^= 1;
        assert_eq!(give(&mut cluster, 0, other), (1, 0, 0), "a stream of other nodes");
        cluster.post(&OTHERS, 4, DATAGRAM_MIN * 40);
        cluster.wait(&OTHERS, before + 2);
    }
}

/// Asks node 0 for a group of these nodes until the group is open.
fn open_group(cluster: &mut Cluster, to: &[Rank]) {
    let shown = cluster.at(0).shown_groups();
    assert_eq!(shown.state(to), GroupState::Unknown);
    for _ in 0..2 {
        let request = Request::WantGroup(to.to_vec());
        let now = cluster.now;
        cluster.at(0).submit(Submission { request, completion: None, keep: None }, now);
    }
    cluster.run("the group", |_| shown.state(to) == GroupState::Open);
}

/// Submits a parcel to each of these nodes, all together or one after the other, and waits for
/// them.
fn send_parcels(cluster: &mut Cluster, to: &[Rank], number: u64, together: bool) {
    let shared = Body::Inline(body(number, LONG)).into_shared();
    let request = |to: &Rank| Request::Parcel { to: *to, head: head(number), body: shared.clone() };
    let before = cluster.received.clone();
    let (submissions, completions): (Vec<_>, Vec<_>) =
        to.iter().map(|to| tracked(request(to), None)).unzip();
    let now = cluster.now;
    if together {
        cluster.at(0).submit_together(submissions, now);
    } else {
        submissions.into_iter().for_each(|submission| cluster.at(0).submit(submission, now));
    }
    cluster.run("parcels", |cluster| {
        to.iter().map(|rank| *rank as usize).all(|at| cluster.received[at] > before[at])
    });
    cluster.run("acknowledgements", |_| completions.iter().all(|one| one.is_done()));
    assert!(completions.iter().all(|one| one.outcome() == Some(Ok(Value::Done))));
}

/// COLL-2.7, WIND-13.1: parcels that are submitted together go once.
#[test]
fn alike_parcels_that_are_submitted_together_go_once() {
    let mut cluster = Cluster::new(&Options::default());
    open_group(&mut cluster, &OTHERS);
    let sent = cluster.switch().to_nodes;
    send_parcels(&mut cluster, &OTHERS, 1, true);
    let nodes = cluster.switch().to_nodes - sent;
    assert!(nodes < LONG / 4, "{nodes} bytes to single nodes");
    assert_eq!(cluster.counters(0).group_messages, 1);
    assert!(cluster.counters(0).group_bytes_sent >= LONG as u64);
    send_parcels(&mut cluster, &OTHERS, 2, false);
    assert_eq!(cluster.counters(0).group_messages, 1, "nothing is known of the next parcel");
}

/// COLL-2.7: threads see that a group is closed, and opens again without the lost node.
#[test]
fn group_that_loses_a_receiver_is_shown_as_closed() {
    let mut cluster = Cluster::new(&Options::default());
    let shown = cluster.at(0).shown_groups();
    open_group(&mut cluster, &OTHERS);
    cluster.engines[3] = None;
    cluster.run("the loss", |_| shown.state(&OTHERS) != GroupState::Open);
    cluster.run("the end", |_| shown.state(&OTHERS) == GroupState::Unknown);
    open_group(&mut cluster, &OTHERS[..2]);
    send_parcels(&mut cluster, &OTHERS[..2], 1, true);
    assert_eq!(cluster.counters(0).group_messages, 1);
}

/// WIND-13.3: a node that a member refuses, or that uses no multicast, has no group.
#[test]
fn group_that_not_all_receivers_hear_is_not_open() {
    for without in [0, 2] {
        let options = Options { without: vec![without], ..Options::default() };
        let mut cluster = Cluster::new(&options);
        for _ in 0..2 {
            let submission = Submission {
                request: Request::WantGroup(OTHERS.to_vec()),
                completion: None,
                keep: None,
            };
            let now = cluster.now;
            cluster.at(0).submit(submission, now);
        }
        if without != 0 {
            cluster.run("members", |cluster| cluster.counters(0).group_members == 2);
            cluster.step();
        }
        assert_eq!(cluster.at(0).shown_groups().state(&OTHERS), GroupState::Closed);
        send_parcels(&mut cluster, &OTHERS, 1, true);
    }
}
