//! The model: two nodes and a channel that loses, repeats and reorders, as states and actions.

use super::node::{Datagram, Node, ROOM_FOR_ALL, ROOM_FOR_ONE};
use super::scenario::Scenario;
use super::watcher::{Done, Outcome};
use core::hash::{Hash, Hasher};
use core::time::Duration;
use stateright::{Model, Property};
use std::sync::Arc;
use std::vec::Vec;

/// Number of faults of each kind. Order is never promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    pub losses: u8,
    pub repeats: u8,
    /// Timers that run while datagrams are in flight, which are that late.
    pub early: u8,
    /// Messages that are cancelled.
    pub cancels: u8,
}

/// Datagram number that no run of the model needs. Two nodes that reach it make no progress.
const ENDLESS: u64 = 40;

/// Time at which messages are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posts {
    /// All messages are posted first, and one fits into a datagram.
    AtFirst,
    /// Messages are posted at any time, and several may share a datagram.
    Anytime,
}

/// Two nodes and a channel, for these scenarios.
pub struct Pair {
    pub scenarios: Vec<Arc<Scenario>>,
    pub posts: Posts,
    pub faults: Faults,
}

#[derive(Clone)]
pub struct State {
    pub scenario: Arc<Scenario>,
    pub nodes: [Arc<Node>; 2],
    /// Datagrams in flight, sorted.
    pub channel: Vec<Datagram>,
    pub left: Faults,
    /// Largest datagram number so far.
    highest: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// This node posts its next message.
    Post(usize),
    /// This node sends one datagram.
    Send(usize),
    /// This node sends one datagram, which is lost. (When it is lost on its way makes no
    /// difference.)
    SendLost(usize),
    Deliver {
        to: usize,
        bulk: bool,
        number: u64,
    },
    /// The datagram is delivered, and another copy of it stays in flight.
    Repeat {
        to: usize,
        bulk: bool,
        number: u64,
    },
    /// Time passes until the next timer of any node runs.
    Wait,
    /// Time passes for this node alone, to its next timer.
    Early(usize),
    /// The sender of this message cancels it.
    Cancel(usize),
    /// This node's turn ends, and it processes its deferred acknowledgement.
    DeferredAck(usize),
}

impl State {
    fn new(scenario: &Arc<Scenario>, posts: Posts, left: Faults) -> State {
        let room = if posts == Posts::AtFirst { ROOM_FOR_ONE } else { ROOM_FOR_ALL };
        let mut nodes = Node::pair(scenario, room);
        if posts == Posts::AtFirst {
            nodes
                .iter_mut()
                .for_each(|node| scenario.of(node.me).for_each(|_| node.post(scenario)));
        }
        State {
            scenario: scenario.clone(),
            nodes: nodes.map(Arc::new),
            channel: Vec::new(),
            left,
            highest: 0,
        }
    }

    fn node(&mut self, n: usize) -> &mut Node {
        Arc::make_mut(&mut self.nodes[n])
    }

    fn find(&self, to: usize, bulk: bool, number: u64) -> Option<usize> {
        self.channel.iter().position(|datagram| {
            (datagram.to, datagram.bulk, datagram.number) == (to, bulk, number)
        })
    }

    /// Returns `true` if nothing is in flight and nothing is due, so that only time can pass.
    fn is_quiet(&self) -> bool {
        self.channel.is_empty()
            && self
                .nodes
                .iter()
                .all(|node| !node.connection.has_due(node.clock) && !node.owes_deferred_ack())
    }

    /// Returns the node whose timer runs next, and in how long.
    fn next_timer(&self) -> Option<(usize, Duration)> {
        let span = |node: &Arc<Node>| Some((node.me, node.timer()?.since(node.clock)));
        self.nodes.iter().filter_map(span).min_by_key(|(_, span)| *span)
    }

    fn actions(&self, actions: &mut Vec<Action>) {
        if self.broken().is_some() || self.highest >= ENDLESS {
            return;
        }
        for Datagram { to, bulk, number, .. } in self.channel.iter().cloned() {
            actions.push(Action::Deliver { to, bulk, number });
            if self.left.repeats > 0 {
                actions.push(Action::Repeat { to, bulk, number });
            }
        }
        if self.is_quiet() && self.next_timer().is_some() {
            actions.push(Action::Wait);
        }
        for (n, node) in self.nodes.iter().enumerate() {
            if node.connection.has_due(node.clock) {
                actions.push(Action::Send(n));
                if self.left.losses > 0 {
                    actions.push(Action::SendLost(n));
                }
            }
            if node.owes_deferred_ack() {
                actions.push(Action::DeferredAck(n));
            }
            if self.scenario.of(n).nth(node.posted).is_some() {
                actions.push(Action::Post(n));
            }
            if self.left.early > 0 && node.timer().is_some() {
                actions.push(Action::Early(n));
            }
            if self.left.cancels > 0 {
                let posted = self.scenario.of(n).take(node.posted).map(|(id, _)| id);
                actions.extend(
                    posted.filter(|id| node.watcher.outcomes[*id].is_none()).map(Action::Cancel),
                );
            }
        }
    }

    fn send(&mut self, n: usize) -> Option<Datagram> {
        let datagram = self.node(n).send()?;
        self.highest = self.highest.max(datagram.number);
        Some(datagram)
    }

    fn act(&mut self, action: &Action) -> Option<()> {
        match *action {
            Action::Post(n) => {
                let scenario = self.scenario.clone();
                self.node(n).post(&scenario);
            }
            Action::SendLost(n) => {
                self.left.losses -= 1;
                self.send(n)?;
            }
            Action::Send(n) => {
                let datagram = self.send(n)?;
                let at = self.channel.partition_point(|other| *other < datagram);
                self.channel.insert(at, datagram);
            }
            Action::Deliver { to, bulk, number } => {
                let datagram = self.channel.remove(self.find(to, bulk, number)?);
                self.node(to).take(&datagram);
            }
            Action::Repeat { to, bulk, number } => {
                let datagram = self.channel.get(self.find(to, bulk, number)?)?.clone();
                self.left.repeats -= 1;
                self.node(to).take(&datagram);
            }
            Action::Wait => {
                let (n, span) = self.next_timer()?;
                self.node(1 - n).clock += span;
                self.node(n).tick();
            }
            Action::Early(n) => {
                self.left.early -= 1;
                self.node(n).tick();
            }
            Action::Cancel(id) => {
                self.left.cancels -= 1;
                self.node(self.scenario.0[id].from).cancel(id);
            }
            Action::DeferredAck(n) => self.node(n).process(),
        }
        self.settle();
        Some(())
    }

    /// Reads all events, which the owners do as soon as they happen.
    fn settle(&mut self) {
        for n in 0..2 {
            if self.nodes[n].connection.events.is_empty() {
                continue;
            }
            let there = self.nodes[1 - n].clone();
            let node = self.node(n);
            while let Some(event) = node.connection.poll_event() {
                node.watcher.settled(event, &there.watcher);
            }
        }
    }

    /// Returns the first promise that was broken.
    pub fn broken(&self) -> Option<&'static str> {
        self.nodes.iter().find_map(|node| node.watcher.broken)
    }

    /// Returns `true` if everything is delivered, refused or withdrawn, its sender knows, and both
    /// nodes are idle.
    fn is_settled(&self) -> bool {
        self.nodes.iter().all(|node| node.connection.is_idle())
            && (0..self.scenario.0.len()).all(|id| self.has_ended(id))
    }

    fn has_ended(&self, id: usize) -> bool {
        let from = self.scenario.0[id].from;
        let number = self.scenario.of(from).take_while(|(at, _)| *at < id).count();
        let done = self.nodes[1 - from].watcher.incoming[number].done;
        match self.nodes[from].watcher.outcomes[id] {
            Some(Outcome::Acknowledged) => done == Some(Done::Delivered),
            Some(Outcome::Refused) => done == Some(Done::Refused),
            Some(Outcome::Cancelled) => done.is_some(),
            None => false,
        }
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.scenario, &self.nodes, &self.channel, self.left).hash(state);
    }
}

/// Compares states as the checker itself does.
impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        let hash = |state: &State| {
            let mut hasher = std::hash::DefaultHasher::new();
            state.hash(&mut hasher);
            hasher.finish()
        };
        hash(self) == hash(other)
    }
}

impl Model for Pair {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.scenarios
            .iter()
            .map(|scenario| State::new(scenario, self.posts, self.faults))
            .collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.actions(actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.act(&action).map(|()| state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        std::vec![
            Property::always(SAFE, |_, state: &State| state.broken().is_none()),
            Property::always(ENDS, |_, state: &State| state.highest < ENDLESS),
            // No run continues forever, so a property that holds at every end holds eventually.
            Property::always(SETTLES, |_, state: &State| {
                let mut next = Vec::new();
                state.actions(&mut next);
                !next.is_empty() || state.broken().is_some() || state.is_settled()
            }),
            // The faults must have an effect. Otherwise the other properties would mean little.
            Property::sometimes(OVERTAKES, |_, state: &State| state
                .nodes
                .iter()
                .any(|node| node.watcher.overtaken)),
        ]
    }
}

pub const SAFE: &str = "no promise is broken";
pub const ENDS: &str = "every run ends";
pub const OVERTAKES: &str = "a message overtakes another";
pub const SETTLES: &str = "at its end everything has settled";
