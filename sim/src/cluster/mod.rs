//! A whole cluster: nodes, network and clock, which moves from event to event.

mod audit;
mod disks;
mod dump;
mod node;
mod queue;

pub use node::Node;

use crate::net::{Counts, Delivery, Departure, Network, address_of, nowhere, open, rank_of};
use crate::oracle::{Ends, Oracle};
use crate::plan::{End, Kill, Moment, Plan};
use crate::program::FIXED_LEN;
use crate::random::{Random, bytes_of};
use crate::trace::Trace;
use crate::violation::Violation;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use queue::{Event, Queue};
use std::net::SocketAddr;
use std::time::Duration;

/// Time after all work is done, in which late copies of datagrams may do harm.
const GRACE: Duration = Duration::from_millis(300);
/// Time in which the goodbyes must arrive.
const GOODBYE: Duration = Duration::from_millis(200);
/// Number of events after which a run makes no progress.
const EVENTS_MAX: u64 = 20_000_000;

/// A simulated cluster.
pub struct Cluster {
    plan: Plan,
    now: Time,
    queue: Queue,
    nodes: Vec<Option<Node>>,
    network: Network,
    oracle: Oracle,
    trace: Trace,
    random: Random,
    events: u64,
    /// Number of datagrams sent by the node that is killed after a number of datagrams.
    said: u64,
    /// Number of copies of datagrams that were sent to multicast groups.
    group_copies: u64,
    /// Time at which the death must be known.
    death_due_at: Option<Time>,
    /// Set while the killed node is to come back.
    awaited: bool,
}

/// Summary of a run without a violation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Virtual time in nanoseconds.
    pub time: u64,
    /// Number of copies of datagrams that were sent to multicast groups.
    pub group_copies: u64,
    /// Number of datagrams sent by flows of bulk beyond the first.
    pub by_further_flows: u64,
    /// Number of datagrams sent.
    pub datagrams: u64,
    /// Number of messages delivered to users.
    pub messages: u64,
    /// Number of confirmed additions of 1.
    pub counted: u64,
    /// Number of registrations that ended while other nodes accessed them.
    pub registrations: u64,
    /// Outcomes of the operations that were in flight when a node died.
    pub ends: Ends,
}

impl Cluster {
    /// Makes a cluster whose nodes are all at their beginning.
    ///
    /// # Errors
    /// The machine has no memory left.
    pub fn new(plan: Plan, trace: Trace) -> Result<Cluster, String> {
        let mut oracle = Oracle::new(plan.seed, plan.nodes);
        let mut nodes = Vec::new();
        for rank in 0..plan.nodes {
            nodes.push(Some(Node::start(&plan, rank, 0, Time::default(), &mut oracle)?));
        }
        let network = Network::new(plan.seed, plan.nodes, plan.weather.clone());
        let random = Random::stream(plan.seed, 0x636c_7573);
        let mut cluster = Cluster {
            now: Time::default(),
            queue: Queue::default(),
            nodes,
            network,
            oracle,
            trace,
            random,
            events: 0,
            group_copies: 0,
            said: 0,
            death_due_at: None,
            awaited: false,
            plan,
        };
        cluster.schedule();
        Ok(cluster)
    }

    fn schedule(&mut self) {
        for rank in 0..self.plan.nodes {
            // Nodes do not begin at the same moment, but regions are published before any node
            // looks them up.
            let late = self.random.spread(1, 3_000_000);
            self.wake(rank, Time(late));
        }
        for stall in self.plan.stalls.clone() {
            self.queue.push(stall.at, Event::Stall { rank: stall.rank, span: stall.span });
        }
        match self.plan.kill {
            Some(Kill { rank, at, end: End::CutOff(span) }) => {
                let (Moment::At(at) | Moment::Sent { latest: at, .. }) = at;
                let until = span.map_or(Time(u64::MAX), |span| at + span);
                self.queue.push(at, Event::CutOff { rank, until });
            }
            Some(Kill { rank, at, end }) => {
                let (Moment::At(at) | Moment::Sent { latest: at, .. }) = at;
                self.awaited = matches!(end, End::Replaced(_));
                self.queue.push(at, Event::Kill { rank });
            }
            None => {}
        }
    }

    /// Plans a turn of this node at this time, or when the node no longer stands still.
    fn wake(&mut self, rank: Rank, at: Time) {
        let Some(node) = self.nodes[rank as usize].as_mut() else { return };
        let at = at.max(node.stalled_until).max(self.now);
        if node.turn_at.is_none_or(|planned| at < planned) {
            node.turn_at = Some(at);
            self.queue.push(at, Event::Turn { rank, life: node.life });
        }
    }

    /// Runs until all work is done.
    ///
    /// # Errors
    /// The first promise that was broken.
    pub fn run(&mut self) -> Result<Summary, Violation> {
        self.run_while(|cluster| !cluster.is_finished(), self.plan.deadline)?;
        let until = self.now + GRACE;
        self.run_while(|_| true, until)?;
        self.conclude().map_err(|(node, what)| self.violation(node, what))?;
        if self.plan.kill.is_none() {
            self.close()?;
        }
        let Counts { sent: datagrams, by_further_flows, .. } = self.network.counts();
        let messages = self.oracle.messages.delivered();
        let (counted, ends) = (self.oracle.memory.counted(), self.oracle.ends.clone());
        let registrations = self.oracle.registrations;
        let (time, group_copies) = (self.now.0, self.group_copies);
        Ok(Summary {
            time,
            group_copies,
            by_further_flows,
            datagrams,
            messages,
            counted,
            registrations,
            ends,
        })
    }

    /// Handles events in order while `go_on` holds. Time stops at `until`. If `go_on` still holds
    /// at the run's own deadline, that is a violation.
    fn run_while(
        &mut self,
        go_on: impl Fn(&Cluster) -> bool,
        until: Time,
    ) -> Result<(), Violation> {
        while go_on(self) {
            let Some((at, event)) = self.queue.pop_before(until) else {
                if until < self.plan.deadline {
                    self.now = until;
                    return Ok(());
                }
                return Err(self.violation(
                    0,
                    "stuck: nothing happens any more and not all is done".to_owned(),
                ));
            };
            self.now = at;
            self.events += 1;
            if self.events > EVENTS_MAX {
                return Err(self.violation(0, "stuck: no end of events".to_owned()));
            }
            self.handle(event)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Arrive { to, from, bytes, congested } => {
                let len = bytes.len();
                let room = self.plan.settings.receive_buffer as usize;
                let Some(node) = self.nodes[to as usize].as_ref() else { return Ok(()) };
                let fits = open(&node.mailbox).deliver(from, bytes, congested, room);
                self.trace.event(
                    self.now,
                    to,
                    format_args!("{len} bytes from {from}{}", if fits { "" } else { ", no room" }),
                );
                let soon = Duration::from_nanos(
                    self.random.below(self.plan.sluggish.as_nanos() as u64 + 1),
                );
                self.wake(to, self.now + soon);
                Ok(())
            }
            Event::Turn { rank, life } => self.turn(rank, life),
            Event::Stall { rank, span } => {
                self.trace.event(self.now, rank, format_args!("stands still for {span:?}"));
                if let Some(node) = self.nodes[rank as usize].as_mut() {
                    node.stalled_until = self.now + span;
                    node.turn_at = None;
                }
                self.wake(rank, self.now);
                Ok(())
            }
            Event::Kill { rank } => {
                self.kill(rank);
                Ok(())
            }
            Event::CutOff { rank, until } => {
                self.trace.event(self.now, rank, format_args!("is cut off until {} ns", until.0));
                self.network.cut_off(rank, self.now, until);
                self.oracle.isolated = Some(rank);
                self.death_due_at = Some(self.now + self.plan.notice_time());
                Ok(())
            }
            Event::Restart { rank } => {
                self.trace.event(self.now, rank, format_args!("is started again"));
                self.awaited = false;
                let node = Node::start(&self.plan, rank, 1, self.now, &mut self.oracle)
                    .map_err(|what| self.violation(rank, what))?;
                self.nodes[rank as usize] = Some(node);
                self.wake(rank, self.now);
                Ok(())
            }
        }
    }

    fn kill(&mut self, rank: Rank) {
        if self.oracle.killed.is_some() {
            return;
        }
        self.trace.event(self.now, rank, format_args!("is killed"));
        self.nodes[rank as usize] = None;
        self.oracle.killed = Some(rank);
        self.oracle.ends.death(self.now);
        self.death_due_at = Some(self.now + self.plan.notice_time());
        // A peer that never knew the dead node takes its replacement for the node whose part in
        // collectives is missing.
        let known = self.nodes.iter().flatten().all(|node| node.engine.peers().is_connected(rank));
        match self.plan.kill {
            Some(Kill { end: End::Replaced(after), .. }) if known => {
                self.queue.push(self.now + after, Event::Restart { rank });
            }
            _ => self.awaited = false,
        }
    }

    /// Returns how many of these datagrams are still sent by a node that is killed between two of
    /// them.
    fn last_words(&mut self, rank: Rank, sending: usize) -> Option<usize> {
        let Some(Kill { rank: doomed, at: Moment::Sent { datagrams, .. }, .. }) = self.plan.kill
        else {
            return None;
        };
        if doomed != rank || self.oracle.killed.is_some() {
            return None;
        }
        let before = self.said;
        self.said += sending as u64;
        (self.said >= datagrams).then(|| (datagrams - before) as usize)
    }

    fn turn(&mut self, rank: Rank, life: u8) -> Result<(), Violation> {
        let now = self.now;
        let Some(node) = self.nodes[rank as usize].as_mut() else { return Ok(()) };
        if node.life != life || node.turn_at != Some(now) {
            return Ok(());
        }
        node.turn_at = None;
        if now < node.stalled_until {
            self.wake(rank, now);
            return Ok(());
        }
        let turned = node
            .turn(now, &mut self.oracle, &mut self.trace)
            .map_err(|what| self.violation(rank, what))?;
        let last_words = self.last_words(rank, turned.sent.len());
        for one in turned.sent.into_iter().take(last_words.unwrap_or(usize::MAX)) {
            if one.to.ip().is_multicast() {
                self.send_to_group(rank, &one);
            } else {
                self.send(rank, one);
            }
        }
        if last_words.is_some() {
            self.kill(rank);
            return Ok(());
        }
        if let Some(next) = turned.next {
            self.wake(rank, next);
        }
        self.check_waiting(rank)
    }

    /// Sends a datagram to all members of a group. Each copy meets faults of its own.
    fn send_to_group(&mut self, from: Rank, one: &Departure) {
        let is_member =
            |node: &&Node| node.rank != from && open(&node.mailbox).groups.contains(&one.to);
        let members: Vec<Rank> =
            self.nodes.iter().flatten().filter(is_member).map(|node| node.rank).collect();
        for to in members {
            self.group_copies += 1;
            let (port, bytes) = (one.port, one.bytes.clone());
            self.send(from, Departure { port, to: address_of(to), bytes });
        }
    }

    fn send(&mut self, from: Rank, Departure { port, to, bytes }: Departure) {
        let len = bytes.len();
        let ports = (port, to.port());
        let Some(to) = rank_of(to, self.plan.nodes) else {
            return self.trace.event(
                self.now,
                from,
                format_args!("sends {len} bytes to {to}, where nobody is"),
            );
        };
        if let Err(too_big_report) = self.network.narrow(from, to, len, self.now) {
            self.trace.event(
                self.now,
                from,
                format_args!("sends {len} bytes to node {to}, for which the path is too narrow"),
            );
            if let (Some(too_big_report), Some(node)) = (too_big_report, &self.nodes[from as usize])
            {
                open(&node.mailbox).too_big.push_back(too_big_report);
            }
            return;
        }
        let deliveries = self.network.send(from, ports, to, bytes, self.now);
        self.trace.event(
            self.now,
            from,
            format_args!("sends {len} bytes to node {to}, {} copies", deliveries.len()),
        );
        let from = SocketAddr::new(address_of(from).ip(), port);
        for delivery in deliveries {
            let Delivery { at, bytes, congested } = delivery;
            self.queue.push(at, Event::Arrive { to, from, bytes, congested });
        }
        if self.random.chance(self.plan.weather.garbage) {
            // The garbage comes from a stranger, or from one that pretends to be a node.
            let from = if self.random.chance(0.5) { nowhere(to) } else { from };
            let len = self.random.spread(0, 2000) as usize;
            let bytes = bytes_of(self.random.word(), len);
            let at = self.now + Duration::from_micros(self.random.below(500));
            self.queue.push(at, Event::Arrive { to, from, bytes, congested: false });
        }
    }

    /// Checks after a death that no wait outlasts the time to notice it, and that every node
    /// notices it.
    fn check_waiting(&self, rank: Rank) -> Result<(), Violation> {
        let Some(death_due_at) = self.death_due_at.filter(|at| *at < self.now) else {
            return Ok(());
        };
        let Some(node) = &self.nodes[rank as usize] else { return Ok(()) };
        let death = Time(death_due_at.0 - self.plan.notice_time().as_nanos() as u64);
        let too_long = |since: &Time| self.now.since((*since).max(death)) > self.plan.settling();
        if let Some(since) = node.waits_since().filter(too_long) {
            return Err(self.violation(
                rank,
                format!("an operation asked at {} ns has not ended after a node's death", since.0),
            ));
        }
        match self.unnoticed(node) {
            Some(dead) => {
                Err(self.violation(rank, format!("the end of node {dead} was not noticed")))
            }
            None => Ok(()),
        }
    }

    /// Returns a node whose end this node should have noticed and has not.
    fn unnoticed(&self, node: &Node) -> Option<Rank> {
        let mut lost = (0..self.plan.nodes)
            .filter(|rank| node.life == 0 && self.oracle.is_lost_to(node.rank, *rank));
        lost.find(|rank| !node.knows_end_of(*rank))
    }

    fn is_finished(&self) -> bool {
        let noticed = || self.nodes.iter().flatten().all(|node| self.unnoticed(node).is_none());
        let death_is_known =
            self.plan.kill.is_none() || (!self.awaited && self.death_due_at.is_some() && noticed());
        let Oracle { killed, isolated, .. } = &self.oracle;
        let lost =
            |rank: Rank, life: u8| life == 0 && (*killed == Some(rank) || *isolated == Some(rank));
        // A delivered message is settled only when its sender has learned of it. On a network at
        // its worst, that may take long.
        let settled = self.oracle.is_disturbed()
            || self.nodes.iter().flatten().all(|node| node.engine.ops().in_flight() == 0);
        death_is_known
            && settled
            && self.nodes.iter().flatten().all(Node::is_finished)
            && self.oracle.messages.outstanding(lost) == 0
    }

    /// Checks the conditions that must hold at the end of a run.
    fn conclude(&mut self) -> Result<(), (Rank, String)> {
        for node in self.nodes.iter().flatten() {
            for thread in &node.threads {
                thread.conclude(node.rank, &self.oracle).map_err(|what| (node.rank, what))?;
            }
            if node.engine.ops().in_flight() > 0 && !self.oracle.is_disturbed() {
                return Err((
                    node.rank,
                    format!(
                        "{} operations are in flight that nobody asked for",
                        node.engine.ops().in_flight()
                    ),
                ));
            }
        }
        if !self.oracle.is_disturbed() {
            self.oracle.memory.check_words().map_err(|what| (0, what))?;
        }
        self.oracle.memory.check_counts().map_err(|what| (0, what))?;
        self.oracle.sums.check().map_err(|what| (0, what))?;
        self.oracle.fifos.conclude().map_err(|what| (0, what))?;
        self.oracle.memory.check_fixed(FIXED_LEN).map_err(|what| (0, what))?;
        self.audit()
    }

    /// Makes all nodes say goodbye, one after another.
    fn close(&mut self) -> Result<(), Violation> {
        self.oracle.closing = true;
        for rank in 0..self.plan.nodes {
            if let Some(node) = self.nodes[rank as usize].as_mut() {
                node.close();
            }
            let at = self.now + Duration::from_nanos(self.random.below(2_000_000));
            self.wake(rank, at);
        }
        let until = self.now + GOODBYE;
        self.run_while(|_| true, until)
    }

    fn violation(&self, node: Rank, what: String) -> Violation {
        Violation { at: self.now, node, what }
    }

    /// Returns the events so far.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }
}
