//! One node's side of an arena.

use super::job_locks::{JobLocks, LockWaiter};
use super::locks::{self, Locks};
use super::pieces::{self, PieceBuffers, PieceNumber};
use super::slots::{self, SlotHead, Slots};
use super::words::{self, CallWay, MEMBERS_MAX, WordSleep, Words};
use crate::memory::mapping::Mapping;
use crate::memory::{MemoryError, lasting_len, sealed_file};
use crate::shm::control_socket::ControlSocket;
use crate::shm::memory::Memory;
use oikaze_protocol::Rank;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Returns the ranges of the words, the slots, the buffers and the locks of an arena, and its
/// length in bytes.
fn layout_of(members: u32) -> ([Range<usize>; 4], usize) {
    let members = (members as usize).min(MEMBERS_MAX);
    let words = words::len_of(members);
    // Pages of their own, as the copies of long values are faster so.
    let slots = words + slots::len_of(members).next_multiple_of(4096);
    let pieces = (slots + pieces::len_of(members)).next_multiple_of(4096);
    let locks = pieces + locks::len_of(members);
    let ranges = [0..words, words..slots, slots..pieces, pieces..locks];
    (ranges, locks.next_multiple_of(4096))
}

/// Creates the memory of an arena, to be sent to all `members`.
///
/// # Errors
/// [`MemoryError`].
pub fn arena_memory(members: u32) -> Result<OwnedFd, MemoryError> {
    sealed_file("oikaze-arena", layout_of(members).1)
}

/// Event at another member for which a node waits in a collective of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArenaEvent {
    /// The member comes to this collective, or passes over it.
    Comes(Rank, u64),
    /// The member gives this piece.
    GivesPiece(Rank, PieceNumber),
    /// The member reads this piece no more.
    HasRead(Rank, PieceNumber),
}

/// Wait of a node for other members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaWait {
    call: u64,
    event: Option<ArenaEvent>,
    /// Is `true` if threads wait for locks.
    locks: bool,
}

/// Bits of a member's number.
const MEMBER_BITS: u32 = MEMBERS_MAX.ilog2();

impl ArenaEvent {
    /// Returns the event in two words, of which the first is not 0.
    fn to_words(self) -> [u64; 2] {
        let (kind, member, number) = match self {
            ArenaEvent::Comes(member, number) => (1, member, number),
            ArenaEvent::GivesPiece(member, number) => (2, member, number.to_word()),
            ArenaEvent::HasRead(member, number) => (3, member, number.to_word()),
        };
        [kind << MEMBER_BITS | u64::from(member), number]
    }

    fn member(self) -> Rank {
        match self {
            ArenaEvent::Comes(member, _)
            | ArenaEvent::GivesPiece(member, _)
            | ArenaEvent::HasRead(member, _) => member,
        }
    }

    fn of_words([first, number]: [u64; 2]) -> Option<ArenaEvent> {
        let member = (first % (1 << MEMBER_BITS)) as Rank;
        match first >> MEMBER_BITS {
            1 => Some(ArenaEvent::Comes(member, number)),
            2 => Some(ArenaEvent::GivesPiece(member, PieceNumber::of_word(number))),
            3 => Some(ArenaEvent::HasRead(member, PieceNumber::of_word(number))),
            _ => None,
        }
    }
}

/// One node's side of an arena. Members are the ranks of a job, from 0 on.
#[derive(Debug)]
pub struct Arena {
    words: Words,
    slots: Slots,
    pieces: PieceBuffers,
    locks: JobLocks,
    members: u32,
    /// Event for which this node waits in a collective of data, as words. The first is 0 if it
    /// waits for none. Another thread may read words of two events: it looks once too often, or
    /// else before it sleeps ([`Arena::fall_asleep`]).
    awaited: [AtomicU64; 2],
    /// Is `true` while a thread may sleep of which the other members do not know, because it slept
    /// before this node waited for any.
    sleeps_unseen: AtomicBool,
    /// Control sockets to the other members, by which sleepers are woken.
    lines: BTreeMap<Rank, Arc<ControlSocket>>,
}

impl Arena {
    /// Maps the memory of a job of `members` nodes, of which this one has rank `me`. `lines` are
    /// the control sockets to the others.
    ///
    /// # Errors
    /// The memory is not as [`arena_memory`] makes it; it cannot be mapped; or there are more than
    /// [`MEMBERS_MAX`] members.
    pub fn new(
        memory: &OwnedFd,
        me: Rank,
        members: u32,
        lines: BTreeMap<Rank, Arc<ControlSocket>>,
    ) -> io::Result<Arena> {
        let invalid = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
        let (ranges, bytes) = layout_of(members);
        if lasting_len(memory)? != bytes as u64 {
            return Err(invalid("the memory is of another size"));
        }
        if members as usize > MEMBERS_MAX || me >= members {
            return Err(invalid("the job has more nodes than an arena has room for"));
        }
        let mapping = Arc::new(Mapping::of_file(memory.as_fd(), bytes).map_err(io::Error::other)?);
        let memory =
            |range: Range<usize>| Memory::new(Arc::clone(&mapping), range.start, range.len());
        let [words, slots, pieces, locks] = ranges.map(memory);
        let (place, count) = (me as usize, members as usize);
        let words = Words::new(words, place, count);
        Ok(Arena {
            locks: JobLocks::new(
                Locks::new(locks, me, count),
                words.clone(),
                (me, members),
                lines.clone(),
            ),
            words,
            slots: Slots::new(slots, place, count),
            pieces: PieceBuffers::new(pieces, place, count),
            members,
            awaited: Default::default(),
            sleeps_unseen: AtomicBool::new(false),
            lines,
        })
    }

    /// Returns the locks that have room here.
    #[inline]
    #[must_use]
    pub fn locks(&self) -> &JobLocks {
        &self.locks
    }

    /// Notes that a thread of this node waits for a lock. A thread that sleeps since before is
    /// woken, too, when the lock is granted. The caller looks once more afterwards.
    pub fn begin_lock_wait(&self, waiter: LockWaiter) {
        self.locks.begin_wait(waiter);
        self.note_wait();
    }

    /// Returns the number of members.
    #[must_use]
    pub fn members(&self) -> u32 {
        self.members
    }

    /// Returns `true` if the kernel says that the process of another member has ended.
    #[must_use]
    pub fn process_has_ended(&self, rank: Rank) -> bool {
        self.lines.get(&rank).is_some_and(|line| line.process_has_ended())
    }

    /// Wakes members that sleep, and those that sleep on their words.
    #[inline]
    fn wake(&self, sleepers: u64, word_sleepers: u64) {
        if sleepers | word_sleepers != 0 {
            self.wake_sleepers(sleepers, word_sleepers);
        }
    }

    /// Wakes members that sleep until this node takes a step in a collective of data.
    #[inline]
    fn wake_after_step(&self) {
        let sleepers = self.words.take_sleepers_after_fence();
        self.wake(sleepers, self.words.take_word_sleepers_of_step());
    }

    #[cold]
    fn wake_sleepers(&self, sleepers: u64, word_sleepers: u64) {
        self.words.wake(word_sleepers);
        for (rank, line) in &self.lines {
            if sleepers >> rank & 1 != 0 {
                line.wake();
            }
        }
    }

    /// Comes to call `number`, and wakes the members that sleep. Calls are numbered from 1. All
    /// members have come to the call before ([`Arena::have_all_come`]). `for_engines` says that
    /// this node has something to tell, so that the call is for the engines.
    #[inline]
    pub fn come(&self, number: u64, for_engines: bool) {
        let sleepers = self.words.come(number, for_engines);
        self.wake(sleepers, self.words.take_word_sleepers_of_call(number, for_engines));
    }

    /// Returns the way of call `number`, to which this node has come without anything to tell, as
    /// soon as one short look shows it.
    #[inline]
    #[must_use]
    pub fn poll(&self, number: u64) -> Option<CallWay> {
        self.words.poll(number)
    }

    /// Returns the way of call `number` as [`Arena::poll`] does, from the words of all members.
    #[must_use]
    pub fn way(&self, number: u64) -> Option<CallWay> {
        self.words.way(number)
    }

    /// Returns `true` if all members have come to call `number`.
    #[must_use]
    pub fn have_all_come(&self, number: u64) -> bool {
        self.words.have_all_come(number)
    }

    /// Returns `true` if this member has come to call `number`.
    #[must_use]
    pub fn has_come(&self, rank: Rank, number: u64) -> bool {
        self.words.has_come(rank as usize, number)
    }

    /// Returns the members that have not come to the latest call of any member, and those that
    /// have, in rank order.
    #[must_use]
    pub fn late_and_come(&self) -> (Vec<Rank>, Vec<Rank>) {
        let latest = self.words.latest();
        (0..self.members).partition(|rank| !self.has_come(*rank, latest))
    }

    /// Announces that this node may sleep while it waits for the call whose number is in
    /// `undecided`, which is 0 for none, for collectives of data and for locks. Returns `true` if
    /// it must look again instead.
    #[must_use]
    pub fn fall_asleep(&self, undecided: &AtomicU64) -> bool {
        // Before the waits are read: a wait that begins later finds the flag.
        self.sleeps_unseen.store(true, Ordering::SeqCst);
        let number = undecided.load(Ordering::SeqCst);
        let awaits_step = self.awaited[0].load(Ordering::SeqCst) != 0;
        if number == 0 && !awaits_step && !self.locks.has_waits() {
            return false;
        }
        self.sleeps_unseen.store(false, Ordering::SeqCst);
        self.words.fall_asleep();
        number != 0 && (self.words.way(number).is_some() || self.words.has_failed())
            || self.is_awaited_here()
            || self.locks.is_over_here()
    }

    /// Sleeps until what this node waits for happens: the end of the call whose number is in
    /// `undecided`, which is 0 for none, a step of a collective of data, or a lock. The sleep ends
    /// after this time, and with a signal. Returns `false` at once if this node waits for nothing,
    /// or for more than one of these. One thread of a node at a time may call this.
    #[must_use]
    pub fn sleep_on_word(&self, undecided: &AtomicU64, limit: Duration) -> bool {
        let number = undecided.load(Ordering::SeqCst);
        let until = match (number, self.awaited(), self.locks.has_waits()) {
            (1.., None, false) => WordSleep::Call,
            (0, Some(event), false) => WordSleep::Member(event.member() as usize),
            (0, None, true) => WordSleep::Lock,
            _ => return false,
        };
        self.words.begin_sleep(until);
        let has_ended = |number| self.words.way(number).is_some() || self.words.has_failed();
        let has_come = (number != 0 && has_ended(number)) || self.is_awaited_here();
        if has_come || self.locks.is_over_here() {
            self.words.end_sleep();
        } else {
            self.words.sleep(until, limit);
        }
        true
    }

    /// Comes to collective of data `number` with a head and bytes, and wakes the members that
    /// sleep. No member may still read the slot ([`Arena::first_reader`]).
    #[inline]
    pub fn give(&self, number: u64, head: SlotHead, bytes: &[u8]) {
        self.slots.give(number, head, bytes);
        self.wake_after_step();
    }

    /// Passes over all collectives of data up to this one, and wakes the members that sleep.
    pub fn pass_over(&self, number: u64) {
        self.slots.pass_over(number);
        self.wake_after_step();
    }

    /// Returns a member that may still read what is in the slot of collective of data `number`.
    #[inline]
    #[must_use]
    pub fn first_reader(&self, number: u64) -> Option<Rank> {
        self.slots.first_reader(number).and_then(|member| Rank::try_from(member).ok())
    }

    /// Returns a member's head of collective of data `number`, if the member has given one.
    #[inline]
    #[must_use]
    pub fn head(&self, member: Rank, number: u64) -> Option<SlotHead> {
        self.slots.head(member as usize, number)
    }

    /// Number of slots that each member has.
    pub const SLOTS: u64 = slots::SLOTS;

    /// Returns the number of the collective of data to which all members must come before the slot
    /// of collective `number` may be written.
    #[must_use]
    pub fn number_of_release(number: u64) -> u64 {
        slots::number_of_release(number)
    }

    /// Copies what a member gives to collective of data `number`, from byte `at` on.
    #[inline]
    pub fn read(&self, member: Rank, number: u64, at: usize, into: &mut [u8]) {
        self.slots.read(member as usize, number, at, into);
    }

    /// Notes that a wait of this node has begun. A thread that sleeps since before is woken, too,
    /// when a member comes. The caller looks at the members once more afterwards.
    pub fn note_wait(&self) {
        if self.sleeps_unseen.swap(false, Ordering::SeqCst) {
            self.words.fall_asleep();
        }
    }

    /// Notes that this node waits for an event. A thread of this node that sleeps is woken then.
    /// Returns `false` if it has happened meanwhile.
    #[must_use]
    pub fn wait_for(&self, event: ArenaEvent) -> bool {
        let words = event.to_words();
        if self.awaited_words() != words {
            self.awaited[0].store(0, Ordering::SeqCst);
            self.awaited[1].store(words[1], Ordering::SeqCst);
            self.awaited[0].store(words[0], Ordering::SeqCst);
        }
        self.note_wait();
        !self.has_happened(event)
    }

    /// Notes that this node waits for no event.
    #[inline]
    pub fn end_wait(&self) {
        if self.awaited[0].load(Ordering::Relaxed) != 0 {
            self.awaited[0].store(0, Ordering::SeqCst);
        }
    }

    #[inline]
    fn awaited_words(&self) -> [u64; 2] {
        [self.awaited[0].load(Ordering::Acquire), self.awaited[1].load(Ordering::Relaxed)]
    }

    /// Returns `true` if this node waits for an event of a collective of data.
    #[inline]
    #[must_use]
    pub fn awaits(&self) -> bool {
        self.awaited[0].load(Ordering::Relaxed) != 0
    }

    /// Returns what this node waits for, if it does: the end of the call whose number is in
    /// `undecided`, which is 0 for none, an event of a collective of data, or locks.
    #[must_use]
    pub fn wait(&self, undecided: &AtomicU64) -> Option<ArenaWait> {
        let call = undecided.load(Ordering::Relaxed);
        let wait = ArenaWait { call, event: self.awaited(), locks: self.locks.has_waits() };
        (wait != ArenaWait::default()).then_some(wait)
    }

    /// Returns the event for which this node waits in a collective of data.
    #[inline]
    fn awaited(&self) -> Option<ArenaEvent> {
        ArenaEvent::of_words(self.awaited_words())
    }

    /// Returns `true` if this node waits for an event of a collective of data that has happened.
    #[inline]
    #[must_use]
    pub fn is_awaited_here(&self) -> bool {
        self.awaited().is_some_and(|event| self.has_happened(event))
    }

    /// Returns `true` if the event has happened.
    #[inline]
    #[must_use]
    pub fn has_happened(&self, event: ArenaEvent) -> bool {
        match event {
            ArenaEvent::Comes(member, number) => self.slots.has_come(member as usize, number),
            ArenaEvent::GivesPiece(member, number) => {
                self.pieces.has_given(member as usize, number)
            }
            ArenaEvent::HasRead(member, number) => self.pieces.has_read(member as usize, number),
        }
    }

    /// Returns a member that may still read the buffer of this node's piece, and the event after
    /// which it does so no more.
    #[inline]
    #[must_use]
    pub fn first_piece_reader(&self, number: PieceNumber) -> Option<(Rank, ArenaEvent)> {
        let (member, earlier) = self.pieces.first_reader(number)?;
        let member = Rank::try_from(member).ok()?;
        Some((member, ArenaEvent::HasRead(member, earlier)))
    }

    /// Writes a part of a piece of this node, from byte `at` on. No member reads its buffer any
    /// more ([`Arena::first_piece_reader`]).
    #[inline]
    pub fn write_piece(&self, number: PieceNumber, at: usize, bytes: &[u8]) {
        self.pieces.write(number, at, bytes);
    }

    /// Gives a piece that is written, and wakes the members that sleep.
    #[inline]
    pub fn give_piece(&self, number: PieceNumber) {
        self.pieces.give(number);
        self.wake_after_step();
    }

    /// Copies a part of a piece that a member has given, from byte `at` on.
    #[inline]
    pub fn read_piece(&self, member: Rank, number: PieceNumber, at: usize, into: &mut [u8]) {
        self.pieces.read(member as usize, number, at, into);
    }

    /// Notes that this node reads no piece before this one any more, and wakes the members that
    /// sleep.
    #[inline]
    pub fn note_read(&self, before: PieceNumber) {
        self.pieces.note_read(before);
        self.wake_after_step();
    }

    /// Notes that this node takes part in no call any more, and wakes the members that sleep.
    pub fn fail(&self) {
        let sleepers = self.words.fail();
        self.wake(sleepers, self.words.take_all_word_sleepers());
    }

    /// Returns `true` if another member takes part in no call any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.words.has_failed()
    }
}

#[cfg(test)]
mod tests {
    use super::super::job_locks::LockHost;
    use super::super::locks::{LockState, LockTicket};
    use super::*;
    use std::thread;

    /// Longer than a test may take, so a thread that nobody wakes is found.
    const FOR_EVER: Duration = Duration::from_secs(100_000);
    const REPETITIONS: u32 = 200;

    /// In every other repetition, waits until a member is about to sleep on its word. In the others
    /// the event is likely to come first.
    fn let_sleep(repetition: u32, waker: &Arena) {
        while repetition.is_multiple_of(2) && !waker.words.have_word_sleepers() {
            thread::yield_now();
        }
    }

    /// Sleeps on a word until this member has the lock of its ticket.
    fn sleep_until_held(sleeper: &Arena, ticket: Option<LockTicket>) {
        while sleeper.locks().look(ticket.unwrap(), &NobodyDied) != LockState::Holds {
            assert!(sleeper.sleep_on_word(&AtomicU64::new(0), FOR_EVER));
        }
    }

    fn members<const COUNT: usize>() -> [Arena; COUNT] {
        let memory = arena_memory(COUNT as u32).unwrap();
        let member = |me| Arena::new(&memory, me as u32, COUNT as u32, BTreeMap::new()).unwrap();
        std::array::from_fn(member)
    }

    /// COH-6.17: three members, of which one comes early.
    #[test]
    fn sleeper_on_a_word_is_woken_by_the_last_that_comes_to_a_call() {
        for for_engines in [false, true] {
            for repetition in 0..REPETITIONS {
                let [sleeper, early, last] = members();
                sleeper.come(1, false);
                early.come(1, false);
                thread::scope(|scope| {
                    let wait = || {
                        while sleeper.way(1).is_none() {
                            assert!(sleeper.sleep_on_word(&AtomicU64::new(1), FOR_EVER));
                        }
                    };
                    scope.spawn(wait);
                    let_sleep(repetition, &last);
                    last.come(1, for_engines);
                });
            }
        }
    }

    struct NobodyDied;

    impl LockHost for NobodyDied {
        fn is_dead(&self, _: Rank) -> bool {
            false
        }
        fn wake_waiting(&self) {}
    }

    /// COH-6.17, COH-16.10: also by another thread of the same member.
    #[test]
    fn sleeper_on_a_word_is_woken_by_the_grant_of_a_lock() {
        for repetition in 0..REPETITIONS {
            let [sleeper, other] = members();
            let holder = if repetition % 4 < 2 { &other } else { &sleeper };
            let entry = holder.locks().entry(5).unwrap();
            // Any number of readers has the lock, and the last one wakes.
            let reads = repetition % 3 == 0;
            let held = holder.locks().request(entry, reads, &NobodyDied).unwrap();
            assert_eq!(holder.locks().look(held, &NobodyDied), LockState::Holds);
            let ticket = sleeper.locks().request(entry, false, &NobodyDied);
            sleeper.begin_lock_wait(LockWaiter { entry, ticket });
            thread::scope(|scope| {
                scope.spawn(|| sleep_until_held(&sleeper, ticket));
                let_sleep(repetition, &other);
                holder.locks().give_back(held, &NobodyDied);
            });
            sleeper.locks().end_wait(LockWaiter { entry, ticket });
            assert!(!sleeper.sleep_on_word(&AtomicU64::new(0), FOR_EVER));
        }
    }

    /// COH-16.12: requests that read are granted the lock together, and wake their members.
    #[test]
    fn sleeper_on_a_word_is_woken_when_others_read() {
        for repetition in 0..REPETITIONS {
            let [sleeper, writer, reader] = members();
            let entry = writer.locks().entry(5).unwrap();
            let held = writer.locks().request(entry, false, &NobodyDied).unwrap();
            let other = reader.locks().request(entry, true, &NobodyDied).unwrap();
            let ticket = sleeper.locks().request(entry, true, &NobodyDied);
            sleeper.begin_lock_wait(LockWaiter { entry, ticket });
            thread::scope(|scope| {
                scope.spawn(|| sleep_until_held(&sleeper, ticket));
                let_sleep(repetition, &writer);
                writer.locks().give_back(held, &NobodyDied);
            });
            assert_eq!(reader.locks().look(other, &NobodyDied), LockState::Holds);
            assert!(writer.locks().try_request(entry, false, &NobodyDied).is_none());
            assert!(writer.locks().try_request(entry, true, &NobodyDied).is_some());
        }
    }

    /// COH-16.12: a member counts a reader, and finds that its ticket is over. It takes the reader
    /// back, for which another member may wait.
    #[test]
    fn sleeper_on_a_word_is_woken_by_a_reader_counted_in_vain() {
        for repetition in 0..REPETITIONS {
            let [sleeper, reader, other] = members();
            let entry = reader.locks().entry(5).unwrap();
            let over = reader.locks().request(entry, true, &NobodyDied).unwrap();
            let counted = reader.locks().request(entry, true, &NobodyDied).unwrap();
            assert_eq!(reader.locks().look(counted, &NobodyDied), LockState::Holds);
            reader.locks().end(over, &NobodyDied);
            let ticket = sleeper.locks().request(entry, false, &NobodyDied);
            sleeper.begin_lock_wait(LockWaiter { entry, ticket });
            thread::scope(|scope| {
                scope.spawn(|| sleep_until_held(&sleeper, ticket));
                let_sleep(repetition, &other);
                let locks = Locks::new(reader.locks().memory(), 1, 3);
                // The step itself wakes nobody.
                let _ = locks.end_reading(entry.place(), false);
                assert_eq!(reader.locks().look(over, &NobodyDied), LockState::Done);
            });
        }
    }

    /// COH-16.10: requests fill a queue.
    #[test]
    fn sleeper_on_a_word_is_woken_when_a_queue_has_room() {
        let [sleeper, other] = members();
        let entry = other.locks().entry(5).unwrap();
        let held = other.locks().request(entry, false, &NobodyDied).unwrap();
        let ask = || other.locks().request(entry, false, &NobodyDied);
        let tickets: Vec<_> = std::iter::from_fn(ask).collect();
        assert_eq!(sleeper.locks().request(entry, false, &NobodyDied), None);
        sleeper.begin_lock_wait(LockWaiter { entry, ticket: None });
        thread::scope(|scope| {
            scope.spawn(|| {
                while !sleeper.locks().is_over_here() {
                    assert!(sleeper.sleep_on_word(&AtomicU64::new(0), FOR_EVER));
                }
                let ticket = sleeper.locks().request(entry, false, &NobodyDied).unwrap();
                while sleeper.locks().look(ticket, &NobodyDied) != LockState::Holds {
                    thread::yield_now();
                }
            });
            let_sleep(0, &other);
            other.locks().give_back(held, &NobodyDied);
            tickets.iter().for_each(|ticket| other.locks().end(*ticket, &NobodyDied));
        });
    }

    /// A faulty process may have written anything.
    #[test]
    fn lock_is_not_granted_to_a_member_that_there_is_not() {
        let [one, other] = members();
        let entry = one.locks().entry(5).unwrap();
        let held = one.locks().request(entry, false, &NobodyDied).unwrap();
        let nobody = Locks::new(other.locks().memory(), 77, 2);
        nobody.take_ticket(entry.place(), false).unwrap();
        let ticket = other.locks().request(entry, false, &NobodyDied).unwrap();
        one.locks().give_back(held, &NobodyDied);
        assert_eq!(other.locks().look(ticket, &NobodyDied), LockState::Holds);
    }

    /// COH-6.17: two members take the step, and the sleeper waits for one of them.
    #[test]
    fn sleeper_on_a_word_is_woken_by_a_step() {
        for repetition in 0..REPETITIONS {
            let [sleeper, other, third] = members();
            let event = ArenaEvent::Comes(1, 1);
            assert!(sleeper.wait_for(event));
            third.give(1, [1; 3], &[]);
            thread::scope(|scope| {
                let wait = || {
                    while !sleeper.has_happened(event) {
                        assert!(sleeper.sleep_on_word(&AtomicU64::new(0), FOR_EVER));
                    }
                };
                scope.spawn(wait);
                let_sleep(repetition, &other);
                other.give(1, [1; 3], &[]);
            });
        }
    }

    /// COH-6.17: as the nodes that wait then call their engines.
    #[test]
    fn sleepers_on_words_are_woken_by_a_member_that_gives_up() {
        for repetition in 0..REPETITIONS {
            let [sleeper, other] = members();
            sleeper.come(1, false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !sleeper.has_failed() {
                        assert!(sleeper.sleep_on_word(&AtomicU64::new(1), FOR_EVER));
                    }
                });
                let_sleep(repetition, &other);
                other.fail();
            });
        }
    }

    #[test]
    fn node_sleeps_on_its_word_for_one_wait_alone_and_not_for_longer() {
        let [arena, other] = members();
        assert!(!arena.sleep_on_word(&AtomicU64::new(0), FOR_EVER), "it waits for nothing");
        arena.come(1, false);
        assert!(arena.sleep_on_word(&AtomicU64::new(1), Duration::from_millis(1)));
        assert!(arena.wait_for(ArenaEvent::Comes(1, 1)));
        assert!(!arena.sleep_on_word(&AtomicU64::new(1), FOR_EVER), "it waits for two things");
        assert!(arena.sleep_on_word(&AtomicU64::new(0), Duration::from_millis(1)));
        assert_eq!(other.words.take_all_word_sleepers(), 0);
    }
}
