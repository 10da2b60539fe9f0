//! Posted receives, and which of them a message fills (MEM-26).

use crate::Rank;
use alloc::collections::VecDeque;

/// Messages that a posted receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Rank of the sender, or `None` for any sender.
    pub from: Option<Rank>,
    /// Tag, of which only the bits in `mask` count.
    pub tag: u64,
    /// Bits of the tag that must be equal.
    pub mask: u64,
}

impl Pattern {
    /// Returns `true` if the receive takes a message of this sender and tag (MEM-26.1).
    #[must_use]
    pub fn matches(&self, from: Rank, tag: u64) -> bool {
        self.from.is_none_or(|wanted| wanted == from) && (tag ^ self.tag) & self.mask == 0
    }
}

/// Posted receives, oldest first. `R` is what the caller keeps with each.
#[derive(Debug)]
pub struct PostedReceives<R>(VecDeque<(Place, R)>, u64);

/// Place of a receive among the others, and its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Serial number, which grows with each receive that is posted.
    serial: u64,
    /// Messages that the receive takes.
    pub pattern: Pattern,
}

impl<R> Default for PostedReceives<R> {
    fn default() -> Self {
        Self(VecDeque::new(), 0)
    }
}

impl<R> PostedReceives<R> {
    /// Adds a receive behind the others. The caller has made sure that no message which arrived
    /// earlier and waits matches (MEM-26.2).
    pub fn post(&mut self, pattern: Pattern, receive: R) {
        self.1 += 1;
        self.0.push_back((Place { serial: self.1, pattern }, receive));
    }

    /// Takes the oldest receive that matches a message (MEM-26.2).
    pub fn take(&mut self, from: Rank, tag: u64) -> Option<R> {
        let at = self.0.iter().position(|(place, _)| place.pattern.matches(from, tag))?;
        self.0.remove(at).map(|(_, receive)| receive)
    }

    /// Takes the oldest receive that matches a message, if `has_room` says so.
    pub fn take_for(
        &mut self,
        (from, tag): (Rank, u64),
        has_room: impl FnOnce(&R) -> bool,
    ) -> Option<(Place, R)> {
        let at = self.0.iter().position(|(place, _)| place.pattern.matches(from, tag))?;
        self.0.get(at).filter(|(_, receive)| has_room(receive))?;
        self.0.remove(at)
    }

    /// Puts a receive back to its place among the others.
    pub fn restore(&mut self, place: Place, receive: R) {
        let at = self.0.partition_point(|(other, _)| other.serial < place.serial);
        self.0.insert(at, (place, receive));
    }

    /// Takes all receives that `ended` selects, in their order.
    pub fn take_if<E>(
        &mut self,
        mut ended: impl FnMut(&Pattern, &R) -> Option<E>,
    ) -> VecDeque<(R, E)> {
        let (mut taken, mut kept) = (VecDeque::new(), VecDeque::new());
        for (place, receive) in self.0.drain(..) {
            match ended(&place.pattern, &receive) {
                Some(end) => taken.push_back((receive, end)),
                None => kept.push_back((place, receive)),
            }
        }
        self.0 = kept;
        taken
    }

    /// Returns the number of receives.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there is no receive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::vec::Vec;

    /// MEM-26.1
    #[test]
    fn only_the_bits_of_the_mask_count() {
        let pattern = |from, tag, mask| Pattern { from, tag, mask };
        for (pattern, from, tag, matches) in [
            (pattern(None, 0, 0), 7, u64::MAX, true),
            (pattern(Some(7), 0, 0), 7, 5, true),
            (pattern(Some(6), 0, 0), 7, 5, false),
            (pattern(None, 5, u64::MAX), 7, 5, true),
            (pattern(None, 5, u64::MAX), 7, 4, false),
            (pattern(None, 0xff05, 0xff), 7, 5, true),
            (pattern(None, 5, 1 << 63), 7, 1 << 63, false),
        ] {
            assert_eq!(pattern.matches(from, tag), matches, "{pattern:?} {from} {tag}");
        }
    }

    /// MEM-26.8: a receive that is put back stands where it stood.
    #[test]
    fn a_receive_is_put_back_to_its_place() {
        let mut posted = PostedReceives::default();
        let any = Pattern { from: None, tag: 0, mask: 0 };
        (0..4).for_each(|n| posted.post(any, n));
        assert!(posted.take_for((1, 0), |_| false).is_none());
        let (first, zero) = posted.take_for((1, 0), |_| true).unwrap();
        let (second, one) = posted.take_for((1, 0), |_| true).unwrap();
        posted.post(any, 4);
        posted.restore(second, one);
        posted.restore(first, zero);
        let order: Vec<_> = core::iter::from_fn(|| posted.take(1, 0)).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
    }

    /// One event of a history, in the order in which the events happen.
    #[derive(Clone, Copy)]
    enum Act {
        Post(Pattern),
        Arrive(Rank, u64),
        Cancel(usize),
    }

    /// Says which message each receive gets, by the words of MEM-26.2 and nothing else: of all
    /// pairs that match, the one that could be formed first is formed first, and of several the one
    /// with the oldest receive and message.
    fn judge(history: &[Act]) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        let is_free = |pairs: &[(usize, usize)], receive, message| {
            pairs.iter().all(|(r, m)| *r != receive && *m != message)
        };
        for now in 0..history.len() {
            let past = &history[..=now];
            let is_cancelled = |receive: usize| {
                past.iter().any(|act| matches!(act, Act::Cancel(r) if *r == receive))
            };
            for (receive, act) in past.iter().enumerate() {
                let Act::Post(pattern) = act else { continue };
                for (message, act) in past.iter().enumerate() {
                    let Act::Arrive(from, tag) = act else { continue };
                    if pattern.matches(*from, *tag)
                        && !is_cancelled(receive)
                        && is_free(&pairs, receive, message)
                    {
                        pairs.push((receive, message));
                    }
                }
            }
        }
        pairs
    }

    /// MEM-26.2: in random histories, each receive gets the message that the oracle says.
    #[test]
    fn receives_get_messages_as_the_oracle_says() {
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let mut history: Vec<Act> = Vec::new();
            let (mut posted, mut waiting) = (PostedReceives::default(), Vec::new());
            let mut pairs = Vec::new();
            for now in 0..40 {
                let act = match random.below(7) {
                    0..3 => Act::Post(Pattern {
                        from: [None, Some(0), Some(1)][random.below(3)],
                        tag: random.below(4) as u64,
                        mask: [0, 1, 2, u64::MAX][random.below(4)],
                    }),
                    3..6 => Act::Arrive(random.below(2) as Rank, random.below(4) as u64),
                    _ => Act::Cancel(random.below(now + 1)),
                };
                history.push(act);
                match act {
                    Act::Post(pattern) => {
                        let at = waiting.iter().position(|(_, from, tag): &(usize, Rank, u64)| {
                            pattern.matches(*from, *tag)
                        });
                        match at {
                            Some(at) => pairs.push((now, waiting.remove(at).0)),
                            None => posted.post(pattern, now),
                        }
                    }
                    Act::Arrive(from, tag) => match posted.take(from, tag) {
                        Some(receive) => pairs.push((receive, now)),
                        None => waiting.push((now, from, tag)),
                    },
                    Act::Cancel(receive) => {
                        let taken = posted.take_if(|_, known| (*known == receive).then_some(()));
                        assert!(taken.len() <= 1);
                    }
                }
            }
            assert_eq!(pairs, judge(&history), "seed {seed}");
            let matched = pairs.len();
            assert_eq!(
                history.iter().filter(|act| matches!(act, Act::Arrive(..))).count(),
                matched + waiting.len(),
                "no message is lost"
            );
        }
    }
}
