//! Locks of a job in its arena (COH-16.10). A lock has an entry, found by its number, with a queue
//! of tickets in the order of arrival. The ticket at the head of the queue has the lock.
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
/// Place of the words of the tickets, in turn.
const TICKETS: usize = 64;
/// Bytes of an entry.
const ENTRY: usize = (TICKETS + 8 * QUEUE as usize).next_multiple_of(64);

/// Bytes of all locks.
pub(super) const LOCKS_LEN: usize = ENTRIES * ENTRY;

/// Request for a lock in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockTicket {
    entry: usize,
    number: u64,
}

impl LockTicket {
    /// Returns the place of the ticket's lock.
    pub(super) fn entry(self) -> usize {
        self.entry
    }

    /// Returns a ticket that no member has.
    pub(super) fn of_nobody(entry: usize) -> LockTicket {
        LockTicket { entry, number: u64::MAX }
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
}

/// Word of a ticket: the round of the queue, the rank and the state. In round 0 no ticket is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TicketWord(u64);

impl TicketWord {
    fn new(ticket: u64, rank: Rank, state: LockState) -> TicketWord {
        TicketWord(Self::round_of(ticket) << 16 | u64::from(rank & 0x3fff) << 2 | state as u64)
    }

    /// Returns the round of a ticket, from 1.
    fn round_of(ticket: u64) -> u64 {
        ticket / QUEUE + 1
    }

    fn round(self) -> u64 {
        self.0 >> 16
    }

    fn rank(self) -> Rank {
        (self.0 >> 2) as Rank & 0x3fff
    }

    fn state(self) -> LockState {
        match self.0 & 3 {
            0 => LockState::Done,
            1 => LockState::Waits,
            2 => LockState::Granted,
            _ => LockState::Holds,
        }
    }

    /// Returns `true` if the ticket has the lock, whether its member knows that or not.
    fn has_lock(self) -> bool {
        matches!(self.state(), LockState::Granted | LockState::Holds)
    }

    fn with(self, state: LockState) -> TicketWord {
        TicketWord(self.0 & !3 | state as u64)
    }
}

/// The locks of an arena, as one member sees them.
#[derive(Clone, Debug)]
pub(super) struct Locks {
    memory: Memory,
    me: Rank,
}

impl Locks {
    /// Takes the memory of all locks, which is zero at first.
    pub fn new(memory: Memory, me: Rank) -> Locks {
        Locks { memory, me }
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
        Self::entries_of(lock).find(|entry| {
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
        Self::entries_of(lock)
            .find(|entry| self.memory.load(entry + NUMBER, Ordering::Acquire) == number)
    }

    /// Returns the entries in which the number of a lock may be.
    fn entries_of(lock: u64) -> impl Iterator<Item = usize> {
        // Fibonacci hashing: numbers that follow one another lie apart.
        let first = (lock.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..PROBES).map(move |probe| first.wrapping_add(probe) % ENTRIES * ENTRY)
    }

    /// Returns all entries that are taken.
    pub fn taken_entries(&self) -> impl Iterator<Item = usize> {
        (0..ENTRIES)
            .map(|entry| entry * ENTRY)
            .filter(|entry| self.memory.load(entry + NUMBER, Ordering::Acquire) != 0)
    }

    /// Returns the ticket of this member that has a lock, if one does.
    pub fn own_ticket(&self, entry: usize) -> Option<LockTicket> {
        let number = self.memory.load(entry + HEAD, Ordering::Acquire);
        let is_own = self.holder(entry).is_some_and(|(rank, _)| rank == self.me);
        is_own.then_some(LockTicket { entry, number })
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

    /// Returns `true` if a ticket has a lock or waits for it, as the head of its queue tells.
    pub fn is_used(&self, entry: usize) -> bool {
        self.taken(entry, self.memory.load(entry + HEAD, Ordering::Acquire)).is_some()
    }

    /// Takes the next ticket of a lock. Returns `None` while the queue is full.
    pub fn take_ticket(&self, entry: usize) -> Option<LockTicket> {
        for _ in 0..STEPS_MAX {
            let ticket = self.memory.load(entry + TAIL, Ordering::Acquire);
            let head = self.memory.load(entry + HEAD, Ordering::Acquire);
            if ticket.wrapping_sub(head) >= QUEUE && ticket >= head {
                return None;
            }
            let (word, round) = (self.word(entry, ticket), TicketWord::round_of(ticket));
            if word.round() == round {
                // Its taker has not come to this step yet, or has ended.
                self.pass(entry + TAIL, ticket);
            } else if word.round() + 1 == round && word.state() == LockState::Done {
                let mine = TicketWord::new(ticket, self.me, LockState::Waits);
                pass_point();
                if self.memory.exchange(Self::place(entry, ticket), word.0, mine.0) {
                    self.pass(entry + TAIL, ticket);
                    fence(Ordering::SeqCst);
                    return Some(LockTicket { entry, number: ticket });
                }
            }
        }
        None
    }

    /// Returns the state of a ticket of this member. Takes the lock if it was granted.
    #[inline]
    pub fn look(&self, ticket: LockTicket) -> LockState {
        let LockTicket { entry, number } = ticket;
        let Some(word) = self.taken(entry, number) else { return LockState::Done };
        match word.state() {
            LockState::Granted if self.change(entry, number, word, LockState::Holds) => {
                LockState::Holds
            }
            state => state,
        }
    }

    /// Returns `true` if this ticket has the lock, whether its member knows that or not.
    pub fn has_lock(&self, ticket: LockTicket) -> bool {
        self.taken(ticket.entry, ticket.number).is_some_and(TicketWord::has_lock)
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

    /// Ends a ticket that waits. Returns `false` if it has the lock by now.
    pub fn cancel(&self, ticket: LockTicket) -> bool {
        let LockTicket { entry, number } = ticket;
        let Some(word) = self.taken(entry, number) else { return true };
        match word.state() {
            LockState::Done => true,
            LockState::Waits if self.change(entry, number, word, LockState::Done) => true,
            _ => planted(Bug::CancelGranted),
        }
    }

    /// Gives a lock back. Returns `false` if the ticket did not have it.
    pub fn give_back(&self, ticket: LockTicket) -> bool {
        let LockTicket { entry, number } = ticket;
        let held = self.taken(entry, number).filter(|word| word.state() == LockState::Holds);
        held.is_some_and(|word| self.change(entry, number, word, LockState::Done))
    }

    /// Gives a free lock to the first ticket that waits. Returns the member that has it now, if it
    /// must be told. `ticket`, which is of this member or of nobody, takes the lock at once.
    /// Tickets of dead members are passed over, unless a member has seen that it has the lock.
    #[inline]
    pub fn advance(&self, ticket: LockTicket, is_dead: &impl Fn(Rank) -> bool) -> Option<Rank> {
        let entry = ticket.entry;
        for _ in 0..STEPS_MAX {
            let head = self.memory.load(entry + HEAD, Ordering::Acquire);
            let Some(word) = self.taken(entry, head) else {
                if self.memory.load(entry + HEAD, Ordering::Acquire) == head {
                    // Nobody waits.
                    return None;
                }
                continue;
            };
            match word.state() {
                LockState::Done => {
                    self.pass(entry + HEAD, head);
                    if !planted(Bug::PassWithoutFence) {
                        // Either this member sees a ticket that is taken just now, or its taker
                        // sees that the lock is free. The same holds for one that asks for room.
                        fence(Ordering::SeqCst);
                    }
                }
                LockState::Holds => return None,
                LockState::Waits | LockState::Granted
                    if is_dead(word.rank()) && !planted(Bug::GrantToDead) =>
                {
                    self.change(entry, head, word, LockState::Done);
                    fence(Ordering::SeqCst);
                }
                LockState::Granted => return None,
                LockState::Waits if head == ticket.number => {
                    if self.change(entry, head, word, LockState::Holds) {
                        return None;
                    }
                }
                LockState::Waits => {
                    if self.change(entry, head, word, LockState::Granted) {
                        return Some(word.rank());
                    }
                }
            }
        }
        None
    }

    /// Returns the member that has the lock, and whether it knows that.
    pub fn holder(&self, entry: usize) -> Option<(Rank, LockState)> {
        let head = self.memory.load(entry + HEAD, Ordering::Acquire);
        let holder = self.taken(entry, head).filter(|word| word.has_lock());
        holder.map(|word| (word.rank(), word.state()))
    }

    /// Describes a lock.
    pub fn view(&self, entry: usize) -> LockView {
        let head = self.memory.load(entry + HEAD, Ordering::Acquire);
        let tail = self.memory.load(entry + TAIL, Ordering::Acquire);
        let tickets = head..tail.min(head.saturating_add(QUEUE));
        let taken = tickets.filter_map(|ticket| self.taken(entry, ticket));
        let mut waiting = taken.filter(|word| word.state() == LockState::Waits);
        let first = waiting.next();
        LockView {
            holder: self.holder(entry).map(|(rank, _)| rank),
            first: first.map(TicketWord::rank),
            waiting: usize::from(first.is_some()) + waiting.count(),
        }
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
        let mapping = Arc::new(Mapping::anonymous(LOCKS_LEN).unwrap());
        let member = |me| Locks::new(Memory::new(Arc::clone(&mapping), 0, LOCKS_LEN), me as Rank);
        std::array::from_fn(member)
    }

    /// Step of one member.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Request(usize),
        /// Ends or gives back the oldest request of this member.
        End(usize),
        Look(usize),
        Die(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (0..10u8, 0..MEMBERS).prop_map(|(kind, member)| match kind {
            0..4 => Step::Request(member),
            4..7 => Step::End(member),
            7..9 => Step::Look(member),
            _ => Step::Die(member),
        });
        prop::collection::vec(step, 0..200)
    }

    /// The queue of a lock as a list: who waits, and whether the first one knows that it has the
    /// lock.
    #[derive(Default)]
    struct Oracle {
        queue: VecDeque<(usize, LockTicket)>,
        holds: bool,
        dead: BTreeSet<usize>,
    }

    impl Oracle {
        /// Passes over members that died while they waited.
        fn settle(&mut self) {
            while let Some((member, _)) = self.queue.front()
                && !self.holds
                && self.dead.contains(member)
            {
                self.queue.pop_front();
            }
        }
    }

    proptest! {
        /// COH-16.10: in the order of arrival, and past members that died as they waited.
        #[test]
        fn lock_goes_to_the_members_as_a_list_says(steps in steps()) {
            let (members, mut oracle) = (members(), Oracle::default());
            let entry = members[0].entry(9).unwrap();
            for step in steps {
                let (Step::Request(member) | Step::End(member) | Step::Look(member)
                    | Step::Die(member)) = step;
                if oracle.dead.contains(&member) {
                    continue;
                }
                let locks = &members[member];
                let mine = oracle.queue.iter().position(|(other, _)| *other == member);
                match step {
                    Step::Request(_) => {
                        let Some(ticket) = locks.take_ticket(entry) else { continue };
                        let dead = oracle.dead.clone();
                        locks.advance(ticket, &|rank| dead.contains(&(rank as usize)));
                        oracle.queue.push_back((member, ticket));
                        oracle.settle();
                        if oracle.queue.len() == 1 {
                            oracle.holds = true;
                        }
                    }
                    Step::End(_) => {
                        let Some(at) = mine else { continue };
                        let (_, ticket) = oracle.queue[at];
                        let has_it = locks.look(ticket) == LockState::Holds;
                        prop_assert_eq!(has_it, at == 0);
                        if has_it {
                            prop_assert!(locks.give_back(ticket));
                            oracle.holds = false;
                        } else {
                            prop_assert!(locks.cancel(ticket));
                        }
                        oracle.queue.remove(at);
                        let dead = oracle.dead.clone();
                        locks.advance(ticket, &|rank| dead.contains(&(rank as usize)));
                        oracle.settle();
                    }
                    Step::Look(_) => {
                        let Some(at) = mine else { continue };
                        let has_it = locks.look(oracle.queue[at].1) == LockState::Holds;
                        prop_assert_eq!(has_it, at == 0);
                        oracle.holds |= has_it;
                    }
                    Step::Die(_) => {
                        oracle.dead.insert(member);
                        oracle.queue.retain({
                            // The tickets stay in memory, but only the first one that holds counts.
                            let holder = oracle.holds.then(|| oracle.queue[0]);
                            move |own| own.0 != member || Some(*own) == holder
                        });
                        // A member that waits does so when it learns of the death.
                        let (dead, any) = (oracle.dead.clone(), LockTicket { entry, number: u64::MAX });
                        members[member].advance(any, &|rank| dead.contains(&(rank as usize)));
                    }
                }
                let holder = members[0].holder(entry).filter(|(rank, state)| {
                    *state == LockState::Holds || !oracle.dead.contains(&(*rank as usize))
                });
                let expected = oracle.queue.front().filter(|_| oracle.holds);
                if let Some((member, _)) = expected {
                    prop_assert_eq!(holder.map(|(rank, _)| rank as usize), Some(*member));
                }
                if oracle.holds && oracle.queue.front().is_some_and(|(m, _)| oracle.dead.contains(m)) {
                    // The lock is lost, and nobody gets it.
                    return Ok(());
                }
            }
        }
    }

    #[test]
    fn queue_refuses_more_tickets_than_it_has_room_for() {
        let [one, two, ..] = members();
        let entry = one.entry(0).unwrap();
        let tickets: Vec<LockTicket> =
            (0..QUEUE).map(|_| one.take_ticket(entry).unwrap()).collect();
        assert_eq!(two.take_ticket(entry), None);
        one.advance(tickets[0], &|_| false);
        assert!(one.give_back(tickets[0]) && !one.give_back(tickets[0]));
        one.advance(tickets[0], &|_| false);
        assert_eq!(one.view(entry), LockView { holder: Some(0), first: Some(0), waiting: 62 });
        let last = two.take_ticket(entry).unwrap();
        for ticket in &tickets[1..] {
            assert_eq!(one.look(*ticket), LockState::Holds);
            assert!(one.give_back(*ticket));
            one.advance(*ticket, &|_| false);
        }
        assert_eq!(two.look(last), LockState::Holds);
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
        for word in [u64::MAX, 1 << 63, 3, 1 << 16 | 2] {
            for place in [HEAD, TAIL, TICKETS, TICKETS + 8] {
                one.memory.store(entry + place, word, Ordering::Relaxed);
                if let Some(ticket) = one.take_ticket(entry) {
                    one.advance(ticket, &|_| false);
                    let _ = (one.look(ticket), one.cancel(ticket), one.give_back(ticket));
                }
                let _ = (one.view(entry), one.holder(entry), one.own_ticket(entry));
            }
        }
    }
}
