//! State of the model: nodes with the real coherence, threads, and messages in flight. A *step* is
//! one call of coherence's own interface, or one access to memory.
//!
//! The network keeps what Wind promises, and no more (WIND-2.3, WIND-4.8). An unordered message is
//! delivered at any time. An ordered or synchronous message is delivered when all earlier messages
//! between the same nodes are. The poster learns of a delivery some time later. A body that is a
//! segment is read when the message is posted, and again at any time until it arrives (COH-3.7).

use super::digest::place_of_diff;
use super::machine::{FRAGMENT, Machine, Page, WORDS, spread};
use super::program::{Act, CELLS, Cell, Extent, Program, Style};
use crate::Rank;
use crate::coherence::codec::Headline;
use crate::coherence::{
    Access, ArrayId, Coherence, CoherenceEvent, Declaration, Element, Homes, LockMode, Value,
    WriteId,
};
use crate::limits::PAGE;
use crate::wind::{Admission, Body, Class, Message, Refusal, Token};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;
use std::sync::Arc;

/// Settling of messages whose poster does nothing with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// The poster learns of it at delivery, which saves states. Diffs are always settled later.
    AtDelivery,
    /// The poster learns of it at any time, as of all messages.
    Anytime,
}

/// Step of the model. Numbers are places in the lists of the state before the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A thread goes on with its act.
    Run(usize),
    /// A message arrives as a whole.
    Deliver { pair: usize, message: usize },
    /// One fragment of a message arrives.
    Place { pair: usize, message: usize, fragment: usize },
    /// The sender reads one word of a body again, to retransmit it.
    Reread { pair: usize, message: usize, word: usize },
    /// The poster of a delivered message learns of the delivery.
    Settle(usize),
}

/// Node of the model: the real coherence over a model of memory.
#[derive(Clone, Debug)]
struct Node {
    coherence: Coherence,
    machine: Machine,
    /// Hash of the two above, made by [`State::seal`].
    digest: u64,
}

/// Message in flight.
#[derive(Clone, Debug)]
struct Flying {
    /// Number between these two nodes, in the order of posting.
    number: u64,
    message: Message,
    /// Words of a body that is a segment, as they were last read.
    words: Vec<u64>,
    /// Whether each word's fragment has arrived.
    placed: Vec<bool>,
    admission: Option<Admission>,
}

/// Reason why a thread does not run its next act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pause {
    No,
    /// Waits for an operation with the thread's own token.
    Operation,
    /// Sleeps until the page is woken, as after a page fault.
    Asleep(Page),
    /// Waits for the other threads of its node before a barrier, and then for the barrier.
    AtBarrier,
}

#[derive(Clone, Debug, Hash)]
struct Thread {
    /// Number of acts that are done.
    at: usize,
    waiting: Pause,
    /// Value that the first half of [`Act::Add`] has loaded.
    loaded: Option<u64>,
    guard: Option<WriteId>,
    /// `true` if the act is tried again when the operation is done.
    again: bool,
}

/// Memory of a sequential machine, and the promises about locks and barriers.
#[derive(Clone, Debug, Hash)]
struct Oracle {
    memory: [u64; CELLS],
    /// Threads that have each lock, and whether they only read.
    holders: BTreeMap<u64, Vec<(usize, bool)>>,
    /// Whether each section was entered.
    entered: Vec<bool>,
    /// Number of barriers that each node has called and passed.
    called: Vec<u32>,
    passed: Vec<u32>,
}

/// State of the model.
#[derive(Clone, Debug)]
pub struct State {
    program: Arc<Program>,
    settling: Settling,
    nodes: Vec<Arc<Node>>,
    /// Messages in flight between each pair of nodes, in the order of posting.
    pairs: Vec<Vec<Flying>>,
    posted: Vec<u64>,
    /// Delivered messages of which the poster has not learned: poster, token, and whether the
    /// message was refused because a home has moved.
    delivered: Vec<(Rank, Token, bool)>,
    threads: Vec<Thread>,
    oracle: Oracle,
    /// First promise that was broken.
    pub broken: Option<String>,
}

impl State {
    /// Returns the state in which all nodes have declared the arrays of a program.
    pub fn new(program: &Arc<Program>, settling: Settling) -> State {
        let nodes = program.nodes as usize;
        let node = |rank| Node {
            coherence: Coherence::new(rank, program.nodes),
            machine: Machine::default(),
            digest: 0,
        };
        let thread = Thread { at: 0, waiting: Pause::No, loaded: None, guard: None, again: false };
        let mut state = State {
            program: program.clone(),
            settling,
            nodes: (0..program.nodes).map(|rank| Arc::new(node(rank))).collect(),
            pairs: vec![Vec::new(); nodes * nodes],
            posted: vec![0; nodes * nodes],
            delivered: Vec::new(),
            threads: vec![thread; program.threads.len()],
            oracle: Oracle {
                memory: [0; CELLS],
                holders: BTreeMap::new(),
                entered: vec![false; program.sections],
                called: vec![0; nodes],
                passed: vec![0; nodes],
            },
            broken: None,
        };
        for (number, homes) in program.arrays().into_iter().enumerate() {
            state.declare(number, homes);
            for (rank, delivery) in (0..).zip(&program.deliveries) {
                state.call(rank, |coherence, _| {
                    coherence.set_delivery(number as ArrayId, *delivery);
                    coherence.set_moving_homes(number as ArrayId, program.homes_move);
                    if program.style == Style::Guarded {
                        coherence.track_by_guards(number as ArrayId);
                    }
                });
            }
        }
        state.seal();
        state
    }

    /// Declares an array on every node, in one order of all messages.
    fn declare(&mut self, number: usize, homes: Vec<Rank>) {
        let pages = homes.len() as u64;
        for rank in 0..self.program.nodes {
            let declaration = Declaration {
                name: format!("{number}"),
                bytes: pages * PAGE as u64,
                element: Element { kind: 1, size: 8 },
                homes: Homes::Explicit(homes.clone()),
                ..Declaration::default()
            };
            self.call(rank, |coherence, machine| {
                let array = coherence.next_array();
                machine.add(array, pages);
                coherence.set_alias_region(array, array);
                coherence.declare(declaration, Token::NONE, machine);
            });
        }
        loop {
            if !self.delivered.is_empty() {
                self.apply(Step::Settle(0));
            } else if let Some(pair) = self.pairs.iter().position(|pair| !pair.is_empty()) {
                self.apply(Step::Deliver { pair, message: 0 });
            } else {
                return;
            }
        }
    }

    fn node(&self, rank: Rank) -> &Node {
        &self.nodes[rank as usize]
    }

    fn node_of(&self, thread: usize) -> Rank {
        self.program.threads[thread].0
    }

    fn act_of(&self, thread: usize) -> Option<Act> {
        self.program.threads[thread].1.get(self.threads[thread].at).copied()
    }

    fn ends_of(&self, pair: usize) -> (Rank, Rank) {
        let nodes = self.nodes.len();
        ((pair / nodes) as Rank, (pair % nodes) as Rank)
    }

    /// Returns a word of a segment as it is in its sender's memory.
    fn source(&self, from: Rank, message: &Message, word: usize) -> u64 {
        let Body::Segment(segment) = message.body else { return 0 };
        // The regions of the model have the numbers of their arrays.
        let place = segment.offset as usize / FRAGMENT + word;
        self.node(from).machine.word((segment.region, (place / WORDS) as u64), place % WORDS)
    }

    /// Returns `true` if the thread can go on.
    fn can_run(&self, thread: usize) -> bool {
        if self.threads[thread].waiting != Pause::No {
            return false;
        }
        match self.act_of(thread) {
            Some(Act::Lock { after: Some(section), .. }) => self.oracle.entered[section],
            // A node with a live guard refuses a collective (COH-6.10).
            Some(Act::Barrier) => (0..self.threads.len()).all(|other| {
                self.node_of(other) != self.node_of(thread) || self.threads[other].guard.is_none()
            }),
            Some(_) => true,
            None => false,
        }
    }

    /// Returns `true` if WIND-2.3 lets this message of a pair arrive now.
    fn can_arrive(&self, pair: usize, message: usize) -> bool {
        message == 0 || self.pairs[pair][message].message.class == Class::Unordered
    }

    /// Returns `true` if the fragments of a message are placed one by one. Ordered and synchronous
    /// messages are assembled (WIND-2.10).
    fn arrives_in_fragments(&self, flying: &Flying) -> bool {
        self.program.fragments
            && !flying.words.is_empty()
            && flying.message.class == Class::Unordered
            && flying.admission != Some(Admission::Assemble)
    }

    /// Appends all steps that are possible now.
    pub fn steps(&self, steps: &mut Vec<Step>) {
        if self.broken.is_some() {
            return;
        }
        steps.extend((0..self.threads.len()).filter(|t| self.can_run(*t)).map(Step::Run));
        for (pair, flying) in self.pairs.iter().enumerate() {
            let (from, _) = self.ends_of(pair);
            for (message, one) in flying.iter().enumerate() {
                for word in (0..one.words.len()).filter(|word| !one.placed[*word]) {
                    if one.words[word] != self.source(from, &one.message, word) {
                        steps.push(Step::Reread { pair, message, word });
                    }
                    if self.arrives_in_fragments(one) {
                        steps.push(Step::Place { pair, message, fragment: word });
                    }
                }
                if !self.arrives_in_fragments(one) && self.can_arrive(pair, message) {
                    steps.push(Step::Deliver { pair, message });
                }
            }
        }
        steps.extend((0..self.delivered.len()).map(Step::Settle));
    }

    /// Returns `true` if any step is possible.
    pub fn can_step(&self) -> bool {
        self.broken.is_none()
            && (!self.delivered.is_empty()
                || self.pairs.iter().any(|pair| !pair.is_empty())
                || (0..self.threads.len()).any(|thread| self.can_run(thread)))
    }

    /// Returns what is wrong with a state in which no step is possible.
    pub fn flaw_at_end(&self) -> Option<String> {
        if let Some(thread) = (0..self.threads.len()).find(|t| self.act_of(*t).is_some()) {
            return Some(format!(
                "thread {thread} waits for ever at {:?}: {:?}",
                self.act_of(thread),
                self.threads[thread].waiting
            ));
        }
        for cell in 0..CELLS {
            let page = self.program.page(cell);
            let home = match self.homes_of(page)[..] {
                [home] => home,
                ref homes => return Some(format!("cell {cell} has the homes {homes:?}")),
            };
            let (there, expected) =
                (self.node(home).machine.word(page, cell % WORDS), self.oracle.memory[cell]);
            if there != expected {
                return Some(format!("the home of cell {cell} has {there} and not {expected}"));
            }
        }
        None
    }

    /// Returns the homes of a page as the nodes know them, each once.
    fn homes_of(&self, (array, page): Page) -> Vec<Rank> {
        let arrays = self.nodes.iter().map(|node| node.coherence.arrays.get(array));
        let mut homes: Vec<Rank> = arrays.flatten().map(|array| array.home(page)).collect();
        homes.dedup();
        homes
    }

    /// Returns the number of pages whose homes have moved.
    pub fn moves(&self) -> u64 {
        self.nodes.iter().map(|node| node.coherence.statistics().homes_moved).sum()
    }

    /// Returns the number of updates that have arrived.
    pub fn updates(&self) -> u64 {
        self.nodes.iter().map(|node| node.coherence.statistics().updates_received).sum()
    }

    /// Returns the number of pages that were fetched in vain, because a notice overtook them.
    pub fn stale_pages(&self) -> u64 {
        self.nodes.iter().map(|node| node.coherence.statistics().stale_pages).sum()
    }

    /// Takes one step.
    pub fn apply(&mut self, step: Step) {
        match step {
            Step::Run(thread) => self.run(thread),
            Step::Settle(place) => {
                let (poster, token, has_moved) = self.delivered.remove(place);
                self.settle(poster, token, has_moved);
            }
            Step::Reread { pair, message, word } => {
                let (from, _) = self.ends_of(pair);
                let now = self.source(from, &self.pairs[pair][message].message, word);
                self.pairs[pair][message].words[word] = now;
            }
            Step::Place { pair, message, fragment } => self.place(pair, message, fragment),
            Step::Deliver { pair, message } => {
                let (from, to) = self.ends_of(pair);
                let one = self.pairs[pair].remove(message);
                let mut body = Vec::new();
                if let Body::Segment(_) = one.message.body {
                    body.resize(one.message.body.len() as usize, 0);
                    spread(&one.words, &mut body);
                }
                let body = if body.is_empty() { one.message.body.bytes() } else { &body };
                let mut result = Ok(());
                self.call(to, |coherence, machine| {
                    result = coherence.receive(from, &one.message.head, body, machine);
                });
                self.arrived((from, to), &one.message, result);
            }
        }
        self.look_for_misuse();
    }

    /// Calls coherence, and takes its messages, its events and the threads that it woke.
    fn call(&mut self, rank: Rank, call: impl FnOnce(&mut Coherence, &mut Machine)) {
        let Node { coherence, machine, digest } = Arc::make_mut(&mut self.nodes[rank as usize]);
        *digest = 0;
        call(coherence, machine);
        let woken = core::mem::take(&mut machine.woken);
        let (mut posts, mut events) = (Vec::new(), Vec::new());
        while let Some(post) = coherence.poll_message() {
            posts.push(post);
        }
        while let Some(event) = coherence.poll_event() {
            events.push(event);
        }
        for (to, message) in posts {
            self.post(rank, to, message);
        }
        for event in events {
            self.hear(rank, event);
        }
        for thread in 0..self.threads.len() {
            let waiting = self.threads[thread].waiting;
            if self.node_of(thread) == rank
                && matches!(waiting, Pause::Asleep(page) if woken.contains(&page))
            {
                self.threads[thread].waiting = Pause::No;
            }
        }
    }

    fn post(&mut self, from: Rank, to: Rank, message: Message) {
        let pair = from as usize * self.nodes.len() + to as usize;
        let words = match message.body {
            Body::Segment(segment) => (segment.len as usize).div_ceil(FRAGMENT),
            _ => 0,
        };
        let number = self.posted[pair];
        self.posted[pair] += 1;
        let words: Vec<u64> = (0..words).map(|word| self.source(from, &message, word)).collect();
        let placed = vec![false; words.len()];
        self.pairs[pair].push(Flying { number, message, words, placed, admission: None });
    }

    /// A fragment arrives. The last one makes the message whole.
    fn place(&mut self, pair: usize, message: usize, fragment: usize) {
        let (from, to) = self.ends_of(pair);
        let one = &self.pairs[pair][message];
        let (number, head) = (one.number, one.message.head.clone());
        let (len, word) = (one.message.body.len(), one.words[fragment]);
        if one.admission.is_none() {
            let mut admission = Admission::Assemble;
            self.call(to, |coherence, _| admission = coherence.admit(from, number, &head, len));
            if let Admission::Refuse(refusal) = admission {
                self.break_promise(format!("node {to} refuses a body: {refusal:?}"));
                return;
            }
            self.pairs[pair][message].admission = Some(admission);
            if admission != Admission::Place {
                return;
            }
        }
        let offset = (fragment * FRAGMENT) as u64;
        let mut bytes = vec![0; FRAGMENT.min((len - offset) as usize)];
        spread(&[word], &mut bytes);
        self.call(to, |coherence, machine| coherence.place(from, number, offset, &bytes, machine));
        let one = &mut self.pairs[pair][message];
        one.placed[fragment] = true;
        if one.placed.iter().all(|placed| *placed) {
            let one = self.pairs[pair].remove(message);
            let mut result = Ok(());
            self.call(to, |coherence, machine| {
                result = coherence.arrived(from, number, &head, machine);
            });
            self.arrived((from, to), &one.message, result);
        }
    }

    /// A message has been handed up.
    fn arrived(&mut self, ends: (Rank, Rank), message: &Message, result: Result<(), Refusal>) {
        let (from, to) = ends;
        let has_moved = result == Err(Refusal::Moved);
        if let Err(refusal) = result
            && !has_moved
        {
            let head = Headline::read(&message.head);
            self.break_promise(format!("node {to} refuses {head:?} of node {from}: {refusal:?}"));
        }
        let matters = place_of_diff(&self.node(from).coherence, message.token).is_some();
        if matters || self.settling == Settling::Anytime {
            self.delivered.push((from, message.token, has_moved));
        } else {
            self.settle(from, message.token, has_moved);
        }
    }

    fn settle(&mut self, poster: Rank, token: Token, has_moved: bool) {
        self.call(poster, |coherence, machine| match has_moved {
            true => coherence.refused(token, Refusal::Moved, machine),
            false => coherence.acknowledged(token, machine),
        });
    }

    /// Hears of the end of an operation, whose token is the number of its thread plus 1.
    fn hear(&mut self, rank: Rank, event: CoherenceEvent) {
        match event {
            CoherenceEvent::Done { token, value } => {
                let thread = token.0 as usize - 1;
                match value {
                    Value::LockTaken => self.leave_out_section(thread),
                    _ => self.done(rank, thread),
                }
            }
            event => self.break_promise(format!("node {rank}: {event:?}")),
        }
    }

    /// Leaves out the section whose lock another thread had.
    fn leave_out_section(&mut self, thread: usize) {
        let Some(Act::Lock { lock, mode: LockMode { tries: true, .. }, .. }) = self.act_of(thread)
        else {
            return self.break_promise(format!("thread {thread} tries no lock"));
        };
        while self.act_of(thread) != Some(Act::Unlock(lock)) {
            self.threads[thread].at += 1;
        }
        self.ended(thread);
    }

    fn done(&mut self, rank: Rank, thread: usize) {
        match self.act_of(thread) {
            Some(Act::Lock { lock, mode, section, .. }) => {
                let holders = self.oracle.holders.entry(lock).or_default();
                let other = holders.iter().find(|(_, reads)| !(*reads && mode.reads)).copied();
                holders.push((thread, mode.reads));
                if let Some((other, _)) = other {
                    self.break_promise(format!("threads {other} and {thread} have lock {lock}"));
                }
                self.oracle.entered[section] = true;
            }
            Some(Act::Barrier) => {
                let passed = self.oracle.passed[rank as usize] + 1;
                self.oracle.passed[rank as usize] = passed;
                if let Some(other) = self.oracle.called.iter().position(|called| *called < passed) {
                    self.break_promise(format!(
                        "node {rank} passed barrier {passed}, which node {other} has not called"
                    ));
                }
                for other in self.meeting(rank) {
                    self.ended(other);
                }
                return;
            }
            _ if self.threads[thread].again => {
                self.threads[thread].again = false;
                self.threads[thread].waiting = Pause::No;
                return;
            }
            _ => {}
        }
        self.ended(thread);
    }

    /// Returns the threads of a node that take part in barriers.
    fn meeting(&self, rank: Rank) -> Vec<usize> {
        (0..self.threads.len())
            .filter(|thread| self.node_of(*thread) == rank && self.program.meets(*thread))
            .collect()
    }

    fn ended(&mut self, thread: usize) {
        let thread = &mut self.threads[thread];
        thread.at += 1;
        thread.waiting = Pause::No;
    }

    fn break_promise(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn look_for_misuse(&mut self) {
        let misused = (0..).zip(&self.nodes).find_map(|(rank, node): (Rank, _)| {
            node.machine.misused.as_ref().map(|what| format!("node {rank}: {what}"))
        });
        if let Some(what) = misused {
            self.break_promise(what);
        }
    }

    /// Runs a thread until it has done one access or one call.
    fn run(&mut self, thread: usize) {
        let (rank, token) = (self.node_of(thread), Token(thread as u64 + 1));
        let Some(act) = self.act_of(thread) else { return };
        match act {
            Act::Read(cell) => {
                if let Some(value) = self.load(thread, cell) {
                    self.expect(thread, cell, value);
                    self.ended(thread);
                }
            }
            Act::Write(cell, value) => {
                if self.store(thread, cell, value) {
                    self.ended(thread);
                }
            }
            Act::Add(cell) => match self.threads[thread].loaded {
                None => {
                    let value = self.load(thread, cell);
                    self.threads[thread].loaded = value;
                    value.into_iter().for_each(|value| self.expect(thread, cell, value));
                }
                // 1,000 tells additions from the values that are written.
                Some(old) => {
                    if self.store(thread, cell, old + 1_000) {
                        self.threads[thread].loaded = None;
                        self.ended(thread);
                    }
                }
            },
            Act::ReadGuard(cell) => {
                let (array, page) = self.program.page(cell);
                let mut began = false;
                self.call(rank, |coherence, _| began = coherence.begin_read(array, page..page + 1));
                if began { self.ended(thread) } else { self.touch(thread, cell, Access::Read) }
            }
            Act::WriteGuard(cell, extent, ownership) => {
                let (array, bytes) = self.bytes_of(cell, extent);
                let mut guard = None;
                self.call(rank, |coherence, machine| {
                    guard = coherence.begin_write(array, bytes, ownership, machine);
                });
                self.threads[thread].guard = guard;
                match guard {
                    Some(_) => self.ended(thread),
                    None => self.touch(thread, cell, Access::Write),
                }
            }
            Act::EndGuard(push) => {
                let push: Vec<Rank> =
                    (0..self.program.nodes).filter(|rank| push >> rank & 1 == 1).collect();
                self.ended(thread);
                if let Some(guard) = self.threads[thread].guard.take() {
                    self.call(rank, |coherence, machine| {
                        coherence.end_write(guard, &push, machine);
                    });
                }
            }
            Act::Subscribe(cell, wanted) => {
                let (array, bytes) = self.bytes_of(cell, Extent::Word);
                self.ended(thread);
                let mut result = Ok(());
                self.call(rank, |coherence, machine| {
                    result = coherence.subscribe(array, bytes, wanted, machine);
                });
                if let Err(error) = result {
                    self.break_promise(format!("node {rank}: {error}"));
                }
            }
            Act::TrackPages(cell) => {
                let (array, _) = self.program.page(cell);
                self.ended(thread);
                self.call(rank, |coherence, machine| coherence.track_by_pages(array, machine));
            }
            Act::Prefetch(cell) => {
                let (array, _) = self.program.page(cell);
                let pages = self.program.arrays().get(array as usize).map_or(0, Vec::len) as u64;
                self.ended(thread);
                self.call(rank, |coherence, machine| {
                    coherence.prefetch(array, core::slice::from_ref(&(0..pages)), machine);
                });
            }
            Act::Lock { lock, mode, .. } => {
                self.threads[thread].waiting = Pause::Operation;
                self.call(rank, |coherence, machine| {
                    coherence.lock_in_mode(lock, mode, token, machine);
                });
            }
            Act::Unlock(lock) => {
                if let Some(holders) = self.oracle.holders.get_mut(&lock) {
                    holders.retain(|(holder, _)| *holder != thread);
                }
                self.threads[thread].waiting = Pause::Operation;
                self.call(rank, |coherence, machine| coherence.unlock(lock, token, machine));
            }
            Act::Barrier => {
                self.threads[thread].waiting = Pause::AtBarrier;
                let all_meet = self
                    .meeting(rank)
                    .into_iter()
                    .all(|other| self.threads[other].waiting == Pause::AtBarrier);
                if all_meet {
                    self.oracle.called[rank as usize] += 1;
                    self.call(rank, |coherence, machine| coherence.barrier(token, machine));
                }
            }
        }
    }

    /// Makes a page valid, and the thread tries its act again after that.
    fn touch(&mut self, thread: usize, cell: Cell, access: Access) {
        let (array, page) = self.program.page(cell);
        self.threads[thread].waiting = Pause::Operation;
        self.threads[thread].again = true;
        self.call(self.node_of(thread), |coherence, machine| {
            coherence.touch(array, page..page + 1, access, Token(thread as u64 + 1), machine);
        });
    }

    /// Returns the bytes of a write guard.
    fn bytes_of(&self, cell: Cell, extent: Extent) -> (ArrayId, core::ops::Range<u64>) {
        let (array, page) = self.program.page(cell);
        let first = page * PAGE as u64;
        let word = first + (cell % WORDS * FRAGMENT) as u64;
        let bytes = match extent {
            Extent::Word => word..word + 8,
            Extent::Fragment => word..word + FRAGMENT as u64,
            Extent::Page => first..first + PAGE as u64,
        };
        (array, bytes)
    }

    fn load(&mut self, thread: usize, cell: Cell) -> Option<u64> {
        let page = self.program.page(cell);
        let value = self.node(self.node_of(thread)).machine.load(page, cell % WORDS);
        if value.is_none() {
            self.fault(thread, page, Access::Read);
        }
        value
    }

    fn expect(&mut self, thread: usize, cell: Cell, value: u64) {
        let expected = self.oracle.memory[cell];
        if value != expected {
            self.break_promise(format!(
                "thread {thread} of node {} reads {value} in cell {cell}, and {expected} was \
                 written",
                self.node_of(thread)
            ));
        }
    }

    fn store(&mut self, thread: usize, cell: Cell, value: u64) -> bool {
        let (page, rank) = (self.program.page(cell), self.node_of(thread));
        let node = Arc::make_mut(&mut self.nodes[rank as usize]);
        let stored = node.machine.store(page, cell % WORDS, value);
        node.digest = 0;
        if stored {
            self.oracle.memory[cell] = value;
        } else {
            self.fault(thread, page, Access::Write);
        }
        stored
    }

    /// Makes the thread sleep until its page is mapped, as the kernel does.
    fn fault(&mut self, thread: usize, page: Page, access: Access) {
        let reported = self.program.reports_access.then_some(access);
        self.threads[thread].waiting = Pause::Asleep(page);
        self.call(self.node_of(thread), |coherence, machine| {
            coherence.fault(page.0, page.1, reported, machine);
        });
    }

    /// Makes the hashes of changed nodes. Needed before the state is hashed.
    pub fn seal(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.digest == 0) {
            let node = Arc::make_mut(node);
            node.digest = hash_of(&(&node.coherence, &node.machine)).max(1);
        }
    }

    /// Describes a step of this state.
    pub fn describe(&self, step: Step) -> String {
        let about = |pair: usize, message: usize| {
            let ((from, to), one) = (self.ends_of(pair), &self.pairs[pair][message]);
            let head = Headline::read(&one.message.head);
            format!("{:?} from {from} to {to}, {:?}", one.message.class, head.ok())
        };
        match step {
            Step::Run(thread) => {
                let (rank, act) = (self.node_of(thread), self.act_of(thread));
                format!("thread {thread} of node {rank}: {act:?}")
            }
            Step::Deliver { pair, message } => format!("deliver {}", about(pair, message)),
            Step::Place { pair, message, fragment } => {
                format!("place fragment {fragment} of {}", about(pair, message))
            }
            Step::Reread { pair, message, word } => {
                format!("read word {word} again of {}", about(pair, message))
            }
            Step::Settle(place) => {
                let (poster, token, _) = self.delivered[place];
                format!("settle message {:x} of node {poster}", token.0 & 0xff_ffff)
            }
        }
    }

    /// Hashes a message without the numbers that are only names.
    fn digest_of(&self, from: Rank, flying: &Flying) -> u64 {
        let Flying { number: _, message, words, placed, admission } = flying;
        let Message { class, urgent: _, charge: _, head, body, token } = message;
        let mut hasher = DefaultHasher::new();
        match Headline::read(head) {
            // A page is in at most one fetch of a node, so pages name the fetch.
            Ok(Headline::Fetch(run)) => {
                let pages = run.pages;
                (1, pages.array, pages.first, pages.count, run.demanded).hash(&mut hasher);
            }
            Ok(Headline::Pages(run)) => (2, run.array, run.first, run.count).hash(&mut hasher),
            _ => head.hash(&mut hasher),
        }
        (class, body, words, placed, admission.is_some()).hash(&mut hasher);
        place_of_diff(&self.node(from).coherence, *token).hash(&mut hasher);
        hasher.finish()
    }
}

/// Returns the hash of a value.
pub fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let State {
            program: _,
            settling: _,
            nodes,
            pairs,
            posted: _,
            delivered,
            threads,
            oracle,
            broken,
        } = self;
        nodes.iter().for_each(|node| node.digest.hash(state));
        for (pair, flying) in pairs.iter().enumerate() {
            let (from, _) = self.ends_of(pair);
            let mut digests: Vec<u64> =
                flying.iter().map(|one| self.digest_of(from, one)).collect();
            // The order of unordered messages matters only relative to other messages.
            let is_free = |place: &usize| flying[*place].message.class == Class::Unordered;
            let mut start = 0;
            while start < digests.len() {
                let free = (start..digests.len()).take_while(is_free).count();
                digests[start..start + free].sort_unstable();
                start += free + 1;
            }
            digests.hash(state);
            let fixed = (0..flying.len()).filter(|place| !is_free(place));
            fixed.for_each(|place| place.hash(state));
        }
        let mut settled: Vec<(Rank, Option<usize>, bool)> = delivered
            .iter()
            .map(|(poster, token, has_moved)| {
                let place = place_of_diff(&self.node(*poster).coherence, *token);
                (*poster, place, *has_moved)
            })
            .collect();
        settled.sort_unstable();
        (settled, threads, oracle, broken).hash(state);
    }
}

/// Compares states as the checker itself does.
impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        hash_of(self) == hash_of(other)
    }
}
