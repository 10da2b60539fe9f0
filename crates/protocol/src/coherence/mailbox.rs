//! Mailbox of this node: the other nodes, messages to them and to this node itself, answers that
//! are owed, and events for the engine (COH-9).

use crate::Rank;
use crate::coherence::codec::Headline;
use crate::coherence::failing::doing::Doing;
use crate::coherence::gathering::tree::Ranks;
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::page::pages_of;
use crate::coherence::types::{CoherenceError, CoherenceEvent, Value};
use crate::wind::{Body, Charge, Class, Message, Nonsense, Refusal, Token};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

/// Top byte of the tokens of messages that coherence posts.
const TOKENS: u64 = 0xC0 << 56;

/// Maximum length of a message body other than pages, in bytes: notices, vectors, diffs.
pub const CONTROL_MAX: u64 = 64 << 20;

/// Maximum number of answers owed to one peer, which it asked for and has not acknowledged. A node
/// with hundreds of threads asks another for fewer at a time.
const OWED_MAX: usize = 1 << 16;

/// Purpose of a posted message, used when the message is settled.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// Changes to a home, which a release waits for.
    Diff,
    /// Written bytes of this array for a reader.
    Update(ArrayId),
    /// Request for pages, with the numbers of its runs.
    Fetch { first: u64, end: u64 },
    /// End of the collective of this epoch.
    Departure { doing: Doing, epoch: u64 },
    /// End of the last collective.
    LastDeparture,
    /// Arrival of these nodes at a collective. With `says_why` the sender cannot go on, and the
    /// arrival gives the reason.
    Arrival { doing: Doing, says_why: bool, epoch: u64, ranks: Ranks },
    /// Answer to a fetch of this array, which the requester may have given up meanwhile.
    Pages(ArrayId),
    /// Answer of its manager to a request for this lock.
    Grant(u64),
    /// Reply to a question (COH-13).
    Reply,
    /// Answer to an operation on elements (COH-12).
    Answer,
    /// Notice of leaving, or a request for a lock, its return, or its grant by a holder.
    Control(Doing),
}

impl Purpose {
    /// Returns the array whose memory is read when the message is sent or retransmitted.
    pub fn reads(&self) -> Option<ArrayId> {
        match self {
            Purpose::Update(array) | Purpose::Pages(array) => Some(*array),
            _ => None,
        }
    }

    /// Returns the operation that cannot go on if the message is refused.
    pub fn needed_by(&self) -> Option<Doing> {
        match self {
            Purpose::Diff => Some(Doing::Diff),
            Purpose::Update(_) => Some(Doing::Update),
            Purpose::Fetch { .. } => Some(Doing::Fetch),
            Purpose::Grant(lock) => Some(Doing::Lock(*lock)),
            Purpose::Arrival { doing, .. }
            | Purpose::Departure { doing, .. }
            | Purpose::Control(doing) => Some(doing.clone()),
            Purpose::LastDeparture | Purpose::Pages(_) | Purpose::Reply | Purpose::Answer => None,
        }
    }
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub to: Rank,
    pub purpose: Purpose,
    /// Pages of the array that are read from memory when the message is sent, and again when it is
    /// retransmitted.
    pages: Range<u64>,
}

impl Posted {
    /// Returns the array and the pages whose memory is read while the message is on its way.
    pub fn reads(&self) -> Option<(ArrayId, Range<u64>)> {
        let array = self.purpose.reads().filter(|_| !self.pages.is_empty())?;
        Some((array, self.pages.clone()))
    }
}

/// Diff messages that are not settled.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct UnsettledDiffs {
    /// Numbers of the messages, and their homes.
    pub numbers: BTreeMap<u64, Rank>,
    /// Number of messages to each home.
    to: BTreeMap<Rank, u32>,
}

/// Leaves out the numbers, which are only names.
#[cfg(test)]
impl core::hash::Hash for UnsettledDiffs {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let UnsettledDiffs { numbers, to } = self;
        numbers.len().hash(state);
        to.iter().filter(|(_, count)| **count > 0).for_each(|to| to.hash(state));
    }
}

impl UnsettledDiffs {
    fn insert(&mut self, number: u64, to: Rank) {
        self.numbers.insert(number, to);
        *self.to.entry(to).or_default() += 1;
    }

    fn remove(&mut self, number: u64, to: Rank) {
        if self.numbers.remove(&number).is_some()
            && let Some(count) = self.to.get_mut(&to)
        {
            *count = count.saturating_sub(1);
        }
    }

    /// Returns `true` if a message with a number below this one, to a node other than `except`, is
    /// not settled.
    pub fn has_any_before(&self, boundary: u64, except: Option<Rank>) -> bool {
        self.numbers.range(..boundary).any(|(_, to)| Some(*to) != except)
    }

    /// Returns the homes that have not yet acknowledged all of this node's changes.
    pub fn homes(&self) -> impl Iterator<Item = Rank> + '_ {
        self.to.iter().filter(|(_, count)| **count > 0).map(|(home, _)| *home)
    }

    /// Returns `true` if this home has not yet acknowledged all of this node's changes.
    pub fn has_any_to(&self, home: Rank) -> bool {
        self.to.get(&home).is_some_and(|count| *count > 0)
    }
}

/// Node that has begun to leave.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Leaver {
    /// Number of collectives that it had passed.
    epoch: u64,
    /// `true` if it has told that it sends nothing more (COH-6.7).
    is_silent: bool,
}

/// Messages that are not settled, in the order of their numbers, which is most often the order in
/// which they are settled.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct UnsettledMessages(VecDeque<(u64, Posted)>);

impl UnsettledMessages {
    fn place(&self, number: u64) -> Option<usize> {
        self.0.binary_search_by_key(&number, |(of, _)| *of).ok()
    }

    fn get(&self, number: u64) -> Option<&Posted> {
        self.0.get(self.place(number)?).map(|(_, posted)| posted)
    }

    fn remove(&mut self, number: u64) -> Option<Posted> {
        let first = self.0.pop_front_if(|(of, _)| *of == number);
        first.or_else(|| self.0.remove(self.place(number)?)).map(|(_, posted)| posted)
    }
}

/// Mailbox of one node.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Mailbox {
    pub me: Rank,
    pub nodes: u32,
    /// Dead nodes, in the order in which this node heard of them. The first one is the cause. Later
    /// ones may have ended because of it (COH-8.2).
    dead: Vec<Rank>,
    leaving: BTreeMap<Rank, Leaver>,
    next: u64,
    posted: UnsettledMessages,
    pub diffs: UnsettledDiffs,
    /// Number of notifications to each node that are not settled.
    notifications: BTreeMap<Rank, usize>,
    /// Number of answers to each peer that it has not acknowledged.
    owed: BTreeMap<Rank, usize>,
    /// Messages from this node to itself.
    local: VecDeque<(Headline, Body)>,
    /// Bytes of the body that is being written.
    scratch: Vec<u8>,
    out: VecDeque<(Rank, Message)>,
    events: VecDeque<CoherenceEvent>,
}

/// Leaves out the numbers of messages, which are only names. The messages in flight tell what is
/// posted. The other queues are empty after every call of the model.
#[cfg(test)]
impl core::hash::Hash for Mailbox {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let Mailbox {
            me,
            nodes,
            dead,
            leaving,
            next: _,
            posted: _,
            diffs,
            notifications: _,
            owed,
            local: _,
            scratch: _,
            out: _,
            events: _,
        } = self;
        (me, nodes, dead, leaving, diffs).hash(state);
        owed.iter().filter(|(_, count)| **count > 0).for_each(|owed| owed.hash(state));
    }
}

impl Mailbox {
    pub fn new(me: Rank, nodes: u32) -> Mailbox {
        Mailbox {
            me,
            nodes,
            dead: Vec::new(),
            leaving: BTreeMap::new(),
            next: 0,
            posted: UnsettledMessages::default(),
            diffs: UnsettledDiffs::default(),
            notifications: BTreeMap::new(),
            owed: BTreeMap::new(),
            local: VecDeque::new(),
            scratch: Vec::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Returns the number of a message that coherence posted, or `None` for another layer's token.
    #[inline]
    pub fn number(token: Token) -> Option<u64> {
        (token.0 >> 56 == TOKENS >> 56).then_some(token.0 & !TOKENS)
    }

    #[inline]
    pub fn is_dead(&self, rank: Rank) -> bool {
        self.dead.contains(&rank)
    }

    /// Returns the dead nodes in the order in which this node heard of them.
    #[inline]
    pub fn dead(&self) -> &[Rank] {
        &self.dead
    }

    /// Returns the first node that this node heard to be dead.
    #[inline]
    pub fn first_dead(&self) -> Option<Rank> {
        self.dead.first().copied()
    }

    /// Returns `true` if this node has begun to leave.
    #[inline]
    pub fn is_leaving(&self, rank: Rank) -> bool {
        self.leaving.contains_key(&rank)
    }

    /// Returns `true` if all messages of this node have come, because it leaves.
    #[inline]
    pub fn is_silent(&self, rank: Rank) -> bool {
        self.leaving.get(&rank).is_some_and(|leaver| leaver.is_silent)
    }

    /// Returns a leaving node that had passed no more than `epoch` collectives.
    pub fn leaver_until(&self, epoch: u64) -> Option<Rank> {
        let mut leavers = self.leaving.iter();
        leavers.find(|(_, leaver)| leaver.epoch <= epoch).map(|(rank, _)| *rank)
    }

    /// Returns the ranks of all other nodes.
    pub fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let me = self.me;
        (0..self.nodes).filter(move |rank| *rank != me)
    }

    /// Returns the rank of the node that manages this lock.
    #[inline]
    pub fn manager(&self, lock: u64) -> Rank {
        (lock % u64::from(self.nodes.max(1))) as Rank
    }

    /// Checks that a message may come from this rank.
    #[inline]
    pub fn check_sender(&self, from: Rank) -> Result<(), Refusal> {
        if from < self.nodes && from != self.me { Ok(()) } else { Err(Refusal::Malformed) }
    }

    /// Returns a body with what `write` appends. A short one needs no allocation.
    pub fn body(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Body {
        self.scratch.clear();
        write(&mut self.scratch);
        match Body::copy_if_short(&self.scratch) {
            Some(body) => body,
            None => Body::Inline(core::mem::take(&mut self.scratch)),
        }
    }

    /// Posts one message. A message to this node goes through a queue of its own and the same code.
    /// Messages to dead nodes are dropped, because the death ends whatever depends on them.
    pub fn post(&mut self, to: Rank, class: Class, head: Headline, body: Body, purpose: Purpose) {
        if to == self.me {
            self.local.push_back((head, body));
        } else if !self.is_dead(to) {
            self.post_body(to, class, head, body, purpose);
        }
    }

    /// Posts one message to another node that is not dead.
    pub fn post_body(
        &mut self,
        to: Rank,
        class: Class,
        head: Headline,
        body: Body,
        purpose: Purpose,
    ) {
        let number = self.next;
        self.next += 1;
        match purpose {
            Purpose::Diff => self.diffs.insert(number, to),
            Purpose::Control(Doing::Notify(_)) => *self.notifications.entry(to).or_default() += 1,
            _ => {}
        }
        // The acknowledgement itself is waited for.
        let urgent = matches!(purpose, Purpose::Diff | Purpose::LastDeparture);
        let pages = match &body {
            Body::Segment(read) => pages_of(&(read.offset..read.offset.saturating_add(read.len))),
            _ => 0..0,
        };
        self.posted.0.push_back((number, Posted { to, purpose, pages }));
        let (head, token, charge) = (head.write(), Token(TOKENS | number), Charge::Nothing);
        self.out.push_back((to, Message { class, urgent, charge, head, body, token }));
    }

    /// Posts one message to other nodes that are not dead. Their messages share its body.
    pub fn post_many(
        &mut self,
        to: &[Rank],
        class: Class,
        head: Headline,
        body: Body,
        purpose: Purpose,
    ) {
        let Some((last, others)) = to.split_last() else { return };
        let body = if others.is_empty() { body } else { body.into_shared() };
        for to in others {
            self.post_body(*to, class, head, body.clone(), purpose.clone());
        }
        self.post_body(*last, class, head, body, purpose);
    }

    /// Posts a message without a body to a node that counts as dead here. No layer
    /// learns the outcome.
    pub fn post_to_dead(&mut self, dead: Rank, class: Class, head: Headline) {
        let message = Message::new(class, head.write(), Body::Empty, Token::NONE);
        self.out.push_back((dead, message));
    }

    /// Tells all other nodes, which may not be in contact with it, that a node is dead (COH-8.1).
    pub fn announce_death(&mut self, rank: Rank) {
        for to in self.others().filter(|to| *to != rank) {
            let (head, purpose) = (Headline::Died { rank }, Purpose::Control(Doing::Message));
            self.post(to, Class::Unordered, head, Body::Empty, purpose);
        }
    }

    /// Counts a node as dead. No message goes to it any more, except that it may be alive and only
    /// lost to some nodes. It is told, so that it does not wait for answers that will not come.
    pub fn count_dead(&mut self, rank: Rank) {
        self.dead.push(rank);
        self.out.retain(|(to, _)| *to != rank);
        self.post_to_dead(rank, Class::Unordered, Headline::Died { rank });
    }

    /// Forgets the messages to a dead node. Returns `true` if changes were among them.
    pub fn forget_posted(&mut self, dead: Rank) -> bool {
        let Mailbox { posted, diffs, notifications, .. } = self;
        notifications.remove(&dead);
        let mut has_changes = false;
        posted.0.retain(|(number, Posted { to, purpose, .. })| {
            if *to == dead && matches!(purpose, Purpose::Diff) {
                diffs.remove(*number, dead);
                has_changes = true;
            }
            *to != dead
        });
        has_changes
    }

    /// Takes a message that is settled, or was refused.
    pub fn take_posted(&mut self, number: u64) -> Option<Posted> {
        let posted = self.posted.remove(number)?;
        match posted.purpose {
            Purpose::Diff => self.diffs.remove(number, posted.to),
            Purpose::Pages(_) | Purpose::Grant(_) | Purpose::Reply | Purpose::Answer => {
                self.owe_less(posted.to);
            }
            Purpose::Control(Doing::Notify(_)) => {
                if let Some(unsettled) = self.notifications.get_mut(&posted.to) {
                    *unsettled = unsettled.saturating_sub(1);
                }
            }
            Purpose::Update(_)
            | Purpose::Fetch { .. }
            | Purpose::Departure { .. }
            | Purpose::LastDeparture
            | Purpose::Arrival { .. }
            | Purpose::Control(_) => {}
        }
        Some(posted)
    }

    /// Returns the message of this number if it is not settled.
    pub fn posted(&self, number: u64) -> Option<&Posted> {
        self.posted.get(number)
    }

    /// Returns `true` if a message is not settled for which `is_meant` is true.
    pub fn has_posted(&self, is_meant: impl Fn(&Posted) -> bool) -> bool {
        self.posted.0.iter().any(|(_, posted)| is_meant(posted))
    }

    /// Returns the number of notifications to a node that are not settled.
    pub fn unsettled_notifications(&self, to: Rank) -> usize {
        self.notifications.get(&to).copied().unwrap_or(0)
    }

    /// Returns what messages on their way read from memory.
    pub fn reads(&self) -> impl Iterator<Item = (ArrayId, Range<u64>)> + '_ {
        self.posted.0.iter().filter_map(|(_, posted)| posted.reads())
    }

    /// Returns the number of the next message.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Counts answers that a peer asks for. An answer is owed until it is settled (COH-9.1).
    pub fn owe(&mut self, to: Rank, answers: usize) -> Result<(), Refusal> {
        let owed = self.owed.entry(to).or_default();
        if *owed + answers > OWED_MAX {
            return Err(Refusal::NoRoom);
        }
        *owed += if to == self.me { 0 } else { answers };
        Ok(())
    }

    /// Called when another node has given one of the answers that a peer asked for.
    pub fn owe_less(&mut self, to: Rank) {
        if let Some(owed) = self.owed.get_mut(&to) {
            *owed = owed.saturating_sub(1);
        }
    }

    /// Reports that an operation is done.
    pub fn done(&mut self, token: Token, value: Value) {
        if token != Token::NONE {
            self.events.push_back(CoherenceEvent::Done { token, value });
        }
    }

    /// Reports that an operation failed.
    pub fn fail(&mut self, token: Token, error: CoherenceError) {
        if token != Token::NONE {
            self.events.push_back(CoherenceEvent::Failed { token, error });
        }
    }

    /// Reports that another node contradicts what this node knows (COH-8.9).
    pub fn contradict(&mut self, rank: Rank, nonsense: Nonsense) {
        self.events.push_back(CoherenceEvent::Contradiction { rank, nonsense });
    }

    /// Notes and reports that a node leaves, which had passed `epoch` collectives when it said so
    /// first.
    pub fn note_leaving(&mut self, rank: Rank, epoch: u64, silent: bool) {
        let leaver = self.leaving.entry(rank).or_insert(Leaver { epoch, is_silent: false });
        leaver.is_silent |= silent;
        self.events.push_back(CoherenceEvent::Leaving { rank, silent });
    }

    /// Returns the next message from this node to itself.
    #[inline]
    pub fn poll_local(&mut self) -> Option<(Headline, Body)> {
        self.local.pop_front()
    }

    /// Returns the next message to post.
    #[inline]
    pub fn poll_message(&mut self) -> Option<(Rank, Message)> {
        self.out.pop_front()
    }

    /// Returns `true` if there is a message to post.
    #[inline]
    pub fn owes(&self) -> bool {
        !self.out.is_empty()
    }

    /// Returns the next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<CoherenceEvent> {
        self.events.pop_front()
    }
}
