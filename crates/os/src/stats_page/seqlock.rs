//! A sequence lock (H.-J. Boehm, "Can seqlocks get along with programming language memory models?",
//! MSPC 2012). The one writer never waits. A reader that was disturbed notices, and reads again.

use super::sync::{Cell, Ordering, fence};

/// Maximum number of attempts of a reader. After them it assumes that the writer was stopped in the
/// middle (killed, or held by a debugger).
const LOOKS: usize = 1000;

/// Writes the first words, and keeps the others. Only one thread at a time may call this for one
/// record.
pub(super) fn write<C: Cell>(sequence: &C, words: &[C], numbers: &[u64]) {
    let before = sequence.load(Ordering::Relaxed);
    sequence.store(before | 1, Ordering::Relaxed);
    // A reader that sees a word written below sees the odd number too.
    fence(Ordering::Release);
    for (word, number) in words.iter().zip(numbers) {
        word.store(*number, Ordering::Relaxed);
    }
    sequence.store((before | 1).wrapping_add(1), Ordering::Release);
}

/// Returns all words as they were between two writes, if the reader met such a moment.
pub(super) fn read<C: Cell>(sequence: &C, words: &[C]) -> Option<Vec<u64>> {
    let mut numbers = Vec::with_capacity(words.len());
    for _ in 0..LOOKS {
        let before = sequence.load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            numbers.clear();
            numbers.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
            fence(Ordering::Acquire);
            if sequence.load(Ordering::Relaxed) == before {
                return Some(numbers);
            }
        }
        relax();
    }
    None
}

fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

#[cfg(all(loom, test))]
mod models {
    use crate::models::model;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    #[test]
    fn loom_seqlock() {
        model(3, || {
            let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
            let writer = {
                let words = Arc::clone(&words);
                thread::spawn(move || {
                    let [sequence, rest @ ..] = &*words;
                    (1..=2).for_each(|number| super::write(sequence, rest, &[number, number]));
                })
            };
            let [sequence, rest @ ..] = &*words;
            let seen = super::read(sequence, rest).unwrap();
            assert_eq!(seen[0], seen[1], "torn");
            writer.join().unwrap();
            assert_eq!(super::read(sequence, rest).unwrap(), [2, 2]);
        });
    }
}
