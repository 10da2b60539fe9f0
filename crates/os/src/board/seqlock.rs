//! A sequence lock (H.-J. Boehm, "Can seqlocks get along with programming language memory models?",
//! MSPC 2012): one writer who never waits, readers who notice that they were disturbed and look
//! again.

use super::sync::{Cell, Ordering, fence};

/// How often a reader looks before it takes the writer for stopped in the middle (killed, or held
/// by a debugger).
const LOOKS: usize = 1000;

/// Write the first words; the others stay. Only one at a time may call this for one record.
pub(super) fn write<C: Cell>(sequence: &C, words: &[C], numbers: &[u64]) {
    let before = sequence.load(Ordering::Relaxed);
    sequence.store(before | 1, Ordering::Relaxed);
    // Who sees a word written below sees the odd number too.
    fence(Ordering::Release);
    for (word, number) in words.iter().zip(numbers) {
        word.store(*number, Ordering::Relaxed);
    }
    sequence.store((before | 1).wrapping_add(1), Ordering::Release);
}

/// All words as they were between two writes, if such a moment was met.
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
