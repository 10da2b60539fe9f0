use super::*;
use proptest::prelude::*;
use std::cell::RefCell;

/// Plain memory in place of an alias.
struct Bytes(RefCell<Vec<u8>>);

impl Bytes {
    fn zeroed(pages: usize) -> Bytes {
        Bytes(RefCell::new(vec![0; pages * PAGE]))
    }
}

impl AliasBytes for Bytes {
    fn load(&self, at: usize) -> u8 {
        self.0.borrow()[at]
    }
    fn store(&self, at: usize, bytes: &[u8]) {
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

fn lent(borrows: &Borrows, bytes: Range<usize>, writer: bool) -> u64 {
    borrows.borrow("p", bytes, writer).unwrap()
}

#[test]
fn refusal_names_both_ranges_the_guards_origin_and_the_remedy() {
    let borrows = Borrows::default();
    borrows.borrow("p", 0..64, false).unwrap();
    let text = borrows.borrow("p", 32..96, true).unwrap_err().to_string();
    assert!(text.contains("writing bytes 32..96 of array \"p\""), "{text}");
    assert!(text.contains("reads bytes 0..64"), "{text}");
    assert!(text.contains("tests.rs:") && text.contains("drop(guard) in Rust"), "{text}");
}

/// COH-6.10, COH-7.7: guards are counted for the node, and for the thread that took them.
#[test]
fn guard_is_counted_until_it_ends() {
    let live = Arc::new(LiveGuards::default());
    let (one, other) = (Borrows::counted(Arc::clone(&live)), Borrows::counted(Arc::clone(&live)));
    let memory = Bytes::zeroed(1);
    let (a, b) = (lent(&one, 0..1, true), lent(&other, 0..1, false));
    assert!(live.are_any() && LiveGuards::are_any_of_this_thread());
    std::thread::scope(|threads| {
        let elsewhere =
            threads.spawn(|| (LiveGuards::are_any_of_this_thread(), one.describe_one(true)));
        assert_eq!(elsewhere.join().unwrap(), (false, None));
    });
    assert!(one.describe_one(false).unwrap().contains("writes bytes 0..1, taken at"));
    assert!(other.describe_one(true).unwrap().contains("reads bytes 0..1, taken at"));
    one.give_back(a, &memory);
    assert!(live.are_any());
    other.give_back(b, &memory);
    assert!(!live.are_any() && !LiveGuards::are_any_of_this_thread());
}

/// COH-3.9: a diff at a home changes bytes under a guard only after the guard ends, and all other
/// bytes at once.
#[test]
fn diff_under_a_guard_waits_until_the_last_guard_ends() {
    let (borrows, memory) = (Borrows::default(), Bytes::zeroed(1));
    let (first, second) = (lent(&borrows, 4..8, false), lent(&borrows, 6..9, false));
    borrows.place("p", 2, &[1; 10], Incoming::Diff, &memory);
    assert_eq!(memory.0.borrow()[..13], [0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0]);
    let mut newest = [0; 13];
    borrows.overlay(0, &mut newest);
    assert_eq!(newest[2..9], [0, 0, 1, 1, 1, 1, 1], "what waits, where it waits");
    assert!(borrows.has_pending(0..1) && !borrows.has_pending(1..2));
    borrows.place("p", 5, &[2], Incoming::Diff, &memory);
    borrows.give_back(first, &memory);
    assert_eq!(memory.0.borrow()[4..9], [1, 2, 0, 0, 0]);
    borrows.give_back(second, &memory);
    assert_eq!(memory.0.borrow()[4..9], [1, 2, 1, 1, 1]);
    assert!(!borrows.has_pending(0..1));
}

/// COH-3.9: bytes that return to what the guard shows no longer wait, and a writer's own bytes are
/// not overwritten.
#[test]
fn writers_own_bytes_win_over_those_that_waited() {
    let (borrows, memory) = (Borrows::default(), Bytes::zeroed(1));
    let writer = lent(&borrows, 0..3, true);
    borrows.place("p", 0, &[1, 1, 1], Incoming::Diff, &memory);
    borrows.place("p", 2, &[0], Incoming::Diff, &memory);
    memory.store(1, &[9]);
    borrows.give_back(writer, &memory);
    assert_eq!(memory.0.borrow()[..3], [1, 9, 0]);
}

/// COH-3.9: a fetched page is written whole under a guard that has not shown it, and not where a
/// guard has.
#[test]
fn fetched_bytes_wait_only_for_guards_that_have_shown_the_page() {
    let (borrows, memory) = (Borrows::default(), Bytes::zeroed(2));
    let old = lent(&borrows, PAGE - 2..PAGE + 2, false);
    borrows.place("p", 0, &[1; 2 * PAGE], Incoming::Fetched, &memory);
    assert!(
        memory.0.borrow().iter().all(|byte| *byte == 1),
        "the first fetch after the guard was taken"
    );
    borrows.invalidate(0..1, || ());
    let new = lent(&borrows, PAGE - 1..PAGE, false);
    borrows.place("p", 0, &[2; 2 * PAGE], Incoming::Fetched, &memory);
    assert_eq!(memory.0.borrow()[PAGE - 3..PAGE + 2], [2, 1, 1, 2, 2]);
    borrows.give_back(old, &memory);
    assert_eq!(
        memory.0.borrow()[PAGE - 3..PAGE],
        [2, 2, 1],
        "the new guard may have shown the old byte"
    );
    borrows.give_back(new, &memory);
    assert_eq!(memory.0.borrow()[PAGE - 1], 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The oracle is a count of readers and writers per byte.
    #[test]
    fn lends_exactly_what_no_byte_forbids(asks in proptest::collection::vec((0..20_usize, 0..8_usize, any::<bool>(), any::<bool>()), 1..60)) {
        let (borrows, memory) = (Borrows::default(), Bytes::zeroed(1));
        let mut held: Vec<(u64, Range<usize>, bool)> = Vec::new();
        for (start, len, writer, give_back) in asks {
            if give_back && let Some((ticket, ..)) = held.pop() {
                borrows.give_back(ticket, &memory);
            }
            let bytes = start..start + len;
            let forbidden = bytes.clone().any(|b| held.iter().any(|(_, r, w)| r.contains(&b) && (writer || *w)));
            let answer = borrows.borrow("p", bytes.clone(), writer);
            prop_assert_eq!(answer.is_err(), forbidden);
            held.extend(answer.ok().map(|ticket| (ticket, bytes, writer)));
            prop_assert_eq!(borrows.count(), held.len());
        }
    }

    /// COH-3.9, against an oracle by bytes: arriving bytes never change memory under a guard, and
    /// in the end each byte is the one that arrived last.
    #[test]
    fn nothing_under_a_guard_changes_and_nothing_is_lost(steps in proptest::collection::vec((0..4_u8, 0..24_usize, 1..8_usize, any::<u8>()), 1..80)) {
        let (borrows, memory) = (Borrows::default(), Bytes::zeroed(1));
        let mut newest = [0_u8; 32];
        let mut held: Vec<(u64, Range<usize>, Vec<u8>)> = Vec::new();
        for (step, start, len, value) in steps {
            let bytes = start..start + len;
            match step {
                0 => if let Some((ticket, ..)) = held.pop() {
                    borrows.give_back(ticket, &memory);
                },
                1 => {
                    let ticket = lent(&borrows, bytes.clone(), false);
                    let shown = memory.0.borrow()[bytes.clone()].to_vec();
                    held.push((ticket, bytes, shown));
                }
                _ => {
                    borrows.place("p", start, &vec![value; len], Incoming::Diff, &memory);
                    newest[bytes].fill(value);
                }
            }
            for (_, bytes, shown) in &held {
                prop_assert_eq!(&memory.0.borrow()[bytes.clone()], &shown[..]);
            }
            let mut copy = memory.0.borrow()[..32].to_vec();
            borrows.overlay(0, &mut copy);
            prop_assert_eq!(&copy[..], &newest[..]);
        }
        for (ticket, ..) in held {
            borrows.give_back(ticket, &memory);
        }
        prop_assert_eq!(&memory.0.borrow()[..32], &newest[..]);
        prop_assert!(!borrows.has_pending(0..1));
    }
}
