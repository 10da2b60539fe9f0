//! Locks of a job in its arena (COH-16.10). A lock has an entry, found by its number, with a queue
//! of tickets in the order of arrival. The ticket at the head of the queue has the lock.
//!
//! A ticket that reads is over as soon as its member has counted a reader in the entry
//! (COH-16.12). So any number of readers need no tickets. A ticket that writes waits at the head of
//! the queue until no reader is counted.
//!
//! Each ticket is one word, which goes through its states by exchanges. So a process may end
//! between any two steps: whoever comes next takes the step that is missing ([`Locks::advance`]).

use super::points::pass_point;
use crate::shm::memory::{Memory, Ordering, fence};
use crate::shm::planted::{Bug, planted};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::LockView;

/// Number of entries. A lock whose number finds none belongs to its manager (COH-7), for all nodes.
const ENTRIES: usize = if cfg!(all(test, loom)) { 2 } else { 1024 };
/// Number of entries in which a number may be.
const PROBES: usize = if cfg!(all(test, loom)) { 2 } else { 16 };
/// Maximum number of tickets of one lock.
const QUEUE: u64 = if cfg!(all(test, loom)) { 2 } else { 64 };
/// Maximum number of steps of one call. A word of a faulty process may ask for more.
const STEPS_MAX: u32 = 4096;

/// Place in an entry of the lock's number and one more, or 0 if the entry is free.
const NUMBER: usize = 0;
/// Place of the ticket at the head of the queue.
const HEAD: usize = 8;
/// Place of the next ticket to be taken. It may be late.
const TAIL: usize = 16;
/// Place of the reason why nobody gets the lock any more ([`LockLoss`]), or 0.
const LOSS: usize = 24;
/// Place of a word that is not 0 if a member has found no room in the queue.
const NO_ROOM: usize = 32;
/// Place of the bits of the members that have ever read under the lock. So nobody looks for readers
/// of a lock that is always exclusive.
const EVER_READ: usize = 40;
/// Place of the words of the tickets, in turn.
const TICKETS: usize = 64;
/// Place of the numbers of readers, one word for each member.
const READERS: usize = TICKETS + 8 * QUEUE as usize;

/// Returns the bytes of an entry.
const fn entry_len(members: usize) -> usize {
    (READERS + 8 * members).next_multiple_of(64)
}

/// Returns the bytes of all locks.
pub(super) const fn len_of(members: usize) -> usize {
    ENTRIES * entry_len(members)
}

/// Request for a lock in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockTicket {
    entry: usize,
    number: u64,
    reads: bool,
}

impl LockTicket {
    /// Returns the place of the ticket's lock.
    pub(super) fn entry(self) -> usize {
        self.entry
    }

    /// Returns `true` if the request is for reading.
    pub(super) fn reads(self) -> bool {
        self.reads
    }

    /// Returns a ticket that no member has.
    pub(super) fn of_nobody(entry: usize) -> LockTicket {
        LockTicket { entry, number: u64::MAX, reads: false }
    }
}

/// Reason why nobody gets a lock any more: what it protects may be half changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockLoss {
    /// This member died while it had the lock.
    Died(Rank),
    /// This member could not tell what it wrote while it had the lock.
    Unfit(Rank),
}

impl LockLoss {
    fn to_word(self) -> u64 {
        match self {
            LockLoss::Died(rank) => u64::from(rank) << 2 | 1,
            LockLoss::Unfit(rank) => u64::from(rank) << 2 | 2,
        }
    }

    fn of_word(word: u64) -> Option<LockLoss> {
        let rank = (word >> 2) as Rank;
        match word & 3 {
            0 => None,
            1 => Some(LockLoss::Died(rank)),
            _ => Some(LockLoss::Unfit(rank)),
        }
    }
}

/// State of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// It is over, or was never taken.
    Done = 0,
    /// It waits for those before it.
    Waits = 1,
    /// It has the lock, and its node does not know that yet.
    Granted = 2,
    /// It has the lock.
    Holds = 3,
    /// It waits, but no thread of its member does. A thread that asks next may use it.
    Abandoned = 4,
}

/// Word of a ticket: the round of the queue, the rank, whether it reads, and the state. In round 0
/// no ticket is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TicketWord(u64);

impl TicketWord {
    fn new(ticket: u64, (rank, reads): (Rank, bool), state: LockState) -> TicketWord {
        let of = u64::from(rank & 0x3fff) << 4 | u64::from(reads) << 3;
        TicketWord(Self::round_of(ticket) << 20 | of | state as u64)
    }

    /// Returns the round of a ticket, from 1.
    fn round_of(ticket: u64) -> u64 {
        ticket / QUEUE + 1
    }

    fn round(self) -> u64 {
        self.0 >> 20
    }

    fn rank(self) -> Rank {
        (self.0 >> 4) as Rank & 0x3fff
    }

    fn reads(self) -> bool {
        self.0 >> 3 & 1 != 0
    }

    fn state(self) -> LockState {
        match self.0 & 7 {
            0 => LockState::Done,
            1 => LockState::Waits,
            2 => LockState::Granted,
            3 => LockState::Holds,
            _ => LockState::Abandoned,
        }
    }

    /// Returns `true` if the ticket has the lock, whether its member knows that or not.
    fn has_lock(self) -> bool {
        matches!(self.state(), LockState::Granted | LockState::Holds)
    }

    fn with(self, state: LockState) -> TicketWord {
        TicketWord(self.0 & !7 | state as u64)
    }
}

/// The locks of an arena, as one member sees them.
#[derive(Clone, Debug)]
pub(super) struct Locks {
    memory: Memory,
    me: Rank,
    members: usize,
}

impl Locks {
    /// Takes the memory of all locks, which is zero at first.
    pub fn new(memory: Memory, me: Rank, members: usize) -> Locks {
        Locks { memory, me, members }
    }

    /// Returns the memory of all locks.
    #[cfg(all(test, not(loom)))]
    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Returns the entry of a lock, and takes one for a new number. Returns `None` if there is no
    /// room for the number, which all members find alike.
    pub fn entry(&self, lock: u64) -> Option<usize> {
        let number = lock.checked_add(1)?;
        self.entries_of(lock).find(|entry| {
            let found = self.memory.load(entry + NUMBER, Ordering::Acquire);
            found == number
                || (found == 0 && self.memory.exchange(entry + NUMBER, 0, number))
                // Another member may have taken it for the same number just now.
                || (found == 0 && self.memory.load(entry + NUMBER, Ordering::Acquire) == number)
        })
    }

    /// Returns the entry of a lock, if it has one.
    pub fn known_entry(&self, lock: u64) -> Option<usize> {
        let number = lock.checked_add(1)?;
        self.entries_of(lock)
            .find(|entry| self.memory.load(entry + NUMBER, Ordering::Acquire) == number)
    }

    /// Returns the entries in which the number of a lock may be.
    fn entries_of(&self, lock: u64) -> impl Iterator<Item = usize> + use<> {
        // Fibonacci hashing: numbers that follow one another lie apart.
        let first = (lock.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let len = entry_len(self.members);
        (0..PROBES).map(move |probe| first.wrapping_add(probe) % ENTRIES * len)
    }

    /// Returns all entries that are taken.
    pub fn taken_entries(&self) -> impl Iterator<Item = usize> {
        (0..ENTRIES)
            .map(|entry| entry * entry_len(self.members))
            .filter(|entry| self.memory.load(entry + NUMBER, Ordering::Acquire) != 0)
    }

    /// Returns the ticket of this member that has a lock, if one does.
    pub fn own_ticket(&self, entry: usize) -> Option<LockTicket> {
        let number = self.head(entry);
        let word = self.taken(entry, number)?;
        let is_own = word.has_lock() && word.rank() == self.me;
        is_own.then_some(LockTicket { entry, number, reads: word.reads() })
    }

    #[inline]
    fn head(&self, entry: usize) -> u64 {
        self.memory.load(entry + HEAD, Ordering::Acquire)
    }

    /// Returns the words of the tickets from the head of a queue on.
    fn queue(&self, entry: usize) -> impl Iterator<Item = (u64, TicketWord)> {
        let head = self.head(entry);
        let tail = self.memory.load(entry + TAIL, Ordering::Acquire);
        let tickets = head..tail.min(head.saturating_add(QUEUE));
        tickets.filter_map(move |ticket| Some((ticket, self.taken(entry, ticket)?)))
    }

    fn place(entry: usize, ticket: u64) -> usize {
        entry + TICKETS + 8 * (ticket % QUEUE) as usize
    }

    #[inline]
    fn word(&self, entry: usize, ticket: u64) -> TicketWord {
        TicketWord(self.memory.load(Self::place(entry, ticket), Ordering::Acquire))
    }

    /// Returns the word of a ticket, if the ticket was taken and its place was not used again.
    #[inline]
    fn taken(&self, entry: usize, ticket: u64) -> Option<TicketWord> {
        let word = self.word(entry, ticket);
        (word.round() == TicketWord::round_of(ticket)).then_some(word)
    }

    #[inline]
    fn change(&self, entry: usize, ticket: u64, old: TicketWord, state: LockState) -> bool {
        pass_point();
        self.memory.exchange(Self::place(entry, ticket), old.0, old.with(state).0)
    }

    /// Lets the head or the tail of a queue pass this ticket, if no other member has.
    #[inline]
    fn pass(&self, place: usize, ticket: u64) {
        pass_point();
        self.memory.exchange(place, ticket, ticket.wrapping_add(1));
    }

    /// Returns `true` if a request of this kind would wait: another one has the lock or waits for
    /// it, and not both read.
    pub fn is_taken(&self, entry: usize, reads: bool, is_dead: &impl Fn(Rank) -> bool) -> bool {
        if !reads {
            let has_tickets = || self.taken(entry, self.head(entry)).is_some();
            return has_tickets() || self.has_readers(entry, is_dead);
        }
        let excludes = |word: TicketWord| {
            !word.reads() && !matches!(word.state(), LockState::Done | LockState::Abandoned)
        };
        self.queue(entry).any(|(_, word)| excludes(word))
    }

    /// Takes the next ticket of a lock, or one that a thread of this member has abandoned. Returns
    /// `None` while the queue is full.
    pub fn take_ticket(&self, entry: usize, reads: bool) -> Option<LockTicket> {
        let taken = |number| {
            fence(Ordering::SeqCst);
            Some(LockTicket { entry, number, reads })
        };
        if let Some(number) = self.take_abandoned(entry, reads) {
            return taken(number);
        }
        for _ in 0..STEPS_MAX {
            let ticket = self.memory.load(entry + TAIL, Ordering::Acquire);
            let head = self.head(entry);
            if ticket.wrapping_sub(head) >= QUEUE && ticket >= head {
                return None;
            }
            let (word, round) = (self.word(entry, ticket), TicketWord::round_of(ticket));
            if word.round() == round {
                // Its taker has not come to this step yet, or has ended.
                self.pass(entry + TAIL, ticket);
            } else if word.round() + 1 == round && word.state() == LockState::Done {
                let mine = TicketWord::new(ticket, (self.me, reads), LockState::Waits);
                pass_point();
                if self.memory.exchange(Self::place(entry, ticket), word.0, mine.0) {
                    self.pass(entry + TAIL, ticket);
                    return taken(ticket);
                }
            }
        }
        None
    }

    /// Takes a ticket that a thread of this member has abandoned, in its old place. Otherwise a
    /// thread that asks in a loop would fill the queue.
    fn take_abandoned(&self, entry: usize, reads: bool) -> Option<u64> {
        let waits = |number, of: LockState| TicketWord::new(number, (self.me, reads), of);
        self.queue(entry).map(|(number, _)| number).find(|number| {
            let word = waits(*number, LockState::Abandoned);
            self.taken(entry, *number) == Some(word)
                && self.change(entry, *number, word, LockState::Waits)
        })
    }

    /// Returns the state of a ticket of this member. Takes the lock if it was granted, and no
    /// reader has it. A ticket that reads is over then: it holds the lock until the member
    /// [ends reading](Locks::end_reading).
    #[inline]
    pub fn look(&self, ticket: LockTicket, is_dead: &impl Fn(Rank) -> bool) -> LockState {
        let LockTicket { entry, number, reads } = ticket;
        let Some(word) = self.taken(entry, number) else { return LockState::Done };
        match word.state() {
            LockState::Granted if reads => self.begin_reading(ticket, word),
            LockState::Granted if self.has_readers(entry, is_dead) => LockState::Granted,
            LockState::Granted if self.change(entry, number, word, LockState::Holds) => {
                LockState::Holds
            }
            state => state,
        }
    }

    /// Returns `true` if a ticket is over.
    pub fn is_over(&self, ticket: LockTicket) -> bool {
        let word = self.taken(ticket.entry, ticket.number);
        word.is_none_or(|word| word.state() == LockState::Done)
    }

    /// Counts a reader, and ends its ticket (COH-16.12). A member that dies in between has only
    /// read.
    fn begin_reading(&self, ticket: LockTicket, word: TicketWord) -> LockState {
        let LockTicket { entry, number, .. } = ticket;
        let bit = 1 << (self.me % 64);
        if self.memory.load(entry + EVER_READ, Ordering::Relaxed) & bit == 0 {
            self.memory.or(entry + EVER_READ, bit);
        }
        let counts = !planted(Bug::EndTicketUncounted);
        if counts {
            self.count_reader(entry, |readers| readers.checked_add(1));
        }
        if self.change(entry, number, word, LockState::Done) {
            if !counts {
                self.count_reader(entry, |readers| readers.checked_add(1));
            }
            return LockState::Holds;
        }
        // Others took this member for dead, or it leaves. The caller looks for a writer to wake.
        self.count_reader(entry, |readers| readers.checked_sub(1));
        LockState::Done
    }

    /// Changes the number of readers of this member. Returns `false` if there is no such number.
    fn count_reader(&self, entry: usize, changed: impl Fn(u64) -> Option<u64>) -> bool {
        let place = self.readers_of(entry, self.me);
        for _ in 0..STEPS_MAX {
            let readers = self.memory.load(place, Ordering::Acquire);
            let Some(new) = changed(readers) else { return false };
            pass_point();
            if self.memory.exchange(place, readers, new) {
                return true;
            }
        }
        false
    }

    fn readers_of(&self, entry: usize, member: Rank) -> usize {
        entry + READERS + 8 * (member as usize % self.members.max(1))
    }

    /// Returns the members that read under a lock.
    fn readers(&self, entry: usize) -> impl Iterator<Item = Rank> {
        let ever = self.memory.load(entry + EVER_READ, Ordering::Acquire);
        let members =
            (0..self.members as Rank).filter(move |member| ever >> (member % 64) & 1 != 0);
        let place = move |member| self.readers_of(entry, member);
        members.filter(move |member| self.memory.load(place(*member), Ordering::Acquire) != 0)
    }

    /// Returns `true` if a living member reads under a lock.
    #[inline]
    fn has_readers(&self, entry: usize, is_dead: &impl Fn(Rank) -> bool) -> bool {
        self.memory.load(entry + EVER_READ, Ordering::Acquire) != 0
            && !planted(Bug::HoldBesideReaders)
            && self.readers(entry).any(|member| !is_dead(member))
    }

    /// Ends one of this member's readers, or `all` of them. Returns the member that has waited for
    /// readers to end, if it must be told.
    pub fn end_reading(&self, entry: usize, all: bool) -> Option<Rank> {
        // There is none if this member has left in between.
        let less = |readers: u64| readers.checked_sub(if all { readers.max(1) } else { 1 });
        if !self.count_reader(entry, less) {
            return None;
        }
        self.writer_to_wake(entry)
    }

    /// Returns the member that has waited for readers to end, if it must be told that a reader of
    /// this member is gone.
    pub fn writer_to_wake(&self, entry: usize) -> Option<Rank> {
        // Either this member sees the ticket that waits, or its member sees that a reader is gone.
        fence(Ordering::SeqCst);
        let next = self.taken(entry, self.head(entry))?;
        (next.state() == LockState::Granted && !next.reads()).then_some(next.rank())
    }

    /// Returns `true` if this ticket has the lock, whether its member knows that or not. One that
    /// writes waits for all readers.
    pub fn has_lock(&self, ticket: LockTicket) -> bool {
        let word = self.taken(ticket.entry, ticket.number).filter(|word| word.has_lock());
        word.is_some_and(|word| {
            let is_first = ticket.reads || word.state() == LockState::Holds;
            is_first || !self.has_readers(ticket.entry, &|_| false)
        })
    }

    /// Returns `true` if a ticket can be taken.
    pub fn has_room(&self, entry: usize) -> bool {
        let tail = self.memory.load(entry + TAIL, Ordering::Acquire);
        let head = self.memory.load(entry + HEAD, Ordering::Acquire);
        tail.wrapping_sub(head) < QUEUE
    }

    /// Notes that a member waits for room in a queue. It looks for room once more afterwards.
    pub fn ask_for_room(&self, entry: usize) {
        self.memory.or(entry + NO_ROOM, 1);
        fence(Ordering::SeqCst);
    }

    /// Returns `true` if members wait for room in a queue that has some now. They must be told.
    #[inline]
    pub fn gives_room(&self, entry: usize) -> bool {
        self.memory.load(entry + NO_ROOM, Ordering::Relaxed) != 0
            && self.has_room(entry)
            && self.memory.and(entry + NO_ROOM, 0) != 0
    }

    /// Returns why nobody gets a lock any more, if so.
    #[inline]
    pub fn loss(&self, entry: usize) -> Option<LockLoss> {
        LockLoss::of_word(self.memory.load(entry + LOSS, Ordering::Acquire))
    }

    /// Notes that nobody gets a lock any more. The first reason stays.
    pub fn lose(&self, entry: usize, loss: LockLoss) {
        self.memory.exchange(entry + LOSS, 0, loss.to_word());
    }

    /// Ends a ticket, whatever its state is. A ticket that waits keeps its place for the next
    /// thread of this member that asks, until it comes to the head of the queue.
    pub fn end(&self, ticket: LockTicket) {
        let LockTicket { entry, number, .. } = ticket;
        for _ in 0..STEPS_MAX {
            let Some(word) = self.taken(entry, number) else { return };
            let state = match word.state() {
                LockState::Done | LockState::Abandoned => return,
                LockState::Waits => LockState::Abandoned,
                LockState::Granted if planted(Bug::CancelGranted) => return,
                LockState::Granted | LockState::Holds => LockState::Done,
            };
            if self.change(entry, number, word, state) {
                return;
            }
        }
    }

    /// Gives a free lock to the first ticket that waits, and to those that read behind others that
    /// read. Returns the member that has it now, if it must be told, and whether there may be more.
    /// `ticket`, which is of this member or of nobody, takes the lock at once. Tickets of dead
    /// members are passed over, unless a member that writes has seen that it has the lock.
    #[inline]
    pub fn advance(
        &self,
        ticket: LockTicket,
        is_dead: &impl Fn(Rank) -> bool,
    ) -> Option<(Rank, bool)> {
        let entry = ticket.entry;
        let mut at = self.head(entry);
        // The tickets before `at` that are not over.
        let mut readers = 0;
        for _ in 0..STEPS_MAX {
            let Some(word) = self.taken(entry, at) else {
                let head = self.head(entry);
                if head <= at {
                    // Nobody waits.
                    return None;
                }
                (at, readers) = (head, 0);
                continue;
            };
            match word.state() {
                LockState::Done => {
                    self.pass(entry + HEAD, at);
                    at = at.wrapping_add(1);
                    if !planted(Bug::PassWithoutFence) {
                        // Either this member sees a ticket that is taken just now, or its taker
                        // sees that the lock is free. The same holds for one that asks for room.
                        fence(Ordering::SeqCst);
                    }
                }
                LockState::Abandoned if planted(Bug::PassAbandoned) => {
                    self.pass(entry + HEAD, at);
                    at = at.wrapping_add(1);
                }
                LockState::Abandoned => {
                    self.change(entry, at, word, LockState::Done);
                }
                LockState::Holds => return None,
                LockState::Waits | LockState::Granted
                    if is_dead(word.rank()) && !planted(Bug::GrantToDead) =>
                {
                    self.change(entry, at, word, LockState::Done);
                    fence(Ordering::SeqCst);
                }
                LockState::Granted if word.reads() => (at, readers) = (at.wrapping_add(1), 1),
                LockState::Granted => return None,
                LockState::Waits if readers > 0 && !word.reads() => return None,
                LockState::Waits => {
                    let is_own = at == ticket.number;
                    let takes = is_own && !word.reads() && !self.has_readers(entry, is_dead);
                    let state = if takes { LockState::Holds } else { LockState::Granted };
                    if self.change(entry, at, word, state) && !(is_own && word.reads()) {
                        return (!is_own).then_some((word.rank(), word.reads()));
                    }
                }
            }
        }
        None
    }

    /// Returns the member that has the lock alone, and whether it knows that.
    pub fn holder(&self, entry: usize) -> Option<(Rank, LockState)> {
        let holder = self.taken(entry, self.head(entry)).filter(|word| word.has_lock());
        holder.filter(|word| !word.reads()).map(|word| (word.rank(), word.state()))
    }

    /// Describes a lock.
    pub fn view(&self, entry: usize, is_dead: &impl Fn(Rank) -> bool) -> LockView {
        let reader = self.readers(entry).find(|member| !is_dead(*member));
        let waits = |word: TicketWord| match word.state() {
            LockState::Waits => true,
            // One that writes waits for those that read.
            LockState::Granted => reader.is_some() && !word.reads(),
            _ => false,
        };
        let mut waiting = self.queue(entry).filter(|(_, word)| waits(*word));
        let first = waiting.next().map(|(_, word)| word.rank());
        let waiting = usize::from(first.is_some()) + waiting.count();
        let is_abandoned = |word: &TicketWord| word.state() == LockState::Abandoned;
        let abandoned = self.queue(entry).filter(|(_, word)| is_abandoned(word)).count();
        // A reader may be counted for a moment beside one that writes (COH-16.12).
        let writer = self.holder(entry);
        let holder = match writer {
            Some((rank, LockState::Holds)) => Some(rank),
            _ => reader.or_else(|| Some(writer?.0)),
        };
        LockView { holder, first, waiting, abandoned }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::mapping::Mapping;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, VecDeque};
    use std::sync::Arc;

    const MEMBERS: usize = 4;

    fn members() -> [Locks; MEMBERS] {
        let len = len_of(MEMBERS);
        let mapping = Arc::new(Mapping::anonymous(len).unwrap());
        let memory = || Memory::new(Arc::clone(&mapping), 0, len);
        let member = |me| Locks::new(memory(), me as Rank, MEMBERS);
        std::array::from_fn(member)
    }

    /// Step of one member.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Requests the lock, for reading or alone.
        Request(usize, bool),
        /// Ends or gives back the oldest request of this member.
        End(usize),
        Look(usize),
        Die(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step =
            (0..10u8, 0..MEMBERS, any::<bool>()).prop_map(|(kind, member, reads)| match kind {
                0..4 => Step::Request(member, reads),
                4..7 => Step::End(member),
                7..9 => Step::Look(member),
                _ => Step::Die(member),
            });
        prop::collection::vec(step, 0..200)
    }

    /// Request as a list knows it.
    #[derive(Clone, Copy, Debug)]
    struct Asked {
        member: usize,
        reads: bool,
        ticket: LockTicket,
        /// Its member has seen that it has the lock.
        holds: bool,
        /// Its member waits no longer. The request keeps its place until it is the first.
        abandoned: bool,
    }

    /// The queue of a lock as a list, with those that have the lock first.
    #[derive(Default)]
    struct Oracle {
        queue: VecDeque<Asked>,
        dead: BTreeSet<usize>,
    }

    impl Oracle {
        /// Takes away dead members, unless they have the lock alone, and abandoned requests that
        /// nobody is before, except for readers.
        fn settle(&mut self) {
            let Oracle { queue, dead } = self;
            queue.retain(|one| !dead.contains(&one.member) || (one.holds && !one.reads));
            let is_over = |one: &Asked, before: &[Asked]| {
                one.abandoned && before.iter().all(|other| other.reads || other.abandoned)
            };
            let all: Vec<Asked> = queue.iter().copied().collect();
            *queue = (0..all.len())
                .filter(|at| !is_over(&all[*at], &all[..*at]))
                .map(|at| all[at])
                .collect();
        }

        /// Returns `true` if the request at this place has the lock.
        fn has_lock(&self, at: usize) -> bool {
            let reads = self.queue[at].reads;
            !self.queue[at].abandoned
                && (at == 0 || reads && self.queue.iter().take(at).all(|one| one.reads))
        }
    }

    proptest! {
        /// COH-16.10: in the order of arrival, and past members that died as they waited. Those
        /// that read have the lock together.
        #[test]
        fn lock_goes_to_the_members_as_a_list_says(steps in steps()) {
            let (members, mut oracle) = (members(), Oracle::default());
            let entry = members[0].entry(9).unwrap();
            for step in steps {
                let (Step::Request(member, _) | Step::End(member) | Step::Look(member)
                    | Step::Die(member)) = step;
                if oracle.dead.contains(&member) {
                    continue;
                }
                if let Step::Die(_) = step {
                    oracle.dead.insert(member);
                }
                let dead = oracle.dead.clone();
                let is_dead = |rank: Rank| dead.contains(&(rank as usize));
                let locks = &members[member];
                let advance = || {
                    while locks.advance(LockTicket::of_nobody(entry), &is_dead).is_some() {}
                };
                let is_mine = |one: &Asked| one.member == member && !one.abandoned;
                let mine = oracle.queue.iter().position(is_mine);
                match step {
                    Step::Request(_, reads) => {
                        let Some(ticket) = locks.take_ticket(entry, reads) else { continue };
                        let left = |one: &&mut Asked| {
                            one.abandoned && one.member == member && one.reads == reads
                        };
                        match oracle.queue.iter_mut().find(left) {
                            Some(one) => {
                                prop_assert_eq!(one.ticket, ticket, "an abandoned place is used");
                                one.abandoned = false;
                            }
                            None => oracle.queue.push_back(Asked {
                                member, reads, ticket, holds: false, abandoned: false,
                            }),
                        }
                        advance();
                    }
                    Step::End(_) => {
                        let Some(at) = mine else { continue };
                        let Asked { ticket, reads, holds, .. } = oracle.queue[at];
                        if holds && reads {
                            locks.end_reading(entry, false);
                        } else {
                            locks.end(ticket);
                        }
                        if oracle.has_lock(at) {
                            oracle.queue.remove(at);
                        } else {
                            oracle.queue[at].abandoned = true;
                        }
                        advance();
                    }
                    Step::Look(_) => {
                        let at = mine.filter(|at| !oracle.queue[*at].holds);
                        let Some(at) = at else { continue };
                        let has_it = locks.look(oracle.queue[at].ticket, &is_dead);
                        prop_assert_eq!(has_it == LockState::Holds, oracle.has_lock(at));
                        oracle.queue[at].holds = oracle.has_lock(at);
                        advance();
                    }
                    // Another member learns of the death.
                    Step::Die(_) => advance(),
                }
                oracle.settle();
                let first = oracle.queue.front().filter(|one| !one.reads);
                if let Some(Asked { member, holds: true, .. }) = first {
                    let holder = (*member as Rank, LockState::Holds);
                    prop_assert_eq!(members[0].holder(entry), Some(holder));
                    if oracle.dead.contains(member) {
                        // The lock is lost, and nobody gets it.
                        return Ok(());
                    }
                }
            }
        }
    }

    /// COH-7.5: a thread that asks in a loop leaves at most one ticket of each kind.
    #[test]
    fn abandoned_tickets_do_not_fill_a_queue() {
        let [one, two, ..] = members();
        let entry = one.entry(0).unwrap();
        let nobody = |_| false;
        let held = one.take_ticket(entry, false).unwrap();
        one.advance(held, &nobody);
        let mut tickets = BTreeSet::new();
        for asks in 0..10 * QUEUE {
            let ticket = two.take_ticket(entry, asks % 2 == 0).unwrap();
            tickets.insert(ticket.number);
            two.end(ticket);
        }
        assert_eq!(tickets.len(), 2);
        assert_eq!(
            one.view(entry, &|_| false),
            LockView { holder: Some(0), first: None, waiting: 0, abandoned: 2 }
        );
        one.end(held);
        assert_eq!(one.advance(held, &nobody), None, "nobody waits");
        assert!(!one.is_taken(entry, false, &nobody));
    }

    /// COH-16.12: readers take no tickets, so any number of them have the lock, and go on while one
    /// stays.
    #[test]
    fn readers_do_not_fill_a_queue() {
        let [one, two, ..] = members();
        let (entry, nobody) = (one.entry(0).unwrap(), |_| false);
        let read = |locks: &Locks| {
            let ticket = locks.take_ticket(entry, true).unwrap();
            locks.advance(ticket, &nobody);
            assert_eq!(locks.look(ticket, &nobody), LockState::Holds);
            locks.advance(LockTicket::of_nobody(entry), &nobody);
        };
        read(&one);
        (0..3 * QUEUE).for_each(|_| read(&two));
        let writer = one.take_ticket(entry, false).unwrap();
        one.advance(writer, &nobody);
        assert_eq!(
            one.view(entry, &|_| false),
            LockView { holder: Some(0), first: Some(0), waiting: 1, abandoned: 0 }
        );
        for _ in 0..3 * QUEUE {
            assert_eq!(two.end_reading(entry, false), Some(0));
        }
        assert_eq!(two.end_reading(entry, false), None, "no reader is left there");
        assert_eq!(one.look(writer, &nobody), LockState::Granted);
        assert!(!one.has_lock(writer));
        one.end_reading(entry, true);
        assert!(one.has_lock(writer));
        assert_eq!(one.look(writer, &nobody), LockState::Holds);
    }

    /// COH-16.12: a dead member that read has the lock no longer.
    #[test]
    fn view_names_no_dead_reader() {
        let [one, two, three, ..] = members();
        let (entry, is_dead) = (one.entry(0).unwrap(), |rank| rank == 0);
        for locks in [&one, &two] {
            let ticket = locks.take_ticket(entry, true).unwrap();
            locks.advance(ticket, &|_| false);
            assert_eq!(locks.look(ticket, &|_| false), LockState::Holds);
        }
        assert_eq!(three.view(entry, &|_| false).holder, Some(0));
        assert_eq!(three.view(entry, &is_dead).holder, Some(1));
        two.end_reading(entry, false);
        assert_eq!(three.view(entry, &is_dead).holder, None);
        let writer = three.take_ticket(entry, false).unwrap();
        three.advance(writer, &is_dead);
        assert_eq!(two.view(entry, &|_| false).holder, Some(2), "it holds the lock");
    }

    #[test]
    fn queue_refuses_more_tickets_than_it_has_room_for() {
        let [one, two, ..] = members();
        let entry = one.entry(0).unwrap();
        let tickets: Vec<LockTicket> =
            (0..QUEUE).map(|_| one.take_ticket(entry, false).unwrap()).collect();
        assert_eq!(two.take_ticket(entry, false), None);
        one.advance(tickets[0], &|_| false);
        (0..2).for_each(|_| one.end(tickets[0]));
        one.advance(tickets[0], &|_| false);
        assert_eq!(
            one.view(entry, &|_| false),
            LockView { holder: Some(0), first: Some(0), waiting: 62, abandoned: 0 }
        );
        let last = two.take_ticket(entry, false).unwrap();
        for ticket in &tickets[1..] {
            assert_eq!(one.look(*ticket, &|_| false), LockState::Holds);
            one.end(*ticket);
            one.advance(*ticket, &|_| false);
        }
        assert_eq!(two.look(last, &|_| false), LockState::Holds);
    }

    #[test]
    fn all_members_find_alike_which_numbers_have_room() {
        let members = members();
        let numbers = || (0..3 * ENTRIES as u64).chain([u64::MAX - 1, u64::MAX]);
        let found: Vec<_> = numbers().map(|lock| members[lock as usize % 4].entry(lock)).collect();
        let taken: BTreeSet<usize> = found.iter().flatten().copied().collect();
        assert_eq!(taken.len(), found.iter().flatten().count(), "two numbers in one entry");
        assert!(taken.len() > ENTRIES * 9 / 10, "{} entries in use", taken.len());
        for member in &members {
            assert!(numbers().map(|lock| member.entry(lock)).eq(found.iter().copied()));
            assert!(numbers().map(|lock| member.known_entry(lock)).eq(found.iter().copied()));
        }
        assert_eq!(members[0].entry(u64::MAX), None, "it stands for a free entry");
    }

    /// A faulty process may write anything.
    #[test]
    fn nonsense_ends_no_call_late() {
        let [one, ..] = members();
        let entry = one.entry(1).unwrap();
        for word in [u64::MAX, 1 << 63, 3, 1 << 20 | 2, 1 << 20 | 4, 1 << 20 | 10] {
            for place in [HEAD, TAIL, TICKETS, TICKETS + 8, EVER_READ, READERS] {
                one.memory.store(entry + place, word, Ordering::Relaxed);
                for reads in [false, true] {
                    let Some(ticket) = one.take_ticket(entry, reads) else { continue };
                    one.advance(ticket, &|_| false);
                    let _ = (one.look(ticket, &|_| false), one.end_reading(entry, reads));
                    one.end(ticket);
                }
                let _ = (one.view(entry, &|_| false), one.holder(entry), one.own_ticket(entry));
            }
        }
    }
}
