//! Node of the tests: an engine, and the queue of requests from its threads.

use super::*;
use oikaze_protocol::wire::SealKind;

pub(crate) struct Node {
    pub(crate) engine: Engine<Wire, PageSet>,
    submissions: Arc<SegQueue<Submission>>,
}

impl Node {
    pub(crate) fn new(me: Rank, nodes: u32, link: Wire) -> Self {
        Self::with_local_peers(me, nodes, link, Vec::new())
    }

    pub(crate) fn with_local_peers(
        me: Rank,
        nodes: u32,
        link: Wire,
        local_peers: Vec<(Rank, Pair)>,
    ) -> Self {
        let settings = Settings { datagram_max: DATAGRAM_ETHERNET, ..Settings::default() };
        Self::with_settings((me, nodes, 1), link, local_peers, settings)
    }

    pub(crate) fn with_settings(
        (me, nodes, incarnation): (Rank, u32, u64),
        link: Wire,
        local_peers: Vec<(Rank, Pair)>,
        settings: Settings,
    ) -> Self {
        let submissions = Arc::new(SegQueue::new());
        let setup = Setup {
            me,
            nodes,
            incarnation,
            addresses: vec![vec![address(0)]; nodes as usize],
            datagram_max: Vec::new(),
            connections: (0..nodes).map(|rank| u64::from(100 + 10 * me + rank)).collect(),
            settings,
            secret: Secret::from_bytes([7; 32]),
            keys: KeyOptions::default(),
            local_peers,
        };
        let mut engine =
            Engine::new(setup, link, PageSet::new(), Arc::clone(&submissions), Time(0)).unwrap();
        engine.connect(Time(0));
        Self { engine, submissions }
    }

    pub(crate) fn ask(&self, request: Request) -> Arc<Completion> {
        let (submission, completion) = tracked(request, None);
        self.submissions.push(submission);
        completion
    }

    /// Submits a request without a completion.
    pub(crate) fn tell(&self, request: Request) {
        self.submissions.push(Submission { request, completion: None, keep: None });
    }

    /// Cancels an operation at once.
    pub(crate) fn cancel(&mut self, completion: &Arc<Completion>) {
        let (mut out, egress, inbox) = self.engine.stages();
        crate::regions::cancel(completion, &mut out, egress, inbox);
    }

    /// Polls the local peers, and does nothing else of a turn.
    pub(crate) fn poll_local_peers(&mut self, now: Time) {
        let Engine { shm, layers, ops, inbox, .. } = &mut self.engine;
        shm.poll(now, layers, ops, inbox);
    }

    /// Shares no memory with this peer any more.
    pub(crate) fn detach_local_peer(&mut self, rank: Rank, death: Death) {
        let Engine { shm, ops, inbox, .. } = &mut self.engine;
        shm.detach(rank, death, ops, inbox);
    }

    /// Withdraws all rights of peers to a torn region.
    pub(crate) fn shut(&mut self, region: &Region) {
        let (mut out, egress, inbox) = self.engine.stages();
        crate::regions::shut(region, &mut out, egress, inbox);
    }

    /// Runs turns until there is nothing to do at once.
    pub(crate) fn turn(&mut self, now: Time) {
        while self.engine.turn(now).more {}
    }
}

/// Returns two connected nodes, and the time.
pub(crate) fn pair() -> (Node, Node, Time) {
    pair_with(Settings::default().seal)
}

/// Returns two connected nodes whose datagrams have this kind of seal, and the time.
pub(crate) fn pair_with(seal: SealKind) -> (Node, Node, Time) {
    let (one, other) = (Queue::default(), Queue::default());
    let node = |me: Rank, to: &Queue, from: &Queue| {
        let link = Wire::between(to, from);
        let settings = Settings { datagram_max: DATAGRAM_ETHERNET, seal, ..Settings::default() };
        Node::with_settings((me, 2, 1), link, Vec::new(), settings)
    };
    let (mut a, mut b) = (node(0, &one, &other), node(1, &other, &one));
    let now = connect(&mut a, &mut b, Time(0));
    (a, b, now)
}

/// Runs turns until both nodes are connected. Returns the time.
pub(crate) fn connect(a: &mut Node, b: &mut Node, mut now: Time) -> Time {
    while !(a.engine.peers().is_connected(1) && b.engine.peers().is_connected(0)) {
        turn_both(&mut now, a, b);
    }
    now
}

pub(crate) fn step(now: Time) -> Time {
    now + Duration::from_micros(100)
}

/// Goes on by one step of time, with a turn of each node.
pub(crate) fn turn_both(now: &mut Time, one: &mut Node, other: &mut Node) {
    *now = step(*now);
    one.turn(*now);
    other.turn(*now);
}

/// Runs turns of both nodes until `until` returns `true` after a turn of `b`.
pub(crate) fn run(
    a: &mut Node,
    b: &mut Node,
    now: &mut Time,
    mut until: impl FnMut(&mut Node) -> bool,
) {
    for _ in 0..50_000 {
        *now = step(*now);
        a.engine.turn(*now);
        b.engine.turn(*now);
        if until(b) {
            return;
        }
    }
    panic!("it never ended");
}
