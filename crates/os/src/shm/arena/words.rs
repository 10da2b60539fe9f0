//! Words of an arena: which calls of all members each member has come to, and who sleeps. No system
//! calls.
//!
//! Only its owner writes a member's line, but for nonsense from a faulty process. Every word is
//! read once and checked.

use super::points::pass_point;
use crate::shm::memory::{Memory, Ordering, fence};
use crate::shm::planted::{Bug, planted};

/// Maximum number of members. Each has a bit in the word of sleepers.
pub const MEMBERS_MAX: usize = 64;
/// Maximum number of members of which each polls the words of all. In larger arenas member 0 does,
/// and the others poll its word of departures.
const FLAT_MAX: usize = 8;
/// Bytes between two words that different members write: two cache lines, because processors fetch
/// lines in pairs.
const LINE: usize = 128;
/// Place of the word of sleepers: bit m is set while member m may sleep.
const SLEEPERS: usize = 0;
/// Place of the word of members that sleep on a word of theirs: bit m is set while member m does.
const WORD_SLEEPERS: usize = 8;
/// Place of the word of departures: the latest call that member 0 has seen decided.
const DEPARTURE: usize = LINE;
/// Place of the first member's line.
const MEMBERS: usize = 2 * LINE;
/// Offset in a member's line of its word of failure, which is 0 until the member gives up.
const FAILURE: usize = 8;
/// Offset in a member's line of the word on which it sleeps: what it waits for ([`WordSleep`]), or
/// 0 while it is awake.
const SLEEP: usize = 16;

/// Returns the bytes of the words of this many members.
pub(super) const fn len_of(members: usize) -> usize {
    MEMBERS + members * LINE
}

/// Way that a call of all members takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallWay {
    /// All members have come, and none has anything to tell: the call is over.
    Passed,
    /// A member has something to tell, so the call is a collective of the engines.
    Engines,
}

/// A member's word: the number of the latest call, and which of the latest two calls are for the
/// engines. A member begins a call only when all have begun the one before. So another member needs
/// no older call.
#[derive(Clone, Copy)]
struct CallWord(u64);

impl CallWord {
    const FOR_ENGINES: u64 = 1;
    const EARLIER_FOR_ENGINES: u64 = 2;

    fn number(self) -> u64 {
        self.0 >> 2
    }

    /// Returns the word of the next call, `number`.
    fn next(self, number: u64, for_engines: bool) -> CallWord {
        let forgets = planted(Bug::ForgetEarlierCall);
        let earlier = if forgets { 0 } else { (self.0 & CallWord::FOR_ENGINES) << 1 };
        CallWord(number << 2 | earlier | u64::from(for_engines))
    }

    /// Returns whether the member has come to call `number`, and whether that call is for the
    /// engines. A word that no correct member writes leaves the call to the engines.
    #[inline]
    fn look(self, number: u64) -> (bool, bool) {
        match self.number().checked_sub(number) {
            None => (false, false),
            Some(0) => (true, self.0 & CallWord::FOR_ENGINES != 0),
            Some(1) => (true, self.0 & CallWord::EARLIER_FOR_ENGINES != 0),
            Some(_) => (true, true),
        }
    }
}

/// Event for which a member sleeps on a word of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordSleep {
    /// The end of a call.
    Call,
    /// A step of this member in a collective of data.
    Member(usize),
    /// The grant of a lock.
    Lock,
}

impl WordSleep {
    fn to_word(self) -> u32 {
        match self {
            WordSleep::Call => 1,
            WordSleep::Lock => 2,
            WordSleep::Member(member) => 3 + (member % MEMBERS_MAX) as u32,
        }
    }
}

/// The words of an arena, as one member sees them.
#[derive(Clone, Debug)]
pub(super) struct Words {
    memory: Memory,
    me: usize,
    members: usize,
    /// Is `true` if member 0 tells the others what it has seen decided.
    has_departures: bool,
}

impl Words {
    /// Takes zeroed words of `members` members.
    pub fn new(memory: Memory, me: usize, members: usize) -> Words {
        Words { memory, me, members, has_departures: members > FLAT_MAX }
    }

    /// Takes words as [`Words::new`] does, with departures of member 0 also in a small arena.
    #[cfg(all(test, loom))]
    pub fn with_departures(memory: Memory, me: usize, members: usize) -> Words {
        Words { has_departures: true, ..Words::new(memory, me, members) }
    }

    fn line(member: usize) -> usize {
        MEMBERS + member * LINE
    }

    #[inline]
    fn word(&self, member: usize) -> CallWord {
        CallWord(self.memory.load(Self::line(member), Ordering::Acquire))
    }

    #[inline]
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.me;
        (0..self.members).filter(move |member| *member != me)
    }

    /// Comes to call `number`, the next one. Returns the members that must be woken, as bits.
    #[inline]
    pub fn come(&self, number: u64, for_engines: bool) -> u64 {
        let at = Self::line(self.me);
        let earlier = CallWord(self.memory.load(at, Ordering::Relaxed));
        pass_point();
        self.memory.store(at, earlier.next(number, for_engines).0, Ordering::Release);
        if for_engines {
            self.note_departure(number, CallWay::Engines);
        }
        self.take_sleepers_after_fence()
    }

    /// Takes the bit of another member that may sleep, after a store that it waits for and a fence.
    /// Returns `true` if it was set.
    pub fn take_sleeper(&self, member: usize) -> bool {
        let bit = 1 << member;
        self.memory.load(SLEEPERS, Ordering::Relaxed) & bit != 0
            && self.memory.and(SLEEPERS, !bit) & bit != 0
    }

    #[inline]
    fn take_sleepers(&self) -> u64 {
        let mine = 1 << self.me;
        if self.memory.load(SLEEPERS, Ordering::Relaxed) & !mine == 0 {
            return 0;
        }
        self.memory.and(SLEEPERS, mine) & !mine
    }

    /// Returns the way of call `number`, to which this member has come without anything to tell, as
    /// soon as one look shows it. Stops at the first member that has not come.
    #[inline]
    pub fn poll(&self, number: u64) -> Option<CallWay> {
        if self.has_departures && self.me != 0 {
            let word = self.memory.load(DEPARTURE, Ordering::Acquire);
            return match word >> 1 == number {
                true if word & 1 == 0 => Some(CallWay::Passed),
                true => Some(CallWay::Engines),
                false => None,
            };
        }
        for member in self.others() {
            match self.word(member).look(number) {
                (false, _) if planted(Bug::PassEarly) => {}
                (false, _) => return None,
                (true, true) => return Some(CallWay::Engines),
                (true, false) => {}
            }
        }
        self.note_departure(number, CallWay::Passed);
        Some(CallWay::Passed)
    }

    /// Returns the way of call `number` as [`Words::poll`] does, from the words of all members.
    pub fn way(&self, number: u64) -> Option<CallWay> {
        let mut have_all_come = true;
        for member in self.others() {
            match self.word(member).look(number) {
                (false, _) => have_all_come = false,
                (true, true) => return Some(CallWay::Engines),
                (true, false) => {}
            }
        }
        if have_all_come {
            self.note_departure(number, CallWay::Passed);
        }
        have_all_come.then_some(CallWay::Passed)
    }

    #[inline]
    fn note_departure(&self, number: u64, way: CallWay) {
        if self.has_departures && self.me == 0 {
            let way = u64::from(way == CallWay::Engines);
            self.memory.store(DEPARTURE, number << 1 | way, Ordering::Release);
        }
    }

    /// Returns `true` if this member has come to call `number`.
    #[inline]
    pub fn has_come(&self, member: usize, number: u64) -> bool {
        self.word(member).look(number).0
    }

    /// Returns `true` if all members have come to call `number`.
    #[inline]
    pub fn have_all_come(&self, number: u64) -> bool {
        (0..self.members).all(|member| self.has_come(member, number))
    }

    /// Returns the number of the latest call that any member has come to.
    pub fn latest(&self) -> u64 {
        (0..self.members).map(|member| self.word(member).number()).max().unwrap_or(0)
    }

    /// Notes that this member may sleep. It looks at all words once more before it does.
    pub fn fall_asleep(&self) {
        self.memory.or(SLEEPERS, 1 << self.me);
        fence(Ordering::SeqCst);
    }

    /// Takes the bits of the other members that may sleep, after a store that they wait for. By the
    /// fence, either this member sees the bit of a sleeper, or the sleeper sees the store
    /// ([`Words::fall_asleep`]).
    #[inline]
    pub fn take_sleepers_after_fence(&self) -> u64 {
        pass_point();
        if !planted(Bug::WakeWithoutFence) {
            fence(Ordering::SeqCst);
        }
        self.take_sleepers()
    }

    /// Notes that this member may sleep on its word. It looks once more for what it waits for, and
    /// then calls [`Words::sleep`] or [`Words::end_sleep`].
    pub fn begin_sleep(&self, until: WordSleep) {
        let note = |word| self.memory.store(Self::line(self.me) + SLEEP, word, Ordering::Relaxed);
        if !planted(Bug::SleepForNothing) {
            note(u64::from(until.to_word()));
        }
        self.memory.or(WORD_SLEEPERS, 1 << self.me);
        fence(Ordering::SeqCst);
        if planted(Bug::SleepForNothing) {
            note(u64::from(until.to_word()));
        }
    }

    /// Notes that this member does not sleep on its word.
    pub fn end_sleep(&self) {
        self.memory.and(WORD_SLEEPERS, !(1 << self.me));
        self.memory.store(Self::line(self.me) + SLEEP, 0, Ordering::Relaxed);
    }

    /// Sleeps on the word of this member until another one wakes it, for at most this time.
    #[cfg(not(all(test, loom)))]
    pub fn sleep(&self, until: WordSleep, limit: std::time::Duration) {
        self.memory.sleep_on(Self::line(self.me) + SLEEP, until.to_word(), limit);
        self.end_sleep();
    }

    /// Takes the members that sleep on their words for call `number`, to which this member has
    /// come, if it is over or for the engines. A fence came before.
    #[inline]
    pub fn take_word_sleepers_of_call(&self, number: u64, for_engines: bool) -> u64 {
        match self.word_sleepers() {
            0 => 0,
            // The last member that comes wakes them, as it alone ends the call.
            _ if planted(Bug::LastWakesNobody) && self.have_all_come(number) => 0,
            _ if !for_engines && !self.have_all_come(number) => 0,
            sleepers => self.take_word_sleepers(sleepers, Some(WordSleep::Call)),
        }
    }

    /// Takes the members that sleep on their words for a step of this member. A fence came before.
    #[inline]
    pub fn take_word_sleepers_of_step(&self) -> u64 {
        match self.word_sleepers() {
            0 => 0,
            sleepers => self.take_word_sleepers(sleepers, Some(WordSleep::Member(self.me))),
        }
    }

    /// Wakes a thread of this member that sleeps on its word.
    #[cfg(not(all(test, loom)))]
    pub fn wake_own(&self) {
        if self.memory.load(WORD_SLEEPERS, Ordering::Relaxed) & 1 << self.me != 0 {
            let place = Self::line(self.me) + SLEEP;
            self.memory.store(place, 0, Ordering::Relaxed);
            self.memory.wake(place);
        }
    }

    /// Takes another member, as a bit, if it sleeps on its word for a lock. A fence came before.
    pub fn take_word_sleeper_of_lock(&self, member: usize) -> u64 {
        match self.word_sleepers() & 1 << member {
            0 => 0,
            sleeper => self.take_word_sleepers(sleeper, Some(WordSleep::Lock)),
        }
    }

    /// Takes all members that sleep on their words. A fence came before.
    pub fn take_all_word_sleepers(&self) -> u64 {
        self.take_word_sleepers(self.word_sleepers(), None)
    }

    /// Returns `true` if other members sleep on their words, or are about to.
    #[cfg(all(test, not(loom)))]
    pub fn have_word_sleepers(&self) -> bool {
        self.word_sleepers() != 0
    }

    #[inline]
    fn word_sleepers(&self) -> u64 {
        self.memory.load(WORD_SLEEPERS, Ordering::Relaxed) & !(1 << self.me)
    }

    #[cold]
    fn take_word_sleepers(&self, sleepers: u64, event: Option<WordSleep>) -> u64 {
        let event = event.map(|event| u64::from(event.to_word()));
        let place = |member| Self::line(member) + SLEEP;
        let waits_for = |member, event| self.memory.load(place(member), Ordering::Relaxed) == event;
        let sleeps_for = |member: &usize| {
            sleepers >> member & 1 != 0 && event.is_none_or(|event| waits_for(*member, event))
        };
        self.others().filter(sleeps_for).fold(0, |bits, member| {
            // One that has not begun to sleep stays awake.
            self.memory.store(place(member), 0, Ordering::Relaxed);
            bits | 1 << member
        })
    }

    /// Wakes members that sleep on their words.
    #[cfg(not(all(test, loom)))]
    pub fn wake(&self, sleepers: u64) {
        for member in self.others().filter(|member| sleepers >> member & 1 != 0) {
            self.memory.wake(Self::line(member) + SLEEP);
        }
    }

    /// Notes that this member takes part in no call any more. Returns the members that must be
    /// woken, as bits.
    pub fn fail(&self) -> u64 {
        self.memory.store(Self::line(self.me) + FAILURE, 1, Ordering::Release);
        if planted(Bug::FailWithoutWaking) {
            return 0;
        }
        self.take_sleepers_after_fence()
    }

    /// Returns `true` if a member takes part in no call any more.
    pub fn has_failed(&self) -> bool {
        self.others()
            .any(|member| self.memory.load(Self::line(member) + FAILURE, Ordering::Acquire) != 0)
    }
}
