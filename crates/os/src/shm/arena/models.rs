//! Models members of an arena as threads ([`crate::models`]).

use super::locks::{self, LockState, LockTicket, Locks};
use super::pieces::{self, PieceBuffers, PieceNumber};
use super::slots::{self, Slots};
use super::words::{CallWay, WordSleep, Words, len_of};
use crate::models::model;
use crate::shm::memory::Memory;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Calls of a member: `true` means that it has something to tell.
type Program = [bool; 2];

/// Comes to all calls of a program, and returns their ways. A member that passes a call sees what
/// every other member wrote before it came to the call.
fn run(words: &Words, me: usize, written: &[AtomicU64], program: Program) -> [CallWay; 2] {
    let mut number = 0;
    program.map(|tells| {
        number += 1;
        written[me].store(number, Ordering::Relaxed);
        words.come(number, tells);
        if tells {
            // The engines end such a call only when all have come.
            while !(0..written.len()).all(|member| words.has_come(member, number)) {
                thread::yield_now();
            }
            return CallWay::Engines;
        }
        let way = loop {
            match words.poll(number).or_else(|| words.way(number)) {
                Some(way) => break way,
                None => thread::yield_now(),
            }
        };
        if way == CallWay::Engines {
            while !(0..written.len()).all(|member| words.has_come(member, number)) {
                thread::yield_now();
            }
        }
        assert!(written.iter().all(|word| word.load(Ordering::Relaxed) >= number), "passed early");
        way
    })
}

fn all_go_one_way(programs: [Program; 2], has_departures: bool) {
    model(3, move || {
        let memory = Memory::of(len_of(2));
        let member = |me| match has_departures {
            true => Words::with_departures(memory.clone(), me, 2),
            false => Words::new(memory.clone(), me, 2),
        };
        let written = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let other = {
            let (words, written) = (member(1), Arc::clone(&written));
            thread::spawn(move || run(&words, 1, &*written, programs[1]))
        };
        let ways = [run(&member(0), 0, &*written, programs[0]), other.join().unwrap()];
        for call in 0..2 {
            let tells = programs.iter().any(|program| program[call]);
            let way = if tells { CallWay::Engines } else { CallWay::Passed };
            assert_eq!(ways.map(|of_member| of_member[call]), [way; 2]);
        }
    });
}

const PROGRAMS: [[Program; 2]; 4] = [
    [[false, false], [false, false]],
    [[true, false], [false, false]],
    [[false, true], [false, false]],
    [[false, false], [true, false]],
];

/// COH-6.14: a call is over only when all have come, and all go one way.
#[test]
fn loom_arena_members_go_one_way() {
    PROGRAMS.into_iter().for_each(|programs| all_go_one_way(programs, false));
}

/// COH-6.14: the same where member 0 tells what it has seen.
#[test]
fn loom_arena_members_go_the_way_of_member_0() {
    PROGRAMS.into_iter().for_each(|programs| all_go_one_way(programs, true));
}

/// COH-6.16: a member that falls asleep has seen that the other one has come, or is woken.
#[test]
fn loom_arena_sleeper_is_woken_by_who_comes() {
    model(3, || {
        let memory = Memory::of(len_of(2));
        let (sleeper, other) = (Words::new(memory.clone(), 0, 2), Words::new(memory, 1, 2));
        sleeper.come(1, false);
        let coming = thread::spawn(move || other.come(1, false));
        sleeper.fall_asleep();
        let seen = sleeper.way(1).is_some() || sleeper.has_failed();
        let woken = coming.join().unwrap();
        assert!(seen || woken == 1);
    });
}

/// COH-6.16: the same if the other one gives up.
#[test]
fn loom_arena_sleeper_is_woken_by_who_gives_up() {
    model(3, || {
        let memory = Memory::of(len_of(2));
        let (sleeper, other) = (Words::new(memory.clone(), 0, 2), Words::new(memory, 1, 2));
        sleeper.come(1, false);
        let failing = thread::spawn(move || other.fail());
        sleeper.fall_asleep();
        let seen = sleeper.way(1).is_some() || sleeper.has_failed();
        let woken = failing.join().unwrap();
        assert!(seen || woken == 1);
    });
}

/// COH-6.17: a member that sleeps on its word has seen the end of the call, or is woken by a member
/// that comes.
#[test]
fn loom_arena_word_sleeper_is_woken_at_the_end_of_a_call() {
    for tells in [false, true] {
        model(2, move || {
            let memory = Memory::of(len_of(3));
            let member = |me| Words::new(memory.clone(), me, 3);
            let sleeper = member(0);
            sleeper.come(1, false);
            let coming = [(1, tells), (2, false)].map(|(me, tells)| {
                let words = member(me);
                thread::spawn(move || {
                    words.come(1, tells);
                    words.take_word_sleepers_of_call(1, tells)
                })
            });
            sleeper.begin_sleep(WordSleep::Call);
            let seen = sleeper.way(1).is_some();
            let woken = coming.map(|thread| thread.join().unwrap());
            assert!(seen || woken.contains(&1));
        });
    }
}

/// COH-6.17: a member that sleeps on its word has seen a step of the other one, or is woken by it.
#[test]
fn loom_arena_word_sleeper_is_woken_by_a_step() {
    model(3, || {
        let (memory, slots) = (Memory::of(len_of(2)), Memory::of(slots::len_of(2)));
        let words = |me| Words::new(memory.clone(), me, 2);
        let slots = |me| Slots::new(slots.clone(), me, 2);
        let (sleeper, other) = ((words(0), slots(0)), (words(1), slots(1)));
        let giving = thread::spawn(move || {
            other.1.give(1, [1; 3], &[]);
            other.0.take_sleepers_after_fence();
            other.0.take_word_sleepers_of_step()
        });
        sleeper.0.begin_sleep(WordSleep::Member(1));
        let seen = sleeper.1.has_come(1, 1);
        assert!(giving.join().unwrap() == 1 || seen);
    });
}

/// COLL-7.1, COLL-7.2: each member reads what the others give to each collective, and no slot is
/// written while another member may read it.
#[test]
fn loom_slots_keep_what_a_member_gives_until_all_have_read() {
    const CALLS: u64 = 4;
    fn value(member: usize, number: u64) -> u64 {
        number << 8 | member as u64
    }
    /// Gives in each collective, and reads what the other one gives where `reads` says so.
    fn run(slots: &Slots, me: usize, reads: bool) {
        for number in 1..=CALLS {
            while slots.first_reader(number).is_some() {
                thread::yield_now();
            }
            slots.give(number, [value(me, number); 3], &value(me, number).to_le_bytes());
            if !reads {
                continue;
            }
            while !slots.has_come(1 - me, number) {
                thread::yield_now();
            }
            let mut bytes = [0; 8];
            assert_eq!(slots.head(1 - me, number), Some([value(1 - me, number); 3]));
            slots.read(1 - me, number, 0, &mut bytes);
            assert_eq!(u64::from_le_bytes(bytes), value(1 - me, number));
        }
    }
    for reads in [true, false] {
        model(2, move || {
            let memory = Memory::of(slots::len_of(2));
            let other = Slots::new(memory.clone(), 1, 2);
            let other = thread::spawn(move || run(&other, 1, reads));
            run(&Slots::new(memory, 0, 2), 0, true);
            other.join().unwrap();
        });
    }
}

/// COLL-7.6, COLL-7.7: each member reads all pieces of the other one, its own ones too, and no
/// buffer is written while a member may read it. A member that reads none does not stop the other.
#[test]
fn loom_pieces_stay_until_all_have_read_them() {
    const PIECES: u64 = 3;
    fn value(member: usize, number: (u64, u64)) -> [u8; 8] {
        (number.0 << 16 | number.1 << 8 | member as u64).to_le_bytes()
    }
    fn read(pieces: &PieceBuffers, from: usize, number: (u64, u64)) {
        let (place, mut bytes) = (PieceNumber::of(number.0, number.1), [0; 8]);
        while !pieces.has_given(from, place) {
            thread::yield_now();
        }
        pieces.read(from, place, 0, &mut bytes);
        assert_eq!(bytes, value(from, number));
    }
    /// Gives the pieces of two collectives, as early as it may, and reads those of the first one
    /// where `reads` says so.
    fn run(pieces: &PieceBuffers, me: usize, reads: bool) {
        for collective in 1..=2 {
            let to_read = if reads && collective == 1 { PIECES } else { 0 };
            if to_read == 0 {
                pieces.note_read(PieceNumber::after(collective));
            }
            let (mut given, mut done) = (0, 0);
            while given < PIECES || done < to_read {
                let place = PieceNumber::of(collective, given);
                if given < PIECES && pieces.first_reader(place).is_none() {
                    pieces.write(place, 0, &value(me, (collective, given)));
                    pieces.give(place);
                    given += 1;
                } else if done < to_read.min(given) {
                    read(pieces, me, (collective, done));
                    read(pieces, 1 - me, (collective, done));
                    done += 1;
                    pieces.note_read(PieceNumber::of(collective, done));
                } else {
                    thread::yield_now();
                }
            }
        }
    }
    for reads in [true, false] {
        model(2, move || {
            let memory = Memory::of(pieces::len_of(2));
            let other = PieceBuffers::new(memory.clone(), 1, 2);
            let other = thread::spawn(move || run(&other, 1, reads));
            run(&PieceBuffers::new(memory, 0, 2), 0, true);
            other.join().unwrap();
        });
    }
}

/// COLL-7.4: a member that reads the head of an earlier collective, whose slot may be written
/// again, reads that head or none.
#[test]
fn loom_slots_have_no_torn_heads() {
    model(3, || {
        let memory = Memory::of(slots::len_of(2));
        let owner = Slots::new(memory.clone(), 0, 2);
        let reader = Slots::new(memory, 1, 2);
        owner.give(1, [1; 3], &[]);
        let giving = thread::spawn(move || {
            owner.give(2, [2; 3], &[]);
            while owner.first_reader(3).is_some() {
                thread::yield_now();
            }
            owner.give(3, [3; 3], &[]);
        });
        reader.give(1, [1; 3], &[]);
        reader.give(2, [2; 3], &[]);
        assert!(reader.head(0, 1).is_none_or(|head| head == [1; 3]), "torn head");
        giving.join().unwrap();
    });
}

/// Requests a lock, and waits until it is granted. Another member may have to wake this one, so it
/// looks at nothing but its own ticket, and at readers.
fn acquire(locks: &Locks, entry: usize, reads: bool) -> LockTicket {
    let ticket = locks.take_ticket(entry, reads).expect("there is room");
    await_grant(locks, ticket);
    ticket
}

fn await_grant(locks: &Locks, ticket: LockTicket) {
    advance(locks, ticket);
    while locks.look(ticket, &|_| false) != LockState::Holds {
        thread::yield_now();
    }
    if ticket.reads() {
        advance(locks, LockTicket::of_nobody(ticket.entry()));
    }
}

fn advance(locks: &Locks, ticket: LockTicket) {
    while locks.advance(ticket, &|_| false).is_some() {}
}

fn give_back(locks: &Locks, ticket: LockTicket) {
    if ticket.reads() {
        locks.end_reading(ticket.entry(), false);
    } else {
        end(locks, ticket);
    }
}

fn end(locks: &Locks, ticket: LockTicket) {
    locks.end(ticket);
    advance(locks, LockTicket::of_nobody(ticket.entry()));
}

fn members_of_locks(memory: &Memory) -> [Locks; 2] {
    [0, 1].map(|me| Locks::new(memory.clone(), me, 2))
}

#[test]
fn loom_a_lock_has_one_holder_and_forgets_nobody() {
    model(2, || {
        let memory = Memory::of(locks::len_of(2));
        let inside = Arc::new(AtomicU64::new(0));
        let run = |me: u32, times: usize| {
            let (locks, inside) = (Locks::new(memory.clone(), me, 2), Arc::clone(&inside));
            move || {
                let entry = locks.entry(7).expect("there is room");
                for _ in 0..times {
                    let ticket = acquire(&locks, entry, false);
                    let value = inside.load(Ordering::Relaxed);
                    inside.store(value + 1, Ordering::Relaxed);
                    give_back(&locks, ticket);
                }
            }
        };
        let other = thread::spawn(run(1, 1));
        run(0, 2)();
        other.join().unwrap();
        assert_eq!(inside.load(Ordering::Relaxed), 3, "two holders");
    });
}

/// COH-16.12: a member that reads sees no half of what another one writes.
#[test]
fn loom_readers_are_not_beside_a_writer() {
    model(2, || {
        let memory = Memory::of(locks::len_of(2));
        let [writer, reader] = members_of_locks(&memory);
        let cells = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let entry = writer.entry(7).expect("there is room");
        let other = {
            let cells = Arc::clone(&cells);
            thread::spawn(move || {
                let ticket = acquire(&reader, entry, true);
                let [one, two] = [0, 1].map(|cell: usize| cells[cell].load(Ordering::Relaxed));
                assert_eq!(one, two, "beside a writer");
                give_back(&reader, ticket);
            })
        };
        let ticket = acquire(&writer, entry, false);
        cells.iter().for_each(|cell| cell.store(1, Ordering::Relaxed));
        give_back(&writer, ticket);
        other.join().unwrap();
    });
}

/// COH-16.12: two members read at once. Neither waits until the other one ends.
#[test]
fn loom_members_read_together() {
    model(2, || {
        let memory = Memory::of(locks::len_of(2));
        let [one, two] = members_of_locks(&memory);
        let entry = one.entry(7).expect("there is room");
        let other = thread::spawn(move || {
            let _ = acquire(&two, entry, true);
        });
        let _ = acquire(&one, entry, true);
        other.join().unwrap();
    });
}

#[test]
fn loom_a_request_that_ends_keeps_no_lock() {
    model(3, || {
        let memory = Memory::of(locks::len_of(2));
        let [holder, other] = members_of_locks(&memory);
        let entry = holder.entry(7).expect("there is room");
        let held = acquire(&holder, entry, false);
        let waiter = thread::spawn(move || {
            let ticket = other.take_ticket(entry, false).expect("there is room");
            advance(&other, ticket);
            end(&other, ticket);
        });
        give_back(&holder, held);
        waiter.join().unwrap();
        let again = acquire(&holder, entry, false);
        give_back(&holder, again);
    });
}

/// COH-7.5: a ticket that was abandoned gets the lock if a thread uses it again, and otherwise
/// another ticket of that thread does.
#[test]
fn loom_an_abandoned_ticket_is_used_again() {
    model(3, || {
        let memory = Memory::of(locks::len_of(2));
        let [holder, other] = members_of_locks(&memory);
        let entry = holder.entry(7).expect("there is room");
        let held = acquire(&holder, entry, false);
        let abandoned = other.take_ticket(entry, false).expect("there is room");
        other.end(abandoned);
        let waiter = thread::spawn(move || {
            let ticket = loop {
                match other.take_ticket(entry, false) {
                    Some(ticket) => break ticket,
                    None => thread::yield_now(),
                }
            };
            await_grant(&other, ticket);
            give_back(&other, ticket);
        });
        give_back(&holder, held);
        waiter.join().unwrap();
        let again = acquire(&holder, entry, false);
        give_back(&holder, again);
    });
}

/// COH-16.10: two members take the entry of one number, or of two.
#[test]
fn loom_members_find_one_entry_for_a_number() {
    model(3, || {
        let memory = Memory::of(locks::len_of(2));
        let [one, two] = members_of_locks(&memory);
        let found = thread::spawn(move || (two.entry(7), two.entry(8)));
        let own = (one.entry(8), one.entry(7));
        let (seven, eight) = found.join().unwrap();
        assert!(seven.is_some() && eight.is_some() && seven != eight);
        assert_eq!(own, (eight, seven));
    });
}
