//! Atomics on words that all nodes change.

use super::Accessor;
use crate::program::Context;
use crate::program::doing::Doing;
use crate::program::layout::{EXCHANGED, ONES, SUMS};
use oikaze_engine::Request;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::AtomicOp;

impl Accessor {
    /// Adds to a word. Some calls do not ask for the old value.
    pub(super) fn add(&mut self, context: &mut Context<'_>, target: Rank) -> (Doing, Request) {
        let (word, add) = match self.random.chance(0.6) {
            true => (self.random.below(ONES) * 8, 1),
            false => ((ONES + self.random.below(SUMS)) * 8, self.random.word()),
        };
        let known = context.oracle.memory.word(target, word);
        known.asked += 1;
        known.sum = known.sum.wrapping_add(add);
        let key = self.key(target, "words");
        let fetch = self.random.chance(0.6);
        (
            Doing::Add { word, add, fetch },
            Request::Atomic { at: target, key, offset: word, op: AtomicOp::add(add), fetch },
        )
    }

    /// Exchanges the value of a word.
    pub(super) fn exchange(&mut self, context: &mut Context<'_>, target: Rank) -> (Doing, Request) {
        let word = (ONES + SUMS + self.random.below(EXCHANGED)) * 8;
        let new = context.oracle.memory.unique();
        // The expected value is often right, as the oracle sees the word. Other threads often
        // overtake it.
        let seen = context.oracle.memory.value(target, word);
        let expected = self.random.chance(0.7).then_some(seen);
        context.oracle.memory.word(target, word).tried.insert(new);
        let op =
            expected.map_or(AtomicOp::swap(new), |expected| AtomicOp::compare_swap(expected, new));
        let key = self.key(target, "words");
        (
            Doing::Exchange { word, expected, new },
            Request::Atomic { at: target, key, offset: word, op, fetch: true },
        )
    }
}
